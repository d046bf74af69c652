package selection

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

func init() {
	Register(Definition{
		Name: "split",
		Doc:  "splits the queries by fixed weights; all queries of a context go to the same candidate",
		Parameters: []Parameter{
			{"weights", Weights, nil, 0, 1e9, "each candidate's weight, relative to the sum; equal by default; 0 for a candidate that is not named"},
		},
		Make: func(v Values) (Policy, error) {
			p := &split{named: "split"}
			sum := 0.0
			given := v.Weights("weights")
			for i, ref := range v.Candidates {
				p.key[i], p.weight[i] = hashOf(ref), 1
				if given != nil {
					p.weight[i] = given[i]
				}
				sum += p.weight[i]
			}
			if sum == 0 {
				return nil, api.FieldErrors{{Path: "policy.weights", Message: "all are 0: set at least one above 0, or no candidate can be asked"}}
			}
			return p, nil
		},
	})
}

// split compares candidates in production. Feedback does not change its choices, but it counts each candidate's losses
// for comparison. A weight of 0 means never, even if no other candidate is available.
type split struct {
	SingleCandidate
	named
	weight Vector
	key    [MaxCandidates]uint64 // hashes of the candidates' names, so that their order does not matter
}

// Learns returns true: feedback is recorded, although it changes no choice.
func (*split) Learns() bool { return true }

func (*split) Observe(f *Feedback) { CountLosses(f, ownMemory, false) }

func (p *split) Select(q *Query, out *Selection) {
	eligible := *q
	for t := eligible.Allowed; t != 0; t &= t - 1 {
		if i := t.First(); p.weight[i] == 0 {
			eligible.Allowed = eligible.Allowed.Without(i)
		}
	}
	if !q.HasContext {
		Draw(&eligible, &p.weight, out)
		return
	}
	// Weighted rendezvous hashing (Thaler and Ravishankar, 1998; the logarithm as in Schindelhauer and Schomaker,
	// Weighted distributed hash tables, SPAA 2005): each candidate has an exponentially distributed time for each
	// context, with its weight as the rate, and the earliest wins. A candidate wins with a probability proportional to
	// its weight. A weight that grows takes contexts from the other candidates and moves none between them.
	var rank Vector
	for t := eligible.Allowed; t != 0; t &= t - 1 {
		i := t.First()
		rank[i] = math.Log(unit(mix(q.Sticky^p.key[i]))) / p.weight[i]
	}
	eligible.Seed = mix(q.Sticky) // the context, not the query, also decides which candidate gives way to a limit
	Best(&eligible, &rank, out)
}

func (p *split) Shares(_ State, allowed Set, dst []float64) {
	clear(dst)
	sum := 0.0
	for t := allowed; t != 0; t &= t - 1 {
		sum += p.weight[t.First()]
	}
	for t := allowed; t != 0 && sum > 0; t &= t - 1 {
		i := t.First()
		dst[i] = p.weight[i] / sum
	}
}

// Gains writes 1 minus each candidate's mean loss, and 0 for candidates that are never asked.
func (p *split) Gains(s State, dst []float64) {
	accuracy(s, dst)
	for i := range dst {
		if p.weight[i] == 0 {
			dst[i] = 0
		}
	}
}

// hashOf returns the FNV-1a hash of s, mixed.
func hashOf(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}
