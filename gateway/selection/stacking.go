package selection

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/api"
)

func init() {
	Register(Definition{
		Name: "stacking",
		Doc:  "asks all candidates and combines their answers by a logistic regression that is trained on labels; it learns which candidate to believe about which class",
		Parameters: []Parameter{
			{"classes", Whole, 32.0, 2, 256, "how many different labels are learned; others are decided by vote"},
			{"features", Text, "", 0, 0, "a numeric output, such as the scores of the classes, to learn from; by default the answers alone"},
			{"width", Whole, 16.0, 1, 256, "how many elements of that output are used"},
			{"rate", Number, 0.3, 1e-6, 10, "learning rate"},
			{"decay", Number, 1e-4, 0, 0.1, "how fast what was learned fades with each label"},
			{"prior", Number, 1.0, 0, 100, "what a candidate's vote counts before anything is learned"},
		},
		Make: func(v Values) (Policy, error) {
			p := &stacking{
				AllCandidates: AllCandidates{Memory: ownMemory}, named: "stacking", classes: int(v.Number("classes")), output: v.Text("features"),
				rate: v.Number("rate"), decay: v.Number("decay"), prior: v.Number("prior"), width: int(v.Number("classes")),
			}
			if p.output != "" {
				p.width = int(v.Number("width"))
			}
			if size := newStack(p, len(v.Candidates)).size(); size > MaxValueBytes-valueMargin {
				return nil, api.FieldErrors{{Path: "policy.classes", Message: fmt.Sprintf("%d classes, %d candidates and %d features of each take %d bytes: expected at most %d; lower classes or width", p.classes, len(v.Candidates), p.width, size, MaxValueBytes-valueMargin)}}
			}
			return p, nil
		},
	})
}

// valueMargin is room for the names of candidates beside a value.
const valueMargin = 64 << 10

// stacking is stacked generalisation (Wolpert, Stacked generalization, Neural networks, 1992) with a multinomial logistic
// regression on top, trained online by stochastic gradient descent (Bottou, Large-scale machine learning with stochastic
// gradient descent, COMPSTAT 2010) with the step sizes of AdaGrad (Duchi, Hazan and Singer, Adaptive subgradient methods
// for online learning and stochastic optimization, JMLR 2011). A vote believes each candidate as much about every class;
// this also learns that one candidate's 4 is often a 9.
//
// The features of a candidate are its answer, one of the classes, times its confidence; or the elements of a numeric
// output; and whether it has answered at all. The score of a class is prior times its votes, plus what is learned. So an
// untrained function answers by vote, and a class that is not known to the regression can win by votes alone. The answer
// is always one that a candidate has given, with that candidate's other outputs.
//
// Steps depend on all earlier ones, so the value cannot be merged: one gateway learns.
type stacking struct {
	AllCandidates
	named
	classes, width int
	output         string
	rate, decay    float64
	prior          float64
}

func (*stacking) Needs() Needs { return Needs{Predictions: true, Labels: true} }

func (p *stacking) NewValue(candidates int) Value { return newStack(p, candidates) }

// stack is what stacking has learned. Features are numbered: those of candidate i begin at i·(width+1), and the last of
// them says that it has not answered; the last of all is 1.
type stack struct {
	kind              uint64 // what the features are, a hash
	candidates, width int
	class             []uint64  // the known classes, hashes of outputs; at most classes
	classes           int       // capacity
	weight            []float32 // classes × features
	gradient          []float32 // sums of squared gradients, like weight
	score             []float64 // memory of learn
	at                []active
}

// active is a feature that is not 0.
type active struct {
	feature int32
	value   float32
}

func newStack(p *stacking, candidates int) *stack {
	v := &stack{kind: hashOf(p.output), candidates: candidates, width: p.width, classes: p.classes, class: make([]uint64, 0, p.classes)}
	v.weight = make([]float32, p.classes*v.features())
	v.gradient = make([]float32, len(v.weight))
	v.score = make([]float64, p.classes)
	v.at = make([]active, 0, v.features())
	return v
}

func (v *stack) features() int { return v.candidates*(v.width+1) + 1 }

// size returns the length of the largest encoding.
func (v *stack) size() int { return stackHeader + 8*v.classes + 8*v.classes*v.features() }

