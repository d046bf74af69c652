package scheduler

import (
	"math"
	"math/bits"
	"slices"
)

const (
	// quantileAbove is the part of all batches that may take longer than the line says: the line is the P99.
	quantileAbove = 0.01
	// quantileFree is how many samples may lie above the line while there are too few for a P99, from knownTail on, so
	// that a single pause does not set the line.
	quantileFree = 1.5
	knownTail    = 8
	// windowSamples is how many batches a controller remembers: enough that the P99 is not the largest of them.
	windowSamples = 256
	// rareSamples is how many samples an octave of sizes keeps although they are older than others; 18 octaves have
	// room for 14 each. No sample is kept longer than windowBatches.
	rareSamples   = 12
	windowBatches = 8192
	// fitEvery is how many batches come between two fits, except while the cap moves.
	fitEvery = 8
	// recentSamples are compared with older ones to detect a change of the replica's speed by more than speedChange.
	// After a change, more than half of the recent ones have the new speed.
	recentSamples = 16
	speedChange   = 1.25
	// pauseBatches: this many batches in a row that take more than outlier times what the line says are not a pause any
	// more: the replica has become slower.
	pauseBatches = 7
	// maxPauseCredit is how many pauses shortly after each other are ignored.
	maxPauseCredit = 2
	// quantileStep is how far, as a part of the last full batch, a line may lead beyond what that batch proves.
	quantileStep = 0.125
	// quantileFall is the part of the cap that one fit keeps at least. A line with a wrong slope should see other sizes
	// before the cap goes all the way down.
	quantileFall = 0.75
)

// quantile finds the largest batch whose P99 is within the objective, by linear quantile regression of evaluation time
// on batch size (Clipper, section 4.3.1). With the line 2.2 ms + 11 µs × n and an objective of 10 ms the cap is 709.
//
// Extrapolation beyond the sizes seen is limited. The cap never exceeds twice the last full batch, nor the larger of
// what the line at that batch proves (see [aimd]) and an eighth more than that batch.
//
// Three mechanisms keep the line right when the replica's behaviour varies:
//
//   - A change of speed. When the median of the recent samples leaves the bulk of earlier samples of similar size, all
//     older samples are scaled to the new speed. Waiting for them to leave the window would take hundreds of batches,
//     because a P99 does not forget sooner.
//   - A pause. Batches in a row beyond three times the line are one pause. One pause in a hundred batches does not
//     count, because that is what the P99 permits; any other counts as one sample, of three times the median. Each
//     batch of a pause removes a tenth of the cap, as with [aimd], and the next fit restores it.
//   - A steady load, with batches of one size. Samples of rare sizes are kept (see [window]). Where there are none, the
//     line keeps its shape and only its height moves.
type quantile struct {
	size, max      int
	objectiveNanos float64
	full           int // the last full batch
	limitMet       bool
	carried        bool // the previous controller had settled
	moving         bool // the last fit moved the cap: fit at the next full batch
	line           line
	reference      line // the line as it was while the speed was steady
	samples        window
	sinceFit       int
	pauses         int     // batches in a row beyond outlier times the line
	pauseCredit    float64 // pauses that may still be ignored
	pauseRatios    [pauseBatches]float64
}

func newQuantile(b Batching) *quantile {
	return &quantile{size: startSize, full: startSize, max: b.MaxBatch, objectiveNanos: float64(b.ObjectiveNanos), moving: true, pauseCredit: maxPauseCredit}
}

// inherit takes over what old knows of the replica, which stays valid when the objective or the maximum changes.
func (c *quantile) inherit(old *quantile) {
	now := *c
	*c = *old
	c.max, c.objectiveNanos = now.max, now.objectiveNanos
	c.size, c.full = min(c.size, c.max), min(c.full, c.max)
	c.carried = c.settled()
	c.limitMet, c.moving = false, true
	if c.samples.count > 0 {
		c.fit()
	}
}

func (c *quantile) cap() int { return c.size }

func (c *quantile) settled() bool { return c.limitMet || c.carried || c.size == c.max }

func (c *quantile) observe(n int, full bool, evalNanos int64) {
	if n < 1 {
		return
	}
	n = min(n, c.max)
	nanos := float64(max(evalNanos, 1))
	c.sinceFit++
	c.pauseCredit = min(maxPauseCredit, c.pauseCredit+quantileAbove)
	if c.samples.count >= knownSamples {
		var counts bool
		if nanos, counts = c.pause(n, nanos); !counts {
			return
		}
	} else {
		c.samples.drop(float64(n), outlier*nanos)
	}
	if full {
		c.full = n
	}
	c.samples.add(n, nanos)
	if c.sinceFit >= fitEvery || c.moving && full {
		c.fit()
	}
}

