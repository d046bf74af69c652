package poll

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A poller that expects events spins, and counts that. What other goroutines want, and the group's end, end a spin.
func TestSpins(t *testing.T) {
	began := time.Now()
	g, err := New(Config{Pollers: 1, Now: func() api.Nanos { return api.Nanos(time.Since(began)) }, BusyPoll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o, peer := pair(t, g, echo)
	for g.Counts().SpinsFound < 20 { // an hour passes between no two of these
		write(t, peer, "a")
		reads(t, peer, "a")
	}
	o.Wake()
	o.wants(t, "expired")
	if c := g.Counts(); c.SpinsVain != 1 {
		t.Errorf("%d spins in vain, expected that which Wake ended", c.SpinsVain)
	}
	write(t, peer, "b")
	reads(t, peer, "b")
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the group does not close")
	}
}

// Without BusyPoll, and where events are rare, nothing spins.
func TestNoSpins(t *testing.T) {
	for _, bound := range []time.Duration{0, time.Nanosecond} {
		began := time.Now()
		g, err := New(Config{Pollers: 1, Now: func() api.Nanos { return api.Nanos(time.Since(began)) }, BusyPoll: bound})
		if err != nil {
			t.Fatal(err)
		}
		_, peer := pair(t, g, echo)
		for range 50 {
			write(t, peer, "a")
			reads(t, peer, "a")
		}
		if c := g.Counts(); c.SpinsFound+c.SpinsVain > 0 {
			t.Errorf("with %v: %+v", bound, c)
		}
		g.Close()
	}
}
