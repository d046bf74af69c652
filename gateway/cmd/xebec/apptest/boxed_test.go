package apptest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A model that exceeds its memory limit is killed, described as such and started again. Its query is answered by the
// default or by a code, and its neighbour is not affected. On a machine where the gateway cannot make cgroups the model
// gets a MemoryError instead, and describe says so. All of this also holds for a worker that was forked from a zygote.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for how, preload := range startsBoth {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			eats(t, preload)
		})
	}
}

// startsBoth are the two ways in which a Python replica starts, with the manifest line that selects each.
var startsBoth = map[string]string{"started": "preload: []", "forked": "preload: [json]"}

// beganAs fails unless the replicas were started as the line says.
func beganAs(t *testing.T, preload string, replicas []process) {
	t.Helper()
	for _, p := range replicas {
		if preload == startsBoth["forked"] {
			wantsForked(t, p)
		}
	}
}

func eats(t *testing.T, preload string) {
	m := pythonModel(t, newDir(t), "eater", `
import xebec

def predict(batch):
    if batch[0] == b"eat":
        held = []
        while True:
            held.append(b"x" * (1 << 20))
    return batch

xebec.serve(predict)
`, "limits: {memory: 100MiB}", "batching: {policy: none}", "retry: false", preload, uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, testModel("good", nil, uncached),
		function("f", "eater", "slo: 60s"), function("g", "eater", "slo: 60s", theDefault), function("good", "good", "slo: 60s")))
	g.awaitReplicas("good", 1)
	s := g.startStream("good", 50)
	defer func() {
		judge(t, s.end(), "ok")
		if m := g.model("good"); restarts(m) != 0 {
			t.Errorf("the neighbour was restarted, want no restart: %s", lastExits(m))
		}
	}()
	before := g.awaitReplicas("eater", 1)
	beganAs(t, preload, g.awaitRunning("eater.py", 1))
	g.describes("eater", "Limits:", "100MiB of memory")

	code, bound := api.ReplicaLost, true
	if unenforced(before, "limits.memory") {
		code, bound = api.ModelError, false
		g.describes("eater", "Not enforced:", "limits.memory (100MiB) does not bind a replica as a whole")
	}
	for i := 1; i <= 2; i++ {
		if i == 1 {
			if a := g.raw("f", "eat"); a.Status != 502 || a.Code != code.String() {
				t.Errorf("the query that exhausts memory is answered by %v: expected %s", a, code)
			}
		} else if a := g.raw("g", "eat"); !a.Default || a.text() != defaultText || a.DefaultExplanation != code.Reason() {
			t.Errorf("the query that exhausts memory is answered by %v: expected the default with the reason %q", a, code.Reason())
		}
		if bound {
			g.awaitModel("eater", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == i && m.ReadyReplicas() == 1 })
		}
		if a := g.raw("f", "hello"); !a.predicted() || a.text() != "hello" {
			t.Errorf("after the memory error the model answers %v", a)
		}
	}
	if bound {
		g.describes("eater", "ended by SIGKILL: it took more than its memory limit of 100MiB (limits.memory)")
		g.awaitExits(2, "eater", "oom")
	} else {
		g.describes("eater", "MemoryError")
	}
}

// A model that cannot start within its memory limit fails, with the reason. With a higher limit it serves.
func TestMemoryLimitTooSmall(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	declared := func(limit string) string {
		return pythonModel(t, dir, "large", "held = b'x' * (100 << 20)\nimport xebec\nxebec.serve(lambda batch: batch)\n", "limits: {memory: "+limit+"}", uncached)
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, declared("50MiB"), function("f", "large", "slo: 60s")))
	m := g.awaitModel("large", "the model to fail", func(m api.ModelStatus) bool { return m.State == api.ModelFailed })
	says := "it took more than its memory limit of 50MiB (limits.memory)"
	if unenforced(m, "limits.memory") {
		says = "MemoryError"
	}
	g.describes("large", "failed, 0 of 1 replica ready", says)
	g.must("delete", "function", "f")
	g.must("delete", "model", "large")
	g.apply(declared("500MiB"), function("f", "large", "slo: 60s"))
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("with a sufficient limit the model answers %v", a)
	}
}

// A fork bomb is held at its limit of processes, and all its processes end with the replica. If the limit is not enforced
// on this machine describe says so, and the test does not start the bomb.
func TestProcessLimit(t *testing.T) {
	t.Parallel()
	for how, preload := range startsBoth {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			forks(t, preload)
		})
	}
}

