package server

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/learning"
)

// learningConfig connects what shows and edits what was learned with the rest.
func (s *Server) learningConfig() learning.Config {
	cfg := learning.Config{
		Table: s.learned, Refusing: s.declared.Refusing, Log: s.log,
		Spec: func(function string) (*api.FunctionSpec, bool) {
			d, ok := s.functions.Get(function)
			return d.Spec, ok
		},
	}
	if s.store != nil {
		cfg.Notes = s.store
	}
	return cfg
}
