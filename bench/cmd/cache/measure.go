package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// cacheMebibytes are the bounds of the hit ratios: about a fortieth and a tenth of the total size of the skewed workloads' objects.
var cacheMebibytes = []int{2, 8}

var ratioContenders = []contender{ours, library, clock}

// Ratio is the hit ratio of each contender under a workload.
type Ratio struct {
	Workload     string             `json:"workload"`
	Sizes        string             `json:"sizes"`
	MaxMebibytes int                `json:"max_mebibytes"`
	HitRatio     map[string]float64 `json:"hit_ratio"`
	// HeapMebibytes is the growth of the heap at the end. The simulation has no such number.
	HeapMebibytes map[string]float64 `json:"heap_mebibytes"`
}

func measureRatio(w *workload, z sizing, mebibytes int) Ratio {
	r := Ratio{w.Name, z.Name, mebibytes, map[string]float64{}, map[string]float64{}}
	buf := make([]byte, 12_288)
	warm := len(w.requests) / 10
	for _, c := range ratioContenders {
		before := heap()
		call := c.open(int64(mebibytes) << 20)()
		hits := 0
		for i, object := range w.requests {
			in := buf[:z.of(object)]
			binary.LittleEndian.PutUint64(in, uint64(object))
			if call.ask(in) && i >= warm {
				hits++
			}
		}
		r.HitRatio[c.name] = float64(hits) / float64(len(w.requests)-warm)
		if c.name != clock.name {
			r.HeapMebibytes[c.name] = float64(heap()-before) / (1 << 20)
		}
		runtime.KeepAlive(call)
	}
	return r
}

// costKind is one operation whose cost is measured.
type costKind struct {
	Hit        bool `json:"hit"` // otherwise a miss and its fill, with an eviction
	InputBytes int  `json:"input_bytes"`
	Parallel   bool `json:"parallel"` // on all cores, otherwise in one goroutine
}

func (k costKind) String() string {
	what, on := "miss and fill", "one goroutine"
	if k.Hit {
		what = "hit"
	}
	if k.Parallel {
		on = fmt.Sprintf("%d goroutines", runtime.GOMAXPROCS(0))
	}
	return fmt.Sprintf("%s, %d B in, %s", what, k.InputBytes, on)
}

var costs = []costKind{
	{true, 256, false}, {true, 256, true}, {true, 3136, false}, {true, 3136, true},
	{false, 256, false}, {false, 256, true}, {false, 3136, false}, {false, 3136, true},
}

// Cost is the cost of one operation for each contender, round by round.
type Cost struct {
	costKind
	Rounds []map[string]Sample `json:"rounds"`
}

// Sample is one run.
type Sample struct {
	Nanos     float64 `json:"ns"`     // elapsed time divided by the operations of all goroutines
	CPUNanos  float64 `json:"cpu_ns"` // of all cores, including the garbage collector and the library's own goroutines
	Allocs    float64 `json:"allocs"`
	HeapBytes float64 `json:"heap_bytes"` // allocated
}

const (
	costMebibytes = 16
	hitObjects    = 1000
)

// measureCost runs ours and the library in turn.
func measureCost(ctx context.Context, k costKind, rounds int, duration time.Duration) (Cost, error) {
	c := Cost{costKind: k}
	for round := range rounds {
		samples := map[string]Sample{}
		for _, subject := range runner.Rotate(round, ours, library) {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			s, err := sample(subject, k, costMebibytes, duration)
			if err != nil {
				return c, fmt.Errorf("%s: %s: %w", k, subject.name, err)
			}
			samples[subject.name] = s
		}
		c.Rounds = append(c.Rounds, samples)
	}
	return c, nil
}

// sample fills a cache until it evicts, or with the objects that are to be hit, and then measures for the duration.
func sample(subject contender, k costKind, mebibytes int, duration time.Duration) (Sample, error) {
	open := subject.open(int64(mebibytes) << 20)
	first := open()
	in := make([]byte, k.InputBytes)
	warm := 2 * (mebibytes << 20) / k.InputBytes
	if k.Hit {
		warm = 4 * hitObjects
	}
	for i := range warm {
		object := uint64(i)
		if k.Hit {
			object %= hitObjects
		}
		binary.LittleEndian.PutUint64(in, object)
		first.ask(in)
	}
	goroutines := 1
	if k.Parallel {
		goroutines = runtime.GOMAXPROCS(0)
	}
	operations, wrong := make([]int, goroutines), make([]int, goroutines)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, err := machine.CPUTime(os.Getpid())
	if err != nil {
		return Sample{}, err
	}
	start := time.Now()
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() { operations[g], wrong[g] = ask(open(), k, uint64(g), start.Add(duration)) })
	}
	all.Wait()
	took := time.Since(start)
	cpuAfter, err := machine.CPUTime(os.Getpid())
	if err != nil {
		return Sample{}, err
	}
	runtime.ReadMemStats(&after)
	n, bad := 0, 0
	for g := range goroutines {
		n, bad = n+operations[g], bad+wrong[g]
	}
	if bad > n/100 {
		return Sample{}, fmt.Errorf("%d of %d operations were not what was to be measured", bad, n)
	}
	each := func(x float64) float64 { return x / float64(n) }
	return Sample{
		Nanos: each(float64(took.Nanoseconds())), CPUNanos: each(float64((cpuAfter - cpu).Nanoseconds())),
		Allocs: each(float64(after.Mallocs - before.Mallocs)), HeapBytes: each(float64(after.TotalAlloc - before.TotalAlloc)),
	}, nil
}

// ask runs operations until the given time. It reads the clock every 256 operations.
func ask(call caller, k costKind, goroutine uint64, until time.Time) (n, wrong int) {
	in := make([]byte, k.InputBytes)
	rng := rand.NewPCG(goroutine, 7)
	next := (goroutine + 1) << 40
	for n == 0 || time.Now().Before(until) {
		for range 256 {
			if k.Hit {
				next = rng.Uint64() % hitObjects
			} else {
				next++
			}
			binary.LittleEndian.PutUint64(in, next)
			if call.ask(in) != k.Hit {
				wrong++
			}
			n++
		}
	}
	return n, wrong
}
