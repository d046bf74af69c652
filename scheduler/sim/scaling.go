package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

const (
	// pointNanos is the time between two points of a series.
	pointNanos = api.Nanos(1e9)
	// defaultTickNanos is the gateway's time between two runs of its scaler.
	defaultTickNanos = int64(250e6)
	// knownSamples is how many batches must have been seen before a replica's profile is trusted: as many as in the
	// machine.
	knownSamples = 16
	// startKeep is the weight of earlier starts in the mean start time at each new one.
	startKeep = 0.7
)

// ScaleResult is the outcome of scaling a model.
type ScaleResult struct {
	// Points has a point for the end of each second.
	Points []ScalePoint
	// Decisions are those for a new number.
	Decisions []ScaleDecision
	ScaleTotals
}

// scaling is the state of a scaled model: what the gateway keeps for its scaler.
type scaling struct {
	spec      *ScaleSpec
	scaler    Scaler
	tickNanos int64
	rng       *rand.Rand // for samples that cannot be read
	wanted    int
	serial    int // number of places so far
	last      api.Nanos
	refused   uint64 // by a plan, before they reached the engine
	// startNanos is the mean of the start times seen; 0: none was.
	startNanos float64
	direction  int // direction of the last change: up 1, down -1
	snapshot   scheduler.Snapshot
	result     *ScaleResult
}

// scaledPlace is the state of a place whose replica was ordered and can be given up.
type scaledPlace struct {
	serial    int
	orderedAt api.Nanos
	beganAt   api.Nanos // beginning of the current or last start
	// leaving: its replica is no longer wanted. gone: the place has been removed, and events scheduled for it are
	// ignored.
	leaving, gone bool
}

// addScaling gives a scaled model its scaler and its first replicas.
func (w *world) addScaling(m *model) error {
	spec := m.spec.Scale
	if spec == nil {
		return nil
	}
	switch {
	case len(m.spec.Replicas) > 0:
		return fmt.Errorf("model %s has a Scale and %d replicas of its own: expected no Replicas; Scale.Initial sets the initial number", m.spec.Name, len(m.spec.Replicas))
	case spec.Scaler == nil:
		return fmt.Errorf("model %s has a Scale without a Scaler: expected a function that makes one", m.spec.Name)
	case spec.Bounds.Min < 0 || spec.Bounds.Max < max(1, spec.Bounds.Min):
		return fmt.Errorf("model %s has bounds of %d to %d replicas: expected 0 ≤ Min ≤ Max and Max ≥ 1", m.spec.Name, spec.Bounds.Min, spec.Bounds.Max)
	case spec.Initial < 0 || spec.Initial > spec.Bounds.Max:
		return fmt.Errorf("model %s begins with %d replicas: expected 0 to %d", m.spec.Name, spec.Initial, spec.Bounds.Max)
	}
	s := &scaling{
		spec: spec, scaler: spec.Scaler(), tickNanos: spec.TickNanos, wanted: spec.Initial, result: &w.result.Scales[m.index],
		rng: stream(w.spec.Seed, uint64(300_000+m.index)),
	}
	if s.tickNanos <= 0 {
		s.tickNanos = defaultTickNanos
	}
	m.scaling = s
	for range spec.Initial {
		p := w.newPlace(m)
		w.events.push(event{kind: replicaUp, p: p})
	}
	for k := range spec.Replica.Faults {
		w.events.push(event{at: api.Nanos(spec.Replica.Faults[k].AtNanos), kind: faultStrikes, a: m.index, b: uint64(k)})
	}
	if !slices.ContainsFunc(w.models, func(o *model) bool { return o != m && o.scaling != nil }) {
		w.events.push(event{at: pointNanos, kind: secondEnds})
	}
	w.events.push(event{at: api.Nanos(s.tickNanos), kind: scaleTick, a: m.index})
	return nil
}

// newPlace orders a replica. Its random numbers are those of the model's nth place, independent of when and why it was
// ordered.
func (w *world) newPlace(m *model) *place {
	s := m.scaling
	p := &place{
		spec: &s.spec.Replica, model: m, rng: stream(w.spec.Seed, uint64(1_000_000*(1+m.index)+s.serial)),
		scaledPlace: scaledPlace{serial: s.serial, orderedAt: w.now, beganAt: w.now},
	}
	s.serial++
	m.places = append(m.places, p)
	s.result.Peak = max(s.result.Peak, len(m.places))
	return p
}

// startNanos draws the length of a start.
func (p *place) startNanos() int64 {
	s := p.model.scaling.spec
	nanos := float64(s.Replica.StartNanos)
	if s.StartSigma > 0 {
		nanos *= math.Exp(s.StartSigma*p.rng.NormFloat64() - s.StartSigma*s.StartSigma/2)
	}
	return int64(nanos)
}

