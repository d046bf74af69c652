// Package autoscale decides how many replicas a model version has: a pure function from what one tick sees of it, and what the ticks before
// saw, to a number with a [Reason]. A [Scaler] promises whoever runs replicas a number within the operator's bounds, whatever it is told, in
// half a microsecond and without an allocation; and people, that a load which does not change leads to a number which does not either. It
// reads no clock, starts and stops nothing, and knows no other model: whether there is room for a replica is for placement to say.
//
// Ask it every 100 ms to 10 s, evenly or not, and at once when a query comes for a model that sleeps. A tick that is given up, or whose data
// are missing, is no harm: say Unknown.
//
// # What is needed
//
// Not as many replicas as keep some concurrency, which says little where one batch takes forty queries as easily as four, but as many as
// serve what arrives within the latency objective by what is known of them. A batch of n takes a + b·n. A query waits for one batch at most
// and is evaluated in the next, so a batch may take two fifths of the objective (batching in package scheduler aims at the same), and a
// replica serves
//
//	n/(a + b·n) queries per second, n the largest with a + b·n ≤ 2/5 of the objective, at most the cap.
//
// With 5 ms + 1 ms × n and an objective of 100 ms that is n = 35 in 40 ms, 875 queries/s. capacity.go smooths that over the stable window,
// over a tenth of it at first, and remembers it while there is no replica to ask.
//
// Utilization of that, 70 %, is planned with where there are up to four replicas; the rest is for what comes in bunches. Where there are more,
// one stands in for the other: what is spare grows with the square root of what comes (config.go), and is at least half of the rest, as
// load may grow. 5,000 queries/s are the work of 5.7 replicas that are always busy, and need 7.4: eight, of which 71 % are used.
//
// Few replicas that serve few queries each need more to spare. What may wait is what they do in the time that the objective leaves beside a query's
// own batch, less a batch that has begun. If that is little, queries that come close together by chance are late: in the simulator 1.5 % of them
// where one replica is used by 70 % and makes batches of 7 in two fifths of the objective, and of those that four replicas get next to none. So
// no more is planned with than lets one in 10,000 be late by chance, by Kingman's approximation of a busy line (capacity.go): 43 % of that single
// replica. It is rough where hardly one query may wait. With 5 ms + 1 ms × n, as above, it would be 79 % of one: there 70 % it is.
//
// What arrives is looked at in six ways, and the largest need counts (demand.go, with the numbers of an example):
//
//   - Rate: the mean of the stable window, but no more than was needed at some time within the delay. So when less comes, less is asked for as
//     soon as the delay allows it, and not when the mean has followed as well.
//   - Rush: what came for certain in the panic window, a tenth of it, or the last third of that, or within the objective if that is longer:
//     the count less three standard deviations of one that is due to chance. A step shows within two or three seconds, noise does not.
//   - Burst: what came in the last sixtieth of the stable window has to be served in that time and what the objective leaves beside one batch,
//     but with all that replicas can do, not with what is planned with. An arrival curve against a service curve (Cruz, A Calculus for
//     Network Delay, 1991), as InferLine's tuner has it for windows of many lengths (Crankshaw et al., SoCC 2020, section 5).
//   - Trend: the rate that there will be when a replica that is ordered now is ready, if in each of four quarters more came than in the one
//     before, and about as much more: a load that jumps in the middle of a quarter makes two steps, and chance a third. INFaaS, too, counts the
//     time of loading in (Romero et al., ATC 2021).
//   - Backlog: what stands in the queue is to be worked off within the objective, a sixtieth of the stable window, or a start, whichever takes
//     longest; beside what comes now, and not beside the mean of a load that has gone.
//   - Expected: what an operator's hint says is to come.
//
// A profile can be wrong. When there have been enough replicas by it for two trials of a twentieth of the stable window, and they were busy, and
// queries were refused, or more waited all the time than their next batches take, then what they served is what they can: it is planned with from
// then on, if it is less, until the profile itself says so, and doubles each 60 stable windows to be tried again. Of queries that no replica
// could answer in time, however idle, nothing is learned; nor of a bunch, which is refused within an objective, for in the rest of the trial
// replicas served what came, and that is not what they can.
//
// While there is no profile (a model's first replica needs 16 batches to show one) there are as many replicas as there were, half as many again
// each time that those which are ready are all busy and more wait than they hold, or queries were refused; and fewer, if fewer hold a query in
// the mean.
//
// # From what is needed to what is asked for
//
//   - More is asked for at once, as soon as replicas would be used by a hundredth more than planned. Never more than Up times those that are
//     ready. What starts already counts, for a decision is a total.
//   - Fewer are asked for when less has been needed for the whole delay (at least a panic window), by a band: two standard deviations of the
//     number of queries in the stable window, 5 % to 30 %. In a panic window no less than 1/Down stays of the most that was asked for.
//   - A panic begins when what rushes in needs twice what was ready before it, and ends when twice what is ready has not been needed for a stable
//     window. (Knative begins it by what is ready, too. But replicas that start in 0.1 s follow a rush step by step, and are never half of what
//     is needed.) It takes nothing away. When it ends, what is needed is what the rules above say, for they look at arrivals, which replicas
//     cannot thin out.
//   - A scaler that has just begun takes nothing away that it found until it has looked for a stable window.
//   - With nothing asked for, a query (or a hint) asks for what is needed at once, one replica at least. With Min 0, the last replica goes
//     when nothing waits or is in flight and no query has come for Idle; the start of the scaler counts as one.
//   - Unknown changes nothing, and bounds come before everything.
//
// What the field knows as pain is told in testdata/pains.txt: the collapse when a panic ends (knative/serving issues 3153 and 9121), averages
// thinned out by new replicas that then go again (ray issue 18925), a delay shorter than what is looked back at (ray issue 26455), and a rate
// at the threshold between two numbers.
//
// # What is remembered
//
// Sixty buckets of a sixtieth of the stable window (window.go), two maxima over time, a profile: about 1 KiB for each version, whatever comes.
// What came between two ticks counts as spread evenly between them, so that limits and windows do not depend on ticks, but bursts shorter
// than a tick do not show. A tick counts for 15 s at most: after a gap, what was known before is better than nothing. Clocks that go back
// stand still, and a counter that goes back has begun at zero.
//
// # Limits
//
// Replicas are taken for equal and for independent: those that share a core or a device make each other slower, their profiles show it, and
// more are asked for, up to Max. It is placement that keeps them apart. A rush is answered when it is there; before it, only a hint helps. And
// a model that is asked a few times a minute, each for seconds, is more chance than rate: its number moves now and then.
//
// # Knative
//
// [Knative] decides by the rules of Knative's autoscaler, for comparison in simulations: windows of concurrency, a target, a panic. A
// scaler's windows, panic, limits and delay are of its school; what differs is what is counted, and all that follows from it.
//
// # Reading
//
// sample.go is what goes in and out; scaler.go a decision from top to bottom; demand.go what is needed; capacity.go what a replica can do;
// window.go what came; knative.go the baseline. testdata has the stories: panic.txt first.
package autoscale
