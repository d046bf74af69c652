package planner

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestStories runs the transcripts in testdata: functions and models are the input, the plan is the output. Every plan
// is also checked against what all plans promise.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{planner: New()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.do(t, d) })
	})
}

type story struct {
	planner   *Planner
	in        Input
	out       Output
	functions []string
	models    []string
}

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		*s = story{planner: New(), in: Input{Now: 1e9, EpochNanos: 10e6}}
	case "model":
		s.model(t, d)
	case "function":
		s.function(t, d)
	case "direct":
		s.direct(t, d)
	case "set":
		s.set(t, d)
	case "plan":
		return s.plan(t, d)
	case "noise":
		return s.noise(t, d)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (s *story) model(t *testing.T, d *datadriven.TestData) {
	m := Model{Key: uint64(len(s.in.Models) + 1), Device: -1, MaxBatch: 4096}
	s.models = append(s.models, d.CmdArgs[0].Key)
	replicas, r := 1, Replica{Cap: 64, Settled: true, Samples: 1000}
	for _, arg := range d.CmdArgs[1:] {
		val := ""
		if len(arg.Vals) > 0 {
			val = arg.Vals[0]
		}
		switch arg.Key {
		case "replicas":
			replicas = int(number64(t, val))
		case "a":
			r.InterceptNanos = nanosOf(t, val)
		case "s":
			r.SlopeNanos = nanosOf(t, val)
		case "cap":
			r.Cap = int(number64(t, val))
		case "max":
			m.MaxBatch = int(number64(t, val))
		case "samples":
			r.Samples = uint64(number64(t, val))
		case "growing":
			r.Settled = false
		case "cost":
			m.Cost = number64(t, val)
		case "hold":
			m.HoldNanos = int64(nanosOf(t, val))
		case "bytes":
			m.InputBytes = int64(number64(t, val))
		case "pinned":
			m.Pinned = true
		case "device":
			m.Device = s.device(val)
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
		}
	}
	for i := range replicas {
		r.ID = scheduler.ReplicaID(i + 1)
		m.Replicas = append(m.Replicas, r)
	}
	s.in.Models = append(s.in.Models, m)
}

func (s *story) device(name string) int32 {
	for i := range s.in.Devices {
		if s.in.Devices[i].Name == name {
			return int32(i)
		}
	}
	s.in.Devices = append(s.in.Devices, Device{Name: name})
	return int32(len(s.in.Devices) - 1)
}

func (s *story) function(t *testing.T, d *datadriven.TestData) {
	f := Function{Key: uint64(len(s.in.Functions) + 1), SLONanos: 100e6}
	s.functions = append(s.functions, d.CmdArgs[0].Key)
	for _, arg := range d.CmdArgs[1:] {
		if arg.Key == "of" {
			continue
		}
		f.set(t, d, arg.Key, arg.Vals)
	}
	for _, arg := range d.CmdArgs[1:] {
		if arg.Key != "of" {
			continue
		}
		for _, val := range arg.Vals {
			name, gain, _ := strings.Cut(val, ":")
			gain, share, wished := strings.Cut(gain, "/")
			f.attach(&s.in, len(s.in.Functions), s.find(t, d, s.models, name), number64(t, gain))
			if wished {
				f.Candidates[len(f.Candidates)-1].Share = number64(t, share)
			}
		}
	}
	s.in.Functions = append(s.in.Functions, f)
}

func (f *Function) set(t *testing.T, d *datadriven.TestData, key string, vals []string) {
	switch key {
	case "rate":
		f.Rate = number64(t, vals[0])
	case "weight":
		f.Weight = number64(t, vals[0])
	case "budget":
		f.Budget = number64(t, vals[0])
	case "slo":
		f.SLONanos = int64(nanosOf(t, vals[0]))
	case "all":
		f.Mode = All
	case "shares":
		f.Mode = Shares
	case "background":
		f.Background = true
	default:
		t.Fatalf("%s: unknown argument %s", d.Pos, key)
	}
}

func (s *story) direct(t *testing.T, d *datadriven.TestData) {
	q := Queue{Function: -1}
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "rate":
			q.Rate = number64(t, arg.Vals[0])
		case "weight":
			q.Weight = number64(t, arg.Vals[0])
		case "slo":
			q.SLONanos = int64(nanosOf(t, arg.Vals[0]))
		}
	}
	m := &s.in.Models[s.find(t, d, s.models, d.CmdArgs[0].Key)]
	m.Queues = append(m.Queues, q)
}

