package loadgen

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"time"
)

// Request is one request as it goes over the wire, and the check of its answer.
type Request struct {
	Wire []byte // header and body, see Render
	// Contains and Equals are compared with the body of answers of status 200, unless they are nil.
	Contains []byte
	Equals   []byte
}

// accepts reports whether the body of an answer of status 200 is right.
func (r *Request) accepts(body []byte) bool {
	return (r.Contains == nil || bytes.Contains(body, r.Contains)) && (r.Equals == nil || bytes.Equal(r.Equals, body))
}

// Content types of requests.
const (
	JSON   = "application/json"
	Binary = "application/octet-stream"
)

// Render returns a POST request. Extra fields are lines without CRLF ("Xebec-Slo-Ms: 50").
func Render(host, path, contentType string, body []byte, fields ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", path, host, contentType, len(body))
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// Options describe a run. Addr, Requests, Connections and Duration are required.
type Options struct {
	Addr string // host:port
	// Every connection sends the requests in turn.
	Requests    []Request
	Connections int
	// Fresh gives each request of an open loop a connection of its own; Connections bounds how many are open at a time. The connect is
	// part of the latency. The requests should ask the server to close.
	Fresh bool
	// Threads is the number of event loops that share the connections. 0 means 1, which can send well over 100,000 requests a second.
	Threads int
	// CPUs are the processors to which the event loops are pinned, in turn. nil leaves it to the kernel.
	CPUs []int
	// Rate is in requests a second; 0 means a closed loop.
	Rate     float64
	Arrivals Arrivals // of an open loop; "" means Poisson
	Seed     uint64   // of Poisson arrivals
	// Warmup is sent but not counted; Duration is the measured part, after it.
	Warmup, Duration time.Duration
	// Grace is how long the run waits for the answers to the last requests. 0 means 10 s.
	Grace time.Duration
	// OnMeasure and OnEnd are called when the measured part begins and when it ends, for example to read the server's CPU time. They do not run
	// in the event loops. Either may be nil.
	OnMeasure, OnEnd func()
	// OnAnswer is called for every answer, including those of the warm-up, by the loop that received it. It must be quick, and safe for
	// concurrent use if there are several threads. Requests without an answer are only in [Result.Errors]. It may be nil.
	OnAnswer func(Answered)
}

// Answered describes one answer to OnAnswer.
type Answered struct {
	Due    time.Time // in a closed loop: when the request was sent
	Done   time.Time // when the last byte of the answer arrived
	Status int
	// Measured means that the request was due (open loop) or sent (closed loop) in the measured part.
	Measured bool
	// Default means status 200 with a function's default output, Wrong status 200 with a body that the request does not expect.
	Default, Wrong bool
}

const (
	// maxConnections stays below the number of ports of one loopback address.
	maxConnections = 20_000
	maxThreads     = 64
	// defaultGrace is [Options.Grace] if it is 0.
	defaultGrace = 10 * time.Second
)

func (o *Options) validate() error {
	var wrong []string
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		bad("address %q: expected host:port", o.Addr)
	}
	if len(o.Requests) == 0 {
		bad("no requests to send")
	}
	for i := range o.Requests {
		if len(o.Requests[i].Wire) == 0 {
			bad("request %d is empty: see Render", i)
		}
	}
	if o.Connections < 1 || o.Connections > maxConnections {
		bad("%d connections: expected 1 to %d", o.Connections, maxConnections)
	}
	if o.Threads < 0 || o.Threads > maxThreads || o.Threads > o.Connections {
		bad("%d threads: expected 1 to %d, and no more than connections (%d)", o.Threads, maxThreads, o.Connections)
	}
	if o.Duration <= 0 || o.Warmup < 0 {
		bad("duration %s after a warm-up of %s: expected more than 0, and 0 or more", o.Duration, o.Warmup)
	}
	if o.Grace < 0 {
		bad("a grace period of %s: expected 0 (%s) or more", o.Grace, defaultGrace)
	}
	if o.Fresh && o.Rate == 0 {
		bad("fresh connections in a closed loop: expected a rate")
	}
	if o.Rate < 0 {
		bad("rate %v: expected 0 (closed loop) or more", o.Rate)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("load generator: %s", strings.Join(wrong, "; "))
	}
	return nil
}
