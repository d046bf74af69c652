package autoscale

import "testing"

// BenchmarkDecide measures a tick of a thousand models, each with its own load. A tenth of them sleep.
func BenchmarkDecide(b *testing.B) {
	const models = 1000
	scalers := make([]Scaler, models)
	samples := make([]Sample, models)
	for i := range samples {
		samples[i] = newWorld(nil).sample
		if i%10 == 0 {
			samples[i].Ready, samples[i].Wanted = 0, 0
		}
	}
	tick := func(n uint64) {
		for i := range samples {
			in := &samples[i]
			in.Now += 1e9
			if i%10 != 0 {
				in.Arrived += uint64(i)*20 + n*uint64(i)%1000
				in.LastArrival = in.Now
			}
			in.Wanted = scalers[i].Decide(in).Replicas
			in.Ready = in.Wanted
		}
	}
	for n := range uint64(120) {
		tick(n)
	}
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		tick(n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/models, "ns/model")
}
