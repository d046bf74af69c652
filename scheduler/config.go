package scheduler

import "github.com/xebec-serving/xebec/api"

// Policy selects how a replica's batch cap is found.
type Policy uint8

const (
	// AIMD adds 2 to the cap after a full batch that took less than 90 % of the objective, and removes a tenth after
	// one that took longer than the objective (Crankshaw et al., Clipper, NSDI 2017, section 4.3.1). At the start, and
	// when a replica has become faster, the cap grows up to twofold with each batch.
	AIMD Policy = iota
	// Fixed always allows MaxBatch.
	Fixed
	// None sends queries one by one.
	None
	// Quantile fits a line to the P99 of evaluation times by batch size, and allows the largest batch whose P99 is
	// within the objective (the same section). It costs more memory and time than AIMD (about 7 KiB a replica, and some
	// microseconds every 8 batches) and holds the objective for 99 of 100 batches even where times scatter.
	Quantile
)

// String is the name used in manifests and metrics.
func (p Policy) String() string {
	switch p {
	case AIMD:
		return "aimd"
	case Fixed:
		return "fixed"
	case None:
		return "none"
	case Quantile:
		return "quantile"
	}
	return "unknown"
}

// Bounds and defaults. A Config value that is 0, or negative where that is meaningless, takes the default; one beyond a
// bound takes the bound.
const (
	// DefaultDepth is one batch in evaluation and one behind it, so that a busy replica never waits for a hand-over.
	DefaultDepth = 2 //xebec:limit batches that a replica holds
	// MaxDepth bounds what a dead replica takes with it, and stays below the number of entries of any ring.
	MaxDepth = 64
	// DefaultMaxQueue is two seconds of work for a model at 8,000 queries/s. A caller whose query would wait longer has
	// given up.
	DefaultMaxQueue = 16384
	// MaxMaxQueue keeps a queue's own memory (24 bytes an entry, and the item) below a few GiB.
	MaxMaxQueue = 1 << 22
	// DefaultMaxQueueBytes bounds the memory of waiting inputs; a count alone would admit 16384 pictures of 600 KiB.
	DefaultMaxQueueBytes = 256 << 20 //xebec:limit input bytes that wait for a version
	// DefaultMaxBatch is beyond the size at which any model that we measured still gains from larger batches.
	DefaultMaxBatch = 4096
	// MaxMaxBatch bounds the tables allocated per batch.
	MaxMaxBatch = 1 << 16
	// DefaultMaxBatchBytes admits one body of the HTTP limit (64 MiB).
	DefaultMaxBatchBytes = 64 << 20
	// MaxHoldNanos: a hold longer than 100 ms is a mistake in units.
	MaxHoldNanos = int64(100e6) //xebec:limit `batching.hold`, in effect
)

// Batching says how batches are formed.
type Batching struct {
	Policy Policy
	// MaxBatch is the most queries in a batch, MaxBatchBytes the most bytes of their inputs and contexts.
	MaxBatch      int
	MaxBatchBytes int
	// HoldNanos is how long a batch that is not full waits for more queries, as in Nagle's algorithm. 0: not at all.
	HoldNanos int64
	// ObjectiveNanos is the longest that the evaluation of a batch should take; AIMD and Quantile aim for it. 0: no
	// bound, and the cap is MaxBatch.
	ObjectiveNanos int64
	// Pad fills every batch to MaxBatch with copies of its last query, for models that take only full batches. The cap
	// is then MaxBatch for every policy.
	Pad bool
}

// Config says how one model version is scheduled. It may be changed while queries are in flight.
type Config struct {
	// Depth is how many batches a replica holds at a time, unless the replica reports its own depth.
	Depth int
	// MaxQueue and MaxQueueBytes bound the queue: a query that finds it full is refused with Overloaded.
	MaxQueue      int
	MaxQueueBytes int
	Batching      Batching
	// Shared is set if the model version shares a device with others. It then sends batches only in its turns.
	Shared bool
	// Retry allows queries that a replica had begun when it died to be tried once more.
	Retry bool
	// Hedge allows queries in a late batch to be sent to a second replica as well; the first answer counts. It has no
	// effect without Retry, because such a model must not see a query twice.
	Hedge bool
	// Streams is set if the model answers in streams. Each batch then has one query, whose first output answers it; a replica gets as many batches as
	// it evaluates at once and none behind them, because how long a stream lasts is not known; nothing is hedged.
	Streams bool
	// TimeoutNanos is the shortest time after which a silent replica may count as hung: it does after max(10 × its P99,
	// TimeoutNanos, 0.8 s). 0: 0.8 s, but 30 s until 16 of its batches have been seen, because the first calls of a model
	// may compile or load something.
	TimeoutNanos int64
}

// DefaultConfig is the configuration of a model version that declares nothing.
func DefaultConfig() Config {
	return Config{Retry: true, Hedge: true}.normal()
}

// ConfigOf returns the configuration that a model's spec declares. The caller adds Shared and TimeoutNanos where batches
// really run, which a simulation has not, and an objective that follows from the functions' SLO.
func ConfigOf(spec *api.ModelSpec) Config {
	c := DefaultConfig()
	c.MaxQueue = spec.Queue.Max
	c.Retry, c.Streams = spec.Retries(), spec.Stream
	c.Batching = Batching{
		MaxBatch: spec.Batching.Max, MaxBatchBytes: int(spec.Batching.MaxBytes), HoldNanos: int64(spec.Batching.Hold),
		ObjectiveNanos: int64(spec.Batching.Objective), Pad: spec.Batching.Pad,
	}
	switch spec.Batching.Policy {
	case api.BatchFixed:
		c.Batching.Policy = Fixed
	case api.BatchNone:
		c.Batching.Policy = None
	case api.BatchQuantile:
		c.Batching.Policy = Quantile
	default:
		c.Batching.Policy = AIMD
	}
	return c
}

// normal fills in defaults and applies bounds.
func (c Config) normal() Config {
	c.Depth = bounded(c.Depth, DefaultDepth, MaxDepth)
	c.MaxQueue = bounded(c.MaxQueue, DefaultMaxQueue, MaxMaxQueue)
	c.MaxQueueBytes = bounded(c.MaxQueueBytes, DefaultMaxQueueBytes, maxInt)
	b := &c.Batching
	b.MaxBatch = bounded(b.MaxBatch, DefaultMaxBatch, MaxMaxBatch)
	b.MaxBatchBytes = bounded(b.MaxBatchBytes, DefaultMaxBatchBytes, maxInt)
	b.HoldNanos = max(0, min(b.HoldNanos, MaxHoldNanos))
	b.ObjectiveNanos = max(0, b.ObjectiveNanos)
	c.TimeoutNanos = max(0, c.TimeoutNanos)
	c.Hedge = c.Hedge && c.Retry && !c.Streams
	return c
}

const maxInt = int(^uint(0) >> 1)

func bounded(v, byDefault, most int) int {
	if v <= 0 {
		return byDefault
	}
	return min(v, most)
}
