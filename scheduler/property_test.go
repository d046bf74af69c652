package scheduler

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestRandomEvents sends random events to a machine. After every event it checks that each accepted query is in exactly
// one place, is answered exactly once and then released exactly once, that no bound is exceeded, that no replica idles
// while there is work, and that a second machine that sees the same events makes the same decisions.
func TestRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"":              func(t *rapid.T) { w.check(t) },
			"arrive":        w.arrive,
			"arriveMany":    func(t *rapid.T) { w.arriveMany(t) },
			"done":          w.done,
			"doneOften":     w.done,
			"replicaReady":  w.replicaReady,
			"replicaGone":   w.replicaGone,
			"replicaDrain":  w.replicaDrain,
			"sendFailed":    w.sendFailed,
			"practise":      w.warmUp,
			"advance":       w.advance,
			"jump":          w.jump,
			"cancel":        w.cancel,
			"giveBack":      w.giveBack,
			"configure":     w.configure,
			"plan":          w.plan,
			"grant":         w.grant,
			"addFunction":   w.addFunction,
			"dropFunction":  w.dropFunction,
			"unknownEvents": w.unknownEvents,
		})
		w.finish(t)
	})
}

// queryPair is a query in both machines, with what the test knows about it.
type queryPair struct {
	name     string
	items    [2]*Item
	answered bool
	released bool
	lost     int  // times that a replica died on it
	culprit  bool // a replica crashed on it, and had begun nothing else
	lastTry  bool // a replica died on it alone, after or while it was in a batch with others
	batch    *outBatch
	second   *outBatch // the batch of its second copy, sent while the first was in flight
	hedged   bool
	best     rank // which of the two evaluated it first
}

// rank tells a query's two batches apart.
type rank uint8

const (
	neither rank = iota
	first
	second
)

// outBatch is an outstanding batch.
type outBatch struct {
	id      uint64
	queries []*queryPair
	alone   bool // a query that was lost before
	hedge   bool
}

type fakeReplica struct {
	id       ReplicaID
	depth    int // with its concurrency
	places   int // its concurrency
	out      []*outBatch
	draining bool
	killed   bool
}

type world struct {
	m         [2]*Machine
	acts      [2]Actions
	now       api.Nanos
	cfg       Config
	queries   []*queryPair
	byQuery   map[*api.Query]*queryPair
	replicas  []*fakeReplica
	lastID    ReplicaID
	functions []int32
	drained   map[ReplicaID]bool

	wantsTurn, hasTurn bool
}

func drawConfig(t *rapid.T) Config {
	return Config{
		Depth:         rapid.IntRange(0, 3).Draw(t, "depth"),
		MaxQueue:      rapid.IntRange(1, 20).Draw(t, "maxQueue"),
		MaxQueueBytes: rapid.IntRange(50, 2000).Draw(t, "maxQueueBytes"),
		Batching: Batching{
			Policy:         Policy(rapid.IntRange(0, 3).Draw(t, "policy")),
			MaxBatch:       rapid.IntRange(1, 8).Draw(t, "maxBatch"),
			MaxBatchBytes:  rapid.IntRange(20, 200).Draw(t, "maxBatchBytes"),
			HoldNanos:      rapid.SampledFrom([]int64{0, 0, 1e6, 5e6}).Draw(t, "hold"),
			ObjectiveNanos: rapid.SampledFrom([]int64{0, 1e6, 20e6}).Draw(t, "objective"),
			Pad:            rapid.IntRange(0, 7).Draw(t, "pad") == 0,
		},
		Shared:       rapid.IntRange(0, 3).Draw(t, "shared") == 0,
		Retry:        rapid.IntRange(0, 3).Draw(t, "retry") > 0,
		Hedge:        rapid.IntRange(0, 7).Draw(t, "hedge") > 0,
		TimeoutNanos: rapid.SampledFrom([]int64{0, 2e9}).Draw(t, "timeout"),
	}
}

func newWorld(t *rapid.T) *world { return newWorldOf(t, drawConfig(t)) }

func newWorldOf(t *rapid.T, cfg Config) *world {
	w := &world{m: [2]*Machine{New(cfg), New(cfg)}, cfg: cfg.normal(), byQuery: map[*api.Query]*queryPair{}, drained: map[ReplicaID]bool{}}
	w.addFunction(t)
	return w
}

func (w *world) both(event func(m *Machine)) {
	event(w.m[0])
	event(w.m[1])
}

