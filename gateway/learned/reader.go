package learned

import (
	"context"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
)

// maxLoads is the number of load calls after which the writer checks whether other work is due.
const maxLoads = 16

// load reads the states that queries need, one function after the other.
func (t *Table) load(func() time.Time) error {
	w := &t.writer
	for range maxLoads {
		if len(w.load) == 0 {
			return nil
		}
		lin := w.load[0]
		w.load = w.load[1:]
		lin.loading = false
		requests, more := t.wanted(lin, w.readGroup)
		if more {
			w.loadFor(lin)
		}
		if len(requests) == 0 {
			continue
		}
		if err := t.read(requests); err != nil {
			w.readGroup = max(1, len(requests)/2)
			w.loadFor(lin)
			return err
		}
		w.readGroup = min(2*w.readGroup, maxGroup)
		w.count(&w.stats.Loads, len(requests))
	}
	return nil
}

// loadFor queues a lineage for reading, once.
func (w *writer) loadFor(lin *lineage) {
	if !lin.loading {
		lin.loading = true
		w.load = append(w.load, lin)
	}
}

// wanted returns up to n states to read. more means that there may be others.
func (t *Table) wanted(lin *lineage, n int) (requests []readRequest, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgetPending(lin) {
		return nil, true
	}
	lin.marks.And(^toLoad)
	st := lin.now
	if st == nil {
		return nil, false
	}
	st.global.mu.RLock()
	if st.global.wanted {
		requests = append(requests, readRequest{lin, "", loaded})
	}
	st.global.mu.RUnlock()
	if shards := st.shards.Load(); shards != nil {
		for i := range *shards {
			s := &(*shards)[i]
			s.mu.Lock()
			for at := s.wantHead; at != none && len(requests) < n; at = s.entries[at].wantNext {
				requests = append(requests, readRequest{lin, string(s.context(&s.entries[at])), loaded})
			}
			s.mu.Unlock()
		}
	}
	return requests, len(requests) >= n
}

// read reads states and applies the replies. No update is sent at the same time, so a reply is never older than what is
// known.
func (t *Table) read(requests []readRequest) error {
	asked := make([]state.Key, len(requests))
	for i, req := range requests {
		asked[i] = state.Key{Function: req.lineage.function, Policy: req.lineage.policy, Context: req.context}
	}
	answers, _, err := t.call(len(asked), func(ctx context.Context) ([][]state.Total, error) { return t.store.Load(ctx, asked) })
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, req := range requests {
		if st := req.lineage.now; st != nil {
			st.applyReply([]byte(req.context), answers[i], req.why)
		}
	}
	return nil
}

// refresh rereads, when it is due, the states that were used since the last refresh, to get what other gateways have
// added.
func (t *Table) refresh(clock func() time.Time) error {
	w := &t.writer
	began := clock()
	if !due(w.refreshAt, began) {
		return nil
	}
	w.refreshAt = time.Time{}
	err := t.readUsed()
	if pause := maxRefreshShare * clock().Sub(began); pause > t.cfg.Refresh {
		w.refreshAt = clock().Add(pause)
	}
	return err
}

// rereadAll reads every state in memory again, if Reread was called.
func (t *Table) rereadAll(func() time.Time) error {
	w := &t.writer
	if !w.reread.Swap(false) {
		return nil
	}
	var requests []readRequest
	t.mu.Lock()
	for _, f := range t.functions {
		if f.learns {
			requests = f.states.settledStates(requests, func(*shard, *entry) bool { return true })
		}
	}
	t.mu.Unlock()
	if err := t.readAgain(requests); err != nil {
		w.reread.Store(true)
		return err
	}
	return nil
}

// idleRefresh is how many times as old as a state in use one may be that is not.
const idleRefresh = 20

// refreshIdle rereads, when it is due, what is known over all contexts of each function: it is shown, and decides the first queries of a
// function that was not asked for long. A context of such a function is reread when it is used.
func (t *Table) refreshIdle(clock func() time.Time) error {
	w := &t.writer
	now := clock()
	if !due(w.idleAt, now) {
		return nil
	}
	var requests []readRequest
	t.mu.Lock()
	for _, f := range t.functions {
		if f.learns {
			requests = f.states.settledGlobal(requests)
		}
	}
	t.mu.Unlock()
	w.idleAt = now.Add(idleRefresh * t.cfg.Refresh)
	return t.readAgain(requests)
}

func (t *Table) readUsed() error {
	w := &t.writer
	used := w.used
	w.used = nil
	var requests []readRequest
	for _, lin := range used {
		lin.marks.And(^inUse)
		t.mu.Lock()
		if st := lin.now; st != nil {
			requests = st.used(requests)
		}
		t.mu.Unlock()
	}
	return t.readAgain(requests) // after an error, states that are still used are queued again
}

// readAgain reads states that have been read before.
func (t *Table) readAgain(requests []readRequest) error {
	w := &t.writer
	for group := range slices.Chunk(requests, maxGroup) {
		if err := t.read(group); err != nil {
			return err
		}
		w.count(&w.stats.Refreshes, len(group))
	}
	return nil
}

// used appends the states that were used since the last call, except those with updates of their own: the answers to
// the updates bring the same totals.
func (st *states) used(requests []readRequest) []readRequest {
	return st.settledStates(requests, func(s *shard, e *entry) bool { return e.seen == s.round })
}

// settledStates appends the states without updates of their own: the global one, and of the contexts, from the most recently used
// one, those before the first that is not to be read. It begins another round of use.
func (st *states) settledStates(requests []readRequest, read func(*shard, *entry) bool) []readRequest {
	requests = st.settledGlobal(requests)
	shards := st.shards.Load()
	if shards == nil {
		return requests
	}
	for i := range *shards {
		s := &(*shards)[i]
		s.mu.Lock()
		for at := s.newest; at != none && read(s, &s.entries[at]); at = s.entries[at].older {
			if e := &s.entries[at]; e.record == none && e.flags&wanted == 0 {
				requests = append(requests, readRequest{st.lineage, string(s.context(e)), refreshed})
			}
		}
		s.round++
		s.mu.Unlock()
	}
	return requests
}

// settledGlobal appends the global state, if it has no updates of its own.
func (st *states) settledGlobal(requests []readRequest) []readRequest {
	g := &st.global
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.open && !g.wanted {
		requests = append(requests, readRequest{st.lineage, "", refreshed})
	}
	return requests
}
