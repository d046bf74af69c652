package query

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// Feedback names a query by its id, and the gateway that has answered it may have been replaced by another process since. So the old
// process passes what it remembers to the new one. While both serve, the new one asks the old one for each query that it does not
// know; at the end the old one sends all that it still has. A remembered query is in one of the two at any time, or is marked as
// used in both, so feedback counts once.

// MaxPastBytes bounds one remembered query between two processes: its context and predictions, and the inputs of a model that learns.
const MaxPastBytes = 1 << 20 //xebec:limit one remembered query that a new process of the gateway inherits; larger ones are forgotten

// pastVersion is the version of the encoding.
const pastVersion = 1

// Past is the answer to a question for a remembered query.
type Past struct {
	// Record is the query, which the other process has forgotten now, or marked as used; empty: Status says why there is none.
	Record []byte
	Status PastStatus
}

// PastStatus says what became of a remembered query.
type PastStatus uint8

// The states of a remembered query. PastGone means that it was not answered there, or was passed on.
const (
	PastFound PastStatus = iota
	PastUsed
	PastLate
	PastGone
)

// inherited are the queries that earlier processes of this gateway have answered.
type inherited struct {
	mu    sync.Mutex
	byID  map[uint64]*join
	order []uint64 // the oldest first
	// ask asks the process before this one, while that lives; nil: there is none.
	ask func(id uint64, function string) (Past, error)
}

// AskBefore sets how the process before this one is asked for a query that it has answered; nil: it is gone. ask must not wait
// for long.
func (p *Path) AskBefore(ask func(id uint64, function string) (Past, error)) {
	p.inherited.mu.Lock()
	defer p.inherited.mu.Unlock()
	p.inherited.ask = ask
}

// takeAny finds the query with the id, here or in the process before this one, and marks that it has feedback.
func (p *Path) takeAny(id uint64, fn *Function, to *joined) found {
	got := p.joins.take(id, fn, to)
	if got != foundUnknown {
		return got
	}
	got, ask := p.inherited.take(id, fn.Name, to)
	if got != foundUnknown || ask == nil {
		return got
	}
	past, err := ask(id, fn.Name)
	if err == nil {
		switch past.Status {
		case PastUsed:
			return foundUsed
		case PastLate:
			return foundLate
		case PastFound:
			s, err := p.decodePast(past.Record)
			if err != nil || s.fn == nil || s.fn.Name != fn.Name {
				return foundUnknown
			}
			to.copy(s)
			return foundIt
		}
	}
	got, _ = p.inherited.take(id, fn.Name, to) // it came meanwhile
	return got
}

func (h *inherited) take(id uint64, function string, to *joined) (found, func(uint64, string) (Past, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.byID[id]
	switch {
	case s == nil || s.fn.Name != function:
		return foundUnknown, h.ask
	case s.used:
		return foundUsed, nil
	}
	s.used = true
	to.copy(s)
	s.packed = nil
	return foundIt, nil
}

// TakePast answers the question of the process after this one. The query is marked as used here.
func (p *Path) TakePast(id uint64, function string) Past {
	if len(p.joins.slots) > 0 {
		s := &p.joins.slots[id&uint64(len(p.joins.slots)-1)]
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fn != nil && s.id == id && s.fn.Name == function {
			return s.pass()
		}
	}
	h := &p.inherited
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.byID[id]; s != nil && s.fn.Name == function {
		return s.pass()
	}
	return Past{Status: PastGone}
}

// pass returns the query's record and marks it as used. The caller holds its lock.
func (s *join) pass() Past {
	if s.used {
		return Past{Status: PastUsed}
	}
	record := s.appendTo(nil)
	if len(record) > MaxPastBytes || s.outside != 0 {
		return Past{Status: PastLate}
	}
	s.used = true
	return Past{Record: record}
}

// PassOn gives every remembered query to the process after this one, and forgets it. It ends with the first error of emit, which
// owns the record.
func (p *Path) PassOn(emit func(record []byte) error) error {
	for i := range p.joins.slots {
		s := &p.joins.slots[i]
		s.mu.Lock()
		var record []byte
		if s.fn != nil {
			if s.outside == 0 { // the record does not say which other versions were asked
				record = s.appendTo(nil)
			}
			p.joins.kept.Add(-s.inputBytes)
			s.fn, s.packed, s.versions, s.inputBytes = nil, nil, nil, 0
		}
		s.mu.Unlock()
		if record == nil || len(record) > MaxPastBytes {
			continue
		}
		if err := emit(record); err != nil {
			return err
		}
	}
	h := &p.inherited
	h.mu.Lock()
	all, order := h.byID, h.order
	h.byID, h.order = nil, nil
	h.mu.Unlock()
	for _, id := range order {
		if err := emit(all[id].appendTo(nil)); err != nil {
			return err
		}
	}
	return nil
}

// Inherit remembers a query that the process before this one has answered. A query of a function that is not there any more, or
// whose candidates are others now, is forgotten.
func (p *Path) Inherit(record []byte) error {
	s, err := p.decodePast(record)
	if err != nil || s.fn == nil || len(p.joins.slots) == 0 {
		return err
	}
	if s.inputBytes > 0 && p.joins.kept.Load()+s.inputBytes > p.joins.budget {
		return nil
	}
	h := &p.inherited
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = map[uint64]*join{}
	}
	if h.byID[s.id] == nil {
		h.order = append(h.order, s.id)
	}
	h.byID[s.id] = s
	for len(h.order) > len(p.joins.slots) {
		delete(h.byID, h.order[0])
		h.order = h.order[1:]
	}
	return nil
}