// pause checks whether a batch was held up. It returns the time to count for it, and whether to count it at all.
func (c *quantile) pause(n int, nanos float64) (float64, bool) {
	ratio := nanos / c.line.at(float64(n))
	if ratio <= outlier {
		c.pauses = 0
		return nanos, true
	}
	c.pauseRatios[c.pauses] = ratio
	c.pauses++
	level := c.samples.medianRatio(c.line)
	if c.pauses == pauseBatches {
		c.pauses = 0
		slices.Sort(c.pauseRatios[:])
		factor := c.pauseRatios[pauseBatches/2] / level
		c.samples.scale(factor)
		c.reference, c.line = c.reference.times(factor), c.line.times(factor)
		c.sinceFit = fitEvery
		return nanos, true
	}
	if nanos > c.objectiveNanos && n <= c.size {
		c.size = max(1, c.size*9/10)
	}
	if c.pauses > 1 {
		return 0, false
	}
	if c.pauseCredit >= 1 {
		c.pauseCredit--
		return 0, false
	}
	return outlier * level * c.line.at(float64(n)), true
}

func (c *quantile) fit() {
	c.sinceFit = 0
	c.samples.dropExpired()
	factor, steady := c.samples.rescale(c.reference)
	c.reference, c.line = c.reference.times(factor), c.line.times(factor)
	var found bool
	c.line, found = c.samples.fit(c.line)
	if steady {
		c.reference = c.line
	}
	c.move(found)
}

// move brings the cap to where the line meets the objective, as far as the sizes seen allow. found means that the
// line's slope was fitted, not kept.
func (c *quantile) move(found bool) {
	size, seen := float64(c.size), float64(c.full)
	room := c.line.within(c.objectiveNanos)
	if room < 1 {
		room = c.least()
	}
	if room < size {
		c.limitMet = true
		next := max(room, quantileFall*size)
		c.moving = next > room
		c.size = wholeQueries(next)
		return
	}
	most := min(2*seen, seen*c.objectiveNanos/c.line.at(seen))
	if c.full >= c.size {
		step := size + max(1, quantileStep*size)
		if found {
			most = max(most, step)
		} else if c.samples.count >= knownTail && wholeQueries(most) == c.size && c.line.at(size) < aimdRest*c.objectiveNanos {
			room, most = step, step // try another size than this one: a cap of 1 proves nothing about 2
		}
	}
	room = min(room, float64(c.max))
	next := max(c.size, wholeQueries(min(room, most)))
	if c.full >= c.size {
		c.limitMet = 4*wholeQueries(room) <= 5*next
	}
	c.moving = !c.limitMet || 16*next > 17*c.size
	c.size = min(next, c.max)
}

// least is the cap for a replica where one batch in a hundred misses the objective at every size. Batches of one would
// miss too, and a model with a fixed cost per batch would do next to nothing. So the median decides: least is the batch
// that meets the objective by it, but at most the one whose fixed part is half of its time, because below that size a
// batch saves little by being smaller.
func (c *quantile) least() float64 {
	median := c.line.times(c.samples.medianRatio(c.line))
	return min(median.within(c.objectiveNanos), median.fixed/max(median.each, 1))
}

// wholeQueries is the number of wholeQueries queries in x, at least 1. It tolerates rounding errors just below a
// wholeQueries number.
func wholeQueries(x float64) int { return max(1, int(x*(1+1e-6))) }

// line is the time of a batch by its size, in nanoseconds. Neither part is negative.
type line struct{ fixed, each float64 }

func (l line) at(n float64) float64 { return max(1, l.fixed+l.each*n) }

func (l line) times(factor float64) line {
	return line{min(l.fixed*factor, math.MaxInt64), min(l.each*factor, math.MaxInt64)}
}

// within is the size at which the line reaches nanos.
func (l line) within(nanos float64) float64 {
	switch {
	case l.fixed > nanos:
		return 0
	case l.each == 0:
		return math.MaxInt32
	}
	return min(math.MaxInt32, (nanos-l.fixed)/l.each)
}

