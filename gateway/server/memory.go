package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"go.uber.org/zap"
)

const (
	// releaseEvery is how often the gateway checks whether a version is awake; releaseAfter checks in a row must find none.
	releaseEvery = time.Second
	releaseAfter = 5
	// releaseBytes must have been allocated since the last release: less is not worth a collection.
	releaseBytes = 16 << 20
	// manyModels are so many that their place in memory is worth a collection, which takes some ten milliseconds.
	manyModels = 1000
)

// releaser returns memory to the system while no version is awake. Go's collector lets the heap double before it collects, and
// keeps freed memory for what comes next. That is right for a gateway that serves, and a hundred megabytes too many for one with
// ten thousand sleeping models, where nothing comes next. A collection takes about a tenth of a second of one core then, and no
// query waits behind it.
type releaser struct {
	idle   func() bool // no version is awake and no request is open
	log    *zap.Logger
	checks int    // in a row that found the gateway idle
	since  uint64 // bytes allocated, ever, at the last release
}

func (r *releaser) run(ctx context.Context) {
	r.since = allocatedBytes()
	t := time.NewTicker(releaseEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.check()
		case <-ctx.Done():
			return
		}
	}
}

// check reports whether it released memory.
func (r *releaser) check() bool {
	if !r.idle() {
		r.checks = 0
		return false
	}
	if r.checks++; r.checks < releaseAfter {
		return false
	}
	allocated := allocatedBytes()
	if allocated-r.since < releaseBytes {
		return false
	}
	releaseMemory()
	r.log.Debug("no version is awake: memory was given back", zap.Uint64("allocated_since", allocated-r.since))
	r.checks, r.since = 0, allocatedBytes()
	return true
}

// releaseMemory collects garbage and returns it to the system. What lies in pools goes with the second collection in a row: the
// store keeps the pages of its last transaction there, 25 MB after ten thousand declarations.
func releaseMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// compactBefore collects what a parser has left before so many models are made of what it has read. Otherwise the models would be
// put into the gaps between the parser's garbage, and each would keep its page: 20 MB for ten thousand models.
func compactBefore(models int) {
	if models >= manyModels {
		runtime.GC()
	}
}

func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
