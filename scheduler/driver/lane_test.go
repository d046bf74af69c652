package driver

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hour = api.Nanos(time.Hour)

// ticket owns one item and records how it ended.
type ticket struct {
	scheduler.Item
	t        *testing.T
	answers  atomic.Int32
	releases atomic.Int32
	code     api.Code
	final    api.Code
	answered chan struct{}
	released chan struct{}
}

func newTicket(t *testing.T, c *Clock, function int32, slo, ttl api.Nanos) *ticket {
	k := &ticket{t: t, answered: make(chan struct{}), released: make(chan struct{})}
	now := c.Now()
	k.Query = api.Query{Function: function, Arrived: now, Deadline: now + slo, Expires: now + max(slo, ttl)}
	k.Owner = k
	return k
}

func (k *ticket) Answered(it *scheduler.Item, code api.Code) {
	if k.answers.Add(1) != 1 || k.releases.Load() != 0 || it != &k.Item {
		k.t.Errorf("answered %d times, after %d releases", k.answers.Load(), k.releases.Load())
	}
	k.code = code
	close(k.answered)
}

func (k *ticket) Released(it *scheduler.Item, final api.Code) {
	if k.releases.Add(1) != 1 || k.answers.Load() != 1 || it != &k.Item {
		k.t.Errorf("released %d times, after %d answers", k.releases.Load(), k.answers.Load())
	}
	k.final = final
	close(k.released)
}

// want waits for the query to end and compares its codes.
func (k *ticket) want(code, final api.Code) {
	k.t.Helper()
	<-k.answered
	<-k.released
	if k.code != code || k.final != final {
		k.t.Errorf("answered %v and released %v, want %v and %v", k.code, k.final, code, final)
	}
}

// manual is a replica whose batches the test completes.
type manual struct {
	batches chan *api.Batch
	kills   chan string
	err     error
}

func newManual() *manual {
	return &manual{batches: make(chan *api.Batch, 16), kills: make(chan string, 16)}
}

func (r *manual) Send(b *api.Batch) error {
	if r.err != nil {
		return r.err
	}
	r.batches <- b
	return nil
}

func (r *manual) Kill(reason string) { r.kills <- reason }

func newTestLane(t *testing.T, cfg scheduler.Config) (*Clock, *Lane) {
	c := NewClock()
	t.Cleanup(c.Close)
	l := NewLane(cfg, c)
	l.AddFunction(1)
	return c, l
}

