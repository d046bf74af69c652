package takeover

import (
	"fmt"
	"maps"
)

// Event is what happened to one side: a message came, something that it did has ended, or the other side is gone.
type Event uint8

// The events. Gone: the connection has ended, and the other process lives or it is not known whether it does. Died: it has ended.
const (
	GotHello Event = iota
	GotWelcome
	GotReady
	GotRelease
	GotServing
	GotAbort
	Gone
	Died
	Expired  // the time limit of the state
	Stopping // this process is asked to end
	Done     // the last action has succeeded
	Failed   // the last action has failed
	GotTry   // the new process is to serve a share of the connections
	Good     // the canary is not worse
	Bad      // it is worse, or cannot be judged
	events
)

var eventNames = [events]string{"hello", "welcome", "ready", "release", "serving", "abort", "gone", "died", "expired", "stopping", "done", "failed", "try", "good", "bad"}

func (e Event) String() string { return eventNames[e] }

// Action is the next thing to do.
type Action uint8

// The actions of both sides. An action that can fail is followed by Done or Failed.
const (
	Wait     Action = iota
	Prepare         // giver: check that there is room, refuse changes, copy what is declared. Done or Failed
	Welcome         // giver: send it
	Refuse          // giver: allow changes again, and say why not
	Release         // giver: let the store go, and say so. Done or Failed
	Resume          // giver: allow changes again, and say abort
	Reclaim         // giver: kill the other process if it lives, take the store back, allow changes again
	Drain           // giver: stop accepting; the other process is the gateway now
	Load            // taker: load the replicas. Done or Failed
	Ready           // taker: say so
	Take            // taker: take the store. Done or Failed
	Serve           // taker: accept, and say so. Done or Failed
	GiveUp          // taker: say abort, and end
	Try             // both: a share of the connections goes to the new process
	SendBack        // giver: allow changes again, say abort, and pass on no more connections
	Return          // taker: answer what it has, pass on what was learned, and end
	actions
)

var actionNames = [actions]string{"wait", "prepare", "welcome", "refuse", "release", "resume", "reclaim", "drain", "load", "ready", "take", "serve", "give up", "try", "send back", "return"}

func (a Action) String() string { return actionNames[a] }

// State is where one side is.
type State uint8

// The states. Ended is the last one of a takeover that has failed, Served of one that has not.
const (
	Greeting State = iota
	Preparing
	Loading
	LoadingAlone // taker: the old process has died
	Waiting      // taker: for the release
	Releasing
	Committing
	Taking
	Accepting
	Served
	Ended
	Trying    // the new process serves a share of the connections
	Returning // giver: until the process that was sent back has ended
	states
)

var stateNames = [states]string{"greeting", "preparing", "loading", "loading alone", "waiting", "releasing", "committing", "taking", "accepting", "served", "ended", "trying", "returning"}

func (s State) String() string { return stateNames[s] }

type step struct {
	action Action
	next   State
}

// withCanary are the giver's steps if the new process first serves a share of the connections.
func withCanary(t table) table {
	t = maps.Clone(t)
	t[Loading] = maps.Clone(t[Loading])
	t[Loading][GotReady] = step{Try, Trying}
	return t
}

type table map[State]map[Event]step

// Events that a state does not list are violations of the protocol, and end the takeover as Gone does; except Done and Failed, which
// do not occur there.
var giver = table{
	Greeting: {
		GotHello: {Prepare, Preparing},
		GotAbort: {Wait, Ended}, Gone: {Wait, Ended}, Died: {Wait, Ended}, Expired: {Wait, Ended}, Stopping: {Refuse, Ended},
	},
	Preparing: {Done: {Welcome, Loading}, Failed: {Refuse, Ended}},
	Loading: {
		GotReady: {Release, Releasing},
		GotAbort: {Resume, Ended}, Gone: {Resume, Ended}, Died: {Resume, Ended}, Expired: {Resume, Ended}, Stopping: {Resume, Ended},
	},
	Trying: {
		Good: {Release, Releasing}, Bad: {SendBack, Returning},
		GotAbort: {SendBack, Returning}, Gone: {Resume, Ended}, Died: {Resume, Ended}, Stopping: {Resume, Ended},
	},
	Returning: {Gone: {Wait, Ended}, Died: {Wait, Ended}, GotAbort: {Wait, Returning}, Expired: {Wait, Ended}, Stopping: {Wait, Ended}},
	Releasing: {Done: {Wait, Committing}, Failed: {Reclaim, Ended}},
	Committing: {
		GotServing: {Drain, Served},
		GotAbort:   {Reclaim, Ended}, Gone: {Reclaim, Ended}, Died: {Reclaim, Ended}, Expired: {Reclaim, Ended}, Stopping: {Wait, Committing},
	},
	Served: {},
	Ended:  {},
}

var taker = table{
	Greeting: {
		GotWelcome: {Load, Loading},
		GotAbort:   {GiveUp, Ended}, Gone: {GiveUp, Ended}, Died: {GiveUp, Ended}, Expired: {GiveUp, Ended}, Stopping: {GiveUp, Ended},
	},
	Loading: {
		Done: {Ready, Waiting}, Failed: {GiveUp, Ended},
		GotAbort: {GiveUp, Ended}, Gone: {GiveUp, Ended}, Died: {Wait, LoadingAlone}, Expired: {GiveUp, Ended}, Stopping: {GiveUp, Ended},
	},
	LoadingAlone: {Done: {Take, Taking}, Failed: {GiveUp, Ended}, Expired: {GiveUp, Ended}, Stopping: {GiveUp, Ended}},
	Waiting: {
		GotRelease: {Take, Taking}, GotTry: {Try, Trying},
		GotAbort: {GiveUp, Ended}, Gone: {GiveUp, Ended}, Died: {Take, Taking}, Expired: {GiveUp, Ended}, Stopping: {GiveUp, Ended},
	},
	Trying: {
		GotRelease: {Take, Taking},
		GotAbort:   {Return, Ended}, Gone: {Return, Ended}, Died: {Take, Taking}, Expired: {Return, Ended}, Stopping: {Return, Ended},
	},
	Taking:    {Done: {Serve, Accepting}, Failed: {GiveUp, Ended}},
	Accepting: {Done: {Wait, Served}, Failed: {GiveUp, Ended}},
	Served:    {},
	Ended:     {},
}

// Machine is one side of a takeover. Its zero value is of no use.
type Machine struct {
	table table
	state State
}

// Giver is the old process's side, Taker the new one's. The taker has said hello.
func Giver() *Machine { return &Machine{table: giver} }

// GiverWithCanary is the old process's side of a takeover in which the new one first serves a share of the connections.
func GiverWithCanary() *Machine { return &Machine{table: withCanary(giver)} }

// Taker is the new process's side.
func Taker() *Machine { return &Machine{table: taker} }

// State is where the machine is.
func (m *Machine) State() State { return m.state }

// Next takes an event and returns what to do. A message that must not come now counts as the end of the connection; the error says
// so.
func (m *Machine) Next(e Event) (Action, error) {
	steps := m.table[m.state]
	if s, ok := steps[e]; ok {
		m.state = s.next
		return s.action, nil
	}
	if len(steps) == 0 || e > GotAbort && e != GotTry {
		return Wait, nil
	}
	err := fmt.Errorf("the other process sent %s while this one was %s", e, m.state)
	s, ok := steps[Gone] // which ends a canary, too: a process that breaks the protocol is not to serve
	if !ok {
		return Wait, err // it is in an action, whose end follows
	}
	m.state = s.next
	return s.action, err
}
