package scheduler

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// knownSamples is how many batches must have been seen before a profile is trusted.
	knownSamples = 16 //xebec:limit batches before a profile is believed
	// sampleDecay is the weight that older samples keep at each new one: the fit remembers about 32 batches.
	sampleDecay = 1 - 1.0/32
	// idleHalfLifeNanos is the idle time in which a sample loses half its weight. Where queries are rare, as when only
	// probes are let through, each new sample soon weighs as much as all earlier ones together, so a wrong profile
	// heals within seconds. A slow but busy replica does not forget faster.
	idleHalfLifeNanos = 0.5e9
	// outlier: a sample counts for at most this many times its prediction, unless the previous one was an outlier too.
	// One pause is not the model's doing; two in a row are a change.
	outlier = 3
	// histogramMemory is about how many samples the P99 looks back: at twice as many, all counts are halved.
	histogramMemory = 1024
)

// profile is the measured cost of a replica's batches: a line through (queries, nanoseconds) by least squares with
// exponential decay, and a histogram for the P99.
type profile struct {
	samples    uint64
	lastAt     api.Nanos
	w, x, y    float64 // decayed sums: weights, queries, nanoseconds
	xx, xy     float64
	intercept  float64
	slope      float64
	counts     [Buckets]uint32
	counted    uint32
	p99Nanos   int64
	sinceP99   uint32 // samples since p99Nanos was computed
	wasOutlier bool
	spread     float64 // decayed mean square of the relative prediction error
	margin     float64 // factor that makes a prediction careful

	prior       Prior   // that it began with
	priorWeight float64 // that is left of it, in batches
}

func (p *profile) known() bool { return p.samples >= knownSamples }

// predict is the expected evaluation time of a batch of n queries, 0 while nothing has been seen.
func (p *profile) predict(n int) int64 {
	return int64(p.intercept + p.slope*float64(n))
}

// careful is predict plus its margin of error: 2.5 standard deviations, which a normal distribution exceeds once in a
// hundred and sixty, and at most one half.
func (p *profile) careful(n int) int64 { return int64((p.intercept + p.slope*float64(n)) * p.margin) }

// within is the largest batch, up to most, that is expected to take no longer than nanos.
func (p *profile) within(nanos int64, most int) int {
	left := float64(nanos) - p.intercept
	if left < p.slope {
		return 0
	}
	if left >= p.slope*float64(most) {
		return most
	}
	return int(left / p.slope)
}

// observe records that a batch of n queries took evalNanos.
func (p *profile) observe(now api.Nanos, n int, evalNanos int64) {
	evalNanos = max(evalNanos, 1)
	p.count(evalNanos)

	keep := sampleDecay
	if idle := int64(now-p.lastAt) - evalNanos; idle > 1e6 && p.samples > 0 {
		keep *= math.Exp2(-float64(idle) / idleHalfLifeNanos)
	}
	y, single := float64(evalNanos), false
	if p.known() {
		most := outlier * max(1, p.intercept+p.slope*float64(n))
		beyond := y > most
		if single = beyond && !p.wasOutlier; single {
			y = most
		}
		p.wasOutlier = beyond
	}
	if p.samples >= 2 && !single {
		off := y/max(1, p.intercept+p.slope*float64(n)) - 1
		p.spread = keep*p.spread + (1-keep)*off*off
	}
	p.margin = 1 + min(0.5, 2.5*math.Sqrt(p.spread))
	p.samples++
	p.lastAt = now
	if p.priorWeight /= 2; p.priorWeight < priorForgotten {
		p.priorWeight = 0
	}
	x := float64(n)
	p.w, p.x, p.y = keep*p.w+1, keep*p.x+x, keep*p.y+y
	p.xx, p.xy = keep*p.xx+x*x, keep*p.xy+x*y
	p.fit()
}

func (p *profile) fit() {
	w, x, y, xx, xy := p.addPrior()
	meanX, meanY := x/w, y/w
	variance := xx/w - meanX*meanX
	// Batches of a single size say nothing about the slope: it stays as it was, and the line moves with the mean.
	if variance > 1e-3*meanX*meanX {
		p.slope = max(0, (xy/w-meanX*meanY)/variance)
	}
	p.intercept = meanY - p.slope*meanX
	if p.intercept < 0 { // then through the origin
		p.intercept = 0
		p.slope = xy / xx
	}
}

func (p *profile) count(evalNanos int64) {
	p.counts[Bucket(evalNanos)]++
	p.counted++
	if p.counted >= 2*histogramMemory {
		p.counted = 0
		for i := range p.counts {
			p.counts[i] /= 2
			p.counted += p.counts[i]
		}
	}
	// The tail moves slowly: recompute the P99 at every sample at first, later at every 16th.
	p.sinceP99++
	if p.samples < 64 || p.sinceP99 >= 16 {
		p.sinceP99 = 0
		p.p99Nanos = p.quantile(0.99)
	}
}

// quantile is the upper bound of the bucket that holds the quantile q.
func (p *profile) quantile(q float64) int64 {
	above := min(uint32(float64(p.counted)*(1-q)), max(p.counted, 1)-1)
	seen := uint32(0)
	for i := Buckets - 1; i >= 0; i-- {
		seen += p.counts[i]
		if seen > above {
			return BucketBound(i)
		}
	}
	return 0
}
