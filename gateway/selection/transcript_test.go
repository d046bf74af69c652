package selection

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs testdata/*.txt. Commands:
//
//	policy <name> candidates=N [parameter=number …] [weights=(model,part,…)]
//	state                                  print each row
//	set row=I [count=…] [loss=…] [weight=…] [vote=…]
//	select [queries=N] [allowed=(…)] [limits=(…)] [context=N]     which candidates are asked in N queries, with what probability
//	again asked=(…) confidence=X [stated=(…)]           the second call
//	feedback asked=(…) [p=(…)] losses=(…) [vote=X] [times=N]
//	combine selected=(…) [weights…] [width=1 known=(…) values=(…) tolerance=X]    input, one answer a line: candidate class [confidence]
//	shares | gains | weights
//	join row=I | descend
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") || strings.Contains(path, "rapid") || strings.Contains(path, "answers") { // what fuzzing and rapid have found, and recorded answers
			return
		}
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type script struct {
	p Policy
	State
	n int
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "policy":
		return s.policy(d)
	case "set":
		var row int
		d.ScanArgs(t, "row", &row)
		for slot, name := range []string{"count", "loss", "weight", "vote"} {
			if d.HasArg(name) {
				s.Row(row)[slot] = numbers(t, d, name)[0]
			}
		}
		return s.rows()
	case "state":
		return s.rows()
	case "select":
		return s.sample(t, d)
	case "again":
		q := Query{State: s.State, Allowed: All(s.n), Asked: set(t, d, "asked"), Confidence: numbers(t, d, "confidence")[0], Seed: 1}
		if d.HasArg("min_confidence") {
			q.MinConfidence = numbers(t, d, "min_confidence")[0]
		}
		if d.HasArg("stated") {
			q.Stated = set(t, d, "stated")
		}
		var out Selection
		s.p.Select(&q, &out)
		return "ask " + list(out.Ask) + "\n"
	case "feedback":
		return s.feedback(t, d)
	case "combine":
		return s.combine(t, d)
	case "shares", "gains", "weights":
		dst := make([]float64, s.n)
		switch d.Cmd {
		case "shares":
			s.p.Shares(s.State, s.allowed(t, d), dst)
		case "gains":
			s.p.Gains(s.State, dst)
		default:
			CandidateWeights(s.p, s.State, dst)
		}
		return fmt.Sprintf("%.3f\n", dst)
	case "join":
		var row int
		d.ScanArgs(t, "row", &row)
		s.p.Join(s.State, row)
		return s.rows()
	case "descend":
		child := State{Slots: s.Slots, V: make([]float64, len(s.V))}
		s.p.InitContext(s.State, child)
		s.State = child
		return s.rows()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		return ""
	}
}

func (s *script) policy(d *datadriven.TestData) string {
	params := map[string]any{}
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "candidates":
			s.n, _ = strconv.Atoi(a.Vals[0])
		case "weights":
			w := map[string]float64{}
			for i := 0; i+1 < len(a.Vals); i += 2 {
				w[a.Vals[i]], _ = strconv.ParseFloat(a.Vals[i+1], 64)
			}
			params["weights"] = w
		default:
			params[a.Key] = a.Vals[0]
			if x, err := strconv.ParseFloat(a.Vals[0], 64); err == nil {
				params[a.Key] = x
			}
		}
	}
	p, err := New(d.CmdArgs[0].Key, params, refs(s.n))
	if err != nil {
		return err.Error() + "\n"
	}
	s.p, s.State = p, State{Slots: p.Slots(), V: make([]float64, p.Slots()*s.n)}
	p.Init(s.State)
	return fmt.Sprintf("%s asks %s, learns: %v, %d slots a row\n", p.Name(), [...]string{"one", "several"}[p.Mode()], p.Learns(), p.Slots())
}

func (s *script) rows() string {
	var b strings.Builder
	for i := range s.n {
		row := s.Row(i)
		fmt.Fprintf(&b, "%d: count %.3f loss %.3f", i, row[0], row[1])
		if len(row) > 2 {
			fmt.Fprintf(&b, " log-weight %.3f", row[2])
			if s.p.Name() == "exp4" {
				fmt.Fprintf(&b, " vote %+.3f", row[slotVote])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *script) allowed(t *testing.T, d *datadriven.TestData) Set {
	if d.HasArg("allowed") {
		return set(t, d, "allowed")
	}
	return All(s.n)
}

func (s *script) sample(t *testing.T, d *datadriven.TestData) string {
	queries := 1
	d.MaybeScanArgs(t, "queries", &queries)
	q := Query{State: s.State, Allowed: s.allowed(t, d)}
	if d.HasArg("limits") {
		q.Limits = numbers(t, d, "limits")
	}
	if d.HasArg("context") {
		q.HasContext, q.Sticky = true, uint64(numbers(t, d, "context")[0])
	}
	var out Selection
	var asked [MaxCandidates]int
	var p Vector
	none := 0
	r := random(1)
	for range queries {
		q.Seed = r.next()
		s.p.Select(&q, &out)
		for w := out.Ask; w != 0; w &= w - 1 {
			asked[w.First()]++
			p[w.First()] = out.P[w.First()]
		}
		if out.Ask == 0 {
			none++
		}
	}
	var b strings.Builder
	for i := range s.n {
		if asked[i] > 0 {
			fmt.Fprintf(&b, "%d: %d of %d, p %.3f\n", i, asked[i], queries, p[i])
		}
	}
	if none > 0 {
		fmt.Fprintf(&b, "none: %d\n", none)
	}
	return b.String()
}

func (s *script) feedback(t *testing.T, d *datadriven.TestData) string {
	f := Feedback{State: s.State, Selected: set(t, d, "asked"), Losses: numbers(t, d, "losses"), Delta: make([]float64, len(s.V))}
	if d.HasArg("p") {
		f.P = numbers(t, d, "p")
	}
	if d.HasArg("vote") {
		f.Vote, f.VoteKnown = numbers(t, d, "vote")[0], true
	}
	times := 1
	d.MaybeScanArgs(t, "times", &times)
	for range times {
		clear(f.Delta)
		s.p.Observe(&f)
		for i, x := range f.Delta {
			s.V[i] += x
		}
	}
	return s.rows()
}

func (s *script) combine(t *testing.T, d *datadriven.TestData) string {
	c := Combination{State: s.State, Selected: set(t, d, "selected")}
	d.MaybeScanArgs(t, "width", &c.Width)
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if f := strings.Fields(line); len(f) > 1 {
			a := Answer{Confidence: math.NaN()}
			a.Candidate, _ = strconv.Atoi(f[0])
			a.Class = hashOf(f[1])
			if len(f) > 2 {
				a.Confidence, _ = strconv.ParseFloat(f[2], 64)
			}
			c.Answers = append(c.Answers, a)
		}
	}
	if c.Width > 0 {
		c.Known, c.Values = set(t, d, "known"), numbers(t, d, "values")
		c.Out = make([]float64, c.Width)
		if d.HasArg("tolerance") {
			c.Tolerance = numbers(t, d, "tolerance")[0]
		}
	}
	s.p.Combine(&c)
	out := fmt.Sprintf("winner %d, agreed %s, confidence %.3f", c.Winner, list(c.Agreed), c.Confidence)
	if c.Width > 0 {
		out += fmt.Sprintf(", answer %.3f", c.Out)
	}
	return out + "\n"
}

func numbers(t *testing.T, d *datadriven.TestData, key string) []float64 {
	a, ok := d.Arg(key)
	if !ok {
		t.Fatalf("%s: %s is missing", d.Pos, key)
	}
	out := make([]float64, len(a.Vals))
	for i, v := range a.Vals {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatalf("%s: %s: %v", d.Pos, key, err)
		}
		out[i] = x
	}
	return out
}

func set(t *testing.T, d *datadriven.TestData, key string) (s Set) {
	for _, x := range numbers(t, d, key) {
		s = s.With(int(x))
	}
	return s
}

func list(s Set) string {
	if s == 0 {
		return "none"
	}
	var names []string
	for ; s != 0; s &= s - 1 {
		names = append(names, strconv.Itoa(s.First()))
	}
	return strings.Join(names, " ")
}
