package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// The descriptors that the old process passes on.
const (
	fileFunction = "function port"
	fileAdmin    = "admin port"
	fileGRPC     = "gRPC port"
	fileLock     = "lock"
	fileLog      = "inference log"
)

const (
	// greetWithin bounds the beginning of a takeover. The old process copies what is declared meanwhile.
	greetWithin = time.Minute //xebec:limit time for the beginning of a takeover
	// loadWithin bounds how long the new process loads.
	loadWithin = 10 * time.Minute //xebec:limit time for a process that takes over to load its replicas
	// catchUpWithin bounds how long the new process also loads what wakes in the old one meanwhile, which may never end.
	catchUpWithin = loadWithin / 2 //xebec:limit time in which a process that takes over also loads what wakes in the old one meanwhile
	// commitWithin bounds each of the last two steps, in which the store has no owner.
	commitWithin = 15 * time.Second //xebec:limit time for the store to go from one process to the next
	// loadedEvery is how often the new process looks whether its replicas are ready.
	loadedEvery = 20 * time.Millisecond
	// askWithin bounds a question to the other process that a request waits for.
	askWithin = 2 * time.Second //xebec:limit time for the old process to say what it remembers of a query
)

// predecessor is the process that this one takes over from.
type predecessor struct {
	conn    *takeover.Conn
	machine *takeover.Machine
	welcome takeover.WelcomeMessage
	files   map[string]*os.File
	events  chan takeover.Event
	reading sync.WaitGroup
	settled chan struct{} // closed when events are not looked at any more
	over    chan struct{} // closed when the old process is gone
	share   chan *os.File // capacity 1: where a share of the connections comes from

	connections chan *os.File // capacity 1: where those that clients keep come from

	mu     sync.Mutex
	reason string // of its abort
}

// meet asks the gateway that runs with the data directory to be replaced.
func (s *Server) meet(ctx context.Context) error {
	if s.cfg.DataDir == "" {
		return errors.New("--takeover: a gateway without a data directory cannot be taken over: start with --data-dir")
	}
	dir, err := absDataDir(s.cfg.DataDir)
	if err != nil {
		return err
	}
	d := dialer{dir: dir, connect: takeover.Dial, waits: func(serves, ends int) {
		s.log.Info("taking over: waiting for the end of the process before", zap.Int("process", serves), zap.Int("before", ends))
	}}
	conn, err := d.dial(ctx)
	switch {
	case errors.Is(err, errNoGateway):
		return fmt.Errorf("--takeover: %w; start without --takeover if none runs there", err)
	case err != nil:
		return fmt.Errorf("--takeover: %w", err)
	}
	b := &predecessor{conn: conn, machine: takeover.Taker(), files: map[string]*os.File{}, events: make(chan takeover.Event, 8), settled: make(chan struct{}), over: make(chan struct{}), share: make(chan *os.File, 1), connections: make(chan *os.File, 1)}
	s.before = b
	role := api.UpgradeNew
	if s.cfg.Canary != nil {
		role = api.UpgradeCanaryProcess
	}
	s.underWay.begin(role, conn.PID(), s.cfg.Canary)
	s.onClose(func() error { err := conn.Close(); b.reading.Wait(); b.closeFiles(); return err })
	if err := conn.Send(takeover.KindHello, takeover.Hello{Version: takeover.Version, Program: s.cfg.Version, Canary: s.cfg.Canary, Connections: s.canTakeConnections(), Awaited: true}); err != nil {
		return fmt.Errorf("--takeover: %w", err)
	}
	if err := conn.SetReceiveDeadline(time.Now().Add(greetWithin)); err != nil {
		return err
	}
	f, files, err := conn.Receive()
	if err != nil {
		return fmt.Errorf("--takeover: process %d does not answer: %w", conn.PID(), err)
	}
	w := &b.welcome
	named := f.Kind == takeover.KindWelcome && f.Decode(w) == nil && len(w.Files) == len(files)
	for i, file := range files {
		if !named || b.files[w.Files[i]] != nil {
			named = false
			file.Close()
			continue
		}
		b.files[w.Files[i]] = file
	}
	if f.Kind == takeover.KindAbort {
		var a takeover.Abort
		err := f.Decode(&a)
		return fmt.Errorf("--takeover: process %d refuses: %w", conn.PID(), errors.Join(errors.New(a.Reason), err))
	}
	if !named {
		return fmt.Errorf("--takeover: process %d answers with something that this program does not know", conn.PID())
	}
	if b.files[fileLock] == nil {
		return fmt.Errorf("--takeover: process %d does not pass on the data directory", conn.PID())
	}
	if s.cfg.Canary != nil && !w.Canary {
		return fmt.Errorf("--canary: process %d (%s) is of a program that knows no canary: take over without one", conn.PID(), w.Program)
	}
	if _, err := b.machine.Next(takeover.GotWelcome); err != nil {
		return err
	}
	s.log.Info("taking over: loading", zap.Int("from_process", conn.PID()), zap.String("its_version", w.Program))
	return conn.SetReceiveDeadline(time.Time{})
}

