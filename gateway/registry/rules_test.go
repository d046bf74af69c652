package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// model parses "3 available serving, 4 loading troubled": names, states and flags.
func model(t testing.TB, versions string, traffic api.TrafficSpec, source api.VersionPolicy) *Model {
	traffic.Model = "digits"
	m := &Model{Traffic: &traffic, Default: source}
	for _, v := range strings.FieldsFunc(versions, func(r rune) bool { return r == ',' }) {
		words := strings.Fields(v)
		x := Version{Name: words[0], State: State(255)}
		for s := Declared; s <= Rejected; s++ {
			if string(s.Phase()) == words[1] {
				x.State = s
			}
		}
		if x.State == 255 {
			t.Fatalf("no state %q", words[1])
		}
		for _, w := range words[2:] {
			switch w {
			case "serving":
				m.Serving = x.Name
			case "named":
				x.Named = true
			case "gone":
				x.Gone = true
			case "troubled":
				x.Troubled = true
			case "failing":
				x.Failing = true
			case "unproven":
				x.Unproven = true
			case "resumable":
				x.Resumable = true
			default:
				t.Fatalf("no flag %q", w)
			}
		}
		m.Versions = append(m.Versions, x)
	}
	return m
}

var (
	all       = api.VersionPolicy{All: true}
	latest1   = api.VersionPolicy{Latest: 1}
	latest2   = api.VersionPolicy{Latest: 2}
	resources = api.TrafficSpec{Transition: api.TransitionResources}
	back43    = &api.RollbackSpec{From: "4", To: "3"}
)

// with returns a spec that f has changed.
func with(s api.TrafficSpec, f func(*api.TrafficSpec)) api.TrafficSpec {
	f(&s)
	return s
}

func specific(names ...string) api.TrafficSpec {
	return api.TrafficSpec{Versions: api.VersionPolicy{Specific: names}}
}

