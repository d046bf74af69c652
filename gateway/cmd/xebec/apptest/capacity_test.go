package apptest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A model that answers fifty queries a second and gets a hundred is scaled up. When only five a second arrive it is
// scaled down to one replica. Every query, before and after, is answered by a prediction.
func TestReplicasFollowTheLoad(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "slow", strings.Replace(slow, `float(os.environ["EVALUATION_SECONDS"])`, "0.02", 1),
		"batching: {policy: none}", "replicas: {min: 1, max: 4, window: 2s, delay: 1s}", uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "slow", "slo: 60s")))
	s := g.startStream("f", 100)
	up := g.awaitModel("slow", "three replicas ready", func(m api.ModelStatus) bool { return m.ReadyReplicas() >= 3 })
	if c := up.Capacity; c.Wanted < 3 || c.Wanted > 4 || c.Granted != c.Wanted || c.Reason == "" || c.Rate <= 0 || c.PerReplica <= 0 {
		t.Errorf("unexpected capacity under load: %s", toJSON(t, c))
	}
	g.describes("slow", "1 to 4", " queries/s, ", " per replica)")
	if n := g.metrics().of("model_replicas_wanted", "slow"); n < 3 {
		t.Errorf("xebec_model_replicas_wanted is %v", n)
	}
	s.served(20)

	s.rate.Store(5)
	g.awaitModel("slow", "one replica, and one wanted", func(m api.ModelStatus) bool {
		return len(m.Replicas) == 1 && m.ReadyReplicas() == 1 && m.Capacity.Wanted == 1
	})
	g.awaitRunning("slow.py", 1)
	s.served(5)
	judge(t, s.end(), "ok")
	if m := g.model("slow"); restarts(m) != 0 {
		t.Errorf("%d restarts, want none: %s", restarts(m), lastExits(m))
	}
}

// Models that cannot start, asleep or not, fail, and describe shows their last output. The gateway retries them less and
// less often, however many queries arrive, and answers those by the default. Their neighbour is not affected. After its
// file is repaired a model starts.
func TestBrokenModels(t *testing.T) {
	t.Parallel()
	const queries, mostStarts = 200, 20
	dir := newDir(t)
	const (
		noted     = "import os, signal\nopen(f'{os.environ[\"XEBEC_MODEL\"]}.starts', 'a').write('start ')\n"
		serves    = "import xebec\nxebec.serve(lambda batch: batch)\n"
		noImport  = noted + "import no_such_module\n" + serves
		crashes   = noted + "print('about to crash', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n" + serves
		traceback = "ModuleNotFoundError: No module named 'no_such_module'"
	)
	broken := []struct{ name, program, bounds, says, exit string }{
		{"sleeps-no-import", noImport, "replicas: {min: 0, max: 2}", traceback, "exited with code 1"},
		{"stays-no-import", noImport, "replicas: {min: 1, max: 2}", traceback, "exited with code 1"},
		{"sleeps-crashes", crashes, "replicas: {min: 0, max: 1}", "about to crash", "SIGSEGV"},
		{"stays-crashes", crashes, "replicas: {min: 1, max: 1}", "about to crash", "SIGSEGV"},
	}
	all := testModel("good", nil, uncached) + function("good", "good", "slo: 60s")
	for _, b := range broken {
		all += plain(pythonModel(t, dir, b.name, b.program, b.bounds+"\ndigest: none")) + function(b.name, b.name, "slo: 100ms", theDefault)
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, all))
	neighbour := g.awaitReplicas("good", 1).Replicas[0].PID
	s := g.startStream("good", 50)
	var loads []*load
	for _, b := range broken {
		loads = append(loads, g.startLoad(b.name, 4, queries))
	}
	for i, b := range broken {
		loads[i].wg.Wait()
		if ends := judge(t, loads[i].stop(), "default"); ends["default"] != queries {
			t.Errorf("%s: the ends are %v: expected %d defaults", b.name, ends, queries)
		}
		starts := func() int { return len(lines(t, filepath.Join(dir, b.name+".starts"))) }
		g.awaitModel(b.name, "the model to fail three times", func(m api.ModelStatus) bool { return m.State == api.ModelFailed && starts() >= 3 })
		text := g.describes(b.name, "failed, 0 of ", b.says, b.exit)
		if strings.HasSuffix(b.name, "no-import") && !strings.Contains(text, "Traceback (most recent call last)") {
			t.Errorf("%s: describe has no traceback:\n%s", b.name, text)
		}
		if n := starts(); n > mostStarts {
			t.Errorf("%s was started %d times: expected at most %d", b.name, n, mostStarts)
		}
		if a := g.raw(b.name, "hello"); !a.Default || a.DefaultExplanation != api.NoReplica.Reason() {
			t.Errorf("the failed model %s answers %v", b.name, a)
		}
	}
	for _, b := range broken {
		writeFile(t, dir, b.name+".py", serves)
	}
	for _, b := range broken {
		n := 0
		wellAgainBy(g, b.name, func() answer {
			n++
			return g.raw(b.name, fmt.Sprint("mended? ", n))
		})
	}
	judge(t, s.end(), "ok")
	if r := g.model("good").Replicas[0]; r.PID != neighbour || r.Restarts != 0 {
		t.Errorf("the neighbour is process %d with %d restarts: expected process %d", r.PID, r.Restarts, neighbour)
	}
}

