package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// neighbour is a model that runs as a process. It must answer whatever happens to others.
func neighbour() string {
	return testModel("neighbour", nil, uncached) + function("neighbour", "neighbour", "slo: 60s")
}

// nowhere is an image that no engine has. No registry listens at its address.
const nowhere = "127.0.0.1:9/xebec/nowhere:1"

// wantsFailed waits until a model in a container has failed, and checks that describe says why and that its function
// answers the default.
func (g *gateway) wantsFailed(name string, says ...string) {
	g.t.Helper()
	m := g.awaitModel(name, "it fails", func(m api.ModelStatus) bool { return m.State == api.ModelFailed })
	text := g.must("describe", "model", name)
	for _, s := range says {
		if !strings.Contains(lastExits(m), s) || !strings.Contains(text, s) {
			g.t.Errorf("%s: the last exit is %q: expected %q in it, and in\n%s", name, lastExits(m), s, text)
		}
	}
	g.wantsDefault(name)
}

// wantsDefault queries the function of a model without replicas. While a replica starts, the query may wait until its
// deadline.
func (g *gateway) wantsDefault(name string) {
	g.t.Helper()
	a := g.raw("f-"+name, "hello")
	if !a.Default || a.text() != defaultText || a.DefaultExplanation != api.NoReplica.Reason() && a.DefaultExplanation != api.DeadlineExceeded.Reason() {
		g.t.Errorf("%s: its function answers %v: expected the default with the reason %q", name, a, api.NoReplica.Reason())
	}
}

// defaulted is a function of a model, with a default.
func defaulted(name string) string { return function("f-"+name, name, "slo: 1s", theDefault) }

// A missing image, a program that ends at once, a program that the image does not have, and one that never connects to
// the gateway. Each declaration is accepted, describe says what is wrong and what to do, the default answers, and the
// neighbour is not affected.
func imagesThatCannotServe(t *testing.T, e *engine) {
	g := e.serve(t, "--config", manifest(t, neighbour()))
	l := g.startLoad("neighbour", 2, maxLoad)
	out := g.must("apply", "-f", manifest(t,
		imageModel(t, "nowhere", nowhere, "", uncached), defaulted("nowhere"),
		imageModel(t, "ends", e.image, "/unruly, ends", uncached), defaulted("ends"),
		imageModel(t, "missing", e.image, "/no/such/program", uncached), defaulted("missing"),
		imageModel(t, "mute", e.image, "/unruly, mute", uncached), defaulted("mute")))
	if !strings.Contains(out, "model nowhere@1 created") {
		t.Errorf("apply says\n%s", out)
	}
	g.wantsFailed("nowhere", "the image "+nowhere+" is not on this host", e.address, "docker pull "+nowhere, "docker load")
	g.wantsFailed("ends", "exited with code 1")
	g.wantsFailed("missing", "/no/such/program", e.image)
	g.xebec("describe", "model", "ends").wants(t, "describe", 0, "no weights in sight", "")
	g.xebec("apply", "-f", manifest(t, version(imageModel(t, "nowhere", nowhere, "", uncached), "2")), "--wait").
		wants(t, "apply and wait", 1, "nowhere@2 created", "the image "+nowhere+" is not on this host")

	m := g.awaitModel("mute", "the container to run", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 && m.Replicas[0].State == api.ReplicaRunning })
	if m.State != api.ModelStarting || restarts(m) > 0 {
		t.Errorf("the model whose program never connects is %s, with %d restarts", m.State, restarts(m))
	}
	g.wantsDefault("mute")
	g.must("delete", "function", "f-mute")
	g.must("delete", "model", "mute")
	e.awaitContainers(g, "mute", 0)
	l.served(20)
	judge(t, l.stop(), "ok")
	if restarts(g.model("neighbour")) > 0 {
		t.Error("the neighbour was restarted")
	}
}

