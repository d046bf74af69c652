package selection

import (
	"encoding/binary"
	"math"

	"github.com/xebec-serving/xebec/api"
)

func init() {
	Register(Definition{
		Name: "rank-fusion",
		Doc:  "asks all candidates, whose outputs are lists with the best item first, and answers with one list of the items that stand high in many of them",
		Parameters: []Parameter{
			{"k", Number, 60.0, 0, 1e6, "an item at rank r scores 1/(k+r): the larger, the less the first ranks differ"},
			{"top", Whole, 0.0, 0, maxFused, "how many items the answer has, where the function's output is of any length; 0: as many as the longest list"},
			{"learn", Flag, true, 0, 0, "weigh each candidate by where it has ranked the first item of the labels; otherwise all weigh the same"},
		},
		Make: func(v Values) (Policy, error) {
			return &rankFusion{AllCandidates{Memory: ownMemory}, "rank-fusion", v.Number("k"), int(v.Number("top")), v.Flag("learn")}, nil
		},
	})
}

// maxFused bounds the items of all lists of one query. Each candidate's list counts up to its part of that.
const maxFused = 512 //xebec:limit items of all lists that `rank-fusion` combines for a query

// rankFusion combines ranked lists by reciprocal rank fusion: the score of an item is the sum of 1/(k + rank) over the
// lists that have it, with k = 60 (Cormack, Clarke and Büttcher, Reciprocal rank fusion outperforms Condorcet and individual
// rank learning methods, SIGIR 2009). It needs no scores, whose scales differ between models.
//
// With learn, the terms of a candidate are multiplied by its mean reciprocal rank of the first item of past labels. The
// loss of a candidate is 1 minus that reciprocal rank, 1 if its list does not have the item.
//
// The answer is made of items and is in general no candidate's list. A second numeric output of the function gets the
// scores. Where that is not possible, because the outputs are other ones or there are too few items for a list of fixed
// length, the answer is the list of the heaviest candidate.
type rankFusion struct {
	AllCandidates
	named
	k     float64
	top   int
	learn bool
}

func (*rankFusion) Needs() Needs { return Needs{Predictions: true, Labels: true} }

// item is one element of the lists.
type item struct {
	hash  uint64
	score float64
	bytes []byte
	taken bool
}

// fused is the table of items, open addressing, with twice as many places.
type fused struct {
	n     int
	order [maxFused]int16 // of items, by first appearance: ties go to the earlier one
	table [2 * maxFused]item
}

func (f *fused) add(element []byte, score float64) {
	h := hashBytes(element)
	at := int(h % (2 * maxFused))
	for ; f.table[at].bytes != nil; at = (at + 1) % (2 * maxFused) {
		if f.table[at].hash == h {
			f.table[at].score += score
			return
		}
	}
	if element == nil {
		element = []byte{}
	}
	f.table[at] = item{hash: h, score: score, bytes: element}
	f.order[f.n] = int16(at)
	f.n++
}

// next returns the item with the highest score that was not taken, and takes it.
func (f *fused) next() *item {
	var best *item
	for _, at := range f.order[:f.n] {
		if x := &f.table[at]; !x.taken && (best == nil || x.score > best.score) {
			best = x
		}
	}
	best.taken = true
	return best
}

func hashBytes(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325) ^ uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return mix(h)
}

func (p *rankFusion) weights(s State, dst *Vector) {
	if !p.learn {
		*dst = even
		return
	}
	p.weigh(s, dst)
}

func (p *rankFusion) Combine(c *Combination) {
	var w Vector
	p.weights(c.State, &w)
	if len(c.Predictions) == 0 {
		Vote(c, &w)
		return
	}
	c.Winner, c.Agreed, c.Confidence = -1, 0, 0
	if !p.fuse(c, &w) {
		p.takeHeaviest(c, &w)
	}
	if c.Winner < 0 && len(c.Output) == 0 {
		return
	}
	total, agreed := 0.0, 0.0
	first, _ := firstElement(p.answered(c))
	for t := c.Selected; t != 0; t &= t - 1 {
		total += w[t.First()]
	}
	for i := range c.Predictions {
		m := &c.Predictions[i]
		if mine, ok := m.Judged(c.Judged); ok {
			if e, ok := firstElement(mine); ok && string(e) == string(first) {
				c.Agreed = c.Agreed.With(m.Candidate)
				agreed += w[m.Candidate]
			}
		}
	}
	if total > 0 {
		c.Confidence = min(agreed/total, 1)
	}
}

