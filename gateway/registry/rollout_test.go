package registry

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// arm has the given numbers of judged and wrong answers, and no other data.
func arm(wrong, judged uint64) Arm {
	return Arm{Queries: judged, Feedback: judged, LossSum: float64(wrong), LossSquares: float64(wrong)}
}

func (a Arm) failed(n uint64) Arm { a.Failed = n; return a }
func (a Arm) timed(n uint64, p99 float64) Arm {
	a.Timed, a.P99 = n, p99
	return a
}

func TestJudge(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		why      string
		guard    api.GuardSpec
		old, new Arm
		want     Verdict
		reason   string
	}{
		{"nothing is known", api.GuardSpec{}, Arm{}, Arm{}, Undecided, "judged answers: 0 against 0 of the serving version, 200 needed of each"},
		{"much worse", api.GuardSpec{}, arm(36, 900), arm(78, 250), Retreat, "mean loss 0.312 over 250 answers against 0.04 over 900: +0.272 (at least +0.123), allowed +0.02"},
		{"much worse, before a promotion could be considered", api.GuardSpec{}, arm(36, 900), arm(40, 100), Retreat, "mean loss 0.4 over 100 answers"},
		{"possibly much worse", api.GuardSpec{}, arm(36, 900), arm(6, 30), Undecided, "judged answers: 30 against 900"},
		{"at least ten answers are needed", api.GuardSpec{}, arm(0, 900), arm(9, 9), Undecided, "judged answers: 9 against 900"},
		{"ten answers are enough", api.GuardSpec{}, arm(0, 900), arm(10, 10), Retreat, "mean loss 1 over 10 answers against 0 over 900: +1.000 (at least +0.451), allowed +0.02"},
		{"ten answers against 19 times as many with errors", api.GuardSpec{}, arm(38, 190), arm(10, 10), Retreat, "mean loss 1 over 10 answers against 0.2 over 190"},
		{"ten answers against few", api.GuardSpec{}, arm(2, 10), arm(10, 10), Undecided, "judged answers: 10 against 10"},
		{"worse, possibly within the guard", api.GuardSpec{MaxErrorIncrease: 0.3}, arm(36, 900), arm(78, 250), Undecided, "(at most +0.362), allowed +0.3"},
		{"worse, certainly within the guard", api.GuardSpec{MaxErrorIncrease: 0.3}, arm(3600, 90000), arm(7800, 25000), Advance, "(at most +0.281), allowed +0.3"},
		{"better", api.GuardSpec{}, arm(270, 900), arm(10, 250), Advance, "mean loss 0.04 over 250 answers against 0.3 over 900: -0.260 (at most"},
		{"equal, with few answers", api.GuardSpec{}, arm(90, 900), arm(25, 250), Undecided, "(at most"},
		{"equal, with many answers", api.GuardSpec{}, arm(450, 4500), arm(450, 4500), Advance, "allowed +0.02"},
		{"no errors in 200 of each are not enough", api.GuardSpec{}, arm(0, 200), arm(0, 200), Undecided, "(at most +0.021)"},
		{"200 of each that are all half wrong are not enough", api.GuardSpec{}, Arm{200, 0, 200, 100, 50, 0, 0}, Arm{200, 0, 200, 100, 50, 0, 0}, Undecided, "(at most +0.021)"},
		{"the worked example", api.GuardSpec{}, arm(0, 900), arm(0, 250), Advance, "(at most +0.012)"},
		{"better, with little known about the old version", api.GuardSpec{}, arm(0, 10), arm(0, 500), Undecided, "500 against 10"},

		{"failures without feedback", api.GuardSpec{}, Arm{Queries: 900}, Arm{Queries: 50, Failed: 20}, Retreat, "failure rate 0.4 over 50 queries against 0 over 900"},
		{"failures of too few queries", api.GuardSpec{}, Arm{Queries: 900}, Arm{Queries: 49, Failed: 49}, Undecided, "judged answers"},
		{"better where it answers, but may fail more often", api.GuardSpec{}, arm(270, 900), arm(10, 250).failed(4), Undecided, "failure rate 0.016"},

		{"slow", api.GuardSpec{}, arm(0, 900).timed(2000, 0.010), arm(0, 900).timed(2000, 0.020), Retreat, "p99 20 ms over 2000 answers against 10 ms over 2000, allowed 15 ms"},
		{"slow, with few answers", api.GuardSpec{}, arm(0, 900).timed(2000, 0.010), arm(0, 900).timed(199, 0.200), Advance, "mean loss"},
		{"slow, possibly by chance", api.GuardSpec{}, arm(0, 900).timed(2000, 0.010), arm(0, 900).timed(200, 0.020), Undecided, "which chance may explain"},
		{"slower, within the guard", api.GuardSpec{MaxP99Increase: 2}, arm(0, 900).timed(2000, 0.010), arm(0, 900).timed(2000, 0.029), Advance, "mean loss"},
		{"no percentile", api.GuardSpec{}, arm(0, 900).timed(2000, 0), arm(0, 900).timed(2000, 1), Advance, "mean loss"},
		{"a NaN percentile", api.GuardSpec{}, arm(0, 900).timed(2000, 1), arm(0, 900).timed(2000, nan), Advance, "mean loss"},
		{"infinite percentiles", api.GuardSpec{}, arm(0, 900).timed(2000, inf), arm(0, 900).timed(2000, inf), Advance, "mean loss"},

		{"NaN losses", api.GuardSpec{}, arm(0, 900), Arm{Queries: 900, Feedback: 900, LossSum: nan, LossSquares: nan}, Undecided, "judged answers: 0 against 900"},
		{"infinite losses", api.GuardSpec{}, arm(0, 900), Arm{Queries: 900, Feedback: 900, LossSum: inf, LossSquares: inf}, Undecided, "judged answers: 0 against 900"},
		{"more losses than answers", api.GuardSpec{}, arm(0, 900), Arm{Queries: 900, Feedback: 900, LossSum: 901, LossSquares: 900}, Undecided, "judged answers: 0 against 900"},
		{"squares that contradict their sum", api.GuardSpec{}, arm(0, 900), Arm{Queries: 900, Feedback: 900, LossSum: 450, LossSquares: 0}, Retreat, "+0.500"},
		{"more failures than queries", api.GuardSpec{}, Arm{Queries: 900}, Arm{Queries: 60, Failed: 1e9}, Retreat, "failure rate 1 over 60"},
		{"an invalid guard gets the defaults", api.GuardSpec{MinFeedback: -5, MaxErrorIncrease: nan, MaxP99Increase: -1}, arm(36, 900), arm(78, 250), Retreat, "allowed +0.02"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, reason := Judge(c.guard, c.old, c.new)
			if got != c.want || !strings.Contains(reason, c.reason) {
				t.Errorf("%s: %s; want %s: …%s…", got, reason, c.want, c.reason)
			}
		})
	}
}

