package server

import (
	"fmt"
	"net"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
)

// listen opens the ports. Requests wait until serve.
func (s *Server) listen() (err error) {
	if s.hosts, err = browser.ParseHosts(s.cfg.AllowedHosts); err != nil {
		return fmt.Errorf("--allowed-hosts: %w", err)
	}
	var secure *security
	if s.cfg.Admin != NoPort {
		if secure, err = s.cfg.adminSecurity(); err != nil {
			return err
		}
	}
	if s.cfg.Listen != NoPort {
		if s.function, err = net.Listen("tcp", s.cfg.Listen); err != nil {
			return fmt.Errorf("listen on the function port: %w; is another gateway running? --listen chooses another address", err)
		}
		s.onClose(func() error { s.function.Close(); return nil })
	}
	if secure != nil {
		if s.admin, err = secure.listen(s.cfg.Admin); err != nil {
			return err
		}
		s.onClose(func() error { s.admin.Close(); return nil })
	}
	return nil
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
func (s *Server) serve() (err error) {
	if s.function != nil {
		limits := http.DefaultLimits()
		limits.BodyBytes = int(s.cfg.MaxBodyBytes)
		s.http, err = http.New(http.Config{
			Path: s.path, Listener: s.function, Limits: limits, Ready: s.Ready, Reply: s.cfg.Reply,
			Dialects: append([]dialect.Dialect{native.Dialect{}, oip.Dialect{Version: s.cfg.Version, Ready: s.Ready}}, s.cfg.Dialects...),
		})
		if err != nil {
			return err
		}
		s.ports.Go(func() { s.portStopped <- s.http.Serve() })
	}
	if s.admin != nil {
		s.adminHTTP = s.newAdmin(s.admin)
		s.ports.Go(func() { s.portStopped <- s.adminHTTP.Run() })
	}
	return nil
}
