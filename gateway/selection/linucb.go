package selection

import (
	"encoding/binary"
	"errors"
	"math"
)

func init() {
	Register(Definition{
		Name: "linucb",
		Doc:  "asks the candidate whose loss a linear model predicts to be lowest for this input, with a bonus for those of which little is known",
		Parameters: []Parameter{
			{"input", Text, "", 0, 0, "the input to route by; the first one by default"},
			{"features", Whole, 16.0, 1, maxFeatures, "how many numbers an input is reduced to; longer inputs, and the words of a text, are hashed into them"},
			{"scale", Number, 1.0, 1e-9, 1e9, "what the elements of a numeric input are divided by; a vector that is longer than 1 after that is shortened to 1"},
			{"alpha", Number, 0.3, 0, 100, "how far a candidate is tried of which little is known for such inputs"},
			memoryParameter(10000),
		},
		Make: func(v Values) (Policy, error) {
			return &linUCB{
				Counting: Counting{Memory: ownMemory}, named: "linucb", input: v.Text("input"), features: int(v.Number("features")),
				scale: v.Number("scale"), alpha: v.Number("alpha"), memory: memoryOf(v),
			}, nil
		},
	})
}

// maxFeatures bounds the time of a choice, which is quadratic in the features, and that of learning, which is cubic.
const maxFeatures = 32

// linUCB routes by the input. It is Algorithm 1 (LinUCB with disjoint linear models) of Li, Chu, Langford and Schapire, A
// contextual-bandit approach to personalized news article recommendation, WWW 2010. For each candidate a, A = I + Σ x·xᵀ
// and b = Σ r·x over the queries that asked it, with the reward r = 1 − loss; θ = A⁻¹·b; the candidate with the highest
// θ·x + α·sqrt(x·A⁻¹·x) is asked.
//
// Three things are added. A candidate of which nothing is known is expected to lose nothing, not everything: b begins with
// the constant feature, which is Algorithm 1 with the reward −loss. Where rewards are mostly near 1, as those of models
// are, one that begins at 0 and whose bonus is at most α·√2 would never be asked. x has at most a few dozen features: more elements, and words of texts, are hashed into them with
// signs (Weinberger et al., Feature hashing for large scale multitask learning, ICML 2009), and one more feature is
// always 1. And A and b forget 1/memory of what they have learned with each observation of their candidate, as in
// Russac, Vernade and Cappé, Weighted linear bandits for non-stationary environments, NeurIPS 2019, so that a candidate
// that has changed is noticed.
//
// A and b are sums, so the values of gateways that share a store are merged.
type linUCB struct {
	Counting
	named
	input    string
	features int
	scale    float64
	alpha    float64
	memory   float64
}

func (*linUCB) Needs() Needs { return Needs{Inputs: true} }

// vectorX is an input's features; the last of those in use is 1.
type vectorX [maxFeatures + 1]float64

// reduce writes the features of an input. It reports false if the query has no such input.
func (p *linUCB) reduce(inputs Tensors, features int, x *vectorX) bool {
	clear(x[:])
	x[features] = 1
	t, ok := inputs.Named(p.input)
	if !ok {
		return false
	}
	if t.Numeric() {
		n := t.Elements()
		for i := range n {
			v := t.Number(i) / p.scale
			switch {
			case !plausible(v):
			case n <= features:
				x[i] = v
			default:
				hash(x[:features], mix(uint64(i)), v)
			}
		}
	} else {
		for _, text := range t.All() {
			hashWords(x[:features], text)
		}
	}
	sum := 0.0
	for _, v := range x[:features] {
		sum += v * v
	}
	if sum > 1 {
		norm := math.Sqrt(sum)
		for i := range features {
			x[i] /= norm
		}
	}
	return true
}

// hash adds v, or −v, to one of the features.
func hash(x []float64, key uint64, v float64) {
	if key>>63 != 0 {
		v = -v
	}
	x[key%uint64(len(x))] += v
}

