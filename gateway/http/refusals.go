package http

import (
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// reasons names what http1 reports, as metrics do.
var reasons = [...]string{
	http1.Framing: "framing", http1.TooLarge: "too_large", http1.FirstByte: "first_byte_timeout", http1.HeaderTime: "header_timeout",
	http1.Rate: "rate", http1.NoRoom: "body_memory", http1.Unread: "unread_answer",
}

// Refusals counts what a port refused before it reached a route.
type Refusals struct{ counts [len(reasons)]atomic.Uint64 }

func (r *Refusals) count(reason http1.Reason) {
	if int(reason) < len(r.counts) {
		r.counts[reason].Add(1)
	}
}

// Read returns the counts by reason.
func (r *Refusals) Read() map[string]uint64 {
	m := map[string]uint64{}
	for i, name := range reasons {
		m[name] = r.counts[i].Load()
	}
	return m
}

// noRoom is the refusal of a body for which the budget has no room.
var noRoom = &http1.Failure{Status: 503, Reason: http1.NoRoom, Text: "the bodies of other requests take all of the memory for bodies (--body-memory): send the request again later"}

// codeOf is the code that a refusal's document has.
func codeOf(status int) api.Code {
	switch status {
	case 408:
		return api.DeadlineExceeded
	case 413, 414, 431:
		return api.TooLarge
	case 501, 505:
		return api.Unsupported
	case 503:
		return api.Overloaded
	}
	return api.InvalidArgument
}