// simulate judges two versions that answer alternately, with a look after every ten answers, until the verdict or the
// end.
func simulate(r *rand.Rand, oldWrong, newWrong float64, answers int) (Verdict, int) {
	var old, new Arm
	add := func(a *Arm, wrong float64) {
		a.Queries++
		a.Feedback++
		if r.Float64() < wrong {
			a.LossSum++
			a.LossSquares++
		}
	}
	for n := 1; n <= answers; n++ {
		add(&old, oldWrong)
		add(&new, newWrong)
		if n%10 == 0 {
			if v, _ := Judge(api.GuardSpec{}, old, new); v != Undecided {
				return v, n
			}
		}
	}
	return Undecided, answers
}

// TestJudgeManyLooks: a version as good as the old one is rolled back in fewer than 1 % of roll-outs, despite five
// hundred looks. A clearly worse one is never promoted, and is detected soon.
func TestJudgeManyLooks(t *testing.T) {
	const runs = 200
	for _, wrong := range []float64{0, 0.01, 0.05, 0.1, 0.3, 0.5} {
		verdicts := map[Verdict]int{}
		for seed := range uint64(runs) {
			v, _ := simulate(rand.New(rand.NewPCG(seed, 1)), wrong, wrong, 5000)
			verdicts[v]++
		}
		t.Logf("both wrong in %.2f: %v", wrong, verdicts)
		if verdicts[Retreat] > runs/100 {
			t.Errorf("both wrong in %.2f: %d of %d roll-outs retreated", wrong, verdicts[Retreat], runs)
		}
	}
	for _, c := range []struct {
		old, new float64
		within   int
	}{{0.05, 1, 30}, {0.3, 1, 60}, {0, 0.1, 1000}, {0.05, 0.3, 400}, {0.1, 0.5, 300}, {0.3, 0.6, 1000}} {
		latest, sum := 0, 0
		for seed := range uint64(runs) {
			v, n := simulate(rand.New(rand.NewPCG(seed, 2)), c.old, c.new, 5000)
			if v != Retreat {
				t.Errorf("wrong in %.2f instead of %.2f: %s after %d answers", c.new, c.old, v, n)
			}
			latest, sum = max(latest, n), sum+n
		}
		t.Logf("wrong in %.2f instead of %.2f: detected after %d answers in the mean, %d at most", c.new, c.old, sum/runs, latest)
		if latest > c.within {
			t.Errorf("wrong in %.2f instead of %.2f: detected only after %d answers, expected %d at most", c.new, c.old, latest, c.within)
		}
	}
}

