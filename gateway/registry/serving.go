package registry

import "slices"

// Serving returns the version that answers what no rule gives to another: an available version if one may serve,
// otherwise the one that queries wait for, or "" if there is none. "Which version serves" in the package comment has
// the order. Called again with its result as m.Serving, it returns the same.
func Serving(m *Model) string {
	if i := newView(m).serving(); i >= 0 {
		return m.Versions[i].Name
	}
	return ""
}

// Successor returns what [Serving] would return if no version were asleep. If it is a different version, it should be
// woken.
func Successor(m *Model) string {
	awake := *m
	awake.Versions = slices.Clone(m.Versions)
	for i := range awake.Versions {
		awake.Versions[i].Asleep = false
	}
	return Serving(&awake)
}

// serving returns the index of the version that serves, or -1 if there is none.
func (v *view) serving() int {
	// cold means that nothing serves, so that nothing is lost by waiting for the right version.
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

// Ranks of versions that could serve, lowest first. Of equals the newest serves.
const (
	rankNone = iota
	// Excluded by a rollback, or tried out by a rule: better than nothing.
	excludedAwaited
	excludedTroubled
	excludedReady
	targetAwaited
	targetTroubled
	targetReady
	// Named only by a function or a label: the policy does not select it to serve.
	namedAwaited
	namedTroubled
	namedReady
	// Awaited.
	awaitedTroubled
	requestedFailing
	awaited
	requestedAwaited
	// Available without a replica: no longer wanted, serving, wanted.
	leavingTroubled
	servingTroubled
	troubled
	// Available: no longer wanted, serving, wanted.
	leaving
	serving
	// Requested by name, available and without a replica: a version that was rolled back does not serve instead.
	requestedTroubled
	ready
	// Requested by name, while nothing serves: a start is no reason to serve another version.
	requestedFirst
	// Serving, while the requested version is not available.
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
	case i == v.requestedIndex && (x.Troubled || x.Failing):
		return requestedFailing
	case i == v.requestedIndex && cold:
		return requestedFirst
	case i == v.requestedIndex:
		return requestedAwaited
	case v.isTarget(x.Name):
		return targetAwaited
	case v.excluded(x.Name):
		return excludedAwaited
	case v.wants[i] == named:
		return namedAwaited
	case x.Troubled || x.Failing:
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
		return either(requestedReady, requestedTroubled)
	case x.Name == v.Serving && v.requested != "" && !x.Troubled && (!isExcluded || v.requestedComes()):
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

// requestedComes reports whether the version requested by name is loading, and has not failed to.
func (v *view) requestedComes() bool {
	if v.requestedIndex < 0 {
		return false
	}
	x := &v.Versions[v.requestedIndex]
	return x.State != Available && !x.Troubled && !x.Failing
}
