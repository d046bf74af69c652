package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
)

// At the start, --config may name models of a watched directory.
func TestConfigMayNameWatchedModels(t *testing.T) {
	for name, text := range map[string]string{"function": fn, "traffic": "kind: Traffic\nname: m\nserving: \"1\"\n"} {
		t.Run(name, func(t *testing.T) {
			models, config := t.TempDir(), t.TempDir()
			put(t, models, "m/1", model)
			if err := os.WriteFile(filepath.Join(config, "all.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			alive(t, Config{Models: []string{models}, ModelsEvery: 5 * time.Millisecond, Manifests: []string{config}})
		})
	}
}

// A gateway restarts with a function that has both applied and watched models.
func TestARestartWithAppliedAndWatchedModels(t *testing.T) {
	models, data := t.TempDir(), t.TempDir()
	put(t, models, "m/1", model)
	n := strings.Replace(model, "name: m", "name: n", 1)
	config := t.TempDir()
	put(t, config, "n", n)
	cfg := Config{Models: []string{models}, ModelsEvery: 5 * time.Millisecond, DataDir: data, Manifests: []string{config}}
	s, _, _, stop := aliveUntil(t, cfg)
	until(t, "m serves", serves(s, "1"))
	mustApply(t, s, "kind: Function\nname: both\nmodels: [n, m]\npolicy: {name: exp3}")
	stop()
	alive(t, cfg)
}

// A version whose replicas are ending refuses queries that address it at once: it gets no replica any more.
func TestAVersionWhoseReplicasEndRefusesAtOnce(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	one := api.ModelID{Name: "m", Version: "1"}
	slow := make(chan struct{})
	rt.slow[one] = slow
	mustApply(t, s, model)
	until(t, "1 serves", serves(s, "1")) // so that it has a replica, which is slow to end
	mustApply(t, s, version("2"))
	until(t, "both are available", func() bool { return serves(s, "2")() && stateIs(s, "1", registry.Available)() })
	mustApply(t, s, "kind: Traffic\nname: m\nversions: {specific: [\"2\"]}")
	v := deployed(s, "m", "1")
	until(t, "1 has no replica any more", func() bool { return stateIs(s, "1", registry.Draining)() && v.Asked() == 0 && v.Ready() == 0 })
	defer close(slow)
	v.Model().ColdStart = 0
	status, body := post(t, addr, "/v2/models/m/versions/1/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`, "Xebec-Slo-Ms: 50")
	if want := "model m@1 is declared but not loaded: `xebec traffic m --label NAME=1` keeps it loaded"; !strings.Contains(body, want) {
		t.Errorf("answer %d %s: expected %q", status, body, want)
	}
	var snap scheduler.Snapshot
	v.Lane().Snapshot(&snap)
	for _, f := range snap.Functions {
		if f.Arrived > 0 {
			t.Errorf("its lane has taken %d queries that no replica will evaluate", f.Arrived)
		}
	}
}

// A rejected version that is declared again is loaded when its old processes have ended, not beside them.
func TestARejectedVersionThatIsDeclaredAgain(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	one := api.ModelID{Name: "m", Version: "1"}
	slow := make(chan struct{})
	rt.fail[one], rt.slow[one] = true, slow
	text := qualified(t, "1", "warmup: {queries: q.jsonl}\n", labelled)
	mustApply(t, s, text)
	until(t, "1 is rejected", stateIs(s, "1", registry.Rejected))
	rt.set(func() { rt.fail[one] = false })
	mustApply(t, s, text)
	if !stateIs(s, "1", registry.Rejected)() {
		t.Errorf("it is %v while its process is ending", versionStatus(t, s, "1").Version.Phase)
	}
	close(slow)
	until(t, "1 is available", stateIs(s, "1", registry.Available))
	if n := rt.most(); n != 1 {
		t.Errorf("it had %d processes at a time", n)
	}
	if _, err := s.Delete(context.Background(), api.KindModel, one); err != nil {
		t.Fatal(err)
	}
	until(t, "its processes have ended", func() bool { return rt.alive() == 0 })
}

// A rejected version that was deleted and declared again through another gateway is tried again, also where this gateway sees both
// changes at once.
func TestARejectedVersionThatIsDeclaredAgainElsewhere(t *testing.T) {
	s, rt, _ := alive(t, Config{Store: redistest.Start(t, redistest.Config{AppendOnly: true}).URL()})
	one := api.ModelID{Name: "m", Version: "1"}
	rt.fail[one] = true
	set := decoded(t, qualified(t, "1", "warmup: {queries: q.jsonl}\n", labelled))
	if _, err := s.Apply(context.Background(), set, false); err != nil {
		t.Fatal(err)
	}
	until(t, "1 is rejected", stateIs(s, "1", registry.Rejected))
	rt.set(func() { rt.fail[one] = false })
	data, err := set.JSON()
	if err != nil {
		t.Fatal(err)
	}
	object := state.Object{ObjectKey: state.ObjectKey{Kind: string(api.KindModel), Name: one.String()}, Data: data}
	release := s.declared.Hold() // until both are in the store
	for i, c := range []state.Commit{{Delete: []state.ObjectKey{object.ObjectKey}}, {Put: []state.Object{object}}} {
		c.ID[0], c.Base = byte(i+1), s.declared.StoreRevision()+uint64(i)
		if _, err := s.store.Commit(context.Background(), &c); err != nil {
			t.Error(err)
		}
	}
	release()
	until(t, "1 is available", stateIs(s, "1", registry.Available))
}
