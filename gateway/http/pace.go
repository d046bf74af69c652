package http

import (
	"errors"
	"os"
	"time"

	"github.com/cloudwego/hertz/pkg/network"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// pacedBytes of an answer are written at a time to a client that does not take it at once.
const pacedBytes = 64 << 10

// writePaced writes a small head and a body, or the rest of them. The client must take them at the lowest rate, else the write fails and is
// counted. held, which may be nil, learns what the client takes.
func (e *Edge) writePaced(c network.Conn, held *heldAnswer, head, p []byte) error {
	began, limits := time.Now(), e.Limits.parser()
	var pace http1.Pace
	pace.Start(&limits, 0)
	if len(head) > 0 {
		if _, err := c.WriteBinary(head); err != nil {
			return err
		}
	}
	for {
		n := min(len(p), pacedBytes)
		if _, err := c.WriteBinary(p[:n]); err != nil {
			return err
		}
		timeout := time.Duration(0) // none
		if d := pace.Deadline(&limits); d > 0 {
			timeout = max(time.Duration(d)-time.Since(began), 1)
		}
		if err := c.SetWriteTimeout(timeout); err != nil {
			return err
		}
		if err := c.Flush(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				e.Refusals.count(http1.Unread)
			}
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		now := time.Now()
		pace.Moved(&limits, n, api.Nanos(now.Sub(began)))
		held.Took(now)
	}
}

// writeTimeout is the time in which a client must take an answer of at most pacedBytes, or a part of a stream; 0: any.
func (l *Limits) writeTimeout() time.Duration {
	if l.MinRate <= 0 {
		return 0
	}
	return l.RateGrace + time.Duration(pacedBytes)*time.Second/time.Duration(l.MinRate)
}

// flushing is a connection of Hertz's standard transport. Each flush, also that of a stream, has its own deadline.
type flushing struct {
	network.Conn
	limits *Limits
	paced  bool // writePaced has set the deadline
}

// SetWriteTimeout sets the deadline of the next flush.
func (f *flushing) SetWriteTimeout(t time.Duration) error {
	f.paced = true
	return f.Conn.SetWriteTimeout(t)
}

// Flush writes what is buffered.
func (f *flushing) Flush() error {
	if !f.paced {
		if err := f.Conn.SetWriteTimeout(f.limits.writeTimeout()); err != nil {
			return err
		}
	}
	f.paced = false
	return f.Conn.Flush()
}
