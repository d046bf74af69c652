package registry

import (
	"slices"
	"strconv"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// maybe draws one of the versions, a name that may not exist, or "".
func maybe(t *rapid.T, label string, names []string) string {
	if rapid.IntRange(0, 2).Draw(t, label+"?") > 0 {
		return ""
	}
	return rapid.SampledFrom(append([]string{"77"}, names...)).Draw(t, label)
}

// anyTraffic draws a spec, valid or not.
func anyTraffic(t *rapid.T, names []string) api.TrafficSpec {
	s := api.TrafficSpec{Model: "digits", Transition: rapid.SampledFrom([]string{"", api.TransitionAvailability, api.TransitionResources}).Draw(t, "transition")}
	switch rapid.IntRange(0, 3).Draw(t, "policy") {
	case 1:
		s.Versions.Latest = rapid.IntRange(1, 3).Draw(t, "latest")
	case 2:
		s.Versions.All = true
	case 3:
		s.Versions.Specific = rapid.SliceOfN(rapid.SampledFrom(append([]string{"77"}, names...)), 1, 3).Draw(t, "specific")
	}
	s.Serving = maybe(t, "serving", names)
	if v := maybe(t, "split", names); v != "" {
		s.Split = &api.VersionShare{Version: v, Percent: 10}
	}
	if v := maybe(t, "shadow", names); v != "" {
		s.Shadow = &api.VersionShare{Version: v, Percent: 10}
	}
	if v := maybe(t, "rollout", names); v != "" {
		s.Rollout = &api.RolloutSpec{Version: v}
	}
	if from, to := maybe(t, "from", names), maybe(t, "to", names); from != "" && to != "" {
		s.Rollback = &api.RollbackSpec{From: from, To: to}
	}
	if v := maybe(t, "rolled back", names); v != "" {
		s.RolledBack = []string{v}
	}
	s.Labels = map[string]string{}
	for _, l := range []string{labelStable, labelCanary} {
		if v := maybe(t, l, names); v != "" {
			s.Labels[l] = v
		}
	}
	return s
}

// TestAnyModel: for any model in any state, the decisions are consistent.
func TestAnyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &Model{}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "01", "2", "3", "10", "a", "b2"}), 0, 5, rapid.ID[string]).Draw(t, "names")
		for _, n := range names {
			m.Versions = append(m.Versions, Version{
				Name: n, State: State(rapid.IntRange(0, int(Rejected)).Draw(t, "state")), Named: rapid.IntRange(0, 4).Draw(t, "named") == 0,
				Gone: rapid.IntRange(0, 4).Draw(t, "gone") == 0, Troubled: rapid.Bool().Draw(t, "troubled"), Resumable: rapid.Bool().Draw(t, "resumable"),
				Failing: rapid.IntRange(0, 3).Draw(t, "failing") == 0, Unproven: rapid.Bool().Draw(t, "unproven"),
			})
		}
		spec := anyTraffic(t, names)
		m.Traffic, m.Default, m.Serving = &spec, api.VersionPolicy{Latest: rapid.IntRange(0, 2).Draw(t, "default")}, maybe(t, "now", names)

		aspired := Aspired(m)
		state := map[string]Version{}
		for _, x := range m.Versions {
			state[x.Name] = x
			if aspired[x.Name] && x.Gone {
				t.Errorf("%s is aspired although gone", x.Name)
			}
		}
		for _, a := range Next(m) {
			x, want := state[a.Version], aspired[a.Version]
			legal := map[StepKind]bool{Load: want && x.State == Declared, Resume: want && x.State == Draining && x.Resumable, Unload: !want && x.State.loaded()}
			if !legal[a.Do] {
				t.Errorf("step %v of %+v, aspired %v", a, x, want)
			}
		}
		checkServing(t, m, aspired, state)

		shuffled := *m
		shuffled.Versions = rapid.Permutation(m.Versions).Draw(t, "order")
		if Serving(&shuffled) != Serving(m) || !slices.Equal(Next(&shuffled), Next(m)) {
			t.Errorf("the order of the versions matters: serving %s, steps %v; or serving %s, steps %v", Serving(m), Next(m), Serving(&shuffled), Next(&shuffled))
		}
	})
}

