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
	slots := uint64(local.DefaultSlotBytes)
	if bodies := cfg.bodyMemory(); bodies > 0 { // a replica keeps what it has once had for them
		slots = min(slots, max(uint64(bodies)/8, 1))
	}
	busy, _ := cfg.busyPoll()
	return local.Listen(local.Config{Socket: socket, Doors: sockets, Now: now, Poller: cfg.Poller, SlotBytes: slots, BusyPoll: busy})
}

// spins counts the spins of a transport that has some.
func spins(t worker.Transport) (found, vain uint64) {
	if hub, ok := t.(*local.Hub); ok {
		return hub.Spins()
	}
	return 0, 0
}

// bells counts the bells of a transport that has some.
func bells(t worker.Transport) (rung, received uint64) {
	if hub, ok := t.(*local.Hub); ok {
		b := hub.Bells()
		return b.Rung, b.Received
	}
	return 0, 0
}
