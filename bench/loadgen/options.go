package loadgen

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"time"
)

// Request is one request as it goes over the wire, and what its answer must look like.
type Request struct {
	Wire []byte // header and body, see Render
	// Contains and Equals are checked against the body of answers with status 200, where they are not nil.
	Contains []byte
	Equals   []byte
}

// accepts judges an answer of status 200.
func (r *Request) accepts(body []byte) bool {
	return (r.Contains == nil || bytes.Contains(body, r.Contains)) && (r.Equals == nil || bytes.Equal(r.Equals, body))
}

// Content types of requests.
const (
	JSON   = "application/json"
	Binary = "application/octet-stream"
)

// Render writes a POST request. Extra fields are whole lines without their end ("Xebec-Slo-Ms: 50").
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
	// Requests are sent in turn by every connection.
	Requests    []Request
	Connections int
	// Threads is how many event loops share the connections; 0 means 1, which keeps a core busy at well over 100,000 requests a second.
	Threads int
	// CPUs pins the event loops, in turn, to processors by number; nil: wherever the kernel puts them.
	CPUs []int
	// Rate is in requests a second; 0 means a closed loop.
	Rate     float64
	Arrivals Arrivals // of an open loop; "" means Poisson
	Seed     uint64   // of Poisson arrivals
	// Warmup is sent but not counted; Duration is the measured part, after it.
	Warmup, Duration time.Duration
	// OnMeasure and OnEnd are called, from another goroutine than the loops, when the measured part begins and when it ends:
	// the place to read the server's CPU time. Either may be nil.
	OnMeasure, OnEnd func()
	// OnAnswer is called for every answer of the run, those to requests of the warm-up included, by the loop that got it: it must be
	// quick, and with several threads safe for concurrent use. Requests that ended without an answer are in [Result.Errors] only. It
	// may be nil.
	OnAnswer func(Answered)
}

// Answered is what a hook sees of one answer.
type Answered struct {
	Due    time.Time // of a closed loop: when it was sent
	Done   time.Time // the last byte of the answer is in
	Status int
	// Default: status 200 and a function's default output. Wrong: status 200 and not what the request expects.
	Default, Wrong bool
}

const (
	// maxConnections keeps below the ports of one loopback address.
	maxConnections = 20_000
	maxThreads     = 64
	// graceAfterEnd is how long the answers to the last requests are waited for.
	graceAfterEnd = 10 * time.Second
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
	if o.Rate < 0 {
		bad("rate %v: expected 0 (closed loop) or more", o.Rate)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("load generator: %s", strings.Join(wrong, "; "))
	}
	return nil
}
