package loadgen

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustSchedule(t *testing.T, rate float64, arrivals Arrivals, seed uint64, part, parts int) *Schedule {
	t.Helper()
	s, err := NewSchedule(rate, arrivals, seed, part, parts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// At 3 requests a second the gap is not a whole number of nanoseconds. Constant arrivals do not drift within an hour.
func TestConstantDoesNotDrift(t *testing.T) {
	s := mustSchedule(t, 3, Constant, 0, 0, 1)
	const n = 3 * 3600
	for i := range n {
		want := float64(i) * 1e9 / 3
		if got := s.Next(); math.Abs(float64(got)-want) > 2 {
			t.Fatalf("request %d is due at %d, want %.0f", i, got, want)
		}
	}
}

// Four schedules with a quarter of the rate, shifted against each other, are one schedule with the whole rate.
func TestConstantPartsInterleave(t *testing.T) {
	const parts, rate = 4, 1000
	var schedules []*Schedule
	for i := range parts {
		schedules = append(schedules, mustSchedule(t, rate, Constant, 0, i, parts))
	}
	for i := range 400 {
		if got, want := schedules[i%parts].Next(), int64(i)*1e6; got != want {
			t.Fatalf("request %d is due at %d, want %d", i, got, want)
		}
	}
}

// Gaps of a Poisson process have the mean 1/rate and the same standard deviation, and a quarter of it has a quarter of the rate.
func TestPoissonHasTheRate(t *testing.T) {
	for _, parts := range []int{1, 4} {
		const rate, n = 50_000, 200_000
		s := mustSchedule(t, rate, Poisson, 7, 0, parts)
		last, sum, squares := int64(0), 0.0, 0.0
		for range n {
			due := s.Next()
			if due < last {
				t.Fatalf("due times go back: %d after %d", due, last)
			}
			gap := float64(due - last)
			sum, squares, last = sum+gap, squares+gap*gap, due
		}
		want := 1e9 / rate * float64(parts)
		mean := sum / n
		deviation := math.Sqrt(squares/n - mean*mean)
		if math.Abs(mean-want) > 0.01*want || math.Abs(deviation-want) > 0.02*want {
			t.Errorf("%d parts: gaps of %.0f ± %.0f ns, want %.0f ± the same", parts, mean, deviation, want)
		}
	}
}

func TestPoissonIsFixedByItsSeed(t *testing.T) {
	a, b := mustSchedule(t, 100, Poisson, 1, 0, 2), mustSchedule(t, 100, Poisson, 1, 0, 2)
	other, part := mustSchedule(t, 100, Poisson, 2, 0, 2), mustSchedule(t, 100, Poisson, 1, 1, 2)
	for i := range 100 {
		due := a.Next()
		if again := b.Next(); due != again {
			t.Fatalf("request %d: %d, then %d", i, due, again)
		}
		if due == other.Next() || due == part.Next() {
			t.Fatalf("request %d is due at the same time with another seed or in another part", i)
		}
	}
}

func TestScheduleRefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		rate        float64
		arrivals    Arrivals
		part, parts int
	}{{0, Poisson, 0, 1}, {-1, Constant, 0, 1}, {math.NaN(), Constant, 0, 1}, {math.Inf(1), Constant, 0, 1}, {1, "bursty", 0, 1}, {1, Poisson, 1, 1}, {1, Poisson, 0, 0}} {
		if _, err := NewSchedule(c.rate, c.arrivals, 0, c.part, c.parts); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// The backlog is a queue for any order of pushes and pops.
func TestBacklogIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b backlog
		var model []int64
		next := int64(0)
		for _, pushes := range rapid.SliceOfN(rapid.IntRange(-300, 400), 1, 12).Draw(t, "pushes, or pops") {
			for ; pushes > 0; pushes-- {
				if !b.push(next) {
					t.Fatal("full")
				}
				model = append(model, next)
				next++
			}
			for ; pushes < 0 && len(model) > 0; pushes++ {
				if got := b.pop(); got != model[0] {
					t.Fatalf("popped %d, want %d", got, model[0])
				}
				model = model[1:]
			}
			if b.count != len(model) {
				t.Fatalf("holds %d, want %d", b.count, len(model))
			}
		}
	})
}

func TestBacklogIsBounded(t *testing.T) {
	var b backlog
	for i := range maxBacklog {
		if !b.push(int64(i)) {
			t.Fatalf("full at %d", i)
		}
	}
	if b.push(0) {
		t.Fatal("took more than its bound")
	}
	if b.pop() != 0 || !b.push(maxBacklog) || b.count != maxBacklog {
		t.Fatal("a place that became free was not taken")
	}
}
