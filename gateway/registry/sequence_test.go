package registry

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// rollouts is the number of simulated roll-outs of each kind. More than 100 have their full length; those of the guide were 200.
var rollouts = flag.Int("rollouts", 8, "simulated roll-outs of each kind in TestFalseAlarms")

// reluctant simulates a roll-out of answers judged answers in which the new version gets its cap, and a two-hundredth while it looks worse than
// the old one: what a bandit does to a version that was unlucky at first. It returns the verdict that ends the roll-out if it is a retreat, the
// judged answers of the new version, and those of both.
func reluctant(r *rand.Rand, old, new func() float64, answers int) (Verdict, uint64, int) {
	var a, b Arm
	add := func(arm *Arm, loss float64) {
		arm.Queries++
		arm.Feedback++
		arm.LossSum += loss
		arm.LossSquares += loss * loss
	}
	for n := 1; n <= answers; n++ {
		share := Cap(api.GuardSpec{}, b.Feedback, b.Queries) / 2
		if b.Feedback > 0 && a.Feedback > 0 && b.LossSum/float64(b.Feedback) > a.LossSum/float64(a.Feedback) {
			share = 0.005
		}
		if r.Float64() >= share {
			add(&a, old())
			continue
		}
		add(&b, new())
		if v, _ := Judge(api.GuardSpec{MinFeedback: 1 << 30, MaxErrorIncrease: 1e-9}, a, b); v == Retreat {
			return v, b.Feedback, n
		}
	}
	return Undecided, b.Feedback, answers
}

// TestFalseAlarms: with a guard that permits nothing, equal versions are rolled back in at most one of a hundred roll-outs, with a look after
// each judged answer of the new version, also when the bandit starves that version. A roll-out has 20,000 judged answers, and 100,000 with
// -rollouts above 100.
func TestFalseAlarms(t *testing.T) {
	answers := 100_000
	if *rollouts <= 100 {
		answers = 20_000
	}
	losses := map[string]func(r *rand.Rand) func() float64{
		"one in 20 wrong":   func(r *rand.Rand) func() float64 { return bernoulli(r, 0.05) },
		"one in 2 wrong":    func(r *rand.Rand) func() float64 { return bernoulli(r, 0.5) },
		"19 in 20 wrong":    func(r *rand.Rand) func() float64 { return bernoulli(r, 0.95) },
		"any loss":          func(r *rand.Rand) func() float64 { return r.Float64 },
		"always half wrong": func(*rand.Rand) func() float64 { return func() float64 { return 0.5 } },
	}
	for name, make := range losses {
		alarms := 0
		for seed := range uint64(*rollouts) {
			r := rand.New(rand.NewPCG(seed, 5))
			if v, _, _ := reluctant(r, make(r), make(r), answers); v == Retreat {
				alarms++
			}
		}
		t.Logf("%s: %d false alarms in %d roll-outs of %d judged answers", name, alarms, *rollouts, answers)
		if alarms > *rollouts/100 {
			t.Errorf("%s: %d false alarms in %d roll-outs", name, alarms, *rollouts)
		}
	}
}

// TestStarvedVersionsRetreat: a version that is always wrong retreats after ten judged answers, however few it gets, unless the old version is
// hardly better or hardly known.
func TestStarvedVersionsRetreat(t *testing.T) {
	for _, wrong := range []float64{0, 0.05, 0.2} {
		var most uint64
		sum := 0
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 6))
			v, judged, all := reluctant(r, bernoulli(r, wrong), bernoulli(r, 1), 100_000)
			if v != Retreat {
				t.Fatalf("always wrong instead of in %.2f: %s after %d judged answers", wrong, v, judged)
			}
			most, sum = max(most, judged), sum+all
		}
		t.Logf("always wrong instead of in %.2f: retreat after %d judged answers at most, %d of both versions in the mean", wrong, most, sum/50)
		if most > minJudged {
			t.Errorf("always wrong instead of in %.2f: retreat only after %d judged answers", wrong, most)
		}
	}
}

func bernoulli(r *rand.Rand, wrong float64) func() float64 {
	return func() float64 {
		if r.Float64() < wrong {
			return 1
		}
		return 0
	}
}

// TestInterval: bounds lie around the mean, shrink with observations, widen with certainty, and are mirrored for 1 − x.
func TestInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := float64(rapid.IntRange(0, 1e7).Draw(t, "n"))
		sum := n * rapid.Float64Range(0, 1).Draw(t, "mean")
		alpha := rapid.Float64Range(1e-6, 0.5).Draw(t, "alpha")
		low, high := interval(n, sum, alpha)
		if n == 0 {
			if low != 0 || high != 1 {
				t.Fatalf("without observations: %v to %v", low, high)
			}
			return
		}
		if mean := sum / n; !(0 <= low && low <= mean && mean <= high && high <= 1) {
			t.Fatalf("%v to %v around %v", low, high, mean)
		}
		if l, h := interval(n, sum, alpha/2); l > low || h < high {
			t.Fatalf("%v to %v at %v, %v to %v at half of it", low, high, alpha, l, h)
		}
		if l, h := interval(n, n-sum, alpha); math.Abs(1-h-low) > 1e-6 || math.Abs(1-l-high) > 1e-6 {
			t.Fatalf("%v to %v, mirrored %v to %v", low, high, l, h)
		}
		if l, h := interval(2*n, 2*sum, alpha); l < low-1e-9 || h > high+1e-9 {
			t.Fatalf("%v to %v of %v, %v to %v of twice as many", low, high, n, l, h)
		}
	})
}

// TestIntervalOfOnes compares with the closed form for n ones: the fortune is B(n+½, ½)/π/pⁿ.
func TestIntervalOfOnes(t *testing.T) {
	for n := 1.0; n <= 64; n *= 2 {
		mixed := 1.0 // B(n+½, ½)/π = ∏ (k−½)/k
		for k := 1.0; k <= n; k++ {
			mixed *= (k - 0.5) / k
		}
		want := math.Pow(0.01*mixed, 1/n)
		if low, high := interval(n, n, 0.01); math.Abs(low-want) > 1e-9 || high != 1 {
			t.Errorf("%v ones: %v to %v, expected %v to 1", n, low, high, want)
		}
	}
}