// hashWords hashes each run of bytes without ASCII spaces and punctuation.
func hashWords(x []float64, text []byte) {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3 // FNV-1a
	h, length := uint64(offset), 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z' || text[i] >= 0x80) {
			h = (h ^ uint64(text[i]|0x20)) * prime
			length++
			continue
		}
		if length > 0 {
			hash(x, mix(h), 1)
		}
		h, length = offset, 0
	}
}

func (p *linUCB) Select(q *Query, out *Selection) {
	var rank Vector
	if v, ok := q.Value.(*arms); ok {
		var x vectorX
		p.reduce(q.Inputs, v.n-1, &x)
		for t := q.Allowed; t != 0; t &= t - 1 {
			if i := t.First(); i < len(v.arm) {
				a := &v.arm[i]
				rank[i] = dot(a.theta, x[:v.n]) + p.alpha*math.Sqrt(max(v.quadratic(a.inverse, &x), 0))
			}
		}
	}
	Best(q, &rank, out)
}

// Shares are what the candidates' recent numbers of observations say: the share of an input that comes next is not known.
func (p *linUCB) Shares(s State, allowed Set, dst []float64) {
	clear(dst)
	sum := 0.0
	for t := allowed; t != 0; t &= t - 1 {
		count, _ := rowCounts(s.Row(t.First()))
		sum += count + 1
	}
	for t := allowed; t != 0; t &= t - 1 {
		count, _ := rowCounts(s.Row(t.First()))
		dst[t.First()] = (count + 1) / sum
	}
}

func (p *linUCB) Observe(f *Feedback) {
	p.Counting.Observe(f)
	v, ok := f.Value.(*arms)
	if !ok {
		return
	}
	var x vectorX
	if !p.reduce(f.Inputs, v.n-1, &x) {
		return // the input is no longer remembered
	}
	for i := range v.arm {
		if loss, ok := f.Loss(i); ok {
			v.learn(&v.arm[i], &x, 1-loss, p.memory)
		}
	}
}

func (p *linUCB) NewValue(candidates int) Value { return newArms(candidates, p.features+1) }

// arms is what linUCB has learned: A − I and b − e for each candidate, where e is the constant feature alone, and what follows from
// them.
type arms struct {
	n   int // features, with the constant one
	arm []arm
	// work is the memory of invert.
	work []float64
}

type arm struct {
	sum     []float64 // A − I, the lower triangle by rows
	b       []float64
	theta   []float64
	inverse []float64 // of A, n×n
}