// forget drops the queries of a deleted function.
func (h *inherited) forget(function string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.order[:0]
	for _, id := range h.order {
		if h.byID[id].fn.Name == function {
			delete(h.byID, id)
		} else {
			kept = append(kept, id)
		}
	}
	h.order = kept
}

// The bits of a record's flags.
const (
	pastIsUsed = 1 << iota
	pastGiven
	pastValues
	pastInputs
	pastPredictions
	pastMissing
)

// appendTo appends the query's record: version, flags, id, five sets, the length of the context, the function's name and its candidates,
// and what is packed, except of a query that is used.
func (s *join) appendTo(b []byte) []byte {
	flags := byte(0)
	for bit, on := range [...]bool{s.used, s.given, s.values, s.inputs, s.predictions, s.missing} {
		if on {
			flags |= 1 << bit
		}
	}
	le := binary.LittleEndian
	b = append(b, pastVersion, flags)
	b = le.AppendUint64(b, s.id)
	for _, set := range [...]selection.Set{s.asked, s.arrived, s.agreed, s.ruled, s.other} {
		b = le.AppendUint64(b, uint64(set))
	}
	b = binary.AppendUvarint(b, uint64(s.contextBytes))
	b = appendText(appendText(b, s.fn.Name), s.fn.candidateNames())
	if !s.used {
		b = append(b, s.packed...)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

var errPast = errors.New("a remembered query of the process before this one is malformed")

// decodePast parses a record. fn is nil in the result if the function is not there any more, or has other candidates.
func (p *Path) decodePast(b []byte) (*join, error) {
	const fixed = 2 + 8 + 5*8
	if len(b) < fixed || len(b) > MaxPastBytes {
		return nil, fmt.Errorf("%w: %d bytes, expected %d to %d", errPast, len(b), fixed, MaxPastBytes)
	}
	if b[0] != pastVersion {
		return nil, fmt.Errorf("%w: version %d, expected %d", errPast, b[0], pastVersion)
	}
	le := binary.LittleEndian
	flags := b[1]
	s := &join{id: le.Uint64(b[2:]), used: flags&pastIsUsed != 0}
	s.given, s.values, s.inputs = flags&pastGiven != 0, flags&pastValues != 0, flags&pastInputs != 0
	s.predictions, s.missing = flags&pastPredictions != 0, flags&pastMissing != 0
	for i, set := range [...]*selection.Set{&s.asked, &s.arrived, &s.agreed, &s.ruled, &s.other} {
		*set = selection.Set(le.Uint64(b[10+8*i:]))
	}
	b = b[fixed:]
	context, n := binary.Uvarint(b)
	if n <= 0 || context > MaxContextBytes {
		return nil, errPast
	}
	s.contextBytes, b = int(context), b[n:]
	var texts [2]string
	for i := range texts {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errPast
		}
		texts[i], b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	fn := p.table.Load().Functions[texts[0]]
	if fn == nil || fn.candidateNames() != texts[1] {
		return s, nil
	}
	if s.packed = b; !s.used && !s.wellFormed(fn) {
		return nil, errPast
	}
	s.fn = fn
	return s, nil
}

// wellFormed reports whether the packed part is what copy expects.
func (s *join) wellFormed(fn *Function) bool {
	all := selection.All(len(fn.Candidates))
	if s.asked&^all != 0 || s.arrived&^s.asked != 0 || s.agreed&^s.arrived != 0 || s.ruled&^s.asked != 0 || s.other&^s.asked != 0 {
		return false
	}
	size := s.contextBytes + 16*s.asked.Len() + 8*s.ruled.Len()
	if s.values {
		if fn.Averages == nil {
			return false
		}
		size += fn.Averages.width * fn.Averages.dtype.Size() * s.arrived.Len()
	}
	if size > len(s.packed) {
		return false
	}
	s.keptAt = size
	s.inputBytes = int64(len(s.packed) - size)
	return s.keptFits(fn, s.packed[size:])
}
