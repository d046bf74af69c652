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
// On SIGTERM the worker announces that it leaves, answers the batches that it still receives, and returns nil from
// Serve. When the gateway is gone, the context of predict ends and Serve returns [ErrGatewayGone]. If predict does not
// return within a few seconds of that, the process exits, because no gateway is left to take its answer.
//
// # What it never does
//
// It never calls predict from two goroutines at a time, and always calls it on the same operating-system thread. Serve
// allocates nothing per batch once it has seen the traffic, never spins, and has no queue: requests wait in the
// gateway's ring.
//
// # Where to read next
//
// README.md beside this file, examples/echo, and api/spec/worker.md, the protocol. loop.go is the worker's state
// machine; socket.go is the only file that uses the socket.
package xebec
