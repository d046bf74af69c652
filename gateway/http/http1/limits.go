package http1

import "github.com/xebec-serving/xebec/api"

// Limits bound one connection. A duration of 0 sets no deadline, a MinRate of 0 accepts any rate.
type Limits struct {
	// BodyBytes bounds a body without its framing: more is refused with 413.
	BodyBytes int64
	// HeaderBytes bounds the field lines of a request together with its trailers and chunk extensions.
	HeaderBytes int
	// FirstByte bounds the time from the connection's begin to its first byte, Header that from a request's first byte to the
	// end of its head, Idle that from an answer to the next request's first byte.
	FirstByte, Header, Idle api.Nanos
	// MinRate is how many bytes of a body must come each second, after Grace of silence.
	MinRate int64
	Grace   api.Nanos
}

const (
	// MaxLineBytes bounds the request line. RFC 9112, 3 recommends at least 8,000.
	MaxLineBytes = 16 << 10 //xebec:limit request line of a request: method, target and version
	// MaxFields bounds the work and the memory that a head of short fields makes.
	MaxFields = 256 //xebec:limit header fields and trailers of a request
	// MaxChunkLineBytes bounds a line with a chunk's size, including extensions, which are ignored.
	MaxChunkLineBytes = 4 << 10 //xebec:limit line with a chunk's size and its extensions
	// keptHeadBytes of the head's memory stay with an idle connection. Most heads are smaller.
	keptHeadBytes = 4 << 10
)

// Pace is the deadline of bytes that must flow at a lowest rate. Silence up to the grace is allowed at any time; each byte
// buys its share of a second, and nothing is saved beyond the grace. So a flow at or above the rate never ends, and one that
// stops is noticed after the grace, however much came before: at 16 KiB/s with 10 s of grace, an upload that stalls after
// 60 MiB has 10 s left, not an hour.
type Pace struct{ deadline api.Nanos }

// Start begins to measure.
func (p *Pace) Start(l *Limits, now api.Nanos) { p.deadline = now + l.Grace }

// Moved reports n bytes.
func (p *Pace) Moved(l *Limits, n int, now api.Nanos) {
	if l.MinRate <= 0 {
		return
	}
	p.deadline = min(p.deadline+api.Nanos(float64(n)*1e9/float64(l.MinRate)), now+l.Grace)
}

// Deadline returns until when more bytes must have moved; 0: there is none.
func (p *Pace) Deadline(l *Limits) api.Nanos {
	if l.MinRate <= 0 {
		return 0
	}
	return p.deadline
}
