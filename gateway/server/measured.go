package server

import (
	"context"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/measured"
)

// newMeasured makes what keeps the measured performance of versions. It reads the store when there is one to read.
func (s *Server) newMeasured() *measured.Keeper {
	cfg := measured.Config{
		Hardware: measured.Hardware(s.cfg.cores()), Log: s.log,
		Each: func(do func(measured.Version)) {
			st := s.catalog.Lock()
			defer s.catalog.Unlock()
			for _, v := range st.Versions() {
				do(v.Deployment)
			}
		},
		Mine: func() bool {
			select {
			case <-s.Superseded():
				return false
			default:
				return true
			}
		},
	}
	if s.store != nil {
		cfg.Notes = s.store
	}
	return measured.New(cfg)
}

// recall gives a new deployment what is kept of its version.
func (s *Server) recall(d *deployment.Deployment) { s.measured.Recall(d) }

// beginMeasured reads what is kept. If that fails it is read later.
func (s *Server) beginMeasured(ctx context.Context) {
	if err := s.measured.Begin(ctx); err != nil {
		s.log.Warn("what was measured of models is read later", zap.Error(err))
	}
}