// set changes a function (its rate also at the models' sub-queues), or a model's profile or queue.
func (s *story) set(t *testing.T, d *datadriven.TestData) {
	name := d.CmdArgs[0].Key
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "queued":
			s.in.Models[s.find(t, d, s.models, name)].Queues[0].Queued = int(number64(t, arg.Vals[0]))
		case "a", "s":
			m := &s.in.Models[s.find(t, d, s.models, name)]
			for i := range m.Replicas {
				if arg.Key == "a" {
					m.Replicas[i].InterceptNanos = nanosOf(t, arg.Vals[0])
				} else {
					m.Replicas[i].SlopeNanos = nanosOf(t, arg.Vals[0])
				}
			}
		case "direct":
			for _, m := range s.in.Models[s.find(t, d, s.models, name):][:1] {
				for q := range m.Queues {
					if m.Queues[q].Function < 0 {
						m.Queues[q].Rate = number64(t, arg.Vals[0])
					}
				}
			}
		default:
			i := s.find(t, d, s.functions, name)
			f := &s.in.Functions[i]
			f.set(t, d, arg.Key, arg.Vals)
			for m := range s.in.Models {
				for q := range s.in.Models[m].Queues {
					if iq := &s.in.Models[m].Queues[q]; iq.Function == int32(i) {
						iq.Rate, iq.SLONanos, iq.Weight = f.Rate, f.SLONanos, f.Weight
					}
				}
			}
		}
	}
}

func (s *story) find(t *testing.T, d *datadriven.TestData, names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	t.Fatalf("%s: %s is not declared", d.Pos, name)
	return 0
}

