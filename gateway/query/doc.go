// Package query is the way of a query: which models a request asks, what their caches know, where the rest is evaluated, what one answer is
// made of several predictions, and what feedback teaches. It knows no protocol and no connection.
//
// # The way of a request
//
// A [Request] is embedded in the state of its caller: a dialect's call, or the path's own for [Path.Do]. It goes through the files in this
// order, the first three on the asker's goroutine and the last on the one that ends the last query:
//
//	request.go    Open, AskFunction or AskModel, Next for the inputs of each query, Submit.
//	              Submit is the way on one screen; options.go has what a request may demand.
//	select.go     Each query chooses the models that it asks: its members. route.go: which version of each.
//	cached.go     Each member looks in its model's cache. A hit ends it; the same input that is being
//	              evaluated ends it later.
//	dispatch.go   The other members go to their lanes, those of one lane together. From there on the scheduler
//	              decides.
//	settle.go     A member ends: by its lane, the cache or its deadline. The last one settles the query, which
//	              combine.go makes one answer, or asks more members. The last query finishes the request: its
//	              owner renders, the request is counted and logged, its owner delivers.
//
// The [Owner] is called back three times: Settled, Deliver and Released. No goroutine waits for a request unless its caller does, and nothing
// is allocated for it in steady state.
//
// # Ownership
//
// A request, its queries and their members are pooled and counted. A scheduler holds each member until it releases it; a member that waits
// for another query's evaluation holds the request, and so does the answer until it is delivered. The last one that lets go recycles the
// request and calls Released. After its deadline a request is answered and may still be inside a batch: its buffers are not touched
// until the scheduler has released them. A large body can be borrowed instead of copied; its owner is told when it is free.
//
// # Choosing and combining
//
// Functions with `single` or `prefer` have their candidate picked by the plan ([Choice]) before the body is parsed. For others a [Selector]
// chooses, for each query, among the candidates that have replicas and that the plan has room for. Each member has the query's deadline,
// at which its lane ends it, so ensembles need no timer: a straggler is a member that its lane has ended. The answer has a confidence, and
// a function may declare the least that it accepts. Shadows and tees are members that no query waits for; their answers are compared.
//
// # Models without a replica
//
// A query that needs a replica where there is none goes to the lane all the same, and [Model].Wake is called, which does not block. Queries that
// the cache answers wake nothing. The query waits for the longer of its objective and the function's ColdStart. A function without a
// default that declares no cold start waits for [DefaultColdStart], unless the model's starts fail. One with a default answers that at
// its objective, and the model evaluates the query later, for the cache.
//
// # Versions and traffic rules
//
// A candidate is a model by its name, and the table says which version that is. Where a rule divides a model's answers it decides once for a
// request, so that the request's queries share a version and a batch: by a hash of the context, by chance, or by a policy that learns. A
// [Tee] adds the other version as a member that is compared. What a rule counts outlives the tables that it is in, and feedback tells the
// rule which of the two versions it is about. A Closed model answers only [Path.Ask], by which a version is validated before it serves.
//
// The [Table] is replaced as a whole, and a look-up takes no lock. Requests under way may still act on the one before: grace.go counts them, so
// that [Path.Quiesce] can say when the queries of the last of them are in their lanes. A request pays two atomic additions for it.
//
// # Feedback
//
// join.go remembers the last queries by id, with the prediction of each member and the probability with which it was asked. feedback.go joins
// feedback with them or, by input and for ensembles, has the models asked by a request of its own. learn.go turns it into losses, which
// the selector and rules observe, and sends labels to models that learn by themselves. Each query's feedback counts once.
//
// # What it never does
//
// It renders nothing: [Function].Default is bytes to it, and a dialect makes the answer. It knows no worker, no process and no segment: a model is
// a signature and a [Lane]. It starts no goroutine and no model, decides nothing about batches, and never waits for a store. Policies are
// package selection's, what they have learned is package learned's, and a [Choice] is the scheduler's plan. Package server composes.
//
// # Limits
//
// Queries are sampled for the inference log by their ids, so that their feedback is sampled too; for drift a model is shown one query a
// millisecond at most. What is remembered of a query costs some 200 bytes, and is forgotten after [DefaultJoins] others. Feedback by id must
// come to the gateway that answered. Outputs that are neither labels nor one tensor of at most [MaxAveraged] numbers are compared, not
// averaged.
//
// Package querytest has lanes for tests of the path and of dialects.
package query
