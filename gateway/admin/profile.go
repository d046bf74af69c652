package admin

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/xebec-serving/xebec/api"
)

const (
	defaultProfileSeconds = 5
	// maxProfileSeconds bounds how long one call may use the runtime's only CPU profiler.
	maxProfileSeconds = 60
)

// profiling is set while a CPU profile is being taken; the runtime has only one profiler.
var profiling atomic.Bool

// profile answers a profile of the gateway in pprof format: `go tool pprof http://127.0.0.1:1338/v1/profile/cpu`.
func (h *handlers) profile(ctx context.Context, c *app.RequestContext) (any, error) {
	q, err := query(c, "seconds")
	if err != nil {
		return nil, err
	}
	seconds := defaultProfileSeconds
	if v, given := q["seconds"]; given {
		if seconds, err = strconv.Atoi(v); err != nil || seconds < 1 || seconds > maxProfileSeconds {
			return nil, api.Errorf(api.InvalidArgument, "seconds=%.20q: expected 1 to %d", v, maxProfileSeconds)
		}
	}
	var body bytes.Buffer
	switch name := c.Param("name"); name {
	case "cpu":
		if err := cpuProfile(ctx, &body, time.Duration(seconds)*time.Second); err != nil {
			return nil, err
		}
	case "heap", "allocs", "goroutine", "block", "mutex", "threadcreate":
		if err := pprof.Lookup(name).WriteTo(&body, 0); err != nil {
			return nil, err
		}
	default:
		return nil, api.Errorf(api.NotFound, "no profile %.50q: expected cpu, heap, allocs, goroutine, block, mutex or threadcreate", name)
	}
	c.Data(200, "application/octet-stream", body.Bytes())
	return nil, nil
}

func cpuProfile(ctx context.Context, body *bytes.Buffer, d time.Duration) error {
	if !profiling.CompareAndSwap(false, true) {
		return api.Errorf(api.Overloaded, "a CPU profile is being taken already: try again when it is done")
	}
	defer profiling.Store(false)
	if err := pprof.StartCPUProfile(body); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	pprof.StopCPUProfile() // writes the profile
	return ctx.Err()
}
