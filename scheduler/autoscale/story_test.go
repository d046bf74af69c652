package autoscale

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the transcripts in testdata: the input is what happens to a model, the output a line for each change
// of the number that the scaler asks for. A transcript begins with new. Any command takes settings.
//
// The transcripts cover each scenario of Knative's autoscaler tests: panic.txt (a panic begins and ends), slow.txt (it
// ends during a slow increase), extended.txt (a second rush extends it), limits.txt (up, down), delay.txt, nodata.txt,
// sleep.txt (to zero and back; instead of an activation scale a burst wakes as many replicas as it needs), restart.txt
// (Knative begins with a panic there). Knative's tests of its breaker correspond to the scheduler's transcripts in
// scheduler/testdata: overload in refusal.txt, queueing in bounds.txt, cancelling in cancel.txt, changes of capacity in
// replicas.txt and drain.txt.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch {
			case d.Cmd == "new":
				s = newStory(t, d)
			case s == nil:
				d.Fatalf(t, "a story begins with new")
			}
			return s.do(t, d)
		})
	})
}

type story struct {
	*world
	began    int64
	out      strings.Builder
	panicked bool
	level    float64 // of the rate
	slope    float64 // queries per second, each second
	since    int64
	on, off  int64 // the rate is level for on, then 0 for off
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	var s *story
	switch of := ""; {
	case d.HasArg("of"):
		d.ScanArgs(t, "of", &of)
		if of != "knative" {
			d.Fatalf(t, "%s: expected knative", of)
		}
		s = &story{world: newWorld(new(Knative))}
	default:
		s = &story{world: newWorld(new(Scaler))}
	}
	s.began = int64(s.now)
	s.rate = func() float64 {
		at := int64(s.now) - s.since
		if s.on+s.off > 0 && at%(s.on+s.off) >= s.on {
			return 0
		}
		return max(0, s.level+s.slope*seconds(at))
	}
	s.onDecision = func(d Decision, before int) {
		if d.Replicas != before || d.Panic != s.panicked {
			fmt.Fprintf(&s.out, "%s: %d, %s", s.clock(), d.Replicas, d.Reason)
			if d.Panic != s.panicked {
				fmt.Fprint(&s.out, map[bool]string{true: "; a panic begins", false: "; the panic is over"}[d.Panic])
			}
			fmt.Fprintln(&s.out)
		}
		s.panicked = d.Panic
	}
	return s
}

func (s *story) clock() time.Duration { return time.Duration(int64(s.now) - s.began) }

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	late, before := s.late, s.sample.Arrived
	s.set(t, d)
	switch d.Cmd {
	case "new", "set":
	case "run":
		d2, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.since = int64(s.now)
		s.run(d2)
		s.level += s.slope * d2.Seconds()
		s.slope = 0
		if s.out.Len() == 0 {
			fmt.Fprintf(&s.out, "%d, %s\n", s.last.Replicas, s.last.Reason)
		}
		if late := s.late - late; late > 0 && s.sample.Arrived > before {
			fmt.Fprintf(&s.out, "%.1f%% refused\n", 100*late/float64(s.sample.Arrived-before))
		}
	case "query": // queries arrive now, and the scaler is called at once
		n := 1
		if d.HasArg("n") {
			d.ScanArgs(t, "n", &n)
		}
		s.arriving += float64(n)
		s.step(1e6)
		s.tick()
	case "ask": // the scaler is called at once
		s.tick()
	case "restart": // another scaler takes over
		s.scaler = new(Scaler)
		s.sample.Wanted, s.sample.LastArrival, s.sample.Arrived, s.sample.Refused = 0, 0, 0, 0
	case "crash":
		var n int
		d.ScanArgs(t, "n", &n)
		s.sample.Ready -= n
		s.want(s.sample.Wanted)
	case "look":
		fmt.Fprintf(&s.out, "%d, %s, rate %.4g/s, %.4g/s each\n", s.last.Replicas, s.last.Reason, s.last.Rate, s.last.Capacity)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return s.out.String()
}

func (s *story) set(t *testing.T, d *datadriven.TestData) {
	number := func(v string) float64 {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return x
	}
	nanos := func(v string) int64 {
		x, err := time.ParseDuration(v)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return int64(x)
	}
	in, cfg := &s.sample, &s.sample.Config
	for _, a := range d.CmdArgs {
		v := ""
		if len(a.Vals) > 0 {
			v = a.Vals[0]
		}
		switch a.Key {
		case "min":
			cfg.Min = int(number(v))
		case "max":
			cfg.Max = int(number(v))
		case "idle":
			cfg.IdleNanos = nanos(v)
		case "window":
			cfg.WindowNanos = nanos(v)
		case "delay":
			cfg.DelayNanos = nanos(v)
		case "utilization":
			cfg.Utilization = number(v)
		case "up":
			cfg.Up = number(v)
		case "down":
			cfg.Down = number(v)
		case "ready":
			in.Ready, in.Wanted = int(number(v)), int(number(v))
		case "slo":
			in.SLONanos = nanos(v)
		case "start":
			s.startNanos = nanos(v)
			in.StartNanos = s.startNanos
		case "lasts":
			s.lasts, in.Streams = nanos(v), true
		case "places":
			in.Concurrency = int(number(v))
		case "known":
			in.Known = v == "yes"
		case "fixed":
			in.InterceptNanos = float64(nanos(v))
		case "each":
			in.SlopeNanos = float64(nanos(v))
		case "cap":
			in.Cap = int(number(v))
		case "serves": // what a replica really does
			s.each = number(v)
		case "expect":
			in.ExpectedRate = number(v)
		case "data":
			in.Unknown = v == "no"
		case "tick":
			s.tickNanos = nanos(v)
		case "rate":
			s.level = number(v)
		case "to": // a slope: the rate at the end
			length := nanos(d.CmdArgs[0].Key)
			s.slope = (number(v) - s.level) / seconds(length)
		case "on":
			s.on = nanos(v)
		case "off":
			s.off = nanos(v)
		case "chance":
			s.rng = rand.New(rand.NewPCG(uint64(number(v)), 1))
		case "of", "n":
		default:
			if d.Cmd != "run" {
				d.Fatalf(t, "unknown setting %s", a.Key)
			}
		}
	}
}
