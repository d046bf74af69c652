package query

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// patient is a replica that answers a batch when the test says so, with the replica's id.
type patient struct {
	l       *driver.Lane
	id      scheduler.ReplicaID
	batches chan *api.Batch
}

func (r *patient) Send(b *api.Batch) error {
	r.batches <- b
	return nil
}

func (r *patient) Kill(string) {}

func (r *patient) answer(b *api.Batch) {
	for _, q := range b.Queries {
		q.Outputs = append(q.Outputs[:0], api.Value{Data: binary.LittleEndian.AppendUint64(nil, uint64(r.id))})
		q.Confidence = float64(r.id) / 10
	}
	r.l.BatchDone(r.id, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
}

// ask hands in a query and does not wait for its answer. The caller releases it.
func (c *core) ask(input uint64) *wait {
	w := c.open(time.Hour)
	vals, err := w.Next()
	if err != nil {
		panic(err)
	}
	vals[0].Data = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(vals[0].Data[:0], input), input)
	w.Retain()
	w.Submit()
	return w
}

// wantAnswer waits for the answer, which is to be that of a replica.
func (c *core) wantAnswer(t *testing.T, w *wait, replica scheduler.ReplicaID) {
	t.Helper()
	if !w.answered() {
		<-w.done
	}
	q := w.Query(0)
	if q.Code != api.OK || binary.LittleEndian.Uint64(q.Outputs[0].Data) != uint64(replica) || q.Confidence != float64(replica)/10 {
		t.Errorf("answered %v, %v, confidence %v, expected that of replica %d", q.Code, q.Outputs, q.Confidence, replica)
	}
	w.Release()
}

// TestHedgedAnswers: a query whose replica is late is answered by another one, at once, and so are queries that wait at the cache for the
// same. The late answer changes nothing.
func TestHedgedAnswers(t *testing.T) {
	replicas := map[scheduler.ReplicaID]*patient{}
	add := func(l *driver.Lane, id scheduler.ReplicaID) *patient {
		replicas[id] = &patient{l: l, id: id, batches: make(chan *api.Batch, 8)}
		return replicas[id]
	}
	c := newCore(t, "single", 1, 1<<20, func(l *driver.Lane) driver.Replica { return add(l, 1) })
	l := c.fn.Candidates[0].Model.Lane.(*driver.Lane)
	cfg := scheduler.DefaultConfig()
	cfg.Hedge = false // until it is known how long they take
	l.Configure(cfg)
	l.AddReplica(2, add(l, 2), 0)
	take := func() (*patient, *api.Batch) {
		select {
		case b := <-replicas[1].batches:
			return replicas[1], b
		case b := <-replicas[2].batches:
			return replicas[2], b
		}
	}
	for n := range uint64(20) {
		first, second := c.ask(1000+2*n), c.ask(1001+2*n)
		r, b := take()
		other, rest := take()
		r.answer(b)
		other.answer(rest)
		for _, w := range []*wait{first, second} {
			if !w.answered() {
				<-w.done
			}
		}
		first.Release()
		second.Release()
	}
	cfg.Hedge = true
	l.Configure(cfg)

	asks := c.ask(7)
	waits := c.ask(7)
	late, b := take()
	second, twins := take()
	if b.Queries[0] != &asks.Query(0).first.Query { // they may both be there already
		late, b, second, twins = second, twins, late, b
	}
	if late == second || len(twins.Queries) != 1 || twins.Queries[0] == b.Queries[0] {
		t.Fatalf("expected the query's twin at the other replica, got %+v at %d and %+v at %d", b, late.id, twins, second.id)
	}
	second.answer(twins)
	c.wantAnswer(t, asks, second.id)
	c.wantAnswer(t, waits, second.id)
	c.wantAnswer(t, c.ask(7), second.id)
	late.answer(b)
	c.wantAnswer(t, c.ask(7), second.id)
	var s scheduler.Snapshot
	l.Snapshot(&s)
	if s.Held != 0 || s.Counters.Hedged != 1 || s.Counters.HedgeWins != 1 {
		t.Errorf("%d queries are held, %d were sent twice, %d of them won", s.Held, s.Counters.Hedged, s.Counters.HedgeWins)
	}
	for id := range replicas {
		l.ReplicaGone(id, nil)
	}
}
