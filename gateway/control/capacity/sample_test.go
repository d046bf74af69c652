package capacity

import (
	"fmt"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// A hint that is shorter than the time by which replicas are started ahead counts from that time before it begins to its end, so
// replicas are not taken away just before its queries come.
func TestAShortHintCountsFromItsLeadToItsEnd(t *testing.T) {
	from := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	to := from.Add(15 * time.Second)
	hint := func(rate float64, from, to time.Time) string {
		return fmt.Sprintf("{rate: %g, from: %s, to: %s}", rate, from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	m := newBench(t, 1<<30).join("m", "replicas: {min: 0, max: 2}\nexpect: ["+hint(10, from, to)+", "+hint(40, from.Add(5*time.Second), from.Add(6*time.Second))+"]")
	for at := from.Add(-2 * expectAhead); at.Before(to.Add(expectAhead)); at = at.Add(time.Second) {
		want := 0.0
		switch ahead := from.Sub(at); {
		case ahead <= expectAhead-5*time.Second && ahead > -6*time.Second:
			want = 40 // the larger one is to come, or there
		case ahead <= expectAhead && at.Before(to):
			want = 10
		}
		if got := m.expected(at); got != want {
			t.Fatalf("%v before the hint begins %g queries a second are expected: expected %g", from.Sub(at), got, want)
		}
	}
}

// The counts of a version's queries never fall: not when a function of it is deleted, nor when its functions get new choices.
// Otherwise the scaler would see all earlier queries again as one burst.
func TestCountsNeverFall(t *testing.T) {
	b := newBench(t, 1<<30)
	m := b.join("m", "replicas: {min: 1, max: 50}")
	m.Serve(false)
	m.connect(1)
	f, g := m.lane.AddFunction(1), m.lane.AddFunction(1)
	refusing := driver.NewChoice(planner.One, 1, m.lane)
	m.SetChoices([]*driver.Choice{driver.NewChoice(planner.One, 1, m.lane), refusing})
	for range 20 {
		<-m.submit(f)
		<-m.submit(g)
	}
	refusing.CountRefused(10) // the plan had no place for them
	sample := func() (arrived, refused uint64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		in := b.sample(b.seats[&m.Member])
		return in.Arrived, in.Refused
	}
	arrived, refused := sample()
	if arrived != 50 || refused != 10 {
		t.Fatalf("%d have arrived and %d were refused, expected 50 and 10", arrived, refused)
	}
	m.lane.RemoveFunction(f)
	m.SetChoices([]*driver.Choice{refusing})
	if a, r := sample(); a < arrived || r < refused {
		t.Errorf("after a function was deleted: %d and %d, before %d and %d", a, r, arrived, refused)
	}
	m.SetChoices([]*driver.Choice{driver.NewChoice(planner.One, 2, m.lane)})
	if a, r := sample(); a < arrived || r < refused {
		t.Errorf("with a new choice: %d and %d, before %d and %d", a, r, arrived, refused)
	}
	b.tick()
	if n := m.Asked(); n > 2 {
		t.Errorf("it has %d replicas for %d queries in its life", n, arrived)
	}
}
