package query

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Until feedback comes, a query's inputs are kept for models that learn from labels, and its inputs and predictions for policies that
// ask for them. All of that has one budget. What exceeds it takes the place of the oldest: those queries can still have feedback,
// and what is missing then is said.

// keeps says what is kept of a function's queries.
type keeps struct{ inputs, predictions bool }

func (k keeps) any() bool { return k.inputs || k.predictions }

func (fn *Function) keeps() keeps {
	return keeps{fn.Needs.Inputs || fn.hasTeachable(), fn.Needs.Predictions}
}

// evictionSteps bounds how many remembered queries one query looks at to make room.
const evictionSteps = 256

// reserve counts what is to be kept of the query, after it has made room. It reports false if there is none.
func (j *joins) reserve(q *Query, k keeps) bool {
	n := keptSize(q, k)
	if n > j.budget {
		return false
	}
	if j.kept.Add(n) <= j.budget {
		return true
	}
	j.oldest.Lock()
	defer j.oldest.Unlock()
	// Later queries have overwritten what is older than a whole turn of the ring.
	next := j.next.Load()
	if turn := uint64(len(j.slots)); next-j.oldest.seq > turn {
		j.oldest.seq = next - turn
	}
	for range evictionSteps {
		if j.kept.Load() <= j.budget {
			return true
		}
		if j.oldest.seq == next {
			break
		}
		j.slots[j.oldest.seq&uint64(len(j.slots)-1)].evict(j)
		j.oldest.seq++
	}
	if j.kept.Load() <= j.budget {
		return true
	}
	j.kept.Add(-n)
	return false
}

// evict drops what is kept of the query, and notes that it is missing.
func (s *join) evict(j *joins) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inputBytes == 0 {
		return
	}
	j.kept.Add(-s.inputBytes)
	s.inputBytes, s.inputs, s.predictions, s.missing = 0, false, false, true
	var small []byte // so that the large memory is freed
	if s.keptAt <= len(s.inline) {
		small = s.inline[:0]
	}
	s.packed = append(small, s.packed[:s.keptAt]...)
}

// keptSize is the length of what keep appends.
func keptSize(q *Query, k keeps) (n int64) {
	if k.predictions {
		for rest := q.arrived; rest != 0; rest &= rest - 1 {
			n += predictionHeader + valuesSize(q.member(rest.First()).Result().Outputs)
		}
	}
	if k.inputs {
		n += valuesSize(q.Inputs)
	}
	return n
}

// predictionHeader is the length of a prediction's confidence, latency and number of outputs.
const predictionHeader = 8 + 8 + 1

func valuesSize(values []api.Value) (n int64) {
	for i := range values {
		n += 4 + int64(len(values[i].Data)) + 1 + 8*int64(len(values[i].Dims))
	}
	return n
}

// keep appends the predictions and the inputs of a query that has room for them.
func (s *join) keep(b []byte, q *Query, k keeps) []byte {
	at, le := len(b), binary.LittleEndian
	b = slices.Grow(b, int(keptSize(q, k)))
	if s.predictions = k.predictions; k.predictions {
		for rest := q.arrived; rest != 0; rest &= rest - 1 {
			m := q.member(rest.First())
			result := m.Result()
			b = le.AppendUint64(b, math.Float64bits(result.Confidence))
			b = le.AppendUint64(b, uint64(m.took))
			b = append(b, byte(len(result.Outputs)))
			b = appendValues(b, result.Outputs)
		}
	}
	if s.inputs = k.inputs; k.inputs {
		b = appendValues(b, q.Inputs)
	}
	s.inputBytes = int64(len(b) - at)
	return b
}

func appendValues(b []byte, values []api.Value) []byte {
	le := binary.LittleEndian
	for i := range values {
		b = le.AppendUint32(b, uint32(len(values[i].Data)))
		b = append(b, values[i].Data...)
		b = append(b, byte(len(values[i].Dims)))
		for _, d := range values[i].Dims {
			b = le.AppendUint64(b, uint64(d))
		}
	}
	return b
}

// copyKept unpacks what is kept, from packed memory that wellFormed accepts.
func (to *joined) copyKept(s *join, b []byte) {
	le := binary.LittleEndian
	to.inputs, to.outputs, to.predictions = to.inputs[:0], to.outputs[:0], to.predictions[:0]
	if s.predictions {
		for rest := s.arrived; rest != 0; rest &= rest - 1 {
			p := selection.Prediction{Candidate: rest.First(), Confidence: math.Float64frombits(le.Uint64(b)), LatencyNanos: int64(le.Uint64(b[8:]))}
			count := int(b[16])
			b = b[predictionHeader:]
			from := len(to.outputs)
			for range count {
				to.outputs, b = appendValue(to.outputs, b)
			}
			p.Outputs = s.fn.outputs(to.outputs[from:len(to.outputs):len(to.outputs)])
			to.predictions = append(to.predictions, p)
		}
	}
	for s.inputs && len(b) > 0 {
		to.inputs, b = appendValue(to.inputs, b)
	}
}

// appendValue reads a value, whose memory is b, and appends it to values. It returns the rest of b.
func appendValue(values []api.Value, b []byte) ([]api.Value, []byte) {
	le := binary.LittleEndian
	n := le.Uint32(b)
	v := api.Value{Data: b[4 : 4+n : 4+n]}
	b = b[4+n:]
	rank := int(b[0])
	b = b[1:]
	if len(values) < cap(values) {
		v.Dims = values[:len(values)+1][len(values)].Dims[:0]
	}
	for range rank {
		v.Dims, b = append(v.Dims, int64(le.Uint64(b))), b[8:]
	}
	return append(values, v), b
}

// cutValue returns what follows a value, or false if b does not begin with one.
func cutValue(b []byte) (rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b)) + 4
	if n+1 > uint64(len(b)) {
		return nil, false
	}
	rank := int(b[n])
	if b = b[n+1:]; rank > api.MaxRank || 8*rank > len(b) {
		return nil, false
	}
	return b[8*rank:], true
}

// keptFits reports whether b is what copyKept expects, with values that have the types that policies rely on.
func (s *join) keptFits(fn *Function, b []byte) bool {
	if s.predictions {
		specs := fn.Candidates[0].Model.Signature.Outputs
		for rest := s.arrived; rest != 0; rest &= rest - 1 {
			if len(b) < predictionHeader || int(b[16]) != len(specs) {
				return false
			}
			b = b[predictionHeader:]
			for i := range specs {
				var ok bool
				if b, ok = cutChecked(&specs[i], b); !ok {
					return false
				}
			}
		}
	}
	if !s.inputs {
		return len(b) == 0
	}
	specs := fn.Candidates[0].Model.Signature.Inputs
	for i := 0; len(b) > 0; i++ {
		var ok bool
		if i >= len(specs) {
			return false
		}
		if b, ok = cutChecked(&specs[i], b); !ok {
			return false
		}
	}
	return true
}

// cutChecked is cutValue for a value that the spec accepts.
func cutChecked(spec *api.TensorSpec, b []byte) (rest []byte, ok bool) {
	if rest, ok = cutValue(b); !ok {
		return nil, false
	}
	values, _ := appendValue(nil, b)
	return rest, spec.Check(&values[0]) == nil
}
