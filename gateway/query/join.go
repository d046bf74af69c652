package query

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// DefaultFeedbackWindow is the default number of recent queries that feedback can be joined with.
const DefaultFeedbackWindow = 1 << 16 //xebec:limit recent queries that feedback can name by `query_id`; `--feedback-window`

// DefaultFeedbackBytes bounds the inputs and predictions that are kept until feedback comes, for models that learn from labels and
// for policies that ask for them, over all queries.
const DefaultFeedbackBytes = 64 << 20 //xebec:limit remembered inputs and predictions for models and policies that learn from them; `--feedback-memory`

// keptValueBytes bounds the numeric predictions kept of one query, from which losses are computed.
const keptValueBytes = 1 << 10 //xebec:limit numeric predictions remembered for a query; beyond it a label by `query_id` teaches nothing

// joins remembers how the recent queries were answered, so that feedback can be joined with them. It is a ring: a query's
// id determines its slot, and later queries overwrite earlier ones.
type joins struct {
	slots   []join
	gateway uint64 // the part of every id that names this gateway
	first   uint64 // the sequence number of the first id
	next    *atomic.Uint64
	byInput []atomic.Uint64 // by the low bits of the digest: the id of the last query with it
	kept    atomic.Int64
	budget  int64 // of kept
	oldest  struct {
		sync.Mutex
		seq uint64 // no earlier query has anything kept
	}
}

// join is one query as it was answered.
type join struct {
	mu   sync.Mutex
	id   uint64
	fn   *Function // nil: empty
	used bool      // it has feedback
	past
	versions   []outside // that were asked in candidates' places: of candidates in past.outside
	digest     cache.Key
	inputBytes int64    // counted in joins.kept: of inputs and predictions
	keptAt     int      // where these begin in packed
	packed     []byte   // context; p and class of each that was asked; p of each with a rule; values of each that arrived; predictions; inputs
	inline     [64]byte // packed's memory if it suffices
}

// past is the fixed-size part of a query.
type past struct {
	asked, arrived, agreed selection.Set
	outside                selection.Set // candidates in whose place another version was asked
	ruled, other           selection.Set // candidates with a traffic rule, and those of them whose other version was asked
	given                  bool          // the answer was a prediction, not the default
	contextBytes           int
	values, inputs         bool // whether they are kept
	predictions            bool
	missing                bool // inputs or predictions were to be kept, and there was no room
}

// joined is an unpacked copy of a join. Its slices are its own memory.
type joined struct {
	past
	fn       *Function
	id       uint64
	versions []outside
	context  []byte
	p        [selection.MaxCandidates]float64
	ruleP    [selection.MaxCandidates]float64 // how likely the version was that was asked, for those in ruled
	class    [selection.MaxCandidates]uint64
	data     [selection.MaxCandidates][]byte // the prediction of each that arrived, where values are kept
	inputs   []api.Value
	packed   []byte
	// predictions are those that the policy sees, with memory in packed, and outputs the values that they refer to.
	predictions []selection.Prediction
	outputs     []api.Value
}

// newJoins makes room for n queries, rounded up to a power of two, or for none if n is at most 0.
func newJoins(n int, budget int64, ids *queryIDs) *joins {
	if n <= 0 {
		return &joins{}
	}
	size := 1 << bits.Len(uint(n-1))
	j := &joins{slots: make([]join, size), byInput: make([]atomic.Uint64, size), gateway: ids.gateway, first: ids.next.Load(), next: &ids.next, budget: budget}
	j.oldest.seq = j.first
	return j
}

// outputClass is a hash of an output: equal outputs have equal classes, different ones collide once in 2^64.
func outputClass(outputs []api.Value) uint64 {
	if len(outputs) == 1 && len(outputs[0].Dims) == 0 {
		return xxh3.Hash(outputs[0].Data)
	}
	h := uint64(0)
	for i := range outputs {
		for _, d := range outputs[i].Dims {
			h = bits.RotateLeft64(h^uint64(d), 29) * 0x9e3779b97f4a7c15
		}
		h = xxh3.HashSeed(outputs[i].Data, h+uint64(i)+1)
	}
	return h
}

