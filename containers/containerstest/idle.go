package containerstest

import (
	"context"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

// Idle is a [containers.Runtime] whose replicas run nothing and connect to nothing. A replica starts at once, and has
// exited when Signal returns.
type Idle struct{}

// Start implements [containers.Runtime].
func (Idle) Start(context.Context, containers.Launch) (containers.Instance, error) {
	gone := make(chan struct{})
	return &replica{gone: gone, end: sync.OnceFunc(func() { close(gone) })}, nil
}

// Close implements [containers.Runtime]. The caller has ended the replicas.
func (Idle) Close() error { return nil }

type replica struct {
	gone chan struct{}
	end  func()
}

func (r *replica) PID() int                { return 1 }
func (r *replica) Exited() <-chan struct{} { return r.gone }
func (r *replica) Exit() containers.Exit   { return containers.Exit{At: time.Now()} }
func (r *replica) Signal(bool) error       { r.end(); return nil }
