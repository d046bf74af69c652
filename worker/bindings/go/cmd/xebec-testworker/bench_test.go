//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// benchmark sends batches of 64 queries of 256 bytes to a worker process, inFlight at a time. The time per batch
// includes the wake-ups of both processes. It also reports the worker's processor time per batch, start-up included.
func benchmark(b *testing.B, inFlight int, flags ...string) {
	in := []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{64}}}
	out := []api.TensorSpec{{Name: "output", DType: api.Int64}}
	g := gatewaytest.New(b, in, out)
	cmd := exec.Command(os.Args[0], flags...)
	cmd.Env = childEnv(g)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	g.Start(cmd.Wait)
	batch := make(gatewaytest.Columns, 1)
	for range 64 {
		batch[0] = append(batch[0], api.Value{Data: make([]byte, 256)})
	}
	r := g.Request(wire.KindPredict, batch, 1024)
	g.Answer(r, wire.StatusOK)
	b.ReportAllocs()
	for b.Loop() {
		for range inFlight {
			r.Batch++
			g.Put(&r)
		}
		for range inFlight {
			if res := g.Response(); res.Status != wire.StatusOK {
				b.Fatalf("response %+v", res)
			}
		}
	}
	g.Drain()
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*inFlight), "worker-cpu-ns/batch")
}

func BenchmarkNoopRing(b *testing.B)    { benchmark(b, 1) }
func BenchmarkNoopSocket(b *testing.B)  { benchmark(b, 1, "-no-ring") }
func BenchmarkNoopRing8(b *testing.B)   { benchmark(b, 8) }
func BenchmarkNoopSocket8(b *testing.B) { benchmark(b, 8, "-no-ring") }