func shadowOf(version string) api.TrafficSpec {
	return api.TrafficSpec{Shadow: &api.VersionShare{Version: version, Percent: 5}}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule     string
		versions string
		traffic  api.TrafficSpec
		source   api.VersionPolicy
		aspired  string
		serving  string
		next     string
	}{
		// Which versions are wanted.
		{"nothing is declared", "", api.TrafficSpec{}, all, "", "", ""},
		{"a source without a policy wants all", "1 declared, 2 declared", api.TrafficSpec{}, api.VersionPolicy{}, "1 2", "2", "load 2, load 1"},
		{"numeric versions are ordered by number, after words", "9 declared, 10 declared, beta declared", api.TrafficSpec{}, latest1, "10", "10", "load 10"},
		{"two names with the same number are two versions", "1 declared, 01 declared", api.TrafficSpec{}, latest1, "1", "1", "load 1"},
		{"the spec's policy overrides the source's", "1 declared, 2 declared, 3 declared", api.TrafficSpec{Versions: latest2}, latest1, "2 3", "3", "load 3, load 2"},
		{"specific versions, if declared", "1 declared, 2 declared", specific("1", "7"), all, "1", "1", "load 1"},
		{"a rejected version does not count among the latest", "2 declared, 3 rejected, 4 rejected", api.TrafficSpec{}, latest1, "2 3 4", "2", "load 2"},
		{"a version that is tried out does not count either", "3 declared, 4 declared", shadowOf("4"), latest1, "3 4", "3", "load 4, load 3"},
		{"a deleted version is not wanted, even if named", "3 declared gone named, 4 declared", with(api.TrafficSpec{Serving: "3"}, func(s *api.TrafficSpec) { s.Labels = map[string]string{"stable": "3"} }), all, "4", "4", "load 4"},
		{"a version that a function names is loaded, but does not answer for the model", "3 declared, 5 available named", specific("3"), all, "3 5", "3", "load 3"},
		{"so is a version with a label", "3 declared, 5 available", with(specific("3"), func(s *api.TrafficSpec) { s.Labels = map[string]string{"canary": "5"} }), all, "3 5", "3", "load 3"},
		{"a pinned older version is also wanted", "3 declared, 5 declared", api.TrafficSpec{Serving: "3"}, latest1, "3 5", "3", "load 5, load 3"},

		// Rollbacks.
		{"a rollback keeps the bad version out of latest", "3 declared, 4 available serving", api.TrafficSpec{Rollback: back43}, latest1, "3", "4", "load 3"},
		{"a rollback excludes from all", "2 available, 3 available, 4 available serving", api.TrafficSpec{Rollback: back43}, all, "2 3", "3", ""},
		{"a rollback excludes from specific versions and labels", "3 available serving, 4 declared", with(specific("3", "4"), func(s *api.TrafficSpec) { s.Rollback, s.Labels = back43, map[string]string{"x": "4"} }), all, "3", "3", ""},
		{"a function that names the bad version keeps it loaded", "3 available serving, 4 available named", api.TrafficSpec{Rollback: back43}, latest1, "3 4", "3", ""},
		{"after a start, the bad version does not get the queries of the loading old one", "3 loading, 4 available named", api.TrafficSpec{Rollback: back43}, latest1, "3 4", "3", ""},
		{"a bad version that is still loading is unloaded", "3 declared, 4 loading serving", api.TrafficSpec{Rollback: back43}, latest1, "3", "3", "load 3, unload 4"},
		{"a newer version is loaded beside the old one", "3 available serving, 4 declared, 5 declared", api.TrafficSpec{Rollback: back43}, latest1, "3 5", "3", "load 5"},
		{"a newer version takes over", "3 available serving, 4 declared, 5 available", api.TrafficSpec{Rollback: back43}, latest1, "5", "5", ""},
		{"the bad version stays excluded then", "4 declared, 5 available serving", api.TrafficSpec{Rollback: back43}, all, "5", "5", ""},
		{"a newer version that is tried out does not take over", "3 available serving, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Rollback = back43 }), latest1, "3 5", "3", ""},
		{"if the old version is rejected and another can serve, the bad one is left", "2 available, 3 rejected, 4 available serving", api.TrafficSpec{Rollback: back43}, latest1, "2 3", "2", ""},
		{"if no other can serve, the bad version stays", "3 rejected, 4 available serving", api.TrafficSpec{Rollback: back43}, latest1, "3", "4", ""},

		// Which version serves.
		{"the newest available version", "3 available serving, 4 available", api.TrafficSpec{}, all, "3 4", "4", ""},
		{"while the pinned version has no replica, one that has", "3 available troubled, 4 available serving", api.TrafficSpec{Serving: "3"}, all, "3 4", "4", ""},
		{"the pinned version, even without replicas, if no other may serve", "3 available troubled serving, 4 available", with(shadowOf("4"), func(s *api.TrafficSpec) { s.Serving = "3" }), all, "3 4", "3", ""},
		{"while the version rolled back to has no replica, one that was not rolled back", "2 available, 3 available troubled serving, 4 available", api.TrafficSpec{Rollback: back43}, all, "2 3", "2", "unload 4"},
		{"the version rolled back to, even without replicas, before the bad one", "3 available troubled, 4 available serving", api.TrafficSpec{Rollback: back43}, latest1, "3", "3", ""},
		{"if the version rolled back to does not start, one that was not rolled back", "2 available, 3 loading failing, 4 available serving", api.TrafficSpec{Rollback: back43}, all, "2 3", "2", ""},
		{"at a start, another one if the pinned one does not start", "4 loading failing, 5 available", api.TrafficSpec{Serving: "4"}, all, "4 5", "5", ""},
		{"the serving version until the pinned one is available", "3 available serving, 4 loading, 5 available", api.TrafficSpec{Serving: "4"}, all, "3 4 5", "3", ""},
		{"the serving version if the pinned one was rejected", "3 available serving, 4 rejected, 5 available", api.TrafficSpec{Serving: "4"}, latest1, "4 5", "3", ""},
		{"another one if the serving version lost its replicas", "3 available serving troubled, 4 loading, 5 available", api.TrafficSpec{Serving: "4"}, all, "3 4 5", "5", ""},
		{"at a start, the pinned version is awaited", "4 loading, 5 available", api.TrafficSpec{Serving: "4"}, all, "4 5", "4", ""},
		{"at a start, a troubled pinned version is not awaited", "4 loading troubled, 5 available", api.TrafficSpec{Serving: "4"}, all, "4 5", "5", ""},
		{"of versions that only functions name, not the excluded one", "2 rejected, 3 loading named, 4 loading named", with(specific("2"), func(s *api.TrafficSpec) { s.Rollback = &api.RollbackSpec{From: "4", To: "3"} }), all, "2 3 4", "3", ""},
		{"not one that is tried out, if another can be awaited", "3 loading, 4 available", shadowOf("4"), all, "3 4", "3", ""},
		{"not even if the other lost its replicas", "3 available serving troubled, 4 available", shadowOf("4"), all, "3 4", "3", ""},
		{"one that is tried out, if there is no other", "3 rejected, 4 available", shadowOf("4"), all, "3 4", "4", ""},
		{"a serving version that becomes tried out serves until another can", "3 loading, 4 available serving", shadowOf("4"), all, "3 4", "4", ""},
		{"a version with replicas before one without", "3 available, 4 available serving troubled", api.TrafficSpec{}, all, "3 4", "3", ""},
		{"even one that is no longer wanted", "3 available serving, 4 available troubled", api.TrafficSpec{}, latest1, "4", "3", ""},
		{"the newest if none has replicas", "3 available serving troubled, 4 available troubled", api.TrafficSpec{}, all, "3 4", "4", ""},
		{"the newest awaited version if none is available", "3 validating, 4 declared", api.TrafficSpec{}, all, "3 4", "4", "load 4"},
		{"never a rejected version", "4 rejected", api.TrafficSpec{}, all, "4", "", ""},

		// Availability.
		{"the old version stays while the new one loads", "3 available serving, 4 validating", api.TrafficSpec{}, latest1, "4", "3", ""},
		{"the old version stays until the gateway has published the new one", "3 available serving, 4 available", api.TrafficSpec{}, latest1, "4", "4", ""},
		{"then it is unloaded", "3 available, 4 available serving", api.TrafficSpec{}, latest1, "4", "4", "unload 3"},
		{"the answering version is kept even if none was published", "3 available, 4 validating", api.TrafficSpec{}, latest1, "4", "3", ""},
		{"an unwanted load is cancelled", "3 available serving, 4 loading", specific("3"), latest1, "3", "3", "unload 4"},
		{"an unwanted load continues if nothing is available", "1 loading, 2 validating, 3 validating, 4 loading", api.TrafficSpec{}, latest1, "4", "4", "unload 1, unload 3"},
		{"an unwanted load is cancelled if a version was requested by name", "3 loading, 4 loading", with(specific("3"), func(s *api.TrafficSpec) { s.Serving = "3" }), all, "3", "3", "unload 4"},
		{"a troubled load does not continue", "3 loading troubled, 4 loading", api.TrafficSpec{}, latest1, "4", "4", "unload 3"},
		{"a deleted version serves until another can", "3 available serving gone, 4 loading", api.TrafficSpec{}, all, "4", "3", ""},
		{"if nothing is wanted, everything is unloaded", "3 available serving gone, 4 loading gone", api.TrafficSpec{}, all, "", "3", "unload 3, unload 4"},
		{"a draining version is resumed if possible", "3 draining resumable, 4 draining", api.TrafficSpec{}, all, "3 4", "4", "resume 3"},
		{"the requested versions are missing: the serving version stays", "2 available, 3 available serving", specific("7"), all, "", "3", "unload 2"},
		{"the requested versions are missing, the serving one was deleted", "3 available serving gone", specific("7"), all, "", "3", "unload 3"},

		// Resources.
		{"the old version is unloaded first", "3 available serving, 4 declared", resources, latest1, "4", "3", "unload 3"},
		{"until it has drained", "3 draining, 4 declared", resources, latest1, "4", "4", ""},
		{"then the new version is loaded", "3 declared, 4 declared", resources, latest1, "4", "4", "load 4"},
		{"of all applied versions, only the newest", "3 declared, 4 declared", resources, all, "4", "4", "load 4"},
		{"all versions, if requested", "3 declared, 4 declared", with(resources, func(s *api.TrafficSpec) { s.Versions = all }), latest1, "3 4", "4", "load 4, load 3"},
		{"a label does not keep a version loaded", "3 available serving, 4 declared", with(resources, func(s *api.TrafficSpec) { s.Labels = map[string]string{"stable": "3"} }), latest1, "4", "3", "unload 3"},
		{"a pinned version counts among the latest", "3 available serving, 4 declared", with(resources, func(s *api.TrafficSpec) { s.Serving = "3" }), latest1, "3", "3", ""},
		{"a rejected pinned version does not", "3 rejected, 4 declared", with(resources, func(s *api.TrafficSpec) { s.Serving = "3" }), latest1, "3 4", "4", "load 4"},
		{"the version rolled back to gives way", "3 available serving, 5 declared", with(resources, func(s *api.TrafficSpec) { s.Rollback = back43 }), latest1, "5", "3", "unload 3"},
		{"and returns if the newer one fails", "3 declared, 5 rejected", with(resources, func(s *api.TrafficSpec) { s.Rollback = back43 }), latest1, "3 5", "3", "load 3"},
		{"a shadow loads two versions", "3 declared, 4 declared", with(resources, func(s *api.TrafficSpec) { s.Shadow = shadowOf("4").Shadow }), latest1, "3 4", "3", "load 4, load 3"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m := model(t, c.versions, c.traffic, c.source)
			if got := strings.Join(slices.Sorted(maps.Keys(Aspired(m))), " "); got != c.aspired {
				t.Errorf("aspired %q, want %q", got, c.aspired)
			}
			if got := Serving(m); got != c.serving {
				t.Errorf("serving %q, want %q", got, c.serving)
			}
			var steps []string
			for _, a := range Next(m) {
				steps = append(steps, fmt.Sprintf("%s %s", a.Do, a.Version))
			}
			if got := strings.Join(steps, ", "); got != c.next {
				t.Errorf("next %q, want %q", got, c.next)
			}
		})
	}
}

