// Package forecast predicts how many replicas a model needs for given traffic, and what scaling them by demand would
// save. It is what `xebec plan` prints.
//
// # What it promises
//
// To people who plan: every row of the table was simulated. [Make] runs the real scheduler ([sim.Run]: state machine,
// batching controllers, epoch planner) with simulated replicas that take as long as the model's [Profile] says. It
// sends them Poisson traffic at the highest rate of the day, or the busiest minutes of recorded traffic, and counts. A
// query is missed if it has no answer within the objective, for whatever reason: refused, dropped or late. A row meets
// the objective if the requested percentage of queries is answered within it.
//
// To scripts: the same question has the same answer, on any machine and any number of cores. A [Plan] is JSON.
//
// # How the table is made
//
// First one replica is asked one query at a time. If even that is too slow, no number of replicas helps, and Make says
// so.
//
// Then each batch cap is saturated: a replica that is offered twice what it can do shows its capacity, and the batching
// controller shows the cap that it finds. The caps are that one, 1, and a quarter, half and twice of it.
//
// For each cap a search from peak / capacity up or down finds the fewest replicas that meet the objective. The row
// below is kept to show why fewer are not enough. Example: batches take 2 ms + 0.1 ms × n, and the objective is 50 ms.
// The controller aims at 20 ms per batch and settles at about 150 queries. One replica then serves 9,000 queries per
// second, and 477 without batching. For 2,000 queries per second that is one replica with batches, and five without.
//
// # How the day is played
//
// To simulate each query of a day at 2,000 per second takes minutes. To squeeze the day into less time is wrong: the
// start of a replica would shrink below the objective, and nothing would ever be missed. So the day is played in its
// own time, but in rates. It has 2,000,000 steps of at least 10 ms. In each step a Poisson number of queries arrives,
// the ready replicas serve as many as the saturated replica did, and what would wait for longer than the objective
// leaves is missed.
//
// The autoscaler is the real one (package scheduler/autoscale). It decides four times a second, and at once if a query
// finds no replica. Replicas take their start time. The first minutes are played twice and count the second time, so
// that the day begins with the replicas that it would have. day_test.go compares the result with the simulation of each
// query.
//
// # What it never does
//
// It reads no clock, file or socket. [Recorded] is passed a function that reads the log; [ProfileOf] and its neighbours
// take the status that a gateway reports. It does not know what else runs on the machine: a model that shares a device
// or its cores is planned as if it had them alone. Batch times scatter by 10 % around the profile; a model with more
// variance needs more replicas.
//
// # Where to read next
//
// model.go, traffic.go and recording.go are the question, status.go takes it from a gateway, table.go makes the table,
// day.go plays the day, svg.go draws it.
package forecast
