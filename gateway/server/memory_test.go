package server

import (
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"go.uber.org/zap"
)

const (
	// maxSleepingBytes is what a declared model may hold in the heap while it sleeps. It is 4.9 KB as this is written: a spec, a lane and its
	// machine, a supervisor, a place in five tables. Ten thousand are to fit 150 MB with the program and all that is fixed.
	maxSleepingBytes = 7_500
	// maxWokenBytes is what it may hold beyond that once it has been awake: its counters and histograms, 20 KB.
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

// What is kept of a spec is equal to what was declared, and shared where the one before it says the same.
func TestSpecsShareWhatIsEqual(t *testing.T) {
	const text = "kind: Model\nname: %s\nversion: \"%s\"\ninputs: [{name: %s, dtype: float32, shape: [64]}]\noutputs: [{name: output, dtype: int64, shape: []}]\n" +
		"run: {command: [python, %s], env: {A: b}}\npreload: [numpy]\nreplicas: {min: 0, max: 1}\n"
	s := newServer(Config{}.withDefaults(), zap.NewNop())
	kept := make([]api.ModelSpec, 0, 4)
	for _, of := range [][]any{{"a", "1", "input", "model.py"}, {"b", "1", "input", "model.py"}, {"b", "2", "other", "model.py"}, {"c", "2", "other", "other.py"}} {
		spec := decoded(t, fmt.Sprintf(text, of...)).Models[0]
		got := s.compactLocked(spec)
		if !reflect.DeepEqual(got, spec) {
			t.Errorf("declared %+v\nkept %+v", spec, got)
		}
		kept = append(kept, got)
	}
	same := func(i, j int) [3]bool {
		a, b := &kept[i], &kept[j]
		return [3]bool{&a.Inputs[0] == &b.Inputs[0], &a.Run.Command[0] == &b.Run.Command[0], &a.Preload[0] == &b.Preload[0]}
	}
	if got, want := [][3]bool{same(0, 1), same(1, 2), same(2, 3)}, [][3]bool{{true, true, true}, {false, true, true}, {true, false, true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("inputs, command and preload are shared: %v, expected %v", got, want)
	}
	if kept[0].Inputs[0].Name != "input" || kept[0].Run.Command[1] != "model.py" || kept[0].Version != "1" {
		t.Errorf("the first has changed with the others: %+v", kept[0])
	}
}

// A rate is of what was counted since the look before, also where nothing had been then.
func TestRates(t *testing.T) {
	var e obs.Endpoint
	r, now := new(rate), time.Unix(1000, 0)
	look := func(after time.Duration) float64 {
		now = now.Add(after)
		return r.look(e.Read(), now).QueriesPerSecond
	}
	if got := look(0); got != 0 || r.last != nil {
		t.Errorf("%v queries/s at the first look, and %v is kept of nothing", got, r.last)
	}
	e.Observe(api.OK, 3, 1e6)
	if got := look(2 * time.Second); got != 1.5 {
		t.Errorf("%v queries/s, expected 3 in 2 s", got)
	}
	e.Observe(api.OK, 2, 1e6)
	if got := look(rateEvery / 2); got != 1.5 {
		t.Errorf("%v queries/s when asked again too soon, expected the same as before", got)
	}
	if got := look(rateEvery * 3 / 2); got != 1 {
		t.Errorf("%v queries/s, expected 2 in 2 s", got)
	}
	if got := look(time.Second); got != 0 {
		t.Errorf("%v queries/s, expected 0", got)
	}
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
	s, _, addr := alive(t, Config{})
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
		until(t, s, "all sleep again", func() bool {
			for _, d := range s.models {
				if d.set.Len() > 0 {
					return false
				}
			}
			return s.capacity.awake() == 0
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

// A gateway in which nobody is awake leaves no garbage: what is done every second for each of ten thousand models is done without.
func TestSupervisingSleepersAllocatesNothing(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleepingModels(0, 100))
	if n := testing.AllocsPerRun(10, func() { s.judgeRollouts() }); n > 5 {
		t.Errorf("%v allocations to look at 100 models without a roll-out", n)
	}
}

func TestMemoryIsGivenBackWhileNobodyIsAwake(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleepingModels(0, 1))
	d := deploymentOf(s, "sleeper-00000", "1")
	sleeps := func() { until(t, s, "it sleeps", func() bool { return s.capacity.awake() == 0 && s.gw.Open() == 0 }) }
	looks := func(y *tidy, n int) (gave int) {
		for range n {
			if y.look() {
				gave++
			}
		}
		return gave
	}
	sleeps()
	y := &tidy{s: s, since: allocatedBytes()}
	if looks(y, 3*tidyAfter) != 0 {
		t.Error("memory was given back although nothing has been allocated")
	}
	litter := func() { runtime.KeepAlive(make([]byte, tidyBytes+1)) }
	litter()
	if looks(y, 1) != 1 || looks(y, tidyAfter) != 0 {
		t.Error("what was allocated was not given back once")
	}
	litter()
	s.capacity.load(d, 1)
	if looks(y, 2*tidyAfter) != 0 {
		t.Error("memory was given back while somebody was awake")
	}
	s.capacity.release(d)
	sleeps()
	if looks(y, tidyAfter-1) != 0 || looks(y, 1) != 1 {
		t.Errorf("memory was not given back at the %dth look at which nobody was awake", tidyAfter)
	}
}
