package capacity

import (
	"fmt"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/scheduler/placement"
)

// While a process of the gateway takes over from another one, both have replicas on the same node. Neither knows those of the other: the
// old one says before whether there is room for both, and the new one starts at least as many as the old one has, because it has
// seen no query yet that would tell how many are needed.

// Replicas is how many replicas each version has that answers queries. One without a replica that is ready has none, however many it
// is about to have: a process that takes over must not wait for what this one has not got.
func (c *Capacity) Replicas() map[api.ModelID]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[api.ModelID]int{}
	for _, st := range c.order {
		if !st.fixed && st.set > 0 && st.m.scaled.Load() && st.m.model.Ready.Load() > 0 && !st.m.version.Crashing() {
			counts[st.m.id] = st.set
		}
	}
	return counts
}

// Failing says which versions KeepAtLeast wants that cannot be started; empty: none.
func (c *Capacity) Failing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.order {
		wanted, ready := c.floor(st.m), int(st.m.model.Ready.Load())
		if last, fail := st.m.version.StartsFail(); fail && ready < wanted {
			return fmt.Sprintf("replicas of %s cannot be started: the process before has %d, this one %d; the last start: %s", st.m.id, wanted, ready, last)
		}
	}
	return ""
}

// FitsTwice returns why the node has no room for all replicas a second time; nil: it has.
func (c *Capacity) FitsTwice() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := placement.Resources{MemoryBytes: c.preloadBytes}
	for _, st := range c.order {
		used = less(used, c.plannedUsage(st), -max(st.set, st.m.set.Len()))
	}
	for m, usage := range c.ending {
		used = less(used, usage, -m.set.Len())
	}
	twice, has := less(used, used, -1), c.budget.Resources
	if twice.MemoryBytes <= has.MemoryBytes && twice.CPUMillis <= has.CPUMillis && twice.GPUs <= has.GPUs {
		return nil
	}
	return fmt.Errorf("the replicas of both processes do not fit on this node: they would take %s, and it has %s for replicas", resourcesText(twice, used), resourcesText(has))
}

// KeepAtLeast gives versions at least so many replicas, within their bounds; nil: none.
func (c *Capacity) KeepAtLeast(replicas map[api.ModelID]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floors = replicas
}

// floor is how many replicas the version has at least. Its caller holds Capacity.mu.
func (c *Capacity) floor(m *Member) int {
	return min(c.floors[m.id], m.version.Spec().Replicas.Max)
}

// Missing says which versions do not have as many replicas that are ready as KeepAtLeast says. Another version of a model may answer in
// the place of one that is not awake.
func (c *Capacity) Missing() (missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := map[api.ModelID]int{}
	answers := map[string]bool{}
	floors := map[api.ModelID]int{}
	for _, st := range c.order {
		if n := int(st.m.model.Ready.Load()); n > 0 && st.m.scaled.Load() {
			ready[st.m.id], answers[st.m.id.Name] = n, true
		}
		floors[st.m.id] = c.floor(st.m)
	}
	for id, wanted := range c.floors {
		floor, awake := floors[id]
		if !awake && !answers[id.Name] {
			missing = append(missing, fmt.Sprintf("%s has 0 of %s", id, numerals.Count(wanted, "replica")))
		} else if awake && ready[id] < floor {
			missing = append(missing, fmt.Sprintf("%s has %d of %s", id, ready[id], numerals.Count(floor, "replica")))
		}
	}
	slices.Sort(missing)
	return missing
}
