package containers

import (
	"context"
	"testing"
)

// Runtimes with one capability each. fakeRuntime has none.
type (
	preloading struct{ fakeRuntime }
	sweeping   struct{ fakeRuntime }
	limiting   struct{ fakeRuntime }
	hushing    struct{ fakeRuntime }
	choosing   struct {
		fakeRuntime
		images, others Runtime
	}
)

func (*preloading) Preload([]Launch)           {}
func (*preloading) Zygotes() []int             { return nil }
func (*sweeping) Sweep(context.Context) error  { return nil }
func (*limiting) Unenforced(l Limits) []string { return nil }
func (*hushing) QuietUnsupported() error       { return nil }
func (c *choosing) Chosen(l Launch) Runtime {
	if l.Image != "" {
		return c.images
	}
	return c.others
}

// has returns which capabilities the runtime that would start l has.
func has(r Runtime, l Launch) [4]bool {
	_, preloads := As[Preloader](r, l)
	_, sweeps := As[Sweeper](r, l)
	_, reports := As[LimitReporter](r, l)
	_, quiet := As[QuietReporter](r, l)
	return [4]bool{preloads, sweeps, reports, quiet}
}

func TestCapabilities(t *testing.T) {
	image := Launch{Image: "digits:1"}
	for _, c := range []struct {
		name    string
		runtime Runtime
		launch  Launch
		want    [4]bool
	}{
		{"none", &fakeRuntime{}, Launch{}, [4]bool{}},
		{"preload", &preloading{}, Launch{}, [4]bool{true, false, false, false}},
		{"sweep", &sweeping{}, Launch{}, [4]bool{false, true, false, false}},
		{"limits", &limiting{}, Launch{}, [4]bool{false, false, true, false}},
		{"quiet", &hushing{}, Launch{}, [4]bool{false, false, false, true}},
		{"of the chosen one", &choosing{images: &sweeping{}, others: &preloading{}}, Launch{}, [4]bool{true, false, false, false}},
		{"of the other", &choosing{images: &sweeping{}, others: &preloading{}}, image, [4]bool{false, true, false, false}},
		{"through two choosers", &choosing{images: &choosing{images: &limiting{}}}, image, [4]bool{false, false, true, false}},
		{"of none that is chosen", &choosing{}, Launch{}, [4]bool{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := has(c.runtime, c.launch); got != c.want {
				t.Errorf("preload, sweep, limits, quiet: %v, expected %v", got, c.want)
			}
		})
	}
}
