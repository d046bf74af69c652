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
	// tidyEvery is how often it is looked at whether anybody is awake, and tidyAfter how many looks in a row must find nobody.
	tidyEvery = time.Second
	tidyAfter = 5
	// tidyBytes must have been allocated since memory was given back last: what less leaves behind is not worth a collection.
	tidyBytes = 16 << 20
)

// tidy gives memory back to the system while nobody is awake. Go's collector lets the heap double before it collects, and keeps what it has
// freed for what comes next: right for a gateway that serves, and a hundred megabytes too many for one with ten thousand models that all sleep,
// where nothing comes next. A collection takes about a tenth of a second of one core then, and nobody waits behind it.
type tidy struct {
	s     *Server
	idle  int    // looks in a row that found nobody awake
	since uint64 // bytes allocated, ever, when memory was given back last
}

func (s *Server) tidyUp(ctx context.Context) {
	t := tidy{s: s, since: allocatedBytes()}
	look := time.NewTicker(tidyEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			t.look()
		case <-ctx.Done():
			return
		}
	}
}

// look is one look; it reports whether memory was given back.
func (t *tidy) look() bool {
	if t.s.capacity.awake() > 0 || t.s.gw.Open() > 0 {
		t.idle = 0
		return false
	}
	if t.idle++; t.idle < tidyAfter {
		return false
	}
	allocated := allocatedBytes()
	if allocated-t.since < tidyBytes {
		return false
	}
	giveBack()
	t.s.log.Debug("nobody is awake: memory was given back", zap.Uint64("allocated_since", allocated-t.since))
	t.idle, t.since = 0, allocatedBytes()
	return true
}

// giveBack collects what is not needed and returns it to the system. What lies in pools goes with the second collection in a row: the store
// keeps the pages of its last transaction there, 25 MB after ten thousand declarations.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

// sweepBefore collects what a parser has left before so many deployments are made of what it has read, while nothing is served. Else they
// would be put into the gaps between what it needs no more, one here and one there, and each would keep its page: 20 MB of ten thousand.
func (s *Server) sweepBefore(deployments int) {
	if deployments >= manyDeployments && !s.serving.Load() {
		runtime.GC()
	}
}

// manyDeployments are so many that where they lie is worth a collection, which takes some ten milliseconds.
const manyDeployments = 1000

func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
