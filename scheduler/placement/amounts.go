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

// within reports whether a is no more than room in each dimension that it takes anything of: a model without GPUs may run
// where GPUs are overdrawn.
func (a *amounts) within(room *amounts) bool {
	return (a[0] <= room[0] || a[0] == 0) && (a[1] <= room[1] || a[1] == 0) && (a[2] <= room[2] || a[2] == 0)
}

// fits reports whether used and a together are within limit, in each dimension that a takes anything of.
func (a *amounts) fits(used, limit *amounts) bool {
	return (used[0]+a[0] <= limit[0] || a[0] == 0) && (used[1]+a[1] <= limit[1] || a[1] == 0) && (used[2]+a[2] <= limit[2] || a[2] == 0)
}
