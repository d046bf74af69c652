package placement

import (
	"cmp"
	"slices"
)

// pack gives everybody what he wants, beside all that runs, if it can: the largest first, each replica on the node that it
// fits best (best-fit decreasing: Johnson, Near-optimal bin packing algorithms, 1973). If it cannot, it changes nothing.
// Models that never fit want nothing here.
func (p *Planner) pack() bool {
	p.short = p.short[:0]
	var lacks, room amounts
	for i := range p.models {
		if m := &p.models[i]; !m.closed && !m.never && m.left < m.wanted {
			p.short = append(p.short, int32(i))
			lacks.add(&m.takes, float64(m.wanted-m.left))
		}
	}
	p.trial = resize(p.trial, len(p.nodes))
	for j := range p.nodes {
		p.trial[j] = p.nodes[j].free
		for d := range room {
			room[d] += max(0, p.trial[j][d])
		}
	}
	if !lacks.within(&room) {
		return false
	}
	slices.SortFunc(p.short, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.models[b].share, p.models[a].share), cmp.Compare(p.in.Models[a].Key, p.in.Models[b].Key), cmp.Compare(a, b))
	})
	nodes := len(p.nodes)
	for s, i := range p.short {
		m := &p.models[i]
		lack, step := m.wanted-m.left, int32(1)
		if m.takes == (amounts{}) {
			step = lack // one is like the other
		}
		for ; lack > 0; lack -= step {
			at := p.bestFit(m)
			if at < 0 {
				for _, i := range p.short[:s+1] {
					clear(p.out.Placed[int(i)*nodes : (int(i)+1)*nodes])
				}
				return false
			}
			p.trial[at].add(&m.takes, -1)
			p.out.Placed[int(i)*nodes+at] += step
		}
	}
	for i := range p.models {
		m := &p.models[i]
		if m.closed {
			continue
		}
		m.granted = 0
		for j, runs := range p.row(i) {
			placed := &p.out.Placed[i*nodes+j]
			*placed += runs
			m.granted += *placed
			if *placed > 0 {
				p.nodes[j].used.add(&m.takes, float64(*placed))
			}
		}
	}
	return true
}

// bestFit is the node in trial that a replica fits best, or -1.
func (p *Planner) bestFit(m *model) int {
	at, least := -1, 0.0
	for j := range p.nodes {
		if !m.takes.within(&p.trial[j]) {
			continue
		}
		if unfit := p.nodes[j].unfit(&p.trial[j], &m.takes); at < 0 || unfit < least || unfit == least && p.before(j, at) {
			at, least = j, unfit
		}
	}
	return at
}
