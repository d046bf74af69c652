package autoscale

import "testing"

// TestKnative runs the scenarios that Knative tests its own autoscaler with. One replica is planned with a concurrency
// of ten.
func TestKnative(t *testing.T) {
	type phase struct {
		seconds, concurrency int
		ready                int // -1: what was asked for
		want                 int
		panic                bool
	}
	for _, c := range []struct {
		name  string
		ready int
		delay int64
		do    []phase
	}{
		{"a panic begins at twice the ready replicas, and holds the most of it for a minute", 1, 0, []phase{
			{70, 100, -1, 10, false},
			{7, 1000, 10, 100, true}, // the mean of 6 s says 100, that of a minute 18
			{30, 100, -1, 100, true},
			{20, 100, -1, 100, true},
			{20, 100, -1, 10, false}, // then all at once, by half each tick of two seconds
		}},
		{"less than twice is no panic: the mean of a minute is followed", 10, 0, []phase{
			{70, 100, -1, 10, false}, // more than one were ready: it began with a panic, which ends after a minute
			{30, 150, -1, 13, false},
			{40, 150, -1, 15, false},
		}},
		{"up by a factor of 1,000 each tick, down by half", 1, 0, []phase{
			{3, 100000, 1, 1000, true},
			{70, 100000, -1, 10000, false},
		}},
		{"restarted with more than one, it begins in a panic and removes nothing", 10, 0, []phase{
			{50, 0, -1, 10, true},
			{15, 0, -1, 2, false},
		}},
		{"no queries for a minute and a grace of 30 s: zero", 1, 0, []phase{
			{10, 10, -1, 1, false},
			{60, 0, -1, 1, false},
			{25, 0, -1, 1, false},
			{10, 0, -1, 0, false},
			{1, 1, -1, 1, false}, // and one at once, when a query arrives
		}},
		{"a delay holds the most that was desired", 1, 300e9, []phase{
			{70, 100, -1, 10, false},
			{290, 10, -1, 10, false},
			{80, 10, -1, 5, false}, // the interim need was half of what was ready: the delay applies to each step
			{900, 10, -1, 1, false},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &Knative{Target: 10, DelayNanos: c.delay}
			in := newWorld(k).sample
			in.Config.Max = 1 << 20
			in.Ready, in.Wanted = c.ready, c.ready
			for i, p := range c.do {
				var d Decision
				in.InFlight = p.concurrency
				for range p.seconds {
					in.Now += 1e9
					in.Ready = in.Wanted
					if p.ready >= 0 {
						in.Ready = p.ready
					}
					d = k.Decide(&in)
					in.Wanted = d.Replicas
				}
				if d.Replicas != p.want || d.Panic != p.panic {
					t.Errorf("phase %d: %+v, expected %d, panic %v", i, d, p.want, p.panic)
				}
			}
		})
	}
}

// TestKnativeTarget checks the target of 70 % of two batches of 20, the batch that an objective of 100 ms allows at 1
// ms a query and a cap of 20, and that nothing is done without a profile.
func TestKnativeTarget(t *testing.T) {
	var k Knative
	in := newWorld(&k).sample
	in.Known = false
	in.Wanted, in.Ready, in.InFlight, in.Now = 3, 3, 100, 1e9
	if d := k.Decide(&in); d.Replicas != 3 {
		t.Errorf("%+v, expected 3 replicas: there is no profile", d)
	}
	in.Known, in.Now = true, 2e9
	if d := k.Decide(&in); d.Capacity != 28 {
		t.Errorf("a target of %v, expected 28", d.Capacity)
	}
	in.Unknown = true
	if d := k.Decide(&in); d.Replicas != 3 || d.Reason != NoData {
		t.Errorf("%+v, expected 3 replicas and NoData", d)
	}
}
