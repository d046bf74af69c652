package scheduler

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// settle calls Ready on both machines, compares their decisions and carries them out.
func (w *world) settle(t *rapid.T) {
	for i := range w.m {
		w.m[i].Ready(w.now, &w.acts[i])
		for _, d := range w.acts[i].Dispatches {
			if d.Hedge {
				w.mapTwins(i)
			}
		}
	}
	if a, b := w.describe(0), w.describe(1); a != b {
		t.Fatalf("two machines with the same events differ:\n%s\n%s", a, b)
	}
	if len(w.acts[0].Dispatches) > 0 && w.cfg.Shared && !w.hasTurn {
		t.Fatal("a batch was sent outside of a turn")
	}
	for _, d := range w.acts[0].Dispatches {
		w.dispatch(t, d)
	}
	if w.acts[0].EndTurn > 0 {
		if !w.hasTurn {
			t.Fatal("EndTurn without a granted turn")
		}
		w.hasTurn = false
	}
	if w.acts[0].WantTurn {
		if w.hasTurn || w.wantsTurn {
			t.Fatalf("WantTurn while a turn is held (%v) or already asked for (%v)", w.hasTurn, w.wantsTurn)
		}
		w.wantsTurn = true
	}
	for _, k := range w.acts[0].Kills {
		r := w.replica(k.Replica)
		if r == nil || r.killed {
			t.Fatalf("kill of replica %d, which is gone or was killed before", k.Replica)
		}
		r.killed = true
	}
	for _, e := range w.acts[0].Ends {
		w.end(t, e)
	}
	for _, id := range w.acts[0].Drained {
		if r := w.replica(id); w.drained[id] || r != nil && (!r.draining || len(r.out) > 0) {
			t.Fatalf("replica %d was reported as drained while it was not, or twice", id)
		}
		w.drained[id] = true
	}
}

// mapTwins maps a machine's twins to their queries.
func (w *world) mapTwins(i int) {
	for _, tw := range w.queries {
		if copied := tw.items[i].twin; copied != nil {
			w.byQuery[&copied.Query] = tw
		}
	}
}

