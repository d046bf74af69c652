package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

const (
	// firstMessageWithin bounds how long a process that has connected to the control socket may say nothing.
	firstMessageWithin = 10 * time.Second //xebec:limit time from connecting to the control socket to the first message
	// maxControl bounds the connections to the control socket. There is one takeover at a time; others are told so.
	maxControl = 8 //xebec:limit connections to the control socket
)

var errTakingOver = api.Errorf(api.Unavailable, "another process of this gateway is taking over: nothing was changed; try again in a moment")

// errSuperseded refuses what is asked between the commit point and the close of the control socket.
var errSuperseded = errors.New("another process has just taken over, and this one ends: try again in a moment")

// succession is how this gateway is replaced: the control socket, and the process that takes over.
type succession struct {
	mu       sync.Mutex
	ln       *net.UnixListener
	running  sync.WaitGroup
	to       *takeover.Conn      // the process that takes over, or wants to; nil: none
	abort    func(reason string) // ends its takeover, unless it serves
	decided  chan struct{}       // closed when that one has failed, or serves
	started  *startedProcess
	contact  time.Duration // how long a started process may take to ask
	stopping chan struct{}
	stopOnce sync.Once
	// superseded is closed at the commit point.
	superseded chan struct{}
}

// startedProcess is a process that `xebec upgrade` has started.
type startedProcess struct {
	outcome chan error // capacity 1
	tell    func(takeover.Progress)
	began   sync.Once
}

// progress tells the command how far it is. The process may ask to take over before its parent knows that it runs: that it is started
// is told first in any case.
func (p *startedProcess) progress(step takeover.Progress) {
	p.began.Do(func() { p.tell(takeover.Progress{PID: step.PID, Stage: takeover.StageStarted}) })
	if step.Stage != takeover.StageStarted {
		p.tell(step)
	}
}

func (s *succession) init() {
	s.contact = contactWithin
	s.stopping, s.superseded = make(chan struct{}), make(chan struct{})
}

// Superseded is closed when another process has taken over: it serves, and this gateway is to be shut down. Shutdown waits for the
// connections that this one still has.
func (s *Server) Superseded() <-chan struct{} { return s.succession.superseded }

// Successor is the process that has taken over; 0: none has.
func (s *Server) Successor() int {
	if !s.succession.isOver() {
		return 0
	}
	s.succession.mu.Lock()
	defer s.succession.mu.Unlock()
	return s.succession.to.PID()
}

// listenForSuccessor opens the control socket, at which a process asks to take over.
func (s *Server) listenForSuccessor() error {
	path := s.dir.control()
	if path == "" {
		return nil
	}
	ln, err := takeover.Listen(path)
	if err != nil {
		return fmt.Errorf("open the control socket: %w", err)
	}
	su := &s.succession
	su.mu.Lock()
	defer su.mu.Unlock()
	select {
	case <-su.stopping:
		return ln.Close()
	default:
	}
	su.ln = ln
	slots := make(chan struct{}, maxControl)
	su.running.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					s.log.Warn("the control socket is closed: this gateway cannot be taken over", zap.Error(err))
				}
				return
			}
			select {
			case slots <- struct{}{}:
			default:
				c.Close()
				continue
			}
			su.running.Go(func() {
				defer func() { <-slots }()
				conn, err := takeover.NewConn(c)
				if err != nil {
					s.log.Warn("a process may not use the control socket", zap.Error(err))
					return
				}
				defer func() { _ = conn.Close() }()
				s.serveControl(conn)
			})
		}
	})
	return nil
}

// serveControl does what a process asks for at the control socket.
func (s *Server) serveControl(conn *takeover.Conn) {
	if conn.SetReceiveDeadline(time.Now().Add(firstMessageWithin)) != nil {
		return
	}
	unhook := context.AfterFunc(s.life, conn.EndReceive)
	f, files, err := conn.Receive()
	unhook()
	for _, file := range files {
		file.Close()
	}
	if err != nil || conn.SetReceiveDeadline(time.Time{}) != nil {
		return
	}
	switch f.Kind {
	case takeover.KindHello:
		var hello takeover.Hello
		if err := f.Decode(&hello); err != nil {
			s.log.Warn("a process asks to take over and cannot be understood", zap.Error(err))
			return
		}
		s.give(conn, hello)
	case takeover.KindUpgrade:
		var u takeover.Upgrade
		err := f.Decode(&u)
		pid := 0
		if err == nil {
			pid, err = s.upgrade(conn, u)
		}
		if errors.Is(err, errSuperseded) {
			return // without an answer the command asks again, at the socket of the new process
		}
		r := takeover.Result{PID: pid}
		if err != nil {
			r.Error = err.Error()
		}
		_ = conn.Send(takeover.KindResult, r)
	}
}

