package http

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"

	"github.com/xebec-serving/xebec/gateway/http/poll"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
)

// transporter is the transport of clear text under Hertz: an acceptor and pollers.
type transporter struct {
	server   *Server
	listener net.Listener
	once     sync.Once
	closed   chan struct{} // the listener is closed
	accepted chan struct{} // no connection is adopted any more
	done     chan struct{} // no connection needs a poller any more
	end      sync.Once
}

func (s *Server) newTransporter(o *config.Options) network.Transporter {
	t := &transporter{server: s, listener: o.Listener, closed: make(chan struct{}), accepted: make(chan struct{}), done: make(chan struct{})}
	s.transport = t
	return t
}

// ListenAndServe accepts until Shutdown, and returns when finish was called too.
func (t *transporter) ListenAndServe(network.OnData) error {
	ln, ok := t.listener.(poll.Listener)
	_, none := t.listener.(*noListener)
	if !ok && !none {
		l, err := accept.New(t.listener, accept.Config{})
		if err != nil {
			return err
		}
		p, err := l.Pollable()
		if err != nil {
			return fmt.Errorf("listen on %s: %w", t.listener.Addr(), err)
		}
		ln = p
		defer func() { _ = p.Close() }()
	}
	loop := t.server.edge.loop
	pollers, err := poll.New(poll.Config{
		Pollers: max(1, runtime.GOMAXPROCS(0)/2), Now: loop.now, Batch: func() poll.Batch { return &batch{loop: loop} }, BusyPoll: t.server.cfg.BusyPoll,
	})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", t.listener.Addr(), err)
	}
	defer pollers.Close()
	t.server.pollers.Store(pollers)
	close(t.server.polling)
	if none {
		<-t.closed
	} else {
		err = poll.Accept(ln, t.closed, t.server.adopt)
	}
	close(t.accepted)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", t.listener.Addr(), err)
	}
	<-t.done
	return nil
}

// Shutdown stops accepting. Connections go on.
func (t *transporter) Shutdown(context.Context) error {
	t.once.Do(func() {
		close(t.closed)
		_ = t.listener.Close() // it fails only if it is closed
	})
	return nil
}

// finish ends the pollers.
func (t *transporter) finish() { t.end.Do(func() { close(t.done) }) }

// Close is Shutdown.
func (t *transporter) Close() error { return t.Shutdown(context.Background()) }
