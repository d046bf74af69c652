package learning

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// gateway is a Learning with one function, f, over a store in a file.
type gateway struct {
	*Learning
	t        *testing.T
	spec     api.FunctionSpec
	refusing error
}

func open(t *testing.T, path string, spec api.FunctionSpec) *gateway {
	t.Helper()
	g := &gateway{t: t}
	cfg := Config{
		Log: zap.NewNop(), Refusing: func() error { return g.refusing },
		Spec: func(name string) (*api.FunctionSpec, bool) { return &g.spec, name == g.spec.Name },
	}
	var store state.Store
	if path != "" {
		backend, err := state.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { backend.Close() })
		store, cfg.Notes = backend, backend
	}
	cfg.Table = learned.New(learned.Config{Store: store})
	t.Cleanup(func() { g.close() })
	g.Learning = New(cfg)
	g.declare(spec)
	return g
}

func (g *gateway) close() {
	if err := g.cfg.Table.Close(bg); err != nil {
		g.t.Error(err)
	}
}

func (g *gateway) declare(spec api.FunctionSpec) {
	g.t.Helper()
	p, err := selection.New(spec.Policy.Name, spec.Policy.Params, spec.Models)
	if err != nil {
		g.t.Fatal(err)
	}
	g.spec = spec
	g.cfg.Table.Declare(spec.Name, p, spec.Models)
}

// loss says that candidate i was wrong by this much.
func (g *gateway) loss(context string, i int, loss float64) {
	f := g.cfg.Table.Learning(g.spec.Name)
	n := len(g.spec.Models)
	fb := selection.Feedback{Selected: selection.Set(0).With(i), P: make([]float64, n), Losses: make([]float64, n)}
	for k := range n {
		fb.P[k] = 1
	}
	fb.Losses[i] = loss
	f.Observe([]byte(context), &fb)
}

func (g *gateway) export(which api.LearnedSelection) api.LearnedState {
	g.t.Helper()
	s, err := g.ExportLearned(bg, g.spec.Name, which)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

func spec(policy string, models ...string) api.FunctionSpec {
	return api.FunctionSpec{Name: "f", Policy: api.PolicySpec{Name: policy}, Models: models}
}

var everything = api.LearnedSelection{All: true}

// Every policy that learns comes back as it was, in a function with another name, other parameters and another order of its candidates.
func TestExportAndImport(t *testing.T) {
	for _, policy := range []string{"exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"} {
		t.Run(policy, func(t *testing.T) {
			g := open(t, filepath.Join(t.TempDir(), "a"), spec(policy, "a", "b@1"))
			for i := range 20 {
				g.loss([]string{"", "ann", "\xff"}[i%3], i%2, float64(i%5)/5)
			}
			s := g.export(everything)
			if len(s.States) != 3 || s.States[0].Context != "" || s.States[1].Context != "ann" || s.States[2].ContextBase64 != "/w==" {
				t.Fatalf("the states are %+v", s.States)
			}
			other := spec(policy, "b@1", "a")
			other.Name, other.Policy.Params = "g", map[string]any{}
			h := open(t, filepath.Join(t.TempDir(), "b"), other)
			h.loss("bob", 0, 1)
			if c, err := h.ImportLearned(bg, "g", s, true); err != nil || !c.DryRun || c.States != 3 || len(c.Notes) != 1 || h.export(everything).States[0].Rows[0].Count != 1 {
				t.Errorf("a dry run is answered by %+v, %v", c, err)
			}
			if c, err := h.ImportLearned(bg, "g", s, false); err != nil || c.States != 4 { // and bob's is reset
				t.Errorf("the import is answered by %+v, %v", c, err)
			}
			got := h.export(everything)
			for i, st := range s.States {
				back := got.States[map[int]int{0: 0, 1: 1, 2: 3}[i]]
				if diff := cmp.Diff(st.Rows, []api.LearnedRow{back.Rows[1], back.Rows[0]}); diff != "" {
					t.Errorf("state %d (-exported +imported):\n%s", i, diff)
				}
			}
			g.declare(spec(policy, "b@1", "a"))
			a, b := g.cfg.Table.Learning("f").Report(10), h.cfg.Table.Learning("g").Report(10)
			if diff := cmp.Diff(a.Global, b.Global); diff != "" {
				t.Errorf("what users see (-exported +imported):\n%s", diff)
			}
		})
	}
}

func TestImportsThatDoNotFit(t *testing.T) {
	g := open(t, "", spec("exp3", "a", "b"))
	g.loss("", 0, 0.5)
	good := g.export(api.LearnedSelection{})
	for want, change := range map[string]func(s *api.LearnedState){
		"version 2 of the form: this gateway reads version 1":                                             func(s *api.LearnedState) { s.Version = 2 },
		`learned by the policy "exp4", and function f has "exp3"`:                                         func(s *api.LearnedState) { s.Policy.Name = "exp4" },
		"its candidates are a, c, and those of function f a, b; it lacks b; the function does not have c": func(s *api.LearnedState) { s.Candidates = []string{"a", "c"} },
		"its candidates are a, b, b, and":                                                                 func(s *api.LearnedState) { s.Candidates = []string{"a", "b", "b"} },
		"it has no states":                                                                                func(s *api.LearnedState) { s.States = nil },
		"states[0] has 1 row: expected one for each of 2 candidates":                                      func(s *api.LearnedState) { s.States[0].Rows = s.States[0].Rows[:1] },
		`states[0].rows[1] is of "a": expected b`:                                                         func(s *api.LearnedState) { s.States[0].Rows[1].Candidate = "a" },
		"the row of b has 4 numbers, expected 3":                                                          func(s *api.LearnedState) { s.States[0].Rows[1].Own = []float64{1, 2} },
		"has a negative count":                                                                            func(s *api.LearnedState) { s.States[0].Rows[1].Count = -1 },
		"the global state does not fit: it is given twice":                                                func(s *api.LearnedState) { s.States = append(s.States, s.States[0]) },
		"expected base64":                                                                                 func(s *api.LearnedState) { s.States[0].ContextBase64 = "?" },
		"has a context_base64, too":                                                                       func(s *api.LearnedState) { s.States[0].Context, s.States[0].ContextBase64 = "x", "eA==" },
	} {
		s := good
		s.States = []api.LearnedContext{{Rows: append([]api.LearnedRow(nil), good.States[0].Rows...)}}
		change(&s)
		for _, dryRun := range []bool{true, false} {
			_, err := g.ImportLearned(bg, "f", s, dryRun)
			var failed *api.Error
			if !errors.As(err, &failed) || failed.Code != api.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("dry run %v: got %v\nwant %s", dryRun, err, want)
			}
		}
	}
	if diff := cmp.Diff(good, g.export(api.LearnedSelection{})); diff != "" {
		t.Errorf("something has changed:\n%s", diff)
	}
}

