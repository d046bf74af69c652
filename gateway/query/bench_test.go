package query

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
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

// silent is a replica that takes every batch and answers none.
type silent struct{}

func (silent) Send(*api.Batch) error { return nil }
func (silent) Kill(string)           {}

// core is a function over models with real lanes, caches and a real policy, without HTTP and without workers.
type core struct {
	p  *Path
	fn *Function
	n  atomic.Uint64
}

func newCore(tb testing.TB, policy string, models int, cacheBytes int64, replica func(*driver.Lane) driver.Replica) *core {
	clock := driver.NewClock()
	tb.Cleanup(clock.Close)
	c := cache.New(cacheBytes)
	path := New(Config{Now: clock.Now, Cache: c, Timers: driver.NewTimers(clock)})
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
			m.CapabilitiesKnown.Store(true)
			m.CacheOn.Store(true)
		}
		fn.Candidates = append(fn.Candidates, Candidate{Model: m})
	}
	p, err := selection.New(policy, nil, refs)
	if err != nil {
		tb.Fatal(err)
	}
	fn.Selects, fn.Mode, fn.Selector = policy != "single", p.Mode(), learned.New(learned.Config{}).Declare("f", p, refs)
	path.Publish(&Table{Functions: map[string]*Function{"f": fn}})
	return &core{p: path, fn: fn}
}

// open begins a request to the function.
func (c *core) open(slo time.Duration) *wait {
	w := c.p.waits.Get().(*wait)
	w.Open()
	w.askFunction(c.fn)
	w.Within(slo)
	return w
}

// submit hands in one query with an input that was not asked before, and waits for its answer.
func (c *core) submit(slo time.Duration) {
	w := c.open(slo)
	vals, err := w.Next()
	if err != nil {
		panic(err)
	}
	n := c.n.Add(1)
	vals[0].Data = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(vals[0].Data[:0], n), n)
	w.Retain()
	w.Submit()
	if !w.answered() {
		<-w.done
	}
	w.Release()
}

// cpuNanos is the CPU time of the process so far.
func cpuNanos(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// fillCache adds predictions until the cache evicts some, as it does in a gateway that has served for a while.
func (c *core) fillCache() {
	cached := c.p.cfg.Cache
	model := c.fn.Candidates[0].Model.Cache
	in, out := []api.Value{{Data: make([]byte, 16)}}, []api.Value{{Data: make([]byte, 8)}}
	for i := uint64(1) << 63; cached.Stats().Evicted == 0; i += 1000 {
		for n := range uint64(1000) {
			binary.LittleEndian.PutUint64(in[0].Data, i+n)
			model.Add(model.Key(nil, in), nil, in, out, 0.5)
		}
	}
}

// BenchmarkCore is a query's whole way without HTTP, JSON and a model: look-up, select, miss in a full cache, queue, batch, combine,
// cache filled, joined for feedback.
func BenchmarkCore(b *testing.B) {
	for _, bench := range []struct {
		policy     string
		models     int
		cacheBytes int64
	}{{"single", 1, 0}, {"single", 1, 64 << 20}, {"exp3", 4, 64 << 20}, {"exp4", 4, 64 << 20}} {
		b.Run(fmt.Sprintf("%s of %d, cache %d MiB", bench.policy, bench.models, bench.cacheBytes>>20), func(b *testing.B) {
			c := newCore(b, bench.policy, bench.models, bench.cacheBytes, func(l *driver.Lane) driver.Replica { return &loopback{l: l} })
			if bench.cacheBytes > 0 {
				c.fillCache()
			}
			b.ReportAllocs()
			cpu := cpuNanos(b)
			for b.Loop() {
				c.submit(time.Minute)
			}
			b.ReportMetric(float64(cpuNanos(b)-cpu)/float64(b.N), "cpu-ns/op")
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
	stragglers := sync.Pool{New: func() any {
		s := &straggler{left: left}
		s.Init(c.p, s)
		return s
	}}
	ask := func() {
		s := stragglers.Get().(*straggler)
		s.pool = &stragglers
		s.Open()
		s.askFunction(c.fn)
		n := c.n.Add(1)
		s.Within(50*time.Millisecond + time.Duration(n%197)*time.Millisecond)
		vals, err := s.Next()
		if err != nil {
			b.Fatal(err)
		}
		vals[0].Data = binary.LittleEndian.AppendUint64(vals[0].Data[:0], n)
		s.Submit()
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

// straggler is a request that no caller waits for.
type straggler struct {
	Request
	left chan struct{}
	pool *sync.Pool
}

func (s *straggler) Settled() api.Code {
	s.left <- struct{}{}
	return s.Code()
}

func (s *straggler) Deliver() {}

func (s *straggler) Released() { s.pool.Put(s) }
