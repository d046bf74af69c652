package scheduler

import "github.com/xebec-serving/xebec/api"

// GiveBack hands waiting queries back to their owners, who may ask another machine: this one's replicas do not start.
// Each that give accepts ends as [GivenBack]. Queries that were answered, that are in flight, or that may have killed a
// replica stay. give must not call the machine.
func (m *Machine) GiveBack(now api.Nanos, give func(*Item) bool) {
	m.tick(now)
	m.noteChange()
	var waiting []*Item
	add := func(q *queue) {
		for _, e := range q.heap {
			waiting = append(waiting, e.it)
		}
	}
	for _, f := range m.functions {
		if f != nil {
			add(&f.queue)
		}
	}
	add(&m.homes.homeless)
	for _, r := range m.replicas {
		add(&r.own)
	}
	add(&m.retries)
	for _, it := range waiting {
		if it.place == retrying && it.mayKill() || !give(it) || !m.withdraw(it) {
			continue
		}
		m.counters.GivenBack++
		m.leave(it, End{it, api.NoReplica, GivenBack})
	}
}
