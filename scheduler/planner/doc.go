// Package planner makes the epoch's plan: a pure function from what is known (who asks how often, who answers how fast, what
// it costs and gains) to which models each function evaluates, which replicas serve whom, how batches are executed and what
// is refused. It is the epoch scheduler that Clipper's design document proposes ("Change batching to scheduling"). It
// promises the epoch's driver a plan that never exceeds what there is, within half a millisecond to two for a thousand models, without
// an allocation; and people, that each number comes with its [Reason]. The data path never calls it: it looks plans up.
//
// # What is decided
//
// A resource is the time of a model's replicas, or that of a device which several models share; all of it is 1. A replica
// with the cap b and the profile a + s·n does b/(a+s·b) queries per second, a model C, the sum of its replicas'; a query per
// second takes 1/C of the model's resource. Function f, of weight w, has λ queries per second and candidates c with gains g,
// costs k and the resource r(c). With x for the queries per second that candidate c gets of f, a plan keeps
//
//	Σ x/C  ≤ 1        over all f and c with r(c) = r, for every resource r
//	Σ x·k  ≤ budget   over the candidates of f
//	Σ x    ≤ λ        over the candidates of f with mode One or Shares; x ≤ λ for each with mode All
//
// and looks for a large
//
//	Σ w · λ · U,   U = Σ g·x/λ (One),   U = 1 − Π(1 − g·x/λ) (All, as if the members' errors were independent),
//	               U = Σ (2·v + g·(x − v))/λ with v = min(x, s·λ) (Shares: a policy wishes the part s of the queries for c)
//
// but fairness comes first: an answer for every query of everybody before a better one for anybody, and each resource's
// time by weighted max-min in between. Nothing is restricted by a model of which too little is known: fewer than 16 batches
// of a replica, or a cap that still grows. Budgets hold all the same, for they need only rates and costs.
//
// # How
//
// If all wishes fit (the best candidate for One, all for All, the policy's shares for Shares, as far as the budget goes), they
// are the plan. Otherwise, for all that is connected with a resource that is wished for beyond its capacity:
//
//  1. Cover. Each function claims time for all its queries at its most efficient candidate: gain for the largest part that a
//     query takes of any resource or of the budget, its dominant share (Ghodsi et al., Dominant Resource Fairness, NSDI
//     2011). A resource with more claims than time keeps what lies below its water level, weighted max-min (Bertsekas and
//     Gallager, Data Networks, section 6.5.2), and rejects the rest, also of what it kept in an earlier round; what is
//     rejected is claimed at the function's next candidate. This is deferred acceptance (Gale and Shapley, 1962) with
//     divisible places: in the end nobody is refused at a resource where somebody else has more for his weight (but for what
//     the bound on rounds leaves), and nobody is refused while anything that he could use and afford has time left. The
//     candidate with the largest gain, with Shares each for the part that is wished, is claimed first as long as the wishes
//     for its resource fit and it has no sibling on its device.
//  2. Improve. What time is left is divided by the same water-filling among those who could use it, and each spends his part
//     where it gains most: with One by moving queries to better candidates, the pair with the largest gain for what it takes
//     more first, which is the greedy solution of the multiple-choice knapsack (Sinha and Zoltners, 1979); with Shares in the
//     same way, where an answer as wished counts for more than any gain; with All by adding members. Greedy is right there
//     because U is submodular (Nemhauser, Wolsey and Fisher, 1978): a member gains its own gain times what the others leave
//     over, so that the order of gain for use is the same whoever is in already, and the least useful member for its use is
//     the first to go. Members are added up to nine tenths of a model and three quarters of a device, and what is unknown
//     there counts as taken: an answer waits for the slowest member, so one that is full makes all of them late.
//  3. Room that moved queries leave goes to those still refused, and to one more round of improvements.
//
// A worked example (testdata/example.txt runs it). One accelerator; of its time a query takes 1.25 ms on large, 0.5 ms on
// medium, 0.125 ms on small. The ensemble label asks all three, with gains 0.9, 0.8 and 0.6, for 800 queries/s: 1.5 s each
// second. Efficiency is 0.72, 1.6 and 4.8 for each ms. Cover gives small 800/s, 10 % of the time. Improve gives medium
// 800/s, 40 %, and large what is left of three quarters, 25 %: 200/s. A quarter of the answers have all three members. Now
// other asks small alone, for 1,200/s: 15 %. Its answers come before label's third, and large keeps 10 %: 80/s.
//
// Another one, of shares (testdata/shares.txt). A policy wishes 70 % of 2,000 queries/s for new, 20 % for old and 10 % for
// spare, with gains 0.9, 0.8 and 0.5; each does 1,000/s, and 900 are planned where others can stand in. New gets 900 of its
// 1,400, and old, where they gain most, the other 500: [FunctionPlan].Evaluate is 45 %, 45 % and 10 %. Limits, by which the
// policy is held back, is 0.643, 1 and 0.999: what limits hold back goes to who has 1. Gains and wishes are a policy's to
// say, in every epoch; see [Wishes].
//
// # In the background
//
// The queries of functions with Background (shadows: nobody waits for their answers) are planned when everything else is, and
// get what is left of four fifths of each resource, by the same steps. What others are allotted is the same with them and
// without, and nothing beyond what they are allotted themselves is let through to a machine. A weight would not do for
// that: the smallest there is has a part of a full device all the same (testdata/shadow.txt).
//
// # From what is allotted to what is let through
//
// Rates are estimates, and queries come in bursts. The machine knows each query's deadline and refuses one by one what
// would be late; so up to 3 times what is allotted is let through to it, and of more (and of at least 1,000 queries/s, for
// fewer cost nothing to refuse and come in lumps), 2.5 times: the rest is refused before any machine sees it
// ([FunctionPlan].Evaluate; direct sub-queues are shed by the machine). With 1.25 times a machine that had just dropped what a
// pause made late had too little to go on with. Budgets bound that too. The machine's weights are set where those that it was
// attached with would not keep to the shares.
//
// # The rest of a plan
//
// Ladders: a model that others can stand in for is planned with nine tenths of its capacity, for estimates are off by some
// percent, and a model that is asked for more than it can do answers at the deadlines, if at all. Devices: where a device is
// full, turns in proportion to planned time, about an epoch a round, each at least one batch long (Shreedhar and Varghese,
// 1995, in time); a batch is no longer than three quarters of the tightest objective of the other tenants with traffic, less
// their own evaluation, unless the device would be too busy with batches so small. Replicas: where objectives differ
// threefold and a batch's fixed cost is that of four queries, the functions in a hurry get their share of the replicas, in
// whole ones, and the others may take longer over their batches. Execution: see [BatchesSaveNothing], [LargeInputs],
// [SideBySide]. Holds: as long as another query is expected, up to the knee, where the fixed cost is half.
//
// # What it costs
//
// A plan is a few passes over what is there: functions and their candidates (read, wish, admit), models with their
// sub-queues and replicas (look, planModels). All lists lie one behind the other in memory that is used again. Where
// something is short, what contends falls into groups that share nothing ([Planner] finds them by union-find), and each is
// settled before the next one, in the same few lines of the cache. In a group a round of Cover costs a claim for each
// claimant that still has one and a water level for each resource that is claimed; a level is three or four steps of
// Newton's method over those that are there, from the last one on, and has no branch that depends on the numbers: one that is
// not foreseen costs as much as the step. Who has as much of a full resource as its level gives him claims there in vain,
// and goes on at once: nothing but room that others make could raise the level. So the later Covers, which look whether
// somebody has made room, cost little.
//
// For 1,000 models of 4 replicas and 2,000 functions (BenchmarkPlan) that is 0.46 ms where nearly all wishes fit, 0.8 and
// 1.3 ms with 50 and 138 overloaded resources, and 2.1 ms where three times as much is asked as there is, on one core of a server of
// 2023. Nothing is saved for the next plan: rates are decayed means, so that each of them is another one in every epoch.
//
// # What it never does, and its limits
//
// It reads no clock, keeps nothing of an Input, and never waits. It starts and stops no replica. It knows no single query:
// deadlines are the machine's business. Everything is an estimate that is an epoch old, and capacity is that of full
// batches: what arrives in bursts gets less. Queries that wait already are not counted as demand. The greedy algorithm is
// not the optimum, and with several candidates more capacity may even lower the total gain a little; the shares at each
// resource are fair, not the sums over all of them: who can use two has a share of either. What is remembered (by Key, for a
// few seconds' means and for thresholds with two sides) is there so that choices do not alternate with the noise; without
// keys a plan follows from its Input alone.
package planner
