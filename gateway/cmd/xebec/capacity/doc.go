// Package capacity says how many replicas a model needs for a traffic, and what scaling them by demand would save. It is what
// `xebec plan` prints.
//
// # What it promises
//
// To people who plan: every row of the table was run. [Make] puts simulated replicas, which take as long as the model's profile says,
// under the real scheduler of package scheduler ([sim.Run]: machine, batching controllers, epoch planner), sends them Poisson traffic at
// the highest rate of the day, or the busiest minutes of recorded traffic, and counts. A query is missed when it had no answer within
// the objective, whatever the reason: refused, dropped or late. A row meets the objective when at least so many percent of the queries
// as were asked for were answered within it.
//
// To scripts: the same question has the same answer, on any machine and with any number of cores; a [Plan] is JSON.
//
// # How the table is made
//
// First one replica alone is asked one query at a time: where even that is too slow, no number of replicas helps, and Make says so.
// Then each batch cap is saturated: a replica that is offered twice what it can do shows what it can, and the controller the cap that it
// finds. The caps are the controller's (AIMD's, say), 1, a quarter, half and twice of it.
//
// For each cap the fewest replicas that meet the objective are searched from peak / capacity on, up or down, and the one below is kept
// to show why not fewer. Example: 2 ms + 0.1 ms × n within 50 ms. The controller aims at 20 ms a batch and settles at some 150 queries;
// one replica then does 9,000 a second, and 477 one by one. For 2,000 queries a second that is one replica with batches, and five
// without.
//
// # How the day is played
//
// Simulated query by query a day of 2,000 a second takes minutes, and squeezing the day into less time would squeeze the start of a
// replica below the objective, so that nothing was ever missed. So the day is played in its own time, but in rates: in steps of its two
// millionth part (10 ms at least), a Poisson number of queries comes, ready replicas take what one was seen to do above, and what would
// wait longer than the objective leaves for is missed. The autoscaler is the real one (package scheduler/autoscale), looks four times a second,
// and at once when a query finds no replica. Replicas take their start time. The first minutes are played twice, and counted the second
// time, so that the day begins with the replicas that it would have. day_test.go compares it with the simulation query by query.
//
// # What it never does
//
// It reads no clock, file or socket; it is told. It does not know what shares the machine: a model that shares a device or its cores is
// planned as if it was alone. Batch times scatter by 10 % around the profile; a model whose times scatter more needs more than it says.
//
// # Where to read next
//
// model.go and traffic.go for the question, choices.go for the table, day.go for the day, figure.go for the picture.
package capacity
