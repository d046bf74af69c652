package functions

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

const (
	// minLabels is how many labels a candidate needs before they say what its answers are worth. Of fifty, half are right or wrong by chance
	// within 7 %.
	minLabels = 50 //xebec:limit labels before `prefer` values a candidate by its accuracy
	// rememberedLabels bounds how many labels count: older ones fade.
	rememberedLabels = 1000
	// labelsHalfLife lets labels fade with time, too. A candidate that is asked no more gets no labels: after some hours the order of the
	// declaration decides again, and it can show whether it has become better.
	labelsHalfLife = time.Hour //xebec:limit time in which half of a candidate's labels fade under `prefer`
	// minDifference is the least difference of two accuracies that changes an order.
	minDifference = 0.02
	// leastGain keeps an answer of a bad candidate worth more than none. nextGain keeps equal candidates in their order.
	leastGain, nextGain = 0.1, 0.99
	// worthEvery is how often the evidence is looked at.
	worthEvery = time.Second
)

// worth is what the answers of the candidates of a function with `prefer` are worth to the planner. Without evidence each is worth preferGain of
// the one before it. If there is evidence for every candidate, it is their accuracy.
type worth struct {
	mu    sync.Mutex
	all   []evidence
	order []int // of the candidates, the best one first
	gains []float64
	used  []estimate // that order and gains follow from; empty: the order of the declaration decides
	next  time.Time
	last  time.Time
}

// evidence is what is known about a candidate.
type evidence struct {
	version        api.ModelID
	labels, losses float64 // that have not faded
	seen           uint64  // of the counter of losses, and their sum then
	seenSum        float64
	reported       float64 // by the model itself; NaN: it reports nothing
}

// estimate is an accuracy with its standard error.
type estimate struct {
	mean, err float64
	known     bool
	labels    float64 // that mean is of; 0: the model reports it
}

// before is what an earlier process knew of a version: labels, and the sum of their losses.
type before struct {
	labels, losses float64
	at             time.Time
}

func newWorth(candidates int) *worth {
	w := &worth{all: make([]evidence, candidates), order: make([]int, candidates), gains: make([]float64, candidates)}
	for i := range w.all {
		w.all[i].reported = math.NaN()
	}
	w.byPosition()
	return w
}

// byPosition lets the order of the declaration decide.
func (w *worth) byPosition() {
	for i := range w.order {
		w.order[i], w.gains[i] = i, math.Pow(preferGain, float64(i))
	}
}

// of says which version a candidate means now. What is known about another one is forgotten. Labels of an earlier process have faded since.
func (w *worth) of(i int, v api.ModelID, counted *obs.Loss, earlier before, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := &w.all[i]; e.version != v {
		*e = evidence{version: v, reported: math.NaN()}
		e.seen, e.seenSum = counted.Read()
		if earlier.labels > 0 {
			e.labels = min(earlier.labels, rememberedLabels) * math.Exp2(-float64(max(0, now.Sub(earlier.at)))/float64(labelsHalfLife))
			e.losses = e.labels * earlier.losses / earlier.labels
		}
		w.next = time.Time{}
	}
}

// report says how accurate a version reports to have been; NaN: it reports nothing.
func (w *worth) report(i int, v api.ModelID, accuracy float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := &w.all[i]; e.version == v {
		e.reported = accuracy
	}
}

// show adds to a plan's candidates the accuracies that their gains follow from.
func (w *worth) show(candidates []api.CandidateStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.used) != len(candidates) {
		return
	}
	for i := range candidates {
		if candidates[i].Model == w.all[i].version.String() {
			mean := w.used[i].mean
			candidates[i].Accuracy, candidates[i].Labels = &mean, w.used[i].labels
		}
	}
}

// ShowWorth adds to the plan of a function with the policy prefer the accuracies that its gains follow from.
func (fs *Functions) ShowWorth(plan *api.FunctionPlanStatus) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.all[plan.Name]; f != nil && f.worth != nil {
		f.worth.show(plan.Candidates)
	}
}

// write writes what an answer of each candidate is worth. The planner calls it in each epoch.
func (w *worth) write(counted []obs.Loss, now time.Time, gains []float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !now.Before(w.next) {
		w.look(counted, now)
		w.next = now.Add(worthEvery)
	}
	copy(gains, w.gains)
}

