// Package query answers HTTP: it turns requests of several dialects into queries, asks models, makes one answer of what they
// say, and takes feedback.
//
// # The way of a request
//
// http.go is the only file that touches Hertz's contexts. A handler looks the function up in a table that is replaced as a
// whole (a look-up takes no lock), lets the dialect parse the body straight into the pooled buffers of a call, and submits the
// call's queries. Then it returns: nothing of Hertz's context or body is kept. (A large raw body of a query that asks one
// model is not copied: its handler stays until the scheduler has released the query.) path.go shows it on one screen: each
// query chooses whom it asks, looks in their caches, and goes to their schedulers for the rest, members of one scheduler
// together; the last query to be settled renders the answer, and the connection writes it, from whatever goroutine that was
// (conn.go). Requests that end their connection are answered by their own handler, which waits.
//
// # The way of a query
//
// query.go. Functions with `single` or `prefer` have had their candidate picked by the plan ([Choice]) before the body was
// parsed; for others a [Selector] chooses, for each query, among those that have replicas and that the plan has room for. Each
// model that is asked is a member of the query. A member ends by a hit in its model's cache, by another query's evaluation of
// the same input (its own deadline is an alarm then), or by its lane, which ends it at its deadline whatever happens. The last
// member to end settles the query: combine.go makes the answer, with a confidence, or asks the policy once more whom to ask.
// So there is no timer for ensembles, and a straggler is a member that its lane has ended. Shadows are members that nobody
// waits for.
//
// # Models without a replica
//
// A query that needs a replica where there is none goes to the lane all the same, and [Model].Wake is called, which does not block; so
// for a candidate of a policy, a shadow or a tee that is missed. What the cache answers wakes nobody. The query waits for the longer of its
// objective and the function's ColdStart. A function without a default that says nothing of it waits for [DefaultColdStart], unless
// the model's starts fail: it has nothing else to answer. One with a default answers that at its objective, and what it asked is
// evaluated behind it, for the cache.
//
// # Versions and traffic rules
//
// A candidate is a model by its name, and the table says which version that is. route.go: where a rule divides the model's answers, it is
// asked once for a call, so that the call's queries share a version and a batch; by a hash of the context, by chance, or by a policy that learns.
// A tee adds the other version as a member that nobody waits for, and compares. What a rule counts outlives the tables that it is in, and
// feedback that joins a query tells the rule which of the two versions it is about. A [Model] that is Closed is asked by nobody but
// [Path.Ask], which is how a version is validated before it serves.
//
// A table is replaced while requests are under way that have looked at the one before. grace.go counts them so that [Path.Quiesce] can say
// when the queries of the last of them are in their lanes; a request pays two atomic additions for it, and never waits.
//
// # Feedback
//
// join.go remembers the last queries, by id, with what each model said and with which probability it was asked. feedback.go
// joins feedback with them, or, by input and for ensembles, has the models asked off the caller's path; learn.go makes losses
// of it, which the selector observes, and hands labels to models that learn by themselves. Each query's feedback counts once.
//
// # Ownership
//
// A [call], its items (queries) and their members are pooled and have counted owners: a scheduler holds each member until it
// is released, one that waits for another query's evaluation holds the call, the answer holds it until it is written. Whoever
// lets go last returns them to the pool. After its deadline a call is answered and may still be inside a batch; its buffers
// are not touched until the scheduler is done with them.
//
// # Dialects
//
// native.go is Clipper's API, extended: functions, with a latency objective and a default output. oip.go is the Open Inference
// Protocol v2: it addresses models, has no default output, and a deadline of 30 s unless the request says otherwise. Every
// dialect maps the same [api.Code] to the same HTTP status and explains it in its own error shape.
//
// # What it never does
//
// It knows no worker, no process and no segment: a model is a signature and a [Lane] to submit queries to. It starts nothing,
// Wake asks somebody who does, and decides nothing about batches; what a policy decides is package selection's, what it has learned package learned's, and
// a [Choice] is a plan that others make. It never waits for a store. The composition is package server.
//
// # Limits
//
// Which queries go to the inference log (log.go) follows from their ids, so that their feedback does too; for drift a model is shown
// one query a millisecond at most. What is remembered of a query costs some 200 bytes, and it is forgotten after DefaultJoins others. Feedback by id must come
// to the gateway that answered. Outputs that are neither labels nor one tensor of at most MaxAveraged numbers are compared,
// not averaged.
package query
