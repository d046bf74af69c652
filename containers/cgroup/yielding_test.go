package cgroup

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/containers"
)

// checkQuiet makes a group quiet and normal again.
func checkQuiet(t *testing.T, g *Group) {
	t.Helper()
	for _, quiet := range []bool{true, false} {
		if err := g.SetQuiet(quiet); err != nil {
			t.Fatal(err)
		}
		for _, p := range g.parts {
			if !slices.Contains(p.hierarchy.resources, CPU) {
				continue
			}
			file, want := "cpu.shares", map[bool]string{true: "15", false: "1024"}
			if p.hierarchy.unified {
				file, want = "cpu.weight", map[bool]string{true: "1", false: "100"}
			}
			if fileExists(path.Join(p.dir, "cpu.idle")) { // since Linux 5.15
				if got, want := value(t, p.dir, "cpu.idle"), map[bool]string{true: "1", false: "0"}[quiet]; got != want {
					t.Errorf("quiet %v: cpu.idle is %s, expected %s", quiet, got, want)
				}
				if quiet {
					continue
				}
			}
			if got := value(t, p.dir, file); got != want[quiet] {
				t.Errorf("quiet %v: %s is %s, expected %s", quiet, file, got, want[quiet])
			}
		}
	}
}

// A group without a limit of processor time can yield. In version 1 it is beside the gateway, not below the directory of all
// groups: a thread of the gateway that wakes is compared with what is beside it.
func TestHostYielding(t *testing.T) {
	m := openHost(t)
	g, err := m.CreateYielding("test", containers.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	if (m.Unsupported(CPU) == nil) != (len(g.parts) == 1) {
		t.Fatalf("%d parts, but Unsupported returns %v", len(g.parts), m.Unsupported(CPU))
	}
	if len(g.parts) == 0 {
		return // openHost has said why
	}
	p := g.parts[0]
	if !p.hierarchy.unified && slices.Equal(p.hierarchy.resources, []Resource{CPU}) && path.Dir(p.dir) != p.hierarchy.own {
		t.Errorf("%s is not beside the gateway, in %s", p.dir, p.hierarchy.own)
	}
	pid := forked(t, g.Places(), "/bin/sleep", "1000")
	if !inGroup(g.Places()[0], pid) {
		t.Errorf("process %d was not started in %s", pid, p.dir)
	}
	if g.Places().Yield(); fileExists(p.dir+"/cpu.idle") && value(t, p.dir, "cpu.idle") != "1" {
		t.Error("it does not yield")
	}
	checkQuiet(t, g)
	Open("/", 0).Close() // its sweep leaves alone what is held
	if hasEnded(pid) {
		t.Error("the sweep of another Manager has ended the process")
	}
	g.Remove()
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) || !hasEnded(pid) {
		t.Errorf("%s after its removal: %v; its process has ended: %v", p.dir, err, hasEnded(pid))
	}
}

// A yielding group that a killed gateway has left is removed, with what is in it. A process that outlives the gateway removes
// it without touching what it is in.
func TestHostYieldingLeft(t *testing.T) {
	m := openHost(t)
	for _, h := range m.hierarchies {
		if h.unified || !slices.Equal(h.resources, []Resource{CPU}) {
			continue
		}
		device := h.base[strings.LastIndexByte(h.base, '-'):]
		dir := path.Join(h.own, prefix+strconv.Itoa(os.Getpid())+"-3"+device+"-1")
		make := func() Places {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return Places{{Dir: dir}}
		}
		pid := forked(t, nil, "/bin/sleep", "1000")
		if err := make().Add(pid); err != nil {
			t.Fatal(err)
		}
		openHost(t)
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: error %v, expected ErrNotExist", dir, err)
		}
		until(t, "the end of the process left behind", func() bool { return hasEnded(pid) })
		make().Remove()
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: error %v, expected ErrNotExist", dir, err)
		}
	}
}
