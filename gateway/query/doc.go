// Package query is the path of a query: it chooses the models that a request asks, looks in their caches, sends the rest
// to the scheduler, combines several predictions into one answer, and learns from feedback. It knows no protocol and no
// connection.
//
// # The path of a request
//
// A [Request] is embedded in the state of its caller: a dialect's call, or the path's own for [Path.Do]. It passes
// through the files in this order. The first three run on the caller's goroutine, the last on the goroutine that ends the
// last query:
//
//	request.go    Open, AskFunction or AskModel, Next for the inputs of each query, Submit.
//	              Submit is the path on one screen; options.go has the options of a request.
//	select.go     Each query chooses the models that it asks: its members. route.go: which version of each.
//	cached.go     Each member looks in its model's cache. A hit ends it; the same input that is being
//	              evaluated ends it later.
//	dispatch.go   The other members go to their lanes, those of one lane together. From there on the scheduler
//	              decides.
//	settle.go     A member ends: by its lane, the cache or its deadline. The last one settles the query:
//	              combine.go makes one answer of the predictions, or asks more members. The last query
//	              finishes the request: its owner renders, the request is counted and logged, and its owner
//	              delivers.
//
// The [Owner] is called back three times: Settled, Deliver and Released. No goroutine waits for a request unless its
// caller does, and in steady state a request allocates nothing.
//
// # Ownership
//
// A request, its queries and their members are pooled and reference-counted. The scheduler holds each member until it
// releases it. A member that waits for another query's evaluation holds the request, and so does the answer until it is
// delivered. The last release recycles the request and calls Released. After its deadline a request is answered but may
// still be in a batch: its buffers are not touched until the scheduler has released them. A large body can be borrowed
// instead of copied; its owner is notified when it is free.
//
// # Choosing and combining
//
// For functions with the policy `single` or `prefer` the plan ([Choice]) picks the candidate before the body is parsed.
// For others a [Selector] chooses, for each query, among the candidates that have replicas and for which the plan has
// room. Each member has the query's deadline, at which its lane ends it, so ensembles need no timer: a straggler is a
// member that its lane has ended. The answer has a confidence, and a function may declare the minimum that it accepts. No
// query waits for the members of shadows and tees; their answers are only compared.
//
// # Models without a replica
//
// If no replica can evaluate a query, the query still goes to the lane, and [Model].Wake is called, which does not block.
// Queries answered by the cache wake nothing. The query waits for the longer of its objective and the function's
// ColdStart. A function without a default that declares no cold start waits for [DefaultColdStart], unless the model's
// starts fail. A function with a default answers it at its objective, and the model evaluates the query later, for the
// cache.
//
// # Versions and traffic rules
//
// A candidate is a model name, and the table says which version it resolves to. If a rule divides a model's queries, it
// decides once for a request, so that the request's queries share a version and a batch. It decides by a hash of the
// context, at random, or by a policy that learns. A [Tee] adds the other version as a member that is only compared. The
// counts of a rule are kept when tables are replaced, and feedback tells the rule which of the two versions it is about.
// A Closed model answers only [Path.Ask], by which a version is validated before it serves.
//
// The [Table] is replaced as a whole, and a lookup takes no lock. Requests in flight may still use the previous table.
// grace.go counts them, so that [Path.Quiesce] can report when all their queries are in their lanes. This costs a request
// two atomic additions.
//
// # Feedback
//
// join.go remembers the last queries by id, with the prediction of each member and the probability with which it was
// asked. feedback.go joins feedback with them. For feedback by input on ensembles it queries the models in a request of
// its own. learn.go turns feedback into losses, which the selector and rules observe, and sends labels to models that
// learn by themselves. Feedback for a query counts once.
//
// # What it never does
//
// It renders nothing: it treats [Function].Default as bytes, and a dialect makes the answer. It knows no worker, no
// process and no segment: to it a model is a signature and a [Lane]. It starts no goroutine and no model, makes no
// batches, and never waits for a store. Policies are in package selection, their learned states in package learned, and a
// [Choice] is the scheduler's plan. Package server connects them.
//
// # Limits
//
// Queries are sampled for the inference log by their ids, so that their feedback is sampled too. A remembered query takes about 200 bytes, and is forgotten after
// [DefaultFeedbackWindow] others. Feedback by id must reach the gateway that answered. Outputs that are neither labels nor one
// tensor of at most [MaxAveraged] numbers are compared, not averaged.
//
// Package querytest has lanes for tests of the path and of dialects.
package query
