package placement

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

const (
	// overdraft is the part of its budget by which what runs already may exceed a node before something is evicted. Measured memory
	// goes up and down by some percent, and a start costs more than that.
	overdraft = 0.05
	// advantage is how many times the level of a claim to room a replica must be at before it is evicted for it.
	advantage = 1.1
	// IdleNanos is how long nobody has asked a model that counts as idle: its replicas beyond Min then go before anything else does,
	// the longest unused first. Some ten times what a small model takes to start: where more models are in use than fit, each start
	// is then a tenth of the time that a replica has for itself.
	IdleNanos = 5e9
	// maxReplicas bounds what a model can want and have, to bound the work; it is 64 times what a spec may ask for.
	maxReplicas = 1 << 16
	// maxRounds bounds how often a plan for several nodes is planned again on itself: see contend. Two are enough but for rare inputs, and
	// what is left over then is for the next plan.
	maxRounds = 8
	// Weights have the bounds that the scheduler's machine has for them.
	minWeight, maxWeight = 0.01, 100
)

// Planner makes placements. Between calls it keeps nothing but memory to work in: what it decides follows from the input alone.
// The zero value is ready. It is not safe for concurrent use.
type Planner struct {
	in  *Input
	out *Output

	nodes  []node
	models []model
	// left is how many of a model's replicas run on each node that are not settled, laid out like Output.Placed. What is
	// settled stands there.
	left []int32

	short []int32 // models that lack something, the largest first; see pack
	trial []amounts
	heap  []claim // see contend
	// changed: something is to start or to end that contend was not told.
	changed bool

	// Which replicas are likely to go; see victims.
	spared []claim // models with replicas that run, the weakest claim first
	places []place // by node, in the same order
	doomed []int32 // how many of left are likely to go
	sorted bool    // the above are made for this plan
}

type node struct {
	budget amounts
	limit  amounts // up to which replicas stay that run already
	used   amounts // by what is settled
	free   amounts // of the budget, beyond what is settled and what runs and is likely to stay
	per    amounts // 1/budget; 0 where there is none
	key    uint64
	// started: a replica is to start here, so that of what it takes nothing stays beyond the budget.
	started           bool
	placesAt, firstAt int // its first in Planner.places, and the first that has not gone altogether
	placesEnd         int
}

type model struct {
	takes   amounts
	share   float64 // dominant share of one replica: the largest part that it takes of anything there is
	unit    float64 // share, divided by the weight
	useful  float64 // queries per second, and those that wait
	unused  uint64  // nanoseconds since the last query
	wanted  int32
	min     int32
	granted int32 // settled
	left    int32 // sum over the nodes
	has     int32 // at the beginning, no more than is wanted
	idle    bool
	never   bool // larger than any node
	closed  bool // it is fixed, or takes nothing: it is settled before anybody else
}

// New makes a planner.
func New() *Planner { return &Planner{} }

// Plan says in out who gets how many replicas on which node. It reuses out's memory, and keeps nothing of in.
// The same input in the same order always leads to the same output, and with keys that differ, in any order of models and nodes.
// Planned again with what it says as Placed, nothing changes.
func (p *Planner) Plan(in *Input, out *Output) {
	p.in, p.out = in, out
	n, m := len(in.Nodes), len(in.Models)
	p.left = resize(p.left, n*m)
	out.Placed, out.Granted, out.Short, out.Free = resize(out.Placed, n*m), resize(out.Granted, m), resize(out.Short, m), resize(out.Free, n)
	clear(out.Placed)
	p.lookAtNodes()
	p.lookAtModels()
	p.shrink()
	if p.overdrawn() || !p.pack() {
		for range maxRounds {
			if p.contend(); len(p.nodes) == 1 || !p.changed {
				break
			}
			p.resume()
		}
	}
	p.finish()
	p.in, p.out = nil, nil
}

