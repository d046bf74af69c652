package autoscale

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// decider is what a world calls: Scaler or Knative.
type decider interface {
	Decide(*Sample) Decision
}

// world simulates the surroundings of a scaler: arrivals at a rate, replicas that take time to start and serve a number
// of queries per second, and a queue in which queries wait for as long as their objective. It computes in steps of at
// most 50 ms. Package sim has real queues.
type world struct {
	scaler decider
	sample Sample // what the next tick sees; tests set Config, SLONanos, StartNanos, ExpectedRate and the profile

	tickNanos  int64
	startNanos int64          // the real duration of a start
	each       float64        // what a replica really serves, queries per second
	rng        *rand.Rand     // nil: queries arrive evenly
	rate       func() float64 // the current rate
	stuck      bool           // no replica becomes ready
	lasts      int64          // how long a stream holds its place; 0: the model answers in batches
	open       []api.Nanos    // when the streams that have a place end

	now      api.Nanos
	toTick   int64
	arriving float64
	serving  float64
	queue    []waiting
	starting []api.Nanos // when they will be ready
	late     float64

	last       Decision
	onDecision func(Decision, int) // called with each decision and the number wanted before
}

type waiting struct {
	until api.Nanos
	n     int
}

const worldBegins = api.Nanos(1000e9)

// newWorld has one replica that serves 1,000 queries/s in batches of 20, 700 of them planned, and an objective of 100
// ms.
func newWorld(d decider) *world {
	w := &world{
		scaler: d, tickNanos: 1e9, startNanos: 2e9, each: 1000, now: worldBegins,
		sample: Sample{
			Config: Config{
				Min: 0, Max: 1000, IdleNanos: 300e9, WindowNanos: 60e9, DelayNanos: 30e9,
				Utilization: 0.7, Up: 1000, Down: 2,
			},
			Ready: 1, Wanted: 1, SLONanos: 100e6,
			Known: true, InterceptNanos: 0, SlopeNanos: 1e6, Cap: 20, StartNanos: 2e9,
		},
	}
	w.rate = func() float64 { return 0 }
	return w
}

// run advances the time. The next tick is due at its end.
func (w *world) run(d time.Duration) {
	for end := w.now + api.Nanos(d); w.now < end; {
		step := min(int64(50e6), int64(end-w.now), w.tickNanos-w.toTick)
		w.step(step)
		if w.toTick += step; w.toTick >= w.tickNanos {
			w.toTick = 0
			w.tick()
		}
	}
}

func (w *world) step(nanos int64) {
	s := &w.sample
	w.now += api.Nanos(nanos)
	for len(w.starting) > 0 && w.starting[0] <= w.now && !w.stuck {
		w.starting = w.starting[1:]
		s.Ready++
		s.Starting--
	}
	mean := w.rate() * seconds(nanos)
	var arrivals int
	if w.rng != nil {
		arrivals = poisson(w.rng, mean)
	} else {
		w.arriving += mean
		arrivals = int(w.arriving + 1e-6)
		w.arriving -= float64(arrivals)
	}
	if arrivals > 0 {
		s.Arrived += uint64(arrivals)
		s.LastArrival = w.now
		until := w.now + api.Nanos(objectiveNanos(s))
		if s.Ready == 0 {
			until += api.Nanos(w.startNanos + w.tickNanos)
		}
		w.queue = append(w.queue, waiting{until, arrivals})
		s.Queued += arrivals
	}
	if w.lasts > 0 {
		w.stream()
		return
	}
	// An idle replica begins the next batch at once, but it has not worked ahead.
	w.serving = min(w.serving+float64(s.Ready)*w.each*seconds(nanos), float64(s.Ready)*max(1, w.each*0.05))
	s.InFlight = 0
	for len(w.queue) > 0 {
		q := &w.queue[0]
		if n := min(q.n, int(w.serving+1e-6)); n > 0 {
			w.serving -= float64(n)
			q.n -= n
			s.Queued -= n
			s.InFlight += n
		}
		if q.n > 0 && q.until > w.now {
			break
		}
		s.Refused += uint64(q.n)
		w.late += float64(q.n)
		s.Queued -= q.n
		w.queue = w.queue[1:]
	}
	// A query is in flight for as long as one takes, so at least as many are as replicas are busy.
	if w.each > 0 {
		s.InFlight = max(s.InFlight, int(math.Ceil(float64(s.InFlight)/(w.each*seconds(nanos)))))
	}
	if s.Queued > 0 {
		s.InFlight = max(s.InFlight, s.Ready)
	}
}

// stream ends streams and gives their places to those that wait. Waiting streams are not refused.
func (w *world) stream() {
	s := &w.sample
	w.open = slices.DeleteFunc(w.open, func(end api.Nanos) bool { return end <= w.now })
	for len(w.queue) > 0 && len(w.open) < s.Ready*max(s.Concurrency, 1) {
		w.open = append(w.open, w.now+api.Nanos(w.lasts))
		s.Queued--
		if w.queue[0].n--; w.queue[0].n == 0 {
			w.queue = w.queue[1:]
		}
	}
	s.InFlight = len(w.open)
}

func (w *world) tick() {
	w.sample.Now = w.now
	before := w.sample.Wanted
	w.last = w.scaler.Decide(&w.sample)
	if w.onDecision != nil {
		w.onDecision(w.last, before)
	}
	w.want(w.last.Replicas)
}

// want starts and ends replicas. Starting replicas are ended first.
func (w *world) want(n int) {
	s := &w.sample
	s.Wanted = n
	for s.Ready+s.Starting < n {
		w.starting = append(w.starting, w.now+api.Nanos(w.startNanos))
		s.Starting++
	}
	for s.Ready+s.Starting > n && s.Starting > 0 {
		w.starting = w.starting[:len(w.starting)-1]
		s.Starting--
	}
	s.Ready = min(s.Ready, n)
}

// poisson draws the number of independent events with the given mean.
func poisson(r *rand.Rand, mean float64) int {
	if mean > 50 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	n, p := 0, math.Exp(-mean)
	for u := r.Float64(); u > p; u *= r.Float64() {
		n++
	}
	return n
}
