package autoscale

import (
	"math"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// extreme draws values that are hard on arithmetic as often as normal ones.
func extreme(low, high float64) *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(low, high),
		rapid.SampledFrom([]float64{0, -1, 1e-300, 1e300, math.MaxFloat64, math.NaN(), math.Inf(1), math.Inf(-1)}),
	)
}

func extremeInt(low, high int) *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(low, high), rapid.SampledFrom([]int{0, -1, math.MinInt, math.MaxInt, math.MaxInt32}))
}

func extremeNanos(high int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, high), rapid.SampledFrom([]int64{0, -1, math.MinInt64, math.MaxInt64}))
}

func randomConfig(t *rapid.T) Config {
	return Config{
		Min: extremeInt(0, 20).Draw(t, "min"), Max: extremeInt(0, 200).Draw(t, "max"),
		IdleNanos: extremeNanos(600e9).Draw(t, "idle"), WindowNanos: extremeNanos(120e9).Draw(t, "window"), DelayNanos: extremeNanos(120e9).Draw(t, "delay"),
		Utilization: extreme(0.05, 1).Draw(t, "utilization"), Up: extreme(1, 1000).Draw(t, "up"), Down: extreme(1, 10).Draw(t, "down"),
	}
}

// TestDecisionInvariants checks that for any sample the scaler keeps to the bounds and the limit on growth, removes
// nothing in a panic, and returns only finite numbers. The same samples must lead to the same decisions.
func TestDecisionInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, twin Scaler
		var k Knative
		var in Sample
		in.Config = randomConfig(t)
		begun := false // until then what there is counts as wanted
		for i := range rapid.IntRange(1, 60).Draw(t, "ticks") {
			if rapid.IntRange(0, 20).Draw(t, "new config") == 0 {
				in.Config = randomConfig(t)
			}
			if rapid.IntRange(0, 9).Draw(t, "odd time") == 0 {
				in.Now = api.Nanos(extremeNanos(1<<62).Draw(t, "now"))
			} else if in.Now < math.MaxInt64-1<<40 {
				in.Now += api.Nanos(rapid.Int64Range(0, 10e9).Draw(t, "tick"))
			}
			if rapid.IntRange(0, 9).Draw(t, "odd counters") == 0 {
				in.Arrived, in.Refused = rapid.Uint64().Draw(t, "arrived"), rapid.Uint64().Draw(t, "refused")
			} else {
				in.Arrived += uint64(rapid.IntRange(0, 100000).Draw(t, "came"))
				in.Refused += uint64(rapid.IntRange(0, 1000).Draw(t, "refused now"))
			}
			in.Ready, in.Starting = extremeInt(0, 100).Draw(t, "ready"), extremeInt(0, 100).Draw(t, "starting")
			in.Queued, in.InFlight = extremeInt(0, 1000).Draw(t, "queued"), extremeInt(0, 1000).Draw(t, "in flight")
			in.Unknown, in.Known = rapid.IntRange(0, 9).Draw(t, "unknown") == 0, rapid.Bool().Draw(t, "known")
			in.LastArrival = api.Nanos(extremeNanos(1<<62).Draw(t, "last arrival"))
			in.SLONanos, in.StartNanos = extremeNanos(10e9).Draw(t, "slo"), extremeNanos(100e9).Draw(t, "start")
			in.InterceptNanos, in.SlopeNanos = extreme(0, 1e8).Draw(t, "intercept"), extreme(0, 1e7).Draw(t, "slope")
			in.Cap, in.Concurrency = extremeInt(0, 1000).Draw(t, "cap"), extremeInt(0, 62).Draw(t, "concurrency")
			in.Streams = rapid.IntRange(0, 2).Draw(t, "streams") == 0
			in.ExpectedRate = extreme(0, 1e5).Draw(t, "expected")
			if rapid.IntRange(0, 4).Draw(t, "scaled elsewhere") == 0 {
				in.Wanted = extremeInt(0, 200).Draw(t, "wanted")
			}

			before := in
			d := s.Decide(&in)
			if in != before && !hasNaN(&in) {
				t.Fatalf("tick %d: Decide changed the sample", i)
			}
			if again := twin.Decide(&in); again != d {
				t.Fatalf("tick %d: %+v, another scaler with the same samples: %+v", i, d, again)
			}
			checkDecision(t, &in, d, !begun)
			begun = begun || !in.Unknown
			cfg := in.Config.normalized()
			if n := k.Decide(&in).Replicas; n < cfg.Min || n > cfg.Max {
				t.Fatalf("tick %d: Knative's %d is not within %d and %d", i, n, cfg.Min, cfg.Max)
			}
			in.Wanted = d.Replicas
		}
	})
}