// A model whose image is loaded after its declaration starts by itself.
func imageAppears(t *testing.T, e *engine) {
	late := fmt.Sprintf("127.0.0.1:9/%s-late", strings.Replace(e.image, ":", ":at-", 1))
	g := e.serve(t, "--config", manifest(t, imageModel(t, "late", late, "", uncached), defaulted("late")))
	g.wantsFailed("late", late)
	t.Cleanup(func() { e.docker(t, "rmi", late) })
	e.docker(t, "tag", e.image, late)
	g.awaitReplicas("late", 1)
	if a := g.raw("f-late", "hello"); !a.predicted() || a.text() != "hello" {
		t.Errorf("after its image was loaded the model answers %v", a)
	}
}

// A model that exceeds its memory limit is killed. Only its own query fails, and describe names the limit. A fork bomb is
// stopped at its limit of processes. Neither affects the neighbour, and both answer again.
func containerLimits(t *testing.T, e *engine) {
	g := e.serve(t, "--config", manifest(t, neighbour(),
		imageModel(t, "eats", e.image, "/unruly", "retry: false", "limits: {memory: 128MiB}", uncached), function("eats", "eats", "slo: 60s", theDefault),
		imageModel(t, "bomb", e.image, "/unruly", "retry: false", "limits: {pids: 64}", uncached), function("bomb", "bomb", "slo: 60s", theDefault)))
	l := g.startLoad("neighbour", 2, maxLoad)
	if a := g.raw("eats", "eat"); !a.Default || a.DefaultExplanation != api.ReplicaLost.Reason() {
		t.Errorf("the query that exhausts memory is answered by %v: expected the default with the reason %q", a, api.ReplicaLost.Reason())
	}
	m := g.awaitModel("eats", "a new replica", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 && restarts(m) == 1 })
	if exit := lastExits(m); !strings.Contains(exit, "128 MiB") || !strings.Contains(exit, "limits.memory") {
		t.Errorf("the last exit is %q: expected the limit and its name", exit)
	}
	if text := g.must("describe", "model", "eats"); !strings.Contains(text, "limits.memory") {
		t.Errorf("describe does not name the limit:\n%s", text)
	}
	if a := g.raw("eats", "bread"); a.text() != "bread" {
		t.Errorf("after the restart the model answers %v", a)
	}

	// At the limit the worker itself may be refused a thread. Then it ends, and its processes with it.
	a := g.raw("bomb", "bomb")
	if !strings.Contains(a.text(), "resource temporarily unavailable") && a.DefaultExplanation != api.ReplicaLost.Reason() {
		t.Errorf("the fork bomb is answered by %v, %q", a, a.text())
	}
	t.Logf("the fork bomb: %q, %q", a.text(), a.DefaultExplanation)
	g.await("the model to answer again", func(ctx context.Context) (bool, string) {
		a, err := g.post(ctx, "/bomb/predict", "text/plain", []byte("hello"))
		return err == nil && a.predicted() && a.text() == "hello", a.String()
	})
	g.must("delete", "function", "bomb")
	g.must("delete", "model", "bomb")
	e.awaitContainers(g, "bomb", 0) // and so no processes
	l.served(20)
	judge(t, l.stop(), "ok")
}

// A program that ignores SIGTERM is killed after the drain timeout, both when its model is deleted and when the gateway
// stops.
func containerStays(t *testing.T, e *engine) {
	g := e.serve(t, "--drain-timeout", "1s", "--config", manifest(t,
		imageModel(t, "a", e.image, "/unruly, stays"), imageModel(t, "b", e.image, "/unruly, stays"),
		function("a", "a", "slo: 60s"), function("b", "b", "slo: 60s")))
	for _, name := range []string{"a", "b"} {
		if a := g.raw(name, "hello"); !a.predicted() {
			t.Errorf("%s answers %v", name, a)
		}
	}
	g.must("delete", "function", "a")
	g.must("delete", "model", "a")
	e.awaitContainers(g, "a", 0)
	if a := g.raw("b", "hello"); !a.predicted() {
		t.Errorf("the other model answers %v", a)
	}
}

