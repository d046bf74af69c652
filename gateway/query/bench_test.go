package query

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// loopback is a replica that answers every batch before Send returns, as far as its lane can tell.
type loopback struct {
	l   *driver.Lane
	res api.BatchResult
}

func (r *loopback) Send(b *api.Batch) error {
	for _, q := range b.Queries {
		if cap(q.Outputs) == 0 {
			q.Outputs = make([]api.Value, 1)
		}
		q.Outputs = q.Outputs[:1]
		q.Outputs[0].Data = append(q.Outputs[0].Data[:0], q.Inputs[0].Data[:8]...)
		q.Confidence = 0.5
	}
	r.res = api.BatchResult{ID: b.ID, EvalNanos: 1000}
	r.l.BatchDone(1, &r.res)
	return nil
}

func (r *loopback) Kill(string) {}

// silent is a replica that takes everything and answers nothing.
type silent struct{}

func (silent) Send(*api.Batch) error { return nil }
func (silent) Kill(string)           {}

// core is a function over models with real lanes, caches and a real policy, without HTTP and without workers.
type core struct {
	g  *Path
	fn *Function
	n  atomic.Uint64
}

func newCore(tb testing.TB, policy string, models int, cacheBytes int64, replica func(*driver.Lane) driver.Replica) *core {
	clock := driver.NewClock()
	tb.Cleanup(clock.Close)
	c := cache.New(cacheBytes)
	g := New(Config{Now: clock.Now, Cache: c, Timers: driver.NewTimers(clock), Ready: func() (bool, string) { return true, "" }})
	tb.Cleanup(g.Close)
	fn := &Function{Name: "f", SLO: time.Minute, Stats: new(obs.Endpoint), Learning: new(obs.Learning), Losses: make([]obs.Loss, models)}
	var refs []string
	for i := range models {
		refs = append(refs, fmt.Sprintf("m%d", i))
		l := driver.NewLane(scheduler.DefaultConfig(), clock)
		l.AddFunction(1)
		l.AddReplica(1, replica(l), 0)
		m := NewModel(api.ModelID{Name: refs[i], Version: "1"}, floats4, l, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		if cacheBytes > 0 {
			m.Cache = c.Model()
			m.Told.Store(true)
			m.CacheOn.Store(true)
		}
		fn.Candidates = append(fn.Candidates, Candidate{Model: m})
	}
	p, err := selection.New(policy, nil, refs)
	if err != nil {
		tb.Fatal(err)
	}
	fn.Selects, fn.Mode, fn.Selector = policy != "single", p.Mode(), learned.New(learned.Config{}).Declare("f", p, refs)
	return &core{g: g, fn: fn}
}

// submit hands in one query with an input that nobody has asked before.
func (c *core) submit(render func(*call), slo time.Duration) {
	cl := c.g.newCall()
	cl.arrived = c.g.cfg.Now()
	cl.fn, cl.model, cl.stats, cl.slo, cl.render = c.fn, c.fn.Candidates[0].Model, c.fn.Stats, api.Nanos(slo), render
	vals, err := cl.Next()
	if err != nil {
		panic(err)
	}
	n := c.n.Add(1)
	vals[0].Data = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(vals[0].Data[:0], n), n)
	cl.submit(handlerRef)
	<-cl.done
	cl.unrefHandler()
}

// BenchmarkCore is a query's whole way without HTTP, JSON and a model: look-up, select, cache miss, queue, batch, combine, cache
// filled, joined for feedback.
func BenchmarkCore(b *testing.B) {
	for _, bench := range []struct {
		policy     string
		models     int
		cacheBytes int64
	}{{"single", 1, 0}, {"single", 1, 64 << 20}, {"exp3", 4, 64 << 20}, {"exp4", 4, 64 << 20}} {
		b.Run(fmt.Sprintf("%s of %d, cache %d MiB", bench.policy, bench.models, bench.cacheBytes>>20), func(b *testing.B) {
			c := newCore(b, bench.policy, bench.models, bench.cacheBytes, func(l *driver.Lane) driver.Replica { return &loopback{l: l} })
			render := func(*call) {}
			b.ReportAllocs()
			for b.Loop() {
				c.submit(render, time.Minute)
			}
		})
	}
}

// BenchmarkStragglers has a hundred thousand queries of an ensemble of three outstanding, with different deadlines, and models
// that answer nothing: what a query costs from its submission until its deadline has been combined.
func BenchmarkStragglers(b *testing.B) {
	const outstanding = 100_000
	c := newCore(b, "exp4", 3, 0, func(*driver.Lane) driver.Replica { return silent{} })
	for _, cand := range c.fn.Candidates { // the queue is to take them all
		cfg := scheduler.DefaultConfig()
		cfg.MaxQueue = 2 * outstanding
		cand.Model.Lane.(*driver.Lane).Configure(cfg)
	}
	left := make(chan struct{}, outstanding)
	render := func(*call) { left <- struct{}{} }
	ask := func() {
		cl := c.g.newCall()
		select {
		case <-cl.done: // nobody waited for its last answer
		default:
		}
		cl.arrived = c.g.cfg.Now()
		cl.fn, cl.model, cl.stats, cl.render = c.fn, c.fn.Candidates[0].Model, c.fn.Stats, render
		n := c.n.Add(1)
		cl.slo = api.Nanos(50*time.Millisecond) + api.Nanos(n%197)*api.Nanos(time.Millisecond)
		vals, err := cl.Next()
		if err != nil {
			b.Fatal(err)
		}
		vals[0].Data = binary.LittleEndian.AppendUint64(vals[0].Data[:0], n)
		cl.submit(0)
	}
	for range outstanding {
		ask()
	}
	b.ResetTimer()
	b.ReportAllocs()
	for range b.N {
		<-left
		ask()
	}
	b.StopTimer()
	for range outstanding {
		<-left
	}
}
