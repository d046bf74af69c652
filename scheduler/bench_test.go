package scheduler

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// roundTrip is one round trip of queries through a machine: they arrive, are sent in batches, come back and are answered.
type roundTrip struct {
	m     *Machine
	acts  Actions
	now   api.Nanos
	items []Item
	res   api.BatchResult
	mixed bool // deadlines in mixed order
}

func newRoundTrip(queries, functions int) *roundTrip {
	tn := &roundTrip{m: New(Config{Retry: true, Hedge: true, Batching: Batching{Policy: AIMD, MaxBatch: queries, ObjectiveNanos: 1e9}}), items: make([]Item, queries)}
	for range functions {
		tn.m.AddFunction(1)
	}
	for i := range tn.items {
		tn.items[i].Function = int32(i % functions)
		tn.items[i].Inputs = []api.Value{{Data: make([]byte, 64)}}
	}
	tn.m.ReplicaReady(0, 1, 2)
	tn.m.ReplicaReady(0, 2, 2)
	return tn
}

func (tn *roundTrip) run(tb testing.TB) {
	ended := 0
	for i := range tn.items {
		it := &tn.items[i]
		it.Arrived, it.Deadline, it.Expires = tn.now, tn.now+20e6, tn.now+20e6
		if tn.mixed {
			it.Deadline += api.Nanos(i*7919%1000) * 1e4
		}
		tn.m.Arrive(tn.now, it)
	}
	tn.m.Ready(tn.now, &tn.acts)
	for len(tn.acts.Dispatches) > 0 || len(tn.acts.Ends) > 0 {
		ended += len(tn.acts.Ends)
		tn.now += 1e4
		for _, d := range tn.acts.Dispatches {
			tn.res = api.BatchResult{ID: d.Batch.ID, EvalNanos: 1e4}
			tn.m.BatchDone(tn.now, d.Replica, &tn.res)
		}
		if tn.m.NextWake() <= tn.now {
			tn.m.Advance(tn.now)
		}
		tn.m.Ready(tn.now, &tn.acts)
	}
	if ended != len(tn.items) {
		tb.Fatalf("%d of %d queries ended", ended, len(tn.items))
	}
}

// cpuNanos is the CPU time of the process so far.
func cpuNanos(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkQueries measures the core alone: one operation is one query from Arrive to its End.
func BenchmarkQueries(b *testing.B) {
	for _, c := range []struct {
		queries, functions int
		mixed              bool
	}{{1, 1, false}, {32, 1, false}, {512, 1, false}, {512, 8, false}, {4096, 1, true}} {
		name := fmt.Sprintf("%d at once, %d functions, mixed %v", c.queries, c.functions, c.mixed)
		b.Run(name, func(b *testing.B) {
			tn := newRoundTrip(c.queries, c.functions)
			tn.mixed = c.mixed
			for range 2000 {
				tn.run(b)
				if tn.m.replicas[0].controller.cap() >= c.queries {
					break
				}
			}
			b.ReportAllocs()
			cpu := cpuNanos(b)
			b.ResetTimer()
			for n := 0; n < b.N; n += c.queries {
				tn.run(b)
			}
			b.ReportMetric(float64(cpuNanos(b)-cpu)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
		})
	}
}
