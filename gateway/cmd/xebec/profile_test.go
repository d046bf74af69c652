package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// The replica with most queries is profiled, or the one that is asked for.
func TestBusiestReplica(t *testing.T) {
	version := func(v string, replicas ...api.ReplicaStatus) api.ModelStatus {
		return api.ModelStatus{Spec: api.ModelSpec{Name: "m", Version: v}, Replicas: replicas}
	}
	ready := func(id, queries uint64) api.ReplicaStatus {
		return api.ReplicaStatus{ID: id, PID: int(id), State: api.ReplicaReady, Queries: queries}
	}
	models := []api.ModelStatus{version("1", ready(1, 5), ready(2, 9)), version("2", ready(3, 7), api.ReplicaStatus{ID: 4, State: api.ReplicaBackoff, Queries: 99})}
	for _, c := range []struct {
		version string
		number  uint64
		want    uint64 // 0: an error
	}{{"", 0, 2}, {"2", 0, 3}, {"", 1, 1}, {"", 4, 0}, {"2", 1, 0}, {"3", 0, 0}} {
		r, _, err := busiest(models, api.ModelID{Name: "m", Version: c.version}, c.number)
		switch {
		case c.want == 0 && (err == nil || !strings.Contains(err.Error(), "that is ready")):
			t.Errorf("version %q, replica %d: %v, %v, expected an error", c.version, c.number, r, err)
		case c.want != 0 && (err != nil || r.ID != c.want):
			t.Errorf("version %q, replica %d: %v, %v, expected replica %d", c.version, c.number, r, err, c.want)
		}
	}
}

// The Python process of an isolated replica is below the process that the gateway knows.
func TestPythonBelow(t *testing.T) {
	proc := t.TempDir()
	process := func(pid int, command, children string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(filepath.Join(dir, "task", strconv.Itoa(pid)), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": command + "\x00model.py\x00", "task/" + strconv.Itoa(pid) + "/children": children} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(10, "/proc/self/exe", "11 12 ")
	process(11, "sh", "13 99 ")
	process(12, "tail", "")
	process(13, "/opt/venv/bin/python3.12", "")
	process(20, "./model", "")
	process(30, "loop", "30 ")
	for pid, want := range map[int]int{10: 13, 13: 13, 20: 0, 30: 0, 77: 0} {
		if got, err := pythonBelow(proc, pid); got != want || (err == nil) != (want != 0) {
			t.Errorf("below %d: %d, %v, expected %d", pid, got, err, want)
		}
	}
}

// What is missing is said before anything is asked, and where to get it.
func TestProfileNeedsPySpy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	x := newConsole("")
	if code, _, stderr := x.run(t.Context(), "profile", "m"); code != 1 || !strings.Contains(stderr, "pip install py-spy") {
		t.Errorf("status %d: %s", code, stderr)
	}
	x = newConsole("")
	if code, _, stderr := x.run(t.Context(), "profile", "m", "--admin", "https://gateway.example:1338"); code != 1 || !strings.Contains(stderr, "on the machine of the gateway") {
		t.Errorf("status %d: %s", code, stderr)
	}
	x = newConsole("")
	if code, _, stderr := x.run(t.Context(), "profile", "m", "--format", "speedscop"); code != 2 || !strings.Contains(stderr, "did you mean speedscope?") {
		t.Errorf("status %d: %s", code, stderr)
	}
}
