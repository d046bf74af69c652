package selection

func init() {
	Register(Definition{
		Name: "prefer",
		Doc:  "asks the first declared candidate that the plan has room for",
		Make: func(Values) (Policy, error) { return prefer{named: "prefer"}, nil },
	})
}

// preferGain is the ratio of each candidate's gain to the gain of the one before it.
const preferGain = 0.9

// prefer trusts the order of the declaration: the first candidate is the best, and the others replace it when the plan
// has no room for it. Package functions tells the plan what is known of their accuracy instead.
type prefer struct {
	SingleCandidate
	named
}

func (prefer) Select(q *Query, out *Selection) {
	var rank Vector // all equal: Best then follows the order of the candidates
	Best(q, &rank, out)
}

func (prefer) Shares(_ State, allowed Set, dst []float64) {
	clear(dst)
	if allowed != 0 {
		dst[allowed.First()] = 1
	}
}

func (prefer) Gains(_ State, dst []float64) {
	gain := 1.0
	for i := range dst {
		dst[i] = gain
		gain *= preferGain
	}
}