// give lets a process take over.
func (s *Server) give(conn *takeover.Conn, hello takeover.Hello) {
	su := &s.succession
	su.mu.Lock()
	if su.to != nil {
		reason := "another process is taking over already"
		if su.isOver() {
			reason = errSuperseded.Error()
		}
		su.mu.Unlock()
		_ = conn.Send(takeover.KindAbort, takeover.Abort{Reason: reason})
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

// prepare checks that there is room for both processes, refuses changes from now on, and copies what is declared.
func (g *giver) prepare(hello takeover.Hello) error {
	if hello.Version != takeover.Version {
		return fmt.Errorf("it speaks version %d of the takeover, and this process (%s) version %d: restart the gateway instead", hello.Version, g.cfg.Version, takeover.Version)
	}
	if err := hello.Canary.Check(); err != nil {
		return err
	}
	if hello.Canary != nil && g.function == nil {
		return errors.New("a canary needs a function port, and this gateway has none")
	}
	if err := g.capacity.FitsTwice(); err != nil {
		return fmt.Errorf("%w: scale models down, or restart the gateway instead", err)
	}
	g.declared.Refuse(errTakingOver)
	g.thaw = func() { g.declared.Refuse(nil) }
	g.declared.Hold()() // a change that is being stored ends first
	if g.handover == nil {
		return nil
	}
	return g.handover.Copy(g.dir.file(copyFile))
}

func (g *giver) welcome() error {
	w := takeover.WelcomeMessage{Version: takeover.Version, Program: g.cfg.Version, Second: g.dir.set == 0, Canary: true, Replicas: map[string]int{}}
	for id, n := range g.capacity.Replicas() {
		w.Replicas[id.String()] = n
	}
	if g.store != nil {
		w.Store = g.store.Name()
	}
	if g.handover != nil {
		w.Copy = g.dir.file(copyFile)
	}
	var files []*os.File
	add := func(name string, f *os.File) { w.Files, files = append(w.Files, name), append(files, f) }
	var listeners []*os.File
	defer func() {
		for _, f := range listeners {
			f.Close()
		}
	}()
	addListener := func(name string, ln net.Listener) error {
		tcp, ok := ln.(interface{ File() (*os.File, error) })
		if !ok {
			return fmt.Errorf("the %s has no descriptor", name)
		}
		f, err := tcp.File()
		if err == nil {
			listeners = append(listeners, f)
			add(name, f)
		}
		return err
	}
	if g.function != nil {
		if err := addListener(fileFunction, g.function.Listener); err != nil {
			return err
		}
	}
	if g.admin != nil {
		if err := addListener(fileAdmin, g.admin.Listener.Listener); err != nil {
			return err
		}
	}
	add(fileLock, g.dir.lock)
	if g.inferences != nil {
		add(fileLog, g.inferences.Dir())
	}
	return g.conn.Send(takeover.KindWelcome, w, files...)
}

// release lets the store go.
func (g *giver) release() error {
	g.released.Store(true)
	if g.handover != nil {
		if err := g.handover.Release(); err != nil {
			return err
		}
	}
	return g.conn.Send(takeover.KindRelease, nil)
}

// resume lets things be changed again. The new process is told why it does not take over.
func (g *giver) resume(why error) {
	g.endShare()
	if g.thaw != nil {
		g.thaw()
		if !g.storeLost && !g.succession.isStopping() {
			g.log.Info("changes are possible again")
		}
	}
	if g.handover != nil {
		_ = os.Remove(g.dir.file(copyFile)) // the next takeover writes over what is left
	}
	reason := "it has ended the takeover"
	if why != nil {
		reason = why.Error()
	}
	_ = g.conn.Send(takeover.KindAbort, takeover.Abort{Reason: reason})
}

// reclaim takes the store back from a process that may have it.
func (g *giver) reclaim(why error) {
	if err := g.conn.Kill(); err != nil {
		g.log.Error("the process that was to take over cannot be ended", zap.Error(err))
	}
	if g.handover != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeStoreWithin)
		defer cancel()
		if err := g.handover.Take(ctx); err != nil {
			g.storeLost = true
			g.log.Error("the store is lost: what serves goes on serving, and nothing can be changed or kept until the gateway is restarted", zap.Error(err))
		}
	}
	g.resume(why)
}

// drain leaves new connections to the new process.
func (g *giver) drain() {
	if g.function != nil {
		g.function.Stop()
		g.endShare()
		g.handOver()
	}
	if g.admin != nil {
		g.admin.Stop()
	}
	if g.handover != nil {
		g.handover.PassOn(farStore{g.conn})
	}
	g.log.Info("another process has taken over: this one answers what it has accepted, and ends", zap.Int("process", g.conn.PID()))
}

// settle ends a takeover that has not reached its commit point, or waits for it. It returns the connection to the process that has
// taken over; nil: there is none.
func (s *succession) settle() *takeover.Conn {
	s.mu.Lock()
	s.stopOnce.Do(func() { close(s.stopping) })
	if s.ln != nil {
		_ = s.ln.Close()
		s.ln = nil
	}
	to, decided := s.to, s.decided
	s.mu.Unlock()
	if to == nil {
		return nil
	}
	<-decided
	if s.isOver() {
		return to
	}
	return nil
}

// isStopping reports whether the gateway is stopping. No process can take over from it then.
func (s *succession) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// isOver reports whether another process has taken over.
func (s *succession) isOver() bool {
	select {
	case <-s.superseded:
		return true
	default:
		return false
	}
}

// passOn gives the new process what only this one knows.
func (s *Server) passOn(to *takeover.Conn) {
	err := s.path.PassOn(func(record []byte) error { return to.Send(takeover.KindPast, record) })
	if err != nil {
		s.log.Warn("queries that this process has answered are forgotten: feedback on them is refused", zap.Error(err))
	}
}

// end says that this process is done.
func (s *succession) end(to *takeover.Conn) {
	if to != nil {
		_ = to.Send(takeover.KindDone, nil)
		to.EndReceive()
	}
	s.running.Wait()
}
