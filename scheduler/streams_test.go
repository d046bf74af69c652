package scheduler

import (
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// streamRig is a machine for a model that answers in streams, and what it has decided.
type streamRig struct {
	*testing.T
	m    *Machine
	now  api.Nanos
	acts Actions
	sent []Dispatch
	ends []End
	dead []Kill
}

func newStreamRig(t *testing.T, replicas, concurrency int) *streamRig {
	cfg := DefaultConfig()
	cfg.Streams = true
	r := &streamRig{T: t, m: New(cfg), now: 1}
	r.m.AddFunction(1)
	for id := range replicas {
		r.m.ReplicaReady(r.now, ReplicaID(id+1), 2)
		r.m.SetConcurrency(ReplicaID(id+1), concurrency)
	}
	return r
}

func (r *streamRig) settle() {
	for again := true; again; {
		r.m.Ready(r.now, &r.acts)
		again = len(r.acts.Dispatches)+len(r.acts.Ends) > 0
		r.sent, r.ends, r.dead = append(r.sent, r.acts.Dispatches...), append(r.ends, r.acts.Ends...), append(r.dead, r.acts.Kills...)
	}
}

func (r *streamRig) arrive(n int) {
	for range n {
		r.m.Arrive(r.now, &Item{Query: api.Query{Arrived: r.now, Deadline: r.now + 1e9, Expires: r.now + 1e9}})
	}
	r.settle()
}

func (r *streamRig) want(dispatches int, kinds ...EndKind) {
	r.Helper()
	got := make([]EndKind, 0, len(r.ends))
	for _, e := range r.ends {
		got = append(got, e.Kind)
	}
	if len(r.sent) != dispatches || !slices.Equal(got, kinds) {
		r.Fatalf("%d batches were sent and queries ended %v: expected %d and %v", len(r.sent), got, dispatches, kinds)
	}
}

// first and done report the i-th batch that was sent.
func (r *streamRig) first(i int) {
	r.m.FirstOutput(r.now, r.sent[i].Replica, r.sent[i].Batch.ID, 5e6)
	r.settle()
}

func (r *streamRig) done(i int, code api.Code) {
	r.m.BatchDone(r.now, r.sent[i].Replica, &api.BatchResult{ID: r.sent[i].Batch.ID, Code: code, EvalNanos: 1e6})
	r.settle()
}

// The first output answers a query, the end of the stream releases it; a replica has as many streams as it evaluates at once, and others wait.
func TestStreamsHoldTheirPlaces(t *testing.T) {
	r := newStreamRig(t, 1, 3)
	r.arrive(5)
	r.want(3)
	for _, d := range r.sent {
		if len(d.Batch.Queries) != 1 {
			t.Errorf("a batch of %d queries", len(d.Batch.Queries))
		}
	}
	r.first(0)
	r.first(1)
	r.first(1) // twice is nothing
	r.want(3, AnswerOnly, AnswerOnly)
	r.done(1, api.OK)
	r.want(4, AnswerOnly, AnswerOnly, ReleaseOnly)
	r.done(2, api.OK) // without a first output
	r.want(5, AnswerOnly, AnswerOnly, ReleaseOnly, Both)
}

// A stream that flows misses no deadline and counts as no hang, however long it takes; the next query that gets no first output does.
func TestStreamsTakeTheirTime(t *testing.T) {
	r := newStreamRig(t, 1, 2)
	r.arrive(1)
	r.first(0)
	r.now += 3600e9
	r.m.Advance(r.now)
	r.settle()
	r.want(1, AnswerOnly)
	if len(r.dead) > 0 {
		t.Fatalf("the replica was killed: %v", r.dead)
	}
	r.arrive(1)
	r.want(2, AnswerOnly)
	for range 100 {
		r.now = max(r.now+1, min(r.m.NextWake(), r.now+100e9))
		r.m.Advance(r.now)
		r.settle()
	}
	if len(r.dead) != 1 || r.ends[1].Code != api.DeadlineExceeded {
		t.Errorf("a silent replica: kills %v, ends %v", r.dead, r.ends)
	}
}

// A replica that dies gives back the query that had no output, to be tried again, and ends the stream that had one.
func TestStreamsOfALostReplica(t *testing.T) {
	r := newStreamRig(t, 2, 2)
	r.arrive(4)
	r.want(4)
	lost := r.sent[0].Replica
	r.first(0)
	r.m.ReplicaGone(r.now, lost, nil)
	r.settle()
	codes := map[api.Code]int{}
	for _, e := range r.ends {
		codes[e.Code]++
	}
	if codes[api.OK] != 1 || codes[api.ReplicaLost] != 1 || len(r.ends) != 2 {
		t.Errorf("ends %v: expected one stream to break off", r.ends)
	}
	for i := 1; i < 4; i++ {
		if r.sent[i].Replica != lost {
			r.done(i, api.OK)
		}
	}
	if last := r.sent[len(r.sent)-1]; len(r.sent) != 5 || last.Replica == lost {
		t.Errorf("%d batches were sent: expected the query without an output again, on the other replica", len(r.sent))
	}
}

// The profile is that of first outputs, not of how long streams last.
func TestProfileOfStreams(t *testing.T) {
	r := newStreamRig(t, 1, 1)
	for i := range 20 {
		r.arrive(1)
		r.first(i)
		r.now += 60e9
		r.done(i, api.OK)
	}
	var s Snapshot
	r.m.Snapshot(&s)
	if p := s.Replicas[0]; p.Samples != 20 || p.P99Nanos > 20e6 {
		t.Errorf("%d samples, P99 %d ns: expected 20 of 5 ms", p.Samples, p.P99Nanos)
	}
}
