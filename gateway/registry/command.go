package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// The labels that promotions and rollbacks move. Others stay where people have put them.
const (
	labelStable = "stable"
	labelCanary = "canary"
)

// maxListed is how many versions a message names, the newest.
const maxListed = 10

// Promote is a model's traffic spec after a version of it has been promoted: it serves, and the split, the shadow and the roll-out that there
// were are over. So is a rollback, unless the version is older than the bad one: what is newer than it and was kept out still is, or
// who promotes an old version would get the bad one when the old one fails or is pinned no more. version may be a label; empty, it is the version that is being tried out, else the newest. The newest
// version is not pinned, so that later ones follow by themselves; any other one is. Where versions are named one by one, it becomes
// one of them. The label "stable" moves to it, if there is one, and "canary" goes if it stood on it.
//
// m is the model as it is, with t as its traffic or not; nothing of either is changed, and nothing of them shared. The error is an
// *api.Error: NotFound for what is not declared, Conflict for what was rejected or has no place among the versions that are named.
func Promote(t api.TrafficSpec, m *Model, version string) (api.TrafficSpec, error) {
	if version == "" {
		version = triedVersion(&t, m)
	}
	version, err := resolveUsable(&t, m, version, "promoted")
	if err != nil {
		return t, err
	}
	t = clone(t)
	t.Split, t.Shadow, t.Rollout = nil, nil, nil
	t.Rollback = narrowRollback(t.Rollback, version)
	t.Serving = version
	if version == newest(m) {
		t.Serving = ""
	}
	if s := t.Versions.Specific; len(s) > 0 && !slices.Contains(s, version) {
		if len(s) >= api.MaxSpecific {
			return t, api.Errorf(api.Conflict,
				"%s@%s cannot be promoted: versions.specific already names %d others, the maximum is %d: remove one from the Traffic object first",
				t.Model, version, len(s), api.MaxSpecific)
		}
		t.Versions.Specific = append(t.Versions.Specific, version)
	}
	if _, ok := t.Labels[labelStable]; ok {
		t.Labels[labelStable] = version
	}
	if t.Labels[labelCanary] == version {
		delete(t.Labels, labelCanary)
	}
	return t, nil
}

// stillOut is what remains of a rollback when a version is promoted that may be one of those that it keeps out: that version comes in, and
// nothing that is newer.
func narrowRollback(b *api.RollbackSpec, version string) *api.RollbackSpec {
	if b == nil || api.CompareVersions(b.From, version) <= 0 {
		return nil
	}
	rest := *b
	if newer(version, rest.To) {
		rest.To = version
	}
	return &rest
}

// tried is the version that a rule tries out, in the order in which rules bring versions nearer to serving; else the newest one.
func triedVersion(t *api.TrafficSpec, m *Model) string {
	switch {
	case t.Rollout != nil:
		return t.Rollout.Version
	case t.Split != nil:
		return t.Split.Version
	case t.Shadow != nil:
		return t.Shadow.Version
	}
	return newest(m)
}

