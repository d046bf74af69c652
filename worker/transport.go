package worker

import (
	"time"

	"github.com/xebec-serving/xebec/api"
)

// MaxBatchBytes is what every transport accepts: one batch whose inputs take at most this many bytes, and whose outputs do.
// A transport may refuse a larger batch as [api.TooLarge].
const MaxBatchBytes = 256 << 20

// Transport connects workers and carries batches to them. Its methods may be called from any goroutine.
type Transport interface {
	// Expect announces a worker that is about to be launched. The worker connects with the help of env, which the launcher
	// adds to its environment ("NAME=value" each). env is valid for one connection of this launch. Expect does not wait
	// for the worker.
	//
	// withdraw ends the announcement if the worker has not connected yet, and then reports true: no event comes for this
	// launch. If the worker has connected, withdraw reports false and changes nothing: events come, and end with Gone.
	// Whoever launches calls it when the launch failed or the worker ended.
	//
	// After an error nothing is expected. The error says what to do.
	Expect(e Expectation) (env []string, withdraw func() (unused bool), err error)
	// Close accepts no more workers, ends all replicas and returns after the last Gone. It is called once.
	Close() error
}

// Expectation describes a launch: what the worker is entitled to, and who is told about it.
type Expectation struct {
	// Replica is the number of the launch. A number is never used twice, so that a late event cannot be taken for an event
	// of the replica that replaced it.
	Replica   uint64
	Model     api.ModelID
	Signature api.Signature
	// Depth is how many batches may be outstanding at the replica, at least 1. A transport may bound it: Send then refuses
	// what is beyond the bound.
	Depth int
	// BatchHint is how many queries a typical large batch has. A transport may size its buffers by it. It bounds nothing.
	BatchHint int
	// FeedbackTimeout is how long the worker may take for one call of a [Learner]; the transport's default when 0. A worker
	// that takes longer hangs, and the transport ends it. The time of predictions in front of the call does not count.
	FeedbackTimeout time.Duration
	// Isolated says that the worker runs as another user and in other namespaces, as in a container. The transport gives it
	// a way to connect that exposes nothing else of the gateway.
	Isolated bool
	Events   Events
}

// Events receives what happens to the replica of one launch. The calls for one replica never overlap; calls for different
// replicas may. They come from the goroutines that read from workers, so they must not block. A receiver may call the
// replica's methods.
//
// The order is Ready, then any number of Done with at most one Leaving among them, then Gone. Gone is always the last event,
// and comes alone where a worker connected and never became ready. All events of a launch carry the same Replica, which may
// be used as the key of a map.
type Events interface {
	// Ready reports that the replica takes batches from now on.
	Ready(r Replica)
	// Done reports one batch that Send took. The outputs of its queries are in place if res.Code is OK, and the transport no
	// longer touches the batch. res is valid until Done returns.
	Done(r Replica, res *api.BatchResult)
	// Leaving reports that the worker asks for no more batches, because it was told to stop. The receiver stops sending and
	// calls Drain when nothing is outstanding.
	Leaving(r Replica, reason string)
	// Gone reports that the replica has ended. Batches that were not reported done never will be, and the transport no
	// longer touches them.
	Gone(r Replica, end End)
}

// End is how a replica ended.
type End struct {
	// Reason is for logs: one clause, in lower case.
	Reason string
	// Violation says that the worker broke the protocol. Its process cannot be trusted to end by itself.
	Violation bool
	// Begun reports whether the worker had begun a batch that was outstanding. It may be called from any goroutine after
	// Gone, does not block, and needs nothing of the worker. Nil: the transport does not know, so each of them may have
	// begun.
	Begun func(batch uint64) bool
}

// String is the reason, and that it is a violation if it is one.
func (e End) String() string {
	if e.Violation {
		return e.Reason + " (a violation of the protocol)"
	}
	return e.Reason
}
