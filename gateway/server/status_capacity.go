package server

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler/placement"
)

// status is how many replicas the version is to have, and why.
func (c *capacity) status(d *deployment) *api.CapacityStatus {
	out := &api.CapacityStatus{ColdStarts: d.cold.read(), StartMS: float64(d.cold.startNanos.Load()) / 1e6, Unenforced: d.unenforced()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.profile != nil {
		profile := *d.profile
		out.Profile = &profile
	}
	st := c.seats[d]
	if st == nil {
		out.Takes = resourceStatus(resourcesOf(&d.spec().Resources))
		return out
	}
	out.Wanted, out.Granted, out.ShortWhy = st.want, st.granted, c.whyShort(st)
	out.Takes, out.Measured, out.UsedCPU = resourceStatus(c.takesNow(st)), st.takes.memoryBytes > 0, float64(st.takes.cpuMillis)/1000
	if !st.fixed && d.spec().Replicas.Scales() {
		out.Reason, out.Rate, out.PerReplica, out.Panic = st.decision.Reason.String(), st.decision.Rate, st.decision.Capacity, st.decision.Panic
	}
	return out
}

func resourceStatus(r placement.Resources) api.ResourceStatus {
	return api.ResourceStatus{CPU: float64(r.CPUMillis) / 1000, MemoryBytes: r.MemoryBytes, GPU: int(r.GPUs)}
}

// node is what this machine has.
func (c *capacity) node() *api.NodeStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &api.NodeStatus{Budget: resourceStatus(c.budget.Resources), Free: resourceStatus(c.budget.Resources), From: c.budget.from, Awake: len(c.order), Zygotes: c.zygoteCount, ZygoteBytes: c.zygoteBytes}
	out.Free.MemoryBytes = max(0, c.budget.MemoryBytes-c.zygoteBytes)
	if len(c.out.Free) > 0 {
		out.Free = resourceStatus(c.out.Free[0])
	}
	return out
}

// awake is how many versions have replicas, or want some.
func (c *capacity) awake() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seats)
}

// limits are a spec's, as the runtimes know them.
func limits(m *api.ModelSpec) containers.Limits {
	return containers.Limits{CPUMillis: int64(m.Limits.CPU * 1000), MemoryBytes: m.Limits.MemoryBytes, PIDs: m.Limits.PIDs}
}

// read is what a scrape shows.
func (c *capacity) read(out *obs.CapacitySample) {
	node := c.node()
	out.CPU, out.MemoryBytes, out.GPUs = node.Budget.CPU, float64(node.Budget.MemoryBytes), float64(node.Budget.GPU)
	out.FreeCPU, out.FreeMemoryBytes, out.FreeGPUs = node.Free.CPU, float64(node.Free.MemoryBytes), float64(node.Free.GPU)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.order {
		out.Models = append(out.Models, obs.ModelCapacitySample{Name: st.d.id.Name, Version: st.d.id.Version, Wanted: st.want, Granted: st.granted})
	}
}