// outputHash is the identity of a prediction's class: a hash of the output that labels are about, or of all.
func outputHash(t Tensors, judged int) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range t.Len() {
		if judged >= 0 && i != judged {
			continue
		}
		v := &t.Values[i]
		for _, d := range v.Dims {
			h = mix(h ^ uint64(d))
		}
		data := v.Data
		for ; len(data) >= 8; data = data[8:] {
			h = mix(h ^ binary.LittleEndian.Uint64(data))
		}
		for _, b := range data {
			h = (h ^ uint64(b)) * 0x100000001b3
		}
		h = mix(h + uint64(len(v.Data)))
	}
	return h
}

// find returns the index of a class, or -1.
func (v *stack) find(class uint64) int {
	for i, c := range v.class {
		if c == class {
			return i
		}
	}
	return -1
}

// sureness is a model's confidence in its prediction; 1 if it states none.
func (p *Prediction) sureness() float64 {
	if p.Confidence >= 0 && p.Confidence < 1 {
		return p.Confidence
	}
	return 1
}

// each calls yield with the features of a query that are not 0. Shared by Combine, which must not change v, and Observe.
func (p *stacking) each(v *stack, asked Set, predictions []Prediction, judged int, yield func(feature int, x float64)) {
	missing := asked
	for i := range predictions {
		m := &predictions[i]
		if m.Candidate >= v.candidates {
			continue
		}
		missing = missing.Without(m.Candidate)
		base := m.Candidate * (v.width + 1)
		if p.output == "" {
			if c := v.find(outputHash(m.Outputs, judged)); c >= 0 && c < v.width {
				yield(base+c, m.sureness())
			}
			continue
		}
		t, ok := m.Outputs.Named(p.output)
		if !ok || !t.Numeric() {
			continue
		}
		for e := range min(t.Elements(), v.width) {
			if x := t.Number(e); math.Abs(x) <= 1e6 && x != 0 {
				yield(base+e, x)
			}
		}
	}
	for t := missing; t != 0; t &= t - 1 {
		if i := t.First(); i < v.candidates {
			yield(i*(v.width+1)+v.width, 1)
		}
	}
	yield(v.features()-1, 1)
}

// votes returns what the votes for a class count.
func (p *stacking) votes(class uint64, predictions []Prediction, judged int) (sum float64) {
	for i := range predictions {
		if outputHash(predictions[i].Outputs, judged) == class {
			sum += p.prior * predictions[i].sureness()
		}
	}
	return sum
}

// maxStacked bounds the candidates' features that Combine holds on the stack.
const maxStacked = MaxCandidates

func (p *stacking) Combine(c *Combination) {
	v, _ := c.Value.(*stack)
	if v == nil || len(c.Predictions) == 0 || len(c.Predictions) > maxStacked {
		p.AllCandidates.Combine(c)
		return
	}
	c.Winner, c.Agreed, c.Confidence = -1, 0, 0
	var given [maxStacked]uint64 // the class of each prediction
	var score [maxStacked]float64
	for i := range c.Predictions {
		given[i] = outputHash(c.Predictions[i].Outputs, c.Judged)
	}
	best, sum := 0, 0.0
	for i := range c.Predictions {
		score[i] = p.scoreOf(v, given[i], c.Selected, c.Predictions, c.Judged, given[:len(c.Predictions)])
		if score[i] > score[best] || score[i] == score[best] && c.Predictions[i].Candidate < c.Predictions[best].Candidate {
			best = i
		}
	}
	for i := range c.Predictions { // the confidence is the softmax over the classes that were given
		first := true
		for k := range i {
			first = first && given[k] != given[i]
		}
		if first {
			sum += math.Exp(score[i] - score[best])
		}
		if given[i] == given[best] {
			c.Agreed = c.Agreed.With(c.Predictions[i].Candidate)
		}
	}
	c.Winner, c.Confidence = c.Agreed.First(), 1/sum
}

// scoreOf returns the score of a class.
func (p *stacking) scoreOf(v *stack, class uint64, asked Set, predictions []Prediction, judged int, given []uint64) (score float64) {
	for i := range predictions {
		if given[i] == class {
			score += p.prior * predictions[i].sureness()
		}
	}
	k := v.find(class)
	if k < 0 {
		return score
	}
	row := v.weight[k*v.features() : (k+1)*v.features()]
	p.each(v, asked, predictions, judged, func(feature int, x float64) { score += float64(row[feature]) * x })
	return score
}

