package api

// RateStatus is how busy something has been in the last seconds: the figures that "xebec top" shows and that change faster than
// counters since the start tell.
type RateStatus struct {
	// QueriesPerSecond counts the answers of any code.
	QueriesPerSecond float64 `json:"queries_per_second"`
	// P50MS and P99MS are percentiles of their latencies; 0 when there were none.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}
