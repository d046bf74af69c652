// Package placement decides how many replicas each model version gets on which node when not everything that is wanted
// may fit. It is a pure function from what nodes have, what replicas take and what is wanted to an assignment. The
// autoscaler decides what a model needs for its traffic; the caller starts and stops replicas as decided here. The
// planner promises the caller that nothing is started beyond a budget, that nothing is stopped without need, and that a
// plan for a finished plan changes nothing. It promises operators that every shortage follows a rule and names it
// ([Shortage]).
//
// # With enough for all
//
// Every model gets what it wants. Running replicas stay where they are, because a move is a stop and a start. New
// replicas are placed in decreasing order of size, each on the node that it fits best: where the least is left over in
// the scarcest resource, as a part of the node's budget (best-fit decreasing; Johnson, Near-optimal bin packing
// algorithms, 1973). With several dimensions one number has to stand for all of them, and what is left of the scarcest
// resource decides what else can run there. A replica without GPUs avoids nodes with free GPUs if it can. A model that
// wants fewer replicas loses them where the least is left over.
//
// # With less
//
// If there is not enough, every replica, running or wanted, is a claim. Claims are settled from the best to the worst,
// each with what better claims have left of the budgets. A running replica that finds no room is evicted. The order:
//
//  1. The replicas that an operator requires: Min.
//  2. The first replica of each model in use: queries wait for it, or arrived within [IdleNanos].
//  3. The second, third and further replicas of models in use.
//  4. Running replicas of idle models, the most recently used model first, and a model's first replica before its
//     others.
//  5. Replicas of idle models that would have to be started.
//
// Within 1 to 3 claims are ordered by their level k·s/w: what a model of weight w has with its k-th replica. s is its
// dominant share, the largest part that one replica takes of anything that all nodes have together. Taking the lowest
// level first is progressive filling with whole replicas: weighted max-min fairness over dominant shares, which is
// dominant resource fairness (Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types,
// NSDI 2011, algorithm 1). At equal levels the model with more queries for the replica comes first, then the most
// recently used one. Read backwards, this is the order of evictions: first idle models, the longest unused first; then
// the replicas farthest above their share; among equals, those with the fewest queries.
//
// A worked example (testdata/drf.txt runs it; it is that of the paper's section 4.1). A node has 9 cores and 18 GiB. A
// replica of a takes 1 core and 4 GiB, so its dominant share is 4/18 = 2/9, of the memory. A replica of b takes 3 cores
// and 1 GiB: 1/3, of the cores. The levels are 2/9, 4/9, 6/9 … and 1/3, 2/3 …: a, b, a, and at 2/3 a's third and b's
// second. That uses all nine cores: 3 replicas of a and 2 of b, 2/3 of the memory and 2/3 of the cores. With weight 2
// a's levels are half of that, 1/9, 2/9, 3/9, 4/9: four replicas of a and one of b. Then there is no memory for a fifth
// and there are no cores for a second.
//
// Weights also decide between first replicas if there is room for only one. They do not put a second replica before
// another model's first: a model with queries and no replica answers nothing, which no share makes up for. A model with
// large replicas may be as far above its share with one replica as others with many, so its first replica is evicted
// before the first ones of smaller models. Min is for replicas that must stay.
//
// # Stability
//
// Running replicas have an advantage: their level counts as a tenth less (advantage). So a claim that is equal, or
// slightly ahead by measurement noise, evicts nothing. Shares are then fair within one replica or a tenth. A claim that
// fits nowhere evicts nothing either. Running replicas that have grown since their start may exceed a budget by a
// twentieth (overdraft). Beyond that the worst claims are evicted, even if nothing takes their place. A node where
// something starts must be within its budget. contend's comment proves that a plan for a finished plan is the same.
//
// Two models that need the same place take turns by use, not by time: the running one keeps the place until it has been
// idle for IdleNanos, and the other waits. Time slices would need to know the cost of a start.
//
// # What a plan costs
//
// Settling is a tournament of the models' next claims: O(r·(log m + n)) for r replicas, m models and n nodes, plus at
// most maxVictims checks of each node for a claim that needs an eviction. If all models get what they want, it is
// O(m·n), the size of the output. With several nodes a changed plan is planned again on itself until it is stable,
// which nearly always takes one repetition. In a repetition uncontended replicas stay settled, and refused models are
// only tried on nodes with unsettled replicas. Most of the time is spent on branch mispredictions, not on arithmetic,
// so the loops over nodes and the comparison of claims are written without branches (tournament.go, rooms, holding).
// BenchmarkPlan uses 1,000 models that want 4,000 replicas, on one node and on 16. After the first plan of a size there
// is no allocation. A model that wants nothing and has nothing need not be in the input, so thousands of sleeping
// models cost nothing.
//
// # What it never does, and its limits
//
// It reads no clock, keeps nothing between plans, and starts and stops nothing. A plan is a target state: replicas that
// are to end keep their memory while they drain, and the caller must wait for that before it starts others in their
// place. It moves nothing to make room in one piece; [Fragmented] reports such a case. It does not know the cost of a
// start. Invalid numbers count as the nearest valid ones, and no model gets more than 65,536 replicas.
//
// Start reading at [Planner.Plan], then contend.go and claim.go. pack.go chooses a node if there is room, victims.go if
// something has to be evicted.
package placement
