package server

import (
	"fmt"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
)

// sharedMemory makes the transport of a gateway whose replicas run on its own host. This file and Config.Poller are all that the
// package knows of it.
func sharedMemory(cfg Config, dir dataDir, now func() api.Nanos) (worker.Transport, error) {
	socket, err := dir.socket()
	if err != nil {
		return nil, err
	}
	sockets, remove, err := dir.replicaSockets()
	if err != nil {
		return nil, fmt.Errorf("make a directory for the sockets of containers: %w", err)
	}
	hub, err := local.Listen(local.Config{Socket: socket, Doors: sockets, Now: now, Poller: cfg.Poller})
	if err != nil {
		remove()
		return nil, err
	}
	return hubWithSockets{hub, remove}, nil
}

// hubWithSockets removes the directory of the replicas' sockets when the hub has closed.
type hubWithSockets struct {
	*local.Hub
	remove func()
}

func (h hubWithSockets) Close() error {
	defer h.remove()
	return h.Hub.Close()
}
