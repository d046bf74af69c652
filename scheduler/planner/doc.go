// Package planner computes the plan of an epoch. It is a pure function from measurements (request rates, evaluation
// times, costs and gains) to decisions: which models each function evaluates, which replicas serve which functions, how
// batches are executed, and what is refused. It is the epoch scheduler that Clipper's design document proposes ("Change
// batching to scheduling"). The planner promises the epoch's driver a plan that never exceeds the available capacity,
// in 0.5 to 2 ms for a thousand models and without an allocation. It promises operators a [Reason] for each number. The
// data path never calls the planner: it looks up the plan.
//
// # What is decided
//
// A resource is the time of a model's replicas, or the time of a device that several models share. Its size is 1. A
// replica with the cap b and the profile a + s·n evaluates b/(a+s·b) queries per second. A model's capacity C is the
// sum over its replicas, and one query per second uses 1/C of the model's resource. Function f of weight w receives λ
// queries per second and has candidates c with gain g, cost k and resource r(c). Let x be the queries per second of f
// that candidate c evaluates. A plan satisfies
//
//	Σ x/C  ≤ 1        over all f and c with r(c) = r, for every resource r
//	Σ x·k  ≤ budget   over the candidates of f
//	Σ x    ≤ λ        over the candidates of f with mode One or Shares; x ≤ λ for each with mode All
//
// and aims for a large
//
//	Σ w · λ · U,   U = Σ g·x/λ (One),   U = 1 − Π(1 − g·x/λ) (All, as if the members' errors were independent),
//	               U = Σ (2·v + g·(x − v))/λ with v = min(x, s·λ) (Shares: the policy wishes the share s of the queries for c)
//
// Fairness takes precedence over this sum: the plan first gives every query an answer, then improves answers. Each
// resource's time is divided by weighted max-min fairness. A model with too little data restricts nothing: fewer than
// 16 batches seen of a replica, or a cap that still grows. Budgets apply to such models too, because they depend only
// on rates and costs.
//
// # How
//
// A function's wish is what it would get if it were alone: the best candidate for One, all candidates for All, the
// policy's shares for Shares, within its budget. If all wishes fit, they are the plan. Otherwise the planner runs three
// steps on everything that is connected with an overloaded resource, one whose wishes exceed its capacity:
//
//  1. Cover. Each function claims time for all its queries at its most efficient candidate. Efficiency is the gain
//     divided by the dominant share, the largest part that a query takes of any resource or of the budget (Ghodsi et
//     al., Dominant Resource Fairness, NSDI 2011). An overloaded resource keeps the claims below its water level
//     (weighted max-min: Bertsekas and Gallager, Data Networks, section 6.5.2) and rejects the rest, including claims
//     that it kept in an earlier round. The function claims what was rejected at its next candidate. This is deferred
//     acceptance (Gale and Shapley 1962) with divisible places. When it ends, no function is refused at a resource
//     where another function has more for its weight (except for what the bound on rounds leaves), and no function is
//     refused while a resource that it could use and afford has time left. A function claims at the candidate with the
//     largest gain first (with Shares, at each candidate for its wished share) as long as the wishes for that resource
//     fit and the candidate has no sibling on its device.
//  2. Improve. The remaining time is divided by the same water-filling among the functions that could use it. Each
//     function spends its part where it gains most. With One it moves queries to better candidates, starting with the
//     pair that gains most for the additional use: the greedy solution of the multiple-choice knapsack (Sinha and
//     Zoltners, 1979). Shares works in the same way, and an answer as wished counts for more than any gain. With All it
//     adds members. The greedy choice is right there because U is submodular (Nemhauser, Wolsey and Fisher, 1978): a
//     member adds its own gain times what the others leave over, so the order by gain for use does not depend on which
//     members are in already, and the member with the least gain for its use is dropped first. Members are added up to
//     nine tenths of a model and three quarters of a device, and tenants with too little data count as load there. An
//     answer waits for its slowest member, so one overloaded member makes all answers late.
//  3. Room that moved queries leave goes to queries that are still refused, and to one more round of improvements.
//
// A worked example (testdata/example.txt runs it). On one accelerator a query takes 1.25 ms on large, 0.5 ms on medium
// and 0.125 ms on small. The ensemble label asks all three, with gains 0.9, 0.8 and 0.6, at 800 queries/s: 1.5 s each
// second. The efficiencies are 0.72, 1.6 and 4.8 for each ms. Cover gives small 800/s, 10 % of the time. Improve gives
// medium 800/s, 40 %, and large the remainder of three quarters, 25 %: 200/s. A quarter of the answers have all three
// members. Now the function other asks small alone at 1,200/s: 15 %. Its first answers precede label's third member,
// and large keeps 10 %: 80/s.
//
// A worked example of shares (testdata/shares.txt). A policy wishes 70 % of 2,000 queries/s for new, 20 % for old and
// 10 % for spare, with gains 0.9, 0.8 and 0.5. Each evaluates 1,000/s, and 900/s are planned for a candidate that
// others can replace. New gets 900 of its 1,400. The other 500 go to old, where they gain most: [FunctionPlan].Evaluate
// is 45 %, 45 % and 10 %. [FunctionPlan].Limits, which restricts the policy's choices, is 0.643, 1 and 0.999: queries
// withheld by a limit go to candidates with the limit 1. A policy may state new gains and wishes in every epoch; see
// [PolicySource].
//
// # In the background
//
// Functions with Background (shadows, whose answers no client waits for) are planned after everything else. The same
// steps divide what is left of four fifths of each resource. They do not change what other functions are allotted, and
// a machine receives no more background queries than are allotted. A small weight would not achieve that: even the
// smallest weight is due a part of a full device (testdata/shadow.txt).
//
// # From what is allotted to what is admitted
//
// Rates are estimates, and queries arrive in bursts. The machine knows each query's deadline and refuses late queries
// one by one, so up to 3 times the allotment is admitted to it. Of a larger demand 2.5 times the allotment is admitted,
// and the rest is refused before any machine sees it ([FunctionPlan].Evaluate; the machine sheds direct sub-queues).
// Demands below 1,000 queries/s are exempt: they cost nothing to refuse and arrive in lumps. A factor of 1.25 was too
// small: a machine that had just dropped queries after a pause had too little work. Budgets bound the admitted queries
// too. The plan sets a machine's weights where the attached weights would not produce the allotted shares.
//
// # The rest of a plan
//
//   - Ladders: nine tenths of the capacity of a model that others can replace are planned. Estimates are off by some
//     percent, and an overloaded model answers at the deadlines, if at all.
//   - Devices: tenants of a full device take turns in proportion to planned time, about an epoch a round, each turn at
//     least one batch long (Shreedhar and Varghese, 1995, in time). A batch is at most three quarters of the tightest
//     objective of the other tenants with traffic, less their own evaluation, unless batches that small would make the
//     device too busy.
//   - Replicas: where objectives differ threefold and the fixed cost of a batch is that of four queries, the functions
//     with tight objectives get a whole number of replicas for themselves, and the other functions may use longer
//     batches.
//   - Execution: see [BatchesSaveNothing], [LargeInputs], [SideBySide].
//   - Holds: a batch is held as long as another query is expected, up to the knee, where the fixed cost is half.
//
// # What it costs
//
// A plan is a few passes over functions and their candidates (read, wish, admit) and over models with their sub-queues
// and replicas (look, planModels). All lists are contiguous and reused. If a resource is overloaded, the functions and
// resources that contend fall into groups that share nothing ([Planner] finds them by union-find). The planner settles
// one group after the other, so that a group's data stays in cache. In a group, a round of Cover costs one claim for
// each claimant that still has one and one water level for each claimed resource. A water level takes three or four
// steps of Newton's method over the entries, starting from the last level, without a data-dependent branch: a
// mispredicted branch costs as much as the step. A claimant that already has what its level allows of a full resource
// skips it, because only room that others make could raise the level. So the later Covers, which look for such room,
// cost little.
//
// For 1,000 models of 4 replicas and 2,000 functions (BenchmarkPlan), one core of an AMD EPYC takes 0.33 ms where
// nearly all wishes fit, 0.54 and 0.97 ms with 50 and 138 overloaded resources, and 1.6 ms where the demand is three
// times the capacity. Results are not cached between plans: rates are decayed means, which all change in every epoch.
//
// # What it never does, and its limits
//
// It reads no clock, keeps no reference to an Input, and never waits. It starts and stops no replica. It knows no
// single query: the machine handles deadlines. All inputs are estimates that are an epoch old. Capacity assumes full
// batches, so traffic in bursts gets less. Queries that are already queued are not counted as demand. The greedy
// algorithm is not optimal, and with several candidates more capacity may lower the total gain a little. Shares are
// fair at each resource, not summed over resources: a function that can use two resources has a share of each. The
// planner remembers a little by Key (means over a few seconds, and thresholds with hysteresis) so that choices do not
// alternate with the noise. Without keys a plan depends on its Input alone.
package planner
