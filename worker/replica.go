package worker

import "github.com/xebec-serving/xebec/api"

// Replica is one connected worker, which serves one version of one model. Its methods never block. Any goroutine may
// call them; calls of Send must not overlap. After Gone, Send refuses and the other methods have no effect.
//
// A Replica whose [Capabilities] include Feedback or Accuracy is also a [Learner].
type Replica interface {
	// Info describes the replica. It does not change.
	Info() Info
	// Send hands over a batch. The caller has numbered it (batch IDs increase strictly within a replica) and does not
	// touch it or its queries until Done or Gone. Until then the transport reads inputs and contexts and writes outputs
	// and confidences. Exactly one Done or Gone follows a batch that Send took.
	//
	// If Send returns an error, the batch was not taken and the transport does not touch it. The error is an
	// [api.Error]: TooLarge if no buffer can hold the batch, Unavailable if the replica has ended or has its full depth
	// outstanding, Internal if the batch cannot be encoded.
	//
	// A transport that has no room at the moment keeps the batch and sends it later. Depth bounds what it keeps.
	Send(b *api.Batch) error
	// Drain tells the worker that no more batches come. It answers what it holds and ends; Gone follows. Labels that
	// still wait are lost.
	Drain()
	// Kill closes the connection; Gone follows with the reason. The owner of the worker's process must end the process.
	Kill(reason string)
	// Stats returns what the replica has done so far. It may lock for a moment.
	Stats() Stats
}

// Reserver is a [Replica] whose worker can read an input where the gateway has received it. Send copies such inputs no more, if they are
// in the memory of the replica that gets the batch; it may change the order of the batch's queries.
type Reserver interface {
	// Reserve returns memory for the only input of a query, of n bytes, or nil: there is none now, or inputs of this model are always
	// copied. The caller may fill it as slowly as it likes, and keeps it until no batch and nothing else reads the input.
	//
	// If it reports waits, there will be memory when other inputs have gone: give is called once with it, or with nil if there will be none
	// after all. Any goroutine may call it, also before Reserve returns. It must not block, and reports whether it has taken the memory:
	// false if the caller waits no more. With a nil give nothing waits.
	Reserve(n int, give func(api.Slot) bool) (_ api.Slot, waits bool)
}

// Learner is a [Replica] whose model learns from labels, or knows how accurate it is. Predictions come first: a
// transport sends these calls when the worker has nothing to predict. If the worker is never idle, it sends so few that
// they take a small part of the worker's time. One call at a time is with the worker. Others wait in a bounded queue.
//
// Neither method blocks, and any goroutine may call them. done is called exactly once, at the latest when the replica
// is gone. It may be called before the method returns, or by a goroutine that reads from workers, so it must not block.
// If the code is not OK, detail says why, for operators. It may be the worker's own text, bounded.
type Learner interface {
	// Feedback sends the model one label, a JSON text, for each query of b. It uses the queries' inputs and contexts. b
	// may be sent to several replicas at once. The replicas own b and labels until done. The code is OK if the model
	// has taken the labels; ModelError or BadOutput if it failed; TooLarge if no buffer can hold the batch; Overloaded
	// if a full queue dropped it for newer labels; ReplicaLost if the replica ended; Unsupported if it does not learn;
	// InvalidArgument if b is empty or has more or fewer queries than there are labels.
	Feedback(b *api.Batch, labels [][]byte, done func(code api.Code, detail string))
	// Accuracy asks the model how accurate it has been lately. The answer is OK with a value from 0 to 1, or NaN with
	// one of Feedback's codes. BadOutput means that the model's value is not in that range, Overloaded that an earlier
	// question is still unanswered.
	Accuracy(done func(value float64, code api.Code, detail string))
}

// Info is what a transport knows of a replica when it becomes ready.
type Info struct {
	// ID is the number of the launch, [Expectation].Replica.
	ID uint64
	// PID is the worker's process on this host; 0 if it has none or the transport does not know it.
	PID int
	// Binding is the name and version of the worker's library, for example "xebec-python/0.1.0".
	Binding      string
	Capabilities Capabilities
	// Concurrency is how many batches the worker evaluates at once; 0 means 1. At most Depth, and as many as it evaluates
	// beyond one, may be outstanding.
	Concurrency int
}

// Capabilities is what a worker's model does besides predicting. The worker declares it when it connects.
type Capabilities struct {
	Feedback    bool // learns from labels: [Learner].Feedback
	Accuracy    bool // knows how accurate it has been: [Learner].Accuracy
	Contexts    bool // receives each query's context, in predictions and with labels
	Streams     bool // answers in streams
	Confidences bool // returns a confidence per output: api.Query.Confidence
}

// Stats counts what a replica has done.
type Stats struct {
	Batches, Queries uint64 // predictions that the worker answered, also with an error
	SegmentBytes     uint64 // shared memory between gateway and worker; 0: the transport has none
	InPlace          uint64 // queries whose input the worker reads where it was received: [Reserver]
	Feedback         FeedbackCounts
	// LastError is the worker's most recent error text, bounded; empty if there was none.
	LastError string
}

// FeedbackCounts counts batches of labels by their end.
type FeedbackCounts struct {
	Batches, Labels uint64 // taken by the model
	Failed          uint64 // batches at which the model failed
	Dropped         uint64 // batches that a full queue dropped for newer ones
}