func (w *world) addFunction(t *rapid.T) {
	weight := rapid.SampledFrom([]float64{0, 0.1, 1, 3, 50}).Draw(t, "weight")
	i := w.m[0].AddFunction(weight)
	if j := w.m[1].AddFunction(weight); i != j {
		t.Fatalf("function indexes differ: %d and %d", i, j)
	}
	w.functions = append(w.functions, i)
}

func (w *world) dropFunction(t *rapid.T) {
	if len(w.functions) < 2 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(w.functions)-1).Draw(t, "function")
	w.both(func(m *Machine) { m.RemoveFunction(w.functions[i]) })
	w.functions = append(w.functions[:i], w.functions[i+1:]...)
	w.settle(t)
}

func (w *world) arrive(t *rapid.T) {
	w.arriveOne(t)
	w.settle(t)
}

func (w *world) arriveMany(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "count") {
		w.arriveOne(t)
	}
	w.settle(t)
}

func (w *world) arriveOne(t *rapid.T) {
	slo := api.Nanos(rapid.SampledFrom([]int64{0, 1e6, 5e6, 20e6, 20e6, 100e6, 5e9}).Draw(t, "slo"))
	ttl := api.Nanos(rapid.SampledFrom([]int64{0, 0, 50e6, 1e9}).Draw(t, "ttl"))
	bytes := rapid.IntRange(0, 60).Draw(t, "bytes")
	kind := rapid.SampledFrom([]uint64{0, 0, 0, 1, 2, 3}).Draw(t, "kind")
	w.arriveWith(t, rapid.SampledFrom(w.functions).Draw(t, "function"), slo, ttl, bytes, kind)
}

func (w *world) arriveWith(t *rapid.T, function int32, slo, ttl api.Nanos, bytes int, kind uint64) {
	tw := &queryPair{name: fmt.Sprintf("q%d", len(w.queries))}
	for i := range w.m {
		tw.items[i] = &Item{Sticky: kind, Query: api.Query{Function: function, Context: make([]byte, bytes), Arrived: w.now, Deadline: w.now + slo, Expires: w.now + max(slo, ttl)}}
		w.byQuery[&tw.items[i].Query] = tw
		before := w.m[i].queuedItems()
		w.m[i].Arrive(w.now, tw.items[i])
		if place := tw.items[i].place; (place == queued || place == atHome) && (w.m[i].queuedItems() > w.cfg.MaxQueue || w.m[i].bytes > w.cfg.MaxQueueBytes && before > 0 && w.m[i].queuedItems() > 1) {
			t.Fatalf("%s was admitted beyond the bounds: %d queries, %d bytes wait", tw.name, w.m[i].queuedItems(), w.m[i].bytes)
		}
	}
	w.queries = append(w.queries, tw)
}

