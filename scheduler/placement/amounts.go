package placement

import "math"

// dimensions is how many kinds of resources there are, in the order of Dimension.
const dimensions = 3

// amounts is Resources to calculate with. Float64 is exact up to 2^53 (8 PiB of memory), and beyond that nothing wraps around.
type amounts [dimensions]float64

func amountsOf(r Resources) amounts {
	return amounts{float64(max(0, r.CPUMillis)), float64(max(0, r.MemoryBytes)), float64(max(0, r.GPUs))}
}

func (a *amounts) resources() Resources {
	return Resources{whole(a[0]), whole(a[1]), whole(a[2])}
}

func whole(v float64) int64 {
	switch {
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v)
}

// add adds b n times; n may be negative.
func (a *amounts) add(b *amounts, n float64) {
	a[0] += b[0] * n
	a[1] += b[1] * n
	a[2] += b[2] * n
}

// within reports whether a, which is what a model needs, is no more than room.
func (a *amounts) within(room *amounts) bool {
	return signs(room[0]-a[0], room[1]-a[1], room[2]-a[2]) >= 0
}

// fits reports whether used and a, which is what a model needs, are together within limit.
func (a *amounts) fits(used, limit *amounts) bool {
	return signs(limit[0]-(used[0]+a[0]), limit[1]-(used[1]+a[1]), limit[2]-(used[2]+a[2])) >= 0
}

// signs is negative where any of them is. One branch is guessed better than three, of which each may decide.
func signs(a, b, c float64) int64 {
	return int64(math.Float64bits(a) | math.Float64bits(b) | math.Float64bits(c))
}

// needed is a with -Inf where it is 0: who takes nothing of something has room also where that is overdrawn.
func (a *amounts) needed() amounts { return amounts{need(a[0]), need(a[1]), need(a[2])} }

func need(takes float64) float64 {
	if takes == 0 {
		return math.Inf(-1)
	}
	return takes
}

// part is the part of all that takes is; 0 of nothing.
func part(takes, all float64) float64 {
	if all == 0 {
		return 0
	}
	return takes / all
}
