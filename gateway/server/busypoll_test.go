package server

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/api"
)

// Gateway and replicas spin on a machine with cores to spare, and say why they do not elsewhere.
func TestBusyPoll(t *testing.T) {
	const few, limited = "spinning takes more than 2 cores, and there are 2", "spinning takes more than 2 cores, and there are 1 (limits.cpu)"
	for _, c := range []struct {
		name              string
		cores             int
		model             string
		replica           time.Duration // how long a replica may spin
		gatewayOff, off   string        // why the gateway does not, and why replicas do not
		logged, loggedWhy string
	}{
		{"cores to spare", 4, "busy_poll: 50us", 50 * time.Microsecond, "", "", "busy polling", ""},
		{"two cores", 2, "busy_poll: 50us", 0, few, few, "busy polling is off", few},
		{"a replica of one core", 4, "busy_poll: 50us\nlimits: {cpu: 1.5}", 0, "", limited, "busy polling", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			s, rt, _ := alive(t, Config{BusyPoll: 100 * time.Microsecond, Cores: c.cores, Logger: zap.New(core)})
			mustApply(t, s, sleeper("m", c.model))
			until(t, "a replica starts", func() bool { return len(rt.processes("m", "1")) > 0 })
			if got := rt.processes("m", "1")[0].launch.BusyPoll; got != c.replica {
				t.Errorf("a replica may spin for %v, expected %v", got, c.replica)
			}
			if got, want := deployed(s, "m", "1").Status().BusyPoll, (&api.BusyPollStatus{Micros: 50, Off: c.off}); got == nil || *got != *want {
				t.Errorf("the model's status is %+v, expected %+v", got, want)
			}
			g, err := s.status.Gateway(context.Background())
			if want := (&api.BusyPollStatus{Micros: 100, Off: c.gatewayOff}); err != nil || g.BusyPoll == nil || *g.BusyPoll != *want {
				t.Errorf("the gateway's status is %+v, %v, expected %+v", g.BusyPoll, err, want)
			}
			entries := logs.FilterMessage(c.logged).All()
			if len(entries) != 1 {
				t.Fatalf("%d entries %q in the log, expected 1", len(entries), c.logged)
			}
			if why, _ := entries[0].ContextMap()["because"].(string); why != c.loggedWhy {
				t.Errorf("logged because %q, expected %q", why, c.loggedWhy)
			}
		})
	}
}

// Without a word about it nothing spins, and nothing is said.
func TestBusyPollIsOffByDefault(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	s, rt, _ := alive(t, Config{Cores: 64, Logger: zap.New(core)})
	mustApply(t, s, sleeper("m"))
	until(t, "a replica starts", func() bool { return len(rt.processes("m", "1")) > 0 })
	if got := rt.processes("m", "1")[0].launch.BusyPoll; got != 0 {
		t.Errorf("a replica may spin for %v", got)
	}
	if g, err := s.status.Gateway(context.Background()); err != nil || g.BusyPoll != nil || deployed(s, "m", "1").Status().BusyPoll != nil {
		t.Errorf("%+v, %v", g.BusyPoll, err)
	}
	if n := logs.FilterMessageSnippet("busy").Len(); n > 0 {
		t.Errorf("%d entries in the log", n)
	}
}

// The limit of a control group counts as well as GOMAXPROCS, and is rounded down.
func TestCores(t *testing.T) {
	if got := (Config{Cores: 3}).cores(); got != 3 {
		t.Errorf("%d cores, expected 3", got)
	}
	if got := (Config{}).cores(); got < 0 || got > 1<<16 {
		t.Errorf("%d cores found", got)
	}
	for _, c := range []struct {
		procs  int
		millis int64
		want   int
	}{{8, 8000, 8}, {2, 8000, 2}, {8, 2500, 2}, {8, 500, 0}} {
		if got := usable(c.procs, c.millis); got != c.want {
			t.Errorf("%d processors and %d thousandths of a core: %d cores, expected %d", c.procs, c.millis, got, c.want)
		}
	}
}