func checkServing(t *rapid.T, m *Model, aspired map[string]bool, state map[string]Version) {
	s := Serving(m)
	again := *m
	again.Serving = s
	if twice := Serving(&again); twice != s {
		t.Errorf("serving is %q, then %q", s, twice)
	}
	if pin := state[m.Traffic.Serving]; pin.State == Available && !pin.Gone && s != pin.Name {
		if !pin.Troubled {
			t.Errorf("%s serves although %s is pinned and available", s, pin.Name)
		}
		if excluded(m.Traffic, s) {
			t.Errorf("%s serves although it was rolled back and %s is pinned", s, pin.Name)
		}
	}
	for _, x := range m.Versions {
		switch {
		case s == "" && (x.State == Available || aspired[x.Name] && x.State != Rejected):
			t.Errorf("no version serves although there is %+v", x)
		case s != "" && state[s].State == Rejected:
			t.Errorf("%s serves although rejected", s)
		}
	}
}

// randomWorld is a world with random events.
type randomWorld struct {
	*world
	next int
}

func (l *randomWorld) names() []string {
	var names []string
	for _, x := range l.m.Versions {
		names = append(names, x.Name)
	}
	return names
}

func (l *randomWorld) happen(t *rapid.T, resources bool) {
	l.occur(t, rapid.IntRange(0, 12).Draw(t, "event"), resources)
}

func (l *randomWorld) occur(t *rapid.T, event int, resources bool) {
	pick := func(ok func(x *Version) bool) *Version {
		var fit []*Version
		for i := range l.m.Versions {
			if ok(&l.m.Versions[i]) {
				fit = append(fit, &l.m.Versions[i])
			}
		}
		if len(fit) == 0 {
			return nil
		}
		return rapid.SampledFrom(fit).Draw(t, "version")
	}
	in := func(states ...State) func(*Version) bool {
		return func(x *Version) bool { return slices.Contains(states, x.State) }
	}
	step := func(x *Version, s State) {
		if x != nil {
			l.to(x.Name, s)
		}
	}
	switch event {
	case 0, 1:
		l.next++
		l.declare(strconv.Itoa(l.next))
	case 2, 3:
		step(pick(in(Loading)), Validating)
	case 4, 5:
		step(pick(in(Validating)), Available)
	case 6:
		step(pick(in(Loading, Validating)), Rejected)
	case 7:
		step(pick(in(Validating)), Loading)
	case 8, 9:
		step(pick(in(Draining)), Declared)
	case 10:
		if x := pick(in(Available, Loading)); x != nil {
			x.Troubled = !x.Troubled
			x.Failing = x.Troubled && rapid.Bool().Draw(t, "starts fail")
		}
	case 11:
		if x := pick(func(x *Version) bool { return !x.Gone }); x != nil {
			x.Gone = rapid.Bool().Draw(t, "delete")
			x.Named = !x.Gone && rapid.Bool().Draw(t, "named")
		}
	case 12:
		l.command(t, resources)
	}
}

func (l *randomWorld) command(t *rapid.T, resources bool) {
	next, err := l.t, error(nil)
	switch rapid.IntRange(0, 2).Draw(t, "command") {
	case 0:
		next = anyTraffic(t, l.names())
	case 1:
		next, err = Promote(l.t, &l.m, maybe(t, "promote", l.names()))
	case 2:
		next, err = Rollback(l.t, &l.m, maybe(t, "to", l.names()), maybe(t, "previous", l.names()), "bad")
	}
	if err != nil {
		return
	}
	next.Transition = api.TransitionAvailability
	if resources {
		next.Transition = api.TransitionResources
	}
	l.t = next
}

// running counts the versions that use memory, and the unwanted ones among them.
func (l *randomWorld) running() (all, unwanted, unwantedLoaded int) {
	aspired := Aspired(&l.m)
	for _, x := range l.m.Versions {
		if x.State.loaded() || x.State == Draining {
			all++
			if !aspired[x.Name] {
				unwanted++
				if x.State != Draining {
					unwantedLoaded++
				}
			}
		}
	}
	return all, unwanted, unwantedLoaded
}

