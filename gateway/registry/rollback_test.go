package registry

import (
	"slices"
	"strconv"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestRollbackAfterRollback: the second of two rollbacks goes further back, and does not admit what the first one
// excludes.
func TestRollbackAfterRollback(t *testing.T) {
	m := model(t, "1 available, 2 available, 3 available serving", api.TrafficSpec{}, all)
	first, err := Rollback(*m.Traffic, m, "", "2", "bad")
	if err != nil {
		t.Fatal(err)
	}
	m = model(t, "1 available, 2 available serving, 3 declared", first, all)
	second, err := Rollback(*m.Traffic, m, "", "3", "bad too")
	if err != nil {
		t.Fatal(err)
	}
	m = model(t, "1 available serving, 2 available, 3 declared", second, all)
	if aspired := Aspired(m); aspired["3"] || aspired["2"] || !aspired["1"] {
		t.Errorf("after %+v the versions %v are wanted, expected only 1: 3 and 2 were rolled back", *second.Rollback, aspired)
	}
}

// rollbackWorld is a world with operators' commands that tracks which versions were found bad.
type rollbackWorld struct {
	*randomWorld
	bad map[string]bool
}

// rollback rolls back to a named version, or to the one that the command selects.
func (o *rollbackWorld) rollback(t *rapid.T, to, previous string) error {
	next, err := Rollback(o.t, &o.m, to, previous, "bad")
	return o.back(t, next, err, to != "")
}

// back applies a rollback and records the versions that were left.
func (o *rollbackWorld) back(t *rapid.T, next api.TrafficSpec, err error, named bool) error {
	if err != nil {
		return err
	}
	left := []string{o.m.Serving}
	for i := range o.m.Versions {
		x, s, r := &o.m.Versions[i], o.t.Split, o.t.Rollout
		if x.State == Available && !x.Gone && (s != nil && s.Version == x.Name || r != nil && r.Version == x.Name) {
			left = append(left, x.Name)
		}
	}
	went := next.Rollback.To
	if o.bad[went] && !named && went != o.t.Serving {
		t.Fatalf("a rollback chose %s, which was rolled back:\n%s%+v", went, o, o.t)
	}
	delete(o.bad, went)
	for _, v := range left {
		if v != "" && newer(v, went) {
			o.bad[v] = true
		}
	}
	o.t = next
	return nil
}

func (o *rollbackWorld) promote(version string) error {
	next, err := Promote(o.t, &o.m, version)
	if err != nil {
		return err
	}
	if version == "" {
		version = triedVersion(&o.t, &o.m)
	}
	version, _ = Resolve(&o.t, o.names(), version)
	delete(o.bad, version)
	o.t = next
	return nil
}

// decide runs one command of an operator, or ends a roll-out as the gateway does.
func (o *rollbackWorld) decide(t *rapid.T) {
	share := func(label string) *api.VersionShare {
		if v := maybe(t, label, o.names()); v != "" {
			return &api.VersionShare{Version: v, Percent: 10}
		}
		return nil
	}
	switch rapid.IntRange(0, 12).Draw(t, "command") {
	case 0, 1, 2:
		_ = o.rollback(t, maybe(t, "to", o.names()), maybe(t, "previous", o.names()))
	case 3:
		_ = o.promote(maybe(t, "promote", o.names()))
	case 4:
		if o.t.Rollout != nil {
			next, err := RetreatRollout(o.t, &o.m, "bad")
			if o.back(t, next, err, false) != nil {
				o.t.Rollout = nil
			}
		}
	case 5:
		if o.t.Rollout != nil {
			_ = o.promote(o.t.Rollout.Version)
		}
	case 6:
		o.t.Serving = maybe(t, "serving", o.names())
	case 7:
		o.t.Split, o.t.Rollout = share("split"), nil
	case 8:
		o.t.Shadow = share("shadow")
	case 9:
		o.t.Rollout = nil
		if s := share("rollout"); s != nil {
			o.t.Split, o.t.Rollout = nil, &api.RolloutSpec{Version: s.Version}
		}
	case 10:
		o.t.Labels = map[string]string{}
		for _, l := range []string{labelStable, labelCanary} {
			if v := maybe(t, l, o.names()); v != "" {
				o.t.Labels[l] = v
			}
		}
	case 11:
		o.t.Versions = anyTraffic(t, o.names()).Versions
	case 12:
		if rapid.IntRange(0, 4).Draw(t, "clear") == 0 {
			o.t.Rollback, o.t.RolledBack = nil, nil
			clear(o.bad)
		}
	}
}

// TestRollbackHolds: whatever operators, sources and replicas do, a version that was rolled back is loaded and serves
// again only if it is named, if it was promoted since, or if there is no other.
func TestRollbackHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &rollbackWorld{&randomWorld{world: newWorld(api.TrafficSpec{})}, map[string]bool{}}
		o.t.Transition = rapid.SampledFrom([]string{api.TransitionAvailability, api.TransitionResources}).Draw(t, "transition")
		o.m.Default = rapid.SampledFrom([]api.VersionPolicy{{All: true}, {Latest: 1}, {Latest: 2}}).Draw(t, "default")
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			was := o.m.Serving
			if rapid.IntRange(0, 2).Draw(t, "actor") == 0 {
				o.decide(t)
			} else if e := rapid.IntRange(0, 14).Draw(t, "event"); e < 12 {
				o.occur(t, e, o.t.Transition == api.TransitionResources)
			} else if o.next > 0 { // declared again, repaired or not
				o.declare(strconv.Itoa(rapid.IntRange(1, o.next).Draw(t, "again")))
			}
			o.reconcile(-1)
			o.check(t, was)
		}
	})
}

// check fails if a bad version that is not named is wanted, or starts to serve.
func (o *rollbackWorld) check(t *rapid.T, was string) {
	aspired := Aspired(&o.m)
	for v := range o.bad {
		if v == o.t.Serving || slices.Contains(Targets(&o.t), v) {
			continue
		}
		if x := o.find(v); aspired[v] && !x.Named {
			t.Fatalf("%s is wanted although rolled back:\n%s%+v %+v", v, o, o.t, o.t.Rollback)
		}
		if o.m.Serving != v || was == v {
			continue
		}
		for _, y := range o.m.Versions {
			if y.Name != v && !excluded(&o.t, y.Name) && (y.State == Available || aspired[y.Name] && y.State != Rejected) {
				t.Fatalf("%s serves although rolled back, instead of %s:\n%s%+v %+v", v, y.Name, o, o.t, o.t.Rollback)
			}
		}
	}
}
