package learned

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const (
	// minBackoff and maxBackoff bound the pause after a failed call.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second //xebec:limit longest interval between attempts while the store is unreachable
	// callTimeout limits a call to a store that has no timeout of its own.
	callTimeout = 10 * time.Second //xebec:limit time for a call of the store
	// maxGroup is the number of states in one call: enough to amortise the round trip, few enough not to block the
	// store.
	maxGroup = 512
	// pieceRecords is how many records of a shard are collected while holding its lock, which queries wait for.
	pieceRecords = 32
	// maxRefreshShare bounds the cost of refreshing: the pause after a refresh is this many times its duration.
	maxRefreshShare = 10
	// closeAttempts is how often the last flush is tried.
	closeAttempts = 3
)

// flight is an update that is being sent. It does not change until the store has answered.
type flight struct {
	lineage *lineage
	update  state.Update
}

// readRequest is a state to read.
type readRequest struct {
	lineage *lineage
	context string
	why     replyKind
}

// writer calls the store. Fields that mu or Table.mu do not guard belong to its goroutine.
type writer struct {
	kick chan struct{}
	// errands are what users ask for: see edit.go.
	errands chan errand
	stop    chan struct{}
	done    chan struct{}
	close   sync.Once
	// begun: the store of a table of Config.Later has come. reread: every state in memory is to be read again.
	begun  bool
	reread atomic.Bool
	// calls is the parent of all calls to the store. Cancelling it aborts them.
	calls  context.Context
	cancel context.CancelFunc

	send, load, used []*lineage // marked, not yet processed
	flights          []flight
	seq              uint64
	// group and readGroup are the number of states in the next call. They halve when a call fails, so that a store that
	// is too slow for large calls gets smaller ones, and grow again.
	group, readGroup int

	valued                      []*lineage // those with a value
	valuesAt                    time.Time
	valuesBackoff               time.Duration
	flushAt, refreshAt, retryAt time.Time
	idleAt                      time.Time // zero: the store has no other writer
	backoff                     time.Duration
	minBackoff, maxBackoff      time.Duration // the constants, except in tests
	refusalLogged               time.Time

	mu    sync.Mutex
	stats Stats
}

func (w *writer) init() {
	w.kick, w.stop, w.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	w.errands = make(chan errand)
	w.calls, w.cancel = context.WithCancel(context.Background())
	w.group, w.readGroup = maxGroup, maxGroup
	w.minBackoff, w.maxBackoff = minBackoff, maxBackoff
	// Sequence numbers must also increase from one table to the next over the same store. Microseconds since 1970 fit
	// exactly into a float64, which is how Redis scripts count.
	w.seq = uint64(time.Now().UnixMicro())
}

func (t *Table) run() {
	w := &t.writer
	defer close(w.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.kick:
		case <-timer.C:
		case e := <-w.errands:
			e.done <- e.do()
		case <-w.stop:
			return
		}
		timer.Stop()
		if wake := t.step(time.Now); !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
	}
}

// tasks are what a step does, in order.
var tasks = [...]func(t *Table, clock func() time.Time) error{(*Table).forgetDeleted, (*Table).load, (*Table).flush, (*Table).rereadAll, (*Table).refresh, (*Table).refreshIdle}

// step does what is due and returns the time of the next step. Zero means that only a kick makes a step necessary.
func (t *Table) step(clock func() time.Time) time.Time {
	w := &t.writer
	now := clock()
	t.takeNotes()
	t.syncValues(clock)
	if now.Before(w.retryAt) {
		return earliest(w.retryAt, w.valuesAt)
	}
	if w.flushAt.IsZero() && len(w.send)+len(w.flights) > 0 {
		w.flushAt = now.Add(t.cfg.Flush)
	}
	if w.refreshAt.IsZero() && len(w.used) > 0 {
		w.refreshAt = now.Add(t.cfg.Refresh)
	}
	if w.idleAt.IsZero() && t.cfg.Refresh > 0 {
		w.idleAt = now.Add(idleRefresh * t.cfg.Refresh)
	}
	for _, task := range tasks {
		if err := task(t, clock); err != nil {
			w.backoff = min(max(2*w.backoff, w.minBackoff), w.maxBackoff)
			// Gateways that lost the same store must not all come back at once.
			w.retryAt = clock().Add(w.backoff - rand.N(w.backoff/4))
			if len(w.flights) > 0 {
				w.flushAt = w.retryAt
			}
			return earliest(w.retryAt, w.valuesAt)
		}
	}
	if len(w.load) > 0 {
		return now
	}
	return earliest(w.flushAt, w.refreshAt, w.valuesAt, w.idleAt)
}

