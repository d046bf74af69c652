package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParentOf(t *testing.T) {
	for _, c := range []struct {
		stat string
		want int
		ok   bool
	}{
		{"42 (python) S 7 42 42 0", 7, true},
		{"42 (a ) b (c)) R 8 1", 8, true},
		{"42 (gone)", 0, false},
		{"", 0, false},
		{"42 (x) S up 1", 0, false},
	} {
		if got, ok := parentOf([]byte(c.stat)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: got %d, %v, want %d, %v", c.stat, got, ok, c.want, c.ok)
		}
	}
}

func TestBelow(t *testing.T) {
	parents := map[int]int{1: 0, 10: 1, 11: 10, 12: 11, 13: 11, 20: 1, 21: 20}
	for pid, want := range map[int][]int{10: {11, 12, 13}, 20: {21}, 21: nil} {
		got := below(pid, parents)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("below %d: got %v, want %v", pid, got, want)
		}
	}
}

func TestBusyTime(t *testing.T) {
	got, err := busyTime("cpu  100 1 20 99999 500 3 4 5 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || got != 1330*time.Millisecond {
		t.Errorf("got %v, %v, want 1.33s", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 three 4 5 6 7 8 9"} {
		if _, err := busyTime(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestUsageSince(t *testing.T) {
	began := time.Now()
	before := usage{began, 1e9, 2e9, 3e9, 10e9}
	after := usage{began.Add(2 * time.Second), 2e9, 3e9, 5e9, 15e9}
	want := CPU{Generator: 0.5, Gateway: 0.5, Workers: 1, Others: 0.5}
	if diff := cmp.Diff(want, after.since(before)); diff != "" {
		t.Error(diff)
	}
	after.busy = before.busy // a tick behind
	if got := after.since(before).Others; got != 0 {
		t.Errorf("others used %v: expected 0, not less", got)
	}
}

// With real processes: the child of a process is found, and its time does not count as the process's own.
func TestReadUsage(t *testing.T) {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	u, err := readUsage(os.Getpid())
	in.Close()
	if waited := child.Wait(); err != nil || waited != nil {
		t.Fatal(err, waited)
	}
	if u.workers <= 0 || u.gateway <= 0 || u.generator <= 0 || u.busy <= u.workers {
		t.Errorf("got %+v", u)
	}
}
