package registry

import "slices"

// Serving is the version that is to answer what no rule gives to another: an available one wherever there is one that may, else the one
// that queries are to wait for; empty only where there is nothing. What it prefers is said in the package comment, "Who serves". Asked
// again with its answer as m.Serving, it answers the same.
func Serving(m *Model) string {
	if i := newView(m).serving(); i >= 0 {
		return m.Versions[i].Name
	}
	return ""
}

// Successor is whom [Serving] would name if nobody slept: the one that is to be woken where it is another.
func Successor(m *Model) string {
	awake := *m
	awake.Versions = slices.Clone(m.Versions)
	for i := range awake.Versions {
		awake.Versions[i].Asleep = false
	}
	return Serving(&awake)
}

// serving is the index of the version that is to answer, -1 where there is none.
func (v *view) serving() int {
	// cold: nothing serves, so that nobody loses anything by waiting for the right one.
	cold := true
	for i := range v.Versions {
		if x := &v.Versions[i]; x.Name == v.Serving && x.State == Available {
			cold = false
		}
	}
	best, highest := -1, rankNone
	for i := range v.Versions {
		r := v.rank(i, cold)
		if r > highest || r == highest && r > rankNone && newer(v.Versions[i].Name, v.Versions[best].Name) {
			best, highest = i, r
		}
	}
	return best
}

// The ranks of those that could answer, lowest first; of equals the newest answers.
const (
	rankNone = iota
	// kept out by a rollback, and what rules try out: better than nothing.
	excludedAwaited
	excludedTroubled
	excludedReady
	targetAwaited
	targetTroubled
	targetReady
	// named by a function or a label only: the policy does not want it to answer for the model.
	namedAwaited
	namedTroubled
	namedReady
	// to be waited for.
	awaitedTroubled
	awaited
	requestedAwaited
	// available without a replica, and not wanted any more, serving, wanted.
	leavingTroubled
	servingTroubled
	troubled
	// available; not wanted any more, serving, wanted.
	leaving
	serving
	ready
	// the one that was asked for by name, while nothing serves: a start is no reason to answer from another.
	requestedFirst
	// serving, while the one that was asked for is not available.
	servingMeanwhile
	requestedReady
)

func (v *view) rank(i int, cold bool) int {
	x := &v.Versions[i]
	switch {
	case x.State == Available && (!x.Asleep || x.Name == v.Serving):
		return v.rankAvailable(i)
	case v.wants[i] == unwanted || x.State == Rejected:
		return rankNone
	case i == v.requestedIndex && cold && !x.Troubled:
		return requestedFirst
	case i == v.requestedIndex:
		return requestedAwaited
	case v.isTarget(x.Name):
		return targetAwaited
	case v.excluded(x.Name):
		return excludedAwaited
	case v.wants[i] == named:
		return namedAwaited
	case x.Troubled:
		return awaitedTroubled
	}
	return awaited
}

func (v *view) rankAvailable(i int) int {
	x := &v.Versions[i]
	either := func(untroubled, troubled int) int {
		if x.Troubled {
			return troubled
		}
		return untroubled
	}
	isExcluded := v.excluded(x.Name)
	switch {
	case i == v.requestedIndex:
		return requestedReady
	case x.Name == v.Serving && v.requested != "" && !x.Troubled && (v.requestedIndex >= 0 || !isExcluded):
		return servingMeanwhile
	case v.wants[i] == eligible && !v.isTarget(x.Name):
		return either(ready, troubled)
	case x.Name == v.Serving:
		return either(serving, servingTroubled)
	case v.isTarget(x.Name):
		return either(targetReady, targetTroubled)
	case isExcluded:
		return either(excludedReady, excludedTroubled)
	case v.wants[i] == named:
		return either(namedReady, namedTroubled)
	}
	return either(leaving, leavingTroubled)
}
