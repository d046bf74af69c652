package meter

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
)

// What of HTTP/2 is of interest (RFC 9113, sections 4.1 and 6).
const (
	frameHead    = 9
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	flagEnd      = 1
	flagPadded   = 8
	messageHead  = 5 // compressed or not, and the length
)

// Preface is the number of bytes that a client sends before its first frame.
const Preface = 24

// maxStreams bounds what a client can make a meter remember; the library takes far fewer streams at a time.
const maxStreams = 4096

// Limits bound how slowly a message may come: MinRate bytes each second, after Grace of silence. A MinRate of 0 accepts any rate.
type Limits struct {
	MinRate int64
	Grace   api.Nanos
}

// Meter measures one connection.
type Meter struct {
	in, out direction
	streams map[uint32]*stream // those that the client may go on with
	free    []*stream
	held    int
	last    uint32 // the stream of the client's last HEADERS frame
}

// Slow is a message that comes more slowly than it may.
type Slow struct {
	Call any // what was attached to its stream
	// Came is how much of the message has come, and Length how long it is; 0: its length has not come.
	Came, Length int
	// Again says that it was reported before, and that as much time has passed since.
	Again bool
}

// New makes the meter of a connection of which nothing has come.
func New() *Meter { return &Meter{in: direction{skip: Preface}, streams: map[uint32]*stream{}} }

// direction is the place within the frames of one direction.
type direction struct {
	skip  int // bytes of the frame that are of no interest
	head  [frameHead]byte
	n     int // bytes of the head that have come
	data  int // bytes of a DATA frame that are left, without padding
	pad   bool
	after int // bytes of padding
}

// stream is one that is open, and the message of which a part has come.
type stream struct {
	head [messageHead]byte
	n    int // bytes of the head that have come
	left int // bytes of the message that have not come
	held int // bytes that have come
	came int // bytes that have come since the last Late
	due  api.Nanos
	told bool // Late has reported the message
	call any
}

// Held is how many bytes of messages have come that are not complete.
func (m *Meter) Held() int { return m.held }

// Begun is how many messages have begun and are not complete.
func (m *Meter) Begun() int {
	n := 0
	for _, s := range m.streams {
		if s.held > 0 {
			n++
		}
	}
	return n
}

// In takes bytes that the client has sent.
func (m *Meter) In(b []byte) {
	d := &m.in
	for len(b) > 0 {
		switch {
		case d.skip > 0:
			n := min(d.skip, len(b))
			d.skip, b = d.skip-n, b[n:]
		case d.pad:
			d.pad = false
			d.after = min(int(b[0]), d.data)
			d.data, b = d.data-d.after, b[1:]
			m.endData()
		case d.data > 0:
			n := min(d.data, len(b))
			m.data(binary.BigEndian.Uint32(d.head[5:])&(1<<31-1), b[:n])
			d.data, b = d.data-n, b[n:]
			m.endData()
		default:
			n := copy(d.head[d.n:], b)
			if d.n, b = d.n+n, b[n:]; d.n == frameHead {
				d.n = 0
				m.begin()
			}
		}
	}
}

// begin begins a frame of the client.
func (m *Meter) begin() {
	d := &m.in
	length, id := int(d.head[0])<<16|int(d.head[1])<<8|int(d.head[2]), binary.BigEndian.Uint32(d.head[5:])&(1<<31-1)
	switch flags := d.head[4]; d.head[3] {
	case frameData:
		d.data = length
		if flags&flagPadded != 0 && length > 0 {
			d.pad, d.data = true, length-1
		}
		m.endData()
		return
	case frameHeaders:
		m.last = id
		if flags&flagEnd != 0 {
			m.end(id)
		} else if m.streams[id] == nil && len(m.streams) < maxStreams {
			m.open(id)
		}
	case frameReset:
		m.end(id)
	}
	d.skip = length
}

// endData ends a DATA frame if nothing is left of it but padding.
func (m *Meter) endData() {
	d := &m.in
	if d.data > 0 || d.pad {
		return
	}
	d.skip, d.after = d.after, 0
	if d.head[4]&flagEnd != 0 {
		m.end(binary.BigEndian.Uint32(d.head[5:]) & (1<<31 - 1))
	}
}

// data takes bytes of messages. Those of streams that are not open are dropped by the library, too.
func (m *Meter) data(id uint32, b []byte) {
	s := m.streams[id]
	if s == nil {
		return
	}
	for len(b) > 0 {
		var n int
		if s.n < messageHead {
			n = copy(s.head[s.n:], b)
			if s.n += n; s.n == messageHead {
				s.left = int(binary.BigEndian.Uint32(s.head[1:]))
			}
		} else {
			n = min(s.left, len(b))
			s.left -= n
		}
		s.held, s.came, m.held, b = s.held+n, s.came+n, m.held+n, b[n:]
		if s.n == messageHead && s.left == 0 {
			m.held -= s.held
			*s = stream{call: s.call}
		}
	}
}

func (m *Meter) open(id uint32) {
	var s *stream
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = new(stream)
	}
	m.streams[id] = s
}

// end forgets a stream: nothing more of it comes, or is wanted.
func (m *Meter) end(id uint32) {
	s := m.streams[id]
	if s == nil {
		return
	}
	m.held -= s.held
	delete(m.streams, id)
	*s = stream{}
	if len(m.free) < 4 {
		m.free = append(m.free, s)
	}
}

// Out takes bytes that the gateway sends: what it has ended, it does not wait for.
func (m *Meter) Out(b []byte) {
	d := &m.out
	for len(b) > 0 {
		if d.skip > 0 {
			n := min(d.skip, len(b))
			d.skip, b = d.skip-n, b[n:]
			continue
		}
		n := copy(d.head[d.n:], b)
		if d.n, b = d.n+n, b[n:]; d.n < frameHead {
			return
		}
		d.n, d.skip = 0, int(d.head[0])<<16|int(d.head[1])<<8|int(d.head[2])
		kind, flags := d.head[3], d.head[4]
		if kind == frameReset || (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0 {
			m.end(binary.BigEndian.Uint32(d.head[5:]) & (1<<31 - 1))
		}
	}
}

// Last is the stream of the last HEADERS frame that has come of the client.
func (m *Meter) Last() uint32 { return m.last }

// Attach gives a stream its call, until the stream ends. It returns false if nothing more comes on the stream.
func (m *Meter) Attach(id uint32, call any) bool {
	s := m.streams[id]
	if s != nil {
		s.call = call
	}
	return s != nil
}

// Begins reports whether a message has begun on a stream, or none is to come.
func (m *Meter) Begins(id uint32) bool {
	s := m.streams[id]
	return s == nil || s.held > 0
}

// Late appends the messages that come more slowly than they may. It is called from time to time, and measures from call to call.
func (m *Meter) Late(late []Slow, now api.Nanos, l Limits) []Slow {
	if l.MinRate <= 0 {
		return late
	}
	for _, s := range m.streams {
		if s.held == 0 {
			continue
		}
		if s.due == 0 {
			s.due = now + l.Grace
		} else {
			s.due = min(s.due+api.Nanos(float64(s.came)*1e9/float64(l.MinRate)), now+l.Grace)
		}
		s.came = 0
		if now <= s.due {
			continue
		}
		slow := Slow{Call: s.call, Came: max(s.held-messageHead, 0), Again: s.told}
		if s.n == messageHead {
			slow.Length = int(binary.BigEndian.Uint32(s.head[1:]))
		}
		late = append(late, slow)
		s.due, s.told = now+l.Grace, true
	}
	return late
}