// A killed gateway leaves containers behind, running or not. The next one on its data directory removes them and starts
// its own. It does not touch other containers.
func gatewayOfContainersKilled(t *testing.T, e *engine) {
	args := []string{"--data-dir", newDir(t), "--drain-timeout", "1s"}
	g := e.serve(t, args...)
	g.apply(imageModel(t, "stays", e.image, "/unruly, stays"), imageModel(t, "ends", e.image, ""), function("f", "stays", "slo: 60s"), function("g", "ends", "slo: 60s"))
	foreign := []string{
		e.docker(t, "create", "--network", "none", e.image),
		e.docker(t, "create", "--network", "none", "--label", labelGatewayPID+"=1", "--label", labelModel+"=stays", e.image),
		e.docker(t, "run", "--detach", "--network", "none", "--entrypoint", "/unruly", "--label", "io.xebec.gateway=somebody", e.image, "mute"),
	}
	t.Cleanup(func() { e.docker(t, append([]string{"rm", "--force"}, foreign...)...) })
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)
	if left := e.containers(t, g, "stays"); len(left) != 1 {
		t.Fatalf("after its gateway was killed the model has the containers %v: expected one", left)
	}
	next := e.serve(t, args...)
	for _, name := range []string{"f", "g"} {
		if a := next.raw(name, "hello"); !a.predicted() || a.text() != "hello" {
			t.Errorf("after the restart %s answers %v", name, a)
		}
	}
	next.await("the killed gateway's containers to be removed", func(context.Context) (bool, string) {
		left := e.containers(t, g, "")
		return len(left) == 0, fmt.Sprint(left)
	})
	for i, id := range foreign {
		if state := e.docker(t, "inspect", "--format", "{{.State.Status}}", id); state != []string{"created", "created", "running"}[i] {
			t.Errorf("a container that is not the gateway's is %s", state)
		}
	}
}

// The engine is killed while models in containers serve. They keep serving. For one that ends meanwhile describe says
// that the engine is away, and the default answers. New models can be declared, and a model that runs as a process is not
// affected. When the engine is back all of them serve.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	g := e.serve(t, "--config", manifest(t, neighbour(),
		imageModel(t, "lives", e.image, "", uncached), defaulted("lives"), imageModel(t, "dies", e.image, "", uncached), defaulted("dies")))
	l := g.startLoad("neighbour", 2, maxLoad)
	g.awaitReplicas("lives", 1) // a worker may be ready before the engine has reported its start
	g.awaitReplicas("dies", 1)
	e.kill(t)
	for _, name := range []string{"lives", "dies"} {
		if a := g.raw("f-"+name, "hello"); !a.predicted() {
			t.Errorf("without its engine %s answers %v", name, a)
		}
	}
	kill(t, g.model("dies").Replicas[0].PID)
	g.must("apply", "-f", manifest(t, imageModel(t, "new", e.image, "", uncached), defaulted("new")))
	g.wantsFailed("dies", "the Docker engine at "+e.address)
	g.wantsFailed("new", "the Docker engine at "+e.address+" does not answer", "systemctl status docker", "DOCKER_HOST")
	if a := g.raw("f-lives", "hello again"); !a.predicted() || a.text() != "hello again" {
		t.Errorf("without its engine the running model answers %v", a)
	}
	l.served(20)

	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lives", "dies", "new"} {
		g.awaitModel(name, "a container of the engine that is back", func(m api.ModelStatus) bool {
			return m.ReadyReplicas() == 1 && (restarts(m) > 0 || name == "new")
		})
		if a := g.raw("f-"+name, "back"); !a.predicted() || a.text() != "back" {
			t.Errorf("when the engine is back %s answers %v", name, a)
		}
		e.awaitContainers(g, name, 1)
	}
	g.awaitLog("lives", "the Docker engine at "+e.address+" went away while it ran")
	l.served(20)
	judge(t, l.stop(), "ok")
}

