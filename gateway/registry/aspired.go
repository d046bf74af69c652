package registry

import (
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Aspired are the versions that are wanted now, and only those (see the package comment, "What is wanted"). A rejected one that would be
// wanted had it passed is among them: it is wanted, and cannot be had.
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

// Over says whether the model's rollback has ended: a version newer than the one that was rolled back is available and may serve. Where
// there is no rollback, nothing has ended.
//
// That the bad version is not declared at the moment ends nothing: a directory that is read again, or half copied, would bring it back.
func Over(m *Model) bool {
	v := newView(m)
	return v.over
}

// Targets are the versions that a model's rules try out beside the one that serves, each once: those of the split, of the shadow and of the
// roll-out. They serve only where nothing else can.
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

// Resolve is the version that a name means: the version of that name, else the one that a label of that name stands on. It is false
// where that is none of versions.
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
	// named: a function, a label or a rule names it; that does not make it the model's answer.
	named
	// eligible: the policy counts it, or an operator has said that it is to serve.
	eligible
)

// view is what follows from a model, found once.
type view struct {
	*Model
	wants     []want // by the index of Versions
	targets   []string
	resources bool
	// over says that the rollback, of which there is one, has ended.
	over bool
	// wish is the version that was asked for by name: the pinned one, or the one that was rolled back to. It need not be there. at is its
	// index if it is or can be had, else -1.
	requested      string
	requestedIndex int
}

func newView(m *Model) *view {
	v := &view{Model: m, wants: make([]want, len(m.Versions)), targets: Targets(m.Traffic), requestedIndex: -1}
	v.resources = m.Traffic.Transition == api.TransitionResources
	for i := range m.Versions {
		if x := &m.Versions[i]; x.Named && !x.Gone {
			v.wants[i] = named
		}
	}
	for _, name := range v.targets {
		v.markWanted(name, named)
	}
	// Where two versions cannot be loaded at a time, what a function or a rule names must be, but not what merely has a label.
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
	return v
}

// policy is what chooses the versions: the operator's word, else what the source wants, which of a model of which two cannot be loaded at a
// time is never all.
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

// find is the index of a declared version, -1 where there is none.
func (v *view) find(name string) int {
	for i := range v.Versions {
		if v.Versions[i].Name == name && !v.Versions[i].Gone {
			return i
		}
	}
	return -1
}

// name makes a declared version wanted, and returns its index, -1 where there is none.
func (v *view) markWanted(name string, w want) int {
	i := v.find(name)
	if i >= 0 {
		v.wants[i] = max(v.wants[i], w)
	}
	return i
}

func (v *view) isTarget(name string) bool { return slices.Contains(v.targets, name) }

// excluded says whether a version is one that a rollback keeps out.
func (v *view) excluded(name string) bool { return excluded(v.Traffic, name) }

func excluded(t *api.TrafficSpec, name string) bool {
	b := t.Rollback
	return b != nil && newer(name, b.To) && !newer(name, b.From)
}

// apply makes what the policy counts eligible. Versions that a rollback keeps out are not counted, nor are those that rules try
// out: these are wanted besides.
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

// latest makes the n newest versions eligible. A rejected one has no place among them, but is wanted: were it not, and came it to be
// declared again, it would be loaded again for ever. Where two versions cannot be loaded at a time the pinned one takes one of the places.
func (v *view) latest(n, pinned int) {
	if v.resources && pinned >= 0 && v.Versions[pinned].State != Rejected {
		n--
	} else {
		pinned = -1
	}
	for _, i := range v.newestFirst() {
		x := &v.Versions[i]
		if n <= 0 {
			return
		}
		if x.Gone || i == pinned || v.excluded(x.Name) || v.isTarget(x.Name) {
			continue
		}
		v.wants[i] = eligible
		if x.State != Rejected {
			n--
		}
	}
}

// rolledBack finds what was asked for by name, whether the rollback is over, and while it is not makes the version that was rolled back to
// eligible. Where two versions cannot be loaded at a time that one makes way as soon as there is a newer one to be loaded.
func (v *view) rolledBack(pinned int) {
	v.requested = v.Traffic.Serving
	b := v.Traffic.Rollback
	if b == nil {
		return
	}
	coming := false
	for i := range v.Versions {
		x := &v.Versions[i]
		if !newer(x.Name, b.From) || x.Gone || v.wants[i] != eligible || v.isTarget(x.Name) {
			continue
		}
		if v.requested == "" || i == pinned { // a pin lets nobody else serve
			v.over = v.over || x.State == Available
			coming = coming || x.State != Rejected
		}
	}
	if v.requested == "" && !v.over && !(v.resources && coming) {
		v.requested = b.To
		v.markWanted(b.To, eligible)
	}
}

// newestFirst are the indices of all versions.
func (v *view) newestFirst() []int {
	order := make([]int, len(v.Versions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compare(v.Versions[b].Name, v.Versions[a].Name) })
	return order
}

// compare orders versions; those of the same number, as "1" and "01", by their letters, so that the order is always the same.
func compare(a, b string) int {
	if c := api.CompareVersions(a, b); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func newer(a, b string) bool { return compare(a, b) > 0 }