// hasStarted reports whether a scheduled start has succeeded.
func (w *world) hasStarted(p *place) bool {
	if p.gone {
		return false
	}
	s := p.model.scaling
	if s.spec.FailPart > 0 && p.rng.Float64() < s.spec.FailPart {
		w.start(p)
		return false
	}
	if took := float64(w.now - p.beganAt); took > 0 { // replicas that were there at the start do not count
		if s.startNanos == 0 {
			s.startNanos = took
		}
		s.startNanos = startKeep*s.startNanos + (1-startKeep)*took
	}
	return true
}

// serves reports whether the place has a replica that takes batches.
func (p *place) serves() bool {
	return p.current != nil && !p.current.draining && !p.current.killed && !p.current.died
}

// count returns the number of a model's replicas that take batches, that will, and that no longer do.
func (m *model) count() (ready, starting, draining int) {
	for _, p := range m.places {
		switch {
		case p.leaving:
			draining++
		case p.serves():
			ready++
		default:
			starting++
		}
	}
	return ready, starting, draining
}

// oldest is the place that has been there longest, nil if there is none.
func (s *scaling) oldest(m *model) *place {
	if len(m.places) == 0 {
		return nil
	}
	return m.places[0]
}

// noteRefusal records a query that a plan refused before it reached the engine, so the engine's counters lack it.
func (s *scaling) noteRefusal(now api.Nanos) {
	s.refused++
	s.last = now
}

// allowForStart extends a call's deadline by the time of a start if none of the models that it asks has a replica.
func (w *world) allowForStart(c *call) {
	f := c.function.spec
	if f.ColdStartNanos == 0 || c.deadline < c.at || slices.ContainsFunc(c.queries, func(q *query) bool {
		return slices.ContainsFunc(q.model.places, (*place).serves)
	}) {
		return
	}
	c.deadline = max(c.deadline, c.at+api.Nanos(f.ColdStartNanos))
	for _, q := range c.queries {
		q.Deadline, q.Expires = c.deadline, max(c.deadline, q.Expires)
	}
}

// wakeScaler runs the scaler at once for a model that was asked and has no replica and none starting.
func (w *world) wakeScaler(m *model) {
	s := m.scaling
	if s == nil {
		return
	}
	s.last = w.now
	if ready, starting, _ := m.count(); ready+starting > 0 {
		return
	}
	w.runScaler(m, true)
	if ready, starting, _ := m.count(); ready+starting > 0 && w.now < w.spec.Duration {
		s.result.ColdStarts++
	}
}

// runScaler runs the scaler and carries out its decision.
func (w *world) runScaler(m *model, atOnce bool) {
	s := m.scaling
	sample := w.sample(m)
	sample.Unknown = !atOnce && s.spec.UnknownPart > 0 && s.rng.Float64() < s.spec.UnknownPart
	d := s.scaler.Decide(sample)
	if w.checkDecision(m, sample, &d); w.failed != nil {
		return
	}
	if d.Replicas != s.wanted {
		s.change(w, m, &d, atOnce)
	}
	for have := s.have(m); have < s.wanted; have++ {
		p := w.newPlace(m)
		w.start(p)
		if w.now < w.spec.Duration {
			s.result.Starts++
		}
	}
	for have := s.have(m); have > s.wanted; have-- {
		w.stop(s.nextToStop(m))
	}
}

// sample is what the gateway would see of the model.
func (w *world) sample(m *model) *autoscale.Sample {
	s := m.scaling
	m.engine.Snapshot(&s.snapshot)
	c := &s.snapshot.Counters
	sample := &autoscale.Sample{
		Now: w.now, Config: s.spec.Bounds, Wanted: s.wanted, LastArrival: s.last, StartNanos: int64(s.startNanos),
		Arrived: c.Arrived + s.refused,
		Refused: c.Ended[api.Overloaded] + c.Ended[api.DeadlineExceeded] + c.Ended[api.NoReplica] + s.refused,
		Queued:  s.snapshot.Queued + s.snapshot.Retrying,
		Streams: m.spec.Config.Streams,
	}
	if sample.Streams {
		sample.Concurrency = m.spec.Stream.places()
	}
	sample.Ready, sample.Starting, _ = m.count()
	for _, f := range w.functions {
		asks := slices.ContainsFunc(f.spec.Candidates, func(c CandidateSpec) bool { return c.Model == m.index })
		if slo := f.spec.SLONanos; asks && slo > 0 && (sample.SLONanos == 0 || slo < sample.SLONanos) {
			sample.SLONanos = slo
		}
	}
	known, size := 0.0, 0.0
	for i := range s.snapshot.Replicas {
		r := &s.snapshot.Replicas[i]
		sample.InFlight += r.Queries
		if r.State == scheduler.Serving && r.Samples >= knownSamples {
			known++
			sample.InterceptNanos += r.InterceptNanos
			sample.SlopeNanos += r.SlopeNanos
			if r.Settled {
				size += float64(r.Learned)
			} else { // a cap that still grows shows what was tried, not what is possible
				size += float64(m.ledger.cfg.Batching.MaxBatch)
			}
		}
	}
	if known > 0 {
		sample.Known = true
		sample.InterceptNanos /= known
		sample.SlopeNanos /= known
		sample.Cap = int(size / known)
	}
	return sample
}