func (p *stacking) Observe(f *Feedback) {
	p.AllCandidates.Observe(f)
	v, ok := f.Value.(*stack)
	if !ok || f.Label.Len() == 0 || len(f.Predictions) == 0 {
		return
	}
	label := outputHash(f.Label, -1)
	y := v.find(label)
	if y < 0 && len(v.class) < v.classes {
		y = len(v.class)
		v.class = append(v.class, label)
	}
	if y < 0 {
		return // there is no room for the class
	}
	v.at = v.at[:0]
	p.each(v, f.Selected, f.Predictions, f.Judged, func(feature int, x float64) { v.at = append(v.at, active{int32(feature), float32(x)}) })
	most := math.Inf(-1)
	for k, class := range v.class {
		v.score[k] = p.votes(class, f.Predictions, f.Judged)
		row := v.weight[k*v.features() : (k+1)*v.features()]
		for _, a := range v.at {
			v.score[k] += float64(row[a.feature]) * float64(a.value)
		}
		most = max(most, v.score[k])
	}
	sum := 0.0
	for k := range v.class {
		v.score[k] = math.Exp(v.score[k] - most)
		sum += v.score[k]
	}
	for k := range v.class {
		step := v.score[k] / sum // the derivative of the loss by the score
		if k == y {
			step--
		}
		from := k * v.features()
		for _, a := range v.at {
			w, g := &v.weight[from+int(a.feature)], &v.gradient[from+int(a.feature)]
			slope := step * float64(a.value)
			*g += float32(slope * slope)
			*w = float32(float64(*w)*(1-p.decay) - p.rate*slope/math.Sqrt(float64(*g)+1e-6))
		}
	}
}

const (
	stackVersion = 1
	stackHeader  = 1 + 8 + 2 + 2 + 2
)

// AppendBinary appends version, kind, width, classes' capacity and number, the classes, and of each class the weights and
// gradients, float32.
func (v *stack) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	b = le.AppendUint64(append(b, stackVersion), v.kind)
	for _, n := range [...]int{v.width, v.classes, len(v.class)} {
		b = le.AppendUint16(b, uint16(n))
	}
	for _, c := range v.class {
		b = le.AppendUint64(b, c)
	}
	for _, x := range [...][]float32{v.weight, v.gradient} {
		for _, w := range x[:len(v.class)*v.features()] {
			b = le.AppendUint32(b, math.Float32bits(w))
		}
	}
	return b, nil
}

var errStack = errors.New("it is not what stacking has written with these classes and features")

func (v *stack) UnmarshalBinary(b []byte) error {
	le := binary.LittleEndian
	if len(b) < stackHeader || b[0] != stackVersion || le.Uint64(b[1:]) != v.kind {
		return errStack
	}
	width, classes, known := int(le.Uint16(b[9:])), int(le.Uint16(b[11:])), int(le.Uint16(b[13:]))
	b = b[stackHeader:]
	if width != v.width || classes != v.classes || known > classes || len(b) != known*(8+8*v.features()) {
		return errStack
	}
	next := newStack(&stacking{classes: classes, width: width}, v.candidates)
	next.kind = v.kind
	for range known {
		next.class, b = append(next.class, le.Uint64(b)), b[8:]
	}
	for _, x := range [...][]float32{next.weight, next.gradient} {
		for i := range known * v.features() {
			w := math.Float32frombits(le.Uint32(b[4*i:]))
			if !(math.Abs(float64(w)) <= 1e6) {
				return errStack
			}
			x[i] = w
		}
		b = b[4*known*v.features():]
	}
	*v = *next
	return nil
}

func (v *stack) Adopt(old Value, from []int) {
	o, ok := old.(*stack)
	if !ok || o.kind != v.kind || o.width != v.width || o.classes != v.classes {
		return
	}
	v.class = append(v.class[:0], o.class...)
	for k := range v.class {
		for _, x := range [...][2][]float32{{v.weight, o.weight}, {v.gradient, o.gradient}} {
			to, row := x[0][k*v.features():(k+1)*v.features()], x[1][k*o.features():(k+1)*o.features()]
			to[len(to)-1] = row[len(row)-1]
			for i, at := range from {
				if at >= 0 {
					copy(to[i*(v.width+1):(i+1)*(v.width+1)], row[at*(v.width+1):])
				}
			}
		}
	}
}
