package registry

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/xebec-serving/xebec/api"
)

func labels(pairs ...string) map[string]string {
	l := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = pairs[i+1]
	}
	return l
}

func TestPromote(t *testing.T) {
	rollout := &api.RolloutSpec{Version: "4"}
	many := make([]string, api.MaxSpecific)
	for i := range many {
		many[i] = "x" + strings.Repeat("y", i)
	}
	for _, c := range []struct {
		why, versions string
		before        api.TrafficSpec
		version       string
		after         api.TrafficSpec
		code          api.Code
		message       string
	}{
		{"the newest is not pinned", "3 available serving, 4 available", api.TrafficSpec{Serving: "3"}, "4", api.TrafficSpec{}, 0, ""},
		{"an older one is pinned", "3 available, 4 available serving", api.TrafficSpec{}, "3", api.TrafficSpec{Serving: "3"}, 0, ""},
		{"a newer one that was rejected or deleted does not count", "3 available, 4 rejected, 5 available gone", api.TrafficSpec{}, "3", api.TrafficSpec{}, 0, ""},
		{"rules and rollbacks end", "3 available serving, 4 available", with(shadowOf("4"), func(s *api.TrafficSpec) { s.Split, s.Rollout, s.Rollback = s.Shadow, rollout, back43 }), "4", api.TrafficSpec{}, 0, ""},
		{"a version newer than the bad one ends the rollback", "3 available serving, 4 declared, 5 available", api.TrafficSpec{Rollback: back43}, "5", api.TrafficSpec{RolledBack: []string{"4"}}, 0, ""},
		{"the bad version is promoted later", "3 available, 4 declared, 5 available serving", api.TrafficSpec{RolledBack: []string{"2", "4"}}, "4", api.TrafficSpec{Serving: "4", RolledBack: []string{"2"}}, 0, ""},
		{"an older one keeps the bad one excluded", "2 available, 3 available serving, 4 declared", api.TrafficSpec{Rollback: back43}, "2", api.TrafficSpec{Serving: "2", Rollback: back43, RolledBack: []string{"4"}}, 0, ""},
		{"an excluded version is let in, and nothing newer", "2 available serving, 3 declared, 4 declared", api.TrafficSpec{Rollback: &api.RollbackSpec{From: "4", To: "2", Reason: "x"}}, "3", api.TrafficSpec{Serving: "3", Rollback: &api.RollbackSpec{From: "4", To: "3", Reason: "x"}, RolledBack: []string{"4"}}, 0, ""},
		{"without a name: the version of the roll-out", "3 available serving, 4 available, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Rollout = rollout }), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"without a name: the version of the split", "3 available serving, 4 available, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Split = &api.VersionShare{Version: "4"} }), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"without a name: the version of the shadow", "3 available serving, 4 available, 5 available", shadowOf("4"), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"without a name: the newest version", "3 available serving, 4 declared", api.TrafficSpec{Serving: "3"}, "", api.TrafficSpec{}, 0, ""},
		{"it is added to specific versions", "3 available serving, 4 declared", specific("3"), "4", specific("3", "4"), 0, ""},
		{"it is added once", "3 available serving, 4 declared", specific("3", "4"), "4", specific("3", "4"), 0, ""},
		{"stable moves and canary goes", "3 available serving, 4 declared", api.TrafficSpec{Labels: labels("stable", "3", "canary", "4", "old", "3")}, "4", api.TrafficSpec{Labels: labels("stable", "4", "old", "3")}, 0, ""},
		{"no label is added, and the canary label of another version stays", "3 available, 4 available", api.TrafficSpec{Labels: labels("canary", "4")}, "3", api.TrafficSpec{Serving: "3", Labels: labels("canary", "4")}, 0, ""},
		{"a label resolves to its version", "3 available, 4 available", api.TrafficSpec{Labels: labels("canary", "4")}, "canary", api.TrafficSpec{Labels: labels()}, 0, ""},

		{"an unknown version", "3 available serving, 4 rejected", api.TrafficSpec{}, "7", api.TrafficSpec{}, api.NotFound, `model digits has no version or label "7"; declared: versions 4 (rejected) and 3`},
		{"a rejected version", "3 available serving, 4 rejected", api.TrafficSpec{}, "4", api.TrafficSpec{}, api.Conflict, "digits@4 was rejected"},
		{"a deleted version", "3 available gone", api.TrafficSpec{}, "3", api.TrafficSpec{}, api.NotFound, `model digits has no version or label "3"; declared: no versions`},
		{"no versions", "", api.TrafficSpec{}, "", api.TrafficSpec{}, api.NotFound, "model digits has no version that can be promoted"},
		{"too many specific versions", "3 available", specific(many...), "3", api.TrafficSpec{}, api.Conflict, "names 64 others"},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			before := *m.Traffic
			got, err := Promote(before, m, c.version)
			check(t, got, err, c.after, c.code, c.message)
			if diff := cmp.Diff(before, *m.Traffic); diff != "" {
				t.Errorf("the given spec was changed:\n%s", diff)
			}
		})
	}
}

