package obs

import "github.com/prometheus/client_golang/prometheus"

// CapacitySample describes the node's resources for replicas and how many replicas each version is granted.
type CapacitySample struct {
	CPU, MemoryBytes, GPUs             float64
	FreeCPU, FreeMemoryBytes, FreeGPUs float64
	// Models are the versions that are awake, ColdStarts those that have ever been woken.
	Models     []ModelCapacitySample
	ColdStarts []ColdStartSample
}

// ModelCapacitySample is how many replicas a version wants and gets.
type ModelCapacitySample struct {
	Name, Version   string
	Wanted, Granted int
}

// ColdStartSample is how long queries waited for a version to wake.
type ColdStartSample struct {
	Name, Version string
	Waits         Histogram // in seconds, by ColdStartBounds
}

var (
	nodeBudget   = desc("node_budget", "What the machine has for replicas: cpu in cores, memory_bytes, gpu.", "resource")
	nodeFree     = desc("node_free", "What of the machine's budget is free; negative where more is taken than there is.", "resource")
	modelWanted  = desc("model_replicas_wanted", "Replicas that a version's queries need, within its bounds. Only versions that are awake have it.", "model", "version")
	modelGranted = desc("model_replicas_granted", "Replicas that a version gets, as far as there is room. Only versions that are awake have it.", "model", "version")
	modelCold    = desc("cold_start_seconds", "Cold starts: from the first query that found a version asleep to the first answer.", "model", "version")

	capacityDescriptors = []*prometheus.Desc{nodeBudget, nodeFree, modelWanted, modelGranted, modelCold}
)

// ColdStartBounds are the buckets of cold starts in seconds: from forking a zygote to loading a large framework from a
// cold disk.
var ColdStartBounds = []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

func (c *CapacitySample) collect(gauge func(*prometheus.Desc, float64, ...string), hist func(*prometheus.Desc, Histogram, ...string)) {
	for _, r := range []struct {
		name         string
		budget, free float64
	}{{"cpu", c.CPU, c.FreeCPU}, {"memory_bytes", c.MemoryBytes, c.FreeMemoryBytes}, {"gpu", c.GPUs, c.FreeGPUs}} {
		gauge(nodeBudget, r.budget, r.name)
		gauge(nodeFree, r.free, r.name)
	}
	for _, m := range c.Models {
		gauge(modelWanted, float64(m.Wanted), m.Name, m.Version)
		gauge(modelGranted, float64(m.Granted), m.Name, m.Version)
	}
	for _, m := range c.ColdStarts {
		hist(modelCold, m.Waits, m.Name, m.Version)
	}
}
