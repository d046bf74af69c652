package http

import (
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
)

// Header fields that the edge reads and writes, in their canonical form.
const (
	headerRequestID       = "X-Request-Id"
	headerTraceParent     = "Traceparent"
	headerTraceState      = "Tracestate"
	headerAcceptEncoding  = "Accept-Encoding"
	headerContentEncoding = "Content-Encoding"
	headerVary            = "Vary"
	headerOrigin          = "Origin"
	headerFetchSite       = "Sec-Fetch-Site"
)

// A request without an X-Request-Id gets one: 64 random bits of the process and the number of the request, in hexadecimal.
// It is made for every request, because a client that reports a problem has no other name for it; with the header's other
// fields that takes 40 to 70 ns.
var (
	processID = func() string {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return hex.EncodeToString(b[:]) + "-"
	}()
	requests atomic.Uint64
)

func appendRequestID(dst []byte) []byte {
	const digits = "0123456789abcdef"
	dst, n := append(dst, processID...), requests.Add(1)
	for shift := 44; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return dst
}

// about is what a request's header says that is for the edge and no dialect. Its memory is reused.
type about struct {
	dialect.Identity
	accept  coding.Coding // of the answer
	codings []byte        // of the body; the request's memory
	given   int           // how often X-Request-Id is there
	traces  int           // how often traceparent is there
	lists   int           // how many Accept-Encoding and Content-Encoding fields there are
	origin  []byte        // of the page that a browser sends the request for; the request's memory
	site    []byte        // Sec-Fetch-Site; the request's memory
	origins int           // how often Origin is there
}

// read reads the header. It looks at each field once: looking four names up would cost more than all the rest.
func (a *about) read(h *protocol.RequestHeader) {
	a.RequestID, a.TraceParent, a.TraceState, a.Chain = a.RequestID[:0], a.TraceParent[:0], a.TraceState[:0], a.Chain[:0]
	a.accept, a.codings, a.given, a.traces, a.lists = coding.Identity, nil, 0, 0, 0
	a.origin, a.site, a.origins = nil, nil, 0
	h.VisitAllCustomHeader(a.visit)
	if a.given != 1 || len(a.RequestID) == 0 {
		a.RequestID = appendRequestID(a.RequestID[:0])
	}
	if a.traces != 1 || len(a.TraceParent) == 0 {
		a.TraceParent, a.TraceState = a.TraceParent[:0], a.TraceState[:0]
	}
	if a.lists > 1 {
		a.accept = coding.Choose(joined(h, headerAcceptEncoding))
		a.codings = joined(h, headerContentEncoding)
	}
}

func (a *about) visit(name, value []byte) {
	switch string(name) {
	case headerRequestID:
		if a.given++; dialect.ValidRequestID(value) {
			a.RequestID = append(a.RequestID[:0], value...)
		}
	case headerTraceParent:
		a.traces++
		a.TraceParent = append(a.TraceParent[:0], dialect.ParseTraceParent(value)...)
	case headerTraceState:
		before := len(a.TraceState)
		if before > 0 { // several fields are one list (W3C Trace Context, section 3.3.1)
			a.TraceState = append(a.TraceState, ',')
		}
		if a.TraceState = append(a.TraceState, value...); !dialect.ValidTraceState(a.TraceState) {
			a.TraceState = a.TraceState[:before]
		}
	case headerOrigin:
		a.origins++
		a.origin = value
	case headerFetchSite:
		a.site = value
	case headerAcceptEncoding:
		a.lists++
		a.accept = coding.Choose(value)
	case headerContentEncoding:
		a.lists++
		a.codings = value
	}
}

// joined returns the list that all fields of a name make together (RFC 9110, section 5.3).
func joined(h *protocol.RequestHeader, name string) []byte {
	var list []byte
	for _, v := range h.PeekAll(name) {
		list = append(append(list, v...), ',')
	}
	return list
}

// nameAnswer writes the identity to an answer that Hertz writes.
func nameAnswer(c *app.RequestContext, id *dialect.Identity) {
	h := &c.Response.Header
	h.SetBytesV(headerRequestID, id.RequestID)
	if len(id.TraceParent) > 0 {
		h.SetBytesV(headerTraceParent, id.TraceParent)
		if len(id.TraceState) > 0 {
			h.SetBytesV(headerTraceState, id.TraceState)
		}
	}
}

// nameRefused names a request that perhaps did not reach the first middleware, and its answer. What is rendered then finds the id in both.
func nameRefused(c *app.RequestContext) {
	if len(c.Response.Header.Peek(headerRequestID)) > 0 {
		return
	}
	var a about
	a.read(&c.Request.Header)
	c.Request.Header.Set(headerRequestID, string(a.RequestID))
	nameAnswer(c, &a.Identity)
}
