package http1

import (
	"bytes"

	"github.com/xebec-serving/xebec/api"
)

// Kind is the kind of an event.
type Kind uint8

// The kinds of events.
const (
	More   Kind = iota // all of the input was consumed: nothing happened yet
	Headed             // the head is complete; its body follows, or End
	Body               // Event.Data is the next part of the body, a slice of the input
	End                // the request is complete
	Fail               // Event.Failure: the request is refused, and the connection ends
)

// Event is what Next found.
type Event struct {
	Kind    Kind
	Data    []byte
	Failure *Failure
}

type state uint8

const (
	fresh     state = iota // no byte of the connection has come
	idle                   // the last request was answered, no byte of the next has come
	inLine                 // the request line,
	inFields               // or a field line is incomplete
	headed                 // Headed was returned
	inBody                 // left bytes of a body with a length are to come
	inSize                 // the line with a chunk's size is incomplete
	inChunk                // left bytes of a chunk are to come
	afterData              // the CR LF after a chunk's data
	inTrailer              // the trailers are incomplete
	complete               // End was returned, the answer is not out
	failed
)

// Parser parses the requests of one connection. Its zero value needs Begin.
type Parser struct {
	limits *Limits
	head   Head
	state  state
	failed *Failure

	line        int // where the incomplete line begins in head.buf
	fieldBytes  int // of field lines, trailers and chunk extensions
	fieldCount  int // of fields and trailers
	skippedLine bool
	left        int64 // bytes of the body or the chunk
	body        int64 // bytes of the body so far, for chunked ones
	since       api.Nanos
	pace        Pace
}

// Begin starts a connection at the given time. The limits are shared and must not change.
func (p *Parser) Begin(l *Limits, now api.Nanos) {
	p.limits = l
	p.state, p.since, p.failed = fresh, now, nil
	p.head.reset()
}

// Again forgets the request, whose answer is out: the connection waits for the next one. Called again while it waits, it begins
// the idle time again, for callers whose answers go out later.
func (p *Parser) Again(now api.Nanos) {
	switch p.state {
	case complete:
		p.state, p.since = idle, now
		p.head.reset()
	case idle:
		p.since = now
	}
}

// Resume begins the time of a body again, for callers that have not read it for a while.
func (p *Parser) Resume(now api.Nanos) { p.pace.Start(p.limits, now) }

// Head returns the request's head. It is valid from Headed until Again.
func (p *Parser) Head() *Head { return &p.head }

// Waiting reports that no byte of a next request has come: the client may leave without loss.
func (p *Parser) Waiting() bool { return p.state == fresh || p.state == idle }

// Deadline returns until when further bytes must have come; 0: there is no deadline, as while a request is answered.
func (p *Parser) Deadline() api.Nanos {
	after := func(d api.Nanos) api.Nanos {
		if d <= 0 {
			return 0
		}
		return p.since + d
	}
	switch p.state {
	case fresh:
		return after(p.limits.FirstByte)
	case idle:
		return after(p.limits.Idle)
	case inLine, inFields:
		return after(p.limits.Header)
	case headed, inBody, inSize, inChunk, afterData, inTrailer:
		return p.pace.Deadline(p.limits)
	}
	return 0
}

// Expire returns why the connection ends if its deadline has passed, else nil.
func (p *Parser) Expire(now api.Nanos) *Failure {
	d := p.Deadline()
	if d == 0 || now < d {
		return nil
	}
	f := errRate
	switch p.state {
	case fresh:
		f = errFirstByte
	case idle:
		f = errIdle
	case inLine, inFields:
		f = errHeaderTime
	}
	p.state, p.failed = failed, f
	return f
}

// Close returns what the end of the client's bytes means: a failure within a request, else nil.
func (p *Parser) Close() *Failure {
	if p.Waiting() || p.state == complete {
		return nil
	}
	if p.state != failed {
		p.state, p.failed = failed, errIncomplete
	}
	return p.failed
}

// Next consumes n bytes of the input and returns what they brought. It returns More only when it consumed all of it, or when it
// needs Again first. The input is the caller's again when Next returns, except that Data is a part of it.
func (p *Parser) Next(in []byte, now api.Nanos) (n int, e Event) {
	for {
		switch p.state {
		case fresh, idle:
			if len(in) == 0 {
				return n, Event{}
			}
			p.state, p.since = inLine, now
			p.line, p.fieldBytes, p.fieldCount, p.skippedLine, p.left, p.body = 0, 0, 0, false, 0, 0
		case inLine, inFields, inSize, inTrailer:
			took, whole, f := p.takeLine(in[n:])
			n += took
			if p.state == inSize || p.state == inTrailer {
				p.pace.Moved(p.limits, took, now)
			}
			if f == nil && whole {
				f = p.endLine(now)
			}
			switch {
			case f != nil:
				return n, p.fail(f)
			case p.state == headed:
				return n, Event{Kind: Headed}
			case p.state == complete:
				return n, Event{Kind: End}
			case !whole:
				return n, Event{}
			}
		case headed:
			if f := p.beginBody(); f != nil {
				return n, p.fail(f)
			}
			if p.state == complete {
				return n, Event{Kind: End}
			}
		case inBody, inChunk:
			if p.left == 0 {
				if p.state == inBody {
					p.state = complete
					return n, Event{Kind: End}
				}
				p.state = afterData
				continue
			}
			if n == len(in) {
				return n, Event{}
			}
			part := in[n:]
			if int64(len(part)) > p.left {
				part = part[:p.left]
			}
			p.left -= int64(len(part))
			p.pace.Moved(p.limits, len(part), now)
			return n + len(part), Event{Kind: Body, Data: part[:len(part):len(part)]}
		case afterData:
			if n == len(in) {
				return n, Event{}
			}
			if in[n] != "\r\n"[p.left] { // left counts the bytes seen here
				return n, p.fail(errChunkEnd)
			}
			n++
			if p.left++; p.left == 2 {
				p.left, p.line, p.state = 0, len(p.head.buf), inSize
			}
		case complete:
			return n, Event{}
		case failed:
			return n, Event{Kind: Fail, Failure: p.failed}
		}
	}
}

