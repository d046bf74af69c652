// Package xebec is what a model that is written in Go links to be served by Xebec: a predict function in, a worker out.
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
// The gateway starts the program and tells it by environment variables where to connect and which model version to serve;
// the model's signature comes with the connection, so nothing of it is repeated here.
//
// # A batch
//
// [Batch] holds the inputs of [Batch.Len] queries. What it gives out lies in memory that is shared with the gateway: nothing
// was copied on the way. Tensors whose shape is fixed are one array over all queries, of shape (len, *shape): [Input] and
// [Output]. All others are taken and given query by query: [Item], [Batch.Bytes] and [SetItem], [Batch.SetBytes], [Batch.Reserve].
//
// Views are valid until predict returns, and not after: the memory is unmapped or used again. Copy what is to live longer.
// Inputs are mapped read-only; a write to one is a panic.
//
// # What may go wrong
//
// A predict that returns an error or panics fails its batch alone (MODEL_ERROR; the text reaches the operator, never a
// client), and the worker goes on. So do outputs that are missing or contradict the signature (BAD_OUTPUT). Names and types
// that the signature does not have are mistakes of the program: asking for them panics, which fails the batch.
//
// SIGTERM makes the worker say that it leaves, answer what it still gets, and return from Serve with nil. A gateway that is
// gone ends the context that predict was given and makes Serve return [ErrGatewayGone]; a predict that does not come back within
// a few seconds of that is ended with its process, for nobody is left to answer.
//
// # What it never does
//
// predict is never called from two goroutines at a time, and always on the same operating system thread. Serve allocates nothing per
// batch once it has seen the traffic, never spins, and keeps no queue of its own: requests wait in the gateway's ring.
//
// # Where to read next
//
// README.md beside this file, examples/echo, and api/spec/worker.md, the protocol that Serve speaks. loop.go is the worker's
// state machine, socket.go the one place that touches the socket.
package xebec
