package capacity

import (
	"math"
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// Day is what becomes of the traffic under the autoscaler and with a fixed number of replicas.
type Day struct {
	// StepMillis is the time between two steps: see the essay.
	StepMillis float64 `json:"step_ms"`
	Min        int     `json:"min"`
	Max        int     `json:"max"`
	Autoscaler Totals  `json:"autoscaler"`
	Fixed      Totals  `json:"fixed"`
	// SavedHours are the replica-hours of the fixed number less those of the autoscaler.
	SavedHours float64 `json:"saved_replica_hours"`
	// Series has the day under the autoscaler, in equal parts.
	Series []Point `json:"series"`
}

// Totals are what a day took.
type Totals struct {
	// ReplicaHours count replicas from the order of each to its end, Peak the most at a time.
	ReplicaHours float64 `json:"replica_hours"`
	Peak         int     `json:"peak"`
	Queries      int64   `json:"queries"`
	// Missed queries had no answer within the objective, MissedPart is their part.
	Missed     int64   `json:"missed"`
	MissedPart float64 `json:"missed_part"`
	// Starts counts replicas, ColdStarts the times that a query found none and none on its way.
	Starts     int `json:"starts"`
	ColdStarts int `json:"cold_starts"`
}

// Point is a part of the day: what came and what was missed, in queries per second, and the most replicas that were wanted, and ready, in it.
type Point struct {
	AtSeconds float64 `json:"at_seconds"`
	Rate      float64 `json:"rate"`
	Missed    float64 `json:"missed"`
	Wanted    int     `json:"wanted"`
	Ready     int     `json:"ready"`
}

const (
	// points is how many parts a day has: one for each two pixels of the picture.
	points = 480
	// Steps are the day by this, and between these.
	steps        = 2_000_000
	shortestStep = api.Nanos(10e6)
	longestStep  = api.Nanos(1e9)
	// tickNanos is how often the autoscaler looks, as in the gateway.
	tickNanos = api.Nanos(250e6)
	// longestLead bounds what is played twice.
	longestLead = api.Nanos(2 * 3600e9)
	// knownQueries is about how many a replica must have answered before its profile is believed.
	knownQueries = 16
)

// scaler is the autoscaler; tests have simpler ones.
type scaler interface {
	Decide(*autoscale.Sample) autoscale.Decision
}

// fleet plays a day.
type fleet struct {
	model   *Model
	traffic *Traffic
	bounds  autoscale.Config
	scaler  scaler     // nil: the number is fixed
	rng     *rand.Rand // for queries: the same ones come whatever the scaler decides
	looks   *rand.Rand // for what a look finds
	// of one replica:
	perSecond float64
	batchCap  int
	// waitNanos is what the objective leaves for waiting beside a batch.
	waitNanos float64
	step      api.Nanos

	now     api.Nanos // since the beginning of the lead
	ready   int
	starts  []api.Nanos // when those that start will be ready, in order
	wanted  int
	backlog float64
	// what a sample tells of:
	arrived, missed uint64
	served          float64
	rate            float64 // that was served in the last step
	lastArrival     api.Nanos
	nextTick        api.Nanos

	counts bool
	total  Totals
	series []Point
}

// day plays it twice: own is the model's own batching, which the autoscaler is told of, and x the one that the replicas use.
func (t *table) day(q *Question, own, x *tried, fixed int) (Day, error) {
	bounds := q.Bounds
	if bounds.Max == 0 {
		bounds.Max = min(max(2*fixed, bounds.Min, 1), t.most)
	}
	step := min(max(api.Nanos(q.Traffic.Span)/steps, shortestStep), longestStep)
	lead := min(2*api.Nanos(bounds.WindowNanos)+api.Nanos(bounds.DelayNanos)+api.Nanos(bounds.IdleNanos), longestLead, api.Nanos(q.Traffic.Span))
	play := func(scaler scaler, initial int) (*fleet, error) {
		f := &fleet{
			model: t.model, traffic: q.Traffic, bounds: bounds, scaler: scaler, step: step,
			rng: rand.New(rand.NewPCG(t.seed, 0xda7)), looks: rand.New(rand.NewPCG(t.seed, 0x100c)),
			perSecond: x.perSecond, batchCap: x.cap, waitNanos: max(0, float64(t.model.SLONanos-t.model.Nanos(x.cap))),
			ready: initial, wanted: initial,
		}
		return f, f.play(t, lead)
	}
	scaled, err := play(autoscale.New(), min(max(bounds.Min, 1), bounds.Max))
	if err != nil {
		return Day{}, err
	}
	still, err := play(nil, fixed)
	if err != nil {
		return Day{}, err
	}
	return Day{
		StepMillis: float64(step) / 1e6, Min: bounds.Min, Max: bounds.Max, Autoscaler: scaled.total, Fixed: still.total,
		SavedHours: still.total.ReplicaHours - scaled.total.ReplicaHours, Series: scaled.series,
	}, nil
}

func (f *fleet) play(t *table, lead api.Nanos) error {
	span := api.Nanos(f.traffic.Span)
	f.series = make([]Point, points)
	for i := range f.series {
		f.series[i].AtSeconds = f.traffic.Span.Seconds() * float64(i) / points
	}
	for n := 0; f.now < lead+span; n++ {
		if n%100_000 == 0 && t.ctx.Err() != nil {
			return t.ctx.Err()
		}
		at := f.now
		if f.counts = f.now >= lead; f.counts {
			at -= lead
		}
		f.one(at)
		f.now += f.step
	}
	seconds := f.traffic.Span.Seconds() / points
	for i := range f.series {
		f.series[i].Rate /= seconds
		f.series[i].Missed /= seconds
	}
	f.total.ReplicaHours /= 3600e9
	if f.total.Queries > 0 {
		f.total.MissedPart = float64(f.total.Missed) / float64(f.total.Queries)
	}
	return nil
}

// one is a step, at is the time of the day.
func (f *fleet) one(at api.Nanos) {
	for len(f.starts) > 0 && f.starts[0] <= f.now {
		f.starts = f.starts[1:]
		f.ready++
	}
	came := poisson(f.rng, f.traffic.rate(at)*float64(f.step)/1e9)
	if came > 0 {
		f.arrived += uint64(came)
		f.lastArrival = f.now
	}
	if f.scaler != nil {
		if cold := came > 0 && f.ready+len(f.starts) == 0; cold || f.now >= f.nextTick {
			f.decide()
			if cold && len(f.starts) > 0 && f.counts {
				f.total.ColdStarts++
			}
			if f.now >= f.nextTick {
				f.nextTick = f.now + tickNanos
			}
		}
	}
	missed := f.take(came)
	f.missed += uint64(missed)
	if !f.counts {
		return
	}
	all := f.ready + len(f.starts)
	f.total.Queries += int64(came)
	f.total.Missed += int64(missed)
	f.total.Peak = max(f.total.Peak, all)
	f.total.ReplicaHours += float64(all) * float64(f.step) // nanoseconds until the end
	p := &f.series[min(int(int64(at)/(int64(f.traffic.Span)/points)), points-1)]
	p.Rate += float64(came)
	p.Missed += float64(missed)
	p.Wanted, p.Ready = max(p.Wanted, f.wanted), max(p.Ready, f.ready)
}

// take adds the queries that came in a step to those that wait, has the ready replicas serve, and returns how many are missed. A query
// waits behind the others, and is refused at once when that takes longer than the objective leaves, as the scheduler does it. A replica
// that is idle takes one, however little time is left.
func (f *fleet) take(came int) (missed int) {
	if f.ready == 0 {
		f.rate = 0
		return f.wait(came)
	}
	able := float64(f.ready) * f.perSecond * float64(f.step) / 1e9
	most := float64(f.ready)*f.perSecond*f.waitNanos/1e9 + able - f.backlog
	admitted := min(came, max(0, int(math.Ceil(most))))
	f.backlog += float64(admitted)
	served := min(f.backlog, able)
	f.backlog -= served
	f.served += served
	f.rate = served * 1e9 / float64(f.step)
	return came - admitted
}

// wait has queries wait for the first replica, as far as they may. Those that have an answer after the objective count as missed too.
func (f *fleet) wait(came int) (missed int) {
	if len(f.starts) == 0 {
		return came
	}
	until := float64(f.starts[0]-f.now) + float64(f.model.Nanos(1))
	if until <= float64(max(f.model.SLONanos, f.model.ColdStartNanos)) {
		f.backlog += float64(came)
	}
	if until <= float64(f.model.SLONanos) {
		return 0
	}
	return came
}

// held is how many queries a look finds waiting, beside the backlog, and in flight. Replicas that are asked often take, with one batch, what
// came since one of them took the last: of L queries per second and replica that are n = L × (fixed + n × each), which is L × fixed /
// (1 − L × each). So many are in flight in each at any time, and of the next batch there waits what has come since a moment up to a batch
// ago, though nothing is too much. Where n is less than 1 nobody waits, and replicas have one query for L × (fixed + each) of the time.
func (f *fleet) held() (queued, inFlight int) {
	queued = int(f.backlog)
	if f.ready == 0 || f.rate == 0 {
		return queued, 0
	}
	each := f.rate / float64(f.ready) / 1e9
	n := float64(f.batchCap)
	if rest := 1 - each*f.model.EachNanos; rest > 0 {
		n = min(n, each*f.model.FixedNanos/rest)
	}
	if n < 1 {
		return queued, int(math.Round(f.rate * float64(f.model.Nanos(1)) / 1e9))
	}
	return queued + poisson(f.looks, n*f.looks.Float64()), int(math.Ceil(float64(f.ready) * n))
}

func (f *fleet) decide() {
	queued, inFlight := f.held()
	s := autoscale.Sample{
		Now: 1 + f.now, Config: f.bounds, Ready: f.ready, Starting: len(f.starts), Wanted: f.wanted, Arrived: f.arrived, Refused: f.missed,
		Queued: queued, InFlight: inFlight, SLONanos: f.model.SLONanos,
		Known: f.served >= knownQueries, InterceptNanos: f.model.FixedNanos, SlopeNanos: f.model.EachNanos, Cap: f.batchCap, StartNanos: f.model.StartNanos,
	}
	if f.lastArrival > 0 {
		s.LastArrival = 1 + f.lastArrival
	}
	f.wanted = f.scaler.Decide(&s).Replicas
	for n := f.ready + len(f.starts); n < f.wanted; n++ {
		f.starts = append(f.starts, f.now+api.Nanos(f.model.StartNanos))
		if f.counts {
			f.total.Starts++
		}
	}
	for n := f.ready + len(f.starts); n > f.wanted && n > 0; n-- {
		if last := len(f.starts) - 1; last >= 0 { // the youngest goes
			f.starts = f.starts[:last]
		} else {
			f.ready--
		}
	}
}

// poisson draws a number with a mean: by Knuth's multiplication (The Art of Computer Programming, 3.4.1) where it is small, else by the
// normal distribution, which is close enough from there on.
func poisson(rng *rand.Rand, mean float64) int {
	const small = 30
	switch {
	case !(mean > 0):
		return 0
	case mean > small:
		return max(0, int(math.Round(mean+math.Sqrt(mean)*rng.NormFloat64())))
	}
	limit, product, n := math.Exp(-mean), rng.Float64(), 0
	for product > limit {
		product *= rng.Float64()
		n++
	}
	return n
}
