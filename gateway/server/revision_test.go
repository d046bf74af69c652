package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

const ruleOfM = "kind: Traffic\nname: m\nserving: \"1\""

func at(kind api.Kind, name, version string, revision uint64) api.ObjectRevision {
	return api.ObjectRevision{Kind: kind, Name: name, Version: version, Revision: revision}
}

// staleOf are the objects that are not at the expected revision, according to an error.
func staleOf(t *testing.T, err error) []api.StaleObject {
	t.Helper()
	var stale *api.StaleError
	if code(err) != api.Conflict || !errors.As(err, &stale) {
		t.Fatalf("got %v: expected a conflict about a revision", err)
	}
	return stale.Objects
}

// revisions are those of the model m@1, the function f and the rules of m, as their status shows them.
func revisions(t *testing.T, s *Server) (m, f, traffic uint64) {
	t.Helper()
	ctx := context.Background()
	if all, err := s.Models(ctx, "m"); err == nil {
		m = all[0].Revision
	}
	if all, err := s.Functions(ctx, "f"); err == nil {
		f = all[0].Revision
	}
	if all, err := s.declared.Traffic(ctx, "m"); err == nil {
		traffic = all[0].Revision
	}
	return m, f, traffic
}

// inStores runs a test on gateways without a store, with a file, and with Redis.
func inStores(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Run("none", func(t *testing.T) { test(t, Config{}) })
	t.Run("file", func(t *testing.T) { test(t, Config{DataDir: t.TempDir()}) })
	t.Run("redis", func(t *testing.T) {
		test(t, Config{Store: redistest.Start(t, redistest.Config{AppendOnly: true}).URL()})
	})
}

