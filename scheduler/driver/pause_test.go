package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestStallKillsNoReplica: the clock looks at a lane long after its replica is overdue, as after a stall of the process,
// and the answer is read after that. The replica stays. When it is then really silent for as long, it is killed by the
// clock alone.
func TestStallKillsNoReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := scheduler.DefaultConfig()
		cfg.TimeoutNanos = 5e9
		c := NewClock()
		defer c.Close()
		l := NewLane(cfg, c)
		l.AddFunction(1)
		r := newManual()
		l.AddReplica(1, r, 0)
		k := newTicket(t, c, 0, hour, 0)
		l.Submit(&k.Item)
		b := <-r.batches
		time.Sleep(5*time.Second + 50*time.Millisecond) // virtual: the clock has looked once
		synctest.Wait()
		if len(r.kills) > 0 {
			t.Fatalf("killed at the first check: %s", <-r.kills)
		}
		l.BatchDone(1, &api.BatchResult{ID: b.ID, Code: api.OK, EvalNanos: 1e6})
		k.want(api.OK, api.OK)

		began := time.Now()
		k = newTicket(t, c, 0, 2e9, 0)
		l.Submit(&k.Item)
		<-r.batches
		<-k.answered
		if k.code != api.DeadlineExceeded {
			t.Errorf("answered %v", k.code)
		}
		<-r.kills
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second { // virtual time, so exact
			t.Errorf("killed after %v", took)
		}
		l.ReplicaGone(1, nil)
		<-k.released
	})
}
