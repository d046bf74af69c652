package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// Capabilities of a worker, in HELLO. Bits without a name are sent as 0 and ignored.
const (
	CapRing        uint32 = 1 << 0 // it has memory fences and uses the rings
	CapFeedback    uint32 = 1 << 1 // it answers FEEDBACK
	CapAccuracy    uint32 = 1 << 2 // it answers ACCURACY
	CapContexts    uint32 = 1 << 3 // it wants each query's context
	CapConfidences uint32 = 1 << 4 // it returns one confidence per output
	CapParameters  uint32 = 1 << 5 // it wants each query's parameters (version 2)
	CapCalls       uint32 = 1 << 6 // it wants each query's deadline, request id and trace (version 2)
	CapStreams     uint32 = 1 << 7 // its model answers in streams (version 2)
	CapLines       uint32 = 1 << 8 // its model may call others, and it takes LINES (version 2)
)

// Modes of a connection, in WELCOME.
const (
	ModeRing       uint32 = 1 << 0 // descriptors travel through the rings, otherwise as frames
	ModeContexts   uint32 = 1 << 3 // every PREDICT has the contexts section
	ModeParameters uint32 = 1 << 5 // every PREDICT has the parameters section (version 2)
	ModeCalls      uint32 = 1 << 6 // every PREDICT has the calls section (version 2)
	ModeStreams    uint32 = 1 << 7 // every PREDICT is a stream (version 2)
	ModeLines      uint32 = 1 << 8 // LINES follows WELCOME: the model is declared to call others (version 2)
)

// Codes of REFUSED.
const (
	RefusedVersion   uint16 = 1 // protocol version
	RefusedToken     uint16 = 2
	RefusedModel     uint16 = 3 // model or version differs from the launch's
	RefusedSignature uint16 = 4 // the worker's signature differs from the declared one
	RefusedMalformed uint16 = 5
	RefusedViolation uint16 = 6
)

// maxTextBytes bounds the free texts that this package sends: token, binding, reason, refusal. Longer ones are cut at a
// character boundary. Texts that it reads are bounded by the payload.
const maxTextBytes = 4096

// Hello is the worker's first message. Major is the highest version that the worker speaks. Signature is nil if the worker accepts the
// gateway's.
type Hello struct {
	Major, Minor                   uint16
	Capabilities                   uint32
	Token, Model, Version, Binding string
	Signature                      *api.Signature
	// Concurrency is how many batches the worker evaluates at once, at least 1. It is part of the message from version 2 on.
	Concurrency uint16
}

// Append appends the complete frame. A Signature must pass [CheckSignature].
func (m *Hello) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeHello)
	dst = binary.LittleEndian.AppendUint16(dst, m.Major)
	dst = binary.LittleEndian.AppendUint16(dst, m.Minor)
	dst = binary.LittleEndian.AppendUint32(dst, m.Capabilities)
	dst = appendText(dst, m.Token)
	dst = appendText(dst, m.Model)
	dst = appendText(dst, m.Version)
	dst = appendText(dst, m.Binding)
	if m.Signature == nil {
		dst = append(dst, 0)
	} else {
		dst = appendSignature(append(dst, 1), m.Signature)
	}
	if m.Major >= 2 {
		dst = binary.LittleEndian.AppendUint16(dst, max(m.Concurrency, 1))
	}
	return endFrame(dst, start)
}

// Decode reads a payload. The message keeps no part of it.
func (m *Hello) Decode(payload []byte) error {
	d := decoder{rest: payload}
	*m = Hello{Major: d.u16(), Minor: d.u16(), Capabilities: d.u32(), Token: d.str(), Model: d.str(), Version: d.str(), Binding: d.str()}
	switch has := d.u8(); has {
	case 0:
	case 1:
		m.Signature = d.signature()
	default:
		d.fail("has_signature is %d, expected 0 or 1", has)
	}
	if m.Concurrency = 1; m.Major >= 2 {
		if m.Concurrency = d.u16(); m.Concurrency == 0 {
			d.fail("the concurrency is 0, expected at least 1")
		}
	}
	return d.end(TypeHello)
}

// Welcome is the gateway's answer to a HELLO that it accepts.
type Welcome struct {
	Major, Minor   uint16
	Mode           uint32
	Replica        uint64
	Model, Version string
	Signature      api.Signature
}

// Append appends the complete frame. The Signature must pass [CheckSignature].
func (m *Welcome) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeWelcome)
	dst = binary.LittleEndian.AppendUint16(dst, m.Major)
	dst = binary.LittleEndian.AppendUint16(dst, m.Minor)
	dst = binary.LittleEndian.AppendUint32(dst, m.Mode)
	dst = binary.LittleEndian.AppendUint64(dst, m.Replica)
	dst = appendText(dst, m.Model)
	dst = appendText(dst, m.Version)
	return endFrame(appendSignature(dst, &m.Signature), start)
}

