package selection

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// labelOut is the output of a model that says one label.
var labelOut = []api.TensorSpec{{Name: "label", DType: api.Int64}}

// recorded are the answers of models to the images of figure 7, as scikit-learn gave them (bench/models/learning/train.py).
type recorded struct {
	labels  []int64
	answers [][]int64 // by model
}

func readAnswers(t testing.TB, set string) (r recorded) {
	t.Helper()
	f, err := os.Open("testdata/answers/" + set + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, digits, _ := strings.Cut(lines.Text(), " ")
		row := make([]int64, len(digits))
		for i := range digits {
			row[i] = int64(digits[i] - '0')
		}
		if name == "labels" {
			r.labels = row
		} else {
			r.answers = append(r.answers, row)
		}
	}
	if err := lines.Err(); err != nil || len(r.answers) != 5 {
		t.Fatalf("%d models (%v)", len(r.answers), err)
	}
	return r
}

// table is a function with a policy, fed with labels one query at a time, as a gateway would.
type table struct {
	p       Policy
	s       State
	v       Value
	answers []Answer
	said    []Prediction
	losses  []float64
	delta   []float64
	judged  int
}

func newTable(t testing.TB, policy string, params map[string]any, candidates int) *table {
	p, s := newPolicy(t, policy, params, candidates)
	return &table{p: p, s: s, v: NewValue(p, candidates), losses: make([]float64, candidates), delta: make([]float64, len(s.V))}
}

// labels makes the predictions of models that say labels.
func predictLabels(said ...int64) (all []Prediction) {
	for i, label := range said {
		all = append(all, Prediction{Candidate: i, Confidence: math.NaN(), Outputs: Tensors{labelOut, []api.Value{api.Numbers(label)}}})
	}
	return all
}

// combine returns the combination of what the candidates have said.
func (b *table) combine(said []Prediction) *Combination {
	b.said, b.answers = said, b.answers[:0]
	asked := All(b.s.Candidates())
	for _, p := range said {
		b.answers = append(b.answers, Answer{p.Candidate, outputHash(p.Outputs, b.judged), p.Confidence})
	}
	c := &Combination{State: b.s, Value: b.v, Selected: asked, Answers: b.answers, Predictions: said, Judged: b.judged}
	b.p.Combine(c)
	return c
}

// label gives feedback for what was combined last.
func (b *table) label(label Tensors) {
	f := &Feedback{State: b.s, Value: b.v, Selected: All(b.s.Candidates()), Losses: b.losses, Delta: b.delta, Predictions: b.said, Label: label, Judged: b.judged}
	for i := range b.losses {
		b.losses[i] = math.NaN()
	}
	for _, p := range b.said {
		b.losses[p.Candidate] = 1
		if outputHash(p.Outputs, b.judged) == outputHash(label, -1) {
			b.losses[p.Candidate] = 0
		}
	}
	clear(b.delta)
	b.p.Observe(f)
	for i, d := range b.delta {
		b.s.V[i] += d
	}
}

func labelOf(label int64) Tensors { return Tensors{labelOut, []api.Value{api.Numbers(label)}} }

// run answers every query in the order and then gives its label. It returns the part that was answered wrongly.
func (b *table) run(r recorded, order []int) float64 {
	wrong := 0
	said := make([]int64, len(r.answers))
	for _, q := range order {
		for m := range said {
			said[m] = r.answers[m][q]
		}
		c := b.combine(predictLabels(said...))
		if c.Winner < 0 || said[c.Winner] != r.labels[q] {
			wrong++
		}
		b.label(labelOf(r.labels[q]))
	}
	return float64(wrong) / float64(len(order))
}

// meanAndInterval returns the mean and the half width of its 95 % interval (normal).
func meanAndInterval(x []float64) (mean, half float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	sum := 0.0
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return mean, 1.96 * math.Sqrt(sum/float64(len(x)-1)/float64(len(x)))
}

