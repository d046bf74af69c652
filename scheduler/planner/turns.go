package planner

// deviceFull is the part of a device's time from which it counts as full.
const deviceFull = 0.99

// planTurns divides the rounds of a full device among its tenants by the time planned for them. A turn lasts at least
// one batch, because a batch is not interrupted. On a device with time left, the length of turns only affects the order
// of waiting, and all tenants have the default.
func (p *Planner) planTurns() {
	in := p.in
	if len(in.Devices) == 0 {
		return
	}
	for i := range in.Models {
		im, m := &in.Models[i], &p.models[i]
		if p.deviceOf(im) == nil {
			continue
		}
		d := &p.out.Devices[im.Device]
		t := Turn{Model: int32(i)}
		if m.known {
			t.Busy = m.planned * m.use
		}
		d.Busy += t.Busy
		d.Turns = append(d.Turns, t)
	}
	for i := range p.out.Devices {
		d := &p.out.Devices[i]
		for j := range d.Turns {
			t := &d.Turns[j]
			m := &p.models[t.Model]
			if !m.known || d.Busy < deviceFull {
				continue
			}
			turn := 0.0
			if d.Busy > 0 {
				turn = p.epochNanos() * t.Busy / d.Busy
			}
			t.Nanos = max(1, nanos(max(turn, m.evaluation(float64(m.cap)))))
			if mem := m.memory; mem != nil {
				t.Nanos = steady(mem.turnNanos, t.Nanos)
				mem.turnNanos = t.Nanos
			}
		}
	}
}
