package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/status"
	"go.uber.org/zap"
)

// repository is what the Open Inference Protocol's extensions need of a gateway: see oip.Repository. Anybody may ask it for the states and the statistics of all models, so
// these are shared.
type repository struct {
	*status.Reader
	server     *Server
	models     shared[[]api.ModelStatus]
	statistics shared[[]api.ModelStatistics]
}

// Models has the states of a model's versions, or of those of all models.
func (r *repository) Models(ctx context.Context, name string) ([]api.ModelStatus, error) {
	if name != "" {
		return r.Reader.Models(ctx, name)
	}
	return r.models.get(time.Now, func() ([]api.ModelStatus, error) { return r.Reader.Models(ctx, "") })
}

// Statistics counts what a model's versions have done, or those of all models.
func (r *repository) Statistics(name string) []api.ModelStatistics {
	if name != "" {
		return r.Reader.Statistics(name)
	}
	all, _ := r.statistics.get(time.Now, func() ([]api.ModelStatistics, error) { return r.Reader.Statistics(""), nil })
	return all
}

// checkModelControl fails if clients may control models and none of them could show that it is allowed to.
func (c Config) checkModelControl() error {
	if c.ModelControl && (c.AdminTokenFile == "" || c.Admin == NoPort) {
		return errors.New("--model-control lets clients of the function port load and unload models if they have a token of the admin port: add --admin-token-file FILE")
	}
	return nil
}

// SetLoaded has the model's serving version keep a replica, or lets it sleep.
func (r *repository) SetLoaded(ctx context.Context, authorization, model string, loaded bool) error {
	s := r.server
	if !s.cfg.ModelControl {
		what, min := "unloading", 0
		if loaded {
			what, min = "loading", 1
		}
		return api.Errorf(api.Unsupported, "%s models is off for clients of this port: `xebec scale %.63s --min %d` does it at the admin port; a gateway that is started with --model-control and --admin-token-file does it here for clients with a token of the admin port", what, model, min)
	}
	name, refusal, detail := s.admin.security.tokens.Check(authorization)
	if refusal != nil {
		s.log.Warn("a model was not loaded or unloaded for a client of the function port", zap.String("model", model), zap.NamedError("why", refusal), zap.Error(detail))
		return api.Errorf(api.Forbidden, "loading and unloading models needs a token of the admin port, as Authorization: Bearer TOKEN: %w", refusal)
	}
	id, err := api.ParseModelRef(model)
	if err != nil {
		return api.Errorf(api.InvalidArgument, "%w", err)
	}
	models, err := r.Models(ctx, id.Name)
	if err != nil {
		return err
	}
	for i := range models {
		m := &models[i]
		if id.Version == "" && !m.Serving || id.Version != "" && id.Version != m.Spec.Version {
			continue
		}
		spec := m.Spec
		if spec.Replicas.Min = 0; loaded {
			spec.Replicas.Min = 1
		}
		if loaded && m.Spec.Replicas.Min > 0 || !loaded && m.Spec.Replicas.Min == 0 {
			return nil // it is as it is to be
		}
		if spec.Dir == "" {
			spec.Dir = m.Dir
		}
		if spec.Replicas.Initial != 0 {
			spec.Replicas.Initial = max(spec.Replicas.Initial, spec.Replicas.Min)
		}
		if err := spec.Validate(); err != nil {
			return api.Errorf(api.InvalidArgument, "model %s: %w", spec.ID(), err)
		}
		_, err := s.Apply(api.WithCaller(ctx, api.Caller{Name: name}), &manifest.Set{Models: []api.ModelSpec{spec}}, false,
			api.ObjectRevision{Kind: api.KindModel, Name: spec.Name, Version: spec.Version, Revision: m.Revision})
		r.models.forget() // who asks next sees what has changed
		s.log.Info("a client of the function port has loaded or unloaded a model", zap.Stringer("model", spec.ID()), zap.Bool("load", loaded), zap.String("by", name), zap.Error(err))
		return err
	}
	if id.Version != "" {
		return api.Errorf(api.NotFound, "no model %q", model)
	}
	return api.Errorf(api.Unavailable, "no version of the model %q serves: %s", id.Name, fmt.Sprintf("load one of them, as %s@VERSION", id.Name))
}