// window holds the samples that a line is fitted to. Once it is full, each new sample replaces the oldest, but each
// octave of sizes (1, 2–3, 4–7 …) keeps [rareSamples]: they keep the slope known under a steady load of full batches.
type window struct {
	count     int
	batches   uint64 // batches seen so far
	size      [windowSamples]float64
	nanos     [windowSamples]float64
	batch     [windowSamples]uint64 // when each was added, as a value of batches
	perOctave [octaves]int
}

const octaves = 18 // bits.Len of MaxMaxBatch, and 0

func octave(size float64) int { return bits.Len(uint(size)) }

func (w *window) add(n int, nanos float64) {
	w.batches++
	i := w.count
	if i == windowSamples {
		i = w.oldest()
		w.perOctave[octave(w.size[i])]--
	} else {
		w.count++
	}
	w.size[i], w.nanos[i], w.batch[i] = float64(n), nanos, w.batches
	w.perOctave[octave(w.size[i])]++
}

// oldest is the oldest sample of the octaves that have more than rareSamples.
func (w *window) oldest() int {
	oldest, at := uint64(math.MaxUint64), 0
	for i, batch := range w.batch {
		if batch < oldest && w.perOctave[octave(w.size[i])] > rareSamples {
			oldest, at = batch, i
		}
	}
	return at
}

// dropExpired drops samples that are too old.
func (w *window) dropExpired() {
	for i := w.count - 1; i >= 0; i-- {
		if w.batches-w.batch[i] > windowBatches {
			w.remove(i)
		}
	}
}

// drop drops samples that were no larger than size and took longer than nanos: a new replica's first batches load and
// compile things.
func (w *window) drop(size, nanos float64) {
	for i := w.count - 1; i >= 0; i-- {
		if w.size[i] <= size && w.nanos[i] > nanos {
			w.remove(i)
		}
	}
}

func (w *window) remove(i int) {
	w.perOctave[octave(w.size[i])]--
	w.count--
	w.size[i], w.nanos[i], w.batch[i] = w.size[w.count], w.nanos[w.count], w.batch[w.count]
}

// medianRatio is the median of the samples as multiples of the line.
func (w *window) medianRatio(l line) float64 {
	var ratios [windowSamples]float64
	for i := range w.count {
		ratios[i] = w.ratio(i, l)
	}
	slices.Sort(ratios[:w.count])
	return ratios[w.count/2]
}

func (w *window) scale(factor float64) {
	for i := range w.count {
		w.scaleOne(i, factor)
	}
}

func (w *window) scaleOne(i int, factor float64) {
	w.nanos[i] = max(1, min(w.nanos[i]*factor, math.MaxInt64))
}

// rescale detects a change of the replica's speed: the median of the recent samples, as multiples of the line l, is
// beyond nine tenths of the older ones of similar size, and differs from their median by more than speedChange. If so
// it scales all older samples to the new speed. It returns the factor, 1 for no change, and steady: whether nothing
// hints at a change. A line fitted to samples of two speeds has a meaningless slope and must not become the reference.
func (w *window) rescale(l line) (factor float64, steady bool) {
	var ratios, sizes [recentSamples]float64
	n := 0
	for i := range w.count {
		if w.recent(i) {
			ratios[n], sizes[n] = w.ratio(i, l), w.size[i]
			n++
		}
	}
	if n < recentSamples {
		return 1, true
	}
	slices.Sort(ratios[:])
	slices.Sort(sizes[:])
	like := sizes[recentSamples/2]
	var space [windowSamples]float64
	older := w.older(l, like, 2, space[:0])
	if len(older) < recentSamples {
		older = w.older(l, like, 8, space[:0])
	}
	if len(older) < recentSamples {
		return 1, true
	}
	// More than half of the recent samples are at least as slow as slow, and more than half at least as quick as quick.
	slow, quick := ratios[recentSamples/2-1], ratios[recentSamples/2]
	slices.Sort(older)
	before := older[len(older)/2]
	var now float64
	switch {
	case slow > before*speedChange && slow > older[len(older)*9/10]:
		now = slow
	case quick*speedChange < before && quick < older[len(older)/10]:
		now = quick
	default:
		// The hint: two of the recent samples are beyond 98 % of the older ones.
		return 1, ratios[recentSamples-2] <= older[len(older)*99/100] && ratios[1] >= older[len(older)/100]
	}
	factor = now / before
	for i := range w.count {
		// Some of the recent samples are from before the change: those that are nearer to the old median.
		r := w.ratio(i, l)
		if !w.recent(i) || (r/before < now/r) == (factor > 1) {
			w.scaleOne(i, factor)
		}
	}
	return factor, false
}

