package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/xebec-serving/xebec/api"
)

// TestStories runs the transcripts in testdata: nodes and models are the input, the placement is the output. Memory is
// in GiB, CPU in cores. Planned replicas run in the next plan. Every plan is checked against what all plans promise,
// and planned again on itself.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.do(t, d) })
	})
}

type story struct {
	planner       *Planner
	in            Input
	out           Output
	nodes, models []string
}

func newStory() *story { return &story{planner: New(), in: Input{Now: 1e12}} }

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		*s = *newStory()
	case "node":
		n := Node{Key: uint64(len(s.nodes) + 1)}
		for _, arg := range d.CmdArgs[1:] {
			resource(t, d, &n.Budget, arg)
		}
		s.in.Nodes, s.nodes = append(s.in.Nodes, n), append(s.nodes, d.CmdArgs[0].Key)
	case "model":
		s.models = append(s.models, d.CmdArgs[0].Key)
		s.in.Models = append(s.in.Models, Model{Key: uint64(len(s.models)), LastUsed: s.in.Now})
		s.set(t, d)
	case "thousand":
		for i := range 1000 {
			s.models = append(s.models, fmt.Sprintf("m%03d", i))
			s.in.Models = append(s.in.Models, Model{Key: uint64(len(s.models)), Takes: Resources{MemoryBytes: 1 << 30}, Wanted: 1, LastUsed: s.in.Now - api.Nanos(10e9+i*1e9)})
		}
	case "set":
		s.set(t, d)
	case "pass":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		s.in.Now += api.Nanos(by)
	case "fits":
		var takes Resources
		for _, arg := range d.CmdArgs {
			resource(t, d, &takes, arg)
		}
		ok, lacks := Fits(takes, s.in.Nodes)
		return strings.TrimSpace(fmt.Sprintln(ok, lacks))
	case "plan":
		return s.plan(t, d)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (s *story) set(t *testing.T, d *datadriven.TestData) {
	var m *Model
	for i, name := range s.models {
		if name == d.CmdArgs[0].Key {
			m = &s.in.Models[i]
		}
	}
	if m == nil {
		t.Fatalf("%s: there is no model %s", d.Pos, d.CmdArgs[0].Key)
	}
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "wanted":
			arg.Scan(t, 0, &m.Wanted)
		case "min":
			arg.Scan(t, 0, &m.Min)
		case "weight":
			arg.Scan(t, 0, &m.Weight)
		case "rate":
			arg.Scan(t, 0, &m.Rate)
		case "waiting":
			arg.Scan(t, 0, &m.Waiting)
			m.LastUsed = s.in.Now
		case "used":
			m.LastUsed = s.in.Now
		case "unused":
			var by time.Duration
			arg.Scan(t, 0, &by)
			m.LastUsed = s.in.Now - api.Nanos(by)
		case "fixed":
			m.Fixed = true
		case "free":
			m.Fixed = false
		case "runs":
			d.ScanArgs(t, "runs", &m.Placed)
		default:
			resource(t, d, &m.Takes, arg)
		}
	}
}

func resource(t *testing.T, d *datadriven.TestData, r *Resources, arg datadriven.CmdArg) {
	var v float64
	arg.Scan(t, 0, &v)
	switch arg.Key {
	case "cpu":
		r.CPUMillis = int64(v * 1000)
	case "memory":
		r.MemoryBytes = int64(v * (1 << 30))
	case "gpus":
		r.GPUs = int64(v)
	default:
		t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
	}
}

// plan makes a plan and shows it: with the argument changes only the models that changed, with total only the number of
// models with a replica.
func (s *story) plan(t *testing.T, d *datadriven.TestData) string {
	before := append([]int32(nil), s.out.Granted...)
	s.planner.Plan(&s.in, &s.out)
	if wrong := problem(&s.in, &s.out); wrong != "" {
		t.Fatalf("%s: %s", d.Pos, wrong)
	}
	if after := again(&s.in, &s.out); fmt.Sprint(after.Placed) != fmt.Sprint(s.out.Placed) {
		t.Fatalf("%s: planned again, %v becomes %v", d.Pos, s.out.Placed, after.Placed)
	}
	var b strings.Builder
	if d.HasArg("total") {
		fmt.Fprintf(&b, "%d of %d models have a replica\n", total(s.out.Granted), len(s.models))
	}
	for i, name := range s.models {
		if d.HasArg("total") || d.HasArg("changes") && (i >= len(before) && s.out.Granted[i] == 0 || i < len(before) && before[i] == s.out.Granted[i]) {
			continue
		}
		fmt.Fprintf(&b, "%s: %d of %d", name, s.out.Granted[i], s.in.Models[i].Wanted)
		for j, node := range s.nodes {
			if n := s.out.Placed[i*len(s.nodes)+j]; n > 0 && len(s.nodes) > 1 {
				fmt.Fprintf(&b, ", %d on %s", n, node)
			}
		}
		if s.out.Short[i] != NotShort {
			fmt.Fprintf(&b, " (%v)", s.out.Short[i])
		}
		b.WriteByte('\n')
	}
	for j, node := range s.nodes {
		free, budget := s.out.Free[j], s.in.Nodes[j].Budget
		fmt.Fprintf(&b, "%s has", node)
		if budget.CPUMillis > 0 {
			fmt.Fprintf(&b, " %.4g of %g cores,", float64(free.CPUMillis)/1000, float64(budget.CPUMillis)/1000)
		}
		if budget.GPUs > 0 {
			fmt.Fprintf(&b, " %d of %d GPUs,", free.GPUs, budget.GPUs)
		}
		fmt.Fprintf(&b, " %.4g of %g GiB left\n", float64(free.MemoryBytes)/(1<<30), float64(budget.MemoryBytes)/(1<<30))
	}
	applyPlan(&s.in, &s.out)
	return b.String()
}