// Rollback is a model's traffic spec after a rollback to an older version: that one answers, and the versions above it, up to the one that was
// bad, are not loaded until a newer one serves or one of them is promoted. The split, the shadow and the roll-out that there were are over.
//
// Where to is empty, what is undone is the last step: a split or roll-out of a newer version, if there is one; else the serving version, in
// favour of previous, the one that served before it (empty: not known), or where that cannot be had of the next older one. to may
// be a label. It may also be the version that serves: then the newer ones that are tried out are kept out, or where nothing is tried out, all
// newer ones. (So a roll-out retreats.)
//
// The bad version is the newest of those that answer or would next: the serving one, those that are tried out, and without a pin those
// that are available. Where an earlier rollback keeps out one that is newer still, that one stays the bad one: to go further back lets in
// nothing that was left before. Where a version was pinned the pin moves, for who pins wants nothing to move by itself. The label "stable" moves to
// the older version, if there is one, and "canary" goes if it stood on what is kept out.
//
// m, t and errors are as with [Promote]; Conflict is also the error where there is nothing to go back to.
func Rollback(t api.TrafficSpec, m *Model, to, previous, reason string) (api.TrafficSpec, error) {
	now := *m
	now.Traffic = &t
	from := m.Serving
	if from == "" {
		from = Serving(&now)
	}
	if from == "" {
		return t, api.Errorf(api.Conflict, "no version of model %s serves, so there is nothing to roll back; declared: %s",
			t.Model, listVersions(m))
	}
	var err error
	if to == "" {
		to, err = previousVersion(&t, m, from, previous)
	} else {
		to, err = resolveUsable(&t, m, to, "rolled back to")
	}
	if err != nil {
		return t, err
	}
	if newer(to, from) {
		return t, api.Errorf(api.Conflict, "%s@%s is newer than the serving version %s: to move forward, promote it (xebec promote %s@%s)",
			t.Model, to, from, t.Model, to)
	}
	bad := badVersion(&t, m, from, to)
	if bad == to {
		return t, api.Errorf(api.Conflict, "%s@%s already serves, and there is no newer version to exclude: name an older one; declared: %s",
			t.Model, to, listVersions(m))
	}
	return rollBackTo(t, bad, to, reason), nil
}

// goBack is the traffic spec after a rollback from bad to an older version.
func rollBackTo(t api.TrafficSpec, bad, to, reason string) api.TrafficSpec {
	if t.Rollback != nil && newer(t.Rollback.From, bad) {
		bad = t.Rollback.From
	}
	t = clone(t)
	t.Split, t.Shadow, t.Rollout = nil, nil, nil
	t.Rollback = &api.RollbackSpec{From: bad, To: to, Reason: truncateReason(reason)}
	if t.Serving != "" {
		t.Serving = to
	}
	if _, ok := t.Labels[labelStable]; ok {
		t.Labels[labelStable] = to
	}
	if c, ok := t.Labels[labelCanary]; ok && excluded(&t, c) {
		delete(t.Labels, labelCanary)
	}
	return t
}

// TakeBack is a model's traffic spec after what is tried out has shown to be worse: a rollback to the version that serves or, where a rollback is
// about to take that one away, to the one that is to serve instead. m, t and errors are as with [Promote].
func TakeBack(t api.TrafficSpec, m *Model, reason string) (api.TrafficSpec, error) {
	if m.Serving != "" && isLeaving(&t, m.Serving) {
		to := t.Rollback.To
		next := rollBackTo(t, badVersion(&t, m, m.Serving, to), to, reason)
		next.Serving = t.Serving // who is pinned is on the way
		return next, nil
	}
	return Rollback(t, m, m.Serving, "", reason)
}

// departs says of the version that serves whether a rollback keeps it out, so that it goes as soon as another can answer.
func isLeaving(t *api.TrafficSpec, serving string) bool {
	return excluded(t, serving) && serving != t.Serving
}

// last is the version to go back to where none was named.
func previousVersion(t *api.TrafficSpec, m *Model, from, previous string) (string, error) {
	// One that serves only until the one that was rolled back to is available has been left already.
	if triesNewer(t, m, from) && !isLeaving(t, from) {
		return from, nil
	}
	older := ""
	for i := range m.Versions {
		x := &m.Versions[i]
		if x.Gone || x.State == Rejected || x.Name == from || excluded(t, x.Name) {
			continue
		}
		switch {
		case x.Name != previous:
			if newer(from, x.Name) && (older == "" || newer(x.Name, older)) {
				older = x.Name
			}
		case newer(from, x.Name):
			return previous, nil
		default:
			return "", api.Errorf(api.Conflict,
				"%s@%s, which served before, is newer than the serving version %s: name the version to roll back to, or promote that one (xebec promote %s@%s); declared: %s",
				t.Model, previous, from, t.Model, previous, listVersions(m))
		}
	}
	if older == "" {
		return "", api.Errorf(api.Conflict, "model %s has no version older than the serving version %s to roll back to; declared: %s",
			t.Model, from, listVersions(m))
	}
	return older, nil
}