// TestStackingBeatsTheVote: on both image sets of figure 7, over 20 orders of the queries, the learned combination has fewer errors than
// the plain vote while it is being trained, from its first query on.
func TestStackingBeatsTheVote(t *testing.T) {
	for _, set := range []string{"digits", "mnist"} {
		r := readAnswers(t, set)
		var gains, errors []float64
		vote := 0.0
		for seed := range uint64(20) {
			order := rand.New(rand.NewPCG(seed, 7)).Perm(len(r.labels))
			vote = newTable(t, "exp4", map[string]any{"eta": 1e-6}, 5).run(r, order)
			stacked := newTable(t, "stacking", nil, 5).run(r, order)
			gains, errors = append(gains, vote-stacked), append(errors, stacked)
		}
		gain, half := meanAndInterval(gains)
		mean, _ := meanAndInterval(errors)
		t.Logf("%s: vote %.4f, stacking %.4f over %d queries of 20 orders; the difference is %.4f ± %.4f", set, vote, mean, len(r.labels), gain, half)
		if gain-half <= 0 {
			t.Errorf("%s: the vote has %.4f ± %.4f more errors, want more than none", set, gain, half)
		}
	}
}

// TestStackingLearnsWhomToBelieve: one candidate is right about 4s and always says 9 for the rest; the vote never finds out.
func TestStackingLearnsWhomToBelieve(t *testing.T) {
	b := newTable(t, "stacking", nil, 3)
	if c := b.combine(predictLabels(4, 9, 9)); c.Winner != 1 || c.Agreed != 0b110 || c.Confidence < 0.5 {
		t.Fatalf("untrained: candidate %d wins with %.3f, want the vote", c.Winner, c.Confidence)
	}
	for range 100 {
		b.combine(predictLabels(4, 9, 9))
		b.label(labelOf(4))
		b.combine(predictLabels(9, 9, 9))
		b.label(labelOf(9))
	}
	if c := b.combine(predictLabels(4, 9, 9)); c.Winner != 0 || c.Confidence < 0.8 {
		t.Errorf("trained: candidate %d wins with %.3f, want 0", c.Winner, c.Confidence)
	}
	// A candidate without an answer, and a class that no label has had, still get an answer.
	if c := b.combine(predictLabels(4, 9, 9)[1:]); c.Winner < 1 {
		t.Errorf("candidate %d wins, which has not answered", c.Winner)
	}
	if c := b.combine(predictLabels(5, 5, 5)); c.Winner != 0 || c.Agreed != 0b111 {
		t.Errorf("candidate %d wins with %b, want the unanimous class", c.Winner, c.Agreed)
	}
}

// TestStackingByScores: with the scores of the classes as features the second choice of a candidate counts.
func TestStackingByScores(t *testing.T) {
	specs := []api.TensorSpec{{Name: "label", DType: api.Int64}, {Name: "scores", DType: api.Float32, Shape: []int64{2}}}
	b := newTable(t, "stacking", map[string]any{"features": "scores", "width": 2.0, "prior": 0.1}, 2)
	r := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for i := range 2000 {
		truth := r.Int64N(2)
		// The first candidate's label is a coin. Its first score tells the truth.
		first, second := r.Int64N(2), r.Int64N(2)
		if first == second {
			second = 1 - first // so that both classes are given
		}
		scores := []float32{float32(truth), float32(r.NormFloat64())}
		c := b.combine([]Prediction{
			{0, Tensors{specs, []api.Value{api.Numbers(first), api.Numbers(scores...)}}, math.NaN(), 0},
			{1, Tensors{specs, []api.Value{api.Numbers(second), api.Numbers[float32](0, 0)}}, math.NaN(), 0},
		})
		if said := []int64{first, second}[max(c.Winner, 0)]; i >= 1000 && said != truth {
			wrong++
		}
		b.label(labelOf(truth))
	}
	if wrong > 10 {
		t.Errorf("%d of the last 1,000 answers are wrong, and the scores say the truth", wrong)
	}
}

// TestStackingIsBounded: classes beyond the bound are decided by vote, and what would not fit a value is refused.
func TestStackingIsBounded(t *testing.T) {
	b := newTable(t, "stacking", map[string]any{"classes": 2.0}, 3)
	for i := range int64(50) {
		b.combine(predictLabels(i, i, 7))
		b.label(labelOf(i))
	}
	if n := len(b.v.(*stack).class); n != 2 {
		t.Errorf("%d classes are known, want 2", n)
	}
	if c := b.combine(predictLabels(33, 44, 44)); c.Winner != 1 {
		t.Errorf("candidate %d wins, want the vote", c.Winner)
	}
	_, err := New("stacking", map[string]any{"classes": 256.0}, refs(64))
	if err == nil || !strings.Contains(err.Error(), "lower classes or width") {
		t.Errorf("%v: want an error that says what to do", err)
	}
	b.label(Tensors{}) // feedback without a label
}

