package http

import (
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// Limits bound what clients can make the gateway hold, and how long.
type Limits struct {
	BodyBytes   int // larger bodies are refused with 413
	HeaderBytes int // header fields and trailers of a request
	Connections int // open at a time; further ones are closed at once
	// FirstByteTimeout bounds the time from accept to a connection's first byte, HeaderTimeout that from a request's first
	// byte to the end of its header, IdleTimeout that between an answer and the next request. 0: no limit.
	FirstByteTimeout, HeaderTimeout, IdleTimeout time.Duration
	// MinRate is how many bytes of a body must come, and of an answer must be taken, each second after RateGrace; 0: any rate.
	MinRate   int
	RateGrace time.Duration
}

// DefaultLimits suit a gateway to which apps connect directly.
func DefaultLimits() Limits {
	return Limits{
		BodyBytes:        64 << 20,         //xebec:limit body of a request; `--max-body`
		HeaderBytes:      64 << 10,         //xebec:limit header fields, trailers and chunk extensions of a request
		Connections:      16384,            //xebec:limit open client connections, more are closed, and requests of HTTP/2 at a time; `--max-connections`
		FirstByteTimeout: 30 * time.Second, //xebec:limit time until a connection's first byte; `--first-byte-timeout`
		HeaderTimeout:    10 * time.Second, //xebec:limit time for a request's header; `--header-timeout`
		IdleTimeout:      3 * time.Minute,  //xebec:limit silence between requests on a connection; `--idle-timeout`
		MinRate:          16 << 10,         //xebec:limit lowest rate of a body that comes and of an answer that is read, in bytes per second; `--min-rate`
		RateGrace:        10 * time.Second, //xebec:limit silence within a body, and of a client that takes its answer
	}
}

// parser returns the limits as the parser reads them.
func (l *Limits) parser() http1.Limits {
	return http1.Limits{
		BodyBytes: int64(l.BodyBytes), HeaderBytes: l.HeaderBytes,
		FirstByte: api.Nanos(l.FirstByteTimeout), Header: api.Nanos(l.HeaderTimeout), Idle: api.Nanos(l.IdleTimeout),
		MinRate: int64(l.MinRate), Grace: api.Nanos(l.RateGrace),
	}
}
