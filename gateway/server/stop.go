package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"go.uber.org/zap"
)

// Quiesce announces the end of a gateway that goes on serving: /readyz answers 503, so that load balancers send their requests
// elsewhere, each answer of the function port closes its connection, and changes of what is declared are refused. Stop and Shutdown
// follow.
func (s *Server) Quiesce() {
	s.status.SetDraining()
	if s.http != nil {
		s.http.CloseAfterAnswers()
	}
	if s.grpc.server != nil {
		s.grpc.server.Quiesce()
	}
	s.declared.Refuse(api.Errorf(api.ShuttingDown, "the gateway is stopping: nothing can be changed any more"))
}

// Stop ends the gateway in order. It quiesces for Config.LameDuck, as long as lameDuck allows, and then shuts down within
// Config.DrainTimeout, as long as drain allows. One that another process has replaced does not quiesce: that one serves. It returns nil after an orderly end.
func (s *Server) Stop(lameDuck, drain context.Context) error {
	if s.cfg.LameDuck > 0 && lameDuck.Err() == nil && !s.succession.isOver() {
		s.log.Info("stopping soon: /readyz answers 503, requests are still accepted", zap.Duration("for", s.cfg.LameDuck))
		s.Quiesce()
		over := time.NewTimer(s.cfg.LameDuck)
		defer over.Stop()
		select {
		case <-over.C:
		case <-lameDuck.Done():
		}
	}
	s.log.Info("stopping: no new requests; those accepted are answered", zap.Duration("at_most", s.cfg.DrainTimeout))
	within, cancel := context.WithTimeout(drain, s.cfg.DrainTimeout)
	defer cancel()
	return s.shutdown(within, drain)
}

// Failed reports that a port has stopped serving, which nothing but a defect or another part of the process can cause. The gateway
// is to be stopped then.
func (s *Server) Failed() <-chan error { return s.portStopped }

// portEnded reports the end of a port's server, unless the gateway ends it.
func (s *Server) portEnded(port string, err error) {
	if !s.ending.Load() {
		s.portStopped <- errors.Join(fmt.Errorf("the %s port stopped serving", port), err)
	}
}

// Reload applies Config.Manifests again, as Start does, and lets the inference log go on in a new file. If a manifest is invalid or
// does not fit what is declared, nothing is applied. What a manifest does not name any more stays declared.
func (s *Server) Reload(ctx context.Context) ([]api.Change, error) {
	var reopened error
	if s.inferences != nil {
		within, cancel := context.WithTimeout(ctx, closeStoreWithin)
		defer cancel()
		if reopened = s.inferences.Reopen(within); reopened != nil {
			reopened = fmt.Errorf("--inference-log: go on in a new file: %w", reopened)
		}
	}
	set, err := s.loadManifests()
	if err != nil {
		return nil, errors.Join(err, reopened)
	}
	changes, err := s.declared.Reapply(ctx, set)
	return changes, errors.Join(err, reopened)
}

// loadManifests reads what Config.Manifests name.
func (s *Server) loadManifests() (*manifest.Set, error) {
	set, warnings, err := declarations.Load(s.cfg.Manifests)
	for _, w := range warnings {
		s.log.Warn(w)
	}
	return set, err
}