// TestStackingIsRestored: a decoded value answers as the first one did. Damage, and another shape, are refused and change nothing.
func TestStackingIsRestored(t *testing.T) {
	r := readAnswers(t, "digits")
	b := newTable(t, "stacking", nil, 5)
	b.run(r, rand.New(rand.NewPCG(1, 1)).Perm(400))
	testValue(t, b.p.(Valuer), b.v, 5)
	other := newTable(t, "stacking", nil, 5)
	data, _ := b.v.AppendBinary(nil)
	if err := other.v.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	for q := range 200 {
		said := make([]int64, 5)
		for m := range said {
			said[m] = r.answers[m][q]
		}
		x, y := b.combine(predictLabels(said...)), other.combine(predictLabels(said...))
		if x.Winner != y.Winner || x.Confidence != y.Confidence {
			t.Fatalf("query %d: %d with %v, restored %d with %v", q, x.Winner, x.Confidence, y.Winner, y.Confidence)
		}
	}
	// Candidates change places, and one is new: its answers count as votes.
	three := b.p.(Valuer).NewValue(3).(*stack)
	three.Adopt(b.v, []int{4, -1, 0})
	old, k := b.v.(*stack), 3
	for feature := range old.width + 1 {
		if got, want := three.weight[k*three.features()+2*(old.width+1)+feature], old.weight[k*old.features()+feature]; got != want {
			t.Fatalf("weight %d of the third candidate is %v, was %v", feature, got, want)
		}
		if got := three.weight[k*three.features()+(old.width+1)+feature]; got != 0 {
			t.Fatalf("the new candidate has weight %v", got)
		}
	}
}

// testValue: a value is encoded and decoded; truncated, longer and foreign encodings are refused, and adopting the same candidates
// changes nothing.
func testValue(t *testing.T, p Valuer, v Value, candidates int) {
	t.Helper()
	data, err := v.AppendBinary([]byte("before"))
	if err != nil || !strings.HasPrefix(string(data), "before") {
		t.Fatal(err)
	}
	if data = data[len("before"):]; len(data) > MaxValueBytes {
		t.Errorf("the encoding has %d bytes", len(data))
	}
	same := func(what string, v Value) {
		t.Helper()
		if again, _ := v.AppendBinary(nil); string(again) != string(data) {
			t.Errorf("%s: the value is another one", what)
		}
	}
	next := p.NewValue(candidates)
	if err := next.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	same("decoded", next)
	for n := range min(len(data), 200) {
		if next.UnmarshalBinary(data[:n]) == nil {
			t.Errorf("%d bytes of %d are a value", n, len(data))
		}
	}
	if next.UnmarshalBinary(append(data[:len(data):len(data)], 0)) == nil || p.NewValue(candidates+1).UnmarshalBinary(data) == nil {
		t.Error("a value of other candidates is decoded")
	}
	damaged := append([]byte(nil), data...)
	for i := range damaged[len(damaged)/2:] {
		damaged[len(damaged)/2+i] = 0xff // NaN in each float
	}
	if next.UnmarshalBinary(damaged) == nil {
		t.Error("numbers that are not finite are decoded")
	}
	same("after refused encodings", next)
	from := make([]int, candidates)
	for i := range from {
		from[i] = i
	}
	adopted := p.NewValue(candidates)
	adopted.Adopt(next, from)
	same("adopted", adopted)
}

// ExampleNewValue shows that a value belongs to policies that ask for one.
func ExampleNewValue() {
	for _, name := range []string{"exp4", "stacking"} {
		p, _ := New(name, nil, []string{"a", "b"})
		fmt.Println(name, NewValue(p, 2) != nil, NeedsOf(p))
	}
	// Output:
	// exp4 false {false false false}
	// stacking true {false true true}
}
