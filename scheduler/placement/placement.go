package placement

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

const (
	// overdraft is the part of its budget by which running replicas may exceed a node before something is evicted.
	// Measured memory varies by some percent, and a start costs more than that.
	overdraft = 0.05
	// advantage is by how many times the level of a running replica must exceed that of a claim before it is evicted
	// for the claim.
	advantage = 1.1
	// IdleNanos is the time without queries after which a model counts as idle. Its replicas beyond Min are then
	// evicted before any others, the longest unused first. It is about ten times the start of a small model: if more
	// models are in use than fit, a start is then a tenth of a replica's time.
	IdleNanos = 5e9 //xebec:limit time without a query after which a model gives its room to others
	// maxReplicas bounds what a model can want and have, to bound the work. It is 64 times what a spec may ask for.
	maxReplicas = 1 << 16
	// maxRounds bounds how often a plan for several nodes is planned again on itself: see contend. Two rounds suffice
	// except for rare inputs, where the next plan completes the rest.
	maxRounds = 8
	// Weights have the same bounds as in package scheduler.
	minWeight, maxWeight = 0.01, 100
)

// Planner makes placements. Between calls it keeps nothing but working memory: the result depends on the input alone.
// The zero value is ready. It is not safe for concurrent use.
type Planner struct {
	in  *Input
	out *Output

	nodes  []node
	models []model
	per    amounts // the maximum of node.per over all nodes
	// left is how many of a model's running replicas on each node are not settled, laid out like Output.Placed, which
	// has the settled ones. It is valid for models with model.left > 0.
	left []int32

	contest tournament // see contend
	moves   []move     // see pack
	where   []int32    // see holding and rooms
	again   bool       // this round plans the plan again on itself
	// changed: contend has started or evicted a replica.
	changed bool

	order tournament // see pack and sort

	// The replicas that are likely to be evicted; see victims.
	places  []place // by node, the worst claim first
	placeAt []int32 // the index of a model's place on a node, laid out like left
	ranks   int32   // the number of models with places
	sorted  bool    // the above are built for this plan
}

type node struct {
	budget amounts
	used   amounts // by settled replicas
	room   amounts // budget - used
	free   amounts // of the budget, beyond settled replicas and running ones that are likely to stay
	per    amounts // 1/budget; 0 without a budget
	spare  float64 // the part of the budget left in free of the node's scarcest resource
	limit  amounts // up to which running replicas stay
	key    uint64
	// started: a replica is to start here, so resources that it takes must be within the budget.
	started   bool
	unsettled int // models with entries in left here, when contend begins
	// The node's places in Planner.places begin at the first with replicas left to evict. weakest is its rank.
	firstAt, placesEnd int
	weakest            int32
}

type model struct {
	takes     amounts
	needs     amounts // takes, with -Inf for what it takes nothing of, so that it fits even if that is overdrawn
	most      float64 // the largest part that one replica takes of anything that a node has
	share     float64 // dominant share of one replica: the largest part that it takes of anything that all nodes have
	unit      float64 // share divided by the weight
	useful    float64 // queries per second, plus waiting queries
	unused    uint64  // nanoseconds since the last query
	wanted    int32
	min       int32
	granted   int32 // settled; at first everything that runs
	left      int32 // sum over the nodes
	has       int32 // at the beginning, at most what is wanted
	idle      bool
	neverFits bool // larger than any node
	closed    bool // fixed, or takes nothing: it is settled before all others
}

// New makes a planner.
func New() *Planner { return &Planner{} }

// Plan writes into out how many replicas each model gets on which node. It reuses out's memory and keeps no reference
// to in. The same input in the same order always produces the same output; with unique keys the order of models and
// nodes does not matter. Planning again with the result as Placed changes nothing.
func (p *Planner) Plan(in *Input, out *Output) {
	p.in, p.out = in, out
	n, m := len(in.Nodes), len(in.Models)
	p.left, p.where = resize(p.left, n*m), resize(p.where, n)
	out.Placed, out.Granted, out.Short, out.Free = resize(out.Placed, n*m), resize(out.Granted, m), resize(out.Short, m), resize(out.Free, n)
	p.lookAtNodes()
	p.lookAtModels()
	p.free()
	p.shrink()
	if p.overdrawn() || !p.pack() {
		for round := range maxRounds {
			p.again = round > 0
			if p.contend(); len(p.nodes) == 1 || !p.changed {
				break
			}
			p.free()
		}
	}
	p.finish()
	p.in, p.out, p.contest.models, p.order.models = nil, nil, nil, nil
}