func (p *Parser) fail(f *Failure) Event {
	p.state, p.failed = failed, f
	return Event{Kind: Fail, Failure: f}
}

// takeLine appends input to the line up to its LF. Bounds are judged by position, so that they do not depend on how the input
// is cut.
func (p *Parser) takeLine(in []byte) (took int, whole bool, f *Failure) {
	var room int
	long := errHeaderTooLong
	switch p.state {
	case inLine:
		room, long = MaxLineBytes+2-(len(p.head.buf)-p.line), errLineTooLong
	case inSize:
		room, long = MaxChunkLineBytes+2-(len(p.head.buf)-p.line), errChunkLineLong
	default:
		room = p.limits.HeaderBytes + 2 - p.fieldBytes
	}
	took = len(in)
	if i := bytes.IndexByte(in, '\n'); i >= 0 {
		took, whole = i+1, true
	}
	if took > room {
		return 0, false, long
	}
	p.head.buf = append(p.head.buf, in[:took]...)
	if p.state == inFields || p.state == inTrailer {
		p.fieldBytes += took
	}
	return took, whole, nil
}

// endLine reads the line that has just become complete.
func (p *Parser) endLine(now api.Nanos) *Failure {
	end := len(p.head.buf) - 2
	if end < p.line || p.head.buf[end] != '\r' {
		return errBareLF
	}
	line := p.head.buf[p.line:end]
	if bytes.IndexByte(line, '\r') >= 0 {
		return errBareCR
	}
	switch p.state {
	case inLine:
		if len(line) == 0 && !p.skippedLine { // RFC 9112, 2.2: old clients send one empty line after a body
			p.skippedLine = true
			p.head.buf = p.head.buf[:p.line]
			return nil
		}
		if f := p.head.readLine(p.line, end); f != nil {
			return f
		}
		p.state = inFields
	case inFields:
		if len(line) == 0 {
			if f := p.head.judge(p.limits); f != nil {
				return f
			}
			p.state = headed
			p.pace.Start(p.limits, now)
			return nil
		}
		if p.fieldCount++; p.fieldCount > MaxFields {
			return errTooManyFields
		}
		read, f := readField(p.head.buf, p.line, end)
		if f != nil {
			return f
		}
		p.head.fields = append(p.head.fields, read)
	case inSize:
		return p.readSize(end)
	case inTrailer:
		if len(line) == 0 {
			p.head.buf = p.head.buf[:p.line]
			p.state = complete
			return nil
		}
		if p.fieldCount++; p.fieldCount > MaxFields {
			return errTooManyFields
		}
		if _, f := readField(p.head.buf, p.line, end); f != nil {
			return f
		}
		p.head.buf = p.head.buf[:p.line] // RFC 9112, 7.1.2: trailers may be dropped, and must not be merged into the head
		return nil
	}
	p.line = len(p.head.buf)
	return nil
}

func (p *Parser) beginBody() *Failure {
	switch {
	case p.head.Length > 0:
		p.left, p.state = p.head.Length, inBody
	case p.head.Length < 0:
		p.line, p.state = len(p.head.buf), inSize
	default:
		p.state = complete
	}
	return nil
}

// readSize reads the line with a chunk's size. Extensions are ignored (RFC 9112, 7.1.1) but counted.
func (p *Parser) readSize(end int) *Failure {
	line := p.head.buf[p.line:end]
	digits, size := 0, int64(0)
	for digits < len(line) {
		d, ok := hexDigit(line[digits])
		if !ok {
			break
		}
		if size > (p.limits.BodyBytes-p.body)>>4+1 { // the next digit would exceed the limit, and might overflow
			return errBodyTooLarge
		}
		size = size<<4 | int64(d)
		digits++
	}
	if digits == 0 {
		return errChunkSize
	}
	rest := line[digits:]
	if len(rest) > 0 {
		if trimmed := bytes.TrimLeft(rest, " \t"); len(trimmed) == 0 || trimmed[0] != ';' {
			return errChunkSize
		}
		for _, c := range rest {
			if isControl(c) {
				return errChunkExtension
			}
		}
		if p.fieldBytes += len(rest); p.fieldBytes > p.limits.HeaderBytes {
			return errHeaderTooLong
		}
	}
	if size > p.limits.BodyBytes-p.body {
		return errBodyTooLarge
	}
	p.head.buf = p.head.buf[:p.line]
	p.body += size
	if p.left = size; size == 0 {
		p.state = inTrailer
	} else {
		p.state = inChunk
	}
	return nil
}