// listener is a listening socket of the old process; nil: it has none, or there is no old process.
func (b *predecessor) listener(name, flag, address string) (net.Listener, error) {
	if b == nil {
		return nil, nil
	}
	f := b.files[name]
	if f == nil {
		return nil, fmt.Errorf("%s %s: process %d has no %s, and a process that takes over serves where it does: leave the flag as it was there", flag, address, b.conn.PID(), name)
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take over the %s: %w", name, err)
	}
	_, want, err := net.SplitHostPort(address)
	_, has, err2 := net.SplitHostPort(ln.Addr().String())
	if errors.Join(err, err2) == nil && want != "0" && want != has {
		ln.Close()
		return nil, fmt.Errorf("%s %s: process %d serves at %s, and a process that takes over serves where it does: leave the flag as it was there", flag, address, b.conn.PID(), ln.Addr())
	}
	return ln, nil
}

// take is a descriptor for a new owner; nil: there is none.
func (b *predecessor) take(name string) *os.File {
	if b == nil {
		return nil
	}
	f := b.files[name]
	delete(b.files, name)
	return f
}

func (b *predecessor) closeFiles() {
	for _, c := range []chan *os.File{b.share, b.connections} {
		select {
		case f := <-c:
			f.Close()
		default:
		}
	}
	for _, f := range b.files {
		f.Close()
	}
}

// floors are the replicas of the old process, by version.
func floors(replicas map[string]int) map[api.ModelID]int {
	floors := map[api.ModelID]int{}
	for ref, n := range replicas {
		if id, err := api.ParseModelRef(ref); err == nil {
			floors[id] = n
		}
	}
	return floors
}

// store opens the store of a process that takes over.
func (b *predecessor) store(where string) (state.Backend, *state.Handover, error) {
	if strings.Contains(where, "://") {
		store, err := state.Open(where)
		if err == nil && store.Name() != b.welcome.Store {
			err = errors.Join(fmt.Errorf("process %d has the store %s, and this one is to have %s: a process that takes over has the same", b.conn.PID(), b.welcome.Store, store.Name()), store.Close())
		}
		return store, nil, err
	}
	if b.welcome.Copy == "" {
		return nil, nil, fmt.Errorf("process %d has the store %s, and this one is to have %s: a process that takes over has the same", b.conn.PID(), b.welcome.Store, where)
	}
	h, err := state.AwaitFile(where, b.welcome.Copy)
	if err != nil {
		return nil, nil, err
	}
	if h.Name() != b.welcome.Store {
		return nil, nil, errors.Join(fmt.Errorf("process %d has the store %s, and this one is to have %s: a process that takes over has the same", b.conn.PID(), b.welcome.Store, h.Name()), h.Close())
	}
	return h, h, nil
}

// follow receives what the old process says, until it is gone.
func (s *Server) follow() {
	b := s.before
	b.reading.Go(func() {
		defer close(b.over)
		for {
			f, files, err := b.conn.Receive()
			if err == nil && f.Kind == takeover.KindTry && len(files) == 1 && len(b.share) == 0 {
				b.share <- files[0]
				files = nil
			}
			if err == nil && f.Kind == takeover.KindConnections {
				err, files = b.connect(files), nil
			}
			for _, file := range files {
				file.Close()
			}
			if err == nil {
				err = s.hear(f)
			}
			if err != nil {
				b.conn.EndCalls()
				e := takeover.Gone
				if b.conn.HasDied() {
					e = takeover.Died
				}
				b.happened(e)
				return
			}
		}
	})
}

// happened tells takeOver, unless that has ended: then what the old process says about the takeover changes nothing.
func (b *predecessor) happened(e takeover.Event) {
	select {
	case b.events <- e:
	case <-b.settled:
	}
}

