package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// troubledStore is a store that does first what before says.
type troubledStore struct {
	state.Backend
	before func() error
}

func (b *troubledStore) Commit(ctx context.Context, c *state.Commit) (uint64, error) {
	if b.before != nil {
		if err := b.before(); err != nil {
			return 0, err
		}
	}
	return b.Backend.Commit(ctx, c)
}

// trouble puts a store that does first what before says in place of the server's.
func trouble(s *Server, before func() error) *troubledStore {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &troubledStore{Backend: s.objects, before: before}
	s.objects = b
	return b
}

// A change that the store takes while the gateway stops does no harm, and is in force at the next start.
func TestAChangeThatIsStoredWhileTheGatewayStops(t *testing.T) {
	for name, change := range map[string]func(s *Server) error{
		"update": func(s *Server) error {
			_, err := s.Apply(context.Background(), decoded(t, strings.Replace(model, "max: 2", "max: 3", 1)), false)
			return err
		},
		"create": func(s *Server) error {
			_, err := s.Apply(context.Background(), decoded(t, version("2")), false)
			return err
		},
		"delete": func(s *Server) error {
			_, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"})
			return err
		},
		"delete traffic": func(s *Server) error {
			_, err := s.Delete(context.Background(), api.KindTraffic, api.ModelID{Name: "m"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _, stop := aliveUntil(t, Config{DataDir: t.TempDir()})
			defer stop()
			mustApply(t, s, model, "kind: Traffic\nname: m\nserving: \"1\"")
			committing, stopping := make(chan struct{}), make(chan struct{})
			trouble(s, func() error { close(committing); <-stopping; return nil })
			done := make(chan any, 1)
			go func() {
				defer func() { done <- recover() }()
				_ = change(s)
			}()
			<-committing
			stopped := make(chan struct{})
			go func() { defer close(stopped); stop() }()
			until(t, s, "the gateway stops", func() bool { return s.stopping })
			close(stopping)
			if panicked := <-done; panicked != nil {
				t.Errorf("panic: %v", panicked)
			}
			<-stopped
		})
	}
}

// What --config declares while the store is away is stored when the store comes, however often that is tried.
func TestWhatConfigDeclaresIsStoredAtLast(t *testing.T) {
	s, _, _ := alive(t, Config{DataDir: t.TempDir()})
	s.mu.Lock() // as begin does where the store does not answer
	e, err := s.planApplyLocked(context.Background(), decoded(t, model))
	if err == nil {
		s.unsaved = decoded(t, model)
		err = e.install()
		s.settleLocked()
	}
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	b := trouble(s, func() error { return errors.New("gone again") })
	if err := s.resync(context.Background()); err == nil {
		t.Fatal("the store takes nothing, and nobody says so")
	}
	b.before = nil
	if err := s.resync(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Changes(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Objects) == 0 {
		t.Error("the model that --config declares is not in the store")
	}
	if events, err := s.History(context.Background(), "m", 10); err != nil || len(events) == 0 {
		t.Errorf("the history of m has %v, %v: expected who declared it", events, err)
	}
}

// A roll-out that is over is ended; another one that has taken its place meanwhile goes on.
func TestTheEndOfARolloutDoesNotEndTheNextOne(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	rt.dumb[api.ModelID{Name: "m", Version: "3"}] = true
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nrollout: {version: \"2\"}")
	until(t, s, "the roll-out is in force", func() bool { return s.families["m"].rules.live != nil })
	// The judge has found that 2 is to retreat, and before that is done somebody declares that 3 is rolled out instead.
	mustApply(t, s, version("3"), "kind: Traffic\nname: m\nserving: \"1\"\nrollout: {version: \"3\"}")
	if err := s.conclude(context.Background(), ending{model: "m", version: "2", reason: "worse"}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.families["m"].traffic; x.Rollout == nil || x.Rollback != nil {
		t.Errorf("the roll-out of 3, which is loading, was ended: %+v", x.Rollback)
	}
}

// Retreats are counted when they have happened.
func TestARetreatThatTheStoreDoesNotTakeIsNotCounted(t *testing.T) {
	s, _, _ := alive(t, Config{DataDir: t.TempDir()})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nrollout: {version: \"2\"}")
	until(t, s, "the roll-out is in force", func() bool { return s.families["m"].rules.live != nil })
	trouble(s, func() error { return errors.New("gone") })
	if err := s.conclude(context.Background(), ending{model: "m", version: "2", reason: "worse"}); err == nil {
		t.Fatal("the store takes nothing, and nobody says so")
	}
	if n := s.retreated.Load(); n != 0 {
		t.Errorf("%d retreats are counted", n)
	}
}

// The traffic rules that go with a model's last version are in the history.
func TestTheHistoryHasTheRulesThatGoWithTheModel(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, model, "kind: Traffic\nname: m\nserving: \"1\"")
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	events, err := s.History(context.Background(), "m", 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == api.KindTraffic && e.Action == string(api.Deleted) {
			return
		}
	}
	t.Errorf("the history has %+v", events)
}

// quality is the manifest of a version with something to prove.
func qualified(t *testing.T, v, what, queries string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "q.jsonl"), []byte(queries), 0o600); err != nil {
		t.Fatal(err)
	}
	return version(v) + "dir: " + dir + "\n" + what
}

