package api

import "time"

// CapacityStatus says how many replicas a version should have, and why.
type CapacityStatus struct {
	// Wanted is what its queries need, within its bounds. Granted is what there is room for. ShortWhy says why Granted
	// is smaller.
	Wanted   int    `json:"wanted"`
	Granted  int    `json:"granted"`
	ShortWhy string `json:"short_why,omitempty"`
	// Reason is the autoscaler's keyword for why it wants that number. It is missing if the number is fixed.
	Reason string `json:"reason,omitempty"`
	// Rate is the planned queries per second. PerReplica is what one replica serves within the objective at the planned
	// utilization; 0 means that it is not known yet.
	Rate       float64 `json:"rate,omitempty"`
	PerReplica float64 `json:"per_replica,omitempty"`
	// Panic says that there is a burst of load, during which no replica is stopped.
	Panic bool `json:"panic,omitempty"`
	// Takes is what is planned for one replica. Measured says that its memory was measured. UsedCPU is the number of
	// cores that one replica has used recently.
	Takes    ResourceStatus `json:"takes"`
	Measured bool           `json:"measured,omitempty"`
	UsedCPU  float64        `json:"used_cpu,omitempty"`
	// Profile summarises its replicas' times. It stays after they are gone, and is kept over restarts of the gateway. It is missing
	// until one of them has evaluated 16 batches.
	Profile *KnownProfile `json:"profile,omitempty"`
	// StartMS is how long a start takes, from the launch until the replica is ready. It is missing before the first
	// start.
	StartMS float64 `json:"start_ms,omitempty"`
	// ColdStarts is missing if no query has waited for a sleeping version.
	ColdStarts *ColdStartStatus `json:"cold_starts,omitempty"`
	// Unenforced explains which limits the gateway cannot enforce on this machine.
	Unenforced []string `json:"unenforced,omitempty"`
}

// KnownProfile is a version's batch times, the mean over the replicas that were last known. The predicted time of a
// batch of n is InterceptMicros + n × SlopeMicros.
type KnownProfile struct {
	InterceptMicros float64 `json:"intercept_micros"`
	SlopeMicros     float64 `json:"slope_micros"`
	// P99Micros is the longest of the replicas' 99th percentiles.
	P99Micros int64 `json:"p99_micros"`
	// Batches is the number of batches behind it. MeanBatch is the mean size of the version's batches since the gateway
	// started: if all were of size one, the time of larger batches is unknown.
	Batches   uint64  `json:"batches"`
	MeanBatch float64 `json:"mean_batch"`
	// Sizes are the times of batches by their size, the smallest first.
	Sizes []SizeTime `json:"sizes,omitempty"`
	// At is when the last of the batches ended, within a second.
	At time.Time `json:"at,omitzero"`
	// Kept: it is from before the gateway started, and no replica has evaluated 16 batches since.
	Kept bool `json:"kept,omitempty"`
}

// ColdStartStatus is how long queries that woke a version waited: from the first query that found no replica to the
// first answer after it, in milliseconds, since the gateway started.
type ColdStartStatus struct {
	Count  uint64  `json:"count"`
	LastMS float64 `json:"last_ms"`
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
}

// HedgeStatus counts queries that were sent to a second replica because the first was late by its own profile.
type HedgeStatus struct {
	// Hedged is the number of such queries. Wins is how many of them the second replica answered first.
	Hedged uint64 `json:"hedged"`
	Wins   uint64 `json:"wins"`
}

// ResourceStatus is an amount of a node's resources.
type ResourceStatus struct {
	CPU         float64 `json:"cpu"`
	MemoryBytes int64   `json:"memory_bytes"`
	GPU         int     `json:"gpu,omitempty"`
}

// NodeStatus is the machine's resources for replicas. Free is negative if the running replicas use more than there is.
type NodeStatus struct {
	Budget ResourceStatus `json:"budget"`
	Free   ResourceStatus `json:"free"`
	// From says where the budget comes from.
	From string `json:"from,omitempty"`
	// Awake is the number of versions that have replicas or want some.
	Awake int `json:"awake"`
	// Zygotes is the number of processes that hold preloaded modules, ZygoteBytes their memory. Free does not include
	// that memory.
	Zygotes     int   `json:"zygotes,omitempty"`
	ZygoteBytes int64 `json:"zygote_bytes,omitempty"`
}