// put remembers a settled query.
func (j *joins) put(q *Query) {
	if len(j.slots) == 0 {
		return
	}
	r := q.request
	fn := r.fn
	keeps := fn.keeps()
	room := keeps.any() && j.reserve(q, keeps)
	s := &j.slots[q.ID&uint64(len(j.slots)-1)]
	s.mu.Lock()
	if s.fn != nil && (s.id-q.ID)&(1<<sequenceBits-1) < 1<<(sequenceBits-1) {
		if room {
			j.kept.Add(-keptSize(q, keeps))
		}
		s.mu.Unlock()
		return // it was answered so late that a newer query has the slot
	}
	if s.inputBytes != 0 {
		j.kept.Add(-s.inputBytes)
		s.inputBytes = 0
	}
	s.id, s.fn, s.used = q.ID, fn, false
	s.past = past{
		asked: q.asked, arrived: q.arrived, agreed: q.agreed, given: q.Code == api.OK, contextBytes: len(r.context),
		ruled: r.rules.ruled & q.asked &^ r.forced, other: r.rules.other & q.asked, outside: r.outside & q.asked,
	}
	if len(s.versions)+len(r.versions) > 0 {
		clear(s.versions)
		s.versions = append(s.versions[:0], r.versions...)
	}
	if s.packed == nil || cap(s.packed) > 4*keptValueBytes {
		s.packed = s.inline[:0] // large ones are rare
	}
	b := s.packed[:0]
	if n := len(r.context) + 16*q.asked.Len() + 8*s.ruled.Len(); n > cap(b) {
		b = slices.Grow(b, n)
	}
	b = append(b, r.context...)
	le := binary.LittleEndian
	answer, size := uint64(0), 0
	if q.arrived != 0 {
		answer = outputClass(fn.judged(q.Outputs))
	}
	for rest := q.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		p, class := 1.0, answer
		if fn.Selects {
			p = q.scratch.selection.P[i]
			if q.arrived.Has(i) && (fn.Averages != nil || !q.agreed.Has(i)) {
				class = outputClass(fn.judged(q.member(i).Result().Outputs))
			}
		}
		b = le.AppendUint64(b, math.Float64bits(p))
		b = le.AppendUint64(b, class)
	}
	for rest := s.ruled; rest != 0; rest &= rest - 1 {
		b = le.AppendUint64(b, math.Float64bits(r.rules.p[rest.First()]))
	}
	if a := fn.Averages; a != nil {
		size = a.width * a.dtype.Size()
		s.values = size*q.arrived.Len() <= keptValueBytes
	}
	for rest := q.arrived; s.values && rest != 0; rest &= rest - 1 {
		b = append(b, q.predicted(rest.First(), fn.Averages.output)[:size]...)
	}
	s.keptAt = len(b)
	if s.missing = keeps.any() && !room; room {
		b = s.keep(b, q, keeps)
	}
	s.packed = b
	if fn.Selects && fn.Mode == selection.One {
		s.digest = q.digest()
		j.lastWith(s.digest).Store(q.ID)
	}
	s.mu.Unlock()
}

// lastWith is the place of the id of the last query with the digest.
func (j *joins) lastWith(digest cache.Key) *atomic.Uint64 {
	return &j.byInput[digest.Lo&uint64(len(j.byInput)-1)]
}

// digest returns the key by which feedback by input finds the query, of its context and its inputs.
func (q *Query) digest() cache.Key {
	r := q.request
	if len(r.salt) == 0 {
		return q.key(true)
	}
	var b [MaxContextBytes + 2]byte
	n := copy(b[:], r.context)
	b[n], b[n+1] = byte(n), byte(n>>8)
	if n == 0 {
		return r.path.cfg.Cache.Key(nil, q.Inputs)
	}
	return r.path.cfg.Cache.Key(b[:n+2], q.Inputs)
}

// predicted returns the data of an output of a candidate's prediction.
func (q *Query) predicted(candidate, output int) []byte {
	if m := q.member(candidate); m != nil {
		return m.Result().Outputs[output].Data
	}
	return nil
}

// found is the result of a lookup of a query.
type found uint8

const (
	foundIt found = iota
	foundUsed
	foundLate    // it was this gateway's, and is no longer remembered
	foundUnknown // there was no such query
)

// take copies the query with the id, and marks that it has feedback.
func (j *joins) take(id uint64, fn *Function, to *joined) found {
	if len(j.slots) == 0 {
		return foundLate
	}
	s := &j.slots[id&uint64(len(j.slots)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fn != nil && s.id == id && s.fn.Name != fn.Name:
		return foundUnknown
	case s.fn != nil && s.id == id && s.used:
		return foundUsed
	case s.fn == nil || s.id != id:
		if seq := id & (1<<sequenceBits - 1); id>>sequenceBits == j.gateway>>sequenceBits && (seq-j.first)&(1<<sequenceBits-1) < (j.next.Load()-j.first)&(1<<sequenceBits-1) {
			return foundLate
		}
		return foundUnknown
	}
	s.used = true
	to.copy(s)
	return foundIt
}

// takeByInput is take for the function's last query with the digest.
func (j *joins) takeByInput(digest cache.Key, fn *Function, to *joined) found {
	if len(j.slots) == 0 {
		return foundUnknown
	}
	id := j.lastWith(digest).Load()
	s := &j.slots[id&uint64(len(j.slots)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fn == nil || s.id != id || s.fn.Name != fn.Name || s.digest != digest {
		return foundUnknown
	}
	if s.used {
		return foundUsed
	}
	s.used = true
	to.copy(s)
	return foundIt
}

// forget drops the queries of a deleted function.
func (j *joins) forget(function string) {
	for i := range j.slots {
		s := &j.slots[i]
		s.mu.Lock()
		if s.fn != nil && s.fn.Name == function {
			j.kept.Add(-s.inputBytes)
			s.fn, s.packed, s.versions, s.inputBytes = nil, nil, nil, 0
		}
		s.mu.Unlock()
	}
}

// copy unpacks a join.
func (to *joined) copy(s *join) {
	to.past, to.fn, to.id = s.past, s.fn, s.id
	to.packed, to.versions = append(to.packed[:0], s.packed...), append(to.versions[:0], s.versions...)
	b, le := to.packed, binary.LittleEndian
	to.context, b = b[:s.contextBytes:s.contextBytes], b[s.contextBytes:]
	clear(to.data[:])
	for rest := s.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		to.p[i], to.class[i], b = math.Float64frombits(le.Uint64(b)), le.Uint64(b[8:]), b[16:]
	}
	for rest := s.ruled; rest != 0; rest &= rest - 1 {
		to.ruleP[rest.First()], b = math.Float64frombits(le.Uint64(b)), b[8:]
	}
	if s.values {
		a := s.fn.Averages
		size := a.width * a.dtype.Size()
		for rest := s.arrived; rest != 0; rest &= rest - 1 {
			to.data[rest.First()], b = b[:size:size], b[size:]
		}
	}
	to.ruled &= s.fn.ruled // in another process the function may have fewer rules
	to.copyKept(s, b)
}
