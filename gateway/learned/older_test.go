package learned

import (
	"math"
	"strconv"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// TestOlderState: a state in the store may be from before exp4 had a slot for the plain vote. Its rows are read, the vote
// takes no part yet, and the next update writes the whole rows.
func TestOlderState(t *testing.T) {
	refs := []string{"a@1", "b@1"}
	p, err := selection.New("exp4", nil, refs)
	if err != nil {
		t.Fatal(err)
	}
	l := newLayout(p, refs)
	var totals []state.Total
	for i, ref := range refs {
		for slot, value := range []float64{100, 10 * float64(i+1), -50 - math.Log(float64(i+1))} {
			totals = append(totals, state.Total{Name: ref + "/" + strconv.Itoa(slot), Value: value})
		}
	}
	v := make([]float64, l.width())
	p.Init(l.state(v))
	for i := range refs { // a context begins with what the function knows of the vote by now, which does not belong to the stored rows
		l.state(v).Row(i)[p.Slots()-1] = 5
	}
	if found, complete := l.takeFirst(v, totals); !found || complete {
		t.Errorf("found %v, complete %v: expected a state that lacks numbers", found, complete)
	}
	weights := make([]float64, 2)
	selection.CandidateWeights(p, l.state(v), weights)
	if math.Abs(weights[0]-2.0/3) > 1e-9 || math.Abs(weights[1]-1.0/3) > 1e-9 { // 1 and 1/2
		t.Errorf("weights %v of %v", weights, v)
	}
	led := ledger{total: v, inFlight: make([]float64, len(v))}
	if fields := l.update(led, true); len(fields) != l.width() {
		t.Errorf("an update of all rows has %d numbers, expected %d", len(fields), l.width())
	}
}