// A manifest with an invalid capacity is refused as a whole. The message names the field and what was expected.
func TestCapacityErrors(t *testing.T) {
	t.Parallel()
	g := serve(t, "--node-memory", "1GiB", "--node-cpu", "4")
	python := strings.Replace(testModel("m", nil), programs.worker, "python", 1)
	for _, c := range []struct{ what, text, says string }{
		{"min beyond max", testModel("m", nil, "replicas: {min: 3, max: 2}"), "replicas.min: 3 is more than replicas.max, 2"},
		{"max of nothing", testModel("m", nil, "replicas: {min: 0, max: -1}"), "replicas.max"},
		{"initial below min", testModel("m", nil, "replicas: {min: 2, max: 3, initial: 1}"), "replicas.initial: 1: expected replicas.min, 2, to replicas.max, 3"},
		{"initial beyond max", testModel("m", nil, "replicas: {min: 0, max: 3, initial: 4}"), "replicas.initial: 4"},
		{"a window too short", testModel("m", nil, "replicas: {min: 0, max: 3, window: 10ms}"), "replicas.window: 10ms: expected 1s to 1h"},
		{"a negative idle time", testModel("m", nil, "replicas: {min: 0, max: 3, idle: -1s}"), "replicas.idle"},
		{"utilization beyond one", testModel("m", nil, "replicas: {min: 0, max: 3, utilization: 1.5}"), "replicas.utilization"},
		{"more memory than the node", testModel("m", nil, "resources: {memory: 2GiB}"), "resources.memory: a replica takes 2GiB, this node has 1024 MiB"},
		{"more cores than the node", testModel("m", nil, "resources: {cpu: 5}"), "resources.cpu: a replica takes 5 cores, this node has 4"},
		{"GPUs that are not there", testModel("m", nil, "resources: {gpu: 60}"), "resources.gpu: a replica takes 60 GPUs"},
		{"more than the limit", testModel("m", nil, "resources: {memory: 200MiB}", "limits: {memory: 100MiB}"), "more than limits.memory"},
		{"a memory limit that nothing starts in", testModel("m", nil, "limits: {memory: 1MiB}"), "limits.memory: 1048576 bytes: expected 16777216"},
		{"too few processes", testModel("m", nil, "limits: {pids: 2}"), "limits.pids: 2: expected 8"},
		{"too little processor", testModel("m", nil, "limits: {cpu: 0.001}"), "limits.cpu"},
		{"preload of no module", python + "preload: [\"numpy; import os\"]\n", `preload[0]: "numpy; import os" is not the name of a Python module`},
		{"preload of a compiled model", testModel("m", nil, "preload: [numpy]"), "preload: is for commands that begin with python"},
		{"a hint that ends before it begins", testModel("m", nil, `expect: [{rate: 1, from: "2026-01-02T00:00:00Z", to: "2026-01-01T00:00:00Z"}]`), "expect[0].to"},
		{"a hint of no time", testModel("m", nil, `expect: [{rate: 1, from: "morning", to: "18:00"}]`), `expect[0].from: "morning": expected two times of day`},
		{"a hint until the end of the day", testModel("m", nil, `expect: [{rate: 1, from: "08:00", to: "24:00"}]`), `expect[0].to: "24:00": the end of a day is "00:00"`},
	} {
		g.xebec("apply", "-f", manifest(t, c.text)).wants(t, c.what, 1, "", c.says)
	}
	if list := g.must("get", "models", "-o", "json"); strings.TrimSpace(list) != "[]" {
		t.Errorf("refused manifests declared %s", list)
	}

	g.apply(testModel("m", nil, "replicas: {min: 2, max: 3}"))
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"m", 2, "nothing to change: give --min, --max, --replicas or --idle"},
		{"m --replicas 1 --min 1", 2, "--replicas sets both --min and --max"},
		{"m --replicas 0", 2, "--replicas 0: expected 1 to 1024; --min 0 lets a model sleep"},
		{"m --max 0", 2, "--max 0: expected 1 to 1024"},
		{"m --max 1", 2, "--max 1 is less than replicas.min, 2: give --min too, such as --min 1 --max 1"},
		{"m --min 5", 2, "--min 5 is more than replicas.max, 3: give --max too, such as --min 5 --max 5"},
		{"m --min -1", 1, "replicas.min: -1: expected 0 to 1024"},
		{"m --min 2000 --max 2000", 1, "replicas.min: 2000: expected 0 to 1024"},
		{"m --min 3 --max 2", 1, "replicas.min: 3 is more than replicas.max, 2"},
		{"m --idle 0s", 1, "replicas.idle"},
		{"m --idle soon", 2, "--idle"},
		{"", 2, "MODEL"},
		{"nobody --min 1", 1, "nobody"},
		{"m@7 --min 1", 1, "model m@7 is not declared"},
	} {
		g.xebec(append([]string{"scale"}, strings.Fields(c.args)...)...).wants(t, "scale "+c.args, c.status, "", c.says)
	}
	if b := g.model("m").Spec.Replicas; b.Min != 2 || b.Max != 3 {
		t.Errorf("after refused commands the bounds are %+v", b)
	}
	for _, c := range []struct{ flag, value string }{{"--node-memory", "12"}, {"--node-memory", "lots"}, {"--node-cpu", "-1"}} {
		refused := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", c.flag, c.value)
		refused.gone(2)
		if !strings.Contains(refused.logText(), c.flag) {
			t.Errorf("the log of serve %s %s is\n%s", c.flag, c.value, refused.logText())
		}
	}
}

