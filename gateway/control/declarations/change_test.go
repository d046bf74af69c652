package declarations

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/versions"
)

// A change that the store takes while the gateway stops does no harm, and is in force at the next start.
func TestAChangeThatIsStoredWhileTheGatewayStops(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(b *bench) error
		inForce func(b *bench) bool
	}{
		{"update", func(b *bench) error { return b.apply(strings.Replace(model, "max: 2", "max: 3", 1)) },
			func(b *bench) bool { return b.spec("1").Replicas.Max == 3 }},
		{"create", func(b *bench) error { return b.apply(version("2")) },
			func(b *bench) bool { return b.spec("2") != nil }},
		{"delete", func(b *bench) error {
			_, err := b.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"})
			return err
		}, func(b *bench) bool { return b.spec("1") == nil }},
		{"delete traffic", func(b *bench) error {
			_, err := b.Delete(context.Background(), api.KindTraffic, api.ModelID{Name: "m"})
			return err
		}, func(b *bench) bool { return b.traffic() == nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			store := fileStore(t, path)
			b := begun(t, Config{Store: store})
			b.mustApply(model, ruleOfM)
			committing, stopping := make(chan struct{}), make(chan struct{})
			store.set(func() { store.commit = func() error { close(committing); <-stopping; return nil } })
			done := make(chan any, 1)
			go func() {
				defer func() { done <- recover() }()
				if err := c.change(b); err != nil {
					t.Error(err)
				}
			}()
			<-committing
			stopped := make(chan struct{})
			go func() { defer close(stopped); b.stop() }()
			until(t, "the gateway to be stopping", func() bool {
				defer b.cfg.Catalog.Unlock()
				return b.cfg.Catalog.Lock().Stopping()
			})
			close(stopping)
			if panicked := <-done; panicked != nil {
				t.Errorf("panic: %v", panicked)
			}
			<-stopped
			if again := begun(t, Config{Store: fileStore(t, path)}); !c.inForce(again) {
				t.Error("the change is not in force after a restart")
			}
		})
	}
}

