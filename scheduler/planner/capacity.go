package planner

import "math"

// knownSamples is how many batches of a replica must have been seen before the planner uses its profile. It is the same
// as in package scheduler.
const knownSamples = 16

// device is what the planner works out about a device.
type device struct {
	// leastNanos is the least time that a tenant can wait for another tenant's batch, least that tenant, and nextNanos
	// the least of the other tenants.
	leastNanos, nextNanos float64
	least                 int32
	tenants               int
	// busy is the part of the device's time that tenants with traffic use, in batches as large as their caps allow.
	busy float64
	// unknown is the part of busy used by tenants with too little data to plan with.
	unknown float64
}

// look computes profiles, traffic, caps and capacities of all models.
func (p *Planner) look() {
	in := p.in
	p.models = resize(p.models, len(in.Models))
	p.devices = resize(p.devices, len(in.Devices))
	for i := range p.devices {
		p.devices[i] = device{leastNanos: inf, nextNanos: inf, least: -1}
	}
	p.tenants, p.direct, p.attached = p.tenants[:0], p.direct[:0], p.attached[:0]
	for i := range in.Models {
		m, im := &p.models[i], &in.Models[i]
		*m = model{}
		m.memory, m.cost, m.ladder = p.modelMemories.at(i, im.Key), number(im.Cost), p.ladders[i]
		m.resource, m.device, m.queueAt = -1, -1, -1
		if m.memory != nil {
			m.keep = p.keep(m.memory)
			m.memory.lastAt = in.Now
		}
		p.lookAtQueues(m, im, int32(i))
		m.lookAtReplicas(im)
		if m.known {
			m.streaming = p.streams(m, im)
		}
		if d := p.deviceOf(im); d != nil {
			m.device = int32(len(in.Models)) + im.Device
			p.tenants = append(p.tenants, int32(i))
			p.lookAtTenant(d, int32(i), m)
		} else if m.known {
			m.resource = int32(i)
			m.measure(im)
		}
	}
	for _, i := range p.tenants {
		p.lookBeside(i, &p.models[i], &in.Models[i])
	}
}

// lookBeside finds the capacity of a model beside the other tenants of its device.
func (p *Planner) lookBeside(i int32, m *model, im *Model) {
	d := p.deviceOf(im)
	if m.profiled {
		m.deviceCap = p.capBeside(d, i, m, im)
		// A cap that its controller still raises does not say what the model can do. A cap that deviceCap bounds does.
		m.known = m.known || m.deviceCap > 0 && m.deviceCap <= m.cap
	}
	if !m.known {
		d.unknown += m.devicePart
		return
	}
	m.resource = m.device
	m.measure(im)
}

// ladderPart is the part of a model's capacity that is planned if its queries could go to other candidates. Estimates
// are off by some percent, and the queue of an overloaded model fills up to the deadlines. Giving the next candidate a
// few more queries is better.
const ladderPart = 0.9

// deviceOf returns the device that a model shares, or nil.
func (p *Planner) deviceOf(im *Model) *device {
	if im.Device < 0 || int(im.Device) >= len(p.devices) {
		return nil
	}
	return &p.devices[im.Device]
}

// lookAtQueues adds up the traffic and finds the tightest and the loosest objective. Background functions do not count:
// no client waits for them.
func (p *Planner) lookAtQueues(m *model, im *Model, index int32) {
	m.attachedAt = int32(len(p.attached))
	for i := range im.Queues {
		q := &im.Queues[i]
		at := extend(&p.attached)
		if at.weight, at.direct = 0, isDirect(q); !q.Free {
			at.weight = weightOf(q.Weight)
		}
		m.held += float64(max(0, q.Queued))
		if isDirect(q) {
			p.direct = append(p.direct, direct{model: index, queue: int32(i), following: -1})
		}
		rate := number(q.Rate)
		if q.Free || rate == 0 && q.Queued <= 0 || p.isBackground(q) {
			continue
		}
		m.arriving += rate
		slo := q.SLONanos
		if slo <= 0 {
			m.loosestNanos = math.MaxInt64
			continue
		}
		m.loosestNanos = max(m.loosestNanos, slo)
		if m.tightestNanos == 0 || slo < m.tightestNanos {
			m.tightestNanos = slo
		}
	}
}

// lookAtReplicas computes the mean profile, and whether there is enough data of all replicas.
func (m *model) lookAtReplicas(im *Model) {
	settled := true
	for i := range im.Replicas {
		r := &im.Replicas[i]
		a, s := number(r.InterceptNanos), number(r.SlopeNanos)
		if r.Samples < knownSamples || r.Cap < 1 || !(a+s > 0) {
			return
		}
		settled = settled && r.Settled
		m.intercept += a
		m.slope += s
		m.cap += min(r.Cap, 1<<30)
	}
	if n := len(im.Replicas); n > 0 {
		m.profiled = true
		// After a dedication, the dedicated replicas have just been given other objectives and their caps move for
		// that. Treating them as unknown would undo the dedication and make the caps move again.
		m.known = settled || m.memory != nil && m.memory.tight > 0
		m.intercept /= float64(n)
		m.slope /= float64(n)
		m.cap = max(1, m.cap/n)
		if im.MaxBatch > 0 {
			m.cap = min(m.cap, im.MaxBatch)
		}
		if m.memory != nil {
			m.intercept, m.slope = m.memory.smooth(m.keep, m.intercept, m.slope, m.cap)
		}
	}
}

