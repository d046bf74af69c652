package functions

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// preferred is a worth with its counters and a clock.
type preferred struct {
	*worth
	t       *testing.T
	counted []obs.Loss
	now     time.Time
}

func prefer(t *testing.T, candidates int) *preferred {
	p := &preferred{newWorth(candidates), t, make([]obs.Loss, candidates), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range candidates {
		p.serves(i, "1")
	}
	return p
}

func (p *preferred) serves(i int, version string) {
	p.of(i, api.ModelID{Name: string(rune('a' + i)), Version: version}, &p.counted[i], before{}, p.now)
}

// label gives a candidate labels, of which some were wrong.
func (p *preferred) label(i, n, wrong int) {
	for k := range n {
		loss := 0.0
		if k < wrong {
			loss = 1
		}
		p.counted[i].Observe(loss)
	}
}

// want checks the gains after some time.
func (p *preferred) want(what string, after time.Duration, want ...float64) {
	p.t.Helper()
	p.now = p.now.Add(after)
	got := make([]float64, len(want))
	p.write(p.counted, p.now, got)
	if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-3 }) {
		p.t.Errorf("%s: got %.4v, want %.4v", what, got, want)
	}
}

func TestWorthOfPreferred(t *testing.T) {
	p := prefer(t, 3)
	p.want("no evidence", 0, 1, 0.9, 0.81)
	p.label(0, 200, 60)
	p.label(1, 200, 20)
	p.want("looked at once a second", worthEvery/2, 1, 0.9, 0.81)
	p.want("one candidate has no labels", worthEvery, 1, 0.9, 0.81)
	p.label(2, minLabels-1, 0)
	p.want("one has too few", worthEvery, 1, 0.9, 0.81)
	p.label(2, 151, 22)
	p.want("the first was right in 70 %, the others in 90 % and 89 %", worthEvery, 0.7/0.9, 1, 0.89/0.9)
	p.label(0, 100, 0)
	p.want("80 %: less than chance and the least difference, but it was behind", worthEvery, 0.8/0.9, 1, 0.89/0.9)
	p.serves(1, "2")
	p.want("of the new version of the best one nothing is known", worthEvery, 1, 0.9, 0.81)
	p.report(1, api.ModelID{Name: "b", Version: "1"}, 0.99)
	p.want("what the old version reports", worthEvery, 1, 0.9, 0.81)
	p.report(1, api.ModelID{Name: "b", Version: "2"}, 0.99)
	p.want("what the new one reports is as good as fifty labels", worthEvery, 0.8/0.99, 1, 0.89/0.99)
	p.label(1, 100, 90)
	p.want("labels count more than reports", worthEvery, 0.8/0.89, 0.112, 1)
	p.want("labels fade, and the first may show whether it is better now", 5*labelsHalfLife, 1, 0.9, 0.81)
}

// An order that chance could have made stays as it is.
func TestWorthHasHysteresis(t *testing.T) {
	p := prefer(t, 2)
	p.label(0, 100, 12)
	p.label(1, 100, 8)
	p.want("4 % apart, which 100 labels do not tell", 0, 1, 0.99)
	p.label(0, 10_000, 1200)
	p.label(1, 10_000, 800)
	p.want("4 % apart, which 1,000 labels do", worthEvery, 0.88/0.92, 1)
	p.label(0, 2000, 140)
	p.want("the first is better by 1 % again", worthEvery, 0.99, 1)
	p.label(0, 2000, 20)
	p.want("by 4 %", worthEvery, 1, 0.92/0.96444)
}

func TestWorthOfBadModels(t *testing.T) {
	p := prefer(t, 3)
	for i := range 3 {
		p.label(i, 100, 100)
	}
	p.want("all are always wrong", 0, 1, 0.99, 0.99*0.99)
	p.label(2, 1000, 0)
	p.want("but for one", worthEvery, 0.1, 0.099, 1)
}

// TestWorthBeginsWithEarlierLabels: those of before a restart count until they have faded.
func TestWorthBeginsWithEarlierLabels(t *testing.T) {
	p := prefer(t, 2)
	v := api.ModelID{Name: "a", Version: "2"}
	p.of(0, v, &p.counted[0], before{200, 60, p.now}, p.now)
	p.of(1, api.ModelID{Name: "b", Version: "2"}, &p.counted[1], before{100, 10, p.now.Add(-labelsHalfLife / 2)}, p.now)
	p.want("70 % and 90 % before the restart", 0, 0.7/0.9, 1)
	plan := []api.CandidateStatus{{Model: "a@2"}, {Model: "b@2"}}
	if p.show(plan); plan[0].Accuracy == nil || plan[1].Accuracy == nil || math.Abs(*plan[0].Accuracy-0.7) > 1e-9 || math.Abs(*plan[1].Accuracy-0.9) > 1e-9 || plan[0].Labels != 200 || math.Abs(plan[1].Labels-70.7) > 0.1 {
		t.Errorf("the plan shows %+v", plan)
	}
	p.label(0, 300, 0)
	p.want("the first has become better", worthEvery, 0.88/0.9, 1)
	p.want("all labels have faded", 10*labelsHalfLife, 1, 0.9)
	plan = []api.CandidateStatus{{Model: "a@2"}, {Model: "b@2"}}
	if p.show(plan); plan[0].Accuracy != nil {
		t.Errorf("without evidence the plan shows %+v", plan)
	}
}
