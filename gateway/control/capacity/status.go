package capacity

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler/placement"
)

// Status is how many replicas the version is to have, and why.
func (m *Member) Status() *api.CapacityStatus {
	out := &api.CapacityStatus{ColdStarts: m.Cold.status(), StartMS: float64(m.Cold.startNanos.Load()) / 1e6}
	out.Profile = m.Profile()
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.seats[m]
	if st == nil {
		out.Takes = resourceStatus(resourcesOf(&m.version.Spec().Resources))
		return out
	}
	out.Wanted, out.Granted, out.ShortWhy = st.want, st.granted, c.whyShort(st)
	out.Takes, out.Measured, out.UsedCPU = resourceStatus(c.plannedUsage(st)), st.usage.memoryBytes > 0, float64(st.usage.cpuMillis)/1000
	if !st.fixed && m.version.Spec().Replicas.Scales() {
		out.Reason, out.Rate, out.PerReplica, out.Panic = st.decision.Reason.String(), st.decision.Rate, st.decision.Capacity, st.decision.Panic
	}
	return out
}

func resourceStatus(r placement.Resources) api.ResourceStatus {
	return api.ResourceStatus{CPU: float64(r.CPUMillis) / 1000, MemoryBytes: r.MemoryBytes, GPU: int(r.GPUs)}
}

// Node is what this machine has.
func (c *Capacity) Node() *api.NodeStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &api.NodeStatus{Budget: resourceStatus(c.budget.Resources), Free: resourceStatus(c.budget.Resources), From: c.budget.from, Awake: len(c.order), Zygotes: c.preloadCount, ZygoteBytes: c.preloadBytes}
	out.Free.MemoryBytes = max(0, c.budget.MemoryBytes-c.preloadBytes)
	if len(c.out.Free) > 0 {
		out.Free = resourceStatus(c.out.Free[0])
	}
	return out
}

// Read adds what a scrape shows.
func (c *Capacity) Read(out *obs.CapacitySample) {
	node := c.Node()
	out.CPU, out.MemoryBytes, out.GPUs = node.Budget.CPU, float64(node.Budget.MemoryBytes), float64(node.Budget.GPU)
	out.FreeCPU, out.FreeMemoryBytes, out.FreeGPUs = node.Free.CPU, float64(node.Free.MemoryBytes), float64(node.Free.GPU)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.order {
		out.Models = append(out.Models, obs.ModelCapacitySample{Name: st.m.id.Name, Version: st.m.id.Version, Wanted: st.want, Granted: st.granted})
	}
}
