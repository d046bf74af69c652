package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// replicaSim runs a machine in virtual time against replicas whose speed the test changes.
type replicaSim struct {
	m         *Machine
	now       api.Nanos
	acts      Actions
	busy      map[ReplicaID][]outstandingBatch
	evalNanos func(id ReplicaID, n int) int64 // nanoseconds
	ended     map[api.Code]int
}

type outstandingBatch struct {
	id   uint64
	done api.Nanos
}

func newReplicaSim(replicas int, takes func(id ReplicaID, n int) int64) *replicaSim {
	cfg := DefaultConfig()
	cfg.Batching.ObjectiveNanos = 40e6
	c := &replicaSim{m: New(cfg), now: 1, busy: map[ReplicaID][]outstandingBatch{}, evalNanos: takes, ended: map[api.Code]int{}}
	c.m.AddFunction(1)
	for id := range replicas {
		c.m.ReplicaReady(c.now, ReplicaID(id+1), 2)
	}
	return c
}

func (c *replicaSim) settle() {
	for again := true; again; {
		c.m.Ready(c.now, &c.acts)
		for _, d := range c.acts.Dispatches {
			begins := c.now
			if away := c.busy[d.Replica]; len(away) > 0 {
				begins = away[len(away)-1].done
			}
			c.busy[d.Replica] = append(c.busy[d.Replica], outstandingBatch{d.Batch.ID, begins + api.Nanos(c.evalNanos(d.Replica, len(d.Batch.Queries)))})
		}
		for _, e := range c.acts.Ends {
			if e.Kind != ReleaseOnly {
				c.ended[e.Code]++
			}
		}
		again = len(c.acts.Dispatches)+len(c.acts.Ends) > 0
	}
}

// until processes all events up to t.
func (c *replicaSim) until(t api.Nanos) {
	for {
		at, next := c.m.NextWake(), ReplicaID(0)
		for id, away := range c.busy {
			if len(away) > 0 && (away[0].done < at || away[0].done == at && (next == 0 || id < next)) {
				at, next = away[0].done, id
			}
		}
		if at > t {
			c.now = t
			return
		}
		c.now = max(c.now, at)
		if next != 0 {
			id := c.busy[next][0].id
			c.busy[next] = c.busy[next][1:]
			c.m.BatchDone(c.now, next, &api.BatchResult{ID: id})
		} else {
			c.m.Advance(c.now)
		}
		c.settle()
	}
}

// load sends perSecond queries for the given seconds, each due in 100 ms, and returns the part that was answered with
// OK.
func (c *replicaSim) load(seconds, perSecond int) float64 {
	clear(c.ended)
	for range seconds * perSecond {
		c.until(c.now + api.Nanos(1e9/perSecond))
		c.m.Arrive(c.now, &Item{Query: api.Query{Arrived: c.now, Deadline: c.now + 100e6, Expires: c.now + 100e6}})
		c.settle()
	}
	return float64(c.ended[api.OK]) / float64(seconds*perSecond)
}

// TestSlowReplicaDropsNoQueries: queries that are too late for a slow, and therefore idle, replica wait for a faster one.
// When the slow one recovers, the machine notices.
func TestSlowReplicaDropsNoQueries(t *testing.T) {
	slow := true
	served := map[ReplicaID]int{}
	c := newReplicaSim(2, func(id ReplicaID, n int) int64 {
		served[id] += n
		if id == 1 && slow {
			return 150e6
		}
		return 5e6 + int64(n)*5e5
	})
	c.load(4, 300)
	if got := c.load(8, 300); got < 0.99 {
		t.Errorf("beside a slow replica %.3f of the queries are answered; the other one can serve all", got)
	}
	slow = false
	c.load(5, 300)
	clear(served)
	if got := c.load(5, 300); got < 0.999 || served[1] < 300 {
		t.Errorf("both replicas are fast: %.3f of the queries are answered, %d by the one that was slow", got, served[1])
	}
}

// TestSlowReplicaRecovers: a replica that was too slow for every query serves again soon after it has become fast, even
// if the configuration changed meanwhile.
func TestSlowReplicaRecovers(t *testing.T) {
	for _, policy := range []Policy{AIMD, Quantile, Fixed} {
		took := int64(2_500_000)
		c := newReplicaSim(1, func(ReplicaID, int) int64 { return took })
		cfg := c.m.Config()
		cfg.Batching.Policy = policy
		c.m.Configure(c.now, cfg)
		c.load(5, 50)
		took = 300e6
		c.load(10, 50)
		cfg.Batching.ObjectiveNanos++ // makes a new controller, which has not settled
		c.m.Configure(c.now, cfg)
		c.load(10, 50)
		took = 2_500_000
		c.load(4, 50)
		if got := c.load(10, 50); got < 0.999 {
			t.Errorf("%v: four seconds after the replica has become fast, %.3f of the queries are answered", policy, got)
		}
	}
}

// TestOnePauseIsForgotten: a single delayed batch does not make a replica unreliable, even at low load.
func TestOnePauseIsForgotten(t *testing.T) {
	pause := false
	c := newReplicaSim(1, func(_ ReplicaID, n int) int64 {
		if pause {
			pause = false
			return 400e6
		}
		return 70e6 + int64(n)*1e6
	})
	c.load(10, 5)
	pause = true
	c.load(5, 5)
	if got := c.load(10, 5); got < 0.999 {
		t.Errorf("five seconds after a pause %.3f of the queries are answered", got)
	}
}

// TestATrialTeachesNothing: how long a replica takes for its first queries, or at a low priority, does not count.
func TestATrialTeachesNothing(t *testing.T) {
	took := int64(90e6)
	c := newReplicaSim(1, func(ReplicaID, int) int64 { return took })
	ask := func(trial bool) {
		c.m.Arrive(c.now, &Item{Query: api.Query{Arrived: c.now, Deadline: c.now + 1e9, Expires: c.now + 1e9}, Trial: trial})
		c.settle()
		c.until(c.now + 1e9)
	}
	predicted := func() int64 { return c.m.byID[1].profile.predict(1) }
	before := predicted()
	ask(true)
	if c.ended[api.OK] != 1 || predicted() != before {
		t.Errorf("after a slow trial %v, and one query is predicted to take %d ns: expected an answer, and %d ns as before", c.ended, predicted(), before)
	}
	took = 2e6
	ask(false)
	if got := predicted(); got == before || got > 10e6 {
		t.Errorf("after a query of 2 ms one is predicted to take %d ns", got)
	}
}