// keep returns the part of a decayed mean that is left since the model's last plan, 0 if there was none.
func (p *Planner) keep(mem *modelMemory) float64 {
	if mem == nil || mem.lastAt == 0 {
		return 0
	}
	// Most models have the same last plan time, so the last result is cached.
	if since := max(0, float64(p.in.Now)-float64(mem.lastAt)); since != p.since || p.kept == 0 {
		p.since, p.kept = since, math.Exp(-since/memoryNanos)
	}
	return p.kept
}

// evaluation returns how long a batch of n takes.
func (m *model) evaluation(n float64) float64 { return m.intercept + m.slope*n }

// lookAtTenant computes how long a tenant with traffic can wait for another tenant's batch: three quarters of its
// tightest objective, less the time of its own batch of as many queries as arrive in an epoch.
func (p *Planner) lookAtTenant(d *device, i int32, m *model) {
	d.tenants++
	if m.profiled {
		m.devicePart = m.arriving * m.evaluation(float64(m.cap)) / float64(m.cap) / 1e9
		d.busy += m.devicePart
	}
	if m.arriving == 0 || m.tightestNanos == 0 {
		return
	}
	can := float64(m.tightestNanos) * 3 / 4
	if m.known {
		can -= m.evaluation(max(1, min(float64(m.cap), m.arriving*p.epochNanos()/1e9)))
	}
	switch {
	case can < d.leastNanos:
		d.nextNanos, d.leastNanos, d.least = d.leastNanos, can, i
	case can < d.nextNanos:
		d.nextNanos = can
	}
}

// deviceBusy bounds the cost of protecting neighbours: batches are not made so small that a device is busy for a larger
// part of its time than this. Small batches take more of the device's time for each query.
const deviceBusy = 0.8

// capBeside returns the largest batch of m that the other tenants of its device can wait for, at least 1, or 0 for no
// bound. Suppose batches take 4 ms + 0.4 ms × n, 800 queries/s arrive, and a neighbour uses 25 % of the time and can
// wait for 7.5 ms. The largest batch it can wait for is 8, but such batches take 72 % of the time, and the neighbour
// would wait for a busy device more often than for a batch. Batches of 14 take 55 %.
func (p *Planner) capBeside(d *device, i int32, m *model, im *Model) int {
	can := d.leastNanos
	if d.least == i {
		can = d.nextNanos
	}
	next := 0
	if !im.Pinned && m.evaluation(float64(m.cap)) > can {
		next = max(1, fits(can, m.intercept, m.slope))
		// each is the time available per query; a batch of n takes intercept/n + slope per query.
		spare := deviceBusy
		if m.memory != nil && m.memory.floored {
			spare = (1 + deviceBusy) / 2 // hysteresis
		}
		floored := false
		if each := (deviceBusy - (d.busy - m.devicePart)) * 1e9 / m.arriving; d.busy < spare && each > m.slope {
			bound := next
			next = max(next, int(math.Ceil(min(m.intercept/(each-m.slope), float64(m.cap)))))
			if last := m.lastCap(); last > next && float64(next) > 0.75*float64(last) && m.memory.floored {
				next = last // keep it while rates fluctuate
			}
			floored = next > bound
		}
		if m.memory != nil {
			m.memory.floored = floored
		}
	}
	if m.memory != nil {
		next = steadyCap(m.memory.deviceCap, next)
		m.memory.deviceCap = next
	}
	return next
}

// lastCap returns the device cap of the last plan, 0 if there was none.
func (m *model) lastCap() int {
	if m.memory == nil {
		return 0
	}
	return m.memory.deviceCap
}

// fits returns the largest batch that takes at most nanos, 0 if not even one query fits, and at most the largest int32.
func fits(nanos, intercept, slope float64) int {
	n := (nanos - intercept) / slope
	switch {
	case !(n >= 1): // also NaN
		return 0
	case n >= math.MaxInt32:
		return math.MaxInt32
	}
	return int(n)
}

// steadyCap returns next, or last if last is not larger than next and not much smaller. Bounds change with every batch
// that is seen, and such a small change is not worth a new plan.
func steadyCap(last, next int) int {
	if last > 0 && last <= next && float64(next) <= 1.25*float64(last)+1 {
		return last
	}
	return next
}

// measure computes the capacity. Each replica evaluates b queries in the time of a batch of b, the largest allowed
// batch.
func (m *model) measure(im *Model) {
	for i := range im.Replicas {
		r := &im.Replicas[i]
		b := r.Cap
		if im.MaxBatch > 0 {
			b = min(b, im.MaxBatch)
		}
		if m.deviceCap > 0 {
			b = min(b, m.deviceCap)
		}
		if m.streaming {
			b = 1
		}
		took := number(r.InterceptNanos) + number(r.SlopeNanos)*float64(b)
		m.capacity += float64(max(r.Concurrency, 1)*b) * 1e9 / max(took, 1)
	}
	if m.deviceCap > 0 {
		m.cap = min(m.cap, m.deviceCap)
	}
	if m.streaming {
		m.cap = 1
	}
	m.use = 1 / m.capacity
	if m.ladder {
		m.use /= ladderPart
	}
}
