package api

// ModelStatistics counts what a model version has done since the gateway started.
type ModelStatistics struct {
	ID ModelID
	// Succeeded and Failed are queries, for functions and for clients that address the version, by whether they got a prediction.
	Succeeded, Failed uint64
	// Batches are evaluations.
	Batches uint64
	// Queue is the time of queries from their acceptance to the sending of their batch, Evaluation that of batches, as the gateway sees it.
	Queue, Evaluation Durations
	// CacheHits and CacheMisses are queries that the prediction cache has answered, or has not.
	CacheHits, CacheMisses uint64
}

// Durations is a number of durations and their sum.
type Durations struct{ Count, Nanos uint64 }
