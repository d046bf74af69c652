package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The highest version of the protocol that this package implements. It implements each lower major version too.
const (
	Major = 2
	Minor = 0
)

// Type is the first byte of a frame.
type Type uint8

// The frames. A bell is the single byte TypeBell. All others have a header and a payload.
const (
	TypeBell     Type = 0x01
	TypeHello    Type = 0x02
	TypeWelcome  Type = 0x03
	TypeSegments Type = 0x04
	TypeReady    Type = 0x05
	TypeRefused  Type = 0x06
	TypeLeaving  Type = 0x07
	TypeDrain    Type = 0x08
	TypeCancel   Type = 0x09 // version 2
	TypeLines    Type = 0x0a // version 2
	TypeRequest  Type = 0x10
	TypeResponse Type = 0x11
)

// HeaderBytes is the size of the header of every frame but the bell. MaxPayload bounds what follows. The largest
// message is HELLO with 128 tensors of rank 16, about 50 KB.
const (
	HeaderBytes = 8
	MaxPayload  = 65536
)

// ErrMalformed is wrapped by every error of a frame, a message or a descriptor.
var ErrMalformed = errors.New("malformed frame")

// String is the frame's name in the specification.
func (t Type) String() string {
	switch t {
	case TypeBell:
		return "BELL"
	case TypeHello:
		return "HELLO"
	case TypeWelcome:
		return "WELCOME"
	case TypeSegments:
		return "SEGMENTS"
	case TypeReady:
		return "READY"
	case TypeRefused:
		return "REFUSED"
	case TypeLeaving:
		return "LEAVING"
	case TypeDrain:
		return "DRAIN"
	case TypeCancel:
		return "CANCEL"
	case TypeLines:
		return "LINES"
	case TypeRequest:
		return "REQUEST"
	case TypeResponse:
		return "RESPONSE"
	}
	return fmt.Sprintf("type 0x%02x", uint8(t))
}

// framed reports whether t is a known type that has a header.
func (t Type) framed() bool {
	return t >= TypeHello && t <= TypeLines || t == TypeRequest || t == TypeResponse
}

// AppendBell appends a bell.
func AppendBell(dst []byte) []byte { return append(dst, byte(TypeBell)) }

// AppendDrain appends a DRAIN frame.
func AppendDrain(dst []byte) []byte { return endFrame(beginFrame(dst, TypeDrain)) }

// AppendLines appends a LINES frame. Its descriptor travels beside its first byte.
func AppendLines(dst []byte) []byte { return endFrame(beginFrame(dst, TypeLines)) }

// beginFrame appends a header, whose length endFrame fills in. The caller appends the payload in between.
func beginFrame(dst []byte, t Type) (out []byte, start int) {
	return append(dst, byte(t), 0, 0, 0, 0, 0, 0, 0), len(dst)
}

func endFrame(dst []byte, start int) []byte {
	n := len(dst) - start - HeaderBytes
	if n > MaxPayload {
		panic(fmt.Sprintf("wire: %v has a payload of %d bytes, the limit is %d: check the signature with CheckSignature first",
			Type(dst[start]), n, MaxPayload))
	}
	binary.LittleEndian.PutUint32(dst[start+4:], uint32(n))
	return dst
}

// firstBufferBytes is room for some fifty descriptor frames, or for more unread bells than a socket holds.
const firstBufferBytes = 4096

// Parser splits a stream of bytes into frames. The zero value is ready. It is used in a loop:
//
//	n, err := read(p.Space())
//	p.Advance(n)
//	for { t, payload, ok, err := p.Next(); … until !ok or err != nil }
//
// Its buffer never grows beyond one frame of the largest size. After an error, Next returns only that error.
type Parser struct {
	buf        []byte
	start, end int // buf[start:end] was read from the socket and not returned yet
	bells      uint64
	err        error
}

// Space returns the memory for the socket's next bytes. It is never empty after Next has returned ok = false. It may
// move buffered bytes: payloads that Next returned are invalid from then on.
func (p *Parser) Space() []byte {
	need := firstBufferBytes
	if p.end-p.start >= HeaderBytes && p.buf[p.start] != byte(TypeBell) {
		if length := binary.LittleEndian.Uint32(p.buf[p.start+4:]); length <= MaxPayload {
			need = max(need, HeaderBytes+int(length))
		}
	}
	switch {
	case need > len(p.buf):
		buf := make([]byte, need)
		p.end = copy(buf, p.buf[p.start:p.end])
		p.buf, p.start = buf, 0
	case p.start > 0:
		p.end = copy(p.buf, p.buf[p.start:p.end])
		p.start = 0
	}
	return p.buf[p.end:]
}

// Advance records that n bytes were read into Space.
func (p *Parser) Advance(n int) {
	if n < 0 || n > len(p.buf)-p.end {
		panic("wire: Parser.Advance beyond the end of Space")
	}
	p.end += n
}

// Buffered is the number of bytes that were read and not returned yet. After Next has returned ok = false they are the
// beginning of a frame.
func (p *Parser) Buffered() int { return p.end - p.start }

// Bells is the number of bells that Next has skipped.
func (p *Parser) Bells() uint64 { return p.bells }

// Next returns the next complete frame. ok is false if none has been read completely. The payload is valid until the
// next Space. Bells are skipped.
func (p *Parser) Next() (t Type, payload []byte, ok bool, err error) {
	if p.err != nil {
		return 0, nil, false, p.err
	}
	for p.start < p.end && p.buf[p.start] == byte(TypeBell) {
		p.start++
		p.bells++
	}
	have := p.buf[p.start:p.end]
	if len(have) == 0 {
		return 0, nil, false, nil
	}
	// Check the header as early as possible: do not wait for more from a peer that uses another protocol.
	t = Type(have[0])
	if !t.framed() {
		return 0, nil, false, p.fail("unknown frame type 0x%02x", have[0])
	}
	for _, reserved := range have[1:min(4, len(have))] {
		if reserved != 0 {
			return 0, nil, false, p.fail("%v: a reserved byte of the header is 0x%02x, expected 0", t, reserved)
		}
	}
	if len(have) < HeaderBytes {
		return 0, nil, false, nil
	}
	length := binary.LittleEndian.Uint32(have[4:])
	if length > MaxPayload {
		return 0, nil, false, p.fail("%v: payload of %d bytes, expected at most %d", t, length, MaxPayload)
	}
	if int(length) > len(have)-HeaderBytes {
		return 0, nil, false, nil
	}
	end := HeaderBytes + int(length)
	p.start += end
	return t, have[HeaderBytes:end:end], true, nil
}

func (p *Parser) fail(format string, args ...any) error {
	p.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	return p.err
}
