package server

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
)

// sharedMemory makes the transport of a gateway whose replicas run on its own host. This file and Config.Poller are all that the
// package knows of it.
func sharedMemory(cfg Config, dir dataDir, sockets string, now func() api.Nanos) (worker.Transport, error) {
	socket, err := dir.socket()
	if err != nil {
		return nil, err
	}
	return local.Listen(local.Config{Socket: socket, Doors: sockets, Now: now, Poller: cfg.Poller})
}

// bells counts the bells of a transport that has some.
func bells(t worker.Transport) (rung, received uint64) {
	if hub, ok := t.(*local.Hub); ok {
		b := hub.Bells()
		return b.Rung, b.Received
	}
	return 0, 0
}
