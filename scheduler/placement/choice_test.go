package placement

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTournament checks that a tournament produces the sorted order, for any numbers of claims and any ties.
func TestTournament(t *testing.T) {
	var contest tournament
	rapid.Check(t, func(t *rapid.T) {
		var all [][]claim // by model, the best first
		contest.models, contest.claims = nil, contest.claims[:0]
		for i := range rapid.IntRange(0, 40).Draw(t, "models") {
			contest.models = append(contest.models, Model{Key: rapid.Uint64Range(0, 3).Draw(t, "key"), LastUsed: now})
			var claims []claim
			for range rapid.IntRange(1, 5).Draw(t, "claims") {
				claims = append(claims, claim{order: rapid.Uint64Range(0, 5).Draw(t, "order") << 59, tie: rapid.SampledFrom([]uint64{0, 1, 1 << 63, math.MaxUint64}).Draw(t, "tie"), model: int32(i)})
			}
			slices.SortFunc(claims, func(a, b claim) int { return contest.compare(&a, &b) })
			contest.claims, all = append(contest.claims, claims[0]), append(all, claims)
		}
		want := slices.Concat(all...)
		slices.SortFunc(want, func(a, b claim) int { return contest.compare(&a, &b) })
		var got []claim
		next := make([]int, len(all))
		for c := contest.start(); c != nil; c = contest.play() {
			got = append(got, *c)
			i := c.model
			if next[i]++; next[i] < len(all[i]) {
				*c = all[i][next[i]]
			} else {
				*c = noClaim
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("tournament order %v, sorted %v", got, want)
		}
	})
}

// readInput returns a planner that has read an input, ready to pack or contend.
func readInput(in *Input) *Planner {
	p := New()
	p.in, p.out = in, &Output{}
	n, m := len(in.Nodes), len(in.Models)
	p.left, p.where, p.out.Placed = make([]int32, n*m), make([]int32, n), make([]int32, n*m)
	p.lookAtNodes()
	p.lookAtModels()
	p.free()
	p.shrink()
	return p
}

// TestBestFit checks that a replica goes to the best of all nodes with room, and that fill puts each further replica
// where it would have gone alone.
func TestBestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		if rapid.Bool().Draw(t, "large nodes") { // small models on large nodes, where bestFit skips most nodes
			for j := range in.Nodes {
				b := &in.Nodes[j].Budget
				b.CPUMillis, b.MemoryBytes = b.CPUMillis+300, b.MemoryBytes+300
			}
		}
		p := readInput(in)
		for i := range p.models {
			m := &p.models[i]
			for m.granted < m.wanted && m.takes != (amounts{}) {
				var fit []int
				for j := range p.nodes {
					if n := &p.nodes[j]; roomFor(m, &n.free) {
						fit = append(fit, j)
					}
				}
				rooms, free := p.rooms(m)
				if free != (len(fit) > 0) {
					t.Fatalf("model %d fits on %v, but rooms returned %v, %v", i, fit, free, rooms)
				}
				if !free {
					break
				}
				best := slices.MinFunc(fit, func(a, b int) int {
					return cmp.Or(cmp.Compare(p.nodes[a].misfit(&m.takes), p.nodes[b].misfit(&m.takes)), cmp.Compare(p.nodes[a].key, p.nodes[b].key))
				})
				at := p.bestFit(m, rooms)
				if at != best {
					t.Fatalf("model %d goes to node %d, but fits best on %d", i, at, best)
				}
				before := m.wanted
				m.wanted = m.granted + 1
				m.granted += p.fill(m, &p.nodes[at])
				m.wanted = before
				rooms, free = p.rooms(m)
				if !free || m.granted == m.wanted || !roomFor(m, &p.nodes[at].free) {
					continue
				}
				if then := p.bestFit(m, rooms); then != at {
					t.Fatalf("a replica of model %d went to node %d, which has room for the next one, but that fits better on %d", i, at, then)
				}
			}
		}
	})
}

// TestLeastLoss checks that leastLoss picks the node with the least loss, whichever is examined first.
func TestLeastLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := readInput(randomInput(t))
		p.unsettle()
		p.sort()
		for i := range p.models {
			m := &p.models[i]
			rooms, _ := p.rooms(m)
			if len(rooms) < 2 {
				continue
			}
			ranks := make([]int32, len(p.nodes))
			for _, j := range rooms {
				ranks[j] = p.victims(m, &p.nodes[j], p.ranks, false)
			}
			best := slices.MinFunc(rooms, func(a, b int32) int {
				x, y := &p.nodes[a], &p.nodes[b]
				return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(x.misfit(&m.takes), y.misfit(&m.takes)), cmp.Compare(x.key, y.key))
			})
			if at := p.leastLoss(m, rooms); at != int(best) {
				t.Fatalf("for model %d leastLoss chose node %d with rank %d, but node %d has rank %d", i, at, ranks[at], best, ranks[best])
			}
		}
	})
}

// TestManyNodes checks what every plan promises with more models and nodes than town draws and with room for less than
// all, and that plans for finished plans change nothing.
func TestManyNodes(t *testing.T) {
	p, out := New(), &Output{}
	for nodes := 2; nodes <= 20; nodes++ {
		for _, room := range []float64{0.3, 0.5, 0.9, 1, 1.1} {
			in := largeInput(10*nodes, nodes, room)
			for _, change := range []func(){func() {}, func() { swapIdle(in) }} {
				change()
				p.Plan(in, out)
				if wrong := problem(in, out); wrong != "" {
					t.Fatalf("%d nodes with room for %g of what is wanted: %s", nodes, room, wrong)
				}
				if after := again(in, out); !slices.Equal(out.Placed, after.Placed) {
					t.Fatalf("%d nodes with room for %g of what is wanted: %v, planned again %v", nodes, room, out.Placed, after.Placed)
				}
				applyPlan(in, out)
			}
		}
	}
}

// roomFor reports the same as amounts.within, in a simple way.
func roomFor(m *model, room *amounts) bool {
	for d, takes := range m.takes {
		if takes > 0 && takes > room[d] {
			return false
		}
	}
	return true
}

// TestHugeHidesNothing checks that small amounts are not lost to rounding in a sum with a huge one. The huge replica is
// evicted, and the one that would replace it does not fit beside the small ones.
func TestHugeHidesNothing(t *testing.T) {
	const huge = 1 << 62
	in, out := &Input{Now: now, Nodes: []Node{{Key: 1, Budget: Resources{MemoryBytes: huge}}}}, &Output{}
	idle := inUse(1, now-2*IdleNanos, Resources{MemoryBytes: huge}, 1)
	idle.Placed = []int32{1}
	waits := inUse(2, now, Resources{MemoryBytes: huge - 300<<10}, 1)
	in.Models = append(in.Models, idle, waits)
	for i := range 1000 { // 500 bytes each, which make no difference to 2^62
		m := inUse(i+3, now, Resources{MemoryBytes: 100}, 5)
		m.Min, m.Placed = 5, []int32{5}
		in.Models = append(in.Models, m)
	}
	New().Plan(in, out)
	if out.Granted[1] != 0 || out.Short[1] == NotShort {
		t.Fatalf("a replica of %d bytes is started on a node of %d bytes, beside 1,000 models with 500 bytes each", waits.Takes.MemoryBytes, huge)
	}
}