// look takes in new labels, and orders the candidates by what is known.
func (w *worth) look(counted []obs.Loss, now time.Time) {
	fade := 1.0
	if !w.last.IsZero() {
		fade = math.Exp2(-float64(max(0, now.Sub(w.last))) / float64(labelsHalfLife))
	}
	w.last = now
	estimates := make([]estimate, len(w.all))
	for i := range w.all {
		e := &w.all[i]
		n, sum := counted[i].Read()
		e.labels, e.losses = e.labels*fade+float64(n-e.seen), e.losses*fade+sum-e.seenSum
		e.seen, e.seenSum = n, sum
		if e.labels > rememberedLabels {
			e.losses *= rememberedLabels / e.labels
			e.labels = rememberedLabels
		}
		estimates[i] = e.estimate()
		if !estimates[i].known {
			w.order = w.order[:0:0]
		}
	}
	if len(w.order) == 0 {
		w.order = make([]int, len(w.all))
		w.byPosition()
		w.used = nil
		return
	}
	w.used = estimates
	reorder(w.order, estimates)
	gainsBy(w.order, estimates, w.gains)
}

// estimate prefers labels to what the model reports. The error is that of a fraction, with one more right and one more wrong answer, so that it is
// not 0 if all were right (the rule of succession).
func (e *evidence) estimate() estimate {
	mean, n, labels := e.reported, float64(minLabels), 0.0
	if e.labels >= minLabels {
		mean, n, labels = 1-e.losses/e.labels, e.labels, e.labels
	}
	if math.IsNaN(mean) {
		return estimate{}
	}
	mean = min(max(mean, 0), 1)
	p := (mean*n + 1) / (n + 2)
	return estimate{mean: mean, err: math.Sqrt(p * (1 - p) / n), known: true, labels: labels}
}

// reorder moves a candidate before its neighbour if its accuracy exceeds the neighbour's by minDifference, and by twice the standard error of the
// difference. A smaller difference leaves the order as it is, so that chance does not turn it to and fro.
func reorder(order []int, estimates []estimate) {
	for swapped := true; swapped; {
		swapped = false
		for k := 1; k < len(order); k++ {
			a, b := &estimates[order[k-1]], &estimates[order[k]]
			if b.mean-a.mean > max(minDifference, 2*math.Hypot(a.err, b.err)) {
				order[k-1], order[k] = order[k], order[k-1]
				swapped = true
			}
		}
	}
}

// gainsBy writes accuracies relative to that of the first candidate, each at most nextGain of the one before it.
func gainsBy(order []int, estimates []estimate, gains []float64) {
	best, before := 0.0, 1/nextGain
	for _, i := range order {
		best = max(best, estimates[i].mean)
	}
	for _, i := range order {
		relative := 1.0
		if best > 0 {
			relative = estimates[i].mean / best
		}
		gains[i] = min(max(relative, leastGain), before*nextGain)
		before = gains[i]
	}
	for _, i := range order { // the first is worth 1, also where its accuracy is within chance of a better one
		if first := gains[order[0]]; i != order[0] {
			gains[i] /= first
		}
	}
	gains[order[0]] = 1
}

// accuracyEvery is how often models are asked how accurate they have been, while a function with `prefer` has them.
const accuracyEvery = 10 * time.Second //xebec:limit interval between questions for accuracy() under `prefer`

// Run asks the candidates of functions with `prefer` how accurate they have been, until ctx ends.
func (fs *Functions) Run(ctx context.Context, c *versions.Catalog) {
	tick := time.NewTicker(accuracyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fs.askAccuracy(ctx, c)
		case <-ctx.Done():
			return
		}
	}
}

func (fs *Functions) askAccuracy(ctx context.Context, c *versions.Catalog) {
	type place struct {
		w *worth
		i int
	}
	asked := map[*versions.Version][]place{}
	func() {
		s := c.Lock()
		defer c.Unlock()
		fs.mu.Lock()
		defer fs.mu.Unlock()
		for _, f := range fs.all {
			if f.worth == nil {
				continue
			}
			for i, ref := range f.spec.Models {
				if v := s.Resolve(ref); v != nil {
					asked[v] = append(asked[v], place{f.worth, i})
				}
			}
		}
	}()
	for v, places := range asked {
		accuracy := math.NaN()
		if a := v.Accuracy(ctx); a != nil {
			accuracy = *a
		}
		for _, p := range places {
			p.w.report(p.i, v.ID(), accuracy)
		}
	}
}
