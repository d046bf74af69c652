package selection_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// The guide's policy begins here.

func init() {
	selection.Register(selection.Definition{
		Name: "softmax",
		Doc:  "asks each candidate the more often the lower its mean loss is, without ever settling",
		Parameters: []selection.Parameter{
			{Name: "temperature", Kind: selection.Number, Default: 0.05, Low: 0.001, High: 10, Doc: "the difference in loss that makes a candidate e times rarer"},
		},
		Make: func(v selection.Values) (selection.Policy, error) {
			return softmax{selection.Counting{Memory: 1000}, v.Number("temperature")}, nil
		},
	})
}

// softmax is Boltzmann exploration (Sutton and Barto, Reinforcement learning, section 2.8).
type softmax struct {
	selection.Counting // what it learns: counts and sums of losses
	temperature        float64
}

func (softmax) Name() string { return "softmax" }

func (p softmax) Select(q *selection.Query, out *selection.Selection) {
	var weight selection.Vector
	p.Shares(q.State, q.Allowed, weight[:q.State.Candidates()])
	selection.Draw(q, &weight, out)
}

func (p softmax) Shares(s selection.State, allowed selection.Set, dst []float64) {
	sum := 0.0
	for i := range dst {
		dst[i] = 0
		if !allowed.Has(i) {
			continue
		}
		dst[i] = 1 // nothing is known about it: it may be perfect
		if loss := selection.MeanLoss(s, i); loss > 0 {
			dst[i] = math.Exp(-loss / p.temperature)
		}
		sum += dst[i]
	}
	for i := range dst {
		dst[i] /= sum
	}
}

// The guide's policy ends here.

// TestGuideShowsThisPolicy keeps the code in WRITING.md and the one above the same.
func TestGuideShowsThisPolicy(t *testing.T) {
	guide, err := os.ReadFile("WRITING.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("softmax_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := bytes.Cut(source, []byte("// The guide's policy begins here.\n\n"))
	code, _, found := bytes.Cut(code, []byte("\n// The guide's policy ends here."))
	if !found || !bytes.Contains(guide, append([]byte("```go\n"), append(code, "```"...)...)) {
		t.Error("WRITING.md does not show the policy as it is in softmax_test.go: copy it there")
	}
}

// A registered policy is made by its name, like the built-in ones.
func Example() {
	policy, err := selection.New("softmax", map[string]any{"temperature": 0.1}, []string{"small", "large"})
	if err != nil {
		fmt.Println(err)
		return
	}
	state := selection.State{Slots: policy.Slots(), V: make([]float64, 2*policy.Slots())}
	policy.Init(state)

	// Small is wrong in 30 of 100 answers, large in 10.
	delta := make([]float64, len(state.V))
	for n := range 200 {
		f := selection.Feedback{State: state, Selected: selection.Set(0).With(n % 2), Losses: []float64{math.NaN(), math.NaN()}, Delta: delta}
		f.Losses[n%2] = 0
		if n/2%10 < 3-n%2*2 {
			f.Losses[n%2] = 1
		}
		clear(delta)
		policy.Observe(&f)
		for i, d := range delta {
			state.V[i] += d
		}
	}
	shares := make([]float64, 2)
	policy.Shares(state, selection.All(2), shares)
	fmt.Printf("%.2f\n", shares)
	_, err = selection.New("softmax", map[string]any{"temprature": 0.1}, []string{"small", "large"})
	fmt.Println(err)
	// Output:
	// [0.12 0.88]
	// policy.temprature: softmax has no such parameter: did you mean "temperature"?
}
