package capacity

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Two processes of a gateway need the replicas of both at once. What does not fit is said with the figures.
func TestFitsTwice(t *testing.T) {
	b := newBench(t, 1<<30)
	m := b.join("m", "replicas: {min: 2, max: 2}\nresources: {memory: 200MiB, cpu: 1}")
	m.Serve(false)
	if err := b.FitsTwice(); err != nil {
		t.Errorf("800 MiB of 1024 and 4 cores of 4: %v", err)
	}
	other := b.join("other", "replicas: {min: 1, max: 1}\nresources: {memory: 200MiB}")
	other.Serve(false)
	if err := b.FitsTwice(); err == nil || !strings.Contains(err.Error(), "4 cores, 1200 MiB") || !strings.Contains(err.Error(), "it has 4 cores, 1024 MiB") {
		t.Errorf("1200 MiB of 1024: %v", err)
	}
	b.setPreloaded(1, 0)
	other.Release()
	until(t, "its process to end", func() bool { return other.set.Len() == 0 })
	if err := b.FitsTwice(); err != nil {
		t.Errorf("after the version has ended: %v", err)
	}
	b.setPreloaded(1, 200*mib) // the other process has a zygote of its own
	if err := b.FitsTwice(); err == nil {
		t.Error("800 MiB and two zygotes of 200 MiB fit into 1024 MiB")
	}
}

// A process that takes over starts as many replicas as the process before has, within the bounds that are declared, also of versions
// that could sleep. When that process has gone, their own queries decide.
func TestKeepAtLeast(t *testing.T) {
	b := newBench(t, 1<<30)
	sleeper := b.join("sleeper", "replicas: {min: 0, max: 2}")
	steady := b.join("steady", "replicas: {min: 1, max: 4}")
	never := b.join("never", "replicas: {min: 0, max: 1}")
	id := func(name string) api.ModelID { return api.ModelID{Name: name, Version: "1"} }
	b.KeepAtLeast(map[api.ModelID]int{id("sleeper"): 5, id("steady"): 3, {Name: "steady", Version: "0"}: 1})
	if got := strings.Join(b.Missing(), "; "); got != "sleeper@1 has 0 of 5 replicas; steady@0 has 0 of 1 replica; steady@1 has 0 of 3 replicas" {
		t.Errorf("before anything is loaded: %s", got)
	}
	for _, f := range []*fake{sleeper, steady, never} {
		f.Load(1)
		f.Serve(false)
	}
	b.tick()
	if sleeper.Asked() != 2 || steady.Asked() != 3 || never.Asked() != 0 {
		t.Errorf("they have %d, %d and %d replicas: want 2, 3 and 0", sleeper.Asked(), steady.Asked(), never.Asked())
	}
	sleeper.connect(1)
	sleeper.connect(2)
	steady.connect(1)
	if got := strings.Join(b.Missing(), "; "); got != "steady@1 has 1 of 3 replicas" {
		t.Errorf("with one replica of three: %s", got)
	}
	steady.connect(2)
	steady.connect(3)
	if got := b.Missing(); got != nil { // another version of steady answers in the place of version 0
		t.Errorf("with all: %v", got)
	}
	if got := b.Replicas(); len(got) != 2 || got[id("sleeper")] != 2 || got[id("steady")] != 3 {
		t.Errorf("Replicas returns %v", got)
	}
	steady.model.Ready.Add(-3)
	if got := b.Replicas(); len(got) != 1 || got[id("sleeper")] != 2 {
		t.Errorf("while no replica of steady is ready, Replicas returns %v", got)
	}
	steady.model.Ready.Add(3)
	if got := b.Failing(); got != "" {
		t.Errorf("nothing fails: %s", got)
	}
	steady.crashing = true
	if got := b.Failing(); got != "" {
		t.Errorf("all replicas are ready: %s", got)
	}
	steady.model.Ready.Add(-1)
	if got := b.Failing(); got != "replicas of steady@1 cannot be started: the process before has 3, this one 2; the last start: exited with code 3" {
		t.Errorf("a version of which one replica cannot start: %q", got)
	}
	steady.model.Ready.Add(1)
	if got := b.Replicas(); len(got) != 1 || got[id("sleeper")] != 2 {
		t.Errorf("while steady crashes: %v", got)
	}
	b.KeepAtLeast(nil)
	if b.Missing() != nil {
		t.Error("something is missing although nothing is wanted")
	}
}