// TestAvailability: for any sequence of events, with a driver that may be stopped between two steps, a version keeps
// serving once one does, as long as any is wanted; at most one unwanted version is loaded; and if everything succeeds
// in the end, exactly the wanted versions are loaded.
func TestAvailability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &randomWorld{world: newWorld(api.TrafficSpec{})}
		l.m.Default = rapid.SampledFrom([]api.VersionPolicy{{}, {All: true}, {Latest: 1}, {Latest: 2}}).Draw(t, "default")
		l.m.Spare = rapid.Bool().Draw(t, "spare")
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			was := l.serving() != nil && l.serving().State == Available
			l.happen(t, false)
			l.reconcile(rapid.IntRange(0, 2).Draw(t, "steps before it stopped"))
			l.reconcile(-1)
			if x := l.serving(); was && (x == nil || x.State != Available) && len(Aspired(&l.m)) > 0 {
				t.Fatalf("no version serves any more:\n%s%v", l, l.log)
			}
			if _, _, n := l.running(); n > 1 {
				t.Fatalf("%d unwanted versions are loaded:\n%s", n, l)
			}
		}
		l.converge(t)
	})
}

// TestResources: nothing is loaded while an unwanted version runs, and if one version is wanted at a time, never two
// run.
func TestResources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &randomWorld{world: newWorld(api.TrafficSpec{Transition: api.TransitionResources})}
		simple := rapid.Bool().Draw(t, "one version at a time")
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if before := l.t; simple {
				l.happen(t, true)
				if t := l.t; len(Targets(&t)) > 0 || t.Versions.All || len(t.Versions.Specific) > 0 || t.Versions.Latest > 1 || t.Rollback != nil && !newer(t.Rollback.From, t.Rollback.To) {
					l.t = before
				}
				for i := range l.m.Versions {
					l.m.Versions[i].Named = false
				}
			} else {
				l.happen(t, true)
			}
			for _, a := range Next(&l.m) {
				if _, unwanted, _ := l.running(); a.Do == Load && unwanted > 0 {
					t.Fatalf("%v while an unwanted version runs:\n%s", a, l)
				}
			}
			l.reconcile(-1)
			if all, _, _ := l.running(); simple && all > 1 {
				t.Fatalf("%d versions run:\n%s%v", all, l, l.log)
			}
		}
		l.converge(t)
	})
}

// converge lets all pending transitions succeed.
func (l *randomWorld) converge(t *rapid.T) {
	l.steps = 0
	for range 4*len(l.m.Versions) + 4 {
		for _, n := range l.names() {
			x := l.find(n)
			x.Troubled, x.Failing = false, false
			switch x.State {
			case Loading:
				l.to(n, Validating)
			case Validating:
				l.to(n, Available)
			case Draining:
				l.to(n, Declared)
			}
		}
		l.reconcile(-1)
	}
	if most := 2 * (len(l.m.Versions) + l.next); l.steps > most {
		t.Fatalf("%d steps, with %d versions", l.steps, len(l.m.Versions))
	}
	aspired := Aspired(&l.m)
	for i, x := range l.m.Versions {
		if x.State == Rejected {
			continue
		}
		if got := x.State == Available; got != aspired[x.Name] && !(got && l.stays(i)) {
			t.Fatalf("version %s is %s, aspired %v:\n%s%+v", x.Name, x.State, aspired[x.Name], l, l.t)
		}
		if excluded(&l.t, x.Name) && x.State == Available && aspired[x.Name] && !x.Named && x.Name != l.t.Serving && !slices.Contains(Targets(&l.t), x.Name) {
			t.Fatalf("version %s is loaded although rolled back:\n%s%+v", x.Name, l, l.t)
		}
	}
}

// stays reports whether an unwanted version serves because no other can: the version requested by name failed or is not
// declared, or no version that the policy selects is available.
func (l *randomWorld) stays(i int) bool {
	v := newView(&l.m)
	if l.m.Versions[i].Name != l.m.Serving || v.requestedIndex >= 0 {
		return false
	}
	if v.requested != "" {
		return true
	}
	for k, x := range l.m.Versions {
		if v.wants[k] == eligible && x.State == Available && !v.isTarget(x.Name) {
			return false
		}
	}
	return true
}
