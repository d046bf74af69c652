package server

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
)

// What --config declares may need models of a watched directory: also at the start.
func TestConfigMayNameWatchedModels(t *testing.T) {
	for name, text := range map[string]string{"function": fn, "traffic": "kind: Traffic\nname: m\nserving: \"1\"\n"} {
		t.Run(name, func(t *testing.T) {
			models, config := t.TempDir(), t.TempDir()
			put(t, models, "m/1", model)
			if err := os.WriteFile(filepath.Join(config, "all.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			aliveOrNot(t, Config{Models: []string{models}, ModelsEvery: 5 * time.Millisecond, Manifests: []string{config}})
		})
	}
}

// A gateway comes back with a function that has both applied and watched models.
func TestARestartWithAppliedAndWatchedModels(t *testing.T) {
	models, data := t.TempDir(), t.TempDir()
	put(t, models, "m/1", model)
	n := strings.Replace(model, "name: m", "name: n", 1)
	config := t.TempDir()
	put(t, config, "n", n)
	cfg := Config{Models: []string{models}, ModelsEvery: 5 * time.Millisecond, DataDir: data, Manifests: []string{config}}
	s, _, _, stop := aliveUntil(t, cfg)
	until(t, s, "m serves", serves(s, "1"))
	mustApply(t, s, "kind: Function\nname: both\nmodels: [n, m]\npolicy: {name: exp3}")
	stop()
	aliveOrNot(t, cfg)
}

// aliveOrNot starts a gateway and ends it.
func aliveOrNot(t *testing.T, cfg Config) {
	t.Helper()
	_, _, _, stop := aliveUntil(t, cfg)
	stop()
}

// A version whose replicas are ending refuses who addresses it at once: nobody will come to answer.
func TestAVersionWhoseReplicasEndRefusesAtOnce(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	one := api.ModelID{Name: "m", Version: "1"}
	slow := make(chan struct{})
	rt.slow[one] = slow
	mustApply(t, s, model, version("2"))
	until(t, s, "both are available", func() bool { return serves(s, "2")() && stateIs(s, "1", registry.Available)() })
	mustApply(t, s, "kind: Traffic\nname: m\nversions: {specific: [\"2\"]}")
	until(t, s, "1 has no replica any more", func() bool { d := s.models[one]; return d.life.stopping && d.model.Ready.Load() == 0 })
	defer close(slow)
	req, _ := http.NewRequest("POST", "http://"+addr+"/v2/models/m/versions/1/infer",
		strings.NewReader(`{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`))
	req.Header.Set("Xebec-Slo-Ms", "50")
	s.mu.Lock()
	s.models[one].model.ColdStart = 0
	s.mu.Unlock()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if want := api.NoReplica.Reason(); !strings.Contains(string(body), want) {
		t.Errorf("answer %d %s: expected %q", resp.StatusCode, body, want)
	}
	var snap scheduler.Snapshot
	s.mu.Lock()
	d := s.models[one]
	s.mu.Unlock()
	d.lane.Snapshot(&snap)
	for _, f := range snap.Functions {
		if f.Arrived > 0 {
			t.Errorf("its lane has taken %d queries that nobody will evaluate", f.Arrived)
		}
	}
}

// A rejected version that is declared anew is loaded when its old replicas have ended, and goes when it is removed.
func TestARejectedVersionThatIsDeclaredAnew(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	rt.fail[api.ModelID{Name: "m", Version: "1"}] = true
	text := qualified(t, "1", "warmup: {queries: q.jsonl}\n", labelled)
	mustApply(t, s, text)
	until(t, s, "1 is rejected", stateIs(s, "1", registry.Rejected))
	s.mu.Lock()
	d := s.models[api.ModelID{Name: "m", Version: "1"}]
	d.life.stopping = true // its replicas are slow to end
	err := s.updateLocked(d, *d.spec())
	state, stopping := d.life.state, d.life.stopping
	d.life.stopping = false
	s.mu.Unlock()
	if err != nil || state == registry.Declared && stopping {
		t.Errorf("it is %v while its replicas are ending (%v): it would be loaded beside them, and never forgotten", state, err)
	}
}

// What another process has stored under a name is that object, or nothing.
func TestAnObjectUnderAnotherOnesName(t *testing.T) {
	put := decoded(t, model)
	o := objectsOf(put)[0]
	o.Name = "other@9"
	set, _, problems := decodeObjects([]state.Object{o})
	if set.Len() != 0 || len(problems) != 1 {
		t.Errorf("%d objects, problems %v", set.Len(), problems)
	}
	o.Kind, o.Name = "Traffic", "m@1"
	set, _, problems = decodeObjects([]state.Object{o})
	if set.Len() != 0 || len(problems) != 1 {
		t.Errorf("%d objects, problems %v", set.Len(), problems)
	}
}

// A rejected version that was deleted and declared again through another gateway is tried again, also where this one sees both at once.
func TestARejectedVersionThatIsDeclaredAgainElsewhere(t *testing.T) {
	s, rt, _ := alive(t, Config{DataDir: t.TempDir()})
	one := api.ModelID{Name: "m", Version: "1"}
	rt.fail[one] = true
	text := qualified(t, "1", "warmup: {queries: q.jsonl}\n", labelled)
	mustApply(t, s, text)
	until(t, s, "1 is rejected", stateIs(s, "1", registry.Rejected))
	rt.mu.Lock()
	rt.fail[one] = false
	rt.mu.Unlock()
	ctx := context.Background()
	object := objectsOf(decoded(t, text))[0]
	for i, c := range []state.Commit{{Delete: []state.ObjectKey{object.ObjectKey}}, {Put: []state.Object{object}}} {
		c.ID[0], c.Base = byte(i+1), s.revisionNow()+uint64(i)
		if _, err := s.objects.Commit(ctx, &c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.resync(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, s, "1 is available", stateIs(s, "1", registry.Available))
}