func (p *Planner) lookAtNodes() {
	p.nodes, p.per = resize(p.nodes, len(p.in.Nodes)), amounts{}
	for i := range p.nodes {
		n := &p.nodes[i]
		*n = node{key: p.in.Nodes[i].Key, budget: amountsOf(p.in.Nodes[i].Budget)}
		for d, b := range n.budget {
			if b > 0 {
				n.per[d] = 1 / b
				p.per[d] = max(p.per[d], n.per[d])
			}
		}
	}
}

func (p *Planner) lookAtModels() {
	var total amounts
	for i := range p.nodes {
		total.add(&p.nodes[i].budget, 1)
	}
	p.models = resize(p.models, len(p.in.Models))
	for i := range p.models {
		from, m := &p.in.Models[i], &p.models[i]
		*m = model{}
		m.takes = amountsOf(from.Takes)
		m.wanted = int32(max(0, min(from.Wanted, maxReplicas)))
		m.min = int32(max(0, min(from.Min, int(m.wanted))))
		m.closed = from.Fixed
		m.useful = rateOf(from.Rate) + float64(max(0, from.Waiting))
		m.unused = unused(p.in.Now, from.LastUsed)
		m.idle = from.Waiting <= 0 && m.unused >= IdleNanos
		m.needs = amounts{need(m.takes[0]), need(m.takes[1]), need(m.takes[2])}
		m.most = max(m.takes[0]*p.per[0], m.takes[1]*p.per[1], m.takes[2]*p.per[2])
		m.share = max(part(m.takes[0], total[0]), part(m.takes[1], total[1]), part(m.takes[2], total[2]))
		m.unit = m.share / weightOf(from.Weight)
		m.neverFits = true
		for j := range p.nodes {
			if m.needs.within(&p.nodes[j].budget) {
				m.neverFits = false
				break
			}
		}
		p.lookWhere(i, from)
	}
}

// lookWhere settles a model's running replicas. Those of fixed models are taken as they are.
func (p *Planner) lookWhere(i int, from *Model) {
	m, row, most := &p.models[i], p.placed(i), int32(maxReplicas)
	if m.closed {
		most = math.MaxInt32
	}
	given := from.Placed[:min(len(from.Placed), len(row))]
	clear(row[len(given):])
	sum := int64(0)
	for j, count := range given {
		count = max(0, min(count, most))
		row[j] = count
		sum += int64(count)
	}
	if sum == 0 {
		return
	}
	m.granted = int32(min(sum, math.MaxInt32)) // nodes × maxReplicas unless fixed
	for _, j := range p.holding(row) {
		p.nodes[j].used.add(&m.takes, float64(row[j]))
	}
}

// holding returns the nodes where a model has replicas, given its row. The loop has no branch, because no branch
// predictor can guess which nodes they are.
func (p *Planner) holding(row []int32) []int32 {
	where := p.where[:len(row)]
	n := 0
	for j, count := range row {
		where[n] = int32(j)
		n += int(uint32(-count) >> 31) // 1 if there are some
	}
	return where[:n]
}

// shrink removes what a model has beyond what it wants, where the least is left over beside everything that runs. Room
// that other models give up does not count, so the order of models does not matter.
func (p *Planner) shrink() {
	shrunk := false
	for i := range p.models {
		m := &p.models[i]
		if m.closed {
			continue
		}
		for row := p.placed(i); m.granted > m.wanted; {
			shrunk = true
			at := -1
			for j := range row {
				if row[j] > 0 && (at < 0 || p.nodes[j].spare < p.nodes[at].spare || p.nodes[j].spare == p.nodes[at].spare && p.before(j, at)) {
					at = j
				}
			}
			gone := min(row[at], m.granted-m.wanted)
			row[at] -= gone
			m.granted -= gone
		}
		m.has = m.granted
	}
	if shrunk {
		p.count()
		p.free()
	}
}

