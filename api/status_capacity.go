package api

// CapacityStatus says how many replicas a version is to have, and why.
type CapacityStatus struct {
	// Wanted is what its queries need, within its bounds; Granted what there is room for, ShortWhy why that is less.
	Wanted   int    `json:"wanted"`
	Granted  int    `json:"granted"`
	ShortWhy string `json:"short_why,omitempty"`
	// Reason is what Wanted follows from, in a word of the autoscaler; missing where the number is fixed.
	Reason string `json:"reason,omitempty"`
	// Rate is the queries per second that were planned for, PerReplica those that one replica serves within the objective at the
	// utilization that is planned with; 0: not known yet.
	Rate       float64 `json:"rate,omitempty"`
	PerReplica float64 `json:"per_replica,omitempty"`
	// Panic: it has to do with a rush, and nothing is taken away.
	Panic bool `json:"panic,omitempty"`
	// Takes is what is planned with for one replica; Measured says that its memory was measured. UsedCPU is the cores that one uses lately.
	Takes    ResourceStatus `json:"takes"`
	Measured bool           `json:"measured,omitempty"`
	UsedCPU  float64        `json:"used_cpu,omitempty"`
	// Profile is what is known of its replicas' times. It stays when they are gone, as long as the gateway runs; missing before one of them
	// has evaluated 16 batches.
	Profile *KnownProfile `json:"profile,omitempty"`
	// StartMS is what a start takes, from the launch to the replica that is ready; missing before the first one.
	StartMS float64 `json:"start_ms,omitempty"`
	// ColdStarts is missing where nobody has had to wait for a version that slept.
	ColdStarts *ColdStartStatus `json:"cold_starts,omitempty"`
	// Unenforced are sentences about limits that this machine does not let the gateway enforce.
	Unenforced []string `json:"unenforced,omitempty"`
}

// KnownProfile is what a batch takes on a version's replicas, the mean over those of them that were known when one was last: a batch of n
// is expected to take InterceptMicros + n × SlopeMicros.
type KnownProfile struct {
	InterceptMicros float64 `json:"intercept_micros"`
	SlopeMicros     float64 `json:"slope_micros"`
	// P99Micros is the longest of their 99th percentiles.
	P99Micros int64 `json:"p99_micros"`
	// Batches is how many it stands on, MeanBatch how many queries the version's batches have had since the gateway started, on average: with
	// batches of one alone nobody knows what larger ones take.
	Batches   uint64  `json:"batches"`
	MeanBatch float64 `json:"mean_batch"`
}

// ColdStartStatus is how long those waited who woke a version: from the first query that found no replica to the first answer after it, in
// milliseconds, since the gateway started.
type ColdStartStatus struct {
	Count  uint64  `json:"count"`
	LastMS float64 `json:"last_ms"`
	P50MS  float64 `json:"p50_ms"`
	P99MS  float64 `json:"p99_ms"`
}

// HedgeStatus counts queries that were sent to a second replica, because the first one was late beyond its own profile.
type HedgeStatus struct {
	// Hedged is how many were, Wins how many of them the second one answered first.
	Hedged uint64 `json:"hedged"`
	Wins   uint64 `json:"wins"`
}

// ResourceStatus is an amount of what a node has.
type ResourceStatus struct {
	CPU         float64 `json:"cpu"`
	MemoryBytes int64   `json:"memory_bytes"`
	GPU         int     `json:"gpu,omitempty"`
}

// NodeStatus is what the gateway's machine has for replicas. Free is less than 0 where what runs takes more than there is.
type NodeStatus struct {
	Budget ResourceStatus `json:"budget"`
	Free   ResourceStatus `json:"free"`
	// From is where the budget is known from.
	From string `json:"from,omitempty"`
	// Awake is how many versions have replicas, or want some.
	Awake int `json:"awake"`
	// Zygotes is how many processes hold what models have preloaded, ZygoteBytes what they hold together: Free is without it.
	Zygotes     int   `json:"zygotes,omitempty"`
	ZygoteBytes int64 `json:"zygote_bytes,omitempty"`
}
