package deployment

import (
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
)

// busyPoll returns how long replicas of a spec may spin before they sleep. off: they do not, although the spec asks for it.
func (h *Host) busyPoll(spec *api.ModelSpec) (bound time.Duration, off string) {
	cores, source := h.Cores, ""
	if limit := spec.Limits.CPU; limit > 0 && int(limit) < cores {
		cores, source = int(limit), " (limits.cpu)"
	}
	if off = busypoll.Off(cores); spec.BusyPoll == 0 || off == "" {
		return spec.BusyPoll, ""
	}
	return 0, off + source
}

// busyPollStatus is nil if the spec does not ask for spinning.
func (h *Host) busyPollStatus(spec *api.ModelSpec) *api.BusyPollStatus {
	if spec.BusyPoll == 0 {
		return nil
	}
	_, off := h.busyPoll(spec)
	return &api.BusyPollStatus{Micros: spec.BusyPoll.Microseconds(), Off: off}
}
