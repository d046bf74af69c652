package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// world is a driver that fulfils the caller's duties in the package comment, with replicas that tests make ready, pass,
// fail and die.
type world struct {
	m     Model
	t     api.TrafficSpec
	steps int // steps taken so far
	log   []string
}

func newWorld(t api.TrafficSpec) *world {
	w := &world{t: t}
	w.t.Model = "digits"
	w.m.Traffic = &w.t
	return w
}

func (w *world) find(name string) *Version {
	for i := range w.m.Versions {
		if w.m.Versions[i].Name == name {
			return &w.m.Versions[i]
		}
	}
	return nil
}

func (w *world) declare(names ...string) {
	for _, name := range names {
		switch x := w.find(name); {
		case x == nil:
			w.m.Versions = append(w.m.Versions, Version{Name: name})
		case x.State == Rejected:
			w.to(name, Declared)
			x.Gone = false
		default:
			x.Gone = false
		}
	}
}

// to makes a transition and panics if it is not legal.
func (w *world) to(name string, s State) {
	x := w.find(name)
	if x == nil || !x.State.Next(s) {
		panic(fmt.Sprintf("version %s: illegal step to %s: %+v", name, s, x))
	}
	if x.State == Available {
		x.Resumable = s == Draining
	} else if s != Available {
		x.Resumable = false
	}
	if s == Draining || s == Declared || s == Rejected {
		x.Troubled = false
	}
	x.State = s
}

// reconcile fulfils the duties until there is nothing left to do. If n is not negative it takes only the first n steps,
// as if the driver had been stopped.
func (w *world) reconcile(n int) {
	for range 100 {
		w.publish()
		w.m.Versions = slices.DeleteFunc(w.m.Versions, func(x Version) bool { return x.Gone && (x.State == Declared || x.State == Rejected) })
		actions := Next(&w.m)
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			if n == 0 {
				return
			}
			n--
			w.take(a)
		}
	}
	panic(fmt.Sprintf("reconciling does not end: %+v", w.m))
}

func (w *world) publish() {
	if s := Serving(&w.m); s != w.m.Serving {
		w.log = append(w.log, fmt.Sprintf("serving %s → %s", orNone(w.m.Serving), orNone(s)))
		w.m.Serving = s
	}
}

func (w *world) take(a Action) {
	w.log = append(w.log, a.Do.String()+" "+a.Version)
	w.steps++
	switch a.Do {
	case Load:
		w.to(a.Version, Loading)
		w.find(a.Version).Failing = false
	case Unload:
		w.to(a.Version, Draining)
	case Resume:
		if !w.find(a.Version).Resumable {
			panic("resumed a version that is not resumable: " + a.Version)
		}
		w.to(a.Version, Available)
	}
}

func (w *world) serving() *Version { return w.find(w.m.Serving) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// String returns one line for each version, newest first, with its state and flags.
// String returns the step's name in transcripts.
func (d StepKind) String() string {
	return [...]string{Load: "load", Unload: "unload", Resume: "resume"}[d]
}

func (w *world) String() string {
	aspired := Aspired(&w.m)
	var b strings.Builder
	for _, i := range newView(&w.m).newestFirst() {
		x := w.m.Versions[i]
		fmt.Fprintf(&b, "%s %s", x.Name, x.State.Phase())
		for _, f := range []struct {
			is   bool
			word string
		}{{aspired[x.Name], "aspired"}, {x.Gone, "gone"}, {x.Troubled, "troubled"}, {x.Failing, "failing"}, {Spare(&w.m) == x.Name, "spare"}, {x.Named, "named"}, {x.Name == w.m.Serving, "serving"}} {
			if f.is {
				b.WriteString(", " + f.word)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
