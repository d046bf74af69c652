//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"encoding/binary"
	"time"

	"github.com/xebec-serving/xebec/worker/wire"
)

// Call is what is known of the call that a query came with: when its caller stops waiting, and how its request is named in logs and traces.
type Call struct {
	Deadline                time.Time // zero if there is none
	RequestID               string    // empty if there is none, as the others
	TraceParent, TraceState string    // of W3C Trace Context
}

// noParameters is what a query without parameters has.
var noParameters = []byte("{}")

// Parameters is what query i's caller sent as parameters: a JSON object, {} if it sent none or Serve was not given [WithParameters].
func (b *Batch) Parameters(i int) []byte {
	b.checkQuery(i)
	if s, ok := b.w.extraSection(wire.ModeParameters); ok && b.predicting {
		return b.item(i, s)
	}
	return noParameters
}

// Call is what is known of the call that query i came with. It is zero if Serve was not given [WithCalls], and in feedback.
func (b *Batch) Call(i int) (c Call) {
	b.checkQuery(i)
	s, ok := b.w.extraSection(wire.ModeCalls)
	if !ok || !b.predicting {
		return c
	}
	data := b.item(i, s)
	if len(data) < 8 {
		misused("query %d: its call has %d bytes, expected at least 8", i, len(data))
	}
	if micros := binary.LittleEndian.Uint64(data); micros > 0 {
		c.Deadline = b.began.Add(time.Duration(min(micros, maxDeadlineMicros)) * time.Microsecond)
	}
	data = data[8:]
	for _, text := range [...]*string{&c.RequestID, &c.TraceParent, &c.TraceState} {
		if len(data) < 2 || len(data)-2 < int(binary.LittleEndian.Uint16(data)) {
			misused("query %d: its call ends within a string", i)
		}
		n := 2 + int(binary.LittleEndian.Uint16(data))
		*text, data = string(data[2:n]), data[n:]
	}
	return c
}

// maxDeadlineMicros keeps a deadline within what a Duration can say.
const maxDeadlineMicros = uint64(1<<63-1) / 1000

// extraSection is the section of a PREDICT for a mode: those of parameters and calls follow the inputs and contexts.
func (w *worker) extraSection(mode uint32) (s int, ok bool) {
	s = len(w.sig.Inputs)
	for _, m := range [...]uint32{wire.ModeContexts, wire.ModeParameters, wire.ModeCalls} {
		if m == mode {
			break
		}
		if w.mode&m != 0 {
			s++
		}
	}
	return s, w.mode&mode != 0
}