func (p *Planner) lookAtNodes() {
	p.nodes = resize(p.nodes, len(p.in.Nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		*n = node{key: p.in.Nodes[i].Key, budget: amountsOf(p.in.Nodes[i].Budget)}
		n.reset()
		for d, b := range n.budget {
			if b > 0 {
				n.per[d] = 1 / b
			}
		}
	}
}

func (n *node) reset() {
	n.used = amounts{}
	for d, b := range n.budget {
		n.limit[d] = b * (1 + overdraft)
	}
}

func (p *Planner) lookAtModels() {
	var total amounts
	for i := range p.nodes {
		total.add(&p.nodes[i].budget, 1)
	}
	nodes := len(p.nodes)
	p.models = resize(p.models, len(p.in.Models))
	for i := range p.models {
		from, m := &p.in.Models[i], &p.models[i]
		*m = model{takes: amountsOf(from.Takes), wanted: int32(max(0, min(from.Wanted, maxReplicas)))}
		m.min = int32(max(0, min(from.Min, int(m.wanted))))
		for d, takes := range m.takes {
			if total[d] > 0 {
				m.share = max(m.share, takes/total[d])
			}
		}
		m.unit = m.share / weightOf(from.Weight)
		m.useful = rateOf(from.Rate) + float64(max(0, from.Waiting))
		m.unused = unused(p.in.Now, from.LastUsed)
		m.idle = from.Waiting <= 0 && m.unused >= IdleNanos
		m.never = true
		for j := range p.nodes {
			if m.takes.within(&p.nodes[j].budget) {
				m.never = false
				break
			}
		}
		row := p.left[i*nodes : (i+1)*nodes]
		sum := int64(0)
		for j := range row {
			row[j] = 0
			if j < len(from.Placed) {
				row[j] = max(0, from.Placed[j])
			}
			sum += int64(row[j])
		}
		if from.Fixed {
			p.settleAll(i, row)
			m.granted, m.closed = int32(min(sum, math.MaxInt32)), true
			continue
		}
		for j := range row { // fixed ones are taken as they are, whatever they are
			row[j] = min(row[j], maxReplicas)
		}
	}
}

// settleAll leaves everything of a model where it is.
func (p *Planner) settleAll(i int, row []int32) {
	for j, count := range row {
		p.out.Placed[i*len(p.nodes)+j] = count
		p.nodes[j].used.add(&p.models[i].takes, float64(count))
		row[j] = 0
	}
}

// shrink takes away what a model has beyond what it wants, where the least is left over beside all that runs: what others
// give up does not count, so that it does not matter who is first.
func (p *Planner) shrink() {
	p.countFree()
	shrunk := false
	for i := range p.models {
		m := &p.models[i]
		if m.closed {
			continue
		}
		row := p.row(i)
		for _, count := range row {
			m.left += count // nodes × maxReplicas
		}
		for m.left > m.wanted {
			shrunk = true
			at, least := -1, 0.0
			for j := range row {
				if row[j] == 0 {
					continue
				}
				if slack := p.nodes[j].slack(&p.nodes[j].free, nil); at < 0 || slack < least || slack == least && p.before(j, at) {
					at, least = j, slack
				}
			}
			gone := min(row[at], m.left-m.wanted)
			row[at] -= gone
			m.left -= gone
		}
		m.has = m.left
	}
	if shrunk {
		p.countFree()
	}
}

// countFree works out what is free beyond all that runs.
func (p *Planner) countFree() {
	for j := range p.nodes {
		n := &p.nodes[j]
		n.free = n.budget
		n.free.add(&n.used, -1)
	}
	nodes := len(p.nodes)
	for i := range p.models {
		takes := &p.models[i].takes
		for j, count := range p.left[i*nodes : (i+1)*nodes] {
			if count > 0 {
				p.nodes[j].free.add(takes, -float64(count))
			}
		}
	}
}

// overdrawn reports whether what runs exceeds a node by more than the overdraft.
func (p *Planner) overdrawn() bool {
	for j := range p.nodes {
		n := &p.nodes[j]
		for d := range n.free {
			if -n.free[d] > n.limit[d]-n.budget[d] {
				return true
			}
		}
	}
	return false
}

// finish says what became of everybody.
func (p *Planner) finish() {
	nodes := len(p.nodes)
	var room amounts
	for j := range p.nodes {
		n := &p.nodes[j]
		n.free = n.budget
		n.free.add(&n.used, -1)
		for d := range room {
			room[d] += max(0, n.free[d])
		}
		p.out.Free[j] = n.free.resources()
	}
	for i := range p.models {
		m := &p.models[i]
		p.out.Granted[i] = m.granted
		short := NotShort
		switch {
		case m.granted >= m.wanted:
		case p.in.Models[i].Fixed:
			short = Held
		case m.granted < m.has:
			short = Outgrown
			for j := range nodes {
				if p.nodes[j].started && p.out.Placed[i*nodes+j] < p.ran(i, j) {
					short = Evicted
				}
			}
		case m.never:
			short = NeverFits
		case m.takes.within(&room):
			short = Fragmented
		default:
			short = NoRoom
		}
		p.out.Short[i] = short
	}
}

// ran is how many replicas of a model the input has on a node.
func (p *Planner) ran(i, j int) int32 {
	if placed := p.in.Models[i].Placed; j < len(placed) {
		return placed[j]
	}
	return 0
}

// slack is what is left over of free, less takes, in the scarcest resource that the node has, as a part of its budget.
func (n *node) slack(free, takes *amounts) float64 {
	least := math.Inf(1)
	for d := range free {
		if n.per[d] == 0 {
			continue
		}
		rest := free[d]
		if takes != nil {
			rest -= takes[d]
		}
		least = min(least, rest*n.per[d])
	}
	return least
}

// unfit is how badly a replica fits on a node with so much room: the slack that it would leave, for what is left over in
// the scarcest resource decides what else can run there, and 1 more where it would take room beside free GPUs without
// using any. There is no more to slack than 1.
func (n *node) unfit(free, takes *amounts) float64 {
	slack := n.slack(free, takes)
	if takes[GPUs-1] == 0 && free[GPUs-1] > 0 {
		slack++
	}
	return slack
}

// before decides between nodes that are equal.
func (p *Planner) before(a, b int) bool {
	if p.nodes[a].key != p.nodes[b].key {
		return p.nodes[a].key < p.nodes[b].key
	}
	return a < b
}

func (p *Planner) row(i int) []int32 { return p.left[i*len(p.nodes) : (i+1)*len(p.nodes)] }

func unused(now, last api.Nanos) uint64 {
	if last >= now {
		return 0
	}
	return uint64(now) - uint64(last) // right also where the difference is beyond an int64
}

func weightOf(w float64) float64 {
	if !(w > 0) { // also NaN
		return 1
	}
	return max(minWeight, min(w, maxWeight))
}

// rateOf is a rate to compare with: what is no number is none.
func rateOf(r float64) float64 {
	if !(r > 0) {
		return 0
	}
	return min(r, 1e18)
}

// resize is s with n elements, whatever is in them.
func resize[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
