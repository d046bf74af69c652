package planner

import "github.com/xebec-serving/xebec/api"

// functionMemory is what the planner remembers between plans of a function whose queries cannot all be answered.
type functionMemory struct {
	// refusedIn is the number of the last plan that refused a part of the queries; 0: none did.
	refusedIn uint64
}

// modelMemory is what the planner remembers of a model version between plans, so that no choice alternates with the
// noise of its estimates.
type modelMemory struct {
	lastAt api.Nanos // of the last plan; 0: none
	// intercept and slope are decayed means of the profile, so that conclusions do not change with each batch.
	intercept, slope float64
	// held and busy are decayed means of the number of queries that the machine holds, and of whether it holds any.
	held, busy float64

	streaming, splitting bool
	streamed             uint32 // epochs in a row
	holding              bool   // enough queries arrive for a hold
	holdNanos            int64
	deviceCap, tightCap  int
	floored              bool // deviceCap is larger than neighbours can wait for, to keep the device from being too busy
	turnNanos            int64
	// share is the decayed part of the replicas' time that functions with tight objectives need; tight is their number
	// of replicas.
	share    float64
	tight    int
	shedding []bool // direct sub-queues, by function index
}

// memoryNanos is the time constant of the decayed means: about fifty epochs.
const memoryNanos = 500e6

// smooth adds a profile to the decayed means, of which keep remains, and returns them. A profile that is twice as slow
// or twice as fast as the means restarts them.
func (m *modelMemory) smooth(keep, intercept, slope float64, n int) (float64, float64) {
	now, before := intercept+slope*float64(n), m.intercept+m.slope*float64(n)
	if now > 2*before || before > 2*now {
		keep = 0
	}
	m.intercept = keep*m.intercept + (1-keep)*intercept
	m.slope = keep*m.slope + (1-keep)*slope
	return m.intercept, m.slope
}

// steady returns next, or last if the two are within a fifth, too close to be worth a new plan.
func steady[T int | int64](last, next T) T {
	if last > 0 && next > 0 && float64(next) <= 1.2*float64(last) && float64(last) <= 1.2*float64(next) {
		return last
	}
	return next
}

// memories holds what is remembered, by key.
type memories[T any] struct {
	byKey map[uint64]*memory[T]
	// byIndex holds the same memories by the owners' index in the last Input, which rarely changes.
	byIndex []*memory[T]
	plans   uint64
}

type memory[T any] struct {
	key    uint64
	usedAt uint64 // the last plan that asked for it
	of     T
}

// forgetPlans is the number of plans after which an unused memory is dropped: ten seconds of epochs.
const forgetPlans = 1024

// begin starts a plan for n owners.
func (m *memories[T]) begin(n int) {
	if m.byKey == nil {
		m.byKey = map[uint64]*memory[T]{}
	}
	m.byIndex = resize(m.byIndex, n)
	if m.plans++; m.plans%forgetPlans != 0 {
		return
	}
	for key, old := range m.byKey {
		if m.plans-old.usedAt > forgetPlans {
			delete(m.byKey, key)
		}
	}
}

// at returns the memory of the owner with that index and key, nil for the key 0.
func (m *memories[T]) at(i int, key uint64) *T {
	if key == 0 {
		return nil
	}
	mem := m.byIndex[i]
	if mem == nil || mem.key != key {
		if mem = m.byKey[key]; mem == nil {
			mem = &memory[T]{key: key}
			m.byKey[key] = mem
		}
		m.byIndex[i] = mem
	}
	// A memory that expired while its owner was asleep starts over.
	if mem.usedAt != 0 && m.plans-mem.usedAt > forgetPlans {
		*mem = memory[T]{key: key}
		m.byKey[key] = mem
	}
	mem.usedAt = m.plans
	return &mem.of
}
