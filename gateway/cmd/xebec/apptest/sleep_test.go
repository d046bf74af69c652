package apptest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// svm is a manifest of a scikit-learn classifier that sleeps after a second without a query. It says on which side of a
// line a point is.
func svm(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	writeFile(t, dir, "svm.py", `
import os
import tempfile

import joblib
import numpy
import xebec
from sklearn.svm import SVC

corners = numpy.array([[-1, -1], [-2, -1], [1, 1], [2, 1]])
kept = os.path.join(tempfile.gettempdir(), f"svm-{os.getpid()}.joblib")
joblib.dump(SVC(kernel="linear").fit(corners, [0, 0, 1, 1]), kept)
classifier = joblib.load(kept)
xebec.serve(lambda batch: classifier.predict(batch))
`)
	return fmt.Sprintf(`
kind: Model
name: svm
version: "1"
dir: %s
inputs:  [{name: input, dtype: float32, shape: [2]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, svm.py], env: {OMP_NUM_THREADS: "1"}}
preload: [numpy, sklearn.svm, joblib]
replicas: {min: 0, max: 2, idle: 1s}
cache: off
`, dir)
}

// A Python model with large libraries has no process until a query arrives, through a function or by the model's own
// name. A worker forked from the zygote answers it. After a second without a query the model has no process again.
// describe and the metrics show all of this.
func TestScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t), "--config", manifest(t, svm(t), function("f", "svm", "slo: 1s", "cold_start: 60s")))
	if m := g.awaitAsleep("svm"); len(g.running("svm.py")) != 0 {
		t.Errorf("before the first query the processes are %v, state %s", g.running("svm.py"), m.State)
	}
	g.awaitRunning(zygoteProgram, 1)
	g.describes("svm", "idle, 0 of 0 replicas ready", "0 to 2, none after 1s without a query", "numpy, sklearn.svm, joblib")

	for i, ask := range []struct{ path, body, says string }{
		{"/f/predict", `{"input":[1,1]}`, `"output":1`},
		{"/v2/models/svm/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,2],"data":[2,2]}]}`, `"data":[1]`},
		{"/f/predict", `{"input_batch":[[-2,-2],[3,1]]}`, `"output":0`},
	} {
		headers := []string{"Xebec-Slo-Ms", patient}
		if i == 0 {
			headers = nil // the function's own objective is enough
		}
		a := g.json(ask.path, ask.body, headers...)
		if text := strings.Join(strings.Fields(string(a.Body)), ""); a.Status != 200 || !strings.Contains(text, ask.says) {
			t.Errorf("asleep, %s is answered by %v: expected %s", ask.path, a, ask.says)
		}
		for _, p := range g.running("svm.py") {
			wantsForked(t, p)
		}
		if wanted := g.metrics().of("model_replicas_wanted", "svm"); wanted > 1 {
			t.Errorf("after one query %v replicas are wanted: expected 1, or 0 after a second", wanted)
		}
		g.awaitRunning("svm.py", 0)
		m := g.awaitAsleep("svm")
		if c := m.Capacity.ColdStarts; c == nil || c.Count != uint64(i+1) || c.LastMS <= 0 || c.P50MS <= 0 || c.P99MS < c.P50MS || m.Capacity.StartMS <= 0 {
			t.Errorf("after %d cold starts the capacity is %s", i+1, toJSON(t, m.Capacity))
		}
		if n := g.metrics().of("cold_start_seconds_count", "svm"); n != float64(i+1) {
			t.Errorf("xebec_cold_start_seconds counts %v: expected %d", n, i+1)
		}
	}
	g.describes("svm", "idle, 0 of 0 replicas ready", "a replica starts in ", "; 3 cold starts: P50 ")
	d, err := decode[api.ModelDescription](g.must("describe", "model", "svm", "-o", "json"))
	if err != nil || len(d.Models) != 1 || d.Models[0].Capacity == nil || d.Models[0].Capacity.ColdStarts == nil || d.Models[0].Capacity.ColdStarts.Count != 3 {
		t.Errorf("describe -o json: %v, %s", err, toJSON(t, d))
	}
	if family := g.metrics().families["xebec_cold_start_seconds"]; family != "histogram" {
		t.Errorf("xebec_cold_start_seconds is a %q", family)
	}
}

