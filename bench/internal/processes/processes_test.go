package processes

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A server is found with the child that it started, and with the one whose parent has ended.
func TestOfFindsChildrenAndOrphans(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `(sleep 600 & echo $!) ; env -i sleep 600 & echo $!; wait`)
	cmd.Env = []string{"PEER_RUN=processes-test", "PATH=/usr/bin:/bin"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	want := map[int]bool{cmd.Process.Pid: true}
	for range 2 {
		if !lines.Scan() {
			t.Fatal("the shell ended")
		}
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatal(err)
		}
		want[pid] = true
	}
	set, err := Of(cmd.Process.Pid, "PEER_RUN=processes-test")
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]bool{}
	for _, p := range set {
		got[p.PID] = true
	}
	for pid := range want {
		if !got[pid] {
			t.Errorf("process %d is missing in %v", pid, set)
		}
	}
	if len(got) != len(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	memory, err := set.Memory()
	if err != nil || memory < 64<<10 {
		t.Errorf("memory %d, %v", memory, err)
	}
	if n := set.Signal(syscall.SIGKILL); n != 3 {
		t.Errorf("%d processes got the signal, want 3", n)
	}
	_ = cmd.Wait() // killed
	if n := (Set{{cmd.Process.Pid, "0"}}).Signal(syscall.Signal(0)); n != 0 {
		t.Error("a process that started at another time got a signal")
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3"
	got, ok := parseStat([]byte(line))
	if !ok || got != (stat{7, "S", "987654"}) {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := parseStat([]byte("42 (a) S 7")); ok {
		t.Error("a short line was accepted")
	}
}

func TestParsePss(t *testing.T) {
	got, err := parsePss([]byte("55-7f ---p 0 00:00 0 [rollup]\nRss:    100 kB\nPss:      37 kB\nPss_Anon: 1 kB\n"))
	if err != nil || got != 37 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := parsePss([]byte("Rss: 1 kB\n")); err == nil {
		t.Error("no Pss, and no error")
	}
}
