package scheduler

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// knownSamples is how many batches must have been seen before a profile is believed.
	knownSamples = 16
	// sampleDecay is what older samples keep at each new one: the fit remembers about 32 batches.
	sampleDecay = 1 - 1.0/32
	// idleHalfLifeNanos is the idle time in which a sample loses half its weight. Where queries are rare, as when only
	// probes are let through, each new one soon counts as much as all before, so that a wrong profile heals within
	// seconds; a replica that is slow and busy forgets no faster for being slow.
	idleHalfLifeNanos = 0.5e9
	// outlier is how many times its prediction a sample counts for at most, unless the one before it was an outlier too:
	// one pause is not the model's doing, two in a row are a change.
	outlier = 3
	// histogramMemory is how many samples the P99 looks back, about: at twice as many, all counts are halved.
	histogramMemory = 1024
)

// profile is what a replica's batches have cost: a line through (queries, nanoseconds) by least squares with exponential
// decay, and a histogram for the P99.
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
	sinceP99   uint32 // samples since p99Nanos was found
	wasOutlier bool
	spread     float64 // decayed mean square of how far off predictions were, as parts of them
	margin     float64 // what a prediction is to be multiplied by to be careful
}

func (p *profile) known() bool { return p.samples >= knownSamples }

// predict is the expected evaluation time of a batch of n queries, 0 while nothing has been seen.
func (p *profile) predict(n int) int64 {
	return int64(p.intercept + p.slope*float64(n))
}

// careful is predict with what it may be off by: 2.5 standard deviations, which for a normal distribution is one in a
// hundred and sixty, and a half at most.
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

// observe learns that a batch of n queries took evalNanos.
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
	x := float64(n)
	p.w, p.x, p.y = keep*p.w+1, keep*p.x+x, keep*p.y+y
	p.xx, p.xy = keep*p.xx+x*x, keep*p.xy+x*y
	p.fit()
}

func (p *profile) fit() {
	meanX, meanY := p.x/p.w, p.y/p.w
	variance := p.xx/p.w - meanX*meanX
	// Batches that are all of one size say nothing of the slope: it stays what it was, and the line moves with the mean.
	if variance > 1e-3*meanX*meanX {
		p.slope = max(0, (p.xy/p.w-meanX*meanY)/variance)
	}
	p.intercept = meanY - p.slope*meanX
	if p.intercept < 0 { // through the origin, then
		p.intercept = 0
		p.slope = p.xy / p.xx
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
	// The tail moves slowly: look for it at every sample at first, later at every 16th.
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
