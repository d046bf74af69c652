package local

import (
	"runtime"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/worker/wire"
)

// maxSpins is how many spins one wake-up may have before the socket is read again: LEAVING, or the worker's end, is not to wait for a pause.
const maxSpins = 64

// spinning is what the replicas of a hub share that spin: at most a quarter of the processors do at once. The pollers of clients have half
// of them, and the rest of the gateway needs some, too.
type spinning struct {
	most        int32
	now         atomic.Int32
	found, vain atomic.Uint64
}

func (s *spinning) init() { s.most = int32(max(1, runtime.GOMAXPROCS(0)/4)) }

func (s *spinning) begin() bool {
	if s.now.Add(1) > s.most {
		s.now.Add(-1)
		return false
	}
	return true
}

func (s *spinning) end(found bool) {
	s.now.Add(-1)
	if found {
		s.found.Add(1)
	} else {
		s.vain.Add(1)
	}
}

// Spins counts the spins of all replicas that found an answer, and those in vain, since the hub was made. No count ever falls.
func (h *Hub) Spins() (found, vain uint64) { return h.spins.found.Load(), h.spins.vain.Load() }

// estimator is that of a new replica. Without a ring there is nothing to look at without a system call.
func (r *Replica) estimator() (e busypoll.Estimator) {
	if cfg := &r.hub.cfg; cfg.Poller == RuntimePoller && r.mode&wire.ModeRing != 0 {
		return busypoll.New(cfg.BusyPoll)
	}
	return e
}

// spin looks for a response before the replica's goroutine sleeps, while one is likely to come soon. It reports whether there is one. Until
// then this side counts as awake, and the worker rings no bell.
func (r *Replica) spin() bool {
	if !r.busy.On() {
		return false
	}
	now := r.hub.cfg.Now()
	until := r.busy.Idle(now)
	if now >= until || !r.hub.spins.begin() {
		return false
	}
	found := r.gen.consumer.Ready()
	for !found && now < until {
		found, now = r.gen.consumer.Ready(), r.hub.cfg.Now()
	}
	r.hub.spins.end(found)
	return found
}

// arrived notes a response.
func (r *Replica) arrived(now api.Nanos) {
	if r.busy.Waiting() {
		r.busy.Arrived(now)
	}
}