// Decode reads a payload. The message keeps no part of it.
func (m *Welcome) Decode(payload []byte) error {
	d := decoder{rest: payload}
	*m = Welcome{Major: d.u16(), Minor: d.u16(), Mode: d.u32(), Replica: d.u64(), Model: d.str(), Version: d.str()}
	if sig := d.signature(); sig != nil {
		m.Signature = *sig
	}
	return d.end(TypeWelcome)
}

// Segments announces a generation. The two descriptors travel with its first byte.
type Segments struct {
	Generation, Entries uint32
	SizeA, SizeB        uint64
}

// Append appends the complete frame.
func (m *Segments) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeSegments)
	dst = binary.LittleEndian.AppendUint32(dst, m.Generation)
	dst = binary.LittleEndian.AppendUint32(dst, m.Entries)
	dst = binary.LittleEndian.AppendUint64(dst, m.SizeA)
	return endFrame(binary.LittleEndian.AppendUint64(dst, m.SizeB), start)
}

// Decode reads a payload. Mapping the segments checks the sizes.
func (m *Segments) Decode(payload []byte) error {
	d := decoder{rest: payload}
	*m = Segments{Generation: d.u32(), Entries: d.u32(), SizeA: d.u64(), SizeB: d.u64()}
	return d.end(TypeSegments)
}

// Ready reports that a generation is mapped.
type Ready struct{ Generation uint32 }

// Append appends the complete frame.
func (m *Ready) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeReady)
	return endFrame(binary.LittleEndian.AppendUint32(dst, m.Generation), start)
}

// Decode reads a payload.
func (m *Ready) Decode(payload []byte) error {
	d := decoder{rest: payload}
	m.Generation = d.u32()
	return d.end(TypeReady)
}

// Refused is the last message before the gateway closes the connection. Text is for the worker's operator.
type Refused struct {
	Code uint16
	Text string
}

// Append appends the complete frame. A text over 4 KiB is cut.
func (m *Refused) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeRefused)
	dst = binary.LittleEndian.AppendUint16(dst, m.Code)
	return endFrame(appendText(dst, m.Text), start)
}

// Decode reads a payload. The message keeps no part of it.
func (m *Refused) Decode(payload []byte) error {
	d := decoder{rest: payload}
	*m = Refused{Code: d.u16(), Text: d.str()}
	return d.end(TypeRefused)
}

// Leaving asks for no more batches.
type Leaving struct{ Reason string }

// Append appends the complete frame. A reason over 4 KiB is cut.
func (m *Leaving) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeLeaving)
	return endFrame(appendText(dst, m.Reason), start)
}

// Decode reads a payload. The message keeps no part of it.
func (m *Leaving) Decode(payload []byte) error {
	d := decoder{rest: payload}
	m.Reason = d.str()
	return d.end(TypeLeaving)
}

// Cancel says that nobody wants the rest of a stream. It is of version 2.
type Cancel struct{ Batch uint64 }

// Append appends the complete frame.
func (m *Cancel) Append(dst []byte) []byte {
	dst, start := beginFrame(dst, TypeCancel)
	return endFrame(binary.LittleEndian.AppendUint64(dst, m.Batch), start)
}

// Decode reads a payload.
func (m *Cancel) Decode(payload []byte) error {
	d := decoder{rest: payload}
	m.Batch = d.u64()
	return d.end(TypeCancel)
}

// DecodeDrain checks the payload of DRAIN, which is empty.
func DecodeDrain(payload []byte) error {
	d := decoder{rest: payload}
	return d.end(TypeDrain)
}

// DecodeLines checks the payload of LINES, which is empty.
func DecodeLines(payload []byte) error {
	d := decoder{rest: payload}
	return d.end(TypeLines)
}

// CutText returns s cut to at most n bytes at a character boundary.
func CutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	// A character has at most four bytes, so at most the last three can continue one.
	for back := 0; back < utf8.UTFMax && back <= n; back++ {
		if utf8.RuneStart(s[n-back]) {
			return s[:n-back]
		}
	}
	return s[:max(n, 0)] // not UTF-8
}

// appendText appends a string. It replaces invalid UTF-8, which the peer would refuse.
func appendText(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	s = CutText(s, maxTextBytes)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// decoder reads fields from the front of a payload. After the first error it returns zeros and keeps the error.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.rest) {
		d.fail("the payload ends within a field: %d bytes are left where %d are needed", len(d.rest), n)
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) str() string {
	b := d.take(int(d.u16()))
	if !utf8.Valid(b) {
		d.fail("a string is not UTF-8")
		return ""
	}
	return string(b)
}

// end returns the message's error, if any: the first one, or that bytes remain.
func (d *decoder) end(t Type) error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail("%d bytes follow the last field", len(d.rest))
	}
	if d.err != nil {
		return fmt.Errorf("%w: %v: %w", ErrMalformed, t, d.err)
	}
	return nil
}
