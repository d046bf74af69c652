package worker

import (
	"time"

	"github.com/xebec-serving/xebec/api"
)

// MaxBatchBytes is what every transport accepts for the inputs of one batch, and for its outputs. A transport may
// refuse more as [api.TooLarge].
const MaxBatchBytes = 256 << 20

// Transport connects workers and carries batches to them. Any goroutine may call its methods.
type Transport interface {
	// Expect announces a worker that is about to be launched. env is what the launcher must add to the worker's
	// environment ("NAME=value" each) so that it can connect. It is valid for one connection. Expect does not wait for
	// the worker.
	//
	// withdraw ends the announcement. If the worker has not connected, withdraw returns true and no event comes for
	// this launch. If the worker has connected, withdraw returns false and has no effect: events come and end with
	// Gone. The launcher calls it when the launch failed or the worker ended.
	//
	// After an error nothing is announced. The error says what to do.
	Expect(e Expectation) (env []string, withdraw func() (unused bool), err error)
	// Close refuses further workers, ends all replicas and returns after the last Gone. It is called once.
	Close() error
}

// Expectation describes an announced launch.
type Expectation struct {
	// Replica is the number of the launch. Numbers are never reused, so a late event cannot be mistaken for one of the
	// replica that replaced it.
	Replica   uint64
	Model     api.ModelID
	Signature api.Signature
	// Depth is how many batches may be outstanding at the replica, at least 1. A transport may have a lower bound of
	// its own; Send then refuses more.
	Depth int
	// BatchHint is how many queries a typical large batch has, for sizing buffers. It is not a bound.
	BatchHint int
	// FeedbackTimeout is how long the worker may take for one call of a [Learner]; 0 means the transport's default. The
	// transport ends a worker that takes longer. The time of predictions in front of the call does not count.
	FeedbackTimeout time.Duration
	// Streams says that the model is declared to answer in streams. StreamIdle is how long its worker may then take from one output to the next;
	// 0 means the transport's default.
	// Streamed, if not nil, is told how many outputs of streams have come after their first ones. It must not block.
	Streams    bool
	StreamIdle time.Duration
	Streamed   func(outputs int)
	// BusyPoll is how long the worker may spin before it sleeps while it expects a batch; 0: it sleeps at once.
	BusyPoll time.Duration
	// Lines takes the connections on which the worker calls other functions; nil: it calls none. It may be called by several goroutines, and
	// owns the connection.
	Lines func(Line)
	// Isolated says that the worker runs as another user in other namespaces, as in a container. The transport gives it
	// a way to connect that exposes nothing else of the gateway.
	Isolated bool
	Events   Events
}

// Events receives what happens to the replica of one launch. Calls for one replica never overlap; calls for different
// replicas may. They come from goroutines that read from workers, so they must not block. A receiver may call the
// replica's methods.
//
// The order is Ready, then any number of Done, for a stream with a FirstOutput before it, and at most one Leaving, then Gone. Gone is always the last event. It
// comes alone if a worker connected but never became ready. All events of a launch carry the same Replica, which may be
// a key of a map.
type Events interface {
	// Ready reports that the replica takes batches.
	Ready(r Replica)
	// Done reports one batch that Send took. If res.Code is OK, the outputs of its queries are in place. The transport
	// no longer touches the batch. res is valid until Done returns.
	Done(r Replica, res *api.BatchResult)
	// FirstOutput reports that the model of a batch answers in a stream, and that the first output is in place. Done follows when the stream has
	// ended. evalNanos is as in [api.BatchResult].
	FirstOutput(r Replica, batch uint64, evalNanos int64)
	// Leaving reports that the worker asks for no more batches, because it was told to stop. The receiver stops sending
	// and calls Drain when nothing is outstanding.
	Leaving(r Replica, reason string)
	// Gone reports that the replica has ended. Batches that were not reported done never will be, and the transport no
	// longer touches them.
	Gone(r Replica, end End)
}

// End is how a replica ended.
type End struct {
	// Reason is one clause in lower case, for logs.
	Reason string
	// Violation says that the worker broke the protocol. Its process may not end by itself.
	Violation bool
	// Silent says that the worker was silent for longer than StreamIdle in the middle of a stream. Its process may not end by itself.
	Silent bool
	// Begun reports whether the worker had begun a batch that was outstanding. Any goroutine may call it after Gone; it
	// does not block. If it is nil the transport does not know, and each batch may have begun.
	Begun func(batch uint64) bool
}

// String returns the reason, and mentions a violation.
func (e End) String() string {
	if e.Violation {
		return e.Reason + " (a violation of the protocol)"
	}
	return e.Reason
}