func (w *world) pickReplica(t *rapid.T, want func(r *fakeReplica) bool) *fakeReplica {
	var list []*fakeReplica
	for _, r := range w.replicas {
		if want(r) {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(list).Draw(t, "replica")
}

func (w *world) done(t *rapid.T) {
	r := w.pickReplica(t, func(r *fakeReplica) bool { return len(r.out) > 0 })
	i := 0
	if rapid.IntRange(0, 5).Draw(t, "outOfOrder") == 0 {
		i = rapid.IntRange(0, len(r.out)-1).Draw(t, "batch")
	}
	w.now += api.Nanos(rapid.Int64Range(0, 8e6).Draw(t, "took"))
	res := api.BatchResult{ID: r.out[i].id, Code: rapid.SampledFrom([]api.Code{api.OK, api.OK, api.OK, api.OK, api.ModelError, api.TooLarge}).Draw(t, "code"),
		EvalNanos: rapid.Int64Range(0, 10e6).Draw(t, "eval")}
	w.batchEnded(r, i, res.Code)
	stamp := w.now - api.Nanos(rapid.Int64Range(0, 1e6).Draw(t, "lag"))
	w.both(func(m *Machine) { m.BatchDone(stamp, r.id, &res) })
	w.settle(t)
}

// batchEnded removes an outstanding batch and notes which one evaluated its queries first.
func (w *world) batchEnded(r *fakeReplica, i int, c api.Code) {
	for _, tw := range r.out[i].queries {
		from := second
		if r.out[i].hedge {
			tw.second = nil
		} else {
			tw.batch, from = nil, first
		}
		if c == api.OK && tw.best == neither {
			tw.best = from
		}
	}
	r.out = append(r.out[:i], r.out[i+1:]...)
}

func (w *world) replicaReady(t *rapid.T) {
	if len(w.replicas) >= 4 {
		t.Skip()
	}
	w.lastID++
	r := &fakeReplica{id: w.lastID, places: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "concurrency")}
	depth := rapid.IntRange(0, 3).Draw(t, "depth")
	if r.depth = depth + r.places - 1; depth == 0 {
		r.depth += w.cfg.Depth
	}
	w.replicas = append(w.replicas, r)
	w.both(func(m *Machine) {
		m.ReplicaReady(w.now, r.id, depth)
		m.SetConcurrency(r.id, r.places)
	})
	w.settle(t)
}

func (w *world) replicaGone(t *rapid.T) {
	r := w.pickReplica(t, func(*fakeReplica) bool { return true })
	begun := rapid.IntRange(0, len(r.out)).Draw(t, "begun")
	var upTo uint64
	if begun > 0 {
		upTo = r.out[begun-1].id
	}
	var lost []*queryPair
	twins := false
	for len(r.out) > 0 {
		if r.out[0].id <= upTo {
			lost, twins = append(lost, r.out[0].queries...), twins || r.out[0].hedge
			for _, tw := range r.out[0].queries {
				tw.lastTry = tw.lastTry || r.out[0].alone || r.out[0].hedge && len(r.out[0].queries) == 1
			}
		}
		w.batchEnded(r, 0, api.ReplicaLost)
	}
	for i, other := range w.replicas {
		if other == r {
			w.replicas = append(w.replicas[:i], w.replicas[i+1:]...)
			break
		}
	}
	crashed := rapid.Bool().Draw(t, "crashed")
	w.both(func(m *Machine) {
		begun := func(id uint64) bool { return id <= upTo }
		if m.HasCulprit(w.now, r.id, begun) && (len(lost) != 1 || !w.cfg.Retry) {
			t.Fatalf("%d queries had begun on replica %d, and one of them is its culprit", len(lost), r.id)
		}
		if crashed {
			m.ReplicaCrashed(w.now, r.id, begun)
		} else {
			m.ReplicaGone(w.now, r.id, begun)
		}
	})
	for _, tw := range lost {
		tw.lost++
		tw.culprit = tw.culprit || crashed && len(lost) == 1 && !twins
	}
	w.settle(t)
	for _, tw := range lost {
		// One that was sent twice may have been lost twice with others, and is still owed a batch of its own.
		if over := tw.lost > 2 || tw.lost > 1 && tw.lastTry || tw.culprit || !w.cfg.Retry; over && !tw.released && tw.batch == nil && tw.second == nil {
			t.Fatalf("%s was lost %d times (retry %v) and was not released", tw.name, tw.lost, w.cfg.Retry)
		}
	}
	if r.draining && !w.drained[r.id] {
		t.Fatalf("replica %d died while it drained, and was never reported as drained", r.id)
	}
}

func (w *world) replicaDrain(t *rapid.T) {
	r := w.pickReplica(t, func(r *fakeReplica) bool { return !r.draining })
	r.draining = true
	w.both(func(m *Machine) { m.ReplicaDrain(w.now, r.id) })
	w.settle(t)
}

func (w *world) sendFailed(t *rapid.T) {
	r := w.pickReplica(t, func(r *fakeReplica) bool { return len(r.out) > 0 })
	i := len(r.out) - 1
	id := r.out[i].id
	err := rapid.SampledFrom([]error{api.Errorf(api.TooLarge, "too large"), errors.New("broken")}).Draw(t, "error")
	w.batchEnded(r, i, api.TooLarge)
	w.both(func(m *Machine) { m.SendFailed(w.now, r.id, id, err) })
	w.settle(t)
}

func (w *world) advance(t *rapid.T) {
	w.now += api.Nanos(rapid.Int64Range(0, 10e6).Draw(t, "pause"))
	w.wake(t)
}

// warmUp makes the replicas evaluate single queries, so that their profiles become known.
func (w *world) warmUp(t *rapid.T) {
	for range knownSamples {
		for range w.replicas {
			w.arriveWith(t, w.functions[0], 5e9, 0, 8, 0)
			w.settle(t)
		}
		w.now += 1e6
		for _, r := range w.replicas {
			if len(r.out) > 0 {
				res := api.BatchResult{ID: r.out[0].id, EvalNanos: 1e6}
				w.batchEnded(r, 0, api.OK)
				w.both(func(m *Machine) { m.BatchDone(w.now, r.id, &res) })
			}
		}
	}
	w.wake(t)
}

// jump moves the clock to NextWake.
func (w *world) jump(t *rapid.T) {
	at := w.m[0].NextWake()
	if at == api.Never {
		t.Skip()
	}
	w.now = max(w.now, at)
	w.wake(t)
}

func (w *world) wake(t *rapid.T) {
	w.both(func(m *Machine) { m.Advance(w.now) })
	w.settle(t)
	for _, tw := range w.queries {
		if !tw.answered && tw.items[0].Deadline <= w.now {
			t.Fatalf("%s has no answer at its deadline", tw.name)
		}
	}
	if at := w.m[0].NextWake(); at <= w.now {
		t.Fatalf("just advanced to %d, and NextWake is %d", w.now, at)
	}
}

func (w *world) cancel(t *rapid.T) {
	if len(w.queries) == 0 {
		t.Skip()
	}
	tw := w.queries[rapid.IntRange(max(0, len(w.queries)-20), len(w.queries)-1).Draw(t, "query")]
	for i, m := range w.m {
		m.Cancel(w.now, tw.items[i])
	}
	w.settle(t)
	if tw.batch == nil && tw.second == nil && !tw.released {
		t.Fatalf("%s was cancelled, is not in flight and was not released", tw.name)
	}
}

// giveBack hands some of the waiting queries back. For their owners they are over.
func (w *world) giveBack(t *rapid.T) {
	part := rapid.IntRange(1, 3).Draw(t, "part")
	chosen := map[*queryPair]bool{}
	for i, m := range w.m {
		m.GiveBack(w.now, func(it *Item) bool {
			tw := w.byQuery[&it.Query]
			if tw.answered || tw.batch != nil || tw.second != nil {
				t.Fatalf("%s is offered although it has an answer or is in flight", tw.name)
			}
			if int(tw.items[i].seq)%part == 0 {
				chosen[tw] = true
			}
			return chosen[tw]
		})
	}
	w.settle(t)
	for tw := range chosen {
		if !tw.released {
			t.Fatalf("%s was not handed back", tw.name)
		}
	}
}

func (w *world) configure(t *rapid.T) {
	cfg := drawConfig(t)
	w.both(func(m *Machine) { m.Configure(w.now, cfg) })
	w.cfg = cfg.normal()
	w.settle(t)
}

func (w *world) plan(t *rapid.T) {
	var p Plan
	for range rapid.IntRange(0, 4).Draw(t, "functions") {
		p.Functions = append(p.Functions, FunctionPlan{
			Weight: rapid.SampledFrom([]float64{0, 0.5, 1000}).Draw(t, "weight"),
			Shed:   rapid.SampledFrom([]float64{0, 0, 0, 0.3, 1, 7, math.NaN(), -1}).Draw(t, "shed"),
		})
	}
	for _, r := range w.replicas {
		p.Replicas = append(p.Replicas, ReplicaPlan{ID: r.id, Cap: rapid.IntRange(0, 3).Draw(t, "cap"),
			HoldNanos:      rapid.SampledFrom([]int64{0, -1, 3e6}).Draw(t, "hold"),
			ObjectiveNanos: rapid.SampledFrom([]int64{0, -1, 2e6}).Draw(t, "objective"),
			Shares:         rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1, 5, math.NaN(), -1, math.Inf(1)}), 0, 4).Draw(t, "shares")})
	}
	p.Execution = Execution(rapid.IntRange(0, 2).Draw(t, "execution"))
	w.both(func(m *Machine) { m.SetPlan(p) })
	w.settle(t)
}

// grant grants a turn that was asked for, longer or shorter than a batch takes.
func (w *world) grant(t *rapid.T) {
	if !w.wantsTurn {
		t.Skip()
	}
	w.giveTurn(rapid.SampledFrom([]int64{0, 1e6, 20e6}).Draw(t, "turn"))
	w.settle(t)
}

func (w *world) giveTurn(nanos int64) {
	w.wantsTurn, w.hasTurn = false, true
	w.both(func(m *Machine) { m.TurnGranted(w.now, nanos) })
}

// unknownEvents are reports that a transport may send too late.
func (w *world) unknownEvents(t *rapid.T) {
	w.both(func(m *Machine) {
		m.BatchDone(w.now, 9999, &api.BatchResult{ID: 1})
		m.ReplicaGone(w.now, 9999, nil)
		m.ReplicaDrain(w.now, 9999)
		m.SendFailed(w.now, 9999, 1, errors.New("late"))
		m.RemoveFunction(9999)
		m.RemoveFunction(-1)
		for _, r := range w.replicas {
			m.BatchDone(w.now, r.id, &api.BatchResult{ID: 1 << 60})
		}
	})
	w.settle(t)
}