// A function with a default answers it at its objective, with the reason, while its model wakes. If the caller allows
// more time the query is still evaluated, and the next identical query gets the result from the cache.
func TestDefaultWhileItWakes(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(newDir(t), "gate")
	g := serve(t, "--config", manifest(t, gated(testModel("m", nil, sleepy), gate), function("f", "m", "slo: 200ms", theDefault)))
	wantsDefault := func(what string, a answer) {
		t.Helper()
		if !a.Default || a.text() != defaultText || a.DefaultExplanation != api.NoReplica.Reason() {
			t.Errorf("%s is answered by %v: expected the default with the reason %q", what, a, api.NoReplica.Reason())
		}
	}
	g.awaitAsleep("m")
	// The gateway does not know yet whether the model's answers may be cached. The first answer is cached all the same.
	wantsDefault("the first query", g.json("/f/predict", `{"input":"first","ttl_ms":60000}`))
	open(t, gate)
	g.awaitEntries(1)
	if a := g.raw("f", "first", "Xebec-Slo-Ms", patient); !a.predicted() || a.text() != "first" {
		t.Errorf("the first query again is answered by %v", a)
	}
	if hits, _, _ := g.cacheMetrics("m"); hits != 1 {
		t.Errorf("the cache has %v hits: expected one", hits)
	}
	if a := g.raw("f", "second", "Xebec-Slo-Ms", patient); !a.predicted() || a.text() != "second" {
		t.Errorf("while awake it answers %v", a)
	}

	g.awaitAsleep("m")
	shut(t, gate)
	wantsDefault("a query while it wakes again", g.json("/f/predict", `{"input":"late","ttl_ms":60000}`))
	open(t, gate)
	g.awaitEntries(3)
	hits, _, _ := g.cacheMetrics("m")
	if a := g.raw("f", "late"); !a.predicted() || a.text() != "late" {
		t.Errorf("the same query again is answered by %v", a)
	}
	if now, _, _ := g.cacheMetrics("m"); now != hits+1 {
		t.Errorf("the cache has %v hits, it had %v: expected one more", now, hits)
	}
	// A cached answer needs no replica and wakes none.
	g.awaitAsleep("m")
	if a := g.raw("f", "late"); !a.predicted() || a.text() != "late" {
		t.Errorf("while the model sleeps a cached query is answered by %v", a)
	}
}

// Fifty sleeping models of one environment share a zygote. All are queried at once: no query is refused, and each model
// answers its own.
func TestFiftyModelsWakeAtOnce(t *testing.T) {
	t.Parallel()
	const models = 50
	dir := newDir(t)
	var all strings.Builder
	for i := range models {
		name := fmt.Sprintf("m%d", i)
		all.WriteString(pythonModel(t, dir, name, `
import os
import numpy
import xebec

name = os.environb[b"XEBEC_MODEL"]
xebec.serve(lambda batch: [name + b":" + query for query in batch])
`, "preload: [numpy]", "replicas: {min: 0, max: 1}", uncached))
		all.WriteString(function(name, name, "slo: 60s"))
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, all.String()))
	g.awaitRunning(zygoteProgram, 1)
	if early := g.running(".py"); len(early) > 0 {
		t.Errorf("before the first query the processes are %v", early)
	}
	var wg sync.WaitGroup
	ctx := bounded(t)
	for i := range models {
		for range 2 {
			wg.Go(func() {
				name := fmt.Sprintf("m%d", i)
				a, err := g.post(ctx, "/"+name+"/predict", "text/plain", []byte("hello"))
				if err != nil || !a.predicted() || a.text() != name+":hello" {
					t.Errorf("%s is answered by %v %v", name, a, err)
				}
			})
		}
	}
	wg.Wait()
	g.awaitRunning(zygoteProgram, 1)
	for _, p := range g.awaitRunning(".py", models) {
		wantsForked(t, p)
	}
	if st := g.itself(); st.Replicas != models || st.Node == nil || st.Node.Awake != models {
		t.Errorf("the gateway has %d replicas, node %+v", st.Replicas, st.Node)
	}
	g.xebec("describe", "gateway").wants(t, "describe gateway", 0, fmt.Sprintf("%d model versions", models), "")
}

