// Package xebec serves a model written in Go: it turns a predict function into a Xebec worker.
//
//	func main() {
//		err := xebec.Serve(func(ctx context.Context, b *xebec.Batch) error {
//			in, out := xebec.Input[float32](b, "input"), xebec.Output[float32](b, "output")
//			for i, x := range in {
//				out[i] = 2 * x
//			}
//			return nil
//		})
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
//
// The gateway starts the program. Environment variables tell it where to connect and which model version to serve. The
// model's signature comes with the connection, so the program does not repeat it.
//
// # A batch
//
// [Batch] holds the inputs of [Batch.Len] queries. Its views lie in memory that is shared with the gateway, without a
// copy. A tensor of fixed shape is one array over all queries, of shape (len, *shape): see [Input] and [Output]. All
// others are read and written query by query: see [Item], [Batch.Bytes], [SetItem], [Batch.SetBytes] and
// [Batch.Reserve].
//
// Views are valid until predict returns. Afterwards the memory is unmapped or reused, so copy what must live longer.
// Inputs are mapped read-only: writing to one panics.
//
// # Errors
//
// A predict that returns an error or panics fails its batch (MODEL_ERROR), and the worker goes on. The text reaches
// operators, never clients. Outputs that are missing or contradict the signature fail the batch as well (BAD_OUTPUT).
// Names and types that the signature does not have are mistakes of the program: using them panics, which fails the
// batch.
//
// To end one query and not its batch, see [Batch.Refuse] and [Batch.Fail].
//
// # Streams
//
// A model that answers bit by bit is served with [WithStreams]. predict is then called for each query alone, on a
// goroutine of its own, and calls [Batch.Send] after it has set an output:
//
//	for word := range strings.FieldsSeq(string(b.Bytes("input", 0))) {
//		b.SetBytes("output", 0, []byte(word))
//		if err := b.Send(); err != nil {
//			return err
//		}
//	}
//	return nil
//
// Send blocks while 16 outputs or 64 KiB wait for the reader. When no further output is wanted, because the caller has
// left or takes a single output, the context of predict ends with the cause [ErrUnwanted], and Send returns it. The
// stream has its place until predict has returned, so a predict that works for long between two outputs watches its
// context. What predict has set and not sent when it returns nil is the last output. Inputs are copies of the stream's
// own.
//
// A model that advances many streams in one call, as a language model does, is served with [ServeSteps]: start makes the
// state of a [Sequence], and step sets the next output of each of those that run. They join and leave between two steps.
//
// # Several batches at once
//
// With [WithConcurrency], predict is called on several goroutines, each with a Batch of its own. Answers leave in the
// order in which they are ready.
//
// # What a query comes with
//
// Contexts, parameters, deadlines and traces reach the model if it asks for them: [WithContexts], [WithParameters],
// [WithCalls]. A gateway that speaks version 1 of the protocol has no parameters and no calls; [Batch.Parameters] then
// returns {}, and [Batch.Call] the zero Call. Streams need version 2.
//
// # Calls of other functions
//
// A model whose manifest names functions or models in calls may call them while it evaluates a batch, if Serve is given
// [WithFunctionCalls]: [Batch.CallFunction] returns their outputs, or a [*CallError]. A call is a part of its query: it
// has the query's request id, trace, context and deadline.
//
// # The end
//
// On SIGTERM the worker announces that it leaves, answers the batches that it still receives, and returns nil from
// Serve. When the gateway is gone, the context of predict ends and Serve returns [ErrGatewayGone]. If predict does not
// return within a few seconds of that, the process exits, because no gateway is left to take its answer.
//
// # What it never does
//
// Unless it was asked to, it never calls predict from two goroutines at a time, and always calls it on the same
// operating-system thread. Serve allocates nothing per batch once it has seen the traffic, with or without concurrency; a
// stream has memory of its own. It never spins. Requests wait in the gateway's ring; with concurrency as many as are in
// evaluation wait in a queue in front of them.
//
// # Where to read next
//
// README.md beside this file, the folder examples, and api/spec/worker.md, the protocol. loop.go is the worker's state
// machine; lanes.go, streams.go and steps.go are what runs beside it; socket.go is the only file that uses the socket. functions.go
// is calls, and lines.go what they travel on.
package xebec
