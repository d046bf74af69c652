package planner

import "math"

// candidate is the part of a [Candidate] that is used often, validated.
type candidate struct {
	gain  float64 // from 0 to 1
	model int32   // -1: it is not present
	queue int32   // of the model; -1: none
}

// direct is a direct sub-queue.
type direct struct {
	model, queue int32
	following    int32 // the next one of its group; -1: none
}

// attached is what was attached to a model as a sub-queue. The input is read once: it is in no cache of the processor when a plan is written.
type attached struct {
	weight float64 // 0: the index is free
	direct bool
}

// read validates what functions ask for and makes an empty plan for them.
func (p *Planner) read() {
	in := p.in
	p.candidates = p.candidates[:0]
	p.wishes = resize(p.wishes, len(in.Functions))
	p.ladders = resize(p.ladders, len(in.Models))
	clear(p.ladders)
	p.hasBackground = false
	for i := range in.Functions {
		f, w := &in.Functions[i], &p.wishes[i]
		w.rate, w.budget, w.weight, w.shares = number(f.Rate), number(f.Budget), weightOf(f.Weight), 0
		w.first, w.best, w.root = int32(len(p.candidates)), -1, -1
		w.by, w.mode, w.background, w.limited, w.contended = byShare, f.Mode, f.Background, false, false
		if w.budget == 0 {
			w.budget = inf
		}
		for c := range f.Candidates {
			fc := &f.Candidates[c]
			to := candidate{gain: gainOf(fc.Gain), model: fc.Model, queue: fc.Queue}
			if fc.Model < 0 || int(fc.Model) >= len(in.Models) {
				to.model = -1
			}
			p.candidates = append(p.candidates, to)
		}
		w.end = int32(len(p.candidates))
		p.hasBackground = p.hasBackground || f.Background
		if f.Mode != All && !f.Background && len(f.Candidates) > 1 {
			p.readLadder(f, p.candidates[w.first:w.end])
		}
	}
	p.out.reset(in, len(p.candidates))
}

// readLadder marks the models that others can replace: all of a function's candidates except those with the least gain.
func (p *Planner) readLadder(f *Function, candidates []candidate) {
	last := math.Inf(1)
	for c := range candidates {
		if candidates[c].model >= 0 {
			last = min(last, f.Candidates[c].Gain)
		}
	}
	for c := range candidates {
		if m := candidates[c].model; m >= 0 && f.Candidates[c].Gain > last {
			p.ladders[m] = true
		}
	}
}