func newArms(candidates, n int) *arms {
	v := &arms{n: n, arm: make([]arm, candidates), work: make([]float64, n*n)}
	for i := range v.arm {
		v.arm[i] = arm{make([]float64, n*(n+1)/2), make([]float64, n), make([]float64, n), make([]float64, n*n)}
		v.solve(&v.arm[i])
	}
	return v
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// quadratic returns x·M·x of a symmetric n×n matrix.
func (v *arms) quadratic(m []float64, x *vectorX) (sum float64) {
	for r := range v.n {
		row := m[r*v.n : (r+1)*v.n]
		part := row[r] * x[r] / 2
		for c := range r {
			part += row[c] * x[c]
		}
		sum += 2 * x[r] * part
	}
	return sum
}

// learn adds an observation.
func (v *arms) learn(a *arm, x *vectorX, reward, memory float64) {
	keep := 1.0
	if memory > 0 {
		keep = 1 - 1/memory
	}
	at := 0
	for r := range v.n {
		for c := range r + 1 {
			a.sum[at] = a.sum[at]*keep + x[r]*x[c]
			at++
		}
		a.b[r] = a.b[r]*keep + reward*x[r]
	}
	v.solve(a)
}

// solve computes the inverse of A and θ, by a Cholesky decomposition. It reports false, and leaves them, if A is not
// positive definite.
func (v *arms) solve(a *arm) bool {
	n, l := v.n, v.work
	at := 0
	for r := range n {
		for c := range r + 1 {
			sum := a.sum[at]
			if at++; r == c {
				sum++
			}
			for k := range c {
				sum -= l[r*n+k] * l[c*n+k]
			}
			if r != c {
				l[r*n+c] = sum / l[c*n+c]
			} else if !(sum > 1e-12) || sum > maxPlausible {
				return false
			} else {
				l[r*n+r] = math.Sqrt(sum)
			}
		}
	}
	for col := range n { // A⁻¹ column by column: L·y = e, then Lᵀ·z = y
		z := a.inverse[col*n : (col+1)*n] // a row, which is the same: it is symmetric
		for r := range n {
			sum := 0.0
			if r == col {
				sum = 1
			}
			for k := col; k < r; k++ {
				sum -= l[r*n+k] * z[k]
			}
			if z[r] = 0; r >= col {
				z[r] = sum / l[r*n+r]
			}
		}
		for r := n - 1; r >= 0; r-- {
			sum := z[r]
			for k := r + 1; k < n; k++ {
				sum -= l[k*n+r] * z[k]
			}
			z[r] = sum / l[r*n+r]
		}
	}
	for r := range n {
		row := a.inverse[r*n : (r+1)*n]
		a.theta[r] = dot(row, a.b) + row[n-1] // the last feature is the constant one
	}
	return true
}

const armsVersion = 1

// AppendBinary appends version, n, and the sums and b of each candidate as float64s.
func (v *arms) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, armsVersion, byte(v.n))
	for i := range v.arm {
		b = appendFloats(appendFloats(b, v.arm[i].sum), v.arm[i].b)
	}
	return b, nil
}

func appendFloats(b []byte, x []float64) []byte {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// takeFloats fills dst from b and returns the rest. It reports false if there is too little, or a number is implausible.
func takeFloats(dst []float64, b []byte) (rest []byte, ok bool) {
	if len(b) < 8*len(dst) {
		return nil, false
	}
	for i := range dst {
		if dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])); !plausible(dst[i]) {
			return nil, false
		}
	}
	return b[8*len(dst):], true
}

var errArms = errors.New("it is not what linucb has written with this number of features")

func (v *arms) UnmarshalBinary(b []byte) error {
	if len(b) < 2 || b[0] != armsVersion || int(b[1]) != v.n {
		return errArms
	}
	b = b[2:]
	next := newArms(len(v.arm), v.n)
	for i := range next.arm {
		a := &next.arm[i]
		var ok bool
		if b, ok = takeFloats(a.sum, b); !ok {
			return errArms
		}
		if b, ok = takeFloats(a.b, b); !ok || !next.solve(a) {
			return errArms
		}
	}
	if len(b) > 0 {
		return errArms
	}
	*v = *next
	return nil
}

func (v *arms) Adopt(old Value, from []int) {
	o, ok := old.(*arms)
	if !ok || o.n != v.n {
		return
	}
	for i, at := range from {
		if at >= 0 {
			a, b := &v.arm[i], &o.arm[at]
			copy(a.sum, b.sum)
			copy(a.b, b.b)
			copy(a.theta, b.theta)
			copy(a.inverse, b.inverse)
		}
	}
}

// Merge adds the sums that theirs has gained. If that leaves no valid matrix, as when gateways forget at once what they
// share, theirs is taken.
func (v *arms) Merge(base, theirs Value) {
	b, okBase := base.(*arms)
	t, okTheirs := theirs.(*arms)
	if !okBase || !okTheirs || b.n != v.n || t.n != v.n {
		return
	}
	for i := range v.arm {
		a := &v.arm[i]
		for k := range a.sum {
			a.sum[k] += t.arm[i].sum[k] - b.arm[i].sum[k]
		}
		for k := range a.b {
			a.b[k] += t.arm[i].b[k] - b.arm[i].b[k]
		}
		if !v.solve(a) {
			copy(a.sum, t.arm[i].sum)
			copy(a.b, t.arm[i].b)
			v.solve(a)
		}
	}
}
