package selection

func init() {
	Register(Definition{
		Name: "single",
		Doc:  "asks only the first candidate",
		Make: func(Values) (Policy, error) { return single{named: "single"}, nil },
	})
}

// single asks candidate 0 or none: a function that names one model means that model.
type single struct {
	SingleCandidate
	named
}

func (single) Select(q *Query, out *Selection) {
	first := *q
	first.Allowed &= 1
	var weight Vector
	weight[0] = 1
	Draw(&first, &weight, out)
}

func (single) Shares(_ State, allowed Set, dst []float64) {
	clear(dst)
	if allowed.Has(0) {
		dst[0] = 1
	}
}

func (single) Gains(_ State, dst []float64) {
	clear(dst)
	dst[0] = 1
}
