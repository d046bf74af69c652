package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A LogReader passes each query of a log to each: when it came, as Unix microseconds, and the fraction of queries that
// were logged, where 0 means all. It stops at an error of each and returns it. It must read the same queries every
// time.
type LogReader func(each func(atMicros int64, sample float64) error) error

// ErrNoQueries is returned by [Recorded] if the log has none.
var ErrNoQueries = errors.New("there are no recorded queries")

// Recorded is the traffic of a log. It reads the log twice: to count queries by the second, and then for the exact
// times in the busiest seconds. So its memory does not grow with the log.
//
// scale is how many times the queries are planned for. Queries that were not sampled are added. If a logged query
// stands for several, the others come at random times within half a second of it.
func Recorded(read LogReader, scale float64, seed uint64) (*Traffic, error) {
	const maxSeconds = int(MaxSpan / time.Second)
	counts := map[int64]uint32{} // by second
	queries, stoodFor := 0, 0.0
	err := read(func(atMicros int64, sample float64) error {
		queries++
		if !(sample > 0 && sample <= 1) {
			sample = 1
		}
		stoodFor += 1 / sample
		counts[secondOf(atMicros)]++
		if len(counts) > maxSeconds {
			return fmt.Errorf("the queries came in more than %d different seconds: expected a part of the log, up to %s of it", maxSeconds, MaxSpan)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if queries == 0 {
		return nil, ErrNoQueries
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for s := range counts {
		first, last = min(first, s), max(last, s)
	}
	if last-first >= int64(maxSeconds) {
		return nil, fmt.Errorf("the queries came over more than %s: expected a part of the log, such as one file", MaxSpan)
	}
	rec := &recording{perSecond: make([]uint32, last-first+1), scale: scale * stoodFor / float64(queries)}
	for s, n := range counts {
		rec.perSecond[s-first] = n
	}
	from, to := rec.busiest()
	beginMicros, endMicros := (first+int64(from))*1e6, (first+int64(to))*1e6
	var times []api.Nanos
	err = read(func(atMicros int64, _ float64) error {
		if atMicros >= beginMicros && atMicros < endMicros {
			times = append(times, api.Nanos(atMicros-beginMicros)*1e3)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rec.traffic(times, seed)
}

// secondOf rounds down, also before 1970.
func secondOf(micros int64) int64 {
	q := micros / 1e6
	if micros%1e6 < 0 {
		q--
	}
	return q
}

// recording counts the queries of a log.
type recording struct {
	perSecond []uint32
	// scale is how many queries each of them stands for.
	scale float64
}

// The busiest part is as long as it takes to have enough queries, and no longer: a busy tenth of a minute must not hide
// in a quiet hour.
const enoughQueries = 4000

var busiestSeconds = []int{1, 10, 30, 60, 300, 900, 3600}

// busiest finds the busiest seconds, from one up to before the other.
func (r *recording) busiest() (from, to int) {
	for i, width := range busiestSeconds {
		width = min(width, len(r.perSecond))
		var most float64
		from, most = r.densest(width)
		to = from + width
		wider := i+1 < len(busiestSeconds) && width < len(r.perSecond)
		// One second is too short to judge a machine by. But at the highest rates ten seconds are more than is
		// simulated.
		if most*r.scale >= enoughQueries && width >= 10 || most*r.scale >= maxRunCounted/10 || !wider {
			break
		}
	}
	return from, to
}

// densest is the start of the width seconds with the most queries.
func (r *recording) densest(width int) (at int, most float64) {
	sum := 0.0
	most = -1
	for i, n := range r.perSecond {
		sum += float64(n)
		if i >= width {
			sum -= float64(r.perSecond[i-width])
		}
		if i >= width-1 && sum > most {
			at, most = i-width+1, sum
		}
	}
	return at, most
}

// traffic is the recording's. times are when the queries of its busiest seconds came, since the start of those, in any
// order.
func (r *recording) traffic(times []api.Nanos, seed uint64) (*Traffic, error) {
	if !(r.scale > 0 && r.scale <= MaxScale) {
		return nil, fmt.Errorf("each logged query stands for %g: expected more than 0 and up to %g", r.scale, MaxScale)
	}
	from, to := r.busiest()
	t := &Traffic{Shape: "recorded", Low: math.Inf(1), Span: time.Duration(len(r.perSecond)) * time.Second, busiestNanos: api.Nanos(to-from) * 1e9}
	for _, n := range r.perSecond {
		t.Low = min(t.Low, float64(n)*r.scale)
	}
	_, most := r.densest(to - from)
	if t.Peak = most * r.scale / float64(to-from); t.Peak > MaxRate {
		return nil, fmt.Errorf("the peak is %g queries per second, scaled by %g: expected up to %g", t.Peak, r.scale, MaxRate)
	}
	t.copyBusiest(times, r.scale, rand.New(rand.NewPCG(seed, 0x5ca1e)))
	t.rate = func(at api.Nanos) float64 {
		return float64(r.perSecond[min(int(at/1e9), len(r.perSecond)-1)]) * r.scale
	}
	return t, nil
}

func (t *Traffic) copyBusiest(times []api.Nanos, scale float64, rng *rand.Rand) {
	whole, rest := math.Modf(scale)
	for _, at := range times {
		if at < 0 || at >= t.busiestNanos {
			continue
		}
		copies := int(whole)
		if rng.Float64() < rest {
			copies++
		}
		for range copies {
			moved := at
			if scale != 1 {
				moved += api.Nanos((rng.Float64() - 0.5) * 1e9)
			}
			t.busiest = append(t.busiest, min(max(moved, 0), t.busiestNanos-1))
		}
	}
	slices.Sort(t.busiest)
	if len(t.busiest) > maxRunCounted { // in one second
		t.busiest = t.busiest[:maxRunCounted]
		t.busiestNanos = t.busiest[maxRunCounted-1] + 1
	}
}
