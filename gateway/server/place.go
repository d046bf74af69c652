package server

import (
	"github.com/xebec-serving/xebec/scheduler/placement"
	"go.uber.org/zap"
)

// placeLocked gives everybody what there is room for.
func (c *capacity) placeLocked() {
	if c.s.life.Err() != nil {
		return // the gateway ends: what ends makes no room for others
	}
	c.in.Now, c.in.Nodes = c.s.clock.Now(), c.nodes
	c.in.Models, c.placed = c.in.Models[:0], c.placed[:0]
	for range c.order {
		c.placed = append(c.placed, 0)
	}
	for i, st := range c.order {
		c.placed[i] = int32(max(st.set, st.d.set.Len()))
		m := placement.Model{
			Key: st.d.key, Weight: st.d.weight(), Takes: c.takesNow(st), Wanted: st.want, Min: st.d.spec().Replicas.Min,
			Waiting: st.waiting, Rate: st.rate, LastUsed: max(st.last, st.grown, st.d.readyAt()), Placed: c.placed[i : i+1],
		}
		if st.fixed { // it is not taken away what it is being loaded with
			m.Min = max(m.Min, min(st.want, max(1, st.d.spec().Replicas.First()))) // more than that is as good as free room
			m.Fixed = st.set == st.want && int(c.placed[i]) == st.want
		}
		if st.d.crashing() { // it is tried again where there is room, and has no claim to that of one that can answer
			m.Min, m.Fixed, m.Waiting, m.Rate, m.LastUsed = 0, false, 0, 0, 0
		}
		c.in.Models = append(c.in.Models, m)
	}
	c.planner.Plan(&c.in, &c.out)
	if c.spareLocked() {
		c.planner.Plan(&c.in, &c.out)
	}
	c.carryOutLocked()
}

// spareLocked has versions that are being loaded want no more than they have where the plan would take the room of a version of the same model
// that serves: the old one goes when the new one has come. It reports whether there are any.
func (c *capacity) spareLocked() (any bool) {
	for j, st := range c.order {
		if !st.fixed || int(c.out.Granted[j]) <= st.set {
			continue // most: few versions are being loaded at a time
		}
		for i, old := range c.order {
			if !old.fixed && old.d.id.Name == st.d.id.Name && int(c.out.Granted[i]) < min(old.set, old.want) {
				m := &c.in.Models[j]
				m.Wanted, any = min(m.Wanted, st.set), true
			}
		}
	}
	return any
}

// carryOutLocked makes it so: first less, and then more as far as what is ending has left room.
func (c *capacity) carryOutLocked() {
	room := c.nodes[0].Budget // what is not taken, also not by those that are ending
	for i, st := range c.order {
		st.granted = int(c.out.Granted[i])
		if st.granted < st.set {
			c.setLocked(st, st.granted)
		}
		takes, n := c.takesNow(st), int64(max(st.set, st.d.set.Len()))
		room.CPUMillis -= n * takes.CPUMillis
		room.MemoryBytes -= n * takes.MemoryBytes
		room.GPUs -= n * takes.GPUs
	}
	for d, takes := range c.ending {
		n := int64(d.set.Len())
		if n == 0 || c.seats[d] != nil {
			delete(c.ending, d)
			continue
		}
		room.CPUMillis -= n * takes.CPUMillis
		room.MemoryBytes -= n * takes.MemoryBytes
		room.GPUs -= n * takes.GPUs
	}
	held := false
	for i := len(c.order) - 1; i >= 0; i-- { // from the end, for seats may leave
		st := c.order[i]
		before := st.short
		if st.short = c.out.Short[i]; st.short == placement.NotShort && st.granted < st.want {
			st.short = placement.NoRoom // but that of the version that serves
		}
		if st.short != before && st.short != placement.NotShort {
			c.s.log.Warn("a model version gets fewer replicas than it needs", zap.Stringer("model", st.d.id), zap.Int("needs", st.want), zap.Int("gets", st.granted), zap.String("why", c.whyShort(st)))
		}
		takes := c.takesNow(st)
		for st.set < st.granted {
			after := placement.Resources{CPUMillis: room.CPUMillis - takes.CPUMillis, MemoryBytes: room.MemoryBytes - takes.MemoryBytes, GPUs: room.GPUs - takes.GPUs}
			if takes.CPUMillis > 0 && after.CPUMillis < 0 || takes.MemoryBytes > 0 && after.MemoryBytes < 0 || takes.GPUs > 0 && after.GPUs < 0 {
				held = true // until those that are ending are gone
				break
			}
			room = after
			before := st.set
			if c.setLocked(st, st.set+1); st.set == before {
				break // it takes no more
			}
		}
		st.d.full.Store(st.set == 0 && st.want > 0)
		c.vacateLocked(st)
	}
	c.held.Store(held)
}

// setLocked tells the supervisor.
func (c *capacity) setLocked(st *seat, n int) {
	if n > st.set {
		st.grown = c.s.clock.Now()
	}
	st.d.asked.Store(int32(n))
	st.d.model.Asleep.Store(n == 0 && st.want == 0 && st.d.scaled.Load())
	if err := st.d.set.SetCount(n); err == nil {
		st.set = n
	}
	if n == 0 {
		st.d.seeDown()
		if c.awaitedLocked(st.d) {
			st.d.wake() // somebody has come while this was decided
		}
	}
	if st.fixed || st.d.spec().Replicas.Min > 0 { // what a version may do that sleeps now and then depends on nothing of this
		c.s.noted(st.d.id.Name)
	}
}

// vacateLocked lets a version leave that wants nothing and has nothing any more.
func (c *capacity) vacateLocked(st *seat) {
	if st.want == 0 && st.set == 0 && st.waiting == 0 && st.d.set.Len() == 0 {
		c.leaveLocked(st)
		if st.d.scaled.Load() && c.awaitedLocked(st.d) {
			st.d.wake() // somebody has come since it was decided, and knew that it was looked at
		}
	}
}