func hasNaN(in *Sample) bool {
	c := in.Config
	return math.IsNaN(in.InterceptNanos + in.SlopeNanos + in.ExpectedRate + c.Utilization + c.Up + c.Down)
}

// checkDecision checks what holds for every decision.
func checkDecision(t *rapid.T, in *Sample, d Decision, first bool) {
	cfg := in.Config.normalized()
	if d.Replicas < cfg.Min || d.Replicas > cfg.Max {
		t.Fatalf("%+v is not within %d and %d", d, cfg.Min, cfg.Max)
	}
	for _, v := range []float64{d.Rate, d.Capacity} {
		if !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("%+v: a number is negative or not finite", d)
		}
	}
	wanted, ready := clamp(in.Wanted, 0, math.MaxInt32), clamp(in.Ready, 0, math.MaxInt32)
	wanted = clamp(wanted, cfg.Min, cfg.Max)
	if d.Panic && d.Replicas < wanted {
		t.Fatalf("%+v: fewer than the %d wanted in a panic", d, wanted)
	}
	if in.Unknown && !first && d.Replicas != wanted {
		t.Fatalf("%+v: %d were wanted and the sample is Unknown", d, wanted)
	}
	if limit := math.Ceil(cfg.Up * float64(max(1, ready))); !first && float64(d.Replicas) > limit && d.Replicas > wanted {
		t.Fatalf("%+v: %d were wanted, and the limit is %g", d, wanted, limit)
	}
	if d.Reason >= reasons {
		t.Fatalf("%+v: an unnamed reason", d)
	}
}

// randomWorld draws a world whose replicas perform as their profile says, with ticks of any length.
func randomWorld(t *rapid.T) *world {
	w := newWorld(new(Scaler))
	in := &w.sample
	in.SLONanos = rapid.Int64Range(50e6, 2e9).Draw(t, "slo")
	in.SlopeNanos = rapid.Float64Range(0.01e6, 1e6).Draw(t, "slope")
	in.InterceptNanos = rapid.Float64Range(0, 0.35*float64(in.SLONanos)).Draw(t, "intercept")
	in.Cap = rapid.IntRange(1, 500).Draw(t, "cap")
	in.Config.Max = 1000
	in.Config.Min = rapid.IntRange(0, 3).Draw(t, "min")
	in.Config.Utilization = rapid.Float64Range(0.4, 0.85).Draw(t, "utilization")
	in.Config.WindowNanos = rapid.Int64Range(20e9, 120e9).Draw(t, "window")
	in.Config.DelayNanos = rapid.Int64Range(0, 120e9).Draw(t, "delay")
	in.Config.Up = rapid.Float64Range(1.5, 1000).Draw(t, "up")
	in.Config.Down = rapid.Float64Range(1.5, 10).Draw(t, "down")
	w.startNanos = rapid.Int64Range(0, 30e9).Draw(t, "start")
	in.StartNanos = w.startNanos
	w.tickNanos = rapid.SampledFrom([]int64{100e6, 250e6, 1e9, 2e9, 5e9}).Draw(t, "tick")
	var c capacity
	cfg := in.Config.normalized()
	c.learn(in, &cfg, 0)
	w.each = c.profiled
	in.Ready = rapid.IntRange(1, 20).Draw(t, "ready")
	in.Wanted = in.Ready
	return w
}

