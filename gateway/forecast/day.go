package forecast

import (
	"math"
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// Day compares the autoscaler with a fixed number of replicas over the whole span of the traffic.
type Day struct {
	// StepMillis is the time between two steps; see the essay.
	StepMillis float64 `json:"step_ms"`
	Min        int     `json:"min"`
	Max        int     `json:"max"`
	Autoscaler Totals  `json:"autoscaler"`
	Fixed      Totals  `json:"fixed"`
	// SavedHours are the replica-hours of the fixed number minus those of the autoscaler.
	SavedHours float64 `json:"saved_replica_hours"`
	// Series is the day under the autoscaler, in equal parts.
	Series []Point `json:"series"`
}

// Totals sum up a day.
type Totals struct {
	// ReplicaHours count a replica from when it is ordered until it ends. Peak is the most replicas at a time.
	ReplicaHours float64 `json:"replica_hours"`
	Peak         int     `json:"peak"`
	Queries      int64   `json:"queries"`
	// Missed queries had no answer within the objective; MissedPart is their fraction.
	Missed     int64   `json:"missed"`
	MissedPart float64 `json:"missed_part"`
	// Starts counts started replicas, ColdStarts the times that a query found neither a replica nor one that was
	// starting.
	Starts     int `json:"starts"`
	ColdStarts int `json:"cold_starts"`
}

// Point is a part of the day: arrivals and misses in queries per second, and the largest numbers of wanted and of ready
// replicas.
type Point struct {
	AtSeconds float64 `json:"at_seconds"`
	Rate      float64 `json:"rate"`
	Missed    float64 `json:"missed"`
	Wanted    int     `json:"wanted"`
	Ready     int     `json:"ready"`
}

const (
	// points is the number of parts of a day: one for each two pixels of the picture.
	points = 480
	// A step is the day divided by steps, within the two bounds.
	steps        = 2_000_000
	shortestStep = api.Nanos(10e6)
	longestStep  = api.Nanos(1e9)
	// tickNanos is how often the autoscaler decides, as in the gateway.
	tickNanos = api.Nanos(250e6)
	// longestLead bounds the time that is played twice.
	longestLead = api.Nanos(2 * 3600e9)
	// knownQueries is about how many queries a replica must have answered before its profile is used.
	knownQueries = 16
)

// scaler is the autoscaler, or a simpler one in tests.
type scaler interface {
	Decide(*autoscale.Sample) autoscale.Decision
}

// fleet plays a day.
type fleet struct {
	model    *Model
	traffic  *Traffic
	bounds   autoscale.Config
	scaler   scaler     // nil: the number of replicas is fixed
	arrivals *rand.Rand // the same queries arrive whatever the scaler decides
	queueing *rand.Rand // for what the scaler sees in queues
	step     api.Nanos
	// perSecond and batchCap are those of one replica, waitNanos is what the objective leaves for waiting beside a
	// batch.
	perSecond float64
	batchCap  int
	waitNanos float64

	now     api.Nanos // since the beginning of the lead
	ready   int
	starts  []api.Nanos // when the starting replicas will be ready, in order
	wanted  int
	backlog float64 // queries that wait
	arrived uint64
	missed  uint64
	served  float64
	rate    float64 // queries per second that were served in the last step

	lastArrival api.Nanos
	nextTick    api.Nanos

	counts bool // the lead is over
	total  Totals
	series []Point
}

// day plays the day twice: under the autoscaler, and with a fixed number of replicas. used is the batching of the
// replicas.
func (t *table) day(q *Question, used *rows, fixed int) (Day, error) {
	bounds := q.Bounds
	if bounds.Max == 0 {
		bounds.Max = min(max(2*fixed, bounds.Min, 1), t.maxReplicas)
	}
	step := min(max(api.Nanos(q.Traffic.Span)/steps, shortestStep), longestStep)
	lead := min(2*api.Nanos(bounds.WindowNanos)+api.Nanos(bounds.DelayNanos)+api.Nanos(bounds.IdleNanos), longestLead, api.Nanos(q.Traffic.Span))
	play := func(scaler scaler, initial int) (*fleet, error) {
		f := &fleet{
			model: t.model, traffic: q.Traffic, bounds: bounds, scaler: scaler, step: step,
			arrivals: rand.New(rand.NewPCG(t.seed, 0xda7)), queueing: rand.New(rand.NewPCG(t.seed, 0x100c)),
			perSecond: used.perSecond, batchCap: used.cap, waitNanos: max(0, float64(t.model.SLONanos-t.model.Nanos(used.cap))),
			ready: initial, wanted: initial,
		}
		return f, f.play(t, lead)
	}
	scaled, err := play(autoscale.New(), min(max(bounds.Min, 1), bounds.Max))
	if err != nil {
		return Day{}, err
	}
	constant, err := play(nil, fixed)
	if err != nil {
		return Day{}, err
	}
	return Day{
		StepMillis: float64(step) / 1e6, Min: bounds.Min, Max: bounds.Max, Autoscaler: scaled.total, Fixed: constant.total,
		SavedHours: constant.total.ReplicaHours - scaled.total.ReplicaHours, Series: scaled.series,
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
		f.playStep(at)
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

// playStep plays the step at a time of the day.
func (f *fleet) playStep(at api.Nanos) {
	for len(f.starts) > 0 && f.starts[0] <= f.now {
		f.starts = f.starts[1:]
		f.ready++
	}
	arriving := poisson(f.arrivals, f.traffic.rate(at)*float64(f.step)/1e9)
	if arriving > 0 {
		f.arrived += uint64(arriving)
		f.lastArrival = f.now
	}
	if f.scaler != nil {
		if cold := arriving > 0 && f.ready+len(f.starts) == 0; cold || f.now >= f.nextTick {
			f.decide()
			if cold && len(f.starts) > 0 && f.counts {
				f.total.ColdStarts++
			}
			if f.now >= f.nextTick {
				f.nextTick = f.now + tickNanos
			}
		}
	}
	missed := f.serve(arriving)
	f.missed += uint64(missed)
	if !f.counts {
		return
	}
	all := f.ready + len(f.starts)
	f.total.Queries += int64(arriving)
	f.total.Missed += int64(missed)
	f.total.Peak = max(f.total.Peak, all)
	f.total.ReplicaHours += float64(all) * float64(f.step) // in nanoseconds until the day is over
	p := &f.series[min(int(int64(at)/(int64(f.traffic.Span)/points)), points-1)]
	p.Rate += float64(arriving)
	p.Missed += float64(missed)
	p.Wanted, p.Ready = max(p.Wanted, f.wanted), max(p.Ready, f.ready)
}

// serve adds the arriving queries to the backlog, serves what the ready replicas can in a step, and returns how many
// are missed. A query is refused if the backlog before it takes longer than the objective leaves, as in the scheduler.
// An idle replica takes a query however little time is left.
func (f *fleet) serve(arriving int) (missed int) {
	if f.ready == 0 {
		f.rate = 0
		return f.awaitStart(arriving)
	}
	able := float64(f.ready) * f.perSecond * float64(f.step) / 1e9
	room := float64(f.ready)*f.perSecond*f.waitNanos/1e9 + able - f.backlog
	admitted := min(arriving, max(0, int(math.Ceil(room))))
	f.backlog += float64(admitted)
	served := min(f.backlog, able)
	f.backlog -= served
	f.served += served
	f.rate = served * 1e9 / float64(f.step)
	return arriving - admitted
}

// awaitStart lets queries wait for the first replica if they may. Those that are answered after the objective are
// missed, too.
func (f *fleet) awaitStart(arriving int) (missed int) {
	if len(f.starts) == 0 {
		return arriving
	}
	until := float64(f.starts[0]-f.now) + float64(f.model.Nanos(1))
	if until <= float64(max(f.model.SLONanos, f.model.ColdStartNanos)) {
		f.backlog += float64(arriving)
	}
	if until <= float64(f.model.SLONanos) {
		return 0
	}
	return arriving
}

// occupancy is how many queries the scaler sees in queues and in flight.
//
// A busy replica takes, in one batch, what arrived since it took the last one. At L queries per second and replica
// these are n = L × (fixed + n × each), which is L × fixed / (1 − L × each). So n queries are in flight in each
// replica. The next batch has been waiting for between no time and the length of a batch, so up to n queries are
// queued. If n is less than 1, no query waits, and a replica has one query for L × (fixed + each) of the time.
func (f *fleet) occupancy() (queued, inFlight int) {
	queued = int(f.backlog)
	if f.ready == 0 || f.rate == 0 {
		return queued, 0
	}
	perNano := f.rate / float64(f.ready) / 1e9
	n := float64(f.batchCap)
	if rest := 1 - perNano*f.model.EachNanos; rest > 0 {
		n = min(n, perNano*f.model.FixedNanos/rest)
	}
	if n < 1 {
		return queued, int(math.Round(f.rate * float64(f.model.Nanos(1)) / 1e9))
	}
	return queued + poisson(f.queueing, n*f.queueing.Float64()), int(math.Ceil(float64(f.ready) * n))
}

// decide asks the scaler, and starts or ends replicas.
func (f *fleet) decide() {
	queued, inFlight := f.occupancy()
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
		if last := len(f.starts) - 1; last >= 0 { // the youngest first
			f.starts = f.starts[:last]
		} else {
			f.ready--
		}
	}
}

// poisson draws a number with a mean: by Knuth's multiplication (The Art of Computer Programming, 3.4.1) if the mean is
// small, otherwise from the normal distribution, which is close enough there.
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