// xebec scale changes the number of processes. Its settings survive SIGKILL of the gateway.
func TestScaleCommand(t *testing.T) {
	t.Parallel()
	dataDir := newDir(t)
	g := serve(t, "--data-dir", dataDir)
	g.apply(testModel("m", nil, uncached), function("f", "m", "slo: 60s"))
	processes := func(n int) {
		t.Helper()
		g.await(fmt.Sprintf("%d processes", n), g.hasWorkers("m@1", n))
	}
	processes(1)
	g.xebec("scale", "m", "--min", "2", "--max", "4").wants(t, "scale", 0, "m@1 updated", "")
	processes(2)
	g.awaitReplicas("m", 2)
	g.describes("m", "2 to 4", "2 of 2 replicas ready")
	g.xebec("scale", "m@1", "--min", "2").wants(t, "scale without a change", 0, "m@1 unchanged", "")
	s := g.startStream("f", 50)
	s.served(10)
	g.must("scale", "m", "--replicas", "1")
	processes(1)
	s.served(10)
	judge(t, s.end(), "ok")
	g.must("scale", "m", "--min", "0", "--idle", "1s")
	g.awaitAsleep("m")
	processes(0)
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)

	g = serve(t, "--data-dir", dataDir)
	g.awaitAsleep("m")
	g.describes("m", "0 to 1, none after 1s without a query")
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("after the restart the model answers %v", a)
	}
	g.awaitAsleep("m")
	if events := steps(g.history("m")); len(events) == 0 {
		t.Error("the history is empty")
	}
	changes, err := decode[api.Changes](g.must("scale", "m", "--replicas", "2", "-o", "json"))
	if err != nil || len(changes.Changes) != 1 || changes.Changes[0].Action != api.Updated {
		t.Errorf("scale -o json: %v, %+v", err, changes)
	}
	processes(2)
}

