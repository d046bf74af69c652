package query

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// MaxAveraged is how many elements a numeric output may have to be averaged; larger ones are compared as labels are.
const MaxAveraged = 4096

// averagedOver is how many predictions a model's running average looks back on, about.
const averagedOver = 1000

// scratch is what a policy's call takes, kept with its item so that choosing and combining allocate nothing.
type scratch struct {
	query     selection.Query
	selection selection.Selection
	combining selection.Combining
	limits    [selection.MaxCandidates]float64
	answers   []selection.Answer
	values    []float64 // of each candidate
	out       []float64
	output    [1]api.Value // an averaged answer
	all       []*member    // of both times
	peek      cache.Waiter // to see what is in the cache
}

func (it *item) scratchpad() *scratch {
	if it.scratch == nil {
		it.scratch = new(scratch)
	}
	return it.scratch
}

// combine makes one answer of the members' predictions. True: the policy asks for more first.
func (it *item) combine(fn *Function) bool {
	s := it.scratch
	c := &s.combining
	*c = selection.Combining{Selected: it.asked, Answers: s.answers[:0], Winner: -1}
	first := api.OK
	for _, m := range it.all() {
		if m.shadow {
			continue
		}
		if m.code != api.OK {
			if first == api.OK {
				first = m.code
			}
			continue
		}
		it.arrived = it.arrived.With(m.candidate)
		c.Answers = append(c.Answers, selection.Answer{Candidate: m.candidate, Class: it.class(m), Confidence: m.Result().Confidence})
	}
	s.answers = c.Answers
	if it.arrived == 0 {
		it.code = first
		fn.Learning.Late.Add(uint64(it.asked.Len()))
		return false
	}
	if it.asked.Len() == 1 && fn.Mode == selection.One {
		m := it.members[0]
		it.outputs, it.confidence, it.agreed = m.Result().Outputs, m.Result().Confidence, it.arrived
		return false
	}
	if fn.Averages != nil {
		it.fillValues(fn)
	}
	fn.Selector.Combine(it.call.context, c)
	if it.askMore(fn) {
		return true
	}
	if late := it.asked &^ it.arrived; late != 0 {
		fn.Learning.Late.Add(uint64(late.Len()))
	}
	it.confidence, it.agreed = c.Confidence, c.Agreed
	switch {
	case c.Winner >= 0:
		it.outputs = it.of(c.Winner).Result().Outputs
	case fn.Averages != nil:
		v := &s.output[0]
		v.Dims = v.Dims[:0]
		v.Data = appendNumbers(v.Data[:0], fn.Averages.dtype, c.Out)
		it.outputs = s.output[:]
	}
	return false
}

// all has the members of both times.
func (it *item) all() []*member {
	if len(it.more) == 0 {
		return it.members
	}
	return it.scratch.all
}

// of is the member that is the candidate.
func (it *item) of(candidate int) *member {
	for _, m := range it.all() {
		if m.candidate == candidate {
			return m
		}
	}
	return nil
}

// class is the index of the first member with the same outputs.
func (it *item) class(m *member) uint64 {
	for i, other := range it.all() {
		if other == m || !other.shadow && other.code == api.OK && sameOutputs(other.Result().Outputs, m.Result().Outputs) {
			return uint64(i)
		}
	}
	return math.MaxUint64
}

func sameOutputs(a, b []api.Value) bool {
	return slices.EqualFunc(a, b, func(a, b api.Value) bool { return bytes.Equal(a.Data, b.Data) && slices.Equal(a.Dims, b.Dims) })
}

// askMore lets the policy select again, now that the first answers are in.
func (it *item) askMore(fn *Function) bool {
	s, c := it.scratch, it.call
	if fn.Mode != selection.Several || len(it.more) > 0 || s.query.Allowed == it.asked || it.code != api.OK {
		return false
	}
	q := &s.query
	q.Asked, q.Answered, q.Confidence = it.asked, it.arrived, s.combining.Confidence
	q.Allowed &^= it.asked
	if c.g.cfg.Now() >= it.members[0].Deadline {
		return false
	}
	fn.Selector.Select(c.context, q, &s.selection)
	ask := s.selection.Ask & q.Allowed
	for rest := ask; rest != 0; rest &= rest - 1 {
		if m, _ := c.target(rest.First()); m.Closed.Load() { // it is being unloaded meanwhile
			ask = ask.Without(rest.First())
		}
	}
	if ask == 0 {
		return false
	}
	it.asked |= ask
	it.arrived = 0
	it.waiting.Store(1)
	for rest := ask; rest != 0; rest &= rest - 1 {
		i := rest.First()
		model, queue := c.target(i)
		m := it.add(&it.more, model, queue, i)
		m.Deadline, m.Expires = it.members[0].Deadline, it.members[0].Expires // it is the query's, whatever became of the model since
	}
	s.all = append(append(s.all[:0], it.members...), it.more...)
	for _, m := range it.more {
		m.lookUp()
	}
	for _, m := range it.more {
		if m.evaluated {
			c.refs.Add(1)
			m.submit()
		}
	}
	it.ended()
	return true
}

