package capacity

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

// Shapes are the ways in which a rate goes up and down, in the order of the help.
var Shapes = []string{"steady", "daily", "square", "ramp", "spiky"}

// Limits of a traffic.
const (
	MaxRate = 1e6
	// MaxSpan: rates that follow people repeat by then.
	MaxSpan = 31 * 24 * time.Hour
	MinSpan = time.Minute
	// MaxScale is how many times the recorded queries may be asked for.
	MaxScale = 1e6

	day = 24 * time.Hour
	// spikesApart and spikeLasts are means.
	spikesApart, spikeLasts = time.Hour, time.Minute
)

// Traffic is what comes over the time that is planned for.
type Traffic struct {
	// Shape is one of [Shapes], or "recorded".
	Shape string
	// Low and Peak are the lowest and the highest rate, in queries per second.
	Low, Peak float64
	Span      time.Duration
	// rate is the rate at a time since the start.
	rate func(at api.Nanos) float64
	// busiest is when the queries of the busiest part of a recording came, which took busiestNanos.
	busiest      []api.Nanos
	busiestNanos api.Nanos
}

// Shaped is a traffic that somebody describes: of low queries per second at least and peak at most.
//
//   - steady: low, all the time.
//   - daily: a sinusoid over 24 hours, lowest at its start, or over the span where that is shorter.
//   - square: peak for the middle third of each such day, low before and after it.
//   - ramp: from low to peak, evenly over the span.
//   - spiky: low, and peak for a minute on average once an hour on average, at random by the seed; ten times in a span of less than
//     ten hours.
func Shaped(shape string, low, peak float64, over time.Duration, seed uint64) (*Traffic, error) {
	switch {
	case !slices.Contains(Shapes, shape):
		return nil, fmt.Errorf("the shape %.20q: expected %s", shape, strings.Join(Shapes, ", "))
	case !(low >= 0 && low <= MaxRate):
		return nil, fmt.Errorf("a rate of %g: expected up to %g queries per second", low, MaxRate)
	case !(peak > 0 && peak <= MaxRate):
		return nil, fmt.Errorf("a peak of %g: expected more than 0 and up to %g queries per second", peak, MaxRate)
	case peak < low:
		return nil, fmt.Errorf("a peak of %g is below the rate of %g: expected the lowest and the highest rate", peak, low)
	case over < MinSpan || over > MaxSpan:
		return nil, fmt.Errorf("a span of %s: expected %s to %s", over, MinSpan, MaxSpan)
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

// spikes are the times at which a spike begins or ends, in turn.
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

// Recording is when queries came, as a log has it.
type Recording struct {
	// PerSecond counts them second by second.
	PerSecond []uint32
	// Scale is how many queries each stands for, because a sample was logged or more are to be planned for.
	Scale float64
}

// The busiest part of a recording is as long as it takes to have enough queries for a figure, and no longer: a tenth of a minute that
// was busy must not hide in an hour that was not.
const (
	enoughQueries = 4000
	// mostQueries bounds what a run of the table costs: some tenths of a second, with a hundred replicas one or two seconds.
	mostQueries = 200_000
	// MaxRunQueries is how many queries a run of the table has at most: as many come before those that count.
	MaxRunQueries = 2 * mostQueries
)

var busiestSeconds = []int{1, 10, 30, 60, 300, 900, 3600}

// Busiest says which seconds of the recording are the busiest, from one to before the other: their queries are wanted.
func (r *Recording) Busiest() (from, to int) {
	for i, width := range busiestSeconds {
		width = min(width, len(r.PerSecond))
		var most float64
		from, most = r.densest(width)
		to = from + width
		wider := i+1 < len(busiestSeconds) && width < len(r.PerSecond)
		// A second is too short for the machine to be judged by, but ten of them are more than is simulated at the highest rates.
		if most*r.Scale >= enoughQueries && width >= 10 || most*r.Scale >= mostQueries/10 || !wider {
			break
		}
	}
	return from, to
}

func (r *Recording) densest(width int) (at int, most float64) {
	sum := 0.0
	most = -1
	for i, n := range r.PerSecond {
		sum += float64(n)
		if i >= width {
			sum -= float64(r.PerSecond[i-width])
		}
		if i >= width-1 && sum > most {
			at, most = i-width+1, sum
		}
	}
	return at, most
}

// Recorded is a traffic that somebody recorded. times are when the queries of its busiest seconds came, since the start of those; they
// need not be in order. Where the scale is not 1, each stands for that many queries within half a second of it, at random by the seed.
func Recorded(r *Recording, times []api.Nanos, seed uint64) (*Traffic, error) {
	switch {
	case len(r.PerSecond) == 0 || len(times) == 0:
		return nil, fmt.Errorf("there is no recorded query")
	case len(r.PerSecond) > int(MaxSpan/time.Second):
		return nil, fmt.Errorf("the recording spans more than %s", MaxSpan)
	case !(r.Scale > 0 && r.Scale <= MaxScale):
		return nil, fmt.Errorf("a scale of %g: expected more than 0 and up to %g", r.Scale, MaxScale)
	}
	from, to := r.Busiest()
	t := &Traffic{Shape: "recorded", Low: math.Inf(1), Span: time.Duration(len(r.PerSecond)) * time.Second, busiestNanos: api.Nanos(to-from) * 1e9}
	for _, n := range r.PerSecond {
		t.Low = min(t.Low, float64(n)*r.Scale)
	}
	_, most := r.densest(to - from)
	if t.Peak = most * r.Scale / float64(to-from); t.Peak > MaxRate {
		return nil, fmt.Errorf("a peak of %g queries per second, scaled by %g: expected up to %g", t.Peak, r.Scale, MaxRate)
	}
	t.copyBusiest(times, r.Scale, rand.New(rand.NewPCG(seed, 0x5ca1e)))
	seconds := r.PerSecond
	t.rate = func(at api.Nanos) float64 { return float64(seconds[min(int(at/1e9), len(seconds)-1)]) * r.Scale }
	return t, nil
}

func (t *Traffic) copyBusiest(times []api.Nanos, scale float64, rng *rand.Rand) {
	whole, part := math.Modf(scale)
	for _, at := range times {
		if at < 0 || at >= t.busiestNanos {
			continue
		}
		copies := int(whole)
		if rng.Float64() < part {
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
	if len(t.busiest) > mostQueries { // in one second
		t.busiest = t.busiest[:mostQueries]
		t.busiestNanos = t.busiest[mostQueries-1] + 1
	}
}

// load is a traffic that is simulated query by query: warm, then counted up to duration.
type load struct {
	traffic        []sim.Traffic
	warm, duration api.Nanos
}

const (
	// aimedQueries are counted in a row of the table: 200 are beyond the P99.
	aimedQueries = 20_000
	// longestNanos bounds rows of rare queries, and what a slot of 10 ms each takes in memory, 40 MiB.
	longestNanos = 20_000e9
	// rarest is the lowest rate that is simulated: with a query in ten seconds each finds the model idle.
	rarest = 0.1
)

// steady is a load of a rate for a time in which enough comes; shortest is how long it takes at least.
func steady(rate float64, shortest api.Nanos) *load {
	rate = max(rate, rarest)
	counted := min(max(api.Nanos(aimedQueries/rate*1e9), shortest), longestNanos)
	counted = min(counted, api.Nanos(mostQueries/rate*1e9))
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
		traffic: []sim.Traffic{{Shape: sim.Steady, Rate: max(t.Peak, rarest), Until: warm}, {Shape: sim.Recorded, Times: times}},
		warm:    warm, duration: warm + t.busiestNanos,
	}
}

// epochNanos is the gateway's time between plans, longer where little happens in a long time.
func (l *load) epochNanos() int64 { return max(10e6, int64(l.duration)/100_000) }