func forks(t *testing.T, preload string) {
	const most = 32
	m := pythonModel(t, newDir(t), "bomb", `
import os
import signal
import xebec

def predict(batch):
    if batch[0] != b"fork":
        return batch
    first = os.getpid()
    while True:
        try:
            os.fork()
        except OSError:
            break
    if os.getpid() == first:
        os._exit(7)
    signal.pause()

xebec.serve(predict)
`, fmt.Sprintf("limits: {pids: %d}", most), "batching: {policy: none}", "retry: false", preload, uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "bomb", "slo: 60s")))
	before := g.awaitReplicas("bomb", 1)
	beganAs(t, preload, g.awaitRunning("bomb.py", 1))
	g.describes("bomb", "Limits:", fmt.Sprintf("%d processes and threads", most))
	if unenforced(before, "limits.pids") {
		g.describes("bomb", "Not enforced:", fmt.Sprintf("limits.pids (%d) is not enforced", most))
		return
	}
	if a := g.raw("f", "fork"); a.Code != api.ReplicaLost.String() {
		t.Errorf("the query that starts the bomb is answered by %v", a)
	}
	g.awaitModel("bomb", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })
	g.awaitRunning("bomb.py", 1)
	text := g.describes("bomb", "exited with code 7, after new processes or threads had been refused", fmt.Sprintf("its limit is %d (limits.pids)", most))
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("after the restart the model answers %v\n%s", a, text)
	}
}

// A replica that ignores SIGTERM is killed after the drain timeout, both when the model is scaled down and when it is
// deleted.
func TestReplicasThatStay(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "stubborn", `
import signal
import time
import xebec

try:
    xebec.serve(lambda batch: batch)
finally:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("staying", flush=True)
    while True:
        time.sleep(60)
`, "replicas: {min: 2}", uncached)
	g := serve(t, "--python", python(t), "--drain-timeout", "1s", "--config", manifest(t, m, function("f", "stubborn", "slo: 60s")))
	g.awaitReplicas("stubborn", 2)
	s := g.startStream("f", 50)
	s.served(10)
	g.must("scale", "stubborn", "--replicas", "1")
	g.awaitRunning("stubborn.py", 1)
	s.served(10)
	judge(t, s.end(), "ok")
	text := g.describes("stubborn", "1 of 1 replica ready", "staying")
	if !strings.Contains(text, "did not end within 1s of SIGTERM and is killed") && !strings.Contains(text, "it asked to leave and stayed") {
		t.Errorf("describe does not say why the replica was killed:\n%s", text)
	}
	g.must("delete", "function", "f")
	g.must("delete", "model", "stubborn")
	g.awaitRunning("stubborn.py", 0)
}

// The next gateway that needs cgroups removes those of a gateway that was killed. A gateway that ends leaves no cgroup of
// a replica.
func TestGroupsAreRemoved(t *testing.T) {
	t.Parallel()
	limited := manifest(t, testModel("m", nil, "limits: {pids: 100}", uncached), function("f", "m", "slo: 60s"))
	begin := func() *gateway {
		g := serve(t, "--config", limited)
		m := g.awaitReplicas("m", 1)
		if len(groupsOf(t, g)) == 0 && !unenforced(m, "limits.pids") {
			t.Error("a gateway with a limited replica has neither a cgroup nor a note that the limit is not enforced")
		}
		return g
	}
	killed := begin()
	kill(t, killed.cmd.Process.Pid)
	killed.gone(-1)
	ended := begin()
	if left := groupsOf(t, killed); len(left) > 0 {
		t.Errorf("the killed gateway's cgroups %v are left after the next gateway has started", left)
	}
	ended.stop()
	for _, dir := range groupsOf(t, ended) {
		if strings.Contains(filepath.Base(dir), "m@1") || strings.HasPrefix(filepath.Base(dir), "m-") {
			t.Errorf("the cgroup %s is left after the gateway has ended", dir)
		}
	}
}

// groupsOf returns the directories of the cgroups that a gateway has made.
func groupsOf(t *testing.T, g *gateway) (found []string) {
	t.Helper()
	prefix := fmt.Sprintf("/xebec-%d-", g.cmd.Process.Pid)
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, prefix) {
			found = append(found, path)
		}
		return nil // directories of others may vanish during the walk
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
