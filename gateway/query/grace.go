package query

import (
	"context"
	"sync"
	"sync/atomic"
)

// graceTurns is how many turns have counters of their own.
const graceTurns = 64

// grace reports when every reader that may still use something old has left. A request is a reader from before it loads
// the table until its queries are in their lanes, which track them from then on. It is not a reader until it is answered,
// which may take long.
//
// Readers count themselves in the current turn. A writer that has published something begins the next turn, and may wait
// until no reader of an earlier turn is left (McKenney's sleepable read-copy-update, with more than two counters, so that
// writers do not wait for later readers). Readers never wait.
type grace struct {
	turn    atomic.Uint64
	readers [graceTurns]struct {
		n atomic.Int64
		_ [56]byte // each turn is counted in a cache line of its own
	}
	waiting atomic.Int32 // writers that wait for readers to leave

	mu   sync.Mutex
	of   [graceTurns]uint64 // the turn of each counter
	owed bool               // the last turn could not begin, because its counter still has readers
	gone chan struct{}      // closed when a counter has reached 0
}

func (g *grace) init() { g.gone = make(chan struct{}) }

// enter counts a reader before it loads anything, and returns the counter for leave. A reader that is delayed between
// reading the turn and counting itself is counted in too early a turn. It sees the new table, and at worst a writer waits
// for it in vain.
func (g *grace) enter() uint32 {
	i := uint32(g.turn.Load() % graceTurns)
	g.readers[i].n.Add(1)
	return i
}

func (g *grace) leave(i uint32) {
	if g.readers[i].n.Add(-1) == 0 && g.waiting.Load() > 0 {
		g.mu.Lock()
		close(g.gone)
		g.gone = make(chan struct{})
		g.mu.Unlock()
	}
}

// next begins a turn after something was published. It never waits: if the turn's counter is in use, a later call of wait
// begins the turn.
func (g *grace) next() {
	g.mu.Lock()
	g.owed = !g.begin()
	g.mu.Unlock()
}

// begin begins the next turn if its counter is free.
func (g *grace) begin() bool {
	turn := g.turn.Load() + 1
	i := turn % graceTurns
	if g.readers[i].n.Load() != 0 {
		return false
	}
	g.of[i] = turn
	g.turn.Store(turn)
	return true
}

// wait waits until all readers that entered before the last call of next have left, or ctx ends.
func (g *grace) wait(ctx context.Context) error {
	var turn uint64
	begun := func() bool { // with the lock held
		if g.owed && g.begin() {
			g.owed = false
		}
		turn = g.turn.Load()
		return !g.owed
	}
	if err := g.until(ctx, begun); err != nil {
		return err
	}
	return g.until(ctx, func() bool {
		for i := range g.readers {
			if g.of[i] < turn && g.readers[i].n.Load() != 0 {
				return false
			}
		}
		return true
	})
}

// until waits until done returns true. It calls done with the lock held, whenever a counter has reached 0.
func (g *grace) until(ctx context.Context, done func() bool) error {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	for {
		g.mu.Lock()
		ok, gone := done(), g.gone
		g.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