func TestCodes(t *testing.T) {
	g := open(t, "", spec("exp3", "a", "b"))
	code := func(err error) api.Code {
		var failed *api.Error
		if !errors.As(err, &failed) {
			t.Fatalf("got %v, want an error with a code", err)
		}
		return failed.Code
	}
	_, err := g.ExportLearned(bg, "other", everything)
	if code(err) != api.NotFound {
		t.Errorf("an unknown function: %v", err)
	}
	_, err = g.ResetLearned(bg, "f", api.LearnedSelection{Context: "ann"})
	if code(err) != api.NotFound {
		t.Errorf("a context without a state: %v", err)
	}
	g.refusing = api.Errorf(api.Unavailable, "an upgrade is under way")
	if _, err = g.ResetLearned(bg, "f", everything); !errors.Is(err, g.refusing) {
		t.Errorf("while changes are refused: %v", err)
	}
	g.declare(spec("prefer", "a", "b"))
	for _, call := range []func() error{
		func() error { _, err := g.ExportLearned(bg, "f", everything); return err },
		func() error { _, err := g.LearnedHistory(bg, "f"); return err },
		func() error { _, err := g.ImportLearned(bg, "f", api.LearnedState{}, true); return err },
	} {
		if err := call(); code(err) != api.Conflict || !strings.Contains(err.Error(), "prefer, which does not learn") {
			t.Errorf("a policy that does not learn: %v", err)
		}
	}
}

// reasons are the samples of a history, by time and reason.
func (g *gateway) reasons() (all []string) {
	g.t.Helper()
	h, err := g.LearnedHistory(bg, "f")
	if err != nil {
		g.t.Fatal(err)
	}
	for _, s := range h.Samples {
		text := s.Reason
		if s.Reason == api.LearnedHourly || s.Reason == api.LearnedCandidates {
			text = s.Time.Format("15:04 ") + text
		}
		for _, c := range s.Candidates {
			text += fmt.Sprintf(" %s:%v", c.Ref, c.Count)
		}
		all = append(all, text)
	}
	return all
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	g := open(t, path, spec("exp3", "a"))
	at := func(clock string) {
		now, err := time.Parse(time.DateTime, "2026-01-01 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		g.look(bg, now)
	}
	at("09:10:00") // nothing was learned
	g.loss("", 0, 0.5)
	at("09:20:00") // the first look at something
	at("09:59:00")
	at("10:00:30") // nothing more was learned
	g.loss("ann", 0, 0.5)
	at("10:30:00") // the first sample of this hour
	g.loss("ann", 0, 0.5)
	at("10:40:00")
	g.declare(spec("exp3", "a", "b"))
	at("10:50:00")
	for _, call := range []func() error{
		func() error {
			_, err := g.ResetLearned(bg, "f", api.LearnedSelection{Context: "ann", All: true})
			return err
		},
		func() error {
			_, err := g.ExportLearned(bg, "f", api.LearnedSelection{Context: "ann", All: true})
			return err
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "exclude each other") {
			t.Errorf("one context and all: %v", err)
		}
	}
	if _, err := g.ResetLearned(bg, "f", everything); err != nil {
		t.Fatal(err)
	}
	want := []string{"09:20 hour a:1", "10:30 hour a", "10:50 candidates a", "reset a:0 b:0", "now a:0 b:0"}
	got := g.reasons()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("sample %d: got %q, want %q", i, got[i], want[i])
		}
	}
	// A context's own reset is no sample. After a restart the samples are there.
	g.loss("ann", 0, 0.5)
	if _, err := g.ResetLearned(bg, "f", api.LearnedSelection{Context: "ann"}); err != nil {
		t.Fatal(err)
	}
	before := g.reasons()
	g.close()
	if err := g.cfg.Notes.(state.Backend).Close(); err != nil {
		t.Fatal(err)
	}
	g = open(t, path, spec("exp3", "a", "b"))
	g.export(api.LearnedSelection{}) // it has been read
	if diff := cmp.Diff(before, g.reasons()); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	g.cfg.Table.Forget("f")
	g.close() // what is to be deleted is
	if notes, err := g.cfg.Notes.ReadNotes(bg, state.SeriesOf("f")); err != nil || len(notes) > 0 {
		t.Errorf("the history of a deleted function: %d samples, %v", len(notes), err)
	}
}
