package registry

import (
	"errors"
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
		{"an older one is", "3 available, 4 available serving", api.TrafficSpec{}, "3", api.TrafficSpec{Serving: "3"}, 0, ""},
		{"a newer one that was rejected or deleted does not count", "3 available, 4 rejected, 5 available gone", api.TrafficSpec{}, "3", api.TrafficSpec{}, 0, ""},
		{"rules and rollbacks end", "3 available serving, 4 available", with(shadowOf("4"), func(s *api.TrafficSpec) { s.Split, s.Rollout, s.Rollback = s.Shadow, rollout, back43 }), "4", api.TrafficSpec{}, 0, ""},
		{"also if a newer one than the bad one is promoted", "3 available serving, 4 declared, 5 available", api.TrafficSpec{Rollback: back43}, "5", api.TrafficSpec{}, 0, ""},
		{"an older one lets the bad one in by no means", "2 available, 3 available serving, 4 declared", api.TrafficSpec{Rollback: back43}, "2", api.TrafficSpec{Serving: "2", Rollback: back43}, 0, ""},
		{"one that is kept out comes in, and nothing newer", "2 available serving, 3 declared, 4 declared", api.TrafficSpec{Rollback: &api.RollbackSpec{From: "4", To: "2", Reason: "x"}}, "3", api.TrafficSpec{Serving: "3", Rollback: &api.RollbackSpec{From: "4", To: "3", Reason: "x"}}, 0, ""},
		{"without a name the one that is rolled out", "3 available serving, 4 available, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Rollout = rollout }), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"or has a part of the answers", "3 available serving, 4 available, 5 available", with(shadowOf("5"), func(s *api.TrafficSpec) { s.Split = &api.VersionShare{Version: "4"} }), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"or is compared", "3 available serving, 4 available, 5 available", shadowOf("4"), "", api.TrafficSpec{Serving: "4"}, 0, ""},
		{"or is the newest", "3 available serving, 4 declared", api.TrafficSpec{Serving: "3"}, "", api.TrafficSpec{}, 0, ""},
		{"named ones get it too", "3 available serving, 4 declared", specific("3"), "4", specific("3", "4"), 0, ""},
		{"once", "3 available serving, 4 declared", specific("3", "4"), "4", specific("3", "4"), 0, ""},
		{"stable moves and canary goes", "3 available serving, 4 declared", api.TrafficSpec{Labels: labels("stable", "3", "canary", "4", "old", "3")}, "4", api.TrafficSpec{Labels: labels("stable", "4", "old", "3")}, 0, ""},
		{"no label comes by itself, and another's canary stays", "3 available, 4 available", api.TrafficSpec{Labels: labels("canary", "4")}, "3", api.TrafficSpec{Serving: "3", Labels: labels("canary", "4")}, 0, ""},
		{"a label is a name", "3 available, 4 available", api.TrafficSpec{Labels: labels("canary", "4")}, "canary", api.TrafficSpec{Labels: labels()}, 0, ""},

		{"what is not there", "3 available serving, 4 rejected", api.TrafficSpec{}, "7", api.TrafficSpec{}, api.NotFound, `model digits has no version or label "7": there are versions 4 (rejected) and 3`},
		{"what was rejected", "3 available serving, 4 rejected", api.TrafficSpec{}, "4", api.TrafficSpec{}, api.Conflict, "digits@4 was rejected"},
		{"what was deleted", "3 available gone", api.TrafficSpec{}, "3", api.TrafficSpec{}, api.NotFound, `model digits has no version or label "3": there are no versions`},
		{"nothing at all", "", api.TrafficSpec{}, "", api.TrafficSpec{}, api.NotFound, "model digits has no version that could be promoted"},
		{"too many that are named", "3 available", specific(many...), "3", api.TrafficSpec{}, api.Conflict, "names 64 others"},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			before := *m.Traffic
			got, err := Promote(before, m, c.version)
			check(t, got, err, c.after, c.code, c.message)
			if diff := cmp.Diff(before, *m.Traffic); diff != "" {
				t.Errorf("the spec that was given is not what it was:\n%s", diff)
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

func TestRollback(t *testing.T) {
	back := func(from, to string) api.TrafficSpec {
		return api.TrafficSpec{Rollback: &api.RollbackSpec{From: from, To: to, Reason: "bad"}}
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
		{"to the one that served before", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "2", back("4", "2"), 0, ""},
		{"else to the next older one", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "", back("4", "3"), 0, ""},
		{"also if the one before is not there any more", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "", "1", back("4", "3"), 0, ""},
		{"or was rejected or deleted", "1 declared, 2 rejected, 3 declared gone, 4 available serving", api.TrafficSpec{}, "", "2", back("4", "1"), 0, ""},
		{"to the one that is named", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{}, "2", "3", back("4", "2"), 0, ""},
		{"or has the label", "2 declared, 3 declared, 4 available serving", api.TrafficSpec{Labels: labels("stable", "2")}, "stable", "", with(back("4", "2"), func(s *api.TrafficSpec) { s.Labels = labels("stable", "2") }), 0, ""},
		{"what is coming is what is rolled back, if nothing serves", "3 declared, 4 loading", api.TrafficSpec{}, "", "", back("4", "3"), 0, ""},
		{"a second one goes further back, not forward to the bad one", "2 declared, 3 available serving, 4 declared", api.TrafficSpec{Rollback: back43}, "", "4", back("4", "2"), 0, ""},
		{"also where what is tried out is one that is kept out", "1 available serving, 2 available, 3 declared", with(split("2"), func(s *api.TrafficSpec) { s.Rollback = &api.RollbackSpec{From: "3", To: "1"} }), "", "", back("3", "1"), 0, ""},
		{"or the bad one is not there at the moment", "2 declared, 3 available serving", api.TrafficSpec{Rollback: back43}, "", "", back("4", "2"), 0, ""},
		{"or a pin lets one serve that is kept out", "2 declared, 3 declared, 4 available serving, 5 declared", api.TrafficSpec{Serving: "4", Rollback: &api.RollbackSpec{From: "5", To: "3"}}, "", "", with(back("5", "3"), func(s *api.TrafficSpec) { s.Serving = "3" }), 0, ""},
		{"a split is undone, and not in favour of a bad one that is on its way out", "2 loading, 3 available serving, 4 available", with(split("4"), func(s *api.TrafficSpec) { s.Rollback = &api.RollbackSpec{From: "3", To: "2"} }), "", "", back("4", "2"), 0, ""},
		{"a newer one that is bad takes the place of the old one", "2 declared, 3 declared, 4 declared, 5 available serving", api.TrafficSpec{Rollback: back43}, "", "3", back("5", "3"), 0, ""},
		{"nor to one that an earlier one keeps out", "2 declared, 3 declared, 4 declared, 5 available serving", api.TrafficSpec{Rollback: &api.RollbackSpec{From: "4", To: "2"}}, "", "4", back("5", "2"), 0, ""},
		{"a pin moves", "3 declared, 4 available serving, 5 available", api.TrafficSpec{Serving: "4"}, "3", "", with(back("4", "3"), func(s *api.TrafficSpec) { s.Serving = "3" }), 0, ""},
		{"a newer one that would serve next is kept out too", "3 declared, 4 available serving, 5 available troubled", api.TrafficSpec{}, "3", "", back("5", "3"), 0, ""},
		{"labels", "3 declared, 4 available serving", api.TrafficSpec{Labels: labels("stable", "4", "canary", "4", "x", "4")}, "", "", with(back("4", "3"), func(s *api.TrafficSpec) { s.Labels = labels("stable", "3", "x", "4") }), 0, ""},
		{"a split is what is undone", "2 available, 3 available serving, 4 available", split("4"), "", "2", back("4", "3"), 0, ""},
		{"a roll-out too", "2 available, 3 available serving, 4 available, 5 declared", api.TrafficSpec{Rollout: &api.RolloutSpec{Version: "4"}}, "", "2", back("4", "3"), 0, ""},
		{"not one that never had an answer", "2 available, 3 available serving, 4 rejected", split("4"), "", "2", back("4", "2"), 0, ""},
		{"a shadow has answered nobody, and does not come instead either", "2 available, 3 available serving, 4 available", shadowOf("4"), "", "2", back("4", "2"), 0, ""},
		{"to the one that serves keeps out what is tried", "2 available, 3 available serving, 4 available, 5 loading", shadowOf("4"), "3", "", back("4", "3"), 0, ""},
		{"or all that is newer", "2 available, 3 available serving, 4 loading, 5 declared", api.TrafficSpec{}, "3", "", back("5", "3"), 0, ""},
		{"one that is deleted while it serves", "3 available, 4 available serving gone", api.TrafficSpec{}, "3", "", back("4", "3"), 0, ""},

		{"nothing serves", "3 rejected", api.TrafficSpec{}, "", "", api.TrafficSpec{}, api.Conflict, "no version of model digits serves, so that there is nothing to roll back from: there are version 3 (rejected) only"},
		{"nothing is older", "3 available serving, 4 declared", api.TrafficSpec{}, "", "", api.TrafficSpec{}, api.Conflict, "there is no version of model digits older than 3, which serves, to roll back to: there are versions 4 and 3"},
		{"to a newer one", "3 available serving, 4 declared", api.TrafficSpec{}, "4", "", api.TrafficSpec{}, api.Conflict, "xebec promote digits@4"},
		{"the one before is newer", "2 available, 3 available serving, 4 available troubled", api.TrafficSpec{Serving: "3"}, "", "4", api.TrafficSpec{}, api.Conflict, "name the version to roll back to"},
		{"to itself, the newest", "3 available serving", api.TrafficSpec{}, "3", "", api.TrafficSpec{}, api.Conflict, "digits@3 serves already"},
		{"to itself, when what is tried out is older", "2 available, 3 available serving, 5 loading", split("2"), "3", "", api.TrafficSpec{}, api.Conflict, "no newer version"},
		{"to one that was rejected", "2 rejected, 3 available serving", api.TrafficSpec{}, "2", "", api.TrafficSpec{}, api.Conflict, "digits@2 was rejected"},
		{"to none", "3 available serving", api.TrafficSpec{}, "1", "", api.TrafficSpec{}, api.NotFound, `has no version or label "1"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			before := *m.Traffic
			got, err := Rollback(before, m, c.to, c.previous, "bad")
			check(t, got, err, c.after, c.code, c.message)
			if err == nil {
				now := *m
				now.Traffic = &got
				if Over(&now) && before.Serving == "" {
					t.Error("it is over as soon as it begins")
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
		{"to the one that serves", "3 available, 4 available serving, 5 available", tries5(api.TrafficSpec{}), api.TrafficSpec{Rollback: back("5", "4")}, 0, ""},
		{"and what was left before stays out", "1 available, 3 available serving, 5 available, 6 declared", tries5(api.TrafficSpec{Rollback: back("6", "3")}), api.TrafficSpec{Rollback: back("6", "3")}, 0, ""},
		{"not to one that goes as soon as another is there", "3 loading, 4 available serving, 5 available", tries5(api.TrafficSpec{Rollback: back43}), api.TrafficSpec{Rollback: back("5", "3")}, 0, ""},
		{"nor past one that is pinned", "2 loading, 3 loading, 4 available serving, 5 available", tries5(api.TrafficSpec{Serving: "2", Rollback: back43}), api.TrafficSpec{Serving: "2", Rollback: back("5", "3")}, 0, ""},
		{"it was an older one", "5 available, 6 available serving", tries5(api.TrafficSpec{}), api.TrafficSpec{}, api.Conflict, "serves already"},
	} {
		t.Run(c.why, func(t *testing.T) {
			m := model(t, c.versions, c.before, all)
			got, err := TakeBack(*m.Traffic, m, "bad")
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
		t.Errorf("a reason of %d bytes, valid %v", len(r), utf8.ValidString(r))
	}
	m = model(t, "1 declared,2 declared,3 declared,4 declared,5 declared,6 declared,7 declared,8 declared,9 declared,10 declared,11 declared,12 declared", api.TrafficSpec{}, all)
	if got, want := listed(m), "versions 12, 11, 10, 9, 8, 7, 6, 5, 4, 3 and 2 older ones"; got != want {
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