// plan makes the given number of plans, an epoch apart, and shows the last.
func (s *story) plan(t *testing.T, d *datadriven.TestData) string {
	times := 1
	d.MaybeScanArgs(t, "times", &times)
	for range times {
		s.in.Now += 10e6
		s.planner.Plan(&s.in, &s.out)
		checkNumbers(t, &s.in, &s.out)
		checkBounds(t, &s.in, &s.out)
		checkConservation(t, &s.in, &s.out)
	}
	var b strings.Builder
	for i := range s.in.Functions {
		s.showFunction(&b, i)
	}
	for i := range s.in.Models {
		s.showModel(&b, i)
	}
	for i := range s.out.Devices {
		p := &s.out.Devices[i]
		fmt.Fprintf(&b, "device %s: %s busy;", s.in.Devices[i].Name, percent(p.Busy))
		for _, turn := range p.Turns {
			fmt.Fprintf(&b, " %s %v", s.models[turn.Model], round(turn.Nanos))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *story) showFunction(b *strings.Builder, i int) {
	f, p := &s.in.Functions[i], &s.out.Functions[i]
	fmt.Fprintf(b, "%s:", s.functions[i])
	for c, part := range p.Evaluate {
		sep := ""
		if c > 0 {
			sep = ";"
		}
		name := "none"
		if m := f.Candidates[c].Model; m >= 0 && int(m) < len(s.models) {
			name = s.models[m]
		}
		fmt.Fprintf(b, "%s %s %s (%v)", sep, name, percent(part), p.Why[c])
	}
	if p.Refused > 0 {
		fmt.Fprintf(b, "; refused %s (%v)", percent(p.Refused), p.RefusedWhy)
	}
	for c, limit := range p.Limits {
		if c == 0 {
			b.WriteString("; limits")
		}
		fmt.Fprintf(b, " %.3g", limit)
	}
	if p.CostPerSecond > 0 {
		fmt.Fprintf(b, "; costs %.4g/s", p.CostPerSecond)
	}
	b.WriteByte('\n')
}

func (s *story) showModel(b *strings.Builder, i int) {
	m, p := &s.in.Models[i], &s.out.Models[i]
	fmt.Fprintf(b, "%s: wished %.4g, planned %.4g", s.models[i], p.Demand, p.Planned)
	if p.Known {
		fmt.Fprintf(b, " of %.4g/s", p.Capacity)
	}
	fmt.Fprintf(b, "; %v (%v)", p.Plan.Execution, p.ExecutionWhy)
	if m.HoldNanos > 0 {
		fmt.Fprintf(b, "; hold (%v)", p.HoldWhy)
	}
	if p.CapWhy != NoBound {
		fmt.Fprintf(b, "; caps (%v)", p.CapWhy)
	}
	b.WriteByte('\n')
	for q, f := range p.Plan.Functions {
		if f.Weight > 0 {
			fmt.Fprintf(b, "  weight %s %.3g\n", s.queue(m, q), f.Weight)
		}
		if f.Shed > 0 {
			fmt.Fprintf(b, "  shed %s %s\n", s.queue(m, q), percent(f.Shed))
		}
	}
	for _, r := range p.Plan.Replicas {
		fmt.Fprintf(b, "  replica %d:", r.ID)
		if r.Cap > 0 {
			fmt.Fprintf(b, " cap %d", r.Cap)
		}
		switch {
		case r.HoldNanos < 0:
			b.WriteString(" no hold")
		case r.HoldNanos > 0:
			fmt.Fprintf(b, " hold %v", round(r.HoldNanos))
		}
		for q, share := range r.Shares {
			fmt.Fprintf(b, " %s=%.3g", s.queue(m, q), share)
		}
		b.WriteByte('\n')
	}
}

func (s *story) queue(m *Model, q int) string {
	if f := m.Queues[q].Function; f >= 0 {
		return s.functions[f]
	}
	return "direct"
}

// noise makes plans while all rates and profiles vary at random, each by up to 10 %. It shows how often each discrete
// choice changed.
func (s *story) noise(t *testing.T, d *datadriven.TestData) string {
	by, times := 0.1, 1000
	d.MaybeScanArgs(t, "times", &times)
	rng := rand.New(rand.NewPCG(1, 2))
	vary := func(v float64) float64 { return v * (1 + by*(2*rng.Float64()-1)) }
	changes := map[string]int{}
	before := map[string]string{}
	base := s.in
	for n := range times {
		s.in.Now += 10e6
		noisy := s.in
		noisy.Functions, noisy.Models = nil, nil
		for _, f := range base.Functions {
			f.Rate = vary(f.Rate)
			noisy.Functions = append(noisy.Functions, f)
		}
		for _, m := range base.Models {
			m.Replicas = append([]Replica(nil), m.Replicas...)
			m.Queues = append([]Queue(nil), m.Queues...)
			a, sl := vary(1), vary(1)
			for r := range m.Replicas {
				m.Replicas[r].InterceptNanos *= a
				m.Replicas[r].SlopeNanos *= sl
			}
			for q := range m.Queues {
				m.Queues[q].Rate = vary(m.Queues[q].Rate)
			}
			noisy.Models = append(noisy.Models, m)
		}
		s.planner.Plan(&noisy, &s.out)
		look := func(what, now string) {
			if n > 0 && before[what] != now {
				changes[what]++
			}
			before[what] = now
		}
		for i := range s.out.Functions {
			look("refusing", fmt.Sprint(before["refusing"][:0], s.out.Functions[i].Refused > 0))
		}
		for i := range s.out.Models {
			p := &s.out.Models[i]
			look(s.models[i]+" execution", p.Plan.Execution.String())
			look(s.models[i]+" hold", p.HoldWhy.String())
			look(s.models[i]+" tight replicas", fmt.Sprint(p.Tight))
			shed := ""
			for _, f := range p.Plan.Functions {
				shed += fmt.Sprint(f.Shed > 0)
			}
			look(s.models[i]+" shedding", shed)
			caps := ""
			for _, r := range p.Plan.Replicas {
				caps += fmt.Sprint(" ", r.Cap)
			}
			look(s.models[i]+" caps", caps)
		}
	}
	var b strings.Builder
	for _, name := range s.models {
		for _, what := range []string{"execution", "hold", "tight replicas", "shedding", "caps"} {
			if n := changes[name+" "+what]; n > 0 {
				fmt.Fprintf(&b, "%s: %s changed %d times in %d plans\n", name, what, n, times)
			}
		}
	}
	if n := changes["refusing"]; n > 0 {
		fmt.Fprintf(&b, "refusing changed %d times in %d plans\n", n, times)
	}
	if b.Len() == 0 {
		return "steady"
	}
	return b.String()
}

func percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 4, 64) + "%" }

func round(nanos int64) time.Duration { return time.Duration(nanos).Round(time.Microsecond) }

func number64(t *testing.T, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func nanosOf(t *testing.T, s string) float64 {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return float64(d)
}