func TestChangesAtARevision(t *testing.T) {
	inStores(t, func(t *testing.T, cfg Config) {
		s, _, _ := alive(t, cfg)
		asAnn := api.WithCaller(context.Background(), api.Caller{Name: "ann"})
		mustApply(t, s, strings.Replace(model, "name: m", "name: n", 1))
		mustApply(t, s, strings.Replace(version("2"), "name: m", "name: n", 1))
		if _, err := s.Apply(asAnn, decoded(t, model+fn+"---\n"+ruleOfM), false); err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, version("2"), strings.Replace(fn, "20ms", "30ms", 1))
		m, f, traffic := revisions(t, s)
		if m == 0 || m != traffic || f <= m {
			t.Fatalf("the revisions are %d, %d and %d: expected the function's to be the highest", m, f, traffic)
		}
		apply := func(text string) func(seen ...api.ObjectRevision) error {
			return func(seen ...api.ObjectRevision) error {
				_, err := s.Apply(context.Background(), decoded(t, text), false, seen...)
				return err
			}
		}
		scaled := strings.Replace(model, "max: 2", "max: 3", 1)
		for _, c := range []struct {
			name   string
			change func(seen ...api.ObjectRevision) error
			seen   []api.ObjectRevision
			stale  uint64 // what is there instead
			says   string
		}{
			{"older traffic", apply(ruleOfM + "\nlabels: {a: \"1\"}"), []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic-1)}, traffic, "traffic m is at revision %d (created by ann at 20"},
			{"newer traffic", apply(ruleOfM + "\nlabels: {a: \"1\"}"), []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic+9)}, traffic, "traffic m is at revision %d"},
			{"no traffic yet", apply(ruleOfM + "\nlabels: {a: \"1\"}"), []api.ObjectRevision{at(api.KindTraffic, "m", "", 0)}, traffic, "traffic m is declared, at revision %d"},
			{"unchanged, and older", apply(ruleOfM), []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic-1)}, traffic, "traffic m is at revision %d"},
			{"older model", apply(scaled), []api.ObjectRevision{at(api.KindModel, "m", "1", m-1)}, m, "model m@1 is at revision %d (created by ann"},
			{"older function", apply(fn), []api.ObjectRevision{at(api.KindFunction, "f", "", f-1)}, f, "function f is at revision %d (updated at 20"},
			{"function before its last change", apply(fn), []api.ObjectRevision{at(api.KindFunction, "f", "", m)}, f, "function f is at revision %d"},
			{"unknown function", apply(strings.Replace(fn, "name: f", "name: g", 1)), []api.ObjectRevision{at(api.KindFunction, "g", "", 3)}, 0, "function g is not declared, and was expected at revision 3"},
			{"one of two", apply(scaled + "---\n" + ruleOfM + "\nlabels: {a: \"1\"}"), []api.ObjectRevision{at(api.KindModel, "m", "1", m), at(api.KindTraffic, "m", "", traffic-1)}, traffic, "traffic m is at revision %d"},
			{"dry run", func(seen ...api.ObjectRevision) error {
				_, err := s.Apply(context.Background(), decoded(t, scaled), true, seen...)
				return err
			}, []api.ObjectRevision{at(api.KindModel, "m", "1", m-1)}, m, "model m@1 is at revision %d"},
			{"promote", func(seen ...api.ObjectRevision) error {
				_, err := s.declared.Promote(context.Background(), "m", "2", seen...)
				return err
			}, []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic-1)}, traffic, "traffic m is at revision %d"},
			{"rollback", func(seen ...api.ObjectRevision) error {
				_, err := s.declared.Rollback(context.Background(), "m", "1", "", seen...)
				return err
			}, []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic-1)}, traffic, "traffic m is at revision %d"},
			{"delete a function", func(seen ...api.ObjectRevision) error {
				_, err := s.Delete(context.Background(), api.KindFunction, api.ModelID{Name: "f"}, seen...)
				return err
			}, []api.ObjectRevision{at(api.KindFunction, "f", "", m)}, f, "function f is at revision %d"},
		} {
			stale := staleOf(t, c.change(c.seen...))
			if len(stale) != 1 || stale[0].Revision != c.stale {
				t.Errorf("%s: got %+v, want revision %d", c.name, stale, c.stale)
			}
			if strings.Contains(c.says, "%d") {
				c.says = fmt.Sprintf(c.says, c.stale)
			}
			if err := c.change(c.seen...); !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "nothing was changed; read it again") {
				t.Errorf("%s: says %q, want %q in it", c.name, err, c.says)
			}
		}
		if m2, f2, traffic2 := revisions(t, s); m2 != m || f2 != f || traffic2 != traffic {
			t.Errorf("refused changes made the revisions %d, %d and %d", m2, f2, traffic2)
		}

		// Objects at the revision are changed, and so are new objects and changes without a revision.
		for _, c := range []struct {
			name   string
			change func(seen ...api.ObjectRevision) error
			seen   []api.ObjectRevision
		}{
			{"unchanged", apply(ruleOfM), []api.ObjectRevision{at(api.KindTraffic, "m", "", traffic)}},
			{"all at once", apply(scaled + fn + "---\n" + ruleOfM + "\nlabels: {a: \"1\"}"), []api.ObjectRevision{at(api.KindModel, "m", "1", m), at(api.KindFunction, "f", "", f), at(api.KindTraffic, "m", "", traffic)}},
			{"without a revision", apply(ruleOfM), nil},
			{"new", apply(strings.Replace(fn, "name: f", "name: g", 1)), []api.ObjectRevision{at(api.KindFunction, "g", "", 0)}},
		} {
			if err := c.change(c.seen...); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		m2, f2, traffic2 := revisions(t, s)
		if m2 <= m || f2 != m2 || traffic2 <= f2 {
			t.Errorf("after the changes the revisions are %d, %d and %d", m2, f2, traffic2)
		}
		if _, err := s.declared.Promote(asAnn, "m", "2", at(api.KindTraffic, "m", "", traffic2)); err != nil {
			t.Error(err)
		}
		if stale := staleOf(t, apply(ruleOfM)(at(api.KindTraffic, "m", "", traffic2))); stale[0].Action != "promoted" || stale[0].By != "ann" || stale[0].Time.IsZero() {
			t.Errorf("the error after the promotion has %+v", stale)
		}
		// An edit of a deleted object does not bring it back.
		_, _, traffic = revisions(t, s)
		if _, err := s.Delete(asAnn, api.KindTraffic, api.ModelID{Name: "m"}, at(api.KindTraffic, "m", "", traffic)); err != nil {
			t.Fatal(err)
		}
		if stale := staleOf(t, apply(ruleOfM)(at(api.KindTraffic, "m", "", traffic))); stale[0].Action != "deleted" || stale[0].By != "ann" || stale[0].Revision != 0 {
			t.Errorf("the error after the deletion has %+v", stale)
		}
		if _, _, now := revisions(t, s); now != 0 {
			t.Errorf("the rules that were deleted have revision %d", now)
		}
		// Once it is declared again, it is another object.
		mustApply(t, s, ruleOfM)
		staleOf(t, apply(ruleOfM)(at(api.KindTraffic, "m", "", traffic)))
	})
}