// A hint for the present time wakes a model without a query. When the hint is removed the model sleeps again.
func TestHintWakesAModel(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	declared := func(hint string) string {
		return testModel("m", nil, sleepy, hint) + function("f", "m", "slo: 60s")
	}
	g := serve(t, "--config", manifest(t, declared(fmt.Sprintf("expect: [{rate: 10, from: %q, to: %q}]", at(time.Hour), at(2*time.Hour)))))
	g.awaitAsleep("m")
	g.apply(declared(fmt.Sprintf("expect: [{rate: 10, from: %q, to: %q}]", at(-time.Minute), at(time.Hour))))
	m := g.awaitReplicas("m", 1)
	if m.Capacity.Wanted != 1 || m.Capacity.Reason == "" || m.Capacity.ColdStarts != nil || len(m.Queries) != 0 {
		t.Errorf("woken by a hint the model has capacity %s, queries %v", toJSON(t, m.Capacity), m.Queries)
	}
	g.describes("m", "1 of 1 replica ready")
	g.apply(declared("expect: []"))
	g.awaitAsleep("m")
	g.awaitNoProcess("m@1")
}

// A gateway that is killed, or asked to end, while twenty models wake at once leaves no process: no zygote and no worker
// that was being forked. On SIGTERM all accepted queries are answered.
func TestEndWhileForking(t *testing.T) {
	t.Parallel()
	const models = 20
	for how, status := range map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGTERM: 0} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			var all strings.Builder
			for i := range models {
				name := fmt.Sprintf("m%d", i)
				all.WriteString(pythonModel(t, dir, name, "import numpy, xebec\nxebec.serve(lambda batch: batch)\n", "preload: [numpy]", "replicas: {min: 0, max: 1}", uncached))
				all.WriteString(function(name, name, "slo: 60s"))
			}
			g := serve(t, "--python", python(t), "--config", manifest(t, all.String()))
			g.awaitRunning(zygoteProgram, 1)
			var wg sync.WaitGroup
			ctx := bounded(t)
			for i := range models {
				wg.Go(func() {
					a, err := g.post(ctx, fmt.Sprintf("/m%d/predict", i), "text/plain", []byte("hello"))
					if err == nil && !a.predicted() && a.Code != api.ShuttingDown.String() {
						t.Errorf("a query is answered by %v", a)
					}
				})
			}
			g.await("some models to run", func(context.Context) (bool, string) {
				found := g.running(".py")
				return len(found) >= 3, fmt.Sprint(found)
			})
			if err := g.cmd.Process.Signal(how); err != nil {
				t.Fatal(err)
			}
			g.gone(status)
			wg.Wait()
		})
	}
}

// A hung zygote delays one launch, which then proceeds without it. The next launch does not wait.
func TestZygoteThatHangs(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "plain", "import xebec\nxebec.serve(lambda batch: batch)\n", "preload: [json]", sleepy, uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "plain", "slo: 60s")))
	if a := g.raw("f", "forked"); !a.predicted() {
		t.Errorf("it answers %v", a)
	}
	zygote := g.awaitRunning(zygoteProgram, 1)[0]
	g.awaitAsleep("plain")
	freeze(t, zygote.pid)
	for _, text := range []string{"while its zygote hangs", "afterwards"} {
		if a := g.raw("f", text); !a.predicted() || a.text() != text {
			t.Errorf("%s it answers %v", text, a)
		}
		g.awaitAsleep("plain")
	}
	g.xebec("logs", "plain").wants(t, "logs", 0, "its zygote did not fork: it did not answer within", "")
	for _, p := range g.running(zygoteProgram) {
		if p.pid == zygote.pid {
			t.Errorf("the hung zygote is still there: %v", p)
		}
	}
}