// What --config declares while the store is away is stored when the store is back, however often that is tried.
func TestWhatConfigDeclaresIsStoredWhenTheStoreIsBack(t *testing.T) {
	store := newStore(t)
	store.away, store.shared = true, true
	b := newBench(t, Config{Store: store})
	ctx := context.Background()
	if err := b.Begin(ctx, decoded(t, model)); err != nil {
		t.Fatal(err)
	}
	if b.spec("1") == nil {
		t.Fatal("what --config declares is not in force while the store is away")
	}
	store.set(func() { store.away = false })
	store.fail(errors.New("gone again"))
	if err := b.resync(ctx); err == nil {
		t.Fatal("a commit failed without an error")
	}
	store.fail(nil)
	if err := b.resync(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := store.Changes(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Objects) == 0 {
		t.Error("the model that --config declares is not in the store")
	}
	if events, err := b.History(ctx, "m", 10); err != nil || len(events) == 0 || events[0].By != "--config" {
		t.Errorf("the history of m has %+v, %v: expected a change by --config", events, err)
	}
}

// The end of a roll-out is not declared if the rules have another roll-out by then.
func TestTheEndOfARolloutDoesNotEndTheNextOne(t *testing.T) {
	b := begun(t, Config{})
	b.mustApply(model, version("2"), ruleOfM+"\nrollout: {version: \"2\"}")
	// There is a verdict that takes 2 back, and before it is declared, a caller declares that 3 is rolled out instead.
	b.mustApply(version("3", "min: 0", "min: 1"), ruleOfM+"\nrollout: {version: \"3\"}")
	if err := b.conclude(context.Background(), versions.Verdict{Model: "m", Version: "2", Reason: "worse"}); err != nil {
		t.Fatal(err)
	}
	if x := b.traffic(); x.Rollout == nil || x.Rollback != nil {
		t.Errorf("the roll-out of 3, which is loading, was ended: %+v", x.Rollback)
	}
}

// A retreat is counted when it is declared.
func TestARetreatThatTheStoreDoesNotTakeIsNotCounted(t *testing.T) {
	store := newStore(t)
	b := begun(t, Config{Store: store})
	b.mustApply(model, version("2"), ruleOfM+"\nrollout: {version: \"2\"}")
	worse := versions.Verdict{Model: "m", Version: "2", Reason: "worse"}
	store.fail(errors.New("gone"))
	if err := b.conclude(context.Background(), worse); err == nil {
		t.Fatal("a commit failed without an error")
	}
	if _, n := b.Outcomes(); n != 0 {
		t.Errorf("%d retreats are counted", n)
	}
	store.fail(nil)
	if err := b.conclude(context.Background(), worse); err != nil {
		t.Fatal(err)
	}
	if _, n := b.Outcomes(); n != 1 || b.traffic().Rollout != nil || b.traffic().Rollback == nil {
		t.Errorf("%d retreats are counted, and the rules are %+v", n, b.traffic())
	}
}

// The history has the traffic rules that are deleted with a model's last version.
func TestTheHistoryHasTheRulesThatAreDeletedWithTheModel(t *testing.T) {
	b := begun(t, Config{})
	b.mustApply(model, ruleOfM)
	if _, err := b.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	events, err := b.History(context.Background(), "m", 10)
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

// A rollback does not go back to what served before in the life of a deleted model of the same name.
func TestARollbackKnowsNothingOfADeletedModel(t *testing.T) {
	b := begun(t, Config{})
	ctx := context.Background()
	all := []string{model, version("2"), version("3")}
	b.mustApply(all...)
	for _, v := range []string{"1", "3"} {
		if _, err := b.Promote(ctx, "m", v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Delete(ctx, api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	b.mustApply(all...)
	if _, err := b.Rollback(ctx, "m", "", ""); err != nil {
		t.Fatal(err)
	}
	if r := b.traffic().Rollback; r == nil || r.From != "3" || r.To != "2" {
		t.Errorf("the rollback is %+v, want one from 3 to 2", r)
	}
}

// The history shows no value of an environment variable.
func TestTheHistoryMasksTheEnvironment(t *testing.T) {
	b := begun(t, Config{})
	secretive := strings.Replace(model, "A: b", "A: s3cret", 1)
	b.mustApply(secretive)
	b.mustApply(strings.Replace(secretive, "run: {", "run: {isolation: auto, ", 1)) // the default, spelt out
	events, err := b.History(context.Background(), "m", 10)
	if err != nil {
		t.Fatal(err)
	}
	if d := events[0].Detail; len(events) != 2 || !strings.Contains(d, `run.isolation: default → "auto"`) || strings.Contains(d, "s3cret") {
		t.Errorf("the history has %+v", events)
	}
}

// A function that is declared while a directory of its name is being deployed stays.
func TestDeployDoesNotReplaceAFunction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifest.ModelFile), []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	b := begun(t, Config{})
	b.mustApply(strings.Replace(model, "name: m", "name: n", 1))
	deployed := make(chan error, 1)
	b.declaring.Lock() // Deploy has to wait from here on
	begins := make(chan struct{})
	go func() {
		close(begins)
		_, err := b.Deploy(context.Background(), api.Deployment{Dir: dir})
		deployed <- err
	}()
	<-begins
	set := decoded(t, strings.NewReplacer("name: f", "name: m", "[m]", "[n]").Replace(fn))
	_, err := b.changeHeld(context.Background(), false, func(s *versions.State) (*edit, error) { return b.planApply(context.Background(), s, set) })
	b.declaring.Unlock()
	if err := errors.Join(err, <-deployed); err != nil {
		t.Fatal(err)
	}
	if f, ok := b.cfg.Functions.Get("m"); !ok || f.Spec.SLO != 20*time.Millisecond || f.Spec.Models[0] != "n" {
		t.Errorf("the function that was declared is %+v", f.Spec)
	}
}
