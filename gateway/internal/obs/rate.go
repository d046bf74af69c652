package obs

import (
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Rate is what an endpoint did lately, from one look to the next.
type Rate struct {
	mu       sync.Mutex
	at       time.Time // of last
	last     *Reading  // nil: empty, as for nearly all of ten thousand models; a Reading has a KiB
	show     api.RateStatus
	previous bool
}

// rateEvery is the shortest period of a rate: a caller that looks more often gets the same rate again.
const rateEvery = time.Second

// Look takes a reading and returns what happened since the one before.
func (r *Rate) Look(read Reading, now time.Time) api.RateStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := now.Sub(r.at)
	if r.previous && passed < rateEvery {
		return r.show
	}
	if r.previous {
		since := read
		if r.last != nil {
			since = read.Since(*r.last)
		}
		r.show = api.RateStatus{
			QueriesPerSecond: float64(since.Queries) / passed.Seconds(), P50MS: since.Quantile(0.5) * 1000, P99MS: since.Quantile(0.99) * 1000,
		}
	}
	r.at, r.last, r.previous = now, nil, true
	if !read.Empty() {
		r.last = &read
	}
	return r.show
}
