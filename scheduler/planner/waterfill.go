package planner

import "math"

// flow is one claim on a scarce resource: the claimant's weight, what it has already, and what it wants in addition.
type flow struct{ weight, has, wants float64 }

// waterLevel returns the level L at which everything is given out: Σ min(wants, max(0, L·weight − has)) = room. A flow
// below the level is filled up to the level, or to what it wants: weighted max-min fairness (Bertsekas and Gallager,
// Data Networks, 1992, section 6.5.2). The sum of the wants must exceed room.
//
// Three flows of weight 1 want 10, 60 and 80 of 100: the level is 45, and they get 10, 45 and 45. If the last has
// weight 2, the level is 30, and they get 10, 30 and 60.
//
// The sum is piecewise linear in L, so a step of Newton's method ends at the answer once it starts on the right piece.
// If a step leaves the interval that holds the answer, the interval is halved instead. No branch in the loop depends on
// the numbers: they differ at every resource, and a mispredicted branch takes as long as the loop.
func waterLevel(flows []flow, room float64) float64 {
	if room <= 0 {
		return 0
	}
	low, high := 0.0, 0.0
	for i := range flows {
		f := &flows[i]
		high = max(high, (f.has+f.wants)/f.weight)
	}
	level := 0.0
	for range 100 {
		sum, slope := 0.0, 0.0
		for i := range flows {
			f := &flows[i]
			above := level*f.weight - f.has
			reached, filling := ^signs(above), signs(above-f.wants) // flows that get something, and flows that get less than they want
			sum += math.Float64frombits(reached & (filling&math.Float64bits(above) | ^filling&math.Float64bits(f.wants)))
			slope += math.Float64frombits(reached & filling & math.Float64bits(f.weight))
		}
		if sum > room {
			high = level
		} else {
			low = level
			if room-sum <= 1e-13 {
				return level
			}
		}
		next := level + (room-sum)/slope
		if !(next > low && next < high) { // also NaN, if slope is 0
			next = low + (high-low)/2
			if next <= low || next >= high {
				return low
			}
		}
		level = next
	}
	return low
}

// takingLevel returns the waterLevel of entries that may be taken from: of all that they have and claim. The search
// starts at above, a level above the answer such as the last one, or from below if above is +Inf.
//
// The sum is concave: from above a step of Newton's method leads below the answer, and from below it does not
// overshoot.
func takingLevel(entries []entry, room, above float64) float64 {
	level := above
	if level == inf {
		level = room / weightsOf(entries)
	}
	for range 100 {
		sum, slope := 0.0, 0.0
		for i := range entries {
			en := &entries[i]
			wants := en.used + en.claim
			full := level * en.weight
			filling := signs(full - wants)
			sum += math.Float64frombits(filling&math.Float64bits(full) | ^filling&math.Float64bits(wants))
			slope += math.Float64frombits(filling & math.Float64bits(en.weight))
		}
		left := room - sum
		switch {
		case math.Abs(left) <= roundingError:
			return level
		case slope > 0:
			level += left / slope
		case left > 0:
			return level // rounding: all of them have what they want
		default:
			level = room / weightsOf(entries)
		}
	}
	return level
}

func weightsOf(entries []entry) float64 {
	sum := 0.0
	for i := range entries {
		sum += entries[i].weight
	}
	return sum
}

// signs returns all ones if v is negative, else 0.
func signs(v float64) uint64 { return uint64(int64(math.Float64bits(v)) >> 63) }

// given returns what a flow gets at a level.
func given(level, weight, has, wants float64) float64 {
	return max(0, min(wants, level*weight-has))
}
