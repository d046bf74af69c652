package server

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/containers/node"
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

// heapShare is the part of the memory that the heap may take before the collector works harder. Bodies of requests, another quarter,
// are not a part of it.
const heapShare = 2 //xebec:limit garbage is collected earlier when the heap takes half of the memory; GOMEMLIMIT

// limitHeap lets the collector work harder before the machine or the control group has no memory left: garbage of 64 MiB, as a
// large body leaves when it is decoded, may otherwise wait until the heap has doubled. GOMEMLIMIT in the environment comes first.
func limitHeap() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if found, _ := node.Detect(); found.TotalBytes > 0 { // what could not be read is 0
		debug.SetMemoryLimit(found.TotalBytes / heapShare)
	}
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
