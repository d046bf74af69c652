package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/catalog"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/dialect/openai"
	"github.com/xebec-serving/xebec/gateway/dialect/tfserving"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"go.uber.org/zap"
)

// listen opens the ports. Requests wait until serve.
func (s *Server) listen() (err error) {
	if s.hosts, err = browser.ParseHosts(s.cfg.AllowedHosts); err != nil {
		return fmt.Errorf("--allowed-hosts: %w", err)
	}
	if err := s.cfg.checkModelControl(); err != nil {
		return err
	}
	var secure *security
	if s.cfg.Admin != NoPort {
		if secure, err = s.cfg.adminSecurity(); err != nil {
			return err
		}
	}
	if s.cfg.Listen != NoPort {
		ln, err := s.before.listener(fileFunction, "--listen", s.cfg.Listen)
		if err != nil {
			return err
		}
		if ln == nil {
			ln = s.cfg.Listeners.Functions
		}
		// A process that takes over may have to leave the port to the old one, and owns it when it serves.
		s.ownPort = s.cfg.Listeners.Functions == nil && (s.before == nil || s.before.welcome.OwnPort)
		if ln == nil {
			if ln, err = accept.Listen(s.cfg.Listen); err != nil {
				return fmt.Errorf("listen on the function port: %w; is another gateway running? --listen chooses another address", err)
			}
		}
		s.onClose(func() error { ln.Close(); return nil })
		bound := accept.Config{Report: s.notAccepted("functions"), Shared: !s.ownPort || s.before != nil}
		if s.functionTLS, err = s.cfg.functionTLS(s.log); err != nil {
			return err
		}
		if s.functionTLS != nil {
			bound.Connections = s.cfg.Connections // without TLS the port counts for itself
		}
		if s.function, err = accept.New(ln, bound); err != nil {
			return err
		}
		s.onClose(func() error { _ = s.function.Close(); return nil })
	}
	if err := s.listenGRPC(); err != nil {
		return err
	}
	if secure != nil {
		inherited, err := s.before.listener(fileAdmin, "--admin", s.cfg.Admin)
		if err != nil {
			return err
		}
		if inherited == nil {
			inherited = s.cfg.Listeners.Admin
		}
		if s.admin, err = secure.listen(s.cfg.Admin, inherited, s.notAccepted("admin")); err != nil {
			return err
		}
		s.onClose(func() error { _ = s.admin.Close(); return nil })
	}
	return nil
}

// notAccepted logs the connections that a port could not take.
func (s *Server) notAccepted(port string) func(uint64, error) {
	return func(failed uint64, newest error) {
		s.log.Warn("connections were not accepted: raise the limit of open files (ulimit -n, LimitNOFILE) or lower --max-connections if they are too many for it",
			zap.String("port", port), zap.Uint64("connections", failed), zap.Error(newest))
	}
}

// panicLogEvery keeps a client that has found a defect from filling the log.
const panicLogEvery = time.Second //xebec:limit interval between log entries about handlers that panicked, for each port

// panicked logs handlers of a port that panicked.
func (s *Server) panicked(port string) func(http.Panic) {
	var mu sync.Mutex
	var last time.Time
	var total uint64
	return func(p http.Panic) {
		mu.Lock()
		defer mu.Unlock()
		total++
		if now := time.Now(); last.IsZero() || now.Sub(last) >= panicLogEvery {
			last = now
			s.log.Error("the handler of a request has panicked: this is a defect of the gateway, please report it with the stack", zap.String("port", port),
				zap.String("method", p.Method), zap.String("path", p.Path), zap.String("request_id", p.RequestID), zap.String("panic", fmt.Sprint(p.Value)),
				zap.ByteString("stack", p.Stack), zap.Uint64("panics_ever", total))
		}
	}
}

// acceptErrors counts the connections that each port could not take.
func (s *Server) acceptErrors() map[string]uint64 {
	counts := map[string]uint64{}
	if s.function != nil {
		counts["functions"] = s.function.Failed()
	}
	if s.admin != nil {
		counts["admin"] = s.admin.Failed()
	}
	if s.grpc.listener != nil {
		counts["grpc"] = s.grpc.listener.Failed()
	}
	return counts
}

// edgeRefused counts the requests that each port refused before they reached a route, by reason.
func (s *Server) edgeRefused() map[string]map[string]uint64 {
	counts := map[string]map[string]uint64{}
	if s.function != nil {
		counts["functions"] = s.refusals.functions.Read()
	}
	if s.admin != nil {
		counts["admin"] = s.refusals.admin.Read()
	}
	if s.grpc.listener != nil {
		counts["grpc"] = s.grpcRefused()
	}
	return counts
}

// loops counts what moves requests between clients, the gateway and replicas.
func (s *Server) loops() (l obs.LoopSample) {
	if h := s.polled.Load(); h != nil {
		c := h.Polled()
		l.PollWaits, l.PollReads, l.PollWrites = c.Waits, c.Reads, c.Writes
		l.ClientSpins = obs.Spins{Found: c.SpinsFound, Vain: c.SpinsVain}
	}
	l.ReplicaSpins.Found, l.ReplicaSpins.Vain = spins(s.transport)
	l.BellsRung, l.BellsReceived = bells(s.transport)
	l.BodiesWaiting = s.bodies.Waiting()
	return l
}

// Listen is the address of the function port; empty: there is none.
func (s *Server) Listen() string {
	if s.function == nil {
		return ""
	}
	return s.function.Addr().String()
}

// Admin is the address of the admin port; empty: there is none.
func (s *Server) Admin() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Addr().String()
}

// serve answers requests on the ports.
func (s *Server) serve() error {
	if s.http != nil { // it has served as a canary
		if err := s.function.Begin(); err != nil {
			return err
		}
	} else if err := s.serveFunctions(); err != nil {
		return err
	}
	if s.admin != nil {
		s.adminHTTP = s.newAdmin(s.admin)
		s.ports.Go(func() { s.portEnded("admin", s.adminHTTP.Run()) })
	}
	s.serveGRPC()
	return nil
}

// serveFunctions answers requests on the function port.
func (s *Server) serveFunctions() (err error) {
	if s.function != nil {
		var ln net.Listener = s.function
		if s.functionTLS == nil {
			if ln, err = s.function.Pollable(); err != nil {
				return err
			}
		}
		busy, _ := s.cfg.busyPoll()
		s.http, err = http.New(http.Config{
			Path: s.path, Listener: ln, TLS: s.functionTLS, Limits: s.cfg.limits(), Ready: s.Ready, Problems: s.Problems, GRPC: s.whereGRPC(), Upgrade: s.Upgrade, Reply: s.cfg.Reply, AllowedHosts: s.hosts,
			Bodies: s.bodies, Refusals: &s.refusals.functions, Panicked: s.panicked("functions"), BusyPoll: busy,
			Dialects: append([]dialect.Dialect{native.Dialect{}, oip.Dialect{Version: s.cfg.Version, Ready: s.Ready, Repository: s.repository}, tfserving.Dialect{}, openai.Dialect{}, catalog.Dialect{Since: time.Now()}}, s.cfg.Dialects...),
		})
		if err != nil {
			return err
		}
		s.polled.Store(s.http)
		s.ports.Go(func() { s.portEnded("function", s.http.Serve()) })
	}
	return nil
}
