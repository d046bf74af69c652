package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// giver is the old process's side of a takeover.
type giver struct {
	*Server
	conn    *takeover.Conn
	machine *takeover.Machine
	events  chan takeover.Event
	decided chan struct{}
	loaded  chan struct{} // closed when the new process no longer loads
	thaw    func()
	// storeLost: the store could not be taken back.
	storeLost bool

	takesConnections bool // the new process takes those that clients keep

	canary   *takeover.Canary // nil: the new process takes over at once
	share    *accept.Share    // nil: it has none
	guest    state.Learned    // the store, for the new process; nil: it has none, or has it itself
	released atomic.Bool      // the store is being let go
	endTrial context.CancelFunc
	trying   sync.WaitGroup
	verdict  string // of the trial, once it has ended
	sentBack error

	mu     sync.Mutex
	reason string // of the other side's abort
}

// give lets a process take over.
func (s *Server) give(conn *takeover.Conn, hello takeover.Hello) {
	su := &s.succession
	su.mu.Lock()
	if su.to != nil {
		reason := s.takingOver()
		if su.isOver() {
			reason = errSuperseded
		}
		su.mu.Unlock()
		_ = conn.Send(takeover.KindAbort, takeover.Abort{Reason: reason.Error()})
		return
	}
	g := &giver{Server: s, conn: conn, machine: takeover.Giver(), events: make(chan takeover.Event, 8), decided: make(chan struct{}), loaded: make(chan struct{}), takesConnections: hello.Connections}
	if g.canary = hello.Canary; g.canary != nil {
		g.machine = takeover.GiverWithCanary()
		if s.handover != nil {
			g.guest = s.handover.Guest()
		}
	}
	su.to, su.abort, su.decided = conn, g.abort, g.decided
	su.mu.Unlock()
	s.underWay.begin(api.UpgradeOld, conn.PID(), hello.Canary)
	var receiving sync.WaitGroup
	receiving.Go(g.receive)
	err := g.run(hello)
	su.mu.Lock()
	if p := su.started; p != nil {
		p.outcome <- err // only one takeover at a time ends while the process is known
		su.started = nil
	}
	if err != nil {
		su.to = nil
		s.underWay.end()
	} else {
		close(su.superseded) // here, so that a command which follows on the outcome is not told that a takeover is going on
	}
	su.mu.Unlock()
	close(g.decided)
	if err != nil {
		s.log.Error("a process has not taken over; this one goes on", zap.Int("process", conn.PID()), zap.Error(err))
		conn.EndReceive()
	}
	receiving.Wait()
	if err != nil && g.canary != nil {
		s.path.AskBefore(nil)
	}
}

// abort ends the takeover as if the new process had asked for that.
func (g *giver) abort(reason string) {
	g.mu.Lock()
	g.reason = reason
	g.mu.Unlock()
	select {
	case g.events <- takeover.GotAbort:
	case <-g.decided:
	}
}

// receive receives what the new process says, until it is gone.
func (g *giver) receive() {
	for {
		f, files, err := g.conn.Receive()
		for _, file := range files {
			file.Close()
		}
		if err == nil {
			err = g.hear(f)
		}
		if err != nil {
			g.conn.EndCalls()
			select {
			case g.events <- takeover.Gone:
			case <-g.decided:
			}
			return
		}
	}
}

func (g *giver) hear(f takeover.Frame) error {
	var event takeover.Event
	switch f.Kind {
	case takeover.KindReady:
		event = takeover.GotReady
	case takeover.KindServing:
		event = takeover.GotServing
	case takeover.KindAbort:
		event = takeover.GotAbort
		var a takeover.Abort
		if err := f.Decode(&a); err != nil {
			return err
		}
		g.mu.Lock()
		g.reason = a.Reason
		g.mu.Unlock()
	case takeover.KindAnswer:
		return g.conn.Answered(f)
	case takeover.KindCall:
		return g.conn.Answer(f, g.answerNew)
	case takeover.KindPast: // of a process that was sent back
		if g.canary == nil {
			return errors.New("this process has not asked what the other one remembers")
		}
		if err := g.path.Inherit(f.Payload); err != nil {
			g.log.Warn("a query that the other process has answered is forgotten", zap.Error(err))
		}
		return nil
	default:
		return fmt.Errorf("message %d must not come", f.Kind)
	}
	select {
	case g.events <- event:
	case <-g.decided:
	}
	return nil
}

// run takes the takeover to its end. It returns nil when the new process serves.
func (g *giver) run(hello takeover.Hello) (err error) {
	g.log.Info("a process asks to take over", zap.Int("process", g.conn.PID()), zap.String("its_version", hello.Program))
	limit := time.NewTimer(loadWithin)
	defer limit.Stop()
	stopping := g.succession.stopping
	e := takeover.GotHello
	for {
		state := g.machine.State()
		action, violation := g.machine.Next(e)
		if g.underWay.at(g.machine.State()); state == takeover.Loading && g.machine.State() != takeover.Loading {
			close(g.loaded)
		}
		why := errors.Join(violation, g.why(e, state), err)
		switch action {
		case takeover.Prepare, takeover.Release:
			if action == takeover.Prepare {
				err = g.prepare(hello)
			} else {
				limit.Reset(commitWithin)
				g.promoted()
				err = g.release()
			}
			if e = takeover.Done; err != nil {
				e = takeover.Failed
			}
			continue
		case takeover.Welcome:
			if err := g.welcome(); err != nil {
				g.log.Warn("a process that asks to take over cannot be answered", zap.Error(err))
				g.conn.EndReceive() // its end follows
			} else {
				g.progress(takeover.Progress{PID: g.conn.PID(), Stage: takeover.StageLoading})
				if hello.Awaited {
					g.inBackground(g.askAwaited)
				}
				g.log.Info("a process loads its replicas and then takes over; nothing can be changed until then", zap.Int("process", g.conn.PID()))
			}
		case takeover.Try:
			g.try()
		case takeover.SendBack:
			limit.Reset(returnWithin + g.cfg.DrainTimeout)
			g.sendBack(why)
		case takeover.Refuse, takeover.Resume:
			g.resume(why)
			return why
		case takeover.Reclaim:
			g.reclaim(why)
			return why
		case takeover.Drain:
			g.drain()
			return nil
		}
		if g.machine.State() == takeover.Ended {
			g.returned(e)
			return cmp.Or(g.sentBack, why)
		}
		select {
		case e = <-g.events:
			if e == takeover.Gone && g.conn.HasDied() {
				e = takeover.Died
			}
		case <-limit.C:
			e = takeover.Expired
		case <-stopping:
			e, stopping = takeover.Stopping, nil
		}
	}
}

// why says what an event means for people.
func (g *giver) why(e takeover.Event, state takeover.State) error {
	switch e {
	case takeover.GotAbort:
		g.mu.Lock()
		defer g.mu.Unlock()
		return errors.New(g.reason)
	case takeover.Bad:
		return errors.New(g.verdict)
	case takeover.Gone, takeover.Died, takeover.Expired:
		return fmt.Errorf("process %d %s (step of the takeover: %s)", g.conn.PID(), map[takeover.Event]string{
			takeover.Gone: "has closed the connection", takeover.Died: "has ended", takeover.Expired: "has taken too long",
		}[e], state)
	case takeover.Stopping:
		return errors.New("the gateway is stopping")
	}
	return nil
}
