package registry

// Next returns the steps that can be taken now, in the best order: first versions to resume, then versions to load,
// newest first, then versions to unload, oldest first. It has no memory. Called again before anything has happened it
// returns the same; called again after the steps have been taken, it returns none (see "The next steps" in the package
// comment).
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

// unwantedRunning reports whether an unwanted version runs. If two versions cannot be loaded at the same time, it must
// end first.
func (v *view) unwantedRunning() bool {
	for i := range v.Versions {
		if s := v.Versions[i].State; v.wants[i] == unwanted && (s.loaded() || s == Draining) {
			return true
		}
	}
	return false
}

// keep returns a function that says whether an unwanted version must stay loaded for now.
func (v *view) keep() func(i int) bool {
	answers := v.serving()
	if answers >= 0 && v.Versions[answers].State != Available {
		answers = -1
	}
	if v.wantsNothing() {
		// The requested versions are not declared: most likely they are still to come, or the name is mistyped. The
		// serving version stays, unless it was deleted.
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
		// The published version is unloaded only after the gateway has published another one.
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

// mostAdvanced returns, of the unwanted versions that are being loaded, the one that continues because nothing is
// available. Otherwise, if versions arrived faster than they load, none would ever become available. It is one that is
// validating, or the oldest of equals. It is -1 if there is none, or if a version was requested by name (or rolled back
// to), because then no other may serve.
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