// Of N callers that have read the same revision, one makes its change; the others get an error.
func TestOneOfManyAtARevision(t *testing.T) {
	inStores(t, func(t *testing.T, cfg Config) {
		s, _, _ := alive(t, cfg)
		mustApply(t, s, model, ruleOfM)
		for range 5 {
			_, _, revision := revisions(t, s)
			var made, refused atomic.Int32
			atOnce(8, func(i int) {
				_, err := s.Apply(context.Background(), decoded(t, fmt.Sprintf("%s\nlabels: {l%d: \"1\"}", ruleOfM, i+int(revision%1000)*100)), false, at(api.KindTraffic, "m", "", revision))
				var stale *api.StaleError
				switch {
				case err == nil:
					made.Add(1)
				case errors.As(err, &stale):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
			if made.Load() != 1 || refused.Load() != 7 {
				t.Errorf("%d changes were made and %d refused: expected 1 and 7", made.Load(), refused.Load())
			}
		}
	})
}

// Of N callers that try again after a conflict, none loses its change, with a rollback in between.
func TestCallersThatTryAgainLoseNothing(t *testing.T) {
	inStores(t, func(t *testing.T, cfg Config) {
		s, _, _ := alive(t, cfg)
		mustApply(t, s, model, version("2"))
		until(t, "2 serves", serves(s, "2"))
		const writers = 8
		atOnce(writers+1, func(i int) {
			if i == writers {
				if _, err := s.declared.Rollback(context.Background(), "m", "1", ""); err != nil {
					t.Error(err)
				}
				return
			}
			addLabel(t, s, fmt.Sprintf("l%d", i))
		})
		all, err := s.declared.Traffic(context.Background(), "m")
		if err != nil || len(all[0].Spec.Labels) != writers || all[0].Spec.Rollback == nil {
			t.Errorf("of %d labels and a rollback there is %+v (%v)", writers, all, err)
		}
	})
}

// addLabel reads the rules of m, adds a label and declares them, until no other caller was faster. Each conflict means that another
// caller has added its label, so the callers end.
func addLabel(t *testing.T, s *Server, label string) {
	for {
		all, err := s.declared.Traffic(context.Background(), "m")
		if err != nil {
			t.Error(err)
			return
		}
		text := "kind: Traffic\nname: m\nserving: \"1\"\nlabels: {" + label + ": \"1\""
		for l := range all[0].Spec.Labels {
			text += ", " + l + ": \"1\""
		}
		if text += "}\n"; all[0].Spec.Rollback != nil {
			text += "rollback: {from: \"2\", to: \"1\"}\n"
			text = strings.Replace(text, "serving: \"1\"\n", "", 1)
		}
		_, err = s.Apply(context.Background(), decoded(t, text), false, at(api.KindTraffic, "m", "", all[0].Revision))
		var stale *api.StaleError
		if err == nil {
			return
		}
		if !errors.As(err, &stale) {
			t.Error(err)
			return
		}
	}
}

func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() { <-start; do(i) })
	}
	close(start)
	all.Wait()
}

