// Package autoscale decides how many replicas a model version gets. It is a pure function from what one tick and the
// ticks before it saw to a number with a [Reason]. A [Scaler] promises the caller a number within the operator's
// bounds, whatever the samples say, in half a microsecond and without an allocation. It promises operators that a
// constant load leads to a constant number. It reads no clock, starts and stops nothing, and knows no other model.
// Placement decides whether there is room for a replica.
//
// Call it every 100 ms to 10 s, at even or uneven intervals, and at once when a query arrives for a sleeping model.
// Missing ticks are harmless. If data are missing, set Unknown.
//
// # What is needed
//
// The scaler does not aim for a concurrency, which says little where one batch takes forty queries as easily as four.
// It computes the number of replicas that serve the arriving queries within the latency objective, according to their
// profiles. A batch of n takes a + b·n. A query waits for one batch at most and is evaluated in the next, so a batch
// may take two fifths of the objective (batching in package scheduler aims at the same), and a replica serves
//
//	n/(a + b·n) queries per second, n the largest with a + b·n ≤ 2/5 of the objective, at most the cap.
//
// With 5 ms + 1 ms × n and an objective of 100 ms, n = 35 takes 40 ms: 875 queries/s. capacity.go smooths this value
// over the stable window, at first over a tenth of it, and remembers it while there is no replica.
//
// Up to four replicas are planned with a utilization of 70 %. The rest is spare for bursts. More replicas stand in for
// each other, so the spare capacity grows only with the square root of the load (config.go). It is always at least half
// of what Utilization leaves, because load may grow. 5,000 queries/s are the work of 5.7 replicas that are always busy.
// They need 7.4, so eight, which are utilized to 71 %.
//
// Few replicas that serve few queries each need more spare capacity. Queries may wait as long as the objective leaves
// beside the query's own batch, less a batch that has begun. If replicas do little in that time, queries that arrive
// close together by chance are late. In the simulator that is 1.5 % of the queries of one replica that is used to 70 %
// and makes batches of 7 in two fifths of the objective, and next to none with four replicas. The planned utilization
// is therefore limited so that one query in 10,000 is late by chance, by Kingman's approximation of a busy queue
// (capacity.go): 43 % of that single replica. The approximation is rough where hardly one query may wait. With 5 ms + 1
// ms × n, as above, it would allow 79 % of one replica, so 70 % applies.
//
// Arrivals are examined in six ways, and the largest need counts (demand.go, with the numbers of an example):
//
//   - Rate: the mean of the stable window, but no more than was needed at some time within the delay. So the need falls
//     as soon as the delay allows, not only when the mean has followed.
//   - Rush: the queries that certainly arrived in the panic window (a tenth of the stable window), in the last third of
//     it, or within the objective if that is longer. Certain is the count less three standard deviations of a count
//     that is due to chance. A step shows within two or three seconds, noise does not.
//   - Burst: the queries of the last sixtieth of the stable window must be served in that time plus what the objective
//     leaves beside one batch. Replicas are counted with their full capacity, not with the planned utilization. This
//     compares an arrival curve with a service curve (Cruz, A Calculus for Network Delay, 1991), as InferLine's tuner
//     does for windows of many lengths (Crankshaw et al., SoCC 2020, section 5).
//   - Trend: the rate at the time when a replica ordered now is ready. It applies if each of four quarters had more
//     arrivals than the one before, by about the same step. A load that jumps in the middle of a quarter makes two
//     steps, and chance a third. INFaaS, too, includes the loading time (Romero et al., ATC 2021).
//   - Backlog: the standing queue must be worked off within the objective, a sixtieth of the stable window, or a start,
//     whichever is longest, in addition to the current arrivals. The mean of a load that has gone does not count.
//   - Expected: the rate of an operator's hint.
//
// A profile can be wrong. The scaler measures the replicas in trials of a twentieth of the stable window. If in two
// trials in a row there were enough replicas by the profile, they were busy, and queries were refused or more queries
// waited all the time than the next batches take, then the rate that they served is their capacity. If it is below the
// profile, it is used until the profile itself falls below it. It doubles every 60 stable windows, so that the profile
// is tried again. Nothing is learned from queries that no replica could answer in time, even idle. Nothing is learned
// either from a burst that is refused within one objective: in the rest of the trial replicas served what arrived,
// which is not their capacity.
//
// Without a profile (a model's first replica needs 16 batches for one) the number of replicas stays. It grows by half
// each time that the ready replicas are all busy and more queries wait than they hold, or queries were refused. It
// falls if fewer replicas hold a query on average.
//
// Queries of a model that answers in streams hold a place of their replica until they end, however soon their first output
// comes. For them the scaler counts places, not batches (occupancy.go).
//
// # From what is needed to what is asked for
//
//   - Growth is immediate, as soon as replicas would be used by one percent more than planned, but limited to Up times
//     the ready replicas. Replicas that are starting count, because a decision is a total.
//   - The number falls when less has been needed for the whole delay (at least a panic window) by more than a band: two
//     standard deviations of the number of queries in the stable window, 5 % to 30 %. Within a panic window at least
//     1/Down of the most that was asked for stays.
//   - A panic begins when the rush needs twice what was ready before it, and ends when twice what is ready has not been
//     needed for a stable window. (Knative compares with what is ready. But replicas that start in 0.1 s follow a rush
//     step by step and are never half of what is needed.) During a panic no replica is removed. After it the other
//     rules apply. They depend on arrivals, which replicas cannot thin out.
//   - A new scaler removes none of the replicas that it found until it has observed a stable window.
//   - With no replica, a query or a hint asks for what is needed at once, at least one replica. With Min 0, the last
//     replica is removed when nothing waits or is in flight and no query has arrived for Idle. The start of the scaler
//     counts as a query.
//   - Unknown changes nothing, and bounds take precedence over everything.
//
// testdata/pains.txt shows known problems of autoscalers: the collapse when a panic ends (knative/serving issues 3153
// and 9121), averages that new replicas thin out so that they are removed again (ray issue 18925), a delay shorter than
// the lookback window (ray issue 26455), and a rate at the threshold between two numbers.
//
// # What is remembered
//
// Sixty buckets of a sixtieth of the stable window (window.go), two maxima over time, and a profile: about 1 KiB for
// each version, independent of the load. Arrivals between two ticks are spread evenly over the time between them. So
// limits and windows do not depend on the ticks, but bursts shorter than a tick do not show. A tick counts for at most
// 15 s: after a gap, old knowledge is better than none. A clock that goes back stands still, and a counter that goes
// back restarted at zero.
//
// # Limits
//
// Replicas are assumed to be equal and independent. Replicas that share a core or a device slow each other down. Their
// profiles show it, and the scaler asks for more, up to Max. Placement keeps them apart. A rush is answered when it
// arrives; only a hint helps before. The number of a model that gets a few queries a minute, each taking seconds,
// changes now and then, because its rate is mostly chance.
//
// # Knative
//
// [Knative] decides by the rules of Knative's autoscaler, for comparison in simulations: windows of concurrency, a
// target, a panic. Scaler adopts the windows, the panic, the limits and the delay. It differs in what it counts, and in
// what follows from that.
//
// # Reading
//
// sample.go has the inputs and outputs, scaler.go a decision from top to bottom, demand.go what is needed, capacity.go
// what a replica can do, occupancy.go both for streams, window.go the arrivals, and knative.go the baseline. testdata has transcripts; start with
// panic.txt.
package autoscale
