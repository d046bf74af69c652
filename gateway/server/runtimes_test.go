package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/mux"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// ableRuntime has every capability, and replicas that never connect.
type ableRuntime struct {
	idleRuntime
	loud  error         // why launches are not quiet
	swept chan struct{} // receives for each sweep

	mu       sync.Mutex
	preloads [][]containers.Launch
}

func (r *ableRuntime) Preload(launches []containers.Launch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preloads = append(r.preloads, launches)
}

func (r *ableRuntime) Zygotes() []int { return []int{7} }

func (r *ableRuntime) Sweep(context.Context) error {
	r.swept <- struct{}{}
	return errors.New("the engine is away")
}

func (r *ableRuntime) Unenforced(l containers.Limits) []string {
	if l.MemoryBytes == 0 {
		return nil
	}
	return []string{"limits.memory is for show."}
}

func (r *ableRuntime) QuietUnsupported() error { return r.loud }

func newAble() *ableRuntime {
	return &ableRuntime{idleRuntime: *newIdle(), swept: make(chan struct{}, 16)}
}

// Models that need a capability each.
var (
	preloaded = strings.NewReplacer("name: m", "name: p", "run: {", "preload: [numpy]\nrun: {").Replace(model)
	imaged    = strings.NewReplacer("name: m", "name: i", "run: {command: [python, model.py], env: {A: b}}", "run: {image: \"digits:1\"}").Replace(model)
	limited   = strings.NewReplacer("name: m", "name: l", "run: {", "limits: {memory: 64MiB, pids: 64}\nrun: {").Replace(model)
)

// over is a gateway over a runtime, with models that need each capability, and its log.
func over(t *testing.T, rt containers.Runtime) (*Server, *observer.ObservedLogs) {
	t.Helper()
	core, lines := observer.New(zap.InfoLevel)
	s, _ := listening(t, Config{Runtime: rt, Logger: zap.New(core)})
	mustApply(t, s, preloaded, imaged, limited)
	mustApply(t, s, strings.Replace(preloaded, "name: p", "name: q", 1), strings.Replace(imaged, "name: i", "name: j", 1))
	return s, lines
}

// logged counts the lines that contain part.
func logged(lines *observer.ObservedLogs, part string) int {
	return lines.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, part) }).Len()
}

func unenforcedOf(t *testing.T, s *Server, name string) []string {
	t.Helper()
	statuses, err := s.Models(t.Context(), name)
	if err != nil || len(statuses) != 1 {
		t.Fatalf("%+v, %v", statuses, err)
	}
	return statuses[0].Capacity.Unenforced
}

// The messages of a gateway whose runtime lacks a capability.
const (
	noPreload = "the runtime cannot preload"
	noSweep   = "are not removed: the runtime cannot find them"
	noQuiet   = "the runtime does not report whether replicas that are loaded"
	isLoud    = "have the same priority as these"
)

// The capabilities of a runtime are used.
func TestARuntimeWithCapabilities(t *testing.T) {
	rt := newAble()
	rt.loud = errors.New("operation not permitted")
	s, lines := over(t, rt)
	<-rt.swept
	rt.mu.Lock()
	var models []string
	for _, launches := range rt.preloads {
		for _, l := range launches {
			models = append(models, l.Model.Name+" "+strings.Join(l.Preload, ","))
		}
	}
	rt.mu.Unlock()
	if len(models) != 1 || models[0] != "p numpy" && models[0] != "q numpy" {
		t.Errorf("preloaded %q, expected numpy once for all models that are alike", models)
	}
	if got := s.host.Preloaded(); !slices.Equal(got, []int{7}) {
		t.Errorf("zygotes %v", got)
	}
	if got := unenforcedOf(t, s, "l"); !slices.Equal(got, []string{"limits.memory is for show."}) {
		t.Errorf("unenforced %q", got)
	}
	for _, lack := range []string{noPreload, noSweep, noQuiet} {
		if logged(lines, lack) > 0 {
			t.Errorf("logged %q of a runtime that has the capability", lack)
		}
	}
	if n := logged(lines, isLoud); n != 1 {
		t.Errorf("that launches are not quiet was logged %d times", n)
	}
	if len(rt.swept) > 0 {
		t.Error("swept more than once")
	}
}

// A missing capability is logged once, or shown, and everything else works.
func TestARuntimeWithoutCapabilities(t *testing.T) {
	rt := newIdle()
	s, lines := over(t, rt)
	for _, lack := range []string{noPreload, noSweep, noQuiet} {
		if n := logged(lines, lack); n != 1 {
			t.Errorf("logged %d times, expected once: %q", n, lack)
		}
	}
	if got := s.host.Preloaded(); got != nil {
		t.Errorf("zygotes %v", got)
	}
	got := unenforcedOf(t, s, "l")
	if len(got) != 2 || !strings.HasPrefix(got[0], "limits.memory may not be enforced") || !strings.HasPrefix(got[1], "limits.pids may not be enforced") {
		t.Errorf("unenforced %q, expected a sentence for each limit", got)
	}
	if got := unenforcedOf(t, s, "p"); got != nil {
		t.Errorf("unenforced %q of a model without limits", got)
	}
	launched := map[string]containers.Launch{}
	for range 5 {
		l := <-rt.launched
		launched[l.Model.Name] = l
	}
	if l := launched["l"]; l.Limits.MemoryBytes != 64<<20 || l.Limits.PIDs != 64 || len(launched["q"].Preload) != 1 || launched["j"].Image != "digits:1" {
		t.Errorf("launched %+v: expected in launches what the models declare", launched)
	}
}

// Under a mux a capability is that of the runtime that starts the model.
func TestARuntimeOfTwo(t *testing.T) {
	images := newAble()
	s, lines := over(t, mux.New(mux.Route{Name: "images", Takes: mux.Image, Runtime: images}, mux.Route{Name: "bare", Runtime: newIdle()}))
	<-images.swept
	if logged(lines, noSweep) != 0 || logged(lines, noPreload) != 1 || logged(lines, noQuiet) != 0 || logged(lines, isLoud) != 0 {
		t.Errorf("%v", lines.All())
	}
	if got := unenforcedOf(t, s, "l"); len(got) != 2 {
		t.Errorf("unenforced %q: another runtime's report says nothing of this model", got)
	}
}
