package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// Shapes are the ways a rate changes over a day, in the order of the help.
var Shapes = []string{"steady", "daily", "square", "ramp", "spiky"}

// Limits of traffic.
const (
	MaxRate = 1e6
	// MaxSpan is a month: by then, the rates that people cause repeat.
	MaxSpan = 31 * 24 * time.Hour
	MinSpan = time.Minute
	// MaxScale bounds how many times the recorded queries can be planned for.
	MaxScale = 1e6

	day = 24 * time.Hour
	// spikesApart is the mean time between spikes, spikeLasts the mean length of one.
	spikesApart, spikeLasts = time.Hour, time.Minute
)

// Traffic is the rate of queries over the time that is planned for.
type Traffic struct {
	// Shape is one of [Shapes], or "recorded".
	Shape string
	// Low and Peak are the lowest and the highest rate, in queries per second.
	Low, Peak float64
	Span      time.Duration
	// rate is the rate at a time since the start.
	rate func(at api.Nanos) float64
	// busiest is when the queries of the busiest part of a recording came, which is busiestNanos long.
	busiest      []api.Nanos
	busiestNanos api.Nanos
}

// Shaped is traffic between a low and a peak rate.
//
//   - steady: low, all the time.
//   - daily: a sine wave over 24 hours, or over the span if that is shorter; it starts at its lowest.
//   - square: peak for the middle third of each such day, otherwise low.
//   - ramp: from low to peak, evenly over the span.
//   - spiky: low, with random spikes to peak: about one an hour, of about a minute. A span of less than ten hours has about ten.
func Shaped(shape string, low, peak float64, over time.Duration, seed uint64) (*Traffic, error) {
	switch {
	case !slices.Contains(Shapes, shape):
		return nil, fmt.Errorf("the shape is %.20q: expected %s", shape, strings.Join(Shapes, ", "))
	case !(low >= 0 && low <= MaxRate):
		return nil, fmt.Errorf("the rate is %g: expected up to %g queries per second", low, MaxRate)
	case !(peak > 0 && peak <= MaxRate):
		return nil, fmt.Errorf("the peak is %g: expected more than 0 and up to %g queries per second", peak, MaxRate)
	case peak < low:
		return nil, fmt.Errorf("the peak, %g, is less than the rate, %g: expected the lowest rate and the highest", peak, low)
	case over < MinSpan || over > MaxSpan:
		return nil, fmt.Errorf("the span is %s: expected %s to %s", over, MinSpan, MaxSpan)
	}
	t := &Traffic{Shape: shape, Low: low, Peak: peak, Span: over}
	period := float64(min(over, day))
	phase := func(at api.Nanos) float64 { return math.Mod(float64(at), period) / period }
	switch shape {
	case "steady":
		t.Peak = low
		t.rate = func(api.Nanos) float64 { return low }
	case "daily":
		t.rate = func(at api.Nanos) float64 { return low + (peak-low)*(1-math.Cos(2*math.Pi*phase(at)))/2 }
	case "square":
		t.rate = func(at api.Nanos) float64 {
			if p := phase(at); p >= 1.0/3 && p < 2.0/3 {
				return peak
			}
			return low
		}
	case "ramp":
		t.rate = func(at api.Nanos) float64 { return low + (peak-low)*float64(at)/float64(over) }
	case "spiky":
		edges := spikes(over, seed)
		t.rate = func(at api.Nanos) float64 {
			if i, found := slices.BinarySearch(edges, at); (i%2 == 1) != found {
				return peak
			}
			return low
		}
	}
	return t, nil
}

// spikes are the times at which a spike begins and ends, alternately.
func spikes(over time.Duration, seed uint64) []api.Nanos {
	rng := rand.New(rand.NewPCG(seed, 0x5b1ce5))
	apart := min(float64(spikesApart), float64(over)/10)
	lasts := apart * float64(spikeLasts) / float64(spikesApart)
	var edges []api.Nanos
	for at := 0.0; ; {
		at += 1 + rng.ExpFloat64()*(apart-lasts)
		if at >= float64(over) {
			return edges
		}
		end := at + 1 + rng.ExpFloat64()*lasts
		edges = append(edges, api.Nanos(at), api.Nanos(end)+1)
		at = end + 1
	}
}

// load is traffic that is simulated query by query. Queries count between warm and duration.
type load struct {
	traffic        []sim.Traffic
	warm, duration api.Nanos
}

const (
	// aimedQueries are counted in a row of the table: 200 of them are beyond the P99.
	aimedQueries = 20_000
	// maxRunCounted bounds the cost of a run: a tenth of a second or so, one or two seconds with a hundred replicas.
	maxRunCounted = 200_000
	// MaxRunQueries bounds the queries of a run: those that count, and as many before them.
	MaxRunQueries = 2 * maxRunCounted
	// longestNanos bounds runs at low rates, and the memory of one slot per 10 ms: 40 MiB.
	longestNanos = 20_000e9
	// lowestRate is the lowest rate that is simulated: a query in ten seconds, each of which finds the model idle.
	lowestRate = 0.1
)

// steady is a load with enough queries at a rate; shortest is how long it lasts at least.
func steady(rate float64, shortest api.Nanos) *load {
	rate = max(rate, lowestRate)
	counted := min(max(api.Nanos(aimedQueries/rate*1e9), shortest), longestNanos)
	counted = min(counted, api.Nanos(maxRunCounted/rate*1e9))
	warm := max(counted/4, min(shortest, counted))
	return &load{traffic: []sim.Traffic{{Shape: sim.Steady, Rate: rate}}, warm: warm, duration: warm + counted}
}

// load is the busiest part of the traffic.
func (t *Traffic) load(shortest api.Nanos) *load {
	if len(t.busiest) == 0 {
		return steady(t.Peak, shortest)
	}
	warm := steady(t.Peak, shortest).warm
	times := make([]api.Nanos, len(t.busiest))
	for i, at := range t.busiest {
		times[i] = warm + at
	}
	return &load{
		traffic: []sim.Traffic{{Shape: sim.Steady, Rate: max(t.Peak, lowestRate), Until: warm}, {Shape: sim.Recorded, Times: times}},
		warm:    warm, duration: warm + t.busiestNanos,
	}
}

// epochNanos is the gateway's time between plans, or more in long loads with few queries.
func (l *load) epochNanos() int64 { return max(10e6, int64(l.duration)/100_000) }
