package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Labels that promotions and rollbacks move. Other labels are left to users.
const (
	labelStable = "stable"
	labelCanary = "canary"
)

// maxListed is the most versions that a message lists, newest first.
const maxListed = 10

// Promote returns a model's traffic spec after promoting a version: the version serves, and the split, the shadow and
// the roll-out end. A rollback also ends, unless the version is older than the bad one. Other versions that were rolled
// back stay excluded; otherwise a bad version would serve if the promoted one failed or was unpinned.
//
// version may be a label. If it is empty, it is the version that is being tried out, otherwise the newest. The newest
// version is not pinned, so that later ones take over automatically; any other version is. If the spec lists specific
// versions, the version is added. The label "stable" moves to the version, if the label exists, and "canary" is removed
// if it is on it.
//
// m is the current model; its Traffic may or may not be t. Promote changes neither and shares nothing with them. The
// error is an *api.Error: NotFound for a version that is not declared, Conflict for one that was rejected or does not
// fit into the specific versions.
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
	admit(&t, m, version)
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

// admit changes what a spec says of rollbacks when a version is promoted: that version is not excluded any more, and
// the last rollback is over if it is not older than the bad one.
func admit(t *api.TrafficSpec, m *Model, version string) {
	b := t.Rollback
	if b == nil && len(t.RolledBack) == 0 {
		return
	}
	t.RolledBack = slices.DeleteFunc(rolledBack(t, m), func(v string) bool { return v == version })
	switch {
	case len(t.RolledBack) == 0:
		t.RolledBack, t.Rollback = nil, nil
	case b == nil:
	case api.CompareVersions(b.From, version) <= 0:
		t.Rollback = nil
	case newer(version, b.To):
		rest := *b
		rest.To = version
		t.Rollback = &rest
	}
}

// rolledBack returns the versions that a spec excludes, also if it names only the first and the last of them.
func rolledBack(t *api.TrafficSpec, m *Model) []string {
	all := slices.Clone(t.RolledBack)
	if b := t.Rollback; b != nil && len(all) == 0 {
		all = append(all, b.From)
		for i := range m.Versions {
			if name := m.Versions[i].Name; name != b.From && excluded(t, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// triedVersion returns the version that a rule tries out, in the order of how close the rules bring it to serving, or
// else the newest version.
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

// Rollback returns a model's traffic spec after a rollback to an older version. That version serves until a newer one
// comes. The declared versions that are newer than it, up to the bad one, are added to those that are not loaded until
// they are promoted. The split, the shadow and the roll-out end.
//
// If to is empty, Rollback undoes the last step: a split or roll-out of a newer version if there is one, otherwise the
// serving version. The latter is replaced by previous, the version that served before it (empty if unknown), or by the
// next older version if previous is not possible. to may be a label. It may also be the serving version: then the newer
// versions that are tried out are excluded or, if none is, all newer ones. A roll-out retreats in this way.
//
// The bad version is the newest of those that answer or would be next: the serving version, those that are tried out,
// and without a pin those that are available. If an earlier rollback excludes a newer version, that one stays the bad
// version: going further back admits nothing that was excluded before. If a version was pinned, the pin moves, because
// a pin means that nothing changes automatically. The label "stable" moves to the older version, if the label exists,
// and "canary" is removed if it is on an excluded version.
//
// m, t and errors are as in [Promote]. Conflict is also the error if there is nothing to roll back to.
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
	return rollBackTo(t, m, bad, to, reason), nil
}

// rollBackTo returns the traffic spec after a rollback from bad to an older version.
func rollBackTo(t api.TrafficSpec, m *Model, bad, to, reason string) api.TrafficSpec {
	out := append(rolledBack(&t, m), bad)
	if t.Rollback != nil && newer(t.Rollback.From, bad) {
		bad = t.Rollback.From
	}
	for i := range m.Versions {
		if name := m.Versions[i].Name; newer(name, to) && !newer(name, bad) {
			out = append(out, name)
		}
	}
	out = slices.DeleteFunc(out, func(v string) bool { return v == to })
	slices.SortFunc(out, compare)
	out = slices.Compact(out)
	t = clone(t)
	t.RolledBack = out[max(0, len(out)-api.MaxRolledBack):]
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

// RetreatRollout returns a model's traffic spec after the version that was tried out has proved worse: a rollback to the
// serving version or, if a rollback is about to replace that one, to its replacement. m, t and errors are as in
// [Promote].
func RetreatRollout(t api.TrafficSpec, m *Model, reason string) (api.TrafficSpec, error) {
	if m.Serving != "" && isLeaving(&t, m.Serving) {
		to := t.Rollback.To
		next := rollBackTo(t, m, badVersion(&t, m, m.Serving, to), to, reason)
		next.Serving = t.Serving // a pinned version stays pinned while it is loading
		return next, nil
	}
	return Rollback(t, m, m.Serving, "", reason)
}

// isLeaving reports whether a rollback excludes the serving version, so that it is replaced as soon as another can
// serve.
func isLeaving(t *api.TrafficSpec, serving string) bool {
	return excluded(t, serving) && serving != t.Serving
}

// previousVersion returns the version to roll back to if none was named.
func previousVersion(t *api.TrafficSpec, m *Model, from, previous string) (string, error) {
	// A serving version that only waits for its replacement by a rollback has been left already.
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

// triesNewer reports whether a version newer than from answers some of the queries.
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

// badVersion returns the newest version that a rollback should exclude, or to if there is none.
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
	if newer(from, bad) { // it is no longer declared, but may return
		bad = from
	}
	if bad == to && len(targets) == 0 {
		return highest
	}
	return bad
}

// resolveUsable returns the declared version that a name refers to, or an error if it cannot be used.
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

// newest returns the newest declared version that was not rejected, or "".
func newest(m *Model) string {
	best := ""
	for i := range m.Versions {
		if x := &m.Versions[i]; !x.Gone && x.State != Rejected && (best == "" || newer(x.Name, best)) {
			best = x.Name
		}
	}
	return best
}

// declared returns the declared versions, newest first.
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

// listVersions lists the declared versions for a message: "versions 5, 4 (rejected) and 3".
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

// truncateReason limits a reason to the length that a spec permits, at a rune boundary.
func truncateReason(reason string) string {
	if len(reason) > api.MaxReasonBytes {
		reason = strings.ToValidUTF8(reason[:api.MaxReasonBytes], "")
	}
	return reason
}

// clone copies what commands change.
func clone(t api.TrafficSpec) api.TrafficSpec {
	t.Labels = maps.Clone(t.Labels)
	t.Versions.Specific = slices.Clone(t.Versions.Specific)
	t.RolledBack = slices.Clone(t.RolledBack)
	return t
}