// count computes what settled replicas use.
func (p *Planner) count() {
	for j := range p.nodes {
		p.nodes[j].used = amounts{}
	}
	for i := range p.models {
		row := p.placed(i)
		for _, j := range p.holding(row) {
			p.nodes[j].used.add(&p.models[i].takes, float64(row[j]))
		}
	}
}

// free computes what is free with everything that runs settled.
func (p *Planner) free() {
	for j := range p.nodes {
		n := &p.nodes[j]
		for d, b := range n.budget {
			n.limit[d] = b * (1 + overdraft)
		}
		n.countRoom()
		n.free = n.room
		n.countSpare()
	}
}

// overdrawn reports whether running replicas exceed a node by more than the overdraft.
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

// finish writes the result for every model.
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
					break
				}
			}
		case m.neverFits:
			short = NeverFits
		case m.needs.within(&room):
			short = Fragmented
		default:
			short = NoRoom
		}
		p.out.Short[i] = short
	}
}

// ran returns how many replicas of a model the input has on a node.
func (p *Planner) ran(i, j int) int32 {
	if placed := p.in.Models[i].Placed; j < len(placed) {
		return placed[j]
	}
	return 0
}

// countRoom computes room. It is exact up to 2^53.
func (n *node) countRoom() {
	n.room = amounts{n.budget[0] - n.used[0], n.budget[1] - n.used[1], n.budget[2] - n.used[2]}
}

// settle settles one replica.
func (n *node) settle(takes *amounts) {
	n.used.add(takes, 1)
	n.countRoom()
}

// take subtracts takes × times from what is free; times may be negative.
func (n *node) take(takes *amounts, times float64) {
	n.free.add(takes, -times)
	n.countSpare()
}

// countSpare computes spare.
func (n *node) countSpare() { n.spare = n.slack(0, 0, 0) }

// slack returns what would be left over of what is free, less the given amounts, in the node's scarcest resource, as a
// part of its budget.
func (n *node) slack(cpu, memory, gpus float64) float64 {
	least := math.Inf(1)
	if n.per[0] != 0 {
		least = (n.free[0] - cpu) * n.per[0]
	}
	if n.per[1] != 0 {
		least = min(least, (n.free[1]-memory)*n.per[1])
	}
	if n.per[2] != 0 {
		least = min(least, (n.free[2]-gpus)*n.per[2])
	}
	return least
}

// misfit returns how badly a replica fits on a node: the slack that it would leave, because what is left over of the
// scarcest resource decides what else can run there. It is 1 more if the replica would take room beside free GPUs
// without using any. slack is at most 1.
func (n *node) misfit(takes *amounts) float64 {
	slack := n.slack(takes[0], takes[1], takes[2])
	if takes[GPUs-1] == 0 && n.free[GPUs-1] > 0 {
		slack++
	}
	return slack
}

// before decides between equal nodes.
func (p *Planner) before(a, b int) bool {
	if p.nodes[a].key != p.nodes[b].key {
		return p.nodes[a].key < p.nodes[b].key
	}
	return a < b
}

func (p *Planner) placed(i int) []int32 {
	return p.out.Placed[i*len(p.nodes) : (i+1)*len(p.nodes)]
}

func (p *Planner) row(i int) []int32 { return p.left[i*len(p.nodes) : (i+1)*len(p.nodes)] }

func unused(now, last api.Nanos) uint64 {
	if last >= now {
		return 0
	}
	return uint64(now) - uint64(last) // correct also if the difference exceeds an int64
}

func weightOf(w float64) float64 {
	if !(w > 0) { // also NaN
		return 1
	}
	return max(minWeight, min(w, maxWeight))
}

// rateOf returns a comparable rate: invalid values are 0.
func rateOf(r float64) float64 {
	if !(r > 0) {
		return 0
	}
	return min(r, 1e18)
}

// resize returns s with n elements of any value.
func resize[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
