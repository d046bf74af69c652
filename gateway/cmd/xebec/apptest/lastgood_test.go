package apptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// breakable makes a model's version that starts only while a file outside its directory exists, as weights on a mounted
// disk. It returns functions that remove the file and bring it back.
func breakable(t *testing.T, dir, name, version string, extra ...string) (breakIt, repair func()) {
	t.Helper()
	half, weights := filepath.Join(dir, name, "."+version), filepath.Join(newDir(t), "weights")
	script := "test -e " + weights + " || { echo no such weights >&2; exit 7; }\nexec \"$@\"\n"
	text := strings.Replace(versionYAML(name, version, extra...), "run: {command: [", "run: {isolation: none, command: [sh, run.sh, ", 1)
	writeFile(t, half, "run.sh", script)
	writeFile(t, half, "xebec.yaml", text)
	repair = func() { writeFile(t, filepath.Dir(weights), "weights", "") }
	repair()
	if err := os.Rename(half, filepath.Join(dir, name, version)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(weights); err != nil {
			t.Fatal(err)
		}
	}, repair
}

// A gateway that starts with a newest version that cannot start serves the one before it.
func TestRestartWithBrokenNewestVersion(t *testing.T) {
	t.Parallel()
	m := watch(t, func(dir string) { put(t, dir, "m", "1") })
	m.awaitServing("m@1")
	breakTwo, repair := breakable(t, m.dir, "m", "2")
	m.awaitServing("m@2")
	m.awaitVersions("1 declared, 2 available")
	m.stop()
	breakTwo()

	args := []string{"--models", m.dir, "--models-interval", often}
	again := serve(t, args...)
	again.await("version 1 to answer", versionServes(again, "m", "m@1"))
	st := again.version("m@2")
	if st.Version.Phase != api.PhaseLoading || !st.Version.Aspired {
		t.Errorf("the broken version is %+v: expected it to be tried still", st.Version)
	}
	clients := again.startCrowd("m", 2, "Xebec-Slo-Ms", patient)
	clients.served(10)
	// What it lacked is back, and it takes over.
	repair()
	again.await("version 2 to answer", versionServes(again, "m", "m@2"))
	clients.served(10)
	clients.judge(t, "m@1", "m@2")
}

// A gateway that starts with two newest versions that hang serves the one before them, which has served before.
func TestRestartWithHangingVersions(t *testing.T) {
	t.Parallel()
	data := filepath.Join(newDir(t), "data")
	m := testModel("m", nil, uncached)
	g := serve(t, "--data-dir", data)
	g.apply(m + function("f", "m", "slo: 60s"))
	g.awaitServing("m@1")
	for _, v := range []string{"2", "3"} {
		g.must("apply", "-f", manifest(t, strings.Replace(version(m, v), "command: [", `command: [sh, -c, "exec sleep 86400", `, 1)))
		g.awaitVersion("m@"+v, "its process to start", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 && m.Replicas[0].PID > 0 })
	}
	// The store knows after three seconds that version 3 has not served, and of version 2 because it was given up.
	g.awaitVersion("m@3", "it to load for long", func(m api.ModelStatus) bool {
		return m.Version.Phase == api.PhaseLoading && time.Since(m.Version.Since) > 4*time.Second
	})
	if !g.version("m@1").Serving {
		t.Error("version 1 does not serve while newer ones load")
	}
	g.stop()
	again := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", data)
	again.await("the gateway's addresses", again.readAddresses)
	again.await("version 1 to answer", versionServes(again, "f", "m@1"))
	if phase := again.version("m@2").Version.Phase; phase == api.PhaseAvailable {
		t.Errorf("version 2 has never had a replica and is %s", phase)
	}
}