// earliest returns the first of the times that is set; zero if none is.
func earliest(times ...time.Time) (first time.Time) {
	for _, at := range times {
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// takeNotes sorts the marks that were set since the last call.
func (t *Table) takeNotes() {
	w := &t.writer
	t.inbox.mu.Lock()
	notes := t.inbox.notes
	t.inbox.notes = nil
	t.inbox.mu.Unlock()
	for _, n := range notes {
		switch n.what {
		case toSend:
			w.send = append(w.send, n.lineage)
		case toLoad:
			w.loadFor(n.lineage)
		case inUse:
			w.used = append(w.used, n.lineage)
		case toSave:
			n.lineage.marks.And(^toSave)
			w.value(n.lineage)
		}
	}
}

// call makes one call to the store about the given number of states and records the outcome. States that the store
// refuses are in refused, by index, and have no answer. err is an error of the whole call.
func (t *Table) call(states int, ask func(ctx context.Context) ([][]state.Total, error)) (answers [][]state.Total, refused []state.Refusal, err error) {
	w := &t.writer
	ctx, cancel := context.WithTimeout(w.calls, callTimeout)
	answers, err = ask(ctx)
	cancel()
	var refusal *state.RefusedError
	if errors.As(err, &refusal) {
		refused, err = refusal.Refused, nil
	}
	if err == nil && len(answers) != states {
		err = fmt.Errorf("the store answered with %d states, expected %d", len(answers), states)
	}
	now := time.Now()
	w.mu.Lock()
	wasAway := w.stats.Unavailable
	w.stats.Unavailable = err != nil
	w.stats.Refused += int64(len(refused))
	switch {
	case err != nil:
		w.stats.Errors++
		w.stats.LastError, w.stats.LastErrorAt = err.Error(), now
	case len(refused) > 0:
		w.stats.LastError, w.stats.LastErrorAt = refusal.Error(), now
		w.stats.LastSuccess = now
	default:
		w.stats.LastSuccess = now
	}
	w.mu.Unlock()
	t.logCall(wasAway, err, refusal, now)
	if err == nil {
		w.backoff = 0
	}
	return answers, refused, err
}

// refusalLogPause limits log lines about a state that is refused with every flush.
const refusalLogPause = time.Minute

func (t *Table) logCall(wasAway bool, err error, refusal *state.RefusedError, now time.Time) {
	store, pending := zap.String("store", t.store.Name()), zap.Int64("pending_states", t.pending.Load())
	switch {
	case err != nil && !wasAway:
		t.cfg.Log.Warn("the store of policy states does not answer: serving continues from memory, updates are kept for later", store, pending, zap.Error(err))
	case err == nil && wasAway:
		t.cfg.Log.Info("the store of policy states answers again", store, pending)
	}
	if w := &t.writer; refusal != nil && now.Sub(w.refusalLogged) > refusalLogPause {
		w.refusalLogged = now
		t.cfg.Log.Warn("the store refuses a policy state: its updates are kept in memory only", store, zap.Error(refusal))
	}
}

func (w *writer) count(what *int64, n int) {
	w.mu.Lock()
	*what += int64(n)
	w.mu.Unlock()
}

// forgetDeleted deletes the states of deleted functions from the store.
func (t *Table) forgetDeleted(func() time.Time) error {
	for {
		t.mu.Lock()
		if len(t.forgets) == 0 {
			t.mu.Unlock()
			return nil
		}
		function := t.forgets[0]
		t.mu.Unlock()
		_, _, err := t.call(0, func(ctx context.Context) ([][]state.Total, error) { return nil, t.store.Forget(ctx, function) })
		t.mu.Lock()
		if err == nil {
			t.forgets = slices.Delete(t.forgets, 0, 1)
		}
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// forgetPending reports whether the store still has the states of a deleted function of the same name, so that this one
// must not be read or written yet. The caller holds Table.mu.
func (t *Table) forgetPending(l *lineage) bool { return slices.Contains(t.forgets, l.function) }

// flush sends deltas when it is due: first the updates that failed before, then new ones.
func (t *Table) flush(clock func() time.Time) error {
	w := &t.writer
	if !due(w.flushAt, clock()) {
		return nil
	}
	w.flushAt = time.Time{}
	t.collect()
	return t.sendAll()
}

func (t *Table) sendAll() error {
	w := &t.writer
	for {
		// Updates of lineages that have been deleted meanwhile are dropped.
		t.mu.Lock()
		w.flights = slices.DeleteFunc(w.flights, func(f flight) bool { return f.lineage.now == nil })
		t.mu.Unlock()
		if len(w.flights) == 0 {
			return nil
		}
		group := w.flights[:min(w.group, len(w.flights))]
		if err := t.merge(group); err != nil {
			w.group = max(1, len(group)/2)
			return err
		}
		w.flights = slices.Delete(w.flights, 0, len(group))
		w.group = min(2*w.group, maxGroup)
	}
}

// merge sends updates and applies the answers. A refused state stays in memory. If the conflicting entry in the store
// is deleted, the next update of the state writes everything that is known here.
func (t *Table) merge(group []flight) error {
	updates := make([]state.Update, len(group))
	for i, f := range group {
		updates[i] = f.update
	}
	answers, refused, err := t.call(len(group), func(ctx context.Context) ([][]state.Total, error) { return t.store.Merge(ctx, updates) })
	if err != nil {
		return err
	}
	t.lost.Add(int64(len(refused)))
	t.writer.count(&t.writer.stats.Flushes, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range group {
		if st := f.lineage.now; st != nil {
			st.applyReply([]byte(f.update.Key.Context), answers[i], merged)
		}
	}
	return nil
}

// collect makes updates of the deltas of states without an update in flight.
func (t *Table) collect() {
	w := &t.writer
	marked := w.send
	w.send = nil
	for _, lin := range marked {
		t.mu.Lock()
		if t.forgetPending(lin) {
			w.send = append(w.send, lin)
		} else {
			lin.marks.And(^toSend)
			if lin.now != nil {
				lin.now.collect(w)
			}
		}
		t.mu.Unlock()
	}
}

func (st *states) collect(w *writer) {
	st.collectGlobal(w)
	shards := st.shards.Load()
	if shards == nil {
		return
	}
	for i := range *shards {
		for s := &(*shards)[i]; st.collectPiece(s, w); {
		}
	}
}

func (st *states) collectGlobal(w *writer) {
	g := &st.global
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.queued {
		return
	}
	g.queued = false
	led := g.ledger()
	led.startFlight()
	if led.settled() {
		st.countClosed()
		g.open = false
		return
	}
	g.inFlight = true
	w.addFlight(st, "", led, g.complete)
}

// collectPiece collects up to pieceRecords records. It reports whether there are more.
func (st *states) collectPiece(s *shard, w *writer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range pieceRecords {
		r := s.unqueue()
		if r == none {
			return false
		}
		rec := &s.records[r]
		led := s.ledger(r)
		led.startFlight()
		if led.settled() { // the deltas cancelled out
			st.countClosed()
			s.closeLedger(rec.entry)
			continue
		}
		rec.inFlight = true
		e := &s.entries[rec.entry]
		w.addFlight(st, string(s.context(e)), led, e.flags&complete != 0)
	}
	return true
}

func (w *writer) addFlight(st *states, context string, led ledger, storeComplete bool) {
	w.seq++
	w.flights = append(w.flights, flight{st.lineage, state.Update{
		Key:    state.Key{Function: st.lineage.function, Policy: st.lineage.policy, Context: context},
		Fields: st.layout.update(led, !storeComplete),
		Seq:    w.seq,
	}})
}

// Close writes what is left and stops the table's goroutine. It waits for the store until ctx is done, and its error
// says how many states could not be written. The table can still be used afterwards, in memory only.
func (t *Table) Close(ctx context.Context) error {
	if t.store == nil || t.cfg.Later && !t.writer.begun {
		return nil
	}
	w := &t.writer
	w.close.Do(func() { close(w.stop) })
	release := context.AfterFunc(ctx, w.cancel)
	defer release()
	<-w.done
	return t.lastFlush(ctx)
}

// lastFlush tries a few times. The writer's goroutine must have stopped.
func (t *Table) lastFlush(ctx context.Context) error {
	w := &t.writer
	var err error
	for attempt := range closeAttempts {
		if attempt > 0 {
			select {
			case <-time.After(w.minBackoff):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
			break
		}
		t.takeNotes()
		err = t.forgetDeleted(time.Now)
		for err == nil && len(w.load) > 0 {
			err = t.load(time.Now)
		}
		t.takeNotes() // states that have been read can be written
		t.collect()
		if err = errors.Join(err, t.sendAll(), t.closeValues()); err == nil && t.pending.Load() == 0 {
			return nil
		}
	}
	t.mu.Lock()
	forgets := len(t.forgets)
	t.mu.Unlock()
	pending, unsaved := t.pending.Load(), t.unsaved()
	switch {
	case pending == 0 && forgets == 0 && unsaved == 0:
		return nil
	case err == nil:
		err = errors.New("feedback is still arriving")
	}
	return fmt.Errorf("not written to %s: updates of %d states, %d values and the deletion of %d functions: %w", t.store.Name(), pending, unsaved, forgets, err)
}