// Settings of xebec scale and xebec traffic are undone at the next start if --config declares the same object. Both
// commands say so.
func TestScaleUnderConfig(t *testing.T) {
	t.Parallel()
	dataDir, file := newDir(t), manifest(t, testModel("m", nil, "replicas: {min: 1, max: 3}"), "---\nkind: Traffic\nname: m\ntransition: resources\n")
	g := serve(t, "--data-dir", dataDir, "--config", file)
	g.apply(testModel("own", nil, "replicas: {min: 1, max: 3}"))
	g.xebec("scale", "m", "--min", "2").wants(t, "scale", 0, "m@1 updated", "note: --config declared model m@1: if its files still do, the next start undoes this change")
	g.xebec("traffic", "m", "--serving", "1").wants(t, "traffic", 0, "traffic m updated", "note: --config declared traffic m: ")
	if said := g.xebec("scale", "own", "--min", "2"); said.status != 0 || said.err != "" {
		t.Errorf("scale prints a note about --config for a model that it does not declare: %s", said.err)
	}
	g.stop()

	g = serve(t, "--data-dir", dataDir, "--config", file)
	for name, want := range map[string]int{"m": 1, "own": 2} {
		if b := g.model(name).Spec.Replicas; b.Min != want || b.Max != 3 {
			t.Errorf("after the next start %s has the bounds %+v: expected at least %d", name, b, want)
		}
	}
}

// Two models do not fit on the node together. While the first is queried the second waits, with a reason. When the
// queries of the first stop it gives way, though its idle time is an hour, and the waiting query is answered.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	large := func(name string) string {
		return pythonModel(t, dir, name, "import xebec\nheld = b'x' * (200 << 20)\nxebec.serve(lambda batch: batch)\n",
			"resources: {memory: 200MiB}", "replicas: {min: 0, max: 2, idle: 1h}", uncached) + function(name, name, "slo: 60s")
	}
	g := serve(t, "--python", python(t), "--node-memory", "300MiB", "--config", manifest(t, large("first"), large("second")))
	s := g.startStream("first", 10)
	s.served(5)
	g.awaitReplicas("first", 1)
	asked := make(chan answer, 1)
	ctx := bounded(t)
	go func() {
		a, err := g.post(ctx, "/second/predict", "text/plain", []byte("hello"))
		if err != nil {
			t.Error(err)
		}
		asked <- a
	}()
	m := g.awaitModel("second", "the second model to wait for room", func(m api.ModelStatus) bool { return m.Capacity.Wanted > m.Capacity.Granted })
	if m.State != api.ModelDegraded || len(m.Replicas) != 0 || !strings.Contains(m.Capacity.ShortWhy, "one replica takes 200 MiB of memory, the node has") {
		t.Errorf("the second is %s, %d replicas, because %q", m.State, len(m.Replicas), m.Capacity.ShortWhy)
	}
	g.describes("second", "Granted:", "0: there is no room: one replica takes 200 MiB of memory, the node has", "NoRoom")
	g.xebec("describe", "gateway").wants(t, "describe gateway", 0, "of 300 MiB of memory", "")
	if n := g.itself().Node; n == nil || n.Awake != 2 || n.Budget.MemoryBytes != 300<<20 || n.Free.MemoryBytes > 100<<20 || !strings.Contains(n.From, "--node-memory") {
		t.Errorf("the node is %+v", n)
	}
	judge(t, s.end(), "ok")
	if a := <-asked; !a.predicted() || a.text() != "hello" {
		t.Errorf("the query that waited is answered by %v", a)
	}
	g.awaitRunning("first.py", 0)
	g.awaitRunning("second.py", 1)
	if m := g.model("first"); len(m.Replicas) != 0 || m.State == api.ModelFailed {
		t.Errorf("the first is %s, with %d replicas", m.State, len(m.Replicas))
	}
}
