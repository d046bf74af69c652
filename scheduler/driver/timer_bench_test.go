package driver

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// tally owns many items and closes done after the last release.
type tally struct {
	left atomic.Int64
	done chan struct{}
}

func (o *tally) Answered(*scheduler.Item, api.Code) {}
func (o *tally) Released(*scheduler.Item, api.Code) {
	if o.left.Add(-1) == 0 {
		close(o.done)
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

// BenchmarkDeadlines: 100,000 queries wait in one lane without replicas, each for its own deadline within a second. One
// turn is all of them, from the first Submit to the last answer. A turn is mostly waiting, which cpu-ns/query leaves
// out.
func BenchmarkDeadlines(b *testing.B) {
	const queries, withinNanos = 100_000, 1_000_000_000
	cfg := scheduler.DefaultConfig()
	cfg.MaxQueue = queries
	c := NewClock()
	defer c.Close()
	l := NewLane(cfg, c)
	l.AddFunction(1)
	items := make([]scheduler.Item, queries)
	cpu, looks := cpuNanos(b), c.looks.Load()
	for b.Loop() {
		o := &tally{done: make(chan struct{})}
		o.left.Store(queries)
		now := c.Now()
		for i := range items {
			at := now + withinNanos/5 + api.Nanos(rand.Int64N(withinNanos))
			items[i].Owner, items[i].Query = o, api.Query{Arrived: now, Deadline: at, Expires: at}
			l.Submit(&items[i])
		}
		<-o.done
	}
	n := float64(b.N) * queries
	b.ReportMetric(float64(cpuNanos(b)-cpu)/n, "cpu-ns/query")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/query")
	b.ReportMetric(float64(c.looks.Load()-looks)/b.Elapsed().Seconds(), "looks/s")
	b.ReportMetric(float64(l.LateNanos().Quantile(0.5)), "P50-late-ns")
	b.ReportMetric(float64(l.LateNanos().Quantile(0.99)), "P99-late-ns")
}

// BenchmarkClock measures the cost of the clock. "steady" is one lane that always has a deadline 100 µs after the last,
// the most that a lane can ask for; "idle lanes" adds 5,000 lanes with far deadlines.
func BenchmarkClock(b *testing.B) {
	for _, bc := range []struct {
		name string
		idle int
	}{{"steady", 0}, {"steady, 5000 idle lanes", 5000}} {
		b.Run(bc.name, func(b *testing.B) {
			c := NewClock()
			defer c.Close()
			idle := make([]sleeper, bc.idle)
			for i := range idle {
				idle[i].init(func() {})
				c.watch(&idle[i], hour+api.Nanos(i)*1e6)
			}
			rung := make(chan struct{}, 1)
			var s sleeper
			s.init(func() {
				c.watch(&s, c.Now()+1e5)
				rung <- struct{}{}
			})
			c.watch(&s, c.Now())
			cpu, looks := cpuNanos(b), c.looks.Load()
			for b.Loop() {
				<-rung
			}
			b.ReportMetric(float64(c.looks.Load()-looks)/b.Elapsed().Seconds(), "looks/s")
			b.ReportMetric(float64(cpuNanos(b)-cpu)/float64(b.Elapsed().Nanoseconds())*100, "cpu-%")
			go func() { // the last one must not block Close
				for range rung {
				}
			}()
			c.Close()
			close(rung)
		})
	}
}

// BenchmarkTimers measures a Stop and the Set that follows it, with 100,000 alarms outstanding.
func BenchmarkTimers(b *testing.B) {
	c := NewClock()
	defer c.Close()
	ts := NewTimers(c)
	alarms := make([]Alarm, 100_000)
	for i := range alarms {
		ts.Set(&alarms[i], hour+api.Nanos(i)*1e4)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		a := &alarms[i]
		if i++; i == len(alarms) {
			i = 0
		}
		ts.Stop(a)
		ts.Set(a, 2*hour+api.Nanos(i)*1e4)
	}
}
