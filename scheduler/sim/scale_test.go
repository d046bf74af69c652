package sim

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// scalerFunc makes a scaler of a function.
type scalerFunc func(s *autoscale.Sample) int

func (f scalerFunc) Decide(s *autoscale.Sample) autoscale.Decision {
	if s.Unknown {
		return autoscale.Decision{Replicas: s.Wanted}
	}
	return autoscale.Decision{Replicas: f(s)}
}

func scalerOf(f scalerFunc) func() Scaler { return func() Scaler { return f } }

// whileInUse wants one replica as long as the model may not sleep.
func whileInUse(s *autoscale.Sample) int {
	if inUse(s) {
		return 1
	}
	return s.Config.Min
}

// scripted wants these numbers in turn, and then keeps the last one.
func scripted(numbers ...int) func() Scaler {
	return func() Scaler {
		i := -1
		return scalerFunc(func(*autoscale.Sample) int {
			i = min(i+1, len(numbers)-1)
			return numbers[i]
		})
	}
}

// forecast is half a minute of traffic on replicas that take 20 ms for a query and half a second to start. The scaler
// runs every second.
func forecast(scaler func() Scaler, traffic ...Traffic) *Forecast {
	return &Forecast{
		Seed: 1, Duration: 30e9, Traffic: traffic, SLONanos: 100e6, ColdStartNanos: 2e9,
		Scale: ScaleSpec{
			Scaler: scaler, TickNanos: 1e9, Bounds: autoscale.Config{Max: 5, IdleNanos: 2e9}, Replica: ReplicaSpec{FixedNanos: 10e6, EachNanos: 10e6, StartNanos: 500e6},
		},
	}
}

