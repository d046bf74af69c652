package planner

// backgroundPart is the part of a resource up to which functions in the background may fill it: one that is full makes
// everybody wait.
const backgroundPart = 0.8

// isBackground reports whether q's queries are of a function in the background.
func (p *Planner) isBackground(q *Queue) bool {
	return p.behind && q.Function >= 0 && int(q.Function) < len(p.in.Functions) && p.in.Functions[q.Function].Background
}

// leftovers plans the functions in the background: when everything else has been given out, what is left of each resource
// is divided between them in the same way. Nothing beyond what they are allotted is let through to a machine, where it
// would wait in line with others.
func (p *Planner) leftovers() {
	in := p.in
	for i := range p.loads {
		p.loads[i] = resource{size: backgroundPart, cut: inf, holder: -1}
		p.asked[i] = asked{}
	}
	for i := range in.Models {
		m := &p.models[i]
		if m.profiled && !m.known {
			// What its replicas do in batches as large as their caps are now, they can do at the least.
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

// spare reports whether a function in the background may ask m at all. Where no batches have been seen of m, it may if nobody
// else asks m, or for much of the device that m is on.
func (p *Planner) spare(m *model) bool {
	if m.resource >= 0 {
		return p.loads[m.resource].size > 0
	}
	return m.planned == 0 && (m.device < 0 || p.loads[m.device].size > 0)
}
