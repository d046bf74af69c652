// Package h2 serves HTTP/2 connections under Hertz: over TLS by ALPN, and in clear text with prior knowledge.
//
// golang.org/x/net/http2 does the protocol: frames, header compression, flow control, and the bounds that keep floods of
// resets, settings, pings and CONTINUATION frames from costing more than their connection. This package turns each of
// its requests into one for Hertz's engine, so that routes, middlewares and errors are those of HTTP/1.1. Each stream
// has a goroutine while its request is served. HTTP/1.1 is the faster way; HTTP/2 is for clients and proxies that speak
// nothing else.
//
// # Bounds
//
// [Options] bound streams, header and body of a request, and the time that silence may last. A body is read into
// memory while its stream's flow control window bounds what the client can send ahead; it must arrive at a least rate.
//
// # What it never does
//
// It does not upgrade HTTP/1.1 connections (RFC 9113 deprecates h2c upgrades), does not push, and does not stream
// bodies: functions need the whole body.
package h2
