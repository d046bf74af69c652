package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// largeInput returns an input of models that want four replicas each, on nodes with room for about the part room of
// that. Every eighth model has GPUs, every fifth a Min, every third is idle.
func largeInput(models, nodes int, room float64) *Input {
	rng := rand.New(rand.NewPCG(1, uint64(models+nodes)))
	in := &Input{Now: 1e12}
	var sum Resources
	for i := range models {
		m := Model{
			Key: uint64(i + 1), Weight: float64(1 + i%3), Wanted: 4, Rate: float64(rng.IntN(100)), LastUsed: in.Now,
			Takes: Resources{CPUMillis: 100 + rng.Int64N(1000), MemoryBytes: 100<<20 + rng.Int64N(2<<30)},
		}
		if i%8 == 0 {
			m.Takes.GPUs = 1
		}
		if i%5 == 0 {
			m.Min = 1
		}
		if i%3 == 0 {
			m.LastUsed = in.Now - IdleNanos - 1e9
		}
		sum.CPUMillis += 4 * m.Takes.CPUMillis
		sum.MemoryBytes += 4 * m.Takes.MemoryBytes
		sum.GPUs += 4 * m.Takes.GPUs
		in.Models = append(in.Models, m)
	}
	for i := range nodes {
		part := room / float64(nodes)
		in.Nodes = append(in.Nodes, Node{Key: uint64(i + 1), Budget: Resources{
			CPUMillis: int64(part * float64(sum.CPUMillis)), MemoryBytes: int64(part * float64(sum.MemoryBytes)), GPUs: int64(part * float64(sum.GPUs)),
		}})
	}
	return in
}

// applyPlan makes the planned replicas run.
func applyPlan(in *Input, out *Output) {
	nodes := len(in.Nodes)
	for i := range in.Models {
		in.Models[i].Placed = append(in.Models[i].Placed[:0], out.Placed[i*nodes:(i+1)*nodes]...)
	}
}

// swapIdle makes idle models used, and every third of the others idle.
func swapIdle(in *Input) {
	for i := range in.Models {
		in.Models[i].LastUsed = in.Now
		if i%3 == 1 {
			in.Models[i].LastUsed = in.Now - IdleNanos - 1e9
		}
	}
}

// BenchmarkPlan measures one plan of 1,000 models that want 4,000 replicas. fresh: nothing runs; still: everything runs
// as planned; turned: a third of the models becomes idle and another third is used again.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{1, 16} {
		for _, room := range []float64{1.5, 0.5} {
			for _, state := range []string{"fresh", "still", "turned"} {
				b.Run(fmt.Sprintf("nodes=%d/room=%g/%s", nodes, room, state), func(b *testing.B) {
					in, p, out := largeInput(1000, nodes, room), New(), &Output{}
					p.Plan(in, out)
					if state != "fresh" {
						applyPlan(in, out)
					}
					if state == "turned" {
						swapIdle(in)
					}
					p.Plan(in, out)
					b.ReportAllocs()
					for b.Loop() {
						p.Plan(in, out)
					}
				})
			}
		}
	}
}
