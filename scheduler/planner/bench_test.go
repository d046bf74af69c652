package planner

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
)

// largeInput returns an Input with the given number of models, four replicas each, and two functions a model. Every
// tenth model receives four times the traffic of the others, every fourth shares a device with three others, every
// seventh function has a budget, and every third is an ensemble. Functions have one to four candidates among eight
// neighbours. overload multiplies all rates.
func largeInput(models int, overload float64) *Input {
	rng := rand.New(rand.NewPCG(1, uint64(models)))
	in := &Input{Now: 1e9, EpochNanos: 10e6, Devices: make([]Device, (models+15)/16)}
	capacity := make([]float64, models)
	for i := range models {
		m := Model{Key: uint64(i + 1), Device: -1, Cost: rng.Float64(), MaxBatch: 256, HoldNanos: int64(rng.IntN(2)) * 1e6}
		share := 4.0
		if i%4 == 0 {
			m.Device = int32(i / 16)
			share = 1
		}
		a, s := 1e5+rng.Float64()*5e6, 1e3+rng.Float64()*1e5
		b := 8 + rng.IntN(120)
		for r := range 4 {
			m.Replicas = append(m.Replicas, Replica{
				ID: scheduler.ReplicaID(i*4 + r + 1), Cap: b, Settled: true, Samples: 1000, InterceptNanos: a, SlopeNanos: s, Outstanding: rng.IntN(8),
			})
		}
		capacity[i] = share * float64(b) * 1e9 / (a + s*float64(b))
		in.Models = append(in.Models, m)
	}
	for i := range 2 * models {
		f := Function{Key: uint64(i + 1), Weight: 1 + float64(rng.IntN(3)), SLONanos: []int64{20e6, 50e6, 200e6}[rng.IntN(3)]}
		first := i / 2
		f.Rate = overload * capacity[first] * (0.1 + 0.2*rng.Float64())
		if first%10 == 0 {
			f.Rate *= 4
		}
		if i%3 == 0 {
			f.Mode = All
		}
		for c := range 1 + rng.IntN(4) {
			f.attach(in, i, first&^7+(first+c)%8, 1-0.2*float64(c)*rng.Float64())
		}
		if i%7 == 0 {
			f.Budget = f.Rate * 0.5
		}
		in.Functions = append(in.Functions, f)
	}
	return in
}

// cpuNanos is the CPU time of the process so far.
func cpuNanos(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkPlan measures one plan. With 1,000 models, quiet has 11 overloaded resources and 44 models with contended
// resources; mixed has 50 and 207, busy 138 and 471, crowded 744 and 995.
func BenchmarkPlan(b *testing.B) {
	for _, models := range []int{104, 1000, 4000} {
		for _, load := range []struct {
			name string
			of   float64
		}{{"quiet", 0.05}, {"mixed", 0.3}, {"busy", 0.7}, {"crowded", 3}} {
			b.Run(fmt.Sprintf("%dx%d/%s", models, 4*models, load.name), func(b *testing.B) {
				in, p, out := largeInput(models, load.of), New(), &Output{}
				p.Plan(in, out)
				b.ReportAllocs()
				cpu := cpuNanos(b)
				for b.Loop() {
					in.Now += 10e6
					p.Plan(in, out)
				}
				b.ReportMetric(float64(cpuNanos(b)-cpu)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