var errDone = errors.New("the old process is done")

// hear takes in one message of the old process.
func (s *Server) hear(f takeover.Frame) error {
	b := s.before
	switch f.Kind {
	case takeover.KindRelease:
		b.happened(takeover.GotRelease)
	case takeover.KindTry:
		if s.cfg.Canary == nil || len(b.share) == 0 {
			return errors.New("the old process wants to try this one, which has not asked for it")
		}
		b.happened(takeover.GotTry)
	case takeover.KindAbort:
		var a takeover.Abort
		if err := f.Decode(&a); err != nil {
			return err
		}
		b.mu.Lock()
		b.reason = a.Reason
		b.mu.Unlock()
		b.happened(takeover.GotAbort)
	case takeover.KindAnswer:
		return b.conn.Answered(f)
	case takeover.KindCall:
		return b.conn.Answer(f, func(op string, body []byte) (any, error) { return s.answer(commitWithin, s.guest, op, body) })
	case takeover.KindPast:
		if err := s.path.Inherit(f.Payload); err != nil {
			s.log.Warn("a query that the process before has answered is forgotten", zap.Error(err))
		}
	case takeover.KindConnections: // follow has taken the socket
	case takeover.KindDone:
		return errDone
	default:
		return fmt.Errorf("the old process sent message %d, which it must not", f.Kind)
	}
	return nil
}

// takeOver loads what the old process has, and takes its store. When it returns nil this process is to serve.
func (s *Server) takeOver(ctx context.Context) error {
	b := s.before
	s.underWay.at(b.machine.State())
	s.follow()
	defer close(b.settled)
	look := time.NewTicker(loadedEvery)
	defer look.Stop()
	limit := time.NewTimer(loadWithin)
	defer limit.Stop()
	began := time.Now()
	for {
		var e takeover.Event
		select {
		case e = <-b.events:
		case <-limit.C:
			e = takeover.Expired
		case <-ctx.Done():
			e = takeover.Stopping
		case <-look.C:
			st := b.machine.State()
			if st == takeover.Loading && s.failing() != "" {
				e = takeover.Failed
				break
			}
			if st != takeover.Loading && st != takeover.LoadingAlone || s.notLoaded() != "" {
				continue
			}
			if st == takeover.Loading && b.welcome.Recounts && time.Since(began) < catchUpWithin && s.isBehind(ctx) {
				continue
			}
			e = takeover.Done
		}
		action, err := b.machine.Next(e)
		s.underWay.at(b.machine.State())
		if e == takeover.Died && action != takeover.GiveUp {
			s.log.Warn("the process before has died: this one goes on alone", zap.Int("process", b.conn.PID()))
		}
		switch action {
		case takeover.Ready:
			s.log.Info("taking over: loaded", zap.Int("from_process", b.conn.PID()))
			limit.Reset(commitWithin)
			_ = b.conn.Send(takeover.KindReady, nil) // if it fails, the old process is gone, which is an event of its own
		case takeover.Take:
			if err := s.takeStore(ctx); err != nil {
				_, _ = b.machine.Next(takeover.Failed)
				return fmt.Errorf("--takeover: %w", err)
			}
			_, err := b.machine.Next(takeover.Done)
			return err
		case takeover.Try:
			limit.Reset(s.cfg.Canary.Time() + loadWithin)
			if err := s.beTried(); err != nil {
				return fmt.Errorf("--canary: %w", err)
			}
		case takeover.Return:
			why := s.whyGivenUp(ctx, e, err)
			s.log.Warn("this process is sent back: it answers what it has, and ends", zap.Error(why))
			s.comeBack()
			return why
		case takeover.GiveUp:
			return s.whyGivenUp(ctx, e, err)
		}
	}
}

func (s *Server) whyGivenUp(ctx context.Context, e takeover.Event, err error) error {
	b := s.before
	switch {
	case err != nil:
		return fmt.Errorf("--takeover: %w", err)
	case e == takeover.GotAbort:
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.http != nil {
			return fmt.Errorf("--canary: process %d sends this one back: %s", b.conn.PID(), b.reason)
		}
		return fmt.Errorf("--takeover: process %d ends the takeover: %s", b.conn.PID(), b.reason)
	case e == takeover.Failed && s.failing() != "":
		return fmt.Errorf("--takeover: %s", s.failing())
	case e == takeover.Expired && b.machine.State() == takeover.Ended && s.notLoaded() != "":
		return fmt.Errorf("--takeover: after %s %s", loadWithin, s.notLoaded())
	case e == takeover.Stopping:
		return fmt.Errorf("--takeover: %w", context.Cause(ctx))
	}
	return fmt.Errorf("--takeover: process %d is %s", b.conn.PID(), e)
}