func TestRollbackEnds(t *testing.T) {
	for _, c := range []struct {
		why, versions string
		traffic       api.TrafficSpec
		want          bool
	}{
		{"without a rollback nothing has ended", "5 available", api.TrafficSpec{}, false},
		{"the bad version does not end it", "3 available, 4 available", api.TrafficSpec{Rollback: back43}, false},
		{"a newer version that is loading does not", "3 available, 5 validating", api.TrafficSpec{Rollback: back43}, false},
		{"a newer version that is available does", "3 available, 5 available", api.TrafficSpec{Rollback: back43}, true},
		{"a deleted version does not", "3 available, 5 available gone", api.TrafficSpec{Rollback: back43}, false},
		{"a version that is tried out does not", "3 available, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Rollback = back43 }), false},
		{"a version that only a function names does not", "3 available, 5 available named", with(specific("3"), func(s *api.TrafficSpec) { s.Rollback = back43 }), false},
		{"no version beside a pinned one does", "3 available, 5 available", api.TrafficSpec{Serving: "3", Rollback: back43}, false},
		{"the pinned version does", "3 available, 5 available", api.TrafficSpec{Serving: "5", Rollback: back43}, true},
		{"a missing bad version does not", "3 available", api.TrafficSpec{Rollback: back43}, false},
	} {
		if got := newView(model(t, c.versions, c.traffic, all)).over; got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}

// TestStates checks every pair of states.
func TestStates(t *testing.T) {
	legal := map[[2]State]bool{
		{Declared, Loading}:   true,
		{Loading, Validating}: true, {Loading, Draining}: true, {Loading, Rejected}: true, {Loading, Declared}: true,
		{Validating, Available}: true, {Validating, Rejected}: true, {Validating, Draining}: true, {Validating, Loading}: true,
		{Available, Draining}: true,
		{Draining, Declared}:  true, {Draining, Available}: true,
		{Rejected, Declared}: true,
	}
	const beyond = Rejected + 3
	names, phases := map[string]bool{}, map[api.VersionPhase]bool{}
	for from := Declared; from <= beyond; from++ {
		for to := Declared; to <= beyond; to++ {
			if got := from.Next(to); got != legal[[2]State{from, to}] {
				t.Errorf("%s → %s: Next returns %v", from, to, got)
			}
		}
		names[from.String()] = true
		if from <= Rejected {
			phases[from.Phase()] = true
			if !strings.EqualFold(from.String(), string(from.Phase())) {
				t.Errorf("the phase of %s is %s", from, from.Phase())
			}
		}
	}
	if len(names) != int(beyond)+1 || len(phases) != int(Rejected)+1 {
		t.Errorf("%d names, %d phases", len(names), len(phases))
	}
	if got := fmt.Sprint(beyond.Phase(), " ", Verdict(9)); got != "declared undecided" {
		t.Errorf("undefined values: %s", got)
	}
}

// The spare is a version that has served, however many newer ones have not. If none has, it is the newest.
func TestSpareHasServed(t *testing.T) {
	for _, c := range []struct{ versions, aspired, spare string }{
		{"1 declared, 2 declared unproven, 3 declared unproven", "1 3", "1"},
		{"1 declared, 2 declared, 3 loading unproven serving", "2 3", "2"},
		{"1 declared unproven, 2 declared unproven, 3 loading unproven serving", "2 3", "2"},
		{"1 declared, 2 available serving, 3 loading unproven", "1 2 3", "1"},
		{"1 available serving, 2 loading unproven, 3 loading unproven", "1 3", ""},
	} {
		m := model(t, c.versions, api.TrafficSpec{}, latest1)
		m.Spare = true
		aspired := slices.Sorted(maps.Keys(Aspired(m)))
		if got := strings.Join(aspired, " "); got != c.aspired || Spare(m) != c.spare {
			t.Errorf("%s: %s are wanted and %q is the spare, expected %s and %q", c.versions, got, Spare(m), c.aspired, c.spare)
		}
	}
}