// fillValues writes the numbers of what has come, and the running averages of what has not.
func (it *item) fillValues(fn *Function) {
	s, c := it.scratch, &it.scratch.combining
	a := fn.Averages
	n := len(fn.Candidates)
	s.values, s.out = slices.Grow(s.values[:0], n*a.width)[:n*a.width], slices.Grow(s.out[:0], a.width)[:a.width]
	c.Width, c.Values, c.Out, c.Tolerance = a.width, s.values, s.out, math.Float64frombits(a.tolerance.Load())
	for _, m := range it.all() {
		if !m.shadow && m.code == api.OK {
			readNumbers(s.values[m.candidate*a.width:][:a.width], a.dtype, m.Result().Outputs[0].Data)
			c.Known = c.Known.With(m.candidate)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for rest := it.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		row := s.values[i*a.width:][:a.width]
		if c.Known.Has(i) {
			a.add(i, row)
		} else if a.count[i] > 0 {
			copy(row, a.mean[i*a.width:])
			c.Known = c.Known.With(i)
		}
	}
}

// Averages are the running averages of each candidate's predictions, for functions with a numeric output: what a late one is
// replaced by in an ensemble (Clipper, section 5.2.2).
type Averages struct {
	dtype     api.DType
	width     int
	tolerance atomic.Uint64 // bits of a float64

	mu    sync.Mutex
	count []float64
	mean  []float64
}

// NewAverages is nil where outputs are not averaged: several of them, of no fixed number of elements, or too many.
func NewAverages(sig api.Signature, candidates int) *Averages {
	if len(sig.Outputs) != 1 || !sig.Outputs[0].Fixed() {
		return nil
	}
	out := sig.Outputs[0]
	width := out.ItemBytes() / out.DType.Size()
	if width == 0 || width > MaxAveraged {
		return nil
	}
	return &Averages{dtype: out.DType, width: width, count: make([]float64, candidates), mean: make([]float64, candidates*width)}
}

// SetTolerance says how far a prediction may be from the answer to agree with it.
func (a *Averages) SetTolerance(tolerance float64) { a.tolerance.Store(math.Float64bits(tolerance)) }

// Candidates is how many models there are averages of.
func (a *Averages) Candidates() int { return len(a.count) }

// Mean is candidate i's running average; nil while it has predicted nothing.
func (a *Averages) Mean(i int) []float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count[i] == 0 {
		return nil
	}
	return slices.Clone(a.mean[i*a.width:][:a.width])
}

// Fits reports whether the averages are of such outputs.
func (a *Averages) Fits(sig api.Signature) bool {
	return len(sig.Outputs) == 1 && sig.Outputs[0].Fixed() && sig.Outputs[0].DType == a.dtype && sig.Outputs[0].ItemBytes() == a.width*a.dtype.Size()
}

// same reports whether two outputs say the same: numbers within the tolerance, labels exactly.
func (a *Averages) same(x, y []api.Value) bool {
	if a == nil {
		return sameOutputs(x, y)
	}
	size, tolerance := a.dtype.Size(), math.Float64frombits(a.tolerance.Load())
	for i := range a.width {
		if !(math.Abs(number(a.dtype, x[0].Data[i*size:])-number(a.dtype, y[0].Data[i*size:])) <= tolerance) {
			return false
		}
	}
	return true
}

// add takes one prediction into candidate i's average. What is no number teaches nothing.
func (a *Averages) add(i int, row []float64) {
	for _, v := range row {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
	}
	a.count[i] = min(a.count[i]+1, averagedOver)
	mean := a.mean[i*a.width:][:a.width]
	for j, v := range row {
		mean[j] += v/a.count[i] - mean[j]/a.count[i] // the difference itself may be too large for a number
	}
}

// readNumbers reads the elements of a tensor whose type has a fixed size.
func readNumbers(dst []float64, dtype api.DType, data []byte) {
	size := dtype.Size()
	for i := range dst {
		dst[i] = number(dtype, data[i*size:])
	}
}

func number(dtype api.DType, b []byte) float64 {
	le := binary.LittleEndian
	switch dtype {
	case api.Bool, api.Uint8:
		return float64(b[0])
	case api.Uint16:
		return float64(le.Uint16(b))
	case api.Uint32:
		return float64(le.Uint32(b))
	case api.Uint64:
		return float64(le.Uint64(b))
	case api.Int8:
		return float64(int8(b[0]))
	case api.Int16:
		return float64(int16(le.Uint16(b)))
	case api.Int32:
		return float64(int32(le.Uint32(b)))
	case api.Int64:
		return float64(int64(le.Uint64(b)))
	case api.Float16:
		return float64(api.Float16ToFloat32(le.Uint16(b)))
	case api.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	default:
		return math.Float64frombits(le.Uint64(b))
	}
}

// appendNumbers writes elements of a type of fixed size; integers are rounded and cut to what the type holds.
func appendNumbers(dst []byte, dtype api.DType, values []float64) []byte {
	le := binary.LittleEndian
	for _, v := range values {
		switch dtype {
		case api.Float16:
			dst = le.AppendUint16(dst, api.Float64ToFloat16(v))
		case api.Float32:
			dst = le.AppendUint32(dst, math.Float32bits(float32(v)))
		case api.Float64:
			dst = le.AppendUint64(dst, math.Float64bits(v))
		default:
			dst = appendInteger(dst, dtype, math.RoundToEven(v))
		}
	}
	return dst
}

func appendInteger(dst []byte, dtype api.DType, v float64) []byte {
	bits := 8 * dtype.Size()
	var low, high float64
	switch dtype {
	case api.Bool:
		high = 1
	case api.Uint8, api.Uint16, api.Uint32, api.Uint64:
		high = math.Ldexp(1, bits) - 1
	default:
		low, high = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)-1
	}
	if math.IsNaN(v) {
		v = 0
	}
	var u uint64
	switch {
	case v <= low && low < 0:
		u = uint64(1) << (bits - 1)
	case v <= low:
		u = 0
	case v >= high && low < 0:
		u = uint64(1)<<(bits-1) - 1
	case v >= high && dtype == api.Bool:
		u = 1
	case v >= high:
		u = ^uint64(0) >> (64 - bits)
	case v < 0:
		u = uint64(int64(v))
	default:
		u = uint64(v)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], u)
	return append(dst, b[:dtype.Size()]...)
}
