package local

import (
	"context"
	"math"
	"net"
	"os"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
)

// run reports the replica ready and handles its socket until it ends. It returns after Gone.
func (r *Replica) run() {
	r.exp.Events.Ready(r)
	switch r.hub.cfg.Poller {
	case RuntimePoller:
		r.runOnRuntime()
	default:
		r.runOnNetpoll()
	}
	r.finish()
}

// doorbell presents the socket to netpoll as a listener. netpoll calls a listener's Accept inline in its poller
// whenever the descriptor is readable, which is when a worker has rung. No connection is ever accepted.
type doorbell struct{ r *Replica }

func (d doorbell) Accept() (net.Conn, error) {
	d.r.process()
	return nil, nil // no connection: netpoll goes on watching; a hang-up ends Serve
}

func (d doorbell) Close() error   { return nil } // finish closes the descriptor, when no poller can use it any more
func (d doorbell) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "worker"} }
func (d doorbell) Fd() int        { return d.r.fd }

func (r *Replica) runOnNetpoll() {
	loop, err := netpoll.NewEventLoop(func(context.Context, netpoll.Connection) error { return nil })
	if err != nil {
		r.Kill("netpoll: " + err.Error())
		return
	}
	r.process()                 // for what arrived before the poller watches; an unread byte fires it at once
	_ = loop.Serve(doorbell{r}) // ends with the worker's hang-up, which is not an error
}

func (r *Replica) runOnRuntime() {
	f := os.NewFile(uintptr(r.fd), "worker") // non-blocking, so it joins the runtime's poller
	raw, err := f.SyscallConn()
	if err != nil {
		r.Kill(err.Error())
		return
	}
	for {
		ended := false
		if err := raw.Read(func(uintptr) bool { ended = r.process(); return ended }); err != nil || ended {
			break
		}
	}
	r.mu.Lock()
	r.fd = -1
	r.mu.Unlock()
	f.Close()
}

// finish handles the last answers, closes everything and reports the end.
func (r *Replica) finish() {
	r.rmu.Lock()
	r.mu.Lock()
	violated := r.violated
	r.closeSideLocked()
	r.mu.Unlock()
	if !violated {
		// Answers that the worker gave before it ended count. The hang-up may overtake the bell for them.
		r.dead = false
		r.takeLastAnswers()
	}
	r.dead = true
	r.mu.Lock()
	begun := make(map[uint64]bool, len(r.table))
	taken := r.gen.producer.PeerHead()
	for i := range r.table {
		e := &r.table[i]
		switch {
		case e.kind != wire.KindPredict || e.state == stateWaiting || e.state == stateCopying:
		case e.flows:
			begun[e.batch.ID] = true // whatever of it is still in the ring
		case !r.Ring():
			// The worker reads frames ahead, so of the batches without any answer only the oldest have certainly begun.
			begun[e.batch.ID] = e.state != stateSent || !e.behind
		default:
			begun[e.batch.ID] = e.gen != r.gen || e.state != stateSent || e.putAt <= taken
		}
	}
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
	violated = r.violated // one of the last answers may have been a violation
	if r.idle.timer != nil {
		r.idle.timer.Stop()
	}
	reason, silent, next, gen := r.endReason, r.streams.silent, r.next, r.gen
	r.next = nil
	if reason == "" {
		reason = "the worker closed its connection"
	}
	r.endReason = reason
	lost := r.dropSideLocked()
	none := r.takeAskersLocked()
	r.table = r.table[:0]
	r.mu.Unlock()
	r.rmu.Unlock()
	r.closeLines()
	giveNone(none)
	gen.release()
	if next != nil {
		next.closeFDs()
		next.release()
	}
	r.hub.mu.Lock()
	delete(r.hub.live, r)
	r.hub.ended.add(r)
	r.hub.mu.Unlock()
	for i := range lost {
		lost[i].end(math.NaN(), api.ReplicaLost, "")
	}
	r.exp.Events.Gone(r, worker.End{Reason: reason, Violation: violated, Silent: silent, Begun: func(batch uint64) bool { return begun[batch] }})
}

func (r *Replica) takeLastAnswers() {
	if r.fd >= 0 {
		r.readSocket()
	}
	if r.Ring() && !r.dead {
		r.takeRing(r.gen)
	}
}
