package registry

import (
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Aspired returns the versions that are wanted now (see "Which versions are wanted" in the package comment). It
// includes a rejected version that would be wanted if it had passed.
func Aspired(m *Model) map[string]bool {
	v := newView(m)
	wanted := make(map[string]bool, len(v.wants))
	for i, w := range v.wants {
		if w != unwanted {
			wanted[m.Versions[i].Name] = true
		}
	}
	return wanted
}

// Spare returns the version that is kept asleep for the case that the serving one fails, or "" if there is none. It is
// wanted, and may serve. The caller keeps it without replicas as long as it does not.
func Spare(m *Model) string {
	if i := newView(m).spare; i >= 0 {
		return m.Versions[i].Name
	}
	return ""
}

// Targets returns, without duplicates, the versions that a model's rules try out beside the serving version: those of
// the split, the shadow and the roll-out. They serve only if no other version can.
func Targets(t *api.TrafficSpec) []string {
	var targets []string
	for _, s := range []*api.VersionShare{t.Split, t.Shadow} {
		if s != nil && !slices.Contains(targets, s.Version) {
			targets = append(targets, s.Version)
		}
	}
	if t.Rollout != nil && !slices.Contains(targets, t.Rollout.Version) {
		targets = append(targets, t.Rollout.Version)
	}
	return targets
}

// Resolve returns the version with that name, or else the version with that label. It returns false if that is not in
// versions.
func Resolve(t *api.TrafficSpec, versions []string, name string) (string, bool) {
	if slices.Contains(versions, name) {
		return name, true
	}
	labelled, ok := t.Labels[name]
	if !ok || !slices.Contains(versions, labelled) {
		return "", false
	}
	return labelled, true
}

// want says how a version is wanted.
type want uint8

const (
	unwanted want = iota
	// named: a function, a label or a rule names it. That does not make it answer for the model.
	named
	// eligible: the policy selects it, or an operator has requested that it serves.
	eligible
)

// view is a model with what follows from it, computed once.
type view struct {
	*Model
	wants     []want // by the index of Versions
	targets   []string
	resources bool
	// over means that there is a rollback and it has ended: a version newer than the one that was rolled back to, and
	// that was not rolled back, is available and may serve. A bad version that is not declared at the moment does not
	// end it: a directory that is read again, or is half copied, would bring it back.
	over bool
	// requested is the version requested by name: the pinned one, or the one that was rolled back to. It need not be
	// declared. requestedIndex is its index, or -1 if it is not declared or was rejected.
	requested      string
	requestedIndex int
	spare          int // the index of the spare version, or -1
}

func newView(m *Model) *view {
	v := &view{Model: m, wants: make([]want, len(m.Versions)), targets: Targets(m.Traffic), requestedIndex: -1, spare: -1}
	v.resources = m.Traffic.Transition == api.TransitionResources
	for i := range m.Versions {
		if x := &m.Versions[i]; x.Named && !x.Gone {
			v.wants[i] = named
		}
	}
	for _, name := range v.targets {
		v.markWanted(name, named)
	}
	// If two versions cannot be loaded at the same time, a version that a function or a rule names is still loaded, but
	// not one that only has a label.
	if !v.resources {
		for _, name := range m.Traffic.Labels {
			if !v.excluded(name) {
				v.markWanted(name, named)
			}
		}
	}
	pinned := v.markWanted(m.Traffic.Serving, eligible)
	v.applyPolicy(m.policy(v.resources), pinned)
	v.rolledBack(pinned)
	v.requestedIndex = v.find(v.requested)
	if v.requestedIndex >= 0 && m.Versions[v.requestedIndex].State == Rejected {
		v.requestedIndex = -1
	}
	v.markSpare()
	return v
}

// markSpare marks the version that serves and the newest one that may serve and is older: the last that is known to work. One that
// has never served is the spare only if none has.
func (v *view) markSpare() {
	if p := v.Traffic.Versions; !v.Spare || v.resources || p.Latest > 0 || p.All || len(p.Specific) > 0 {
		return
	}
	if i := v.find(v.Serving); i >= 0 && v.Versions[i].State == Available && !v.excluded(v.Serving) && !v.isTarget(v.Serving) {
		v.wants[i] = eligible
	}
	for _, unproven := range []bool{false, true} {
		for _, i := range v.newestFirst() {
			x := &v.Versions[i]
			if x.Gone || x.State == Rejected || x.Failing || v.excluded(x.Name) || v.isTarget(x.Name) || x.Unproven != unproven {
				continue
			}
			if v.Serving == "" && v.wants[i] == eligible || v.Serving != "" && !newer(v.Serving, x.Name) {
				continue // the first to serve, the one that serves, and newer ones
			}
			if v.wants[i] == unwanted { // one that is named, or selected by the policy, is awake
				v.spare = i
			}
			v.wants[i] = eligible
			return
		}
	}
}

// policy returns the policy that selects versions: the operator's, otherwise the source's. If two versions cannot be
// loaded at the same time, the source's policy is never "all".
func (m *Model) policy(resources bool) api.VersionPolicy {
	if p := m.Traffic.Versions; p.Latest > 0 || p.All || len(p.Specific) > 0 {
		return p
	}
	p := m.Default
	all := p.Latest <= 0 && len(p.Specific) == 0
	if all && resources {
		return api.VersionPolicy{Latest: 1}
	}
	p.All = all
	return p
}

// find returns the index of a declared version, or -1.
func (v *view) find(name string) int {
	for i := range v.Versions {
		if v.Versions[i].Name == name && !v.Versions[i].Gone {
			return i
		}
	}
	return -1
}

// markWanted marks a declared version as wanted and returns its index, or -1 if there is none.
func (v *view) markWanted(name string, w want) int {
	i := v.find(name)
	if i >= 0 {
		v.wants[i] = max(v.wants[i], w)
	}
	return i
}

func (v *view) isTarget(name string) bool { return slices.Contains(v.targets, name) }

// excluded reports whether a rollback excludes a version.
func (v *view) excluded(name string) bool { return excluded(v.Traffic, name) }

func excluded(t *api.TrafficSpec, name string) bool {
	b := t.Rollback
	return slices.Contains(t.RolledBack, name) || len(t.RolledBack) == 0 && b != nil && newer(name, b.To) && !newer(name, b.From)
}

// applyPolicy marks the versions that the policy selects as eligible. It does not count versions that a rollback
// excludes or that rules try out; the latter are wanted anyway.
func (v *view) applyPolicy(p api.VersionPolicy, pinned int) {
	switch {
	case len(p.Specific) > 0:
		for _, name := range p.Specific {
			if !v.excluded(name) {
				v.markWanted(name, eligible)
			}
		}
	case p.All:
		for i := range v.Versions {
			if x := &v.Versions[i]; !x.Gone && !v.excluded(x.Name) {
				v.wants[i] = eligible
			}
		}
	default:
		v.latest(p.Latest, pinned)
	}
}

// latest marks the n newest versions as eligible. A rejected version does not count but is marked. Otherwise, if it
// were declared again, it would be reloaded over and over. A failing version does not count either, and is marked
// because it is still tried.
//
// If two versions cannot be loaded at the same time, the pinned version counts, and a failing version is marked only
// if there are no others.
func (v *view) latest(n, pinned int) {
	if v.resources && pinned >= 0 && v.Versions[pinned].State != Rejected {
		n--
	} else {
		pinned = -1
	}
	failing := -1 // the newest of those that are not marked
	for _, i := range v.newestFirst() {
		x := &v.Versions[i]
		if n <= 0 {
			return
		}
		if x.Gone || i == pinned || v.excluded(x.Name) || v.isTarget(x.Name) {
			continue
		}
		if x.Failing && v.resources {
			if failing < 0 {
				failing = i
			}
			continue
		}
		v.wants[i] = eligible
		if x.State != Rejected && !x.Failing {
			n--
		}
	}
	if failing >= 0 && n > 0 {
		v.wants[failing] = eligible
	}
}

// rolledBack determines the version requested by name and whether the rollback is over. Until it is, it marks the
// version rolled back to as eligible. If two versions cannot be loaded at the same time, that version gives way as soon
// as a newer one is to be loaded.
func (v *view) rolledBack(pinned int) {
	v.requested = v.Traffic.Serving
	b := v.Traffic.Rollback
	if b == nil {
		return
	}
	coming := false
	for i := range v.Versions {
		x := &v.Versions[i]
		if !newer(x.Name, b.To) || v.excluded(x.Name) || x.Gone || v.wants[i] != eligible || v.isTarget(x.Name) {
			continue
		}
		if v.requested == "" || i == pinned { // beside a pinned version no other serves
			v.over = v.over || x.State == Available
			coming = coming || x.State != Rejected
		}
	}
	if v.requested == "" && !v.over && !(v.resources && coming) {
		v.requested = b.To
		if i := v.find(b.To); i >= 0 && !(v.resources && v.Versions[i].Failing) { // else as "latest" says
			v.wants[i] = eligible
		}
	}
}

// newestFirst returns the indices of all versions, newest first.
func (v *view) newestFirst() []int {
	order := make([]int, len(v.Versions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compare(v.Versions[b].Name, v.Versions[a].Name) })
	return order
}

// compare orders versions, and those with the same number, such as "1" and "01", alphabetically, so that the order is
// total.
func compare(a, b string) int {
	if c := api.CompareVersions(a, b); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func newer(a, b string) bool { return compare(a, b) > 0 }
