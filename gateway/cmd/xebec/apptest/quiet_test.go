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

// priority says how quiet a process is: whether its cgroup yields processors (cpu.idle), and its niceness.
func priority(pid int) (idle bool, nice int) {
	kernel, _ := syscall.Getpriority(syscall.PRIO_PROCESS, pid)
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(groups)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			b, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", fields[1], fields[2], "cpu.idle"))
			idle = idle || strings.TrimSpace(string(b)) == "1"
		}
	}
	return idle, 20 - kernel
}

// A version that loads beside one that serves does so at the lowest priority, and has the gateway's own when it serves. It rehearses
// before, and its description says so.
func TestLoadsQuietly(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, versionYAML("m", "1")+function("f", "m", "slo: 60s")))
	g.awaitServing("m@1")
	_, own := priority(g.cmd.Process.Pid)
	if idle, nice := priority(g.awaitReplicas("m", 1).Replicas[0].PID); idle || nice != own {
		t.Errorf("the first version: idle %v, niceness %d: expected the gateway's own, %d", idle, nice, own)
	}
	gate := filepath.Join(newDir(t), "gate")
	g.must("apply", "-f", manifest(t, strings.Replace(versionYAML("m", "2"), "run: {command: [",
		`run: {isolation: none, command: [sh, -c, "until [ -e `+gate+` ]; do sleep 0.02; done; exec \"$@\"", sh, `, 1)))
	loading := g.awaitVersion("m@2", "a process", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 && m.Replicas[0].PID > 0 })
	pid := loading.Replicas[0].PID
	if idle, nice := priority(pid); !idle && nice == own {
		if strings.Contains(g.logText(), "CAP_SYS_NICE") {
			t.Skip("this process may neither make cgroups nor raise a niceness; TestQuietWithoutPermission of containers/process covers that")
		}
		t.Errorf("while it loads: idle %v, niceness %d: expected a lower priority", idle, nice)
	}
	if a := g.raw("f", "recent"); !a.predicted() {
		t.Fatalf("a query while the second version loads: %v", a)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := g.awaitServing("m@2").Version.Rehearsal; r == nil || r.Recent != 1 || r.Replicas != 1 || r.Evaluated < 1 || r.Failed != 0 {
		t.Errorf("rehearsal %+v: expected evaluations of one query", r)
	}
	g.await("it has the gateway's priority", func(context.Context) (bool, string) {
		idle, nice := priority(pid)
		return !idle && nice == own, fmt.Sprintf("idle %v, niceness %d", idle, nice)
	})
	if said := g.must("describe", "model", "m@2"); !strings.Contains(said, "Rehearsal:") || !strings.Contains(said, "of 1 recent query on 1 replica") {
		t.Errorf("describe says nothing of the rehearsal:\n%s", said)
	}
}