// answered is the list that is the answer.
func (p *rankFusion) answered(c *Combination) Tensor {
	output := max(c.Judged, 0)
	if c.Winner < 0 {
		return Tensor{&c.Predictions[0].Outputs.Specs[output], &c.Output[output]}
	}
	for i := range c.Predictions {
		if c.Predictions[i].Candidate == c.Winner {
			t, _ := c.Predictions[i].Judged(c.Judged)
			return t
		}
	}
	return Tensor{&c.Predictions[0].Outputs.Specs[output], &api.Value{}}
}

func firstElement(t Tensor) (element []byte, ok bool) {
	for _, e := range t.All() {
		return e, true
	}
	return nil, false
}

// takeHeaviest answers with the list of the heaviest candidate that has answered.
func (p *rankFusion) takeHeaviest(c *Combination, w *Vector) {
	c.Output = c.Output[:0]
	for i := range c.Answers {
		if k := c.Answers[i].Candidate; c.Winner < 0 || w[k] > w[c.Winner] || w[k] == w[c.Winner] && k < c.Winner {
			c.Winner = k
		}
	}
}

// fuse writes the fused list to c.Output, or reports that there is none.
func (p *rankFusion) fuse(c *Combination, w *Vector) bool {
	specs := c.Predictions[0].Outputs.Specs
	output := max(c.Judged, 0)
	if output >= len(specs) || len(specs) > 2 || len(specs[output].Shape) != 1 {
		return false
	}
	scores := -1
	if len(specs) == 2 {
		scores = 1 - output
		if s := &specs[scores]; s.DType.Variable() || !s.DType.Valid() || len(s.Shape) != 1 || s.Shape[0] != specs[output].Shape[0] {
			return false
		}
	}
	var f fused
	longest := 0
	for i := range c.Predictions {
		list, ok := c.Predictions[i].Judged(c.Judged)
		if !ok {
			continue
		}
		weight, count := positive(w[c.Predictions[i].Candidate]), 0
		for rank, element := range list.All() {
			if rank >= maxFused/len(c.Predictions) {
				break
			}
			f.add(element, weight/(p.k+float64(rank)+1))
			count++
		}
		longest = max(longest, count)
	}
	if f.n == 0 {
		return false
	}
	n := min(longest, f.n)
	if fixed := specs[output].Shape[0]; fixed >= 0 {
		if n = int(min(fixed, maxFused+1)); n > f.n {
			return false
		}
	} else if p.top > 0 {
		n = min(p.top, f.n)
	}
	c.AddOutputs(len(specs))
	list := &c.Output[output]
	for range n {
		best := f.next()
		if specs[output].DType.Variable() {
			list.Data = binary.LittleEndian.AppendUint32(list.Data, uint32(len(best.bytes)))
		}
		list.Data = append(list.Data, best.bytes...)
		if scores >= 0 {
			one := [1]float64{best.score}
			c.Output[scores].Data = specs[scores].DType.AppendNumbers(c.Output[scores].Data, one[:])
		}
	}
	for i := range c.Output {
		if !specs[i].Fixed() { // texts of a fixed number have dimensions too
			c.Output[i].Dims = append(c.Output[i].Dims, int64(n))
		}
	}
	return true
}

// Observe charges each candidate 1 minus the reciprocal rank of the label's first item.
func (p *rankFusion) Observe(f *Feedback) {
	wanted, ok := []byte(nil), false
	if f.Label.Len() > 0 {
		wanted, ok = firstElement(f.Label.At(0))
	}
	if !ok || len(f.Predictions) == 0 {
		p.AllCandidates.Observe(f)
		return
	}
	var losses Vector
	for i := range losses {
		losses[i] = math.NaN()
	}
	for i := range f.Predictions {
		list, ok := f.Predictions[i].Judged(f.Judged)
		if !ok {
			continue
		}
		loss := 1.0
		for rank, element := range list.All() {
			if string(element) == string(wanted) {
				loss = 1 - 1/float64(rank+1)
				break
			}
		}
		losses[f.Predictions[i].Candidate] = loss
	}
	byRank := *f
	byRank.Losses = losses[:]
	p.AllCandidates.Observe(&byRank)
}
