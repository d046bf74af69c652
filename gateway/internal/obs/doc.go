// Package obs counts what the gateway does, cheaply, and exports it to Prometheus. Every scrape passes promlint.
//
// The query path adds to striped counters: no lock, map or label look-up for a query. At a scrape, Prometheus's library
// renders what [Collector] reads from them. The scheduler's histograms are read in the same way. Names and units follow
// Prometheus's conventions: seconds, bytes, _total.
//
// Versions, traffic rules, drift and the inference log ([LifecycleSample]) are read from their owners at a scrape. The
// counts of a rule restart when the rule is set, which Prometheus treats as a counter reset. A latency that decisions
// depend on ([Latency]) has buckets fine enough to compare two 99th percentiles.
//
// What happened to replicas ([ReplicaSample]) is counted by the host of all deployments, which outlives them: these counts
// never fall while the gateway lives. Sums with a count, such as losses, are summaries.
//
// Rare events, such as feedback ([Learning], [Loss]), are counted by plain atomics. The cache and the policies' states
// keep their own counts, which are read at a scrape. Rows of functions without feedback are omitted: most of ten
// thousand functions never get any.
package obs
