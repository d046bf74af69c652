package placement

import "math"

// dimensions is the number of kinds of resources, in the order of Dimension.
const dimensions = 3

// amounts is Resources for arithmetic. Float64 is exact up to 2^53 (8 PiB of memory), and does not wrap around beyond
// that.
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

// add adds n times b; n may be negative.
func (a *amounts) add(b *amounts, n float64) {
	a[0] += b[0] * n
	a[1] += b[1] * n
	a[2] += b[2] * n
}

// within reports whether a, which must be a model's needs, is no more than room.
func (a *amounts) within(room *amounts) bool {
	return signs(room[0]-a[0], room[1]-a[1], room[2]-a[2]) >= 0
}

// fits reports whether used plus a, which must be a model's needs, is within limit.
func (a *amounts) fits(used, limit *amounts) bool {
	return signs(limit[0]-(used[0]+a[0]), limit[1]-(used[1]+a[1]), limit[2]-(used[2]+a[2])) >= 0
}

// signs is negative if any of a, b and c is. One branch on the result is predicted better than three.
func signs(a, b, c float64) int64 {
	return int64(math.Float64bits(a) | math.Float64bits(b) | math.Float64bits(c))
}

// needed returns a with -Inf instead of 0, so that a replica that takes nothing of a resource fits even if the resource
// is overdrawn.
func (a *amounts) needed() amounts { return amounts{need(a[0]), need(a[1]), need(a[2])} }

func need(takes float64) float64 {
	if takes == 0 {
		return math.Inf(-1)
	}
	return takes
}

// part returns takes as a part of all, 0 if all is 0.
func part(takes, all float64) float64 {
	if all == 0 {
		return 0
	}
	return takes / all
}