func run(t *testing.T, f *Forecast) *ForecastResult {
	t.Helper()
	r, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSleepAndWake: the first query wakes a model at once and waits for its replica. After the idle time the model
// sleeps, until the next query wakes it again.
func TestSleepAndWake(t *testing.T) {
	times := Traffic{Shape: Recorded, Times: []api.Nanos{1.25e9, 1.9e9, 20e9}}
	r := run(t, forecast(scalerOf(whileInUse), times))
	if r.ColdStarts != 2 || r.Starts != 2 || r.Stops != 2 || r.Changes != 4 || r.Reversals != 3 || r.Peak != 1 {
		t.Errorf("totals %+v", r.ScaleTotals)
	}
	if r.Offered != 3 || r.Missed != 2 || r.P99Nanos != 520e6+2*handNanos {
		t.Errorf("%d of %d missed, P99 %d ns; expected the two that waited for a start to miss", r.Missed, r.Offered, r.P99Nanos)
	}
	// From the order at 1.25 s to the tick at 4 s, and from 20 s to the tick at 22 s; seeing the end of each takes 0.2
	// ms.
	if want := 2.75 + 2 + 2*deathNanos/1e9; math.Abs(r.ReplicaSeconds-want) > 1e-6 {
		t.Errorf("%v replica-seconds, expected %v", r.ReplicaSeconds, want)
	}
	for i, want := range []ForecastPoint{
		{At: 0}, {At: 1e9, Offered: 2, Missed: 1, ScalePoint: ScalePoint{Wanted: 1, Ready: 1}}, {At: 2e9, ScalePoint: ScalePoint{Wanted: 1, Ready: 1}},
	} {
		if r.Points[i] != want {
			t.Errorf("second %d: %+v, expected %+v", i, r.Points[i], want)
		}
	}
	if len(r.Points) != 30 || r.Points[10].Ready != 0 {
		t.Errorf("%d points, the 10th %+v", len(r.Points), r.Points[10])
	}
	if d := r.Decisions[0]; d.At != 1.25e9 || !d.AtOnce || d.From != 0 || d.To != 1 {
		t.Errorf("the first decision is %+v", d)
	}

	noColdStart := forecast(scalerOf(whileInUse), times)
	noColdStart.ColdStartNanos = 0
	if r := run(t, noColdStart); r.Missed != 2 || r.P99Nanos != math.MaxInt64 {
		t.Errorf("without ColdStartNanos %d missed, P99 %d", r.Missed, r.P99Nanos)
	}
}

// TestScalersAreMeasured: the faults of a scaler show in its numbers.
func TestScalersAreMeasured(t *testing.T) {
	steady := Traffic{Shape: Steady, Rate: 150} // needs two replicas, at 80 a second each
	begin := func(initial int, scaler func() Scaler) *ForecastResult {
		f := forecast(scaler, steady)
		f.Scale.Initial = initial
		return run(t, f)
	}
	fair := begin(3, scripted(3))
	for _, test := range []struct {
		name    string
		initial int
		scaler  func() Scaler
		worse   func(r *ForecastResult) bool
	}{
		{"too few", 3, scripted(1), func(r *ForecastResult) bool {
			return r.Missed > 10*fair.Missed && r.ReplicaSeconds < fair.ReplicaSeconds
		}},
		{"too many", 3, scripted(5), func(r *ForecastResult) bool {
			return r.Missed <= fair.Missed && r.ReplicaSeconds > 1.6*fair.ReplicaSeconds
		}},
		{"flapping", 3, func() Scaler {
			n := 3
			return scalerFunc(func(*autoscale.Sample) int { n = 7 - n; return n })
		}, func(r *ForecastResult) bool {
			return r.Changes == 29 && r.Reversals == 28 && fair.Changes == 0 && fair.Reversals == 0
		}},
		{"asleep", 0, scripted(3), func(r *ForecastResult) bool {
			return r.ColdStarts == 1 && fair.ColdStarts == 0 && r.Missed > fair.Missed
		}},
	} {
		if r := begin(test.initial, test.scaler); r.Offered != fair.Offered || !test.worse(r) {
			t.Errorf("%s: %d of %d missed, %+v; the reference: %d of %d, %+v", test.name, r.Missed, r.Offered, r.ScaleTotals, fair.Missed, fair.Offered, fair.ScaleTotals)
		}
	}
}

// TestBrokenScalers: the error names the promise that a scaler breaks.
func TestBrokenScalers(t *testing.T) {
	for _, test := range []struct {
		name, want string
		scaler     Scaler
	}{
		{"beyond its bounds", "wants 6 replicas, of 0 to 5", scalerFunc(func(*autoscale.Sample) int { return 6 })},
		{"negative", "wants -1 replicas", scalerFunc(func(*autoscale.Sample) int { return -1 })},
		{"ignores waiting queries", "wants no replica while 1 queries wait", scalerFunc(func(*autoscale.Sample) int { return 0 })},
		{"sleeps too early", "wants no replica any more", scalerFunc(func(s *autoscale.Sample) int { return min(s.Queued, 1) })},
		{"guessing", "the sample is unknown", guessing{}},
	} {
		f := forecast(func() Scaler { return test.scaler }, Traffic{Shape: Steady, Rate: 20})
		f.Scale.UnknownPart = 0.2
		spec, err := f.spec()
		if err != nil {
			t.Fatal(err)
		}
		spec.Check = true
		if _, err := Run(spec, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: expected the checks to find %q, got: %v", test.name, test.want, err)
		}
	}
}

// guessing ignores that its sample is unknown.
type guessing struct{}

func (guessing) Decide(s *autoscale.Sample) autoscale.Decision {
	return autoscale.Decision{Replicas: 1 + s.Wanted%5}
}

// TestStopOrder: starting replicas go before serving ones, and among equals the youngest goes first.
func TestStopOrder(t *testing.T) {
	for _, test := range []struct {
		name                string
		script              []int
		drained, neverReady []string
		starts, stops       int
	}{
		{"youngest first", []int{3, 3, 2, 1}, []string{"drain r3", "drain r2"}, nil, 3, 2},
		{"a start that is not wanted any more", []int{2, 2, 4, 1}, []string{"drain r2"}, []string{"ready r3", "ready r4"}, 4, 3},
	} {
		f := forecast(scripted(test.script...), Traffic{Shape: Steady, Rate: 20, From: 10e9})
		f.Scale.Bounds.Min, f.Scale.Replica.StartNanos = 1, 1.5e9
		spec, err := f.spec()
		if err != nil {
			t.Fatal(err)
		}
		spec.Check = true
		var log bytes.Buffer
		r, err := Run(spec, &log)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		rest := log.String()
		for _, want := range test.drained {
			_, after, found := strings.Cut(rest, want+"\n")
			if !found {
				t.Errorf("%s: the transcript lacks %q at this place", test.name, want)
			}
			rest = after
		}
		for _, never := range test.neverReady {
			if strings.Contains(log.String(), never) {
				t.Errorf("%s: the transcript has %q", test.name, never)
			}
		}
		if s := &r.Scales[0]; strings.Count(log.String(), "  drain r") != len(test.drained) || s.Starts != test.starts || s.Stops != test.stops {
			t.Errorf("%s: %+v, %d drains", test.name, s.ScaleTotals, strings.Count(log.String(), "  drain r"))
		}
	}
}

// TestDrainLosesNoQueries: replicas that come and go all the time under full load cost hardly any query its answer.
func TestDrainLosesNoQueries(t *testing.T) {
	f := forecast(func() Scaler {
		n := 0
		return scalerFunc(func(*autoscale.Sample) int { n++; return 3 + n%3 })
	}, Traffic{Shape: Steady, Rate: 150})
	f.Scale.Initial, f.Scale.TickNanos = 3, 100e6
	r := run(t, f)
	if part := float64(r.Missed) / float64(r.Offered); part > 0.01 || r.Stops < 100 {
		t.Errorf("%d of %d missed with %d replicas drained", r.Missed, r.Offered, r.Stops)
	}
}

// TestForecastIsDeterministic: two runs are equal, and the offered queries do not depend on the scaler.
func TestForecastIsDeterministic(t *testing.T) {
	f := forecast(scalerOf(whileInUse), Traffic{Shape: Switching, Rate: 1, Peak: 60, Period: 5e9, Duty: 0.3})
	f.Scale.StartSigma, f.Scale.Replica.Sigma = 0.5, 0.2
	first := run(t, f)
	if again := run(t, f); !reflect.DeepEqual(first, again) {
		t.Errorf("two runs differ: %+v, %+v", first.ScaleTotals, again.ScaleTotals)
	}
	other := *f
	other.Scale.Scaler = scripted(4)
	if r := run(t, &other); r.Offered != first.Offered || reflect.DeepEqual(r.Points, first.Points) {
		t.Errorf("another scaler: %d offered, was %d", r.Offered, first.Offered)
	}
	other = *f
	other.Seed = 2
	if r := run(t, &other); reflect.DeepEqual(r.Points, first.Points) {
		t.Error("another seed gives the same run")
	}
}

func TestForecastErrors(t *testing.T) {
	for _, test := range []struct {
		change func(f *Forecast)
		want   string
	}{
		{func(f *Forecast) { f.Duration = 0 }, "expected more than 0 and at most 168h"},
		{func(f *Forecast) { f.Duration = 8 * 24 * 3600e9 }, "expected more than 0 and at most 168h"},
		{func(f *Forecast) { f.SLONanos = 0 }, "a latency objective of 0s"},
		{func(f *Forecast) { f.Traffic[0].Rate = 1e9 }, "at most 50000000 are simulated"},
		{func(f *Forecast) { f.Traffic[0].Rate = math.NaN() }, "traffic 1: rates of NaN"},
		{func(f *Forecast) { f.Traffic[0].Shape = Closed }, "closed-loop clients"},
		{func(f *Forecast) { f.Traffic[0].Shape = Square }, "a period of 0s"},
		{func(f *Forecast) { f.Traffic[0].Shape, f.Traffic[0].Period = Ramp, 1 }, "a duty of 0"},
		{func(f *Forecast) { f.Traffic[0].From = -1 }, "from -1ns"},
		{func(f *Forecast) { f.Scale.Replica = ReplicaSpec{} }, "a batch of n queries takes 0s"},
		{func(f *Forecast) { f.Scale.Scaler = nil }, "without a Scaler"},
		{func(f *Forecast) { f.Scale.Bounds.Max = 0 }, "0 to 0 replicas"},
		{func(f *Forecast) { f.Scale.Bounds.Min = 6 }, "6 to 5 replicas"},
		{func(f *Forecast) { f.Scale.Initial = 6 }, "begins with 6 replicas"},
	} {
		f := forecast(scalerOf(whileInUse), Traffic{Shape: Steady, Rate: 1})
		test.change(f)
		if _, err := f.Run(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("expected an error with %q, got %v", test.want, err)
		}
	}
	s := busyWorld()
	s.Models[0].Scale = &ScaleSpec{Scaler: scalerOf(whileInUse), Bounds: autoscale.Config{Max: 1}}
	if _, err := Run(s, nil); err == nil || !strings.Contains(err.Error(), "2 replicas of its own") {
		t.Errorf("a model with replicas of its own and a scaler: %v", err)
	}
}

// TestTrafficMatchesExpected: sources send the expected number of queries, and a ramp rises and falls as specified.
func TestTrafficMatchesExpected(t *testing.T) {
	const duration = api.Nanos(100e9)
	count := func(tr Traffic, from, until api.Nanos) float64 {
		src := &source{Traffic: tr, rng: stream(1, 1)}
		n := 0.0
		for at := src.after(0); at < duration; at = src.after(at) {
			if at >= from && at < until {
				n++
			}
		}
		return n
	}
	for _, tr := range []Traffic{
		{Shape: Steady, Rate: 100}, {Shape: Steady, Rate: 100, From: 20e9, Until: 60e9},
		{Shape: Square, Rate: 10, Peak: 200, Period: 5e9, Duty: 0.2}, {Shape: Switching, Rate: 10, Peak: 200, Period: 100e6, Duty: 0.2},
		{Shape: Daily, Rate: 10, Peak: 200, Period: 50e9}, {Shape: Ramp, Rate: 10, Peak: 200, Period: 50e9, Duty: 0.7},
	} {
		if got, want := count(tr, 0, duration), tr.expected(duration); math.Abs(got-want) > 0.1*want {
			t.Errorf("%+v: %v queries, expected about %v", tr, got, want)
		}
	}
	ramp := Traffic{Shape: Ramp, Rate: 100, Peak: 300, Period: duration, Duty: 0.8}
	for _, part := range []struct {
		from, until api.Nanos
		want        float64
	}{{0, 20e9, 125}, {60e9, 80e9, 275}, {80e9, 100e9, 200}} {
		if got := count(ramp, part.from, part.until) / 20; math.Abs(got-part.want) > 0.07*part.want {
			t.Errorf("a ramp has %v queries a second from %v on, expected %v", got, span(part.from), part.want)
		}
	}
}
