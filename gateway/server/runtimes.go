package server

import (
	"context"
	"errors"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/docker"
	"github.com/xebec-serving/xebec/containers/process"
	"go.uber.org/zap"
)

// runtimes sends a launch to where it runs: with an image to the container engine, else to the processes of this host.
type runtimes struct {
	*process.Runtime
	images *docker.Runtime
}

// newRuntimes makes both. Neither starts anything before it is needed. Whether there is an engine shows when a container is launched.
func newRuntimes(cfg Config, dir dataDir, log *zap.Logger) (*runtimes, error) {
	processes, err := process.New()
	if err != nil {
		return nil, err
	}
	if err := processes.Quiet(); err != nil {
		log.Warn("replicas that are loaded while others serve have the same priority as these", zap.Error(err))
	}
	owner, err := dir.owner()
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	images, err := docker.New(docker.Config{Host: cfg.Docker, Owner: owner, Logger: log})
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	return &runtimes{processes, images}, nil
}

func (r *runtimes) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	if l.Image != "" {
		return r.images.Start(ctx, l)
	}
	return r.Runtime.Start(ctx, l)
}

// Sweep removes containers that an earlier life of this gateway left.
func (r *runtimes) Sweep(ctx context.Context) error { return r.images.Sweep(ctx) }

func (r *runtimes) Close() error { return errors.Join(r.Runtime.Close(), r.images.Close()) }
