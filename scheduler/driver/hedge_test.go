package driver

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestHedge: the clock notices that a replica is late, another one answers, and the query is released when both are
// done with it.
func TestHedge(t *testing.T) {
	cfg := scheduler.DefaultConfig()
	cfg.Hedge = false // until the profiles are known
	c, l := newTestLane(t, cfg)
	replicas := map[scheduler.ReplicaID]*manual{1: newManual(), 2: newManual()}
	l.AddReplica(1, replicas[1], 0)
	l.AddReplica(2, replicas[2], 0)
	take := func() (scheduler.ReplicaID, *api.Batch) {
		select {
		case b := <-replicas[1].batches:
			return 1, b
		case b := <-replicas[2].batches:
			return 2, b
		}
	}
	done := func(id scheduler.ReplicaID, b *api.Batch) {
		l.BatchDone(id, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
	}
	for range 20 {
		k, k2 := newTicket(t, c, 0, hour, 0), newTicket(t, c, 0, hour, 0)
		l.Submit(&k.Item)
		l.Submit(&k2.Item)
		id, b := take()
		id2, b2 := take()
		done(id, b)
		done(id2, b2)
		k.want(api.OK, api.OK)
		k2.want(api.OK, api.OK)
	}
	cfg.Hedge = true
	l.Configure(cfg)

	for twinFirst := range 2 {
		k := newTicket(t, c, 0, hour, 0)
		k.ID, k.Inputs = 77, []api.Value{{Data: []byte("input")}}
		l.Submit(&k.Item)
		late, b := take()
		second, b2 := take()
		if b.Queries[0] != &k.Query { // both may be there already
			late, b, second, b2 = second, b2, late, b
		}
		own, twin := b.Queries[0], b2.Queries[0]
		if late == second || own != &k.Query || twin == own || twin.ID != 77 || &twin.Inputs[0] != &own.Inputs[0] {
			t.Fatalf("sent %+v to replica %d and %+v to replica %d", own, late, twin, second)
		}
		own.Confidence, twin.Confidence = 1, 2
		answer := twin
		if twinFirst == 1 {
			done(second, b2)
		} else {
			answer = own
			done(late, b)
		}
		<-k.answered
		if n := k.releases.Load(); n != 0 || k.code != api.OK || k.Result() != answer {
			t.Errorf("answered %v with %v and released %d times while a replica has the query", k.code, k.Result().Confidence, n)
		}
		if twinFirst == 1 {
			own.Confidence = 3 // no longer read
			done(late, b)
		} else {
			done(second, b2)
		}
		k.want(api.OK, api.OK)
		if k.Result() != answer {
			t.Error("the answer has changed")
		}
	}
	if n := l.QueueNanos().Count(); n != 42 {
		t.Errorf("QueueNanos counted %d queries, want 42: hedges do not count", n)
	}
	for id := range replicas {
		l.ReplicaGone(id, nil)
	}
}

// TestHedgesExactlyOnce sends queries to replicas that stall or die now and then, until many queries were sent twice.
// Whichever replica answers, each query has one answer and one release, and the answer is its own.
func TestHedgesExactlyOnce(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	var lastID atomic.Uint64
	quit, enough := make(chan struct{}), make(chan struct{})
	var workers, clients sync.WaitGroup
	var start func()
	start = func() {
		w := &worker{
			l: l, id: scheduler.ReplicaID(lastID.Add(1)), batches: make(chan *api.Batch, 2), quit: quit,
			pause: func() time.Duration {
				if rand.IntN(300) == 0 {
					return 30 * time.Millisecond
				}
				return 0
			},
			dies: func() bool { return rand.IntN(2000) == 0 },
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
	for g := range 4 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for n := uint64(1); ; n++ {
				slo, ttl := hour, api.Nanos(0)
				if n%5 == 0 {
					slo, ttl = api.Nanos(rand.Int64N(40e6)), hour
				}
				k := newTicket(t, c, 0, slo, ttl)
				k.ID = uint64(g)<<32 | n
				l.Submit(&k.Item)
				<-k.answered
				if k.code == api.OK && k.Result().Confidence != float64(k.ID) {
					t.Errorf("query %d got the answer to %v", k.ID, k.Result().Confidence)
				}
				select {
				case <-enough:
					<-k.released
					return
				case <-k.released:
				}
				if k.final == api.OK && k.Result().Confidence != float64(k.ID) {
					t.Errorf("query %d is released with the answer to %v", k.ID, k.Result().Confidence)
				}
			}
		}()
	}
	var s scheduler.Snapshot
	for look := time.NewTicker(time.Millisecond); ; <-look.C {
		if l.Snapshot(&s); s.Counters.HedgeWins >= 30 {
			look.Stop()
			break
		}
	}
	close(enough)
	clients.Wait()
	close(quit)
	workers.Wait()
	l.Snapshot(&s)
	if most := scheduler.HedgePart*float64(s.Counters.Arrived) + scheduler.HedgeBurst; s.Held != 0 || float64(s.Counters.Hedged) > most {
		t.Errorf("%d queries are held; %d of %d were sent twice", s.Held, s.Counters.Hedged, s.Counters.Arrived)
	}
	t.Logf("%d queries, %d sent twice, %d of them won, %d retries", s.Counters.Arrived, s.Counters.Hedged, s.Counters.HedgeWins, s.Counters.Retries)
}
