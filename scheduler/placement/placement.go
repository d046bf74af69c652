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
	per    amounts // the most that any node has of node.per
	// left is how many of a model's replicas run on each node that are not settled, laid out like Output.Placed, where what is settled
	// stands. It has sense for models that have some, see model.left.
	left []int32

	contest tournament // see contend
	moves   []move     // see pack
	where   []int32    // see holding and rooms
	again   bool       // the plan is planned again on itself
	// changed: something is to start or to end that contend was not told.
	changed bool

	order tournament // see pack and sort

	// Which replicas are likely to go; see victims.
	places  []place // by node, the weakest claim first
	placeAt []int32 // which of them a model has on a node, laid out like left
	ranks   int32   // how many models have places
	sorted  bool    // the above are made for this plan
}

type node struct {
	budget amounts
	used   amounts // by what is settled
	room   amounts // budget - used
	free   amounts // of the budget, beyond what is settled and what runs and is likely to stay
	per    amounts // 1/budget; 0 where there is none
	spare  float64 // what is left over of free in the scarcest resource that the node has, as a part of its budget
	limit  amounts // up to which replicas stay that run already
	key    uint64
	// started: a replica is to start here, so that of what it takes nothing stays beyond the budget.
	started   bool
	unsettled int // models with some of left here, when contend begins
	// Its places in Planner.places begin with the first that has not gone altogether; weakest is the rank of that.
	firstAt, placesEnd int
	weakest            int32
}

type model struct {
	takes   amounts
	needs   amounts // takes, and -Inf of what it takes nothing of, so that it has room also where that is overdrawn
	most    float64 // the largest part that one replica takes of anything that a node has
	share   float64 // dominant share of one replica: the largest part that it takes of anything there is
	unit    float64 // share, divided by the weight
	useful  float64 // queries per second, and those that wait
	unused  uint64  // nanoseconds since the last query
	wanted  int32
	min     int32
	granted int32 // settled; at first that is all that runs
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
		m.never = true
		for j := range p.nodes {
			if m.needs.within(&p.nodes[j].budget) {
				m.never = false
				break
			}
		}
		p.lookWhere(i, from)
	}
}

// lookWhere takes what runs of a model for settled. Fixed ones are taken as they are, whatever they are.
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
	m.granted = int32(min(sum, math.MaxInt32)) // nodes × maxReplicas, where it is not fixed
	for _, j := range p.holding(row) {
		p.nodes[j].used.add(&m.takes, float64(row[j]))
	}
}

// holding is the nodes where a model has replicas, as a row has them. They are found without a branch for each, since which nodes they are
// nobody can guess, the processor neither.
func (p *Planner) holding(row []int32) []int32 {
	where := p.where[:len(row)]
	n := 0
	for j, count := range row {
		where[n] = int32(j)
		n += int(uint32(-count) >> 31) // 1, if there are some
	}
	return where[:n]
}

// shrink takes away what a model has beyond what it wants, where the least is left over beside all that runs: what others
// give up does not count, so that it does not matter who is first.
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

// count works out what is used by what is settled.
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

// free works out what is free, with all that runs settled.
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
					break
				}
			}
		case m.never:
			short = NeverFits
		case m.needs.within(&room):
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

// countRoom works out room. Up to 2^53 it is as exact as what it is calculated from.
func (n *node) countRoom() {
	n.room = amounts{n.budget[0] - n.used[0], n.budget[1] - n.used[1], n.budget[2] - n.used[2]}
}

// settle settles a replica that takes so much.
func (n *node) settle(takes *amounts) {
	n.used.add(takes, 1)
	n.countRoom()
}

// take takes so much of what is free, n times; n may be negative.
func (n *node) take(takes *amounts, times float64) {
	n.free.add(takes, -times)
	n.countSpare()
}

// countSpare works out spare.
func (n *node) countSpare() { n.spare = n.slack(0, 0, 0) }

// slack is what would be left over of what is free, less so much, in the scarcest resource that the node has, as a part of its budget.
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

// unfit is how badly a replica fits on a node: the slack that it would leave, for what is left over in
// the scarcest resource decides what else can run there, and 1 more where it would take room beside free GPUs without
// using any. There is no more to slack than 1.
func (n *node) unfit(takes *amounts) float64 {
	slack := n.slack(takes[0], takes[1], takes[2])
	if takes[GPUs-1] == 0 && n.free[GPUs-1] > 0 {
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

func (p *Planner) placed(i int) []int32 {
	return p.out.Placed[i*len(p.nodes) : (i+1)*len(p.nodes)]
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
