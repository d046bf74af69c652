package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// A launch that fails leaves no cgroup.
func TestFailedLaunchLeavesNoGroup(t *testing.T) {
	r := newRuntime(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "garbage"), []byte("not a program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := r.Start(t.Context(), containers.Launch{
		Isolation: plain, Dir: dir, Command: []string{"garbage"}, Limits: containers.Limits{PIDs: 20, MemoryBytes: 64 << 20, CPUMillis: 1000},
	})
	var launchError *containers.LaunchError
	if !errors.As(err, &launchError) {
		t.Fatalf("error %v: expected a LaunchError", err)
	}
	checkNoGroups(t, r)
}

// checkNoGroups checks the directories of all cgroups of this process.
func checkNoGroups(t *testing.T, r *Runtime) {
	t.Helper()
	probe, err := r.cgroups().Create("probe", containers.Limits{PIDs: 20, MemoryBytes: 64 << 20, CPUMillis: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Remove()
	for _, p := range probe.Places() {
		entries, err := os.ReadDir(filepath.Dir(p.Dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != filepath.Base(p.Dir) && e.Name() != "gateway" {
				t.Errorf("left behind: %s", filepath.Join(filepath.Dir(p.Dir), e.Name()))
			}
		}
	}
}

// When the reaper is killed, the processes in the cgroups are killed too, and the cgroups removed.
func TestReaperKilledWithGroups(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	l := shell(t, `env -i setsid sleep 1000 & echo $!; echo ready; exec sleep 1000`, out)
	l.Limits = containers.Limits{PIDs: 20}
	in := start(t, r, l)
	stray, err := strconv.Atoi(out.until(t, "ready")[0])
	if err != nil {
		t.Fatal(err)
	}
	all := []watched{watch(t, "worker", in.PID())}
	dirs := groupDirs(in)
	if len(dirs) > 0 { // otherwise it is not found
		all = append(all, watch(t, "stray", stray))
	} else {
		defer unix.Kill(stray, unix.SIGKILL)
	}
	if err := unix.Kill(reaperOf(t, r), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); !strings.Contains(exit.Reason, "reaper") {
		t.Errorf("exit %+v: expected a reason that names the reaper", exit)
	}
	waitGone(t, all...)
	checkRemoved(t, dirs)
}

// A gateway that is killed leaves no cgroups: the reaper removes them.
func TestGatewayKilledWithGroups(t *testing.T) {
	gateway := exec.Command(self())
	gateway.Env = append(os.Environ(), modeEnv+"=limited gateway")
	gateway.Stderr = os.Stderr
	stdout, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	var all []watched
	for scan := bufio.NewScanner(stdout); scan.Scan() && scan.Text() != "ready"; {
		if pid, err := strconv.Atoi(scan.Text()); err == nil {
			all = append(all, watch(t, "process", pid))
		} else {
			dirs = append(dirs, scan.Text())
		}
	}
	if len(all) != 2 {
		t.Fatalf("the gateway printed %d processes, expected its replica and the reaper", len(all))
	}
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, all...)
	checkRemoved(t, dirs)
	if err := gateway.Wait(); err == nil {
		t.Error("the gateway exited with 0, expected the signal")
	}
}

// actLimitedGateway is a gateway with a replica that has limits. It prints its processes and cgroups, and waits to be
// killed.
func actLimitedGateway() {
	r, err := New(Config{})
	if err != nil {
		fatal(err)
	}
	l := launch(1, "sleep", newOutput())
	l.Limits = containers.Limits{CPUMillis: 1000, MemoryBytes: 1 << 30, PIDs: 100}
	in, err := r.Start(context.Background(), l)
	if err != nil {
		fatal(err)
	}
	for _, dir := range groupDirs(in) {
		fmt.Println(dir)
	}
	fmt.Println(in.PID())
	fmt.Println(r.link.cmd.Process.Pid)
	fmt.Println("ready")
	select {}
}
