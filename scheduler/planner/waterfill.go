package planner

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
// where such a step leaves what is known to hold the answer, that is halved instead.
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
			switch {
			case above < 0:
			case above < f.wants:
				sum += above
				slope += f.weight
			default:
				sum += f.wants
			}
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

// given is what a flow gets at a level.
func given(level, weight, has, wants float64) float64 {
	return max(0, min(wants, level*weight-has))
}