const labelled = `{"input":[1,2,3,4],"label":2}` + "\n"

// A version that is to be compared with the one that serves can take the place of one that has lost its replicas.
func TestAVersionIsNotComparedWithOneThatHasLostItsReplicas(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	mustApply(t, s, model+"timeout: 100ms\n", fn)
	until(t, s, "1 serves", serves(s, "1"))
	s.mu.Lock()
	d := s.models[api.ModelID{Name: "m", Version: "1"}]
	s.mu.Unlock()
	d.model.ColdStart = 50 * time.Millisecond // or nobody would wait for the test
	rt.lose(d)
	mustApply(t, s, qualified(t, "2", "timeout: 100ms\nvalidate: {queries: q.jsonl, expect: serving, extremes: false}\n", labelled))
	until(t, s, "2 is judged", func() bool { return stateIs(s, "2", registry.Available)() || stateIs(s, "2", registry.Rejected)() })
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.models[api.ModelID{Name: "m", Version: "2"}].life; l.state != registry.Available {
		t.Errorf("2 is %v: %s", l.state, l.reason)
	}
}

// What is declared while a version is validated is what it is judged by.
func TestAChangeOfTheValidationWhileItRuns(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	two := api.ModelID{Name: "m", Version: "2"}
	hang := make(chan struct{})
	rt.hang[two] = hang
	text := qualified(t, "2", "validate: {queries: q.jsonl, expect: labels, min_accuracy: 1, extremes: false}\n", strings.Replace(labelled, `"label":2`, `"label":7`, 1))
	mustApply(t, s, model, text)
	until(t, s, "2 is validated", stateIs(s, "2", registry.Validating))
	mustApply(t, s, strings.Replace(text, "min_accuracy: 1", "min_accuracy: 0.0", 1))
	close(hang)
	until(t, s, "2 is judged", func() bool { return stateIs(s, "2", registry.Available)() || stateIs(s, "2", registry.Rejected)() })
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.models[two].life; l.state != registry.Available {
		t.Errorf("2 is %v by a validation that is not declared any more: %s", l.state, l.reason)
	}
}

// A version that is deleted while it is validated was not rejected.
func TestADeletionDuringValidationIsNoRejection(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	two := api.ModelID{Name: "m", Version: "2"}
	hang := make(chan struct{})
	rt.hang[two] = hang
	mustApply(t, s, model, qualified(t, "2", "warmup: {queries: q.jsonl}\n", strings.Repeat(labelled, 200)))
	until(t, s, "2 is validated", stateIs(s, "2", registry.Validating))
	if _, err := s.Delete(context.Background(), api.KindModel, two); err != nil {
		t.Fatal(err)
	}
	rt.mu.Lock()
	rt.fail[two] = true
	rt.mu.Unlock()
	close(hang)
	s.endLife()
	s.ending.Wait()
	if n := s.rejected.Load(); n != 0 {
		t.Errorf("%d versions were rejected", n)
	}
}