// TestJudgeDoesNotPromoteByLuck: a version that is worse by twice the permitted difference is promoted in fewer than 1
// % of roll-outs.
func TestJudgeDoesNotPromoteByLuck(t *testing.T) {
	const runs = 200
	promoted := 0
	for seed := range uint64(runs) {
		if v, _ := simulate(rand.New(rand.NewPCG(seed, 4)), 0.05, 0.09, 5000); v == Advance {
			promoted++
		}
	}
	if promoted > runs/100 {
		t.Errorf("%d of %d roll-outs promoted", promoted, runs)
	}
}

// TestP99MarginCoversChance: two samples of equal latencies with an exponential tail do not violate the guard.
func TestP99MarginCoversChance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	p99 := func(n int) float64 { // the (0.99·n)th of n sorted samples, by the spacings of exponential order statistics
		sum := 0.0
		for k := n; k > n/100; k-- {
			sum += r.ExpFloat64() / float64(k)
		}
		return sum
	}
	retreats := 0
	for range 2000 {
		a, b := arm(0, 900).timed(200, p99(200)), arm(0, 900).timed(200, p99(200))
		if v, _ := Judge(api.GuardSpec{MaxP99Increase: 0.1}, a, b); v == Retreat {
			retreats++
		}
	}
	if retreats > 20 {
		t.Errorf("%d of 2000 looks at equal latencies retreat", retreats)
	}
}

// TestJudgeProperties: for any counts, the verdict follows a few simple rules, and the reason is one line.
func TestJudgeProperties(t *testing.T) {
	anything := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1000), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1}))
	counts := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1000))
	arms := rapid.Custom(func(t *rapid.T) Arm {
		return Arm{counts.Draw(t, "queries"), counts.Draw(t, "failed"), counts.Draw(t, "feedback"), anything.Draw(t, "sum"), anything.Draw(t, "squares"), anything.Draw(t, "p99"), counts.Draw(t, "timed")}
	})
	rapid.Check(t, func(t *rapid.T) {
		g := api.GuardSpec{MinFeedback: rapid.IntRange(-1, 500).Draw(t, "min"), MaxErrorIncrease: anything.Draw(t, "error"), MaxP99Increase: anything.Draw(t, "latency")}
		old, new := arms.Draw(t, "old"), arms.Draw(t, "new")
		v, reason := Judge(g, old, new)
		need := uint64(withDefaults(g).MinFeedback)
		if v == Advance && (old.Feedback < need || new.Feedback < need) {
			t.Errorf("promoted without feedback: %s", reason)
		}
		if v == Retreat && new.Queries < minQueries && new.Feedback < minJudged && new.Timed < minTimed {
			t.Errorf("retreats without data: %s", reason)
		}
		if reason == "" || strings.Contains(reason, "NaN") || strings.Contains(reason, "\n") {
			t.Errorf("reason %q", reason)
		}
		feedback, queries := counts.Draw(t, "f"), counts.Draw(t, "q")
		c := Cap(g, feedback, queries)
		if !(c >= firstCap && c <= 1) || queries < math.MaxUint64 && feedback < math.MaxUint64 && Cap(g, feedback+1, queries+1) < c {
			t.Errorf("cap %v", c)
		}
	})
}

func TestCap(t *testing.T) {
	for _, c := range []struct {
		guard             api.GuardSpec
		feedback, queries uint64
		want              float64
	}{
		{api.GuardSpec{}, 0, 1e6, 0.05},
		{api.GuardSpec{}, 49, 1e6, 0.05},
		{api.GuardSpec{}, 50, 1e6, 0.1},
		{api.GuardSpec{}, 249, 1e6, 0.8},
		{api.GuardSpec{}, 250, 1e6, 1},
		{api.GuardSpec{}, math.MaxUint64, math.MaxUint64, 1},
		{api.GuardSpec{}, 1e6, 50, 0.1},
		{api.GuardSpec{MinFeedback: 1}, 19, 19, 0.05},
		{api.GuardSpec{MinFeedback: 1}, 20, 20, 0.1},
		{api.GuardSpec{MinFeedback: 4000}, 1000, 1000, 0.1},
	} {
		if got := Cap(c.guard, c.feedback, c.queries); got != c.want {
			t.Errorf("%+v after %d of %d: %v, want %v", c.guard, c.feedback, c.queries, got, c.want)
		}
	}
}
