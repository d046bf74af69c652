package server

import (
	"context"
	"fmt"

	"github.com/xebec-serving/xebec/gateway/inferlog"
	"go.uber.org/zap"
)

// openInferenceLog opens the inference log, if one is to be kept.
func (s *Server) openInferenceLog() error {
	if s.cfg.InferenceLog == "" {
		return nil
	}
	var err error
	if s.inferences, err = inferlog.Open(inferlog.Config{Dir: s.cfg.InferenceLog, MaxBytes: s.cfg.InferenceLogBytes, Log: s.log}); err != nil {
		return fmt.Errorf("--inference-log: %w", err)
	}
	return nil
}

// closeInferenceLog writes what is not written yet.
func (s *Server) closeInferenceLog() {
	if s.inferences == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeStoreWithin)
	defer cancel()
	if err := s.inferences.Close(ctx); err != nil {
		s.log.Warn("the last records of the inference log are lost", zap.Error(err))
	}
}
