package takeover

import (
	"fmt"
	"strings"
	"testing"
)

// transcript drives a machine and writes what it does.
func transcript(m *Machine, all ...Event) string {
	var b strings.Builder
	for _, e := range all {
		action, err := m.Next(e)
		fmt.Fprintf(&b, "%s: %s", e, action)
		if err != nil {
			b.WriteString(" (violation)")
		}
		b.WriteString("; ")
	}
	return b.String() + m.State().String()
}

func TestTranscripts(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *Machine
		in   []Event
		want string
	}{
		{"a takeover, the old side", Giver(), []Event{GotHello, Done, GotReady, Done, GotServing, Gone},
			"hello: prepare; done: welcome; ready: release; done: wait; serving: drain; gone: wait; served"},
		{"a takeover, the new side", Taker(), []Event{GotWelcome, Done, GotRelease, Done, Done, Gone},
			"welcome: load; done: ready; release: take; done: serve; done: wait; gone: wait; served"},
		{"there is no room", Giver(), []Event{GotHello, Failed}, "hello: prepare; failed: refuse; ended"},
		{"the new process does not load", Taker(), []Event{GotWelcome, Failed}, "welcome: load; failed: give up; ended"},
		{"and its end allows changes again", Giver(), []Event{GotHello, Done, GotAbort}, "hello: prepare; done: welcome; abort: resume; ended"},
		{"it ends while the copy is made", Giver(), []Event{GotHello, Gone, Done, Gone}, "hello: prepare; gone: wait; done: welcome; gone: resume; ended"},
		{"it dies with the store", Giver(), []Event{GotHello, Done, GotReady, Done, Died}, "hello: prepare; done: welcome; ready: release; done: wait; died: reclaim; ended"},
		{"it hangs with the store", Giver(), []Event{GotHello, Done, GotReady, Done, Expired}, "hello: prepare; done: welcome; ready: release; done: wait; expired: reclaim; ended"},
		{"the store cannot be let go", Giver(), []Event{GotHello, Done, GotReady, Failed}, "hello: prepare; done: welcome; ready: release; failed: reclaim; ended"},
		{"the old process dies while the new one loads", Taker(), []Event{GotWelcome, Died, Done, Done, Done},
			"welcome: load; died: wait; done: take; done: serve; done: wait; served"},
		{"it dies while it writes what was learned", Taker(), []Event{GotWelcome, Done, Died, Done, Done}, "welcome: load; done: ready; died: take; done: serve; done: wait; served"},
		{"it has closed the connection and lives", Taker(), []Event{GotWelcome, Done, Gone}, "welcome: load; done: ready; gone: give up; ended"},
		{"the store cannot be taken", Taker(), []Event{GotWelcome, Done, GotRelease, Failed}, "welcome: load; done: ready; release: take; failed: give up; ended"},
		{"ready before the welcome", Giver(), []Event{GotReady}, "ready: wait (violation); ended"},
		{"a good canary, the old side", GiverWithCanary(), []Event{GotHello, Done, GotReady, Good, Done, GotServing},
			"hello: prepare; done: welcome; ready: try; good: release; done: wait; serving: drain; served"},
		{"a good canary, the new side", Taker(), []Event{GotWelcome, Done, GotTry, GotRelease, Done, Done},
			"welcome: load; done: ready; try: try; release: take; done: serve; done: wait; served"},
		{"a bad canary, the old side", GiverWithCanary(), []Event{GotHello, Done, GotReady, Bad, GotAbort, Gone},
			"hello: prepare; done: welcome; ready: try; bad: send back; abort: wait; gone: wait; ended"},
		{"a bad canary, the new side", Taker(), []Event{GotWelcome, Done, GotTry, GotAbort}, "welcome: load; done: ready; try: try; abort: return; ended"},
		{"a bad canary does not end", GiverWithCanary(), []Event{GotHello, Done, GotReady, Bad, Expired}, "hello: prepare; done: welcome; ready: try; bad: send back; expired: wait; ended"},
		{"the canary dies", GiverWithCanary(), []Event{GotHello, Done, GotReady, Died}, "hello: prepare; done: welcome; ready: try; died: resume; ended"},
		{"the old process dies during the canary", Taker(), []Event{GotWelcome, Done, GotTry, Died, Done, Done},
			"welcome: load; done: ready; try: try; died: take; done: serve; done: wait; served"},
		{"the gateway stops during the canary", GiverWithCanary(), []Event{GotHello, Done, GotReady, Stopping}, "hello: prepare; done: welcome; ready: try; stopping: resume; ended"},
		{"the canary serves before it may", GiverWithCanary(), []Event{GotHello, Done, GotReady, GotServing}, "hello: prepare; done: welcome; ready: try; serving: resume (violation); ended"},
		{"a canary that was not asked for", Taker(), []Event{GotTry}, "try: give up (violation); ended"},
		{"serving before the release", Giver(), []Event{GotHello, Done, GotServing}, "hello: prepare; done: welcome; serving: resume (violation); ended"},
	} {
		if got := transcript(c.m, c.in...); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// pair are the two sides under a schedule: each message arrives, each action ends, and at one moment one side is killed.
type pair struct {
	giver, taker   *Machine
	toGiver        []Event
	toTaker        []Event
	serves         [2]bool // whether the side accepts connections
	store          [2]bool // whether it holds the store
	alive          [2]bool
	step, killStep int
	killed         int
	verdict        Event // of the canary, if there is one
}

const (
	giving = 0
	taking = 1
)

// happen makes one side take an event, and do what follows. A side that is killed before an action does nothing any more.
func (p *pair) happen(side int, e Event) {
	m := [2]*Machine{p.giver, p.taker}[side]
	for e < events {
		action, _ := m.Next(e)
		if p.step++; p.step == p.killStep && p.alive[p.killed] {
			p.alive[p.killed] = false
			p.serves[p.killed], p.store[p.killed] = false, false
			if p.killed == giving {
				p.toTaker = append(p.toTaker, Died)
			} else {
				p.toGiver = append(p.toGiver, Died)
			}
		}
		if !p.alive[side] {
			return
		}
		e = events
		switch action {
		case Prepare, Load:
			e = Done
		case Welcome:
			p.toTaker = append(p.toTaker, GotWelcome)
		case Ready:
			p.toGiver = append(p.toGiver, GotReady)
		case Release:
			p.store[giving] = false
			p.toTaker = append(p.toTaker, GotRelease)
			e = Done
		case Try:
			if side == giving {
				p.toTaker = append(p.toTaker, GotTry)
				p.toGiver = append(p.toGiver, p.verdict)
			}
		case SendBack:
			p.toTaker = append(p.toTaker, GotAbort)
		case Return:
			p.alive[taking] = false
			p.toGiver = append(p.toGiver, Gone)
		case Take:
			if e = Done; p.store[giving] {
				e = Failed
			} else {
				p.store[taking] = true
			}
		case Serve:
			p.serves[taking] = true
			p.toGiver = append(p.toGiver, GotServing)
			e = Done
		case Drain:
			p.serves[giving] = false
		case Reclaim:
			p.alive[taking], p.serves[taking], p.store[taking] = false, false, false
			p.store[giving] = true
		case Refuse, Resume:
			p.toTaker = append(p.toTaker, GotAbort)
		case GiveUp:
			p.alive[taking], p.serves[taking], p.store[taking] = false, false, false
			p.toGiver = append(p.toGiver, GotAbort)
		}
	}
}

// Either side is killed at each step. The other one serves in the end, with the store.
func TestDeathAtEachStep(t *testing.T) {
	for run := range 6 {
		killed := run % 2
		for at := 0; at < 24; at++ {
			p := &pair{giver: [3]func() *Machine{Giver, GiverWithCanary, GiverWithCanary}[run/2](), verdict: [3]Event{Gone, Good, Bad}[run/2], taker: Taker(), alive: [2]bool{true, true}, serves: [2]bool{true, false}, store: [2]bool{true, false}, killStep: at, killed: killed}
			p.toGiver = []Event{GotHello}
			for len(p.toGiver)+len(p.toTaker) > 0 {
				if len(p.toGiver) > 0 {
					e := p.toGiver[0]
					if p.toGiver = p.toGiver[1:]; p.alive[giving] {
						p.happen(giving, e)
					}
					continue
				}
				e := p.toTaker[0]
				if p.toTaker = p.toTaker[1:]; p.alive[taking] {
					p.happen(taking, e)
				}
			}
			if p.serves[giving] == p.serves[taking] {
				// The old process dies in the greeting, before anything was passed on, or the new one after the commit point: that is
				// the end of a gateway like any other.
				// So is that of the old process while a bad canary returns.
				early, late := p.taker.State() == Ended && !p.alive[giving], p.giver.State() == Served && !p.alive[taking]
				if p.serves[giving] || !early && !late {
					t.Errorf("side %d killed at step %d: serving %v, states %s and %s", killed, at, p.serves, p.giver.State(), p.taker.State())
				}
			}
			for side := range 2 {
				if p.serves[side] && !p.store[side] {
					t.Errorf("side %d killed at step %d: side %d serves without the store", killed, at, side)
				}
			}
		}
	}
}

// Whatever comes in whatever order, a machine ends in a state that it does not leave, and after the commit point the old side never
// takes the store back.
func TestAnyOrder(t *testing.T) {
	for _, fresh := range []func() *Machine{Giver, GiverWithCanary, Taker} {
		for seed := range 1 << 18 {
			m, drained := fresh(), false
			for n, rest := 0, seed; n < 6; n++ {
				action, _ := m.Next(Event(rest & 7))
				rest >>= 3
				if drained && action != Wait {
					t.Fatalf("seed %d: %s after the commit point", seed, action)
				}
				drained = drained || action == Drain
			}
		}
	}
	if s := fmt.Sprint(Served, Drain, Died); s != "served drain died" {
		t.Error(s)
	}
}
