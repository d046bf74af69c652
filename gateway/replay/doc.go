// Package replay sends the queries of an inference log again and compares the new answers with the logged ones: `xebec
// replay`.
//
// # What it promises
//
// [Replay.Run] sends queries in the order of the log, at the pace that [Options] ask for, to the function that they
// came to, to another function, or straight to a model version. Each query ends up in exactly one of the report's
// counts. Two outputs are the same if their floating-point numbers are within the tolerance and everything else is
// equal. Where feedback in the log says what the right output was, the report has the accuracy of both answers; a query
// without an answer counts as wrong.
//
// Feedback can be sent again too. It waits until its query has a new answer, and carries the new query id.
//
// [Print] writes a log as lines of JSON. [PrintCases] writes the queries with a known label, in the form that the
// validation of a model reads.
//
// # Bounds
//
// Memory does not grow with the log. Queries are remembered for feedback that comes later in the log, at most 65,536 of
// them and 64 MiB; the oldest are forgotten first, and [Result] counts them. Concurrency bounds the requests in flight.
// Latencies are counted in buckets, so that a quantile is off by 6 % at most.
//
// # What it never does
//
// It opens no connection: its caller passes a [Sender]. It does not retry: a replay measures what a gateway does. It
// gives up early if nothing answers: after the first query if that did not reach a gateway, after 20 if all of them
// failed.
//
// # Where to read next
//
// replay.go is the loop, report.go counts, compare.go decides what is the same, infer.go speaks the Open Inference
// Protocol, which addresses models, window.go remembers queries for their feedback.
package replay
