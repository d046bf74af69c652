// Package placement says how many replicas each model version gets on which node, when not all that is wanted may fit: a pure function
// from what nodes have, what replicas take and what is wanted to who runs where. The autoscaler says what a model needs by
// its traffic; whoever starts and stops replicas does what is said here. It promises him that nothing is started beyond a
// budget, that nothing is stopped without need, and that calling it again on what it said changes nothing; and people, that
// what is short is short by a rule, and says which ([Short]).
//
// # With enough for all
//
// Everybody gets what he wants. What runs stays where it is, for a move is a stop and a start. New replicas are placed the
// largest first, each where it fits best: where the least is left over in the scarcest resource, as a part of the node's budget
// (best-fit decreasing; Johnson, Near-optimal bin packing algorithms, 1973; in several dimensions one number has to
// stand for all, and what is left of the scarcest decides what else can run there). Who takes no GPU goes where none is free, if he
// can. Who wants less loses replicas where the least is left over.
//
// # With less
//
// Then every replica, running or wanted, is a claim, and claims are settled from the best to the worst, each with what better ones have
// left of the budgets. What runs and finds no room is evicted. The order:
//
//  1. What an operator has asked for in any case: Min.
//  2. The first replica of each model in use: queries wait for it, or came within [IdleNanos].
//  3. The second, third and so on of models in use.
//  4. What runs of models that nobody uses, the one used last first, a model's first replica before its others.
//  5. What would have to be started of those.
//
// Within 1 to 3 it is the level k·s/w: what a model has with its k-th replica, by its weight. s is its dominant share, the largest part that
// one replica takes of anything that all nodes have together. Taking the lowest level first is progressive filling, by whole replicas: weighted
// max-min fairness over dominant shares, which is dominant resource fairness (Ghodsi et al., Dominant Resource Fairness: Fair Allocation of
// Multiple Resource Types, NSDI 2011, algorithm 1). At equal levels the model with more queries for the replica comes first, then the one used
// last. Read backwards it is the order of evictions: what nobody uses, the longest unused first; then what is the farthest above
// its share; of those that are equal, what has the fewest queries.
//
// A worked number (testdata/drf.txt runs it; it is that of the paper's section 4.1). A node has 9 cores and 18 GiB. A replica of a takes
// 1 core and 4 GiB, its dominant share is 4/18 = 2/9 of the memory; one of b takes 3 cores and 1 GiB, 1/3 of the cores. The levels
// are 2/9, 4/9, 6/9 … and 1/3, 2/3 …: a, b, a, and at 2/3 both, a's third and b's second. That is all nine cores: 3 replicas of a and 2 of b,
// 2/3 of the memory and 2/3 of the cores. With weight 2 a's levels are half of that, 1/9, 2/9, 3/9, 4/9: four replicas of a and one of b,
// for then there is no memory for a fifth, and there are no cores for a second.
//
// Weights decide between first replicas too, where there is room for one of two; they do not put a second before another's first: a
// model that is asked and has nothing answers nobody, which no share makes up for. A model of large replicas is as much above
// its share with one as others with many: its first goes before the firsts of smaller ones do. Min is for those that must stay.
//
// # What keeps it still
//
// What runs has an advantage: its level counts as a tenth less (advantage), so that an equal claim, or one that
// measurements put a little ahead, evicts nothing. Shares are then fair within one replica or a tenth. A claim that fits
// nowhere evicts nothing either. What runs may exceed a budget by a
// twentieth (overdraft) where it has grown since it was started; beyond that the worst claims go, whether or not somebody takes their place, and
// where something starts, the budget is the budget. contend's comment has the proof that a plan of what was planned is the same.
//
// Two models that need the same place take turns by use, not by time: who has it keeps it until nobody has asked for it for IdleNanos,
// and the other one waits. Time-slices would need to know what a start costs.
//
// # What a plan costs
//
// The settling is a tournament of the models' next claims: O(r·(log m + n)) for r replicas, m models, n nodes, and for those that find no room
// but where something else goes, no more than maxVictims looks at each node. Where all have what they want it is O(m·n), which is the size of
// the answer. With several nodes a changed plan is planned again on itself until it stays, which is once nearly always; what nobody
// contends for stays settled then, and who was refused is asked again only about nodes where something is not. What takes the time is
// guesses of the processor that go wrong, not arithmetic: so the loops over nodes and the comparison of two claims calculate what others branch
// for (tournament.go, rooms, holding). BenchmarkPlan is 1,000 models that want 4,000 replicas, on one node and on 16. There is no allocation after
// the first plan of a size. Who wants nothing and has nothing need not be in the input, so that thousands of models asleep cost nothing.
//
// # What it never does, and its limits
//
// It reads no clock, keeps nothing from plan to plan, and starts and stops nothing. A plan is where to get to: replicas that are to end still
// have their memory while they drain, and whoever starts others in their place has to wait for that. It moves nothing to
// make room in one piece: [Fragmented] says that this is what is missing. It does not know what a start takes. Numbers without sense count as the nearest that have some, and nobody is given more than 65,536 replicas.
//
// Start reading at [Planner.Plan], then contend.go and claim.go; pack.go is how a node is chosen where there is room, victims.go where something
// has to go.
package placement