func TestOneQuery(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	r := newManual()
	l.AddReplica(1, r, 0)
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	b := <-r.batches
	if len(b.Queries) != 1 || b.Queries[0] != &k.Query {
		t.Fatalf("sent %+v", b)
	}
	l.BatchDone(1, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
	k.want(api.OK, api.OK)
	if n := l.BatchSize().Count(); n != 1 || l.EvalNanos().Count() != 1 || l.QueueNanos().Count() != 1 {
		t.Errorf("histograms have %d, %d and %d values", n, l.EvalNanos().Count(), l.QueueNanos().Count())
	}
	var s scheduler.Snapshot
	l.Snapshot(&s)
	if s.Held != 0 || s.Counters.Ended[api.OK] != 1 || len(s.Replicas) != 1 || s.Replicas[0].Samples != 1 {
		t.Errorf("snapshot %+v", s)
	}
	l.ReplicaGone(1, nil)
}

func TestSubmitAllSharesABatch(t *testing.T) {
	cfg := scheduler.DefaultConfig()
	cfg.Retry = false // a batch that fails ends its queries
	c, l := newTestLane(t, cfg)
	r := newManual()
	l.AddReplica(1, r, 0)
	var items []*scheduler.Item
	var tickets []*ticket
	for range 5 {
		k := newTicket(t, c, 0, hour, 0)
		tickets, items = append(tickets, k), append(items, &k.Item)
	}
	l.SubmitAll(nil, nil)
	l.SubmitAll(items, nil)
	b := <-r.batches
	if len(b.Queries) != 5 {
		t.Fatalf("batch of %d", len(b.Queries))
	}
	for i, q := range b.Queries {
		if q != &items[i].Query {
			t.Errorf("place %d has another query", i)
		}
	}
	l.BatchDone(1, &api.BatchResult{ID: b.ID, Code: api.ModelError, Detail: "ValueError"})
	for _, k := range tickets {
		k.want(api.ModelError, api.ModelError)
	}
}

func TestDeadlines(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	k := newTicket(t, c, 0, 2e6, 0)
	l.Submit(&k.Item)
	k.want(api.NoReplica, api.NoReplica)

	r := newManual()
	l.AddReplica(1, r, 0)
	k = newTicket(t, c, 0, 2e6, 0)
	l.Submit(&k.Item)
	b := <-r.batches
	<-k.answered
	if k.releases.Load() != 0 {
		t.Error("released while in flight")
	}
	l.BatchDone(1, &api.BatchResult{ID: b.ID})
	k.want(api.DeadlineExceeded, api.OK)

	// Late on arrival: refused at once, with the same two calls.
	k = newTicket(t, c, 0, 0, hour)
	l.Submit(&k.Item)
	k.want(api.DeadlineExceeded, api.DeadlineExceeded)
}

func TestHungReplicaIsKilled(t *testing.T) {
	cfg := scheduler.DefaultConfig()
	cfg.TimeoutNanos = 1 // the minimum is still a second
	c, l := newTestLane(t, cfg)
	r := newManual()
	l.AddReplica(1, r, 0)
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	b := <-r.batches
	if reason := <-r.kills; reason == "" {
		t.Error("a kill without a reason")
	}
	second := newManual()
	l.AddReplica(2, second, 0)
	l.ReplicaGone(1, func(batch uint64) bool { return batch == b.ID })
	b = <-second.batches
	l.BatchDone(2, &api.BatchResult{ID: b.ID})
	k.want(api.OK, api.OK)
}

func TestSendErrors(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	bad := newManual()
	bad.err = api.Errorf(api.TooLarge, "the batch is too large for any block")
	l.AddReplica(1, bad, 0)
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	k.want(api.TooLarge, api.TooLarge)

	bad.err = errors.New("connection reset")
	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	if reason := <-bad.kills; reason != "batch 2 could not be sent: connection reset" {
		t.Errorf("killed for %q", reason)
	}
	good := newManual()
	l.AddReplica(2, good, 0)
	b := <-good.batches
	l.ReplicaGone(1, nil)
	l.BatchDone(2, &api.BatchResult{ID: b.ID})
	k.want(api.OK, api.OK)
}

func TestDrain(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	drain := func(id scheduler.ReplicaID) chan struct{} {
		done := make(chan struct{})
		l.DrainReplica(id, func() { close(done) })
		return done
	}
	<-drain(77) // an unknown replica: nothing to wait for
	r := newManual()
	l.AddReplica(1, r, 0)
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	b := <-r.batches
	first, second := drain(1), drain(1)
	l.DrainReplica(1, nil)
	select {
	case <-first:
		t.Error("drained with a batch in flight")
	default:
	}
	l.BatchDone(1, &api.BatchResult{ID: b.ID})
	k.want(api.OK, api.OK)
	<-first
	<-second
	<-drain(1)
	l.ReplicaGone(1, nil)
	<-drain(1)

	// A replica that dies while it drains.
	r = newManual()
	l.AddReplica(2, r, 0)
	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	<-r.batches
	third := drain(2)
	l.ReplicaGone(2, func(uint64) bool { return false })
	<-third
	l.Close(api.ShuttingDown)
	k.want(api.ShuttingDown, api.ShuttingDown)
}

func TestCancelAndClose(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	l.Cancel(&k.Item)
	k.want(api.Cancelled, api.Cancelled)
	l.Cancel(&k.Item) // has no effect

	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	l.Close(api.ModelRemoved)
	k.want(api.ModelRemoved, api.ModelRemoved)
	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	k.want(api.ModelRemoved, api.ModelRemoved)
}

func TestReconfiguration(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	second := l.AddFunction(3)
	l.RemoveFunction(second)
	k := newTicket(t, c, second, hour, 0)
	l.Submit(&k.Item)
	k.want(api.ModelRemoved, api.ModelRemoved)

	cfg := scheduler.DefaultConfig()
	cfg.MaxQueue = 1
	l.Configure(cfg)
	waiting := newTicket(t, c, 0, hour, 0)
	l.Submit(&waiting.Item)
	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	k.want(api.Overloaded, api.Overloaded)
	l.Cancel(&waiting.Item)
	waiting.want(api.Cancelled, api.Cancelled)

	l.SetPlan(scheduler.Plan{Functions: []scheduler.FunctionPlan{{Shed: 1}}})
	k = newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	k.want(api.Overloaded, api.Overloaded)
}

// worker evaluates its batches on its own goroutine, and may die.
type worker struct {
	l       *Lane
	id      scheduler.ReplicaID
	batches chan *api.Batch
	quit    chan struct{}
	pause   func() time.Duration
	dies    func() bool
	died    func()
}

func (w *worker) Send(b *api.Batch) error {
	select {
	case w.batches <- b:
		return nil
	default:
		return errors.New("more batches than the depth allows")
	}
}

func (w *worker) Kill(string) {}

func (w *worker) run() {
	for {
		select {
		case b := <-w.batches:
			if w.dies() {
				w.l.ReplicaGone(w.id, func(batch uint64) bool { return batch <= b.ID })
				w.died()
				return
			}
			if d := w.pause(); d > 0 {
				timer := time.NewTimer(d)
				<-timer.C
			}
			for _, q := range b.Queries {
				q.Confidence = float64(q.ID) // written as by a transport, for the race detector
			}
			w.l.BatchDone(w.id, &api.BatchResult{ID: b.ID, EvalNanos: 1})
		case <-w.quit:
			return
		}
	}
}

// TestExactlyOnce submits from thousands of goroutines while replicas die and are replaced and deadlines pass.
func TestExactlyOnce(t *testing.T) {
	cfg := scheduler.DefaultConfig()
	cfg.Batching = scheduler.Batching{Policy: scheduler.AIMD, MaxBatch: 64, ObjectiveNanos: 1e6}
	c, l := newTestLane(t, cfg)
	l.AddFunction(2)

	var lastID atomic.Uint64
	quit := make(chan struct{})
	var workers, submitters sync.WaitGroup
	var start func()
	start = func() {
		w := &worker{
			l: l, id: scheduler.ReplicaID(lastID.Add(1)), batches: make(chan *api.Batch, 2), quit: quit,
			pause: func() time.Duration { return time.Duration(rand.IntN(3)/2) * time.Millisecond },
			dies:  func() bool { return rand.IntN(50) == 0 },
		}
		w.died = start
		workers.Add(1)
		go func() {
			defer workers.Done()
			w.run()
		}()
		l.AddReplica(w.id, w, 2)
	}
	for range 3 {
		start()
	}

	const goroutines, each = 2000, 5
	var codes [scheduler.Codes]atomic.Int64
	for g := range goroutines {
		submitters.Add(1)
		go func() {
			defer submitters.Done()
			for i := range each {
				slo, ttl := hour, api.Nanos(0)
				if (g+i)%3 == 0 {
					slo, ttl = api.Nanos(rand.Int64N(4e6)), api.Nanos(rand.Int64N(8e6))
				}
				k := newTicket(t, c, int32(g%2), slo, ttl)
				k.ID = uint64(g)
				l.Submit(&k.Item)
				if g%16 == 0 {
					l.Cancel(&k.Item)
				}
				<-k.answered
				<-k.released
				codes[k.code].Add(1)
				if k.final == api.OK && k.Result().Confidence != float64(g) {
					t.Errorf("query of %d got the output of %v", g, k.Confidence)
				}
			}
		}()
	}
	submitters.Wait()
	close(quit)
	workers.Wait()
	var s scheduler.Snapshot
	l.Snapshot(&s)
	if s.Held != 0 || s.Counters.Arrived != goroutines*each {
		t.Errorf("%d of %d queries are held at the end", s.Held, s.Counters.Arrived)
	}
	for code := range api.Codes {
		n := codes[code].Load()
		if uint64(n) != s.Counters.Ended[code] {
			t.Errorf("%d queries ended as %v, the lane counted %d", n, code, s.Counters.Ended[code])
		}
		if n > 0 {
			t.Logf("%v: %d", code, n)
		}
	}
	t.Logf("batches %d, retries %d, mean batch %.1f", s.Counters.Batches, s.Counters.Retries, float64(l.BatchSize().Sum())/float64(l.BatchSize().Count()))
}

// TestNoLostWakeUp lets few queries meet few completions, over and over, with nothing else that would wake the lane. No
// deadline passes, so a lost wake-up hangs the test.
func TestNoLostWakeUp(t *testing.T) {
	for _, clients := range []int{1, 2, 3, 8} {
		cfg := scheduler.DefaultConfig()
		cfg.Batching.Policy = scheduler.None
		c, l := newTestLane(t, cfg)
		quit := make(chan struct{})
		var workers, submitters sync.WaitGroup
		for id := range 2 {
			w := &worker{l: l, id: scheduler.ReplicaID(id + 1), batches: make(chan *api.Batch, 2), quit: quit,
				pause: func() time.Duration { return 0 }, dies: func() bool { return false }}
			workers.Add(1)
			go func() {
				defer workers.Done()
				w.run()
			}()
			l.AddReplica(w.id, w, 2)
		}
		for range clients {
			submitters.Add(1)
			go func() {
				defer submitters.Done()
				for range 20000 / clients {
					k := newTicket(t, c, 0, hour, 0)
					l.Submit(&k.Item)
					<-k.released
				}
			}()
		}
		submitters.Wait()
		close(quit)
		workers.Wait()
	}
}

// TestAnswerBeforeRelease races the clock, which answers at the deadline, against the replica, which releases.
func TestAnswerBeforeRelease(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	r := newManual()
	l.AddReplica(1, r, 0)
	for i := range 300 {
		k := newTicket(t, c, 0, 1e6, 0)
		l.Submit(&k.Item)
		var b *api.Batch
		select {
		case b = <-r.batches:
		case <-k.released: // the machine was busy, and the deadline had passed on arrival
			continue
		}
		if i%2 == 0 {
			<-k.answered
		} else {
			for c.Now() < k.Deadline { // as close to the clock's goroutine as possible
			}
		}
		l.BatchDone(1, &api.BatchResult{ID: b.ID, EvalNanos: 1}) // a long time would have later queries refused early
		<-k.answered
		<-k.released
	}
}
