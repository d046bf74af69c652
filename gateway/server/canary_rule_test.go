package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// endpoints are the counters of a process of the story.
type endpoints map[string]*obs.Endpoint

// answer counts answers of a function, each with a latency.
func (e endpoints) answer(name string, code api.Code, n int, millis func() float64) {
	if e[name] == nil {
		e[name] = new(obs.Endpoint)
	}
	for range n {
		e[name].Observe(code, 1, api.Nanos(millis()*1e6))
	}
}

func (e endpoints) read() samples {
	s := samples{}
	for name, endpoint := range e {
		s[name] = endpoint.Read().Sample()
	}
	return s
}

// story is a canary of so many looks. In each one both processes answer.
type story struct {
	looks    int
	step     func(look int, old, new endpoints)
	before   func(old endpoints)
	want     string // what the verdict says
	good     bool
	atLook   int // when failures are found; 0: never
	describe string
}

func TestCanaryVerdicts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	exponential := func(mean float64) func() float64 { return func() float64 { return mean * r.ExpFloat64() } }
	always := func(x float64) func() float64 { return func() float64 { return x } }
	even := func(n, m int, old, new func() float64) func(int, endpoints, endpoints) {
		return func(_ int, o, c endpoints) { o.answer("f", api.OK, n, old); c.answer("f", api.OK, m, new) }
	}
	for _, c := range []story{
		{describe: "alike", looks: 20, step: even(2000, 110, exponential(5), exponential(5)), good: true, want: "0 of 2200 answers failed, of the old process 0 of 40000; the 99th percentile is not worse over 19 windows"},
		{describe: "twice as slow", looks: 20, step: even(2000, 110, exponential(10), exponential(20)), want: "worse in 16 of 19 windows"},
		{describe: "five times slower, and within what a scheduler costs", looks: 20, step: even(2000, 110, always(0.5), always(2.5)), good: true, want: "not worse"},
		{describe: "a long pause in one window", looks: 20, step: func(look int, o, n endpoints) {
			millis := always(2)
			if look == 7 {
				millis = always(900)
			}
			o.answer("f", api.OK, 2000, always(2))
			n.answer("f", api.OK, 110, millis)
		}, good: true, want: "not worse"},
		{describe: "slow at first", looks: 8, step: func(look int, o, n endpoints) {
			o.answer("f", api.OK, 2000, always(2))
			n.answer("f", api.OK, 110, always([]float64{400, 2}[min(look, 1)]))
		}, good: true, want: "not worse over 7 windows"},
		{describe: "four windows prove nothing", looks: 5, step: even(2000, 110, always(2), always(50)), good: true, want: "too few answers to compare"},
		{describe: "five do", looks: 6, step: even(2000, 110, always(2), always(50)), want: "worse in 5 of 5 windows, at the median 28"},
		{describe: "too few answers", looks: 3, step: even(300, 10, always(2), always(2)), want: "it has answered 30 requests, and at least 50"},
		{describe: "all answers fail", looks: 3, step: func(_ int, o, n endpoints) {
			o.answer("f", api.OK, 500, always(2))
			n.answer("f", api.ModelError, 25, always(2))
		}, atLook: 2, want: "f: failure rate 1 over 75"},
		{describe: "one of two functions fails", looks: 4, step: func(_ int, o, n endpoints) {
			o.answer("f", api.OK, 900, always(2))
			n.answer("f", api.OK, 900, always(2))
			o.answer("g", api.OK, 300, always(2))
			n.answer("g", api.ReplicaLost, 15, always(2))
		}, atLook: 4, want: "g: failure rate 1 over 60"},
		{describe: "functions with few answers fail together", looks: 3, step: func(_ int, o, n endpoints) {
			for i := range 10 {
				o.answer(fmt.Sprint(i), api.OK, 300, always(2))
				n.answer(fmt.Sprint(i), api.NoReplica, 2, always(2))
			}
		}, atLook: 3, want: "the other functions: failure rate 1 over 60"},
		{describe: "both fail", looks: 6, step: func(_ int, o, n endpoints) {
			for _, e := range []endpoints{o, n} {
				e.answer("f", api.OK, 100, always(2))
				e.answer("f", api.ModelError, 100, always(2))
			}
		}, good: true, want: "600 of 1200 answers failed, of the old process 600 of 1200"},
		{describe: "callers err", looks: 6, step: func(_ int, o, n endpoints) {
			o.answer("f", api.OK, 1000, always(2))
			n.answer("f", api.OK, 20, always(2))
			n.answer("f", api.InvalidArgument, 500, always(2))
			n.answer("f", api.LowConfidence, 500, always(2))
		}, good: true, want: "0 of 120 answers failed"},
		{describe: "one failure of a hundred is no proof", looks: 1, step: func(_ int, o, n endpoints) {
			o.answer("f", api.OK, 2000, always(2))
			n.answer("f", api.OK, 99, always(2))
			n.answer("f", api.Internal, 1, always(2))
		}, good: true, want: "1 of 100 answers failed"},
		{describe: "what the old process did before does not count", looks: 3, before: func(o endpoints) { o.answer("f", api.ModelError, 10_000, always(2)) },
			step: func(_ int, o, n endpoints) {
				o.answer("f", api.OK, 500, always(2))
				n.answer("f", api.ModelError, 25, always(2))
			}, atLook: 2, want: "failure rate 1 over 75"},
	} {
		t.Run(c.describe, func(t *testing.T) {
			old, new := endpoints{}, endpoints{}
			if c.before != nil {
				c.before(old)
			}
			if c.step == nil {
				t.Fatal("no step")
			}
			tr := newTrial(old.read())
			found := 0
			for look := range c.looks {
				c.step(look, old, new)
				tr.look(old.read(), new.read())
				if why := tr.failing(); why != "" && found == 0 {
					found = look + 1
				}
			}
			good, why := tr.verdict()
			if good != c.good || !strings.Contains(why, c.want) || found != c.atLook {
				t.Errorf("good %v, failing at look %d: %s\nwant %v at %d: %s", good, found, why, c.good, c.atLook, c.want)
			}
		})
	}
}

