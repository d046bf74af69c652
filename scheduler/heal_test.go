package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// clinic runs a machine in virtual time against replicas whose speed the test changes.
type clinic struct {
	m     *Machine
	now   api.Nanos
	acts  Actions
	busy  map[ReplicaID][]batchAway
	takes func(id ReplicaID, n int) int64 // nanoseconds
	ended map[api.Code]int
}

type batchAway struct {
	id   uint64
	done api.Nanos
}

func newClinic(replicas int, takes func(id ReplicaID, n int) int64) *clinic {
	cfg := DefaultConfig()
	cfg.Batching.ObjectiveNanos = 40e6
	c := &clinic{m: New(cfg), now: 1, busy: map[ReplicaID][]batchAway{}, takes: takes, ended: map[api.Code]int{}}
	c.m.AddFunction(1)
	for id := range replicas {
		c.m.ReplicaReady(c.now, ReplicaID(id+1), 2)
	}
	return c
}

func (c *clinic) settle() {
	for again := true; again; {
		c.m.Ready(c.now, &c.acts)
		for _, d := range c.acts.Dispatches {
			begins := c.now
			if away := c.busy[d.Replica]; len(away) > 0 {
				begins = away[len(away)-1].done
			}
			c.busy[d.Replica] = append(c.busy[d.Replica], batchAway{d.Batch.ID, begins + api.Nanos(c.takes(d.Replica, len(d.Batch.Queries)))})
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
func (c *clinic) until(t api.Nanos) {
	for {
		at, who := c.m.NextWake(), ReplicaID(0)
		for id, away := range c.busy {
			if len(away) > 0 && (away[0].done < at || away[0].done == at && (who == 0 || id < who)) {
				at, who = away[0].done, id
			}
		}
		if at > t {
			c.now = t
			return
		}
		c.now = max(c.now, at)
		if who != 0 {
			id := c.busy[who][0].id
			c.busy[who] = c.busy[who][1:]
			c.m.BatchDone(c.now, who, &api.BatchResult{ID: id})
		} else {
			c.m.Advance(c.now)
		}
		c.settle()
	}
}

// ask sends perSecond queries for the given seconds, each due in 100 ms, and returns the part that was answered with
// OK.
func (c *clinic) ask(seconds, perSecond int) float64 {
	clear(c.ended)
	for range seconds * perSecond {
		c.until(c.now + api.Nanos(1e9/perSecond))
		c.m.Arrive(c.now, &Item{Query: api.Query{Arrived: c.now, Deadline: c.now + 100e6, Expires: c.now + 100e6}})
		c.settle()
	}
	return float64(c.ended[api.OK]) / float64(seconds*perSecond)
}

// TestASlowReplicaDropsNobody: queries that are too late for a slow, and therefore idle, replica wait for a faster one.
// When the slow one recovers, the machine notices.
func TestASlowReplicaDropsNobody(t *testing.T) {
	slow := true
	served := map[ReplicaID]int{}
	c := newClinic(2, func(id ReplicaID, n int) int64 {
		served[id] += n
		if id == 1 && slow {
			return 150e6
		}
		return 5e6 + int64(n)*5e5
	})
	c.ask(4, 300)
	if got := c.ask(8, 300); got < 0.99 {
		t.Errorf("beside a slow replica %.3f of the queries are answered; the other one can serve all", got)
	}
	slow = false
	c.ask(5, 300)
	clear(served)
	if got := c.ask(5, 300); got < 0.999 || served[1] < 300 {
		t.Errorf("both replicas are well: %.3f of the queries are answered, %d by the one that was slow", got, served[1])
	}
}

// TestASlowReplicaHeals: a replica that was too slow for every query serves again soon after it has become fast, even
// if the configuration changed meanwhile.
func TestASlowReplicaHeals(t *testing.T) {
	for _, policy := range []Policy{AIMD, Quantile, Fixed} {
		took := int64(2_500_000)
		c := newClinic(1, func(ReplicaID, int) int64 { return took })
		cfg := c.m.Config()
		cfg.Batching.Policy = policy
		c.m.Configure(c.now, cfg)
		c.ask(5, 50)
		took = 300e6
		c.ask(10, 50)
		cfg.Batching.ObjectiveNanos++ // makes a new controller, which has not settled
		c.m.Configure(c.now, cfg)
		c.ask(10, 50)
		took = 2_500_000
		c.ask(4, 50)
		if got := c.ask(10, 50); got < 0.999 {
			t.Errorf("%v: four seconds after the replica has become fast, %.3f of the queries are answered", policy, got)
		}
	}
}

// TestOnePauseIsForgotten: a single delayed batch does not make a replica unreliable, even at low load.
func TestOnePauseIsForgotten(t *testing.T) {
	pause := false
	c := newClinic(1, func(_ ReplicaID, n int) int64 {
		if pause {
			pause = false
			return 400e6
		}
		return 70e6 + int64(n)*1e6
	})
	c.ask(10, 5)
	pause = true
	c.ask(5, 5)
	if got := c.ask(10, 5); got < 0.999 {
		t.Errorf("five seconds after a pause %.3f of the queries are answered", got)
	}
}
