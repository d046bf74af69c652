package server

import (
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/containers/node"
)

// cores is how many cores the gateway and its replicas may use at a time, as far as spinning is concerned.
func (c Config) cores() int {
	if c.Cores > 0 {
		return c.Cores
	}
	found, _ := node.Detect() // cores are always known
	return usable(runtime.GOMAXPROCS(0), found.CPUMillis)
}

// usable is how many cores procs threads have of a machine, or control group, with so many thousandths of a core.
func usable(procs int, cpuMillis int64) int { return min(procs, int(cpuMillis/1000)) }

// busyPoll returns how long the gateway may spin. off: it does not, although it is configured to.
func (c Config) busyPoll() (bound time.Duration, off string) {
	if off = busypoll.Off(c.cores()); c.BusyPoll == 0 || off == "" {
		return c.BusyPoll, ""
	}
	return 0, off
}

// busyPollStatus is nil if the gateway is not configured to spin.
func (c Config) busyPollStatus() *api.BusyPollStatus {
	if c.BusyPoll == 0 {
		return nil
	}
	_, off := c.busyPoll()
	return &api.BusyPollStatus{Micros: c.BusyPoll.Microseconds(), Off: off}
}

// logBusyPoll says whether the gateway spins, if it is configured to.
func (s *Server) logBusyPoll() {
	switch bound, off := s.cfg.busyPoll(); {
	case off != "":
		s.log.Warn("busy polling is off", zap.Duration("configured", s.cfg.BusyPoll), zap.String("because", off))
	case bound > 0:
		s.log.Info("busy polling", zap.Duration("at_most", bound), zap.Int("cores", s.cfg.cores()))
	}
}