// The engine hangs: it keeps its connections and answers nothing. Models in containers keep serving. For one whose
// process ends describe says so, and that the next replica waits for the engine. The gateway ends normally, without an
// error about processes that do not die, and the next one removes the containers that it could not remove.
func TestEngineHangs(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	args := []string{"--docker", e.address, "--data-dir", newDir(t), "--drain-timeout", "3s"}
	g := serve(t, append(args, "--config", manifest(t, neighbour(),
		imageModel(t, "lives", e.image, "", uncached), defaulted("lives"), imageModel(t, "dies", e.image, "", uncached), defaulted("dies"),
		imageModel(t, "stays", e.image, "/unruly, stays", uncached), defaulted("stays")))...)
	l := g.startLoad("neighbour", 2, maxLoad)
	for _, name := range []string{"lives", "dies", "stays"} {
		g.awaitReplicas(name, 1)
	}
	thaw := e.freeze(t)
	kill(t, g.model("dies").Replicas[0].PID)
	l.served(20)
	judge(t, l.stop(), "ok")
	g.await("describe to say that the replica has ended and what the next one waits for", func(context.Context) (bool, string) {
		text := g.must("describe", "model", "dies")
		return strings.Contains(text, "unknown exit code, because the Docker engine at "+e.address+" does not answer") &&
			strings.Contains(text, "the Docker engine at "+e.address+" does not answer: this replica has been waiting"), text
	})
	g.wantsDefault("dies")
	for _, name := range []string{"lives", "stays"} {
		if a := g.raw("f-"+name, "hello"); !a.predicted() {
			t.Errorf("beside a hung engine %s answers %v", name, a)
		}
	}

	stays := g.model("stays").Replicas[0].PID
	g.stop()
	if text := g.logText(); strings.Contains(text, "kernel") || strings.Contains(text, "has not ended") {
		t.Errorf("the gateway's log has errors about processes\n%s", tail(text, 20))
	}
	if out, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", stays)); err == nil && len(out) > 0 {
		t.Errorf("the containers %q still run", out)
	}
	thaw()
	next := e.serve(t, args...)
	next.await("the first gateway's containers to be removed", func(context.Context) (bool, string) {
		left := e.containers(t, g, "")
		return len(left) == 0, fmt.Sprint(left)
	})
	next.awaitReplicas("dies", 1)
}

// Without an engine, models in containers can be declared. describe says where the gateway looked for an engine and what
// to do. Their queries get the default, or 503, and other models are not affected.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	named, byEnv := "unix://"+filepath.Join(dir, "a.sock"), "unix://"+filepath.Join(dir, "b.sock")
	for _, c := range []struct {
		what string
		env  []string
		args []string
		says []string
	}{
		{"a flag", []string{"DOCKER_HOST=" + byEnv}, []string{"--docker", named}, []string{"the Docker engine at " + named + " does not answer", "systemctl status docker"}},
		{"the environment", []string{"DOCKER_HOST=" + byEnv}, nil, []string{"the Docker engine at " + byEnv + " does not answer", "DOCKER_HOST"}},
		{"another host", []string{"DOCKER_HOST=tcp://192.0.2.1:2375"}, nil, []string{"tcp://192.0.2.1:2375", "expected unix:///path of an engine on this host"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			g := launchWith(t, newDir(t), c.env, append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, c.args...)...)
			g.ready()
			g.apply(neighbour())
			l := g.startLoad("neighbour", 1, maxLoad)
			g.must("apply", "-f", manifest(t, imageModel(t, "m", nowhere, "", uncached), defaulted("m"), function("bare", "m", "slo: 100ms")))
			g.wantsFailed("m", c.says...)
			if a := g.raw("bare", "hello"); a.Status != 503 || a.Code != api.NoReplica.String() {
				t.Errorf("a function without a default answers %v: expected 503", a)
			}
			l.served(20)
			judge(t, l.stop(), "ok")
			g.must("delete", "function", "f-m")
			g.must("delete", "function", "bare")
			g.must("delete", "model", "m")
		})
	}
	g := launch(t, newDir(t), "--docker", "tcp://192.0.2.1:2375")
	g.gone(1)
	if text := g.logText(); !strings.Contains(text, "expected unix:///path") {
		t.Errorf("the log of serve --docker tcp:// is\n%s", text)
	}
}

// freeze stops an engine of the test's own until thaw is called.
func (e *engine) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return freeze(t, pid)
}
