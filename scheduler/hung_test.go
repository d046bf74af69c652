package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestHungNeedsTwoChecks: whether the driver checks often, rarely or after a stall, a replica is killed as hung if and
// only if its oldest batch is overdue at a check, and was at a check at least hungAgainNanos earlier. So a replica
// whose answer is read within that time of the first check is never killed. A driver that checks when asked to kills
// the replica hungAgainNanos after its limit.
func TestHungNeedsTwoChecks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = int64(2e9)
		m := New(Config{Depth: 2, MaxQueue: 100, TimeoutNanos: limit, Batching: Batching{Policy: None}})
		m.AddFunction(0)
		var acts Actions
		now, next := api.Nanos(1), uint64(1)
		oldest, overdue := now, api.Nanos(0) // as the rule defines them
		settle := func() (kills int) {
			m.Ready(now, &acts)
			for _, d := range acts.Dispatches {
				if d.Batch.ID == next {
					oldest, overdue = now, 0
				}
			}
			return len(acts.Kills)
		}
		fill := func() {
			for m.Held() < 4 { // two in flight, two behind them
				m.Arrive(now, &Item{Query: api.Query{Arrived: now, Deadline: now + 3600e9, Expires: now + 3600e9}})
			}
			settle()
		}
		m.ReplicaReady(now, 1, 2)
		fill()
		look := func() bool {
			if wake := m.NextWake(); int64(wake-now) > limit+hungAgainNanos {
				t.Fatalf("at %d NextWake is only %d", now, wake)
			}
			m.Advance(now)
			late := int64(now-oldest) >= limit
			dies := late && overdue > 0 && int64(now-overdue) >= hungAgainNanos
			if late && overdue == 0 {
				overdue = now
			}
			if kills := settle(); (kills == 1) != dies {
				t.Fatalf("%d: %d kills; oldest batch since %d, overdue since %d", now, kills, oldest, overdue)
			}
			return dies
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0: // an answer
				m.BatchDone(now, 1, &api.BatchResult{ID: next, Code: api.ModelError})
				next++
				oldest, overdue = now, 0
				settle()
				fill()
			case 1: // a pause of any length
				now += api.Nanos(rapid.Int64Range(0, 3*limit).Draw(t, "pause"))
			case 2:
				now += api.Nanos(rapid.Int64Range(0, hungAgainNanos).Draw(t, "moment"))
			case 3:
				now = max(now, m.NextWake())
			}
			if look() {
				return
			}
		}
		m.BatchDone(now, 1, &api.BatchResult{ID: next, Code: api.ModelError})
		next++
		oldest, overdue = now, 0
		settle()
		for now = m.NextWake(); !look(); now = m.NextWake() {
		}
		if took := int64(now - oldest); took != limit+hungAgainNanos {
			t.Fatalf("killed after %d, want %d", took, limit+hungAgainNanos)
		}
	})
}