// tries says whether a newer version than from answers a part of the queries.
func triesNewer(t *api.TrafficSpec, m *Model, from string) bool {
	for i := range m.Versions {
		x := &m.Versions[i]
		answers := t.Split != nil && t.Split.Version == x.Name || t.Rollout != nil && t.Rollout.Version == x.Name
		if answers && !x.Gone && x.State == Available && newer(x.Name, from) {
			return true
		}
	}
	return false
}

// worst is the newest version that a rollback is to keep out; to, where there is none.
func badVersion(t *api.TrafficSpec, m *Model, from, to string) string {
	targets := Targets(t)
	bad, highest := to, to
	for i := range m.Versions {
		x := &m.Versions[i]
		if x.Gone {
			continue
		}
		if newer(x.Name, highest) {
			highest = x.Name
		}
		answers := x.Name == from || slices.Contains(targets, x.Name) || t.Serving == "" && x.State == Available
		if answers && newer(x.Name, bad) {
			bad = x.Name
		}
	}
	if newer(from, bad) { // it is not declared any more, and may come again
		bad = from
	}
	if bad == to && len(targets) == 0 {
		return highest
	}
	return bad
}

// usable is the declared version that a name means, or says why it cannot be had.
func resolveUsable(t *api.TrafficSpec, m *Model, name, what string) (string, error) {
	if name == "" {
		return "", api.Errorf(api.NotFound, "model %s has no version that can be %s; declared: %s", t.Model, what, listVersions(m))
	}
	version, ok := Resolve(t, declared(m), name)
	if !ok {
		return "", api.Errorf(api.NotFound, "model %s has no version or label %q; declared: %s", t.Model, name, listVersions(m))
	}
	for i := range m.Versions {
		if x := &m.Versions[i]; x.Name == version && x.State == Rejected {
			return "", api.Errorf(api.Conflict,
				"%s@%s was rejected and cannot be %s: see the reason with xebec describe model %s, delete it and declare it again, or name another; declared: %s",
				t.Model, version, what, t.Model, listVersions(m))
		}
	}
	return version, nil
}

// newest is the newest declared version that was not rejected; empty where there is none.
func newest(m *Model) string {
	best := ""
	for i := range m.Versions {
		if x := &m.Versions[i]; !x.Gone && x.State != Rejected && (best == "" || newer(x.Name, best)) {
			best = x.Name
		}
	}
	return best
}

// declared are the declared versions, newest first.
func declared(m *Model) []string {
	var names []string
	for i := range m.Versions {
		if !m.Versions[i].Gone {
			names = append(names, m.Versions[i].Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return compare(b, a) })
	return names
}

// listed is what there is, for people: "versions 5, 4 (rejected) and 3".
func listVersions(m *Model) string {
	names := declared(m)
	if len(names) == 0 {
		return "no versions"
	}
	more := len(names) - maxListed
	if more > 0 {
		names = names[:maxListed]
	}
	for i := range m.Versions {
		if x := &m.Versions[i]; x.State == Rejected {
			if k := slices.Index(names, x.Name); k >= 0 {
				names[k] += " (rejected)"
			}
		}
	}
	switch n := len(names); {
	case more > 0:
		return fmt.Sprintf("versions %s and %d older ones", strings.Join(names, ", "), more)
	case n == 1:
		return "version " + names[0] + " only"
	default:
		return "versions " + strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

// cut keeps a reason within what a spec may have, whole runes of it.
func truncateReason(reason string) string {
	if len(reason) > api.MaxReasonBytes {
		reason = strings.ToValidUTF8(reason[:api.MaxReasonBytes], "")
	}
	return reason
}

// clone shares nothing that commands change.
func clone(t api.TrafficSpec) api.TrafficSpec {
	t.Labels = maps.Clone(t.Labels)
	t.Versions.Specific = slices.Clone(t.Versions.Specific)
	return t
}
