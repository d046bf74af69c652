package server

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const (
	// maxSleepingBytes is how much heap a declared model may hold while it sleeps: a spec, a lane and its machine, a supervisor, an
	// entry in five tables. It was 4.9 KB when this was written. Ten thousand must fit 150 MB with the program and all that is fixed.
	maxSleepingBytes = 7_500
	// maxWokenBytes is how much more it may hold once it has been awake, for its counters and histograms: 20 KB when this was written.
	maxWokenBytes = 30_000
)

// sleepingModels are models from..to-1, none of which runs.
func sleepingModels(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "---\nkind: Model\nname: sleeper-%05d\nversion: \"1\"\ninputs: [{name: input, dtype: float32, shape: [64]}]\noutputs: [{name: output, dtype: int64, shape: []}]\n"+
			"run: {command: [python, model.py]}\nreplicas: {min: 0, max: 1, idle: 1s}\ncache: off\n", i)
	}
	return b.String()
}

// heapBytes is what is reachable.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what lies in pools goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestSleepingModelsAreSmall(t *testing.T) {
	for _, store := range []string{"nowhere", "in a file"} {
		t.Run("kept "+store, func(t *testing.T) {
			cfg := Config{Python: "/opt/python"}
			if store == "in a file" {
				cfg.DataDir = t.TempDir()
			}
			s, _, _ := alive(t, cfg)
			const first, n = 200, 2000 // the first ones make what is made once
			mustApply(t, s, sleepingModels(0, first))
			before := heapBytes()
			mustApply(t, s, sleepingModels(first, first+n))
			each := (heapBytes() - before) / n
			t.Logf("%d bytes for each of %d models", each, n)
			if each > maxSleepingBytes {
				t.Errorf("%d bytes for each of %d models that sleep, expected at most %d: what only awake models need is to be made when they wake", each, n, maxSleepingBytes)
			}
		})
	}
}

func TestModelsThatWereAwakeAreSmall(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	const first, n = 50, 200
	mustApply(t, s, sleepingModels(0, first+n))
	wake := func(from, to int) {
		var clients sync.WaitGroup
		for i := from; i < to; i++ {
			clients.Go(func() {
				code, text := post(t, addr, fmt.Sprintf("/v2/models/sleeper-%05d/infer", i), `{"inputs": [{"name": "input", "shape": [1, 64], "datatype": "FP32", "data": [`+strings.Repeat("0, ", 63)+`0]}]}`)
				if code != 200 {
					t.Errorf("%d %s", code, text)
				}
			})
		}
		clients.Wait()
		until(t, "all sleep again", func() bool {
			return rt.alive() == 0 && s.capacity.Awake() == 0 && s.path.Open() == 0
		})
		http.DefaultClient.CloseIdleConnections()
	}
	wake(0, first)
	before := heapBytes()
	wake(first, first+n)
	each := (heapBytes() - before) / n
	t.Logf("%d bytes for each of %d models", each, n)
	if each > maxWokenBytes {
		t.Errorf("%d bytes for each of %d models that were awake and sleep again, expected at most %d: what a replica needs is to go with it", each, n, maxWokenBytes)
	}
}

// A gateway without awake models leaves no garbage: the check of each second allocates nothing per model.
func TestSupervisingSleepersAllocatesNothing(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleepingModels(0, 100))
	if n := testing.AllocsPerRun(10, func() { s.catalog.JudgeRollouts() }); n > 5 {
		t.Errorf("%v allocations to look at 100 models without a roll-out", n)
	}
}

func TestMemoryIsReleasedWhileNoModelIsAwake(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleepingModels(0, 1))
	sleeper := deployed(s, "sleeper-00000", "1")
	idle := func() bool { return s.capacity.Awake() == 0 && s.path.Open() == 0 }
	checks := func(r *releaser, n int) (released int) {
		for range n {
			if r.check() {
				released++
			}
		}
		return released
	}
	until(t, "it sleeps", idle)
	r := &releaser{idle: idle, log: s.log, since: allocatedBytes()}
	if checks(r, 3*releaseAfter) != 0 {
		t.Error("memory was released although nothing had been allocated")
	}
	litter := func() { runtime.KeepAlive(make([]byte, releaseBytes+1)) }
	litter()
	if checks(r, 1) != 1 || checks(r, releaseAfter) != 0 {
		t.Error("allocated memory was not released once")
	}
	litter()
	sleeper.Load(1)
	if checks(r, 2*releaseAfter) != 0 {
		t.Error("memory was released while a model was awake")
	}
	sleeper.Release()
	until(t, "it sleeps", idle)
	if checks(r, releaseAfter-1) != 0 || checks(r, 1) != 1 {
		t.Errorf("memory was not released at check %d that found the gateway idle", releaseAfter)
	}
}

// The limit leaves room for garbage above what lives, on every machine, so that collections are not without end.
func TestHeapLimit(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		what                     string
		total, live, fixed, want int64
	}{
		{"three eighths of the memory", 1000 * mib, 100 * mib, 10 * mib, 375 * mib},
		{"the same, with nothing in the heap", 400 * mib, 0, 0, 150 * mib},
		{"a full cache in little memory", 500 * mib, 296 * mib, 15 * mib, 380 * mib},
		{"a full cache in more memory", 1600 * mib, 296 * mib, 15 * mib, 600 * mib},
		{"a cache that is larger than the memory", 200 * mib, 256 * mib, 0, 320 * mib},
	} {
		got := heapLimit(test.total, test.live, test.fixed)
		if got != test.want {
			t.Errorf("%s: %d MiB, expected %d", test.what, got/mib, test.want/mib)
		}
		if room := got - test.live - test.fixed; room < garbageBytes {
			t.Errorf("%s: %d bytes of room for garbage, expected at least %d", test.what, room, garbageBytes)
		}
	}
}
