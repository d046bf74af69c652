package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// twoKinds is a manifest with a compiled worker and a Python one.
func twoKinds(t *testing.T) string {
	dir := newDir(t)
	writeFile(t, dir, "models/py/model.py", "import xebec\nxebec.serve(lambda batch: batch)\n")
	writeFile(t, dir, "models/py/xebec.yaml", strings.Replace(testModel("py", nil), "command: [", "command: [python, model.py, ", 1)+function("py", "py", "slo: 60s"))
	writeFile(t, dir, "go.yaml", testModel("go", []string{"-spin", "1ms"}, "replicas: {min: 2}")+function("go", "go", "slo: 60s"))
	return dir
}

// The gateway is killed with SIGKILL under load. No worker, no reaper and nothing in /dev/shm is left. A new gateway
// takes over the data directory.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	config, dataDir := twoKinds(t), newDir(t)
	args := []string{"--config", config, "--data-dir", dataDir, "--python", python(t)}
	g := serve(t, args...)
	loads := []*load{g.startLoad("go", 8, maxLoad), g.startLoad("py", 4, maxLoad)}
	for _, l := range loads {
		l.served(100)
	}
	all := processesOf(g.dir)
	if len(all) < 5 { // gateway, reaper, three workers
		t.Errorf("the gateway's processes are %v: expected at least 5", all)
	}
	for _, p := range all {
		for _, path := range mapped(p.pid) {
			if strings.HasPrefix(path, "/dev/shm/") {
				t.Errorf("%v has mapped %s: expected no files in /dev/shm", p, path)
			}
		}
	}
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)
	for _, l := range loads {
		for _, o := range l.stop() {
			// A request without an answer has lost its connection. No answer is partial or wrong.
			if o.err == nil && (!o.answer.predicted() || o.answer.text() != o.sent) {
				t.Errorf("%q was answered by %v", o.sent, o.answer)
			}
		}
	}
	left, err := filepath.Glob("/dev/shm/*xebec*")
	if err != nil || len(left) > 0 {
		t.Errorf("/dev/shm has %v (%v)", left, err)
	}

	again := serve(t, args...)
	for _, name := range []string{"go", "py"} {
		if a := again.raw(name, "hello"); !a.predicted() || a.text() != "hello" {
			t.Errorf("after the restart %s answers %v", name, a)
		}
	}
}

// mapped lists the files that a process has mapped or holds open; none if it has ended.
func mapped(pid int) []string {
	var paths []string
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for _, line := range strings.Split(string(maps), "\n") {
		if fields := strings.Fields(line); len(fields) > 5 {
			paths = append(paths, fields[5])
		}
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		if path, err := os.Readlink(fd); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// The reaper is killed. Its workers end with it, a new reaper starts, and the service recovers.
func TestReaperKilled(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	for _, p := range processesOf(g.dir) {
		if strings.HasPrefix(p.name, "xebec-reaper") {
			kill(t, p.pid)
		}
	}
	g.awaitModel("m", "a new replica", func(m api.ModelStatus) bool { return restarts(m) > 0 && m.ReadyReplicas() == 1 })
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("after the restart the model answers %v", a)
	}
}

// On SIGTERM the gateway answers all accepted queries, those being evaluated and those that wait, and then ends with
// status 0.
func TestTermDrains(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "batching: {policy: none}", "timeout: 10m", "cache: off"), function("f", "m", "slo: 60s")), "--drain-timeout", "60s")
	release := occupy(g, "f", "m") // two queries, and
	const waiting = 10
	l := g.startLoad("f", waiting, waiting)
	g.awaitMetric(waiting, "queue_length", "m")
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.await("the gateway to drain", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.admin+"/readyz")
		return status == 503, body
	})
	release()
	l.wg.Wait()
	if ends := judge(t, l.stop(), "ok"); ends["ok"] != waiting {
		t.Errorf("the waiting queries ended in %v: expected %d predictions", ends, waiting)
	}
	g.gone(0)
	if _, err := g.post(bounded(t), "/f/predict", "text/plain", []byte("too late")); err == nil {
		t.Error("a request after the end was answered")
	}
}

// Under load too, each request is answered or finds no gateway. No answer is partial.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", []string{"-spin", "1ms"}, "replicas: {min: 2}"), function("f", "m", "slo: 60s")))
	l := g.startLoad("f", 16, maxLoad)
	l.served(200)
	g.stop()
	refused := 0
	for _, o := range l.stop() {
		switch {
		case o.err != nil:
			refused++
		case o.answer.predicted() && o.answer.text() == o.sent, o.answer.Code == "shutting_down":
		default:
			t.Errorf("%q was answered by %v", o.sent, o.answer)
		}
	}
	if refused > 16 { // each client stops at its first refused request
		t.Errorf("%d requests had no answer: expected at most 16, one for each client after the gateway's end", refused)
	}
}

// A second gateway with the ports or the data directory of the first ends with a message. The first is not affected.
func TestSecondGateway(t *testing.T) {
	t.Parallel()
	dataDir := newDir(t)
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")), "--data-dir", dataDir)
	for _, c := range []struct {
		what, says string
		args       []string
	}{
		{"function port", "--listen", []string{"--listen", g.functions, "--admin", "127.0.0.1:0"}},
		{"admin port", "--admin", []string{"--listen", "127.0.0.1:0", "--admin", g.admin}},
		{"data directory", "--data-dir", []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", dataDir}},
	} {
		second := launch(t, newDir(t), c.args...)
		second.gone(1)
		if text := second.logText(); !strings.Contains(text, "another gateway") || !strings.Contains(text, c.says) {
			t.Errorf("%s: the second gateway's log is\n%s\nexpected that it names another gateway, and %s", c.what, text, c.says)
		}
		if a := g.raw("f", c.what); a.text() != c.what {
			t.Errorf("%s: the first gateway answers %v", c.what, a)
		}
	}
	kill(t, g.model("m").Replicas[0].PID) // the socket still belongs to the first gateway: a new worker connects to it
	g.awaitModel("m", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })
}

// An invalid argument of serve ends it with a message that names the flag.
func TestServeArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--config", "/nowhere/at-all.yaml"}, 1, "/nowhere/at-all.yaml"},
		{[]string{"--config", manifest(t, "kind: Model\nname: m\ncolour: red\n")}, 1, ":3:1"},
		{[]string{"--config", manifest(t, function("f", "nobody"))}, 1, "nobody"},
		{[]string{"--admin", "0.0.0.0:0"}, 1, "loopback"},
		{[]string{"--max-body", "lots"}, 2, "--max-body"},
		{[]string{"--log-level", "loud"}, 1, "--log-level"},
		{[]string{"--data-dir", "/" + strings.Repeat("long/", 40)}, 1, "--data-dir"},
		{[]string{"--no-such-flag"}, 2, "--no-such-flag"},
	} {
		g := launch(t, newDir(t), append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, c.args...)...)
		g.gone(c.status)
		if !strings.Contains(g.logText(), c.says) {
			t.Errorf("the log of serve %v is\n%s\nexpected %q", c.args, g.logText(), c.says)
		}
	}
}
