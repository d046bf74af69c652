package mux_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/mux"
)

// plain is a runtime without capabilities. It records its calls.
type plain struct {
	name  string
	calls *[]string
	err   error
}

func (p *plain) note(call string) { *p.calls = append(*p.calls, p.name+" "+call) }

func (p *plain) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	p.note("starts " + l.Model.Name)
	return nil, p.err
}

func (p *plain) Close() error {
	p.note("closes")
	return p.err
}

// able has every capability.
type able struct {
	plain
	pids []int
}

func (a *able) Preload(launches []containers.Launch) {
	var names []string
	for _, l := range launches {
		names = append(names, l.Model.Name)
	}
	a.note("preloads [" + strings.Join(names, " ") + "]")
}

func (a *able) Zygotes() []int                        { return a.pids }
func (a *able) Unenforced(containers.Limits) []string { return []string{a.name + " says"} }
func (a *able) QuietUnsupported() error               { return a.err }
func (a *able) Sweep(context.Context) error {
	a.note("sweeps")
	return a.err
}

func launch(name, image string) containers.Launch {
	return containers.Launch{Model: api.ModelID{Name: name, Version: "1"}, Image: image, Command: []string{"serve"}}
}

func wantCalls(t *testing.T, calls []string, want ...string) {
	t.Helper()
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, expected %q", calls, want)
	}
}

// A launch goes to the first route that takes it and to no other, also if it fails there.
func TestStart(t *testing.T) {
	var calls []string
	broken := errors.New("the engine is away")
	images := &plain{name: "images", calls: &calls, err: broken}
	processes := &plain{name: "processes", calls: &calls}
	r := mux.New(mux.Route{Name: "images", Takes: mux.Image, Runtime: images}, mux.Route{Name: "processes", Runtime: processes})
	if _, err := r.Start(t.Context(), launch("a", "")); err != nil {
		t.Error(err)
	}
	if _, err := r.Start(t.Context(), launch("b", "b:1")); !errors.Is(err, broken) {
		t.Errorf("%v, expected what the route said", err)
	}
	wantCalls(t, calls, "processes starts a", "images starts b")
	if r.Chosen(launch("c", "c:1")) != containers.Runtime(images) || r.Chosen(launch("c", "")) != containers.Runtime(processes) {
		t.Error("Chosen names another runtime than Start uses")
	}
}

// A launch that no route takes fails permanently. The error lists the routes.
func TestNoRoute(t *testing.T) {
	r := mux.New(mux.Route{Name: "images", Takes: mux.Image, Runtime: &plain{}})
	_, err := r.Start(t.Context(), launch("a", ""))
	var permanent containers.Permanent
	if !errors.As(err, &permanent) || !permanent.Permanent() || !strings.Contains(err.Error(), `["serve"]`) || !strings.Contains(err.Error(), `["images"]`) {
		t.Errorf("%v: expected a permanent error that names the command and the runtimes", err)
	}
	if _, err := mux.New().Start(t.Context(), launch("a", "a:1")); err == nil || !strings.Contains(err.Error(), "the image a:1") {
		t.Errorf("%v: expected an error that names the image", err)
	}
	if r.Chosen(launch("a", "")) != nil {
		t.Error("a runtime is chosen for a launch that no route takes")
	}
}

// Close closes all runtimes, the last route's first, and returns every error.
func TestClose(t *testing.T) {
	var calls []string
	one, two := errors.New("one"), errors.New("two")
	r := mux.New(mux.Route{Runtime: &plain{name: "first", calls: &calls, err: one}}, mux.Route{Runtime: &plain{name: "second", calls: &calls, err: two}})
	if err := r.Close(); !errors.Is(err, one) || !errors.Is(err, two) {
		t.Errorf("%v, expected both errors", err)
	}
	wantCalls(t, calls, "second closes", "first closes")
}

// Capabilities of a whole runtime are forwarded to the runtimes that have them.
func TestForwarding(t *testing.T) {
	var calls []string
	images := &able{plain: plain{name: "images", calls: &calls, err: errors.New("away")}, pids: []int{7}}
	lacking := &plain{name: "lacking", calls: &calls}
	processes := &able{plain: plain{name: "processes", calls: &calls}, pids: []int{8, 9}}
	r := mux.New(
		mux.Route{Name: "images", Takes: mux.Image, Runtime: images},
		mux.Route{Name: "lacking", Takes: func(l containers.Launch) bool { return l.Model.Name == "odd" }, Runtime: lacking},
		mux.Route{Name: "processes", Runtime: processes},
	)
	r.Preload([]containers.Launch{launch("a", ""), launch("odd", ""), launch("b", "b:1"), launch("c", "")})
	r.Preload(nil)
	wantCalls(t, calls, "images preloads [b]", "processes preloads [a c]", "images preloads []", "processes preloads []")
	if got := r.Zygotes(); !slices.Equal(got, []int{7, 8, 9}) {
		t.Errorf("zygotes %v", got)
	}
	calls = nil
	if err := r.Sweep(t.Context()); !errors.Is(err, images.err) {
		t.Errorf("%v, expected the error of the one that failed", err)
	}
	wantCalls(t, calls, "images sweeps", "processes sweeps")
	if err := r.QuietUnsupported(); !errors.Is(err, images.err) {
		t.Errorf("%v, expected why launches of one runtime are not quiet", err)
	}
	images.err = nil
	if err := errors.Join(r.Sweep(t.Context()), r.QuietUnsupported()); err != nil {
		t.Error(err)
	}
}

// A capability for one launch is that of its own runtime.
func TestCapabilityOfALaunch(t *testing.T) {
	var calls []string
	r := mux.New(
		mux.Route{Name: "images", Takes: mux.Image, Runtime: &able{plain: plain{name: "images", calls: &calls}}},
		mux.Route{Name: "lacking", Runtime: mux.New(mux.Route{Name: "inner", Runtime: &plain{name: "lacking", calls: &calls}})},
	)
	limits, ok := containers.As[containers.LimitReporter](r, launch("a", "a:1"))
	if !ok || !reflect.DeepEqual(limits.Unenforced(containers.Limits{}), []string{"images says"}) {
		t.Errorf("limits of a launch with an image: %v, %v", limits, ok)
	}
	if _, ok := containers.As[containers.LimitReporter](r, launch("a", "")); ok {
		t.Error("the runtime of a launch without an image reports limits, although it cannot")
	}
	if _, ok := containers.As[containers.Preloader](r, launch("a", "")); ok {
		t.Error("the runtime of a launch without an image preloads, although it cannot: the mux only passes on")
	}
	if _, ok := containers.As[containers.Sweeper](r, launch("a", "a:1")); !ok {
		t.Error("the runtime of a launch with an image does not sweep, although it can")
	}
}

// Without a runtime that has a capability, its methods do nothing and succeed.
func TestNothingToForwardTo(t *testing.T) {
	var calls []string
	r := mux.New(mux.Route{Runtime: &plain{name: "plain", calls: &calls}})
	r.Preload([]containers.Launch{launch("a", "")})
	if err := errors.Join(r.Sweep(t.Context()), r.QuietUnsupported()); err != nil || r.Zygotes() != nil {
		t.Errorf("%v, zygotes %v", err, r.Zygotes())
	}
	wantCalls(t, calls)
}
