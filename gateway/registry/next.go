package registry

// Next are the steps that can be taken now, in the order in which they are best taken: first what is taken back, then what is loaded, the
// newest first, then what is unloaded, the oldest first. It remembers nothing: asked again before anything has happened it says the same, and
// asked again after the steps have been taken, nothing (see the package comment, "The next steps").
func Next(m *Model) []Action {
	v := newView(m)
	order := v.newestFirst()
	var actions []Action
	canLoad := !v.resources || !v.unwantedRunning()
	for _, i := range order {
		if x := &m.Versions[i]; x.State == Draining && x.Resumable && v.wants[i] != unwanted {
			actions = append(actions, Action{x.Name, Resume})
		}
	}
	for _, i := range order {
		if x := &m.Versions[i]; canLoad && x.State == Declared && v.wants[i] != unwanted {
			actions = append(actions, Action{x.Name, Load})
		}
	}
	keep := v.keep()
	for k := len(order) - 1; k >= 0; k-- {
		i := order[k]
		if x := &m.Versions[i]; x.State.loaded() && v.wants[i] == unwanted && !keep(i) {
			actions = append(actions, Action{x.Name, Unload})
		}
	}
	return actions
}

// leftovers says whether something runs that is not wanted, as it must not before anything is loaded that cannot be loaded beside it.
func (v *view) unwantedRunning() bool {
	for i := range v.Versions {
		if s := v.Versions[i].State; v.wants[i] == unwanted && (s.loaded() || s == Draining) {
			return true
		}
	}
	return false
}

// keep says of versions that are not wanted whether they must stay loaded for now.
func (v *view) keep() func(i int) bool {
	answers := v.serving()
	if answers >= 0 && v.Versions[answers].State != Available {
		answers = -1
	}
	if v.wantsNothing() {
		// Versions were asked for of which none is there: most likely they are still to come, or somebody has mistyped. What serves goes
		// on, unless it was deleted.
		asked := len(v.policy(v.resources).Specific) > 0
		return func(i int) bool { return asked && i == answers && !v.Versions[i].Gone }
	}
	if v.resources {
		return func(int) bool { return false }
	}
	first := -1
	if answers < 0 {
		first = v.mostAdvanced()
	}
	return func(i int) bool {
		x := &v.Versions[i]
		// What serves by m.Serving goes only after the gateway has taken up the other one.
		return i == answers || i == first || x.Name == v.Serving && x.State == Available
	}
}

func (v *view) wantsNothing() bool {
	for _, w := range v.wants {
		if w != unwanted {
			return false
		}
	}
	return true
}

// furthest is the version, of those that are not wanted any more and are being loaded, that goes on because nothing is available: where versions
// come faster than they load, none would ever be. It is the one that is validated, or of equals the oldest; -1 where there is none, or where
// a version was asked for by name (or rolled back to), for then no other may answer.
func (v *view) mostAdvanced() int {
	first := -1
	if v.requested != "" {
		return first
	}
	for i := range v.Versions {
		x := &v.Versions[i]
		if v.wants[i] != unwanted || x.Gone || x.Troubled || x.State != Loading && x.State != Validating {
			continue
		}
		if first < 0 || x.State > v.Versions[first].State || x.State == v.Versions[first].State && newer(v.Versions[first].Name, x.Name) {
			first = i
		}
	}
	return first
}