// After a rollback the version that serves cannot start any more. One that was not rolled back answers, until it can.
func TestDeathAfterRollback(t *testing.T) {
	t.Parallel()
	var breakTwo, repair func()
	m := watch(t, func(dir string) {
		put(t, dir, "m", "1")
		breakTwo, repair = breakable(t, dir, "m", "2")
		put(t, dir, "m", "3")
	})
	m.awaitServing("m@3")
	m.must("traffic", "m", "--serving", "3")
	m.must("rollback", "m", "--to", "2", "--wait")
	m.awaitServing("m@2")
	breakTwo()
	for _, p := range m.workersOf("m@2") {
		kill(t, p.pid)
	}
	// A query that comes now waits for version 2, and is handed over.
	if a := m.raw("m", "hello", "Xebec-Slo-Ms", patient); !a.predicted() || a.Models[0] != "m@1" {
		t.Errorf("after the death of version 2 m answers %v", a)
	}
	m.awaitVersions("1 available, 2 available, 3 declared")
	clients := m.startCrowd("m", 2, "Xebec-Slo-Ms", patient)
	clients.served(10)
	repair()
	m.awaitServing("m@2")
	clients.served(10)
	clients.judge(t, "m@1", "m@2")
}

// A version that sleeps and cannot be woken, as while its host's container engine is away, is not given up: queries that wait
// for it are answered by the version before it, and it answers again when it can be woken.
func TestSleepingVersionThatCannotWake(t *testing.T) {
	t.Parallel()
	const sleeps = "replicas: {min: 0, idle: 300ms}"
	var breakTwo, repair func()
	m := watch(t, func(dir string) {
		put(t, dir, "m", "1", sleeps)
		breakTwo, repair = breakable(t, dir, "m", "2", sleeps)
	})
	m.await("version 2 to answer", versionServes(m.gateway, "m", "m@2"))
	m.awaitNoProcess("m@2")
	breakTwo()
	if a := m.raw("m", "hello", "Xebec-Slo-Ms", patient); !a.predicted() || a.Models[0] != "m@1" {
		t.Errorf("while version 2 cannot be woken m answers %v", a)
	}
	m.awaitServing("m@1")
	m.awaitNoProcess("m@2")
	repair()
	m.awaitServing("m@2") // although no query goes to it
	m.await("version 2 to answer again", versionServes(m.gateway, "m", "m@2"))
}

// Of applied versions the serving one is awake and the one before it is kept asleep, whatever its `min`. It answers who names
// it, and takes over when the serving version cannot start any more.
func TestAppliedVersionsKeepOneSpare(t *testing.T) {
	t.Parallel()
	const lines = "replicas: {min: 1, max: 1, idle: 300ms}"
	g := serve(t, "--data-dir", newDir(t))
	weights := filepath.Join(newDir(t), "weights")
	writeFile(t, filepath.Dir(weights), "weights", "")
	three := strings.Replace(testModel("m", nil, lines, uncached), "run: {command: [",
		`run: {isolation: none, command: [sh, -c, "test -e `+weights+` || exit 7; exec \"$@\"", sh, `, 1)
	g.apply(testModel("m", nil, lines, uncached), function("f", "m"))
	g.apply(version(testModel("m", nil, lines, uncached), "2"))
	g.awaitServing("m@2")
	g.apply(version(three, "3"))
	g.awaitServing("m@3")
	g.awaitNoProcess("m@2")
	g.awaitVersion("m@1", "it is unloaded", func(m api.ModelStatus) bool { return m.Version.Phase == api.PhaseDeclared && !m.Version.Aspired })
	g.awaitVersion("m@2", "it sleeps", func(m api.ModelStatus) bool { return m.Version.Phase == api.PhaseAvailable && m.ReadyReplicas() == 0 })
	if a := g.json("/v2/models/m/versions/2/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["hello"]}]}`); a.Status != 200 {
		t.Errorf("the spare answers %v", a)
	}
	if err := os.Remove(weights); err != nil {
		t.Fatal(err)
	}
	for _, p := range g.workersOf("m@3") {
		kill(t, p.pid)
	}
	if a := g.raw("f", "hello", "Xebec-Slo-Ms", patient); !a.predicted() || a.Models[0] != "m@2" {
		t.Errorf("after the death of version 3 f answers %v", a)
	}
	writeFile(t, filepath.Dir(weights), "weights", "")
	g.awaitServing("m@3")
	g.awaitNoProcess("m@2")
}
