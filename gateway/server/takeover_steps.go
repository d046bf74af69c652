package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

var errTakingOver = api.Errorf(api.Unavailable, "another process of this gateway is taking over: nothing was changed; try again in a moment")

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
	w := takeover.WelcomeMessage{Version: takeover.Version, Program: g.cfg.Version, Second: g.dir.set == 0, OwnPort: g.ownPort, Canary: true, Replicas: g.replicas(), Declared: g.declared.InForce(), Recounts: true}
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
	if g.grpc.listener != nil {
		if err := addListener(fileGRPC, g.grpc.listener.Listener); err != nil {
			return err
		}
	}
	add(fileLock, g.dir.lock)
	if g.inferences != nil {
		add(fileLog, g.inferences.Dir())
	}
	return g.conn.Send(takeover.KindWelcome, w, files...)
}

// replicas is how many replicas versions have, by "name@version".
func (s *Server) replicas() map[string]int {
	replicas := map[string]int{}
	for id, n := range s.capacity.Replicas() {
		replicas[id.String()] = n
	}
	return replicas
}

// release lets the store go.
func (g *giver) release() error {
	g.measured.Flush(context.Background())
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
	if g.grpc.server != nil { // its clients are asked to connect again, which is to the new process
		g.grpc.listener.Stop()
		g.inBackground(func() {
			ctx, cancel := context.WithTimeout(context.Background(), g.cfg.DrainTimeout)
			defer cancel()
			g.grpc.server.Shutdown(ctx)
		})
	}
	if g.handover != nil {
		g.handover.PassOn(farStore{g.conn})
	}
	g.log.Info("another process has taken over: this one answers what it has accepted, and ends", zap.Int("process", g.conn.PID()))
}

// passOn gives the new process what only this one knows.
func (s *Server) passOn(to *takeover.Conn) {
	err := s.path.PassOn(func(record []byte) error { return to.Send(takeover.KindPast, record) })
	if err != nil {
		s.log.Warn("queries that this process has answered are forgotten: feedback on them is refused", zap.Error(err))
	}
}
