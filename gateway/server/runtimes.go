package server

import (
	"errors"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/docker"
	"github.com/xebec-serving/xebec/containers/mux"
	"github.com/xebec-serving/xebec/containers/process"
	"go.uber.org/zap"
)

// newRuntime makes what starts replicas on this host: a launch with an image goes to the container engine, every other one to
// processes. Neither starts anything before it is needed. Whether there is an engine shows when a container is launched.
func newRuntime(cfg Config, dir dataDir, log *zap.Logger) (containers.Runtime, error) {
	processes, err := process.New()
	if err != nil {
		return nil, err
	}
	owner, err := dir.owner()
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	images, err := docker.New(docker.Config{Host: cfg.Docker, Owner: owner, Logger: log})
	if err != nil {
		return nil, errors.Join(err, processes.Close())
	}
	return mux.New(mux.Route{Name: "docker", Takes: mux.Image, Runtime: images}, mux.Route{Name: "process", Runtime: processes}), nil
}
