package dialect

import (
	"bytes"

	"github.com/xebec-serving/xebec/api"
)

// Identity is what names a request in answers, logs and traces.
type Identity = api.Identity

// Limits of what clients may send.
const (
	// MaxRequestID is twice the length of what proxies and libraries make.
	MaxRequestID = 128 //xebec:limit bytes of an `X-Request-Id`; a longer one is replaced
	// MaxTraceState is what W3C Trace Context asks every party to pass on.
	MaxTraceState = 512 //xebec:limit bytes of a `tracestate`; a longer one is dropped
)

// ValidRequestID reports whether a client's X-Request-Id can be returned and logged: visible ASCII of at most MaxRequestID
// bytes.
func ValidRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > MaxRequestID {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// traceParentBytes is the length of version, trace id, parent id and flags, in hexadecimal and with three dashes.
const traceParentBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2

// ParseTraceParent returns the traceparent to pass on, or nil if the client's is not valid (W3C Trace Context, section 3.2.2).
// What later versions append is cut off.
func ParseTraceParent(v []byte) []byte {
	if len(v) < traceParentBytes || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return nil
	}
	version, trace, parent, flags := v[:2], v[3:35], v[36:52], v[53:55]
	if !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) || zeros(trace) || zeros(parent) || string(version) == "ff" {
		return nil
	}
	if len(v) == traceParentBytes {
		return v
	}
	if string(version) == "00" || v[traceParentBytes] != '-' {
		return nil
	}
	return v[:traceParentBytes]
}

// ValidTraceState reports whether a tracestate can be passed on. Its list is for tracers to read.
func ValidTraceState(v []byte) bool {
	if len(v) == 0 || len(v) > MaxTraceState {
		return false
	}
	for _, c := range v {
		if c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return bytes.IndexByte(v, '=') > 0
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != '0' {
			return false
		}
	}
	return true
}