// checkDecision checks a decision against what every scaler promises: it keeps to its bounds, decides nothing on an
// unknown sample, and does not put a model to sleep that is in use.
func (w *world) checkDecision(m *model, s *autoscale.Sample, d *autoscale.Decision) {
	switch {
	case d.Replicas < s.Config.Min || d.Replicas > s.Config.Max:
		w.fail("m%d: the scaler wants %d replicas, of %d to %d", m.index, d.Replicas, s.Config.Min, s.Config.Max)
	case s.Unknown && d.Replicas != max(s.Wanted, s.Config.Min):
		w.fail("m%d: the sample is unknown, and the scaler wants %d replicas instead of %d", m.index, d.Replicas, s.Wanted)
	case !s.Unknown && d.Replicas == 0 && s.Queued > 0:
		w.fail("m%d: the scaler wants no replica while %d queries wait", m.index, s.Queued)
	case w.spec.Check && !s.Unknown && d.Replicas == 0 && s.Wanted > 0 && inUse(s):
		w.fail("m%d: the scaler wants no replica any more %v after the last query, with %d in flight; the model may sleep after %v",
			m.index, span(s.Now-s.LastArrival), s.InFlight, span(api.Nanos(s.Config.IdleNanos)))
	}
}

// inUse reports whether a model must not sleep: it has queries, or had one too recently.
func inUse(s *autoscale.Sample) bool {
	return s.Queued+s.InFlight > 0 || s.LastArrival > 0 && int64(s.Now-s.LastArrival) < s.Config.IdleNanos
}

// change records a decision for a new number.
func (s *scaling) change(w *world, m *model, d *autoscale.Decision, atOnce bool) {
	direction := 1
	if d.Replicas < s.wanted {
		direction = -1
	}
	if w.log != nil {
		w.write(m, fmt.Sprintf("* replicas %d → %d: %v, at once: %v", s.wanted, d.Replicas, d.Reason, atOnce))
	}
	if w.now < w.spec.Duration {
		s.result.Changes++
		if direction == -s.direction {
			s.result.Reversals++
		}
		s.result.Decisions = append(s.result.Decisions, ScaleDecision{At: w.now, From: s.wanted, To: d.Replicas, AtOnce: atOnce, Decision: *d})
	}
	s.wanted, s.direction = d.Replicas, direction
}

// have is the number of replicas that are there or starting.
func (s *scaling) have(m *model) int {
	ready, starting, _ := m.count()
	return ready + starting
}

// nextToStop is the place to give up first: the youngest of those that do not serve, or else the youngest.
func (s *scaling) nextToStop(m *model) *place {
	var least *place
	for _, p := range m.places {
		if !p.leaving && (least == nil || !p.serves() || least.serves()) {
			least = p
		}
	}
	return least
}

// stop gives a place up: a serving replica drains first, a starting one ends at once.
func (w *world) stop(p *place) {
	s := p.model.scaling
	p.leaving = true
	if w.now < w.spec.Duration {
		s.result.Stops++
	}
	switch r := p.current; {
	case r == nil:
		s.vacate(w, p)
	case !r.draining && !r.died:
		r.draining = true
		w.step(p.model, &Input{Kind: ReplicaDrain, Replica: r.id})
	}
}

// vacate removes a place.
func (s *scaling) vacate(w *world, p *place) {
	p.gone = true
	s.addReplicaSeconds(w, p)
	p.model.places = slices.DeleteFunc(p.model.places, func(o *place) bool { return o == p })
}

// addReplicaSeconds adds the replica-seconds of a place, up to the end of the traffic.
func (s *scaling) addReplicaSeconds(w *world, p *place) {
	if until := min(w.now, w.spec.Duration); until > p.orderedAt {
		s.result.ReplicaSeconds += float64(until-p.orderedAt) / 1e9
	}
}

// notePoints adds a point to the series.
func (w *world) notePoints() {
	if w.now > w.spec.Duration {
		return
	}
	for _, m := range w.models {
		if m.scaling != nil {
			p := ScalePoint{Wanted: m.scaling.wanted}
			p.Ready, p.Starting, p.Draining = m.count()
			m.scaling.result.Points = append(m.scaling.result.Points, p)
		}
	}
}

// sumUpScaling adds the replica-seconds of the places that are still there.
func (w *world) sumUpScaling() {
	for _, m := range w.models {
		if m.scaling != nil {
			for _, p := range m.places {
				m.scaling.addReplicaSeconds(w, p)
			}
		}
	}
}