// A revision that was read before a restart stays valid with a store, and does not occur again without one.
func TestRevisionsAfterARestart(t *testing.T) {
	inStores(t, func(t *testing.T, cfg Config) {
		s, _, _, stop := aliveUntil(t, cfg)
		mustApply(t, s, model, fn, ruleOfM)
		m, f, traffic := revisions(t, s)
		kept := s.store != nil
		stop()
		s, _, _ = alive(t, cfg)
		if !kept {
			mustApply(t, s, model, fn, ruleOfM)
		}
		m2, f2, traffic2 := revisions(t, s)
		if kept && (m2 != m || f2 != f || traffic2 != traffic) {
			t.Errorf("the revisions were %d, %d and %d, and are %d, %d and %d", m, f, traffic, m2, f2, traffic2)
		}
		if !kept && (m2 <= traffic || f2 <= traffic || traffic2 <= traffic) {
			t.Errorf("without a store the revisions were %d, %d and %d, and are %d, %d and %d", m, f, traffic, m2, f2, traffic2)
		}
		_, err := s.Apply(context.Background(), decoded(t, ruleOfM+"\nlabels: {a: \"1\"}"), false, at(api.KindTraffic, "m", "", traffic))
		if kept != (err == nil) {
			t.Errorf("at the revision that was read before the restart: %v", err)
		}
	})
}

// A caller that has read through a gateway that knows more gets no conflict from one that knows less.
func TestARevisionOfAnotherGateway(t *testing.T) {
	store := redistest.Start(t, redistest.Config{AppendOnly: true})
	a, _, _ := alive(t, Config{Store: store.URL()})
	b, _, _ := alive(t, Config{Store: store.URL()})
	mustApply(t, a, model, ruleOfM)
	until(t, "the rules at the other gateway", func() bool { _, _, traffic := revisions(t, b); return traffic != 0 })
	for i := range 20 { // the other gateway looks 4 times a second
		mustApply(t, a, fmt.Sprintf("%s\nlabels: {l%d: \"1\"}", ruleOfM, i))
		_, _, revision := revisions(t, a)
		if _, err := b.Apply(context.Background(), decoded(t, ruleOfM), false, at(api.KindTraffic, "m", "", revision)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Apply(context.Background(), decoded(t, ruleOfM+"\nlabels: {late: \"1\"}"), false, at(api.KindTraffic, "m", "", revision)); staleOf(t, err)[0].Revision != revision+1 {
			t.Errorf("a caller that is late by one revision gets %v", err)
		}
	}
}

// A model's status shows a declaration with the revision that it was declared at.
func TestTheStatusOfAModelIsOfOneMoment(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, model)
	var stop atomic.Bool
	var changing sync.WaitGroup
	defer changing.Wait()
	defer stop.Store(true)
	declared := map[uint64]int{} // the bound that was declared at a revision
	var mu sync.Mutex
	changing.Go(func() {
		for i := 2; !stop.Load(); i = i%8 + 2 {
			mu.Lock()
			_, err := s.Apply(context.Background(), decoded(t, strings.Replace(model, "max: 2", fmt.Sprintf("max: %d", i), 1)), false)
			declared[s.declared.Revision(api.KindModel, "m@1")] = i
			mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		all, err := s.Models(context.Background(), "")
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		mu.Lock()
		want, known := declared[all[0].Revision]
		mu.Unlock()
		if got := all[0].Spec.Replicas.Max; known && got != want {
			t.Fatalf("revision %d is shown with max %d, and was declared with %d", all[0].Revision, got, want)
		}
	}
}

// Models and functions of a watched directory are at revision 0, and so are the default rules.
func TestRevisionsOfWatchedModels(t *testing.T) {
	models := t.TempDir()
	put(t, models, "m/1", model)
	s, _, _ := alive(t, Config{Models: []string{models}, ModelsEvery: 5 * time.Millisecond})
	until(t, "m serves", serves(s, "1"))
	if all, err := s.Functions(context.Background(), "m"); err != nil || all[0].Revision != 0 {
		t.Errorf("the function that goes with the model: %+v, %v", all, err)
	}
	if m, _, traffic := revisions(t, s); m != 0 || traffic != 0 {
		t.Errorf("the model has revision %d and its rules %d", m, traffic)
	}
	if _, err := s.Apply(context.Background(), decoded(t, ruleOfM), false, at(api.KindTraffic, "m", "", 0)); err != nil {
		t.Error(err)
	}
	if _, err := s.Apply(context.Background(), decoded(t, strings.Replace(fn, "name: f", "name: m", 1)), false, at(api.KindFunction, "m", "", 0)); err != nil {
		t.Error(err)
	}
}