// older appends the ratios of all samples that are not recent and whose sizes are within a factor of spread of like.
func (w *window) older(l line, like, spread float64, to []float64) []float64 {
	for i := range w.count {
		if !w.recent(i) && w.size[i]*spread >= like && w.size[i] <= like*spread {
			to = append(to, w.ratio(i, l))
		}
	}
	return to
}

// ratio is a sample's time as a multiple of what the line says.
func (w *window) ratio(i int, l line) float64 { return w.nanos[i] / l.at(w.size[i]) }

func (w *window) recent(i int) bool { return w.batches-w.batch[i] < recentSamples }

// fit finds the P99 line through the samples by linear quantile regression (Koenker and Bassett, Regression Quantiles,
// Econometrica 46, 1978): of all lines without negative parts, the one with the least sum of
//
//	τ·r where a sample lies r above it, and (1-τ)·r where it lies r below it.
//
// The minimum is exact except for rounding. For a given slope the best fixed part is known: the τ-quantile of what the
// slope does not explain of the samples' times (see residual), which here is one of the three largest. What remains is a
// function of the slope alone. It is convex, as the sum is convex in both (Boyd and Vandenberghe, Convex Optimization,
// 3.2.5), and the sign of its derivative follows from those three, so at most thirty bisections find its zero.
//
// If all samples have about one size, the slope cannot be found: the line held keeps its shape, and found is false.
func (w *window) fit(held line) (l line, found bool) {
	least, most := w.size[0], w.size[0]
	steepest, sum := 0.0, 0.0
	for i, size := range w.size[:w.count] {
		least, most = min(least, size), max(most, size)
		steepest = max(steepest, w.nanos[i]/size)
		sum += size
	}
	if most <= aimdSmall && most-least < 1 || most > aimdSmall && least > 0.75*most {
		return w.shiftToP99(held), false
	}
	free := w.allowedAbove()
	low, high := 0.0, steepest
	for i := 0; i < 30 && high-low > 1e-7*high; i++ {
		mid := (low + high) / 2
		if w.gradient(mid, free, sum) > 0 {
			high = mid
		} else {
			low = mid
		}
	}
	top := w.top(low)
	return line{max(0, top[int(free)].nanos), low}, true
}

// allowedAbove is how many samples may lie above the line.
func (w *window) allowedAbove() float64 {
	if w.count < knownTail {
		return 0.5
	}
	return max(quantileFree, quantileAbove*float64(w.count))
}

// gradient is the derivative of the sum by the slope, with the best fixed part for that slope.
func (w *window) gradient(slope, free, sum float64) float64 {
	top := w.top(slope)
	whole := int(free)
	pull := free / float64(w.count) * sum
	for _, s := range top[:whole] {
		if s.nanos > 0 {
			pull -= s.size
		}
	}
	if top[whole].nanos > 0 { // the line goes through it; else it goes through the origin
		pull -= (free - float64(whole)) * top[whole].size
	}
	return pull
}

// residual is a sample's time without the part that the slope explains.
type residual struct{ nanos, size float64 }

// top is the three samples with the largest residuals, or as many as there are, in falling order.
func (w *window) top(slope float64) (top [3]residual) {
	for i := range top {
		top[i].nanos = math.Inf(-1)
	}
	size, nanos := w.size[:w.count], w.nanos[:w.count]
	least := top[2].nanos
	for i, n := range size {
		r := nanos[i] - slope*n
		if r <= least {
			continue
		}
		top[2] = residual{r, n}
		if r > top[1].nanos {
			top[1], top[2] = top[2], top[1]
			if r > top[0].nanos {
				top[0], top[1] = top[1], top[0]
			}
		}
		least = top[2].nanos
	}
	return top
}

// shiftToP99 moves the line l, keeping its shape, to the P99 of the samples. A line about which nothing is known goes
// through the origin, which errs on the safe side for sizes above those seen.
func (w *window) shiftToP99(l line) line {
	if l.fixed+l.each == 0 {
		l.each = 1
	}
	var ratios [windowSamples]float64
	for i, size := range w.size[:w.count] {
		ratios[i] = w.nanos[i] / (l.fixed + l.each*size)
	}
	slices.Sort(ratios[:w.count])
	return l.times(ratios[w.count-1-int(w.allowedAbove())])
}