// Two replicas forked from one zygote draw different random numbers. When the zygote is killed no replica is affected,
// and models wake as before. When the reaper is killed the zygote ends too.
func TestZygotes(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	draw := pythonModel(t, dir, "draw", `
import random
import numpy
import xebec

print("drawn", random.random(), numpy.random.random(), numpy.random.default_rng().random(), flush=True)
xebec.serve(lambda batch: batch)
`, "preload: [numpy, random]", "replicas: {min: 2, window: 1s, delay: 1s}", uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, draw, function("f", "draw", "slo: 60s")))
	before := g.awaitReplicas("draw", 2)
	for _, p := range g.awaitRunning("draw.py", 2) {
		wantsForked(t, p)
	}
	var drawn []string
	for _, line := range strings.Split(g.must("logs", "draw"), "\n") {
		if _, numbers, ok := strings.Cut(line, "drawn "); ok {
			drawn = append(drawn, strings.Fields(numbers)...)
		}
	}
	if len(drawn) != 6 || drawn[0] == drawn[3] || drawn[1] == drawn[4] || drawn[2] == drawn[5] {
		t.Errorf("two replicas draw %v: expected three numbers each, all different", drawn)
	}

	s := g.startStream("f", 50)
	s.served(10)
	kill(t, g.awaitRunning(zygoteProgram, 1)[0].pid)
	g.await("the zygote to be gone", func(context.Context) (bool, string) {
		left := g.running(zygoteProgram)
		return len(left) == 0, fmt.Sprint(left)
	})
	s.served(50)
	judge(t, s.end(), "ok")
	for i, r := range g.awaitReplicas("draw", 2).Replicas {
		if r.PID != before.Replicas[i].PID || r.Restarts != 0 {
			t.Errorf("after the zygote was killed replica %d is process %d with %d restarts: expected process %d", i, r.PID, r.Restarts, before.Replicas[i].PID)
		}
	}
	g.must("scale", "draw", "--min", "0", "--idle", "1s")
	// A launch starts a new zygote at the latest a second after the end of the last one.
	const wakes = 5
	for i := 1; ; i++ {
		g.awaitAsleep("draw")
		if a := g.raw("f", fmt.Sprint("wake ", i)); !a.predicted() {
			t.Errorf("woken after its zygote was killed the model answers %v", a)
		}
		if len(g.running(zygoteProgram)) > 0 {
			break
		}
		if i == wakes {
			t.Fatalf("after %d launches there is no new zygote", wakes)
		}
	}
	// The reaper's end also ends its workers and the zygote. A new reaper starts what is needed.
	for _, p := range g.running("xebec-reaper") {
		kill(t, p.pid)
	}
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("after the reaper was killed the model answers %v", a)
	}
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)
}

// A preload that cannot be imported costs only the fast start: the model serves, and its log says why it started slowly.
func TestPreloadThatFails(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "plain", "import xebec\nxebec.serve(lambda batch: batch)\n", "preload: [no_such_module]", sleepy)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "plain", "slo: 60s")))
	if a := g.raw("f", "hello"); !a.predicted() || a.text() != "hello" {
		t.Errorf("it answers %v", a)
	}
	g.describes("plain", "not forked from a zygote", "ModuleNotFoundError: No module named 'no_such_module'")
	g.xebec("logs", "plain").wants(t, "logs", 0, "no_such_module", "")
}
