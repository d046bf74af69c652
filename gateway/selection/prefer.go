package selection

func init() {
	Register(Definition{
		Name: "prefer",
		Doc:  "asks the first declared candidate that the plan has room for",
		Make: func(Values) (Policy, error) { return prefer{named: "prefer"}, nil },
	})
}

// preferGain is what a candidate is worth, as a part of what the one before it is worth.
const preferGain = 0.9

// prefer believes the order in which the candidates are declared: the first is the best, and the others stand in for it when
// the plan has no room for it.
type prefer struct {
	AsksOne
	named
}

func (prefer) Select(q *Query, out *Selection) {
	var rank Vector // all equal: the order decides
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
