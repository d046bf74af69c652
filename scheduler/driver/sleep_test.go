package driver

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
)

// TestLaneWithoutReplicasFreesLists: with its last replica a lane frees the lists that only batches need, and works as
// before when it gets another one.
func TestLaneWithoutReplicasFreesLists(t *testing.T) {
	c, l := newLoopback(t)
	f := newFuture()
	for id := scheduler.ReplicaID(1); id <= 3; id++ {
		if id > 1 {
			l.AddReplica(id, &loopback{l: l, id: id}, 0)
		}
		for range 10 {
			f.call(c, l)
		}
		drained := make(chan struct{})
		l.DrainReplica(id, func() { close(drained) })
		<-drained
		l.ReplicaGone(id, nil)
		l.mu.Lock()
		lists := cap(l.actions.Dispatches) + cap(l.actions.Ends) + cap(l.actions.Evaluated) + cap(l.actions.Drained) + cap(l.gone)
		if lists > 0 || l.replicas != nil {
			t.Errorf("after replica %d has gone, lists have room for %d elements, and replicas are %v", id, lists, l.replicas)
		}
		l.mu.Unlock()
		if n := l.BatchSize().Count(); n != 10*uint64(id) {
			t.Errorf("%d batches are counted, expected %d", n, 10*id)
		}
	}
}
