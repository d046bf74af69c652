// Package coding has the content codings of HTTP (RFC 9110, section 8.4): it decodes the bodies of requests and compresses
// those of answers. Bytes in, bytes out: it knows no connection, no header but the two values that it is given, and no
// server.
//
// # What it promises
//
// To the edge, which calls [Decode] before a dialect sees a request: whatever a body expands to, the result has at most
// the bytes that the caller allows, and at most [MaxRatio] times those that were received, or [RatioFrom] if that is more.
// A body that would be longer is refused before more memory is taken. Memory beside the result belongs to the decoders,
// which are pooled, and of which a bounded number runs at a time; a decoder that has seen a large or a broken body is
// left to the collector. Errors say which coding failed and have a code: TooLarge, InvalidArgument, or Unsupported, which
// is status 415 here.
//
// To the edge, which calls [Choose] and [Compress] when an answer is large enough: the coding is one that the client
// accepts, by its weights, and the compressed body is shorter than the body.
//
// # What it never does
//
// It reads no dictionary, accepts no more than [MaxStacked] codings of one body, and starts no goroutine.
package coding
