package apptest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// boxBytes is the memory of a gateway in a box, of which 256 MiB are its own reserve.
const boxBytes = 640 << 20

// box makes a cgroup with boxBytes of memory, in which a gateway can be started; "" where this process may not make one. It is removed
// after the gateway has ended.
func box(t *testing.T) string {
	t.Helper()
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounted, limit, own := "/sys/fs/cgroup", "memory.max", ""
	for line := range strings.Lines(string(membership)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] == "memory" {
			mounted, limit, own = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", fields[2]
			break
		}
		if len(fields) == 3 && fields[0] == "0" {
			own = fields[2]
		}
	}
	dir := filepath.Join(mounted, own, "box-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no cgroup can be made here: %v", err)
		return ""
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what an earlier failure has left
			if err == nil && d.IsDir() && path != dir {
				_ = os.Remove(path)
			}
			return nil
		})
		if err := os.Remove(dir); err != nil {
			t.Errorf("the gateway's cgroup is not empty after its end: %v", err)
		}
	})
	file, err := os.OpenFile(filepath.Join(dir, limit), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(strconv.Itoa(boxBytes))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Logf("the memory of a cgroup cannot be limited here: %v", err)
		return ""
	}
	return dir
}

// Replicas without limits cannot take the gateway's memory: a model that allocates without end is ended alone when all replicas
// together have taken what the gateway's cgroup has for them. Its exit is counted as oom, describe names the bound and the field to
// set, and gateway and neighbour are not affected; so for replicas that were started and for those that were forked. Where the machine
// allows no such bound, describe says that this layer is missing, and why.
func TestMemoryOfAllReplicas(t *testing.T) {
	t.Parallel()
	const eater = `
import xebec

def predict(batch):
    held = []
    while batch[0] == b"eat":
        held.append(b"x" * (1 << 20))
    return batch

xebec.serve(predict)
`
	models := newDir(t)
	var all strings.Builder
	for how, preload := range startsBoth {
		all.WriteString(pythonModel(t, models, how, eater, "batching: {policy: none}", "retry: false", preload, uncached) + function(how, how, "slo: 60s"))
	}
	all.WriteString(testModel("good", nil, uncached) + function("good", "good", "slo: 60s"))
	words := []string{programs.xebec, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--python", python(t), "--config", manifest(t, all.String())}
	boxed := box(t)
	if boxed != "" {
		words = append([]string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, boxed}, words...)
	}
	g := launchCommand(t, newDir(t), exec.Command(words[0], words[1:]...))
	g.ready()
	for how, preload := range startsBoth {
		m := g.awaitReplicas(how, 1)
		beganAs(t, preload, g.awaitRunning(how+".py", 1))
		layers, missing := strings.Join(m.Replicas[0].Isolation, "; "), strings.Join(m.Replicas[0].NotIsolated, " ")
		if bounded := strings.Contains(layers, "memory cgroup"); bounded == strings.Contains(missing, "Its memory is not bounded (no memory cgroup): ") {
			t.Fatalf("%s has the layers %q and lacks %q: expected a memory cgroup, or the reason why there is none", how, layers, missing)
		} else if !bounded {
			if boxed != "" {
				t.Errorf("%s has no memory cgroup, where this test could make one: %s", how, missing)
			}
			g.describes(how, "Not isolated", "Its memory is not bounded (no memory cgroup): ")
			return
		}
	}
	if boxed == "" {
		return // the machine's own memory would have to be taken
	}
	g.awaitReplicas("good", 1)
	for how := range startsBoth {
		if a := g.raw(how, "eat"); a.Status != 502 || a.Code != api.ReplicaLost.String() {
			t.Errorf("%s: the query that exhausts memory is answered by %v", how, a)
		}
		g.awaitModel(how, "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })
		g.describes(how, "all replicas together took more than 384 MiB", "(limits.memory)")
		g.awaitExits(1, how, "oom")
		if a := g.raw(how, "hello"); !a.predicted() || a.text() != "hello" {
			t.Errorf("%s: after the restart the model answers %v", how, a)
		}
	}
	if a := g.raw("good", "hello"); !a.predicted() {
		t.Errorf("the neighbour answers %v", a)
	}
	if m := g.model("good"); restarts(m) != 0 {
		t.Errorf("the neighbour was restarted: %s", lastExits(m))
	}
}