// Of a thousand canaries that are like the old process, noise sends hardly one back: latencies with heavy tails, and a few failures.
func TestNoiseSendsNoCanaryBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	heavy := func() float64 { return 2 * math.Exp(1.2*r.NormFloat64()) }
	back := 0
	const trials = 200
	for range trials {
		old, new := endpoints{}, endpoints{}
		tr := newTrial(samples{})
		bad := false
		for range 12 {
			for _, e := range []struct {
				endpoints
				n int
			}{{old, 1000}, {new, 105}} {
				e.answer("f", api.OK, e.n, heavy)
				for range e.n {
					if r.Float64() < 0.02 {
						e.answer("f", api.DeadlineExceeded, 1, heavy)
					}
				}
			}
			tr.look(old.read(), new.read())
			bad = bad || tr.failing() != ""
		}
		if good, why := tr.verdict(); !good || bad {
			t.Log(why)
			back++
		}
	}
	if back > trials/100 {
		t.Errorf("%d of %d canaries were sent back by chance", back, trials)
	}
}

func TestChance(t *testing.T) {
	for _, c := range []struct {
		n, worse int
		enough   bool
	}{{5, 5, true}, {5, 4, false}, {10, 7, false}, {10, 9, true}, {20, 15, true}, {20, 14, false}, {30, 21, true}} {
		if got := chance(c.n, c.worse); (got <= worseWindows) != c.enough {
			t.Errorf("%d of %d: %g", c.worse, c.n, got)
		}
	}
	if got := chance(5, 0); math.Abs(got-1) > 1e-9 {
		t.Errorf("at least none: %g", got)
	}
}

// Of many endpoints those with most answers are named, and no answer is lost.
func TestNamed(t *testing.T) {
	s := samples{}
	for i := range 10 {
		s[fmt.Sprint(i)] = obs.Sample{Answers: uint64(i), Failed: 1}
	}
	got := s.named(3)
	if len(got) != 4 || got["9"].Answers != 9 || got[others].Answers != 21 || got[others].Failed != 7 {
		t.Errorf("got %+v", got)
	}
}
