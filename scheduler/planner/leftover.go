package planner

// backgroundPart is the part of a resource up to which background functions may fill it. A full resource makes every
// query wait.
const backgroundPart = 0.8

// isBackground reports whether q belongs to a background function.
func (p *Planner) isBackground(q *Queue) bool {
	return p.hasBackground && q.Function >= 0 && int(q.Function) < len(p.in.Functions) && p.in.Functions[q.Function].Background
}

// leftovers plans the background functions. After everything else has been given out, it divides what is left of each
// resource among them in the same way. A machine receives no more than they are allotted, because further queries would
// wait in line with others.
func (p *Planner) leftovers() {
	in := p.in
	for i := range p.loads {
		p.loads[i] = resource{size: backgroundPart, cut: inf, holder: -1}
		p.asked[i] = asked{}
	}
	for i := range in.Models {
		m := &p.models[i]
		if m.profiled && !m.known {
			// Its replicas can evaluate at least what they do in batches as large as their current caps.
			if m.resource = int32(i); m.device >= 0 {
				m.resource = m.device
			}
			m.use = m.evaluation(float64(m.cap)) / float64(m.cap*len(in.Models[i].Replicas)) / 1e9
		}
		if m.resource >= 0 {
			p.loads[m.resource].size -= m.planned * m.use
		}
	}
	for i := range p.loads {
		p.loads[i].size = max(0, p.loads[i].size)
	}
	p.claimants, p.edges, p.places = p.claimants[:0], p.edges[:0], p.places[:0]
	for i := range p.wishes {
		if w := &p.wishes[i]; w.background && w.rate > 0 {
			p.claimantOf(i, w, false)
			p.count()
		}
	}
	p.share()
	p.settle()
	for i := range p.wishes {
		switch w := &p.wishes[i]; {
		case !w.background:
		case w.rate == 0:
			p.asWished(i, w)
		default:
			p.admitFunction(i, w)
		}
	}
}

// spare reports whether a background function may ask m at all. A model without seen batches may be asked if no other
// function asks it, and if its device has time left for the background.
func (p *Planner) spare(m *model) bool {
	if m.resource >= 0 {
		return p.loads[m.resource].size > 0
	}
	return m.planned == 0 && (m.device < 0 || p.loads[m.device].size > 0)
}
