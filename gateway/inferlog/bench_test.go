package inferlog

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// benchRecords returns queries with n bytes of input, as random as a model's worst case.
func benchRecords(n int) (*Schema, []*Record) {
	s := &Schema{Function: "digits", Inputs: []api.TensorSpec{{Name: "x", DType: api.Uint8, Shape: []int64{int64(n)}}}, Outputs: digitsOut}
	random := rand.New(rand.NewSource(1))
	var all []*Record
	for i := range uint64(DefaultBlockBytes / n) {
		r := query(i)
		data := make([]byte, n)
		random.Read(data)
		r.Inputs = []api.Value{{Data: data}}
		all = append(all, r)
	}
	return s, all
}

// BenchmarkAdd is the cost on the query path while the writer keeps up: nothing is dropped.
func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{40, 3 << 10} {
		b.Run(fmt.Sprint(n, "B"), func(b *testing.B) {
			l := mustOpen(b, manualConfig(b.TempDir()))
			schema, records := benchRecords(n)
			s := l.Function(schema.Function, schema.Inputs, schema.Outputs, 1)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := range b.N {
				s.Add(records[i%len(records)])
				if i%len(records) == 0 {
					b.StopTimer()
					mustFlush(b, l)
					b.StartTimer()
				}
			}
			if d := l.Stats().Dropped.Total(); d > 0 {
				b.Fatalf("%d records were dropped", d)
			}
		})
	}
}

// BenchmarkAddTooFast is the cost on the query path when the writer cannot keep up: most records are dropped.
func BenchmarkAddTooFast(b *testing.B) {
	for _, n := range []int{40, 3 << 10} {
		b.Run(fmt.Sprint(n, "B"), func(b *testing.B) {
			l := mustOpen(b, Config{Dir: b.TempDir()})
			schema, records := benchRecords(n)
			s := l.Function(schema.Function, schema.Inputs, schema.Outputs, 1)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					s.Add(records[i%len(records)])
				}
			})
			b.ReportMetric(float64(l.Stats().Dropped.Busy)/float64(b.N), "dropped/op")
		})
	}
}

// BenchmarkWriter is the cost of a query to the writer's goroutine: compression, checksum and write.
func BenchmarkWriter(b *testing.B) {
	for _, n := range []int{40, 3 << 10} {
		b.Run(fmt.Sprint(n, "B"), func(b *testing.B) {
			l := mustOpen(b, manualConfig(b.TempDir()))
			schema, records := benchRecords(n)
			s := l.Function(schema.Function, schema.Inputs, schema.Outputs, 1)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := 0; i < b.N; {
				b.StopTimer()
				for _, r := range records {
					s.Add(r)
				}
				i += len(records)
				b.StartTimer()
				mustFlush(b, l)
			}
			stats := l.Stats()
			b.ReportMetric(float64(stats.WrittenBytes)/float64(stats.RawBytes), "written/raw")
		})
	}
}
