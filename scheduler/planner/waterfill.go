package planner

import "math"

// flow is one claim on something of which there is less than is claimed: how much more is wanted by one of that weight,
// who has some already.
type flow struct{ weight, has, wants float64 }

// waterLevel is the level L at which as much is given as there is: Σ min(wants, max(0, L·weight − has)) = room. Who is
// below the level is filled up to it, or to what he wants: weighted max-min fairness (Bertsekas and Gallager, Data
// Networks, 1992, section 6.5.2). The sum of the wants must be larger than room.
//
// Three of weight 1 that want 10, 60 and 80 of 100: the level is 45, and they get 10, 45, 45. If the last has weight 2:
// 30, and they get 10, 30, 60.
//
// The sum grows with L in straight pieces, so that a step of Newton's method ends at the answer once the piece is found;
// where such a step leaves what is known to hold the answer, that is halved instead. No branch in the loop depends on the
// numbers: they are different at every resource, and a branch that is not foreseen takes as long as the loop.
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
			reached, filling := ^signs(above), signs(above-f.wants) // who gets something, and who not all that he wants
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
		if !(next > low && next < high) { // also NaN, where nobody is between
			next = low + (high-low)/2
			if next <= low || next >= high {
				return low
			}
		}
		level = next
	}
	return low
}

// takingLevel is the waterLevel of entries that may be taken from: of all that they have and claim. The answer is sought from
// below, or from a level above it, such as the last one; +Inf where none is known.
//
// The sum is concave here: from above, a step of Newton's method leads below the answer, and from below it does not lead
// beyond.
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
		case math.Abs(left) <= hair:
			return level
		case slope > 0:
			level += left / slope
		case left > 0:
			return level // by rounding, all of them have what they want
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

// signs is all ones for what is below 0, else none.
func signs(v float64) uint64 { return uint64(int64(math.Float64bits(v)) >> 63) }

// given is what a flow gets at a level.
func given(level, weight, has, wants float64) float64 {
	return max(0, min(wants, level*weight-has))
}