func (w *world) replica(id ReplicaID) *fakeReplica {
	for _, r := range w.replicas {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (w *world) dispatch(t *rapid.T, d Dispatch) {
	r := w.replica(d.Replica)
	if r == nil || r.draining || r.killed {
		t.Fatalf("batch for replica %d, which is gone, draining or killed", d.Replica)
	}
	fl := &outBatch{id: d.Batch.ID, hedge: d.Hedge}
	bytes := 0
	if d.Hedge && (!w.cfg.Hedge || w.cfg.Shared || len(r.out) >= r.places || w.m[0].live > 0 || w.m[0].retries.len() > 0) {
		t.Fatalf("queries are sent twice: allowed %v, shared %v, behind %d batches; %d others wait", w.cfg.Hedge, w.cfg.Shared, len(r.out), w.m[0].live+w.m[0].retries.len())
	}
	for _, q := range d.Batch.Queries {
		tw := w.byQuery[q]
		if d.Hedge {
			if q == &tw.items[0].Query || tw.batch == nil || tw.batch.alone || tw.batch.hedge || tw.hedged || tw.items[0].Sticky != 0 || tw.answered || tw.lost > 0 || q.Deadline <= w.now {
				t.Fatalf("%s is sent twice: in a batch %v, before %v, answered %v, lost %d times", tw.name, tw.batch != nil, tw.hedged, tw.answered, tw.lost)
			}
			tw.hedged, tw.second = true, fl
			fl.queries = append(fl.queries, tw)
			bytes += q.InputBytes()
			continue
		}
		if tw.batch != nil || tw.second != nil || tw.released || q != &tw.items[0].Query {
			t.Fatalf("%s is in two batches, or sent after its release", tw.name)
		}
		again := tw.lost > 0 || tw.items[0].failed != api.OK
		fl.alone = fl.alone || tw.lost > 0
		if !tw.items[0].answered && q.Deadline <= w.now || q.Expires <= w.now {
			t.Fatalf("%s was sent after its deadline, or after it expired", tw.name)
		}
		if again && (len(d.Batch.Queries) > 1 || len(r.out) >= r.places) || tw.lost > 0 && len(r.out) > 0 {
			t.Fatalf("%s was lost before and was not sent alone", tw.name)
		}
		if kind := tw.items[0].Sticky; kind != 0 && !again && !tw.answered && w.m[0].home(kind).id != d.Replica {
			t.Fatalf("%s, of kind %d, was sent to replica %d: its home is %d", tw.name, kind, d.Replica, w.m[0].home(kind).id)
		}
		tw.batch = fl
		fl.queries = append(fl.queries, tw)
		bytes += q.InputBytes()
	}
	if len(r.out) > 0 && r.out[len(r.out)-1].id >= fl.id {
		t.Fatalf("batch ids do not increase: %d after %d", fl.id, r.out[len(r.out)-1].id)
	}
	if len(r.out) > 0 && (r.out[len(r.out)-1].alone || w.m[0].suspects > 0 || w.m[0].retries.len() > 0 && len(r.out) >= r.places) {
		t.Fatalf("batch %d#%d was sent behind another while lost queries wait, or behind a lost query", r.id, fl.id)
	}
	r.out = append(r.out, fl)
	n, b := len(fl.queries), w.cfg.Batching
	if n == 0 || n > b.MaxBatch || b.Policy == None && !b.Pad && n > 1 || n > 1 && bytes > b.MaxBatchBytes || len(r.out) > r.depth {
		t.Fatalf("batch of %d queries and %d bytes, %d outstanding of %d, under %+v", n, bytes, len(r.out), r.depth, b)
	}
	if b.Pad && n+d.Batch.Pad != b.MaxBatch || !b.Pad && d.Batch.Pad != 0 {
		t.Fatalf("batch of %d padded by %d to %d", n, d.Batch.Pad, b.MaxBatch)
	}
}

func (w *world) end(t *rapid.T, e End) {
	tw := w.byQuery[&e.Item.Query]
	if answers := e.Kind != ReleaseOnly; answers == tw.answered {
		t.Fatalf("%s: end %d, answered before: %v", tw.name, e.Kind, tw.answered)
	}
	tw.answered = true
	if e.Code == api.OK && (tw.best == neither || (tw.best == first) != (e.Item.Result() == &e.Item.Query)) {
		t.Fatalf("%s ends OK with outputs of the wrong batch: %d was the first", tw.name, tw.best)
	}
	if e.Kind == AnswerOnly {
		return
	}
	if tw.released || tw.batch != nil || tw.second != nil {
		t.Fatalf("%s was released twice, or while its batch was in flight", tw.name)
	}
	tw.released = true
}

func (w *world) describe(i int) string {
	a := &w.acts[i]
	var b strings.Builder
	for _, d := range a.Dispatches {
		fmt.Fprintf(&b, "send %d#%d+%d", d.Replica, d.Batch.ID, d.Batch.Pad)
		for _, q := range d.Batch.Queries {
			b.WriteString(" " + w.byQuery[q].name)
		}
	}
	for _, e := range a.Ends {
		fmt.Fprintf(&b, "; %d %s %s", e.Kind, e.Code, w.byQuery[&e.Item.Query].name)
	}
	fmt.Fprintf(&b, "; turn %d %v", a.EndTurn, a.WantTurn)
	fmt.Fprintf(&b, "; %v %v %v; wake %d", a.Kills, a.Drained, a.Evaluated, w.m[i].NextWake())
	return b.String()
}

// check compares the machine's counts with the world's.
func (w *world) check(t *rapid.T) {
	held, flying := 0, 0
	for _, tw := range w.queries {
		if !tw.released {
			held++
		}
		if tw.batch != nil || tw.second != nil {
			flying++
		}
	}
	m := w.m[0]
	if c := &m.counters; float64(c.Hedged) > HedgePart*float64(c.Arrived)+HedgeBurst || c.HedgeWins > c.Hedged {
		t.Fatalf("%d of %d queries were sent twice, %d of them won", c.Hedged, c.Arrived, c.HedgeWins)
	}
	if m.held != held || m.held != m.queuedItems()+flying {
		t.Fatalf("held %d, should be %d: %d waiting and %d in flight", m.held, held, m.queuedItems(), flying)
	}
	live, bytes := 0, 0
	for _, f := range m.functions {
		if f == nil {
			continue
		}
		live += f.queue.len()
		for _, e := range f.queue.heap {
			bytes += e.it.bytes
		}
		if (f.next != nil) != (f.queue.len() > 0) {
			t.Fatalf("function %d has %d waiting and its place in the round robin is %v", f.index, f.queue.len(), f.next != nil)
		}
	}
	if live != m.live || bytes != m.liveBytes {
		t.Fatalf("%d live queries of %d bytes, counted %d of %d", live, bytes, m.live, m.liveBytes)
	}
	suspects := 0
	for _, e := range m.retries.heap {
		if e.it.mayKill() {
			suspects++
		}
	}
	if suspects != m.suspects {
		t.Fatalf("%d waiting queries may have killed a replica, counted %d", suspects, m.suspects)
	}
	for _, q := range []*queue{&m.late, &m.retries} {
		for _, e := range q.heap {
			bytes += e.it.bytes
		}
	}
	sticky := len(m.homes.homeless.heap)
	for _, e := range m.homes.homeless.heap {
		bytes += e.it.bytes
	}
	if sticky > 0 && m.ready > 0 {
		t.Fatalf("%d sticky queries wait for a replica while %d take batches", sticky, m.ready)
	}
	for _, r := range m.replicas {
		sticky += r.own.len()
		for _, e := range r.own.heap {
			if bytes += e.it.bytes; m.home(e.it.Sticky) != r || e.it.home != r {
				t.Fatalf("a query of kind %d waits for replica %d, which is not its home", e.it.Sticky, r.id)
			}
		}
	}
	if sticky != m.homes.waiting {
		t.Fatalf("%d sticky queries wait, counted %d", sticky, m.homes.waiting)
	}
	if bytes != m.bytes {
		t.Fatalf("%d bytes wait, counted %d", bytes, m.bytes)
	}
	flights := 0
	for _, r := range w.replicas {
		flights += len(r.out)
	}
	if w.hasTurn && flights == 0 {
		t.Fatal("the device is held with nothing in flight")
	}
	for _, r := range w.replicas {
		// On a shared device, waiting for a turn is not idling, and a turn that is nearly over begins no new batch.
		idle := len(r.out) == 0 || len(r.out) < r.places && !r.out[len(r.out)-1].alone && m.suspects == 0
		waiting := m.forAny() + m.byID[r.id].own.len()
		if !r.draining && !r.killed && idle && waiting > 0 && m.holdUntil <= w.now && (!w.cfg.Shared || !w.wantsTurn && flights == 0) {
			t.Fatalf("replica %d idles while %d queries wait", r.id, waiting)
		}
	}
	ended := m.counters.GivenBack
	for _, n := range m.counters.Ended {
		ended += n
	}
	unanswered := uint64(0)
	for _, tw := range w.queries {
		if !tw.answered {
			unanswered++
		}
	}
	if m.counters.Arrived != ended+unanswered {
		t.Fatalf("%d arrived, %d ended, %d are unanswered", m.counters.Arrived, ended, unanswered)
	}
}

// finish serves what is left with one good replica, or closes the machine. Every query must then end.
func (w *world) finish(t *rapid.T) {
	if rapid.Bool().Draw(t, "close") {
		w.both(func(m *Machine) { m.Close(w.now, api.ShuttingDown) })
		w.settle(t)
	}
	if len(w.replicas) > 3 {
		w.replicas[0].draining = true
		w.both(func(m *Machine) { m.ReplicaDrain(w.now, w.replicas[0].id) })
		w.settle(t)
	}
	w.lastID++
	good := &fakeReplica{id: w.lastID, depth: 1, places: 1}
	w.replicas = append(w.replicas, good)
	w.both(func(m *Machine) { m.ReplicaReady(w.now, good.id, 1) })
	w.settle(t)
	// Each turn ends a batch or (during a hold) lets time pass, so a query cannot wait for more turns than there are
	// queries.
	for turns := 2*len(w.queries) + 10; w.m[0].Held() > 0; turns-- {
		if turns == 0 {
			t.Fatalf("%d queries do not end", w.m[0].Held())
		}
		served := false
		for _, r := range w.replicas {
			if len(r.out) > 0 {
				res := api.BatchResult{ID: r.out[0].id, EvalNanos: 1000}
				w.batchEnded(r, 0, api.OK)
				w.both(func(m *Machine) { m.BatchDone(w.now, r.id, &res) })
				w.settle(t)
				served = true
			}
		}
		if w.wantsTurn {
			w.giveTurn(1e6)
			w.settle(t)
			served = true
		}
		if !served {
			w.jump(t)
		}
		w.check(t)
	}
	for _, tw := range w.queries {
		if !tw.answered || !tw.released {
			t.Fatalf("%s: answered %v, released %v", tw.name, tw.answered, tw.released)
		}
	}
}
