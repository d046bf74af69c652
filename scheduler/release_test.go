package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestReleaseFreesBuffers: a machine that sleeps after a rush keeps no more memory than one that had no
// rush, and works as before when it wakes.
func TestReleaseFreesBuffers(t *testing.T) {
	c := newReplicaSim(0, func(_ ReplicaID, n int) int64 { return 1e6 + int64(n)*1e4 })
	rush := func(id ReplicaID) {
		clear(c.ended)
		for range 5000 { // before any replica is ready
			c.m.Arrive(c.now, &Item{Query: api.Query{Arrived: c.now, Deadline: c.now + 60e9, Expires: c.now + 60e9}})
		}
		c.settle()
		c.m.FreeBuffers() // must keep everything while queries wait
		c.m.ReplicaReady(c.now, id, 2)
		c.settle()
		c.until(c.now + 60e9)
		if c.ended[api.OK] != 5000 {
			t.Fatalf("%d of 5000 queries were answered: %v", c.ended[api.OK], c.ended)
		}
	}
	for id := ReplicaID(1); id <= 2; id++ {
		rush(id)
		c.m.FreeBuffers()
		if len(c.m.replicas) != 1 || c.m.byID[id] == nil {
			t.Fatal("Release dropped a replica that is not gone")
		}
		c.m.ReplicaGone(c.now, id, nil)
		c.settle()
		c.m.FreeBuffers()
		kept := cap(c.m.freeFlights) + cap(c.m.deferred) + cap(c.m.late.heap) + cap(c.m.retries.heap) + cap(c.m.functions[0].queue.heap) +
			cap(c.m.out.Ends) + cap(c.m.out.Dispatches) + cap(c.m.out.Evaluated) + cap(c.m.out.Drained) + cap(c.m.out.Kills)
		if kept > 0 || c.m.replicas != nil || c.m.byID != nil {
			t.Errorf("after replica %d has gone, lists without use have room for %d elements", id, kept)
		}
		if c.m.counters.Ended[api.OK] != 5000*uint64(id) || c.m.function(0) == nil {
			t.Error("Release dropped counters or the function")
		}
	}
}