func check(t *testing.T, got api.TrafficSpec, err error, want api.TrafficSpec, code api.Code, message string) {
	t.Helper()
	if code != 0 {
		var e *api.Error
		if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, message) {
			t.Errorf("error %v, want %s with %q", err, code, message)
		}
		return
	}
	want.Model = "digits"
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, spec (-want +got):\n%s", err, diff)
	}
}

// between has the versions newer than a up to b.
func between(a, b string) (versions []string) {
	from, _ := strconv.Atoi(a)
	to, _ := strconv.Atoi(b)
	for v := from + 1; v <= to; v++ {
		versions = append(versions, strconv.Itoa(v))
	}
	return versions
}

func TestRollback(t *testing.T) {
	back := func(from, to string) api.TrafficSpec {
		return api.TrafficSpec{Rollback: &api.RollbackSpec{From: from, To: to, Reason: "bad"}, RolledBack: between(to, from)}
	}
	split := func(version string) api.TrafficSpec {
		return api.TrafficSpec{Split: &api.VersionShare{Version: version, Percent: 10}}
	}
	for _, c := range []struct {
		why, versions string
		before        api.TrafficSpec
		to, previous  string
		after         api.TrafficSpec
		code          api.Code
		message       string
	}{
		{"to the version that served before", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "2", back("4", "2"), 0, ""},
		{"without one, to the next older version", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "", back("4", "3"), 0, ""},
		{"the version before is no longer declared", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "1", back("4", "3"), 0, ""},
		{"the versions before were rejected or deleted", "1 declared, 2 rejected, 3 declared gone, 4 available serving", api.TrafficSpec{}, "", "2", back("4", "1"), 0, ""},
		{"to a named version", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "2", "3", back("4", "2"), 0, ""},
		{"to a label", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{Labels: labels("stable", "2")}, "stable", "", with(back("4", "2"), func(s *api.TrafficSpec) { s.Labels = labels("stable", "2") }), 0, ""},
		{"if nothing serves, the loading version is rolled back", "3 declared, 4 loading", api.TrafficSpec{}, "", "", back("4", "3"), 0, ""},
		{"a second rollback goes further back, not forward to the bad version", "2 declared, 3 available serving, 4 declared", api.TrafficSpec{Rollback: back43}, "", "4", back("4", "2"), 0, ""},
		{"an excluded version is tried out", "1 available serving, 2 available, 3 declared", with(split("2"), func(s *api.TrafficSpec) { s.Rollback = &api.RollbackSpec{From: "3", To: "1"} }), "", "", back("3", "1"), 0, ""},
		{"the bad version is not declared at the moment", "2 declared, 3 available serving", api.TrafficSpec{Rollback: back43}, "", "", back("4", "2"), 0, ""},
		{"a pinned version is excluded", "2 declared, 3 declared, 4 available serving, 5 declared", api.TrafficSpec{Serving: "4", Rollback: &api.RollbackSpec{From: "5", To: "3"}}, "", "", with(back("5", "3"), func(s *api.TrafficSpec) { s.Serving = "3" }), 0, ""},
		{"a split is undone, not in favour of a bad version that is leaving", "2 loading, 3 available serving, 4 available", with(split("4"), func(s *api.TrafficSpec) { s.Rollback = &api.RollbackSpec{From: "3", To: "2"} }), "", "", back("4", "2"), 0, ""},
		{"a newer bad version replaces the old one", "2 declared, 3 declared, 4 declared, 5 available serving", api.TrafficSpec{Rollback: back43}, "", "3", back("5", "3"), 0, ""},
		{"not to a version that an earlier rollback excludes", "2 declared, 3 declared, 4 declared, 5 available serving", api.TrafficSpec{Rollback: &api.RollbackSpec{From: "4", To: "2"}}, "", "4", back("5", "2"), 0, ""},
		{"what was rolled back earlier stays out", "2 declared, 3 declared, 4 available, 5 available serving", api.TrafficSpec{RolledBack: []string{"3"}}, "", "4", with(back("5", "4"), func(s *api.TrafficSpec) { s.RolledBack = []string{"3", "5"} }), 0, ""},
		{"not to one that was rolled back earlier", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{RolledBack: []string{"3"}}, "", "3", back("4", "2"), 0, ""},
		{"unless it is named", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{RolledBack: []string{"3"}}, "3", "", back("4", "3"), 0, ""},
		{"a pin moves", "3 declared, 4 available serving, 5 available", api.TrafficSpec{Serving: "4"}, "3", "", with(back("4", "3"), func(s *api.TrafficSpec) { s.Serving = "3" }), 0, ""},
		{"a newer version that would serve next is also excluded", "3 declared, 4 available serving, 5 available troubled", api.TrafficSpec{}, "3", "", back("5", "3"), 0, ""},
		{"labels", "3 declared, 4 available serving", api.TrafficSpec{Labels: labels("stable", "4", "canary", "4", "x", "4")}, "", "", with(back("4", "3"), func(s *api.TrafficSpec) { s.Labels = labels("stable", "3", "x", "4") }), 0, ""},
		{"a split is undone", "2 available, 3 available serving, 4 available", split("4"), "", "2", back("4", "3"), 0, ""},
		{"a roll-out is undone", "2 available, 3 available serving, 4 available, 5 declared", api.TrafficSpec{Rollout: &api.RolloutSpec{Version: "4"}}, "", "2", back("4", "3"), 0, ""},
		{"not a split whose version never answered", "2 available, 3 available serving, 4 rejected", split("4"), "", "2", back("4", "2"), 0, ""},
		{"a shadow's version never answered, and is also excluded", "2 available, 3 available serving, 4 available", shadowOf("4"), "", "2", back("4", "2"), 0, ""},
		{"to the serving version: excludes what is tried out", "2 available, 3 available serving, 4 available, 5 loading", shadowOf("4"), "3", "", back("4", "3"), 0, ""},
		{"to the serving version: excludes all that is newer", "2 available, 3 available serving, 4 loading, 5 declared", api.TrafficSpec{}, "3", "", back("5", "3"), 0, ""},
		{"a version that is deleted while it serves", "3 available, 4 available serving gone", api.TrafficSpec{}, "3", "", back("4", "3"), 0, ""},

		{"nothing serves", "3 rejected", api.TrafficSpec{}, "", "", api.TrafficSpec{}, api.Conflict, "no version of model digits serves, so there is nothing to roll back; declared: version 3 (rejected) only"},
		{"nothing is older", "3 available serving, 4 declared", api.TrafficSpec{}, "", "", api.TrafficSpec{}, api.Conflict, "model digits has no version older than the serving version 3 to roll back to; declared: versions 4 and 3"},
		{"to a newer version", "3 available serving, 4 declared", api.TrafficSpec{}, "4", "", api.TrafficSpec{}, api.Conflict, "xebec promote digits@4"},
		{"the version before is newer", "2 available, 3 available serving, 4 available troubled", api.TrafficSpec{Serving: "3"}, "", "4", api.TrafficSpec{}, api.Conflict, "name the version to roll back to"},
		{"to itself, the newest", "3 available serving", api.TrafficSpec{}, "3", "", api.TrafficSpec{}, api.Conflict, "digits@3 already serves"},
		{"to itself, when what is tried out is older", "2 available, 3 available serving, 5 loading", split("2"), "3", "", api.TrafficSpec{}, api.Conflict, "no newer version"},
		{"to a rejected version", "2 rejected, 3 available serving", api.TrafficSpec{}, "2", "", api.TrafficSpec{}, api.Conflict, "digits@2 was rejected"},
		{"to an unknown version", "3 available serving", api.TrafficSpec{}, "1", "", api.TrafficSpec{}, api.NotFound, `has no version or label "1"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			before := *m.Traffic
			got, err := Rollback(before, m, c.to, c.previous, "bad")
			check(t, got, err, c.after, c.code, c.message)
			if err == nil {
				now := *m
				now.Traffic = &got
				if newView(&now).over && before.Serving == "" {
					t.Error("the rollback is over as soon as it begins")
				}
			}
		})
	}
}

func TestTakeBack(t *testing.T) {
	tries5 := func(s api.TrafficSpec) api.TrafficSpec {
		s.Rollout = &api.RolloutSpec{Version: "5"}
		return s
	}
	back := func(from, to string) *api.RollbackSpec { return &api.RollbackSpec{From: from, To: to, Reason: "bad"} }
	for _, c := range []struct {
		why, versions string
		before, after api.TrafficSpec
		code          api.Code
		message       string
	}{
		{"to the serving version", "3 available, 4 available serving, 5 available", tries5(api.TrafficSpec{}), api.TrafficSpec{Rollback: back("5", "4"), RolledBack: []string{"5"}}, 0, ""},
		{"what was excluded before stays excluded", "1 available, 3 available serving, 5 available, 6 declared", tries5(api.TrafficSpec{Rollback: back("6", "3")}), api.TrafficSpec{Rollback: back("6", "3"), RolledBack: []string{"5", "6"}}, 0, ""},
		{"not to a version that leaves as soon as another is available", "3 loading, 4 available serving, 5 available", tries5(api.TrafficSpec{Rollback: back43}), api.TrafficSpec{Rollback: back("5", "3"), RolledBack: []string{"4", "5"}}, 0, ""},
		{"not past a pinned version", "2 loading, 3 loading, 4 available serving, 5 available", tries5(api.TrafficSpec{Serving: "2", Rollback: back43}), api.TrafficSpec{Serving: "2", Rollback: back("5", "3"), RolledBack: []string{"4", "5"}}, 0, ""},
		{"the version tried out was older", "5 available, 6 available serving", tries5(api.TrafficSpec{}), api.TrafficSpec{}, api.Conflict, "already serves"},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			got, err := RetreatRollout(*m.Traffic, m, "bad")
			check(t, got, err, c.after, c.code, c.message)
		})
	}
}

func TestLongReasonsAndLists(t *testing.T) {
	m := model(t, "3 available, 4 available serving", api.TrafficSpec{}, all)
	got, err := Rollback(*m.Traffic, m, "", "", "x"+strings.Repeat("é", api.MaxReasonBytes))
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Rollback.Reason; len(r) != api.MaxReasonBytes-1 || !utf8.ValidString(r) {
		t.Errorf("the reason has %d bytes, valid UTF-8: %v", len(r), utf8.ValidString(r))
	}
	m = model(t, "1 declared,2 declared,3 declared,4 declared,5 declared,6 declared,7 declared,8 declared,9 declared,10 declared,11 declared,12 declared", api.TrafficSpec{}, all)
	if got, want := listVersions(m), "versions 12, 11, 10, 9, 8, 7, 6, 5, 4, 3 and 2 older ones"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTargetsAndNames(t *testing.T) {
	s := with(shadowOf("4"), func(s *api.TrafficSpec) {
		s.Split, s.Rollout = &api.VersionShare{Version: "5"}, &api.RolloutSpec{Version: "4"}
		s.Labels = labels("stable", "3", "3", "5", "gone", "7")
	})
	if diff := cmp.Diff([]string{"5", "4"}, Targets(&s)); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"3": "3", "stable": "3", "gone": "", "7": "", "": "", "canary": ""} {
		if got, ok := Resolve(&s, []string{"3", "4", "5"}, name); got != want || ok != (want != "") {
			t.Errorf("%q means %q, %v; want %q", name, got, ok, want)
		}
	}
}