// settle runs for twice as long as anything is remembered.
func (w *world) settle() {
	c := &w.sample.Config
	w.run(time.Duration(2*(c.WindowNanos+c.DelayNanos) + 10*w.startNanos + 120e9))
}

// TestConstantRate checks that a constant rate leads to the number it needs, plus at most the band, and to no change
// after that.
func TestConstantRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		planned := w.each * w.sample.Config.Utilization
		rate := planned * rapid.Float64Range(0.05, 30).Draw(t, "needs")
		w.rate = func() float64 { return rate }
		w.settle()
		settled := w.sample.Wanted
		w.onDecision = func(d Decision, before int) {
			if d.Replicas != before {
				t.Fatalf("at %v: %d, %s, after %d, for %v queries/s of %v each", time.Duration(w.now-worldBegins), d.Replicas, d.Reason, before, rate, w.each)
			}
		}
		w.run(5 * time.Minute)
		cfg := w.sample.Config.normalized()
		needed := w.scaler.(*Scaler).chance.planned(&cfg, rate)
		if by := cfg.planned(rate / w.each); needed < by*0.999 {
			t.Fatalf("%v replicas are needed, fewer than the mean alone needs: %v", needed, by)
		}
		least := max(1, w.sample.Config.Min, replicas(needed*0.999/(1+overdraft)))
		most := max(least, replicas(needed*1.001*(1+w.scaler.(*Scaler).band())+0.02))
		if settled < least || settled > most {
			t.Fatalf("%d, expected %d to %d: %v were needed", settled, least, most, needed)
		}
	})
}

// TestMonotone checks that a higher rate never needs fewer replicas.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := randomWorld(t)
		high := newWorld(new(Scaler))
		high.sample, high.each, high.tickNanos, high.startNanos = low.sample, low.each, low.tickNanos, low.startNanos
		rate := low.each * rapid.Float64Range(0.01, 20).Draw(t, "rate")
		more := rate * rapid.Float64Range(1, 3).Draw(t, "more")
		low.rate = func() float64 { return rate }
		high.rate = func() float64 { return more }
		low.settle()
		high.settle()
		// The lower rate may have kept more replicas only because of the band.
		if a, b := low.sample.Wanted, high.sample.Wanted; a > b && a > replicas(float64(b)*(1+low.scaler.(*Scaler).band())) {
			t.Fatalf("%d replicas for %v queries/s, only %d for %v", a, rate, b, more)
		}
	})
}

// TestAnyLoad checks that under any load no replica is removed in a panic, no more are removed at once than allowed,
// and none is removed while queries wait.
func TestAnyLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		cfg := w.sample.Config.normalized()
		type asked struct {
			at api.Nanos
			n  int
		}
		past := []asked{{w.now, w.sample.Wanted}}
		w.onDecision = func(d Decision, before int) {
			now := w.sample.Now
			if d.Panic && d.Replicas < before {
				t.Fatalf("%+v after %d in a panic", d, before)
			}
			most := 0
			for i, p := range past {
				// The number asked for until it was replaced.
				if i+1 == len(past) || past[i+1].at > now-api.Nanos(cfg.panicNanos()) {
					most = max(most, p.n)
				}
			}
			if d.Replicas < int(float64(most)/cfg.Down) && d.Reason != Sleeping {
				t.Fatalf("%+v, but %d were asked for within the panic window and at least 1/%v must stay", d, most, cfg.Down)
			}
			if d.Replicas == 0 && w.sample.Queued+w.sample.InFlight > 0 {
				t.Fatalf("%+v with %d waiting, %d in flight", d, w.sample.Queued, w.sample.InFlight)
			}
			past = append(past, asked{now, d.Replicas})
		}
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			rate := w.each * rapid.SampledFrom([]float64{0, 0.1, 1, 5, 40}).Draw(t, "rate")
			w.rate = func() float64 { return rate }
			w.run(time.Duration(rapid.Int64Range(1e9, 200e9).Draw(t, "for")))
		}
	})
}
