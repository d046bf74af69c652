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
	limit  *heapLimiter
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
			r.limit.adjust()
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

// heapEighths are the eighths of the memory that the heap may take before the collector works harder, unless what lives takes more. By default an
// eighth of the memory is the cache and another one answers that are not read, so one is left for all else and for garbage. Bodies of requests,
// two eighths, are not a part of the heap. The remaining three are for segments, the reaper and workers.
const heapEighths = 3 //xebec:limit garbage is collected earlier when the heap takes three eighths of the memory, or what lives and an eighth; GOMEMLIMIT

// garbageBytes is the least garbage between two collections. With less, a heap that lives above its limit is collected without end.
const garbageBytes = 32 << 20

// heapLimit is the runtime's memory limit where the machine, or the control group, has total bytes, live bytes of the heap are
// reachable, and the runtime has fixed bytes beside the heap: its share of the memory, or more where what lives takes more.
//
// With 500 MiB, a full cache of 256 MiB (`--cache`), 40 MiB beside it and 15 MiB of stacks and tables the limit is 380 MiB: a collection, which looks at
// 296 MiB, comes once in 69 MiB of garbage, not all the time. Above the memory the limit has no effect: then the cache is too large.
func heapLimit(total, live, fixed int64) int64 {
	return max(total/8*heapEighths, fixed+live+live/8+garbageBytes)
}

// heapLimiter lets the collector work harder before the machine or the control group has no memory left: garbage of 64 MiB, as a
// large body leaves when it is decoded, may otherwise wait until the heap has doubled. The limit follows what lives.
type heapLimiter struct {
	total int64 // 0: the limit is not ours, or the memory is unknown
	last  int64
}

// newHeapLimiter sets the first limit. GOMEMLIMIT in the environment comes first.
func newHeapLimiter() *heapLimiter {
	h := new(heapLimiter)
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		found, _ := node.Detect()
		h.total = found.TotalBytes // what could not be read is 0
	}
	h.adjust()
	return h
}

// adjust sets the limit after what lives has changed. The world stops for some microseconds, so small changes are left out.
func (h *heapLimiter) adjust() {
	if h.total <= 0 {
		return
	}
	sample := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(sample)
	fixed := int64(sample[1].Value.Uint64())
	for _, heap := range sample[2:] {
		fixed -= int64(heap.Value.Uint64())
	}
	limit := heapLimit(h.total, int64(sample[0].Value.Uint64()), max(fixed, 0))
	if change := limit - h.last; change > garbageBytes/8 || change < -garbageBytes/8 {
		debug.SetMemoryLimit(limit)
		h.last = limit
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
