package api

// RateStatus has rates over the last seconds, which "xebec top" shows. Unlike counters since the start, they follow the
// current load.
type RateStatus struct {
	// QueriesPerSecond counts the answers of any code.
	QueriesPerSecond float64 `json:"queries_per_second"`
	// P50MS and P99MS are percentiles of their latencies; 0 when there were none.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}
