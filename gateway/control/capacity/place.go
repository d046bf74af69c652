package capacity

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler/placement"
	"go.uber.org/zap"
)

// neverUsed is a time of last use that is long ago also for a gateway that has just started, whose clock begins at 0.
const neverUsed = math.MinInt64

// The methods of this file need Capacity.mu.

// place divides the node among all seats and carries the result out.
func (c *Capacity) place() {
	if c.cfg.Life.Err() != nil {
		return // the gateway ends: what ends makes no room for others
	}
	c.in.Now, c.in.Nodes = c.cfg.Now(), c.nodes
	c.in.Models, c.placed = c.in.Models[:0], c.placed[:0]
	for range c.order {
		c.placed = append(c.placed, 0)
	}
	for i, st := range c.order {
		bounds := st.m.bounds()
		c.placed[i] = int32(max(st.set, st.m.set.Len()))
		m := placement.Model{
			Key: st.m.key, Weight: st.m.weight(), Takes: c.plannedUsage(st), Wanted: st.want, Min: bounds.Min,
			Waiting: st.waiting, Rate: st.rate, LastUsed: max(st.last, st.grown, st.m.readyAt()), Placed: c.placed[i : i+1],
		}
		if st.fixed { // what it is loaded with is not taken away
			m.Min = max(m.Min, min(st.want, max(1, bounds.First()))) // more than that is as good as free room
			m.Fixed = st.set == st.want && int(c.placed[i]) == st.want
		}
		if st.m.version.Crashing() { // it is retried where there is room, and has no claim to the room of a version that can answer
			m.Min, m.Fixed, m.Waiting, m.Rate, m.LastUsed = 0, false, 0, 0, neverUsed
		}
		c.in.Models = append(c.in.Models, m)
	}
	c.planner.Plan(&c.in, &c.out)
	if c.spareServing() {
		c.planner.Plan(&c.in, &c.out)
	}
	c.carryOut()
}

// spareServing keeps a loading version from taking the room of a serving version of the same model: the old one goes when the
// new one is ready. It reduces the wishes of such versions to what they have, and reports whether there are any.
func (c *Capacity) spareServing() (any bool) {
	for j, st := range c.order {
		if !st.fixed || int(c.out.Granted[j]) <= st.set {
			continue // most: few versions load at a time
		}
		for i, old := range c.order {
			if !old.fixed && old.m.id.Name == st.m.id.Name && int(c.out.Granted[i]) < min(old.set, old.want) {
				m := &c.in.Models[j]
				m.Wanted, any = min(m.Wanted, st.set), true
			}
		}
	}
	return any
}

// carryOut sets the counts: first where they fall, then where they grow, as far as ending replicas leave room.
func (c *Capacity) carryOut() {
	room := c.nodes[0].Budget // less what is used, also by replicas that are ending
	for i, st := range c.order {
		st.granted = int(c.out.Granted[i])
		if st.granted < st.set {
			c.setCount(st, st.granted)
		}
		room = less(room, c.plannedUsage(st), max(st.set, st.m.set.Len()))
	}
	for m, usage := range c.ending {
		n := m.set.Len()
		if n == 0 || c.seats[m] != nil {
			delete(c.ending, m)
			continue
		}
		room = less(room, usage, n)
	}
	held := false
	for i := len(c.order) - 1; i >= 0; i-- { // from the end, for seats may leave
		st := c.order[i]
		before := st.short
		if st.short = c.out.Short[i]; st.short == placement.NotShort && st.granted < st.want {
			st.short = placement.NoRoom // but that of the version that serves
		}
		if st.short != before && st.short != placement.NotShort {
			c.cfg.Log.Warn("a model version gets fewer replicas than it needs", zap.Stringer("model", st.m.id), zap.Int("needs", st.want), zap.Int("gets", st.granted), zap.String("why", c.whyShort(st)))
		}
		usage := c.plannedUsage(st)
		for st.set < st.granted {
			after := less(room, usage, 1)
			if usage.CPUMillis > 0 && after.CPUMillis < 0 || usage.MemoryBytes > 0 && after.MemoryBytes < 0 || usage.GPUs > 0 && after.GPUs < 0 {
				held = true // until the ending replicas are gone
				break
			}
			room = after
			before := st.set
			if c.setCount(st, st.set+1); st.set == before {
				break // its set is closed
			}
		}
		st.m.full.Store(st.set == 0 && st.want > 0)
		c.vacate(st)
	}
	c.held.Store(held)
}

// less is r without n times usage.
func less(r, usage placement.Resources, n int) placement.Resources {
	return placement.Resources{
		CPUMillis: r.CPUMillis - int64(n)*usage.CPUMillis, MemoryBytes: r.MemoryBytes - int64(n)*usage.MemoryBytes, GPUs: r.GPUs - int64(n)*usage.GPUs,
	}
}

// setCount tells the supervisor how many replicas the version has.
func (c *Capacity) setCount(st *seat, n int) {
	if n > st.set {
		st.grown = c.cfg.Now()
	}
	m := st.m
	m.asked.Store(int32(n))
	m.model.Asleep.Store(n == 0 && st.want == 0 && m.scaled.Load())
	if err := m.set.SetCount(n); err == nil {
		st.set = n
	}
	if n == 0 {
		m.version.CountChanged()
		if c.awaited(m) {
			m.Wake() // a query came while this was decided
		}
	}
	if st.fixed || m.bounds().Min > 0 { // the life cycle of a version that may sleep does not depend on this
		c.cfg.Changed(m.id.Name)
	}
}

// vacate removes the seat of a version that wants no replicas and has none.
func (c *Capacity) vacate(st *seat) {
	if st.want == 0 && st.set == 0 && st.waiting == 0 && st.m.set.Len() == 0 {
		c.leave(st)
		if st.m.scaled.Load() && c.awaited(st.m) {
			st.m.Wake() // a query came since the decision, while a seat still kept Wake from calling
		}
	}
}