// failing says what the old process has that this one will not have; empty: nothing that is known.
func (s *Server) failing() string {
	if why := s.declared.Lacking(s.before.welcome.Declared); why != "" {
		return why
	}
	if why := s.capacity.Failing(); why != "" {
		return why + ": the log says why each start has failed"
	}
	return ""
}

// notLoaded says what this process has not loaded yet; empty: nothing. It is about what the old process has: a required function that
// cannot answer there need not answer here.
func (s *Server) notLoaded() string {
	if ok, why := s.status.Loaded(); !ok {
		return why
	}
	return strings.Join(s.capacity.Missing(), ", ")
}

// isBehind reports whether the old process has replicas by now that this one lacks: a model has woken there, or a new version has come up.
// If it has no room for more this one is not behind.
func (s *Server) isBehind(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var replicas map[string]int
	if err := s.before.conn.Call(ctx, opReplicas, nil, &replicas); err != nil {
		return false
	}
	more := floors(replicas)
	s.capacity.KeepAtLeast(more)
	st := s.catalog.Lock()
	for id := range more {
		if v := st.Version(id); v != nil && v.Model().Asleep.Load() {
			v.Awaken()
		}
	}
	s.catalog.Unlock()
	return s.notLoaded() != ""
}

// takeStore takes the store, and reads what was learned.
func (s *Server) takeStore(ctx context.Context) error {
	if s.handover == nil {
		s.beginMeasured(ctx)
		return nil
	}
	s.handover.Recall()
	if err := s.handover.Take(ctx); err != nil {
		return err
	}
	if err := os.Remove(s.before.welcome.Copy); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("a copy of the store is left", zap.Error(err))
	}
	if s.http != nil { // it was a canary, and has begun with what was learned then
		s.learned.Reread()
	}
	s.beginLearned()
	s.beginMeasured(ctx)
	return nil
}

func (s *Server) beginLearned() {
	if err := s.learned.Begin(); err != nil {
		s.log.Warn("what was learned is read later", zap.Error(err))
	}
}

// tookOver says that this process serves, and cares for the old one until that has ended.
func (s *Server) tookOver() {
	b := s.before
	if s.function != nil && s.ownPort {
		s.function.Own()
	}
	s.askOther(b.conn)
	_, _ = b.machine.Next(takeover.Done)
	s.underWay.at(b.machine.State())
	s.noteHolders(b.conn.PID())
	_ = b.conn.Send(takeover.KindServing, nil) // if it fails, the old process is gone
	s.inBackground(s.takeConnections)
	s.inBackground(func() {
		select {
		case <-b.over:
		case <-s.life.Done():
			return
		}
		s.path.AskBefore(nil)
		s.capacity.KeepAtLeast(nil)
		if s.handover != nil {
			s.learned.Reread()
		}
		s.underWay.end()
		s.log.Info("the process before has ended", zap.Int("process", b.conn.PID()))
		s.noteHolders(0)
		if err := s.listenForSuccessor(); err != nil {
			s.log.Warn("this gateway cannot be taken over", zap.Error(err))
		}
	})
}

// noteHolders says in the data directory which processes have it, for people and commands.
func (s *Server) noteHolders(before int) {
	if err := s.dir.noteHolders(before); err != nil {
		s.log.Warn("the data directory does not say which process has it", zap.Error(err))
	}
}

// askOther asks the other process for the queries that this one does not know.
func (s *Server) askOther(conn *takeover.Conn) {
	s.path.AskBefore(func(id uint64, function string) (past query.Past, err error) {
		ctx, cancel := context.WithTimeout(s.life, askWithin)
		defer cancel()
		err = conn.Call(ctx, opPast, pastQuestion{id, function}, &past)
		return past, err
	})
}

// giveUp tells the old process that this one does not take over.
func (b *predecessor) giveUp(why error) {
	if b != nil && b.machine.State() != takeover.Served {
		_ = b.conn.Send(takeover.KindAbort, takeover.Abort{Reason: why.Error()})
	}
}
