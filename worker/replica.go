package worker

import "github.com/xebec-serving/xebec/api"

// Replica is one connected worker that serves one version of one model. Its methods never block and may be called from any
// goroutine, Send from one at a time. After Gone they do nothing, and Send refuses.
//
// A Replica whose [Capabilities] has Feedback or Accuracy is also a [Learner].
type Replica interface {
	// Info says what the replica is. It is the same for the replica's whole life.
	Info() Info
	// Send hands over a batch. The caller has numbered it (batch IDs increase strictly within a replica) and leaves it and its
	// queries alone until Done or Gone; the transport reads inputs and contexts and writes outputs and confidences until
	// then, and not after. Exactly one Done or Gone follows a batch that Send took.
	//
	// On an error the batch was not taken and the transport does not touch it. The error is an [api.Error]: TooLarge blames
	// the batch, which no buffer can hold; Unavailable says that the replica has ended or has its full depth outstanding;
	// Internal that the batch cannot be encoded.
	//
	// A transport that has no room at the moment keeps the batch and sends it later. Depth bounds what it keeps.
	Send(b *api.Batch) error
	// Drain tells the worker that no more batches come: it answers what it holds and ends, and Gone follows. Labels that
	// still wait are lost.
	Drain()
	// Kill ends the replica at once, and Gone follows with the reason. It ends the connection; the owner of the worker's
	// process ends that.
	Kill(reason string)
	// Stats returns what the replica has done so far. It may take a lock for a moment.
	Stats() Stats
}

// Learner is a [Replica] whose model learns from labels, or knows how accurate it is. Its calls come after predictions: a
// transport sends them when the worker has nothing to predict. Under a load that leaves no such moment it lets so few through
// that they take a small part of the worker's time. One call at a time is with the worker. Others wait in a bounded queue.
//
// Neither method blocks, and any goroutine may call them. done is called exactly once, at the latest when the replica is gone;
// it may be called before the method returns, or by a goroutine that reads from workers, so it must not block. detail says why,
// for operators, where the code is not OK. It may be the worker's own text, bounded.
type Learner interface {
	// Feedback hands the model one label, a JSON text, for each query of b. Only inputs and contexts of the queries count; b
	// may go to several replicas at once. b and labels belong to the callees until done. The code is OK when the model has
	// taken the labels; ModelError or BadOutput when it failed; TooLarge when no buffer can hold the batch; Overloaded when
	// newer labels took its place in a full queue; ReplicaLost when the replica ended; Unsupported when it does not learn;
	// InvalidArgument when b is empty, or has more or fewer queries than there are labels.
	Feedback(b *api.Batch, labels [][]byte, done func(code api.Code, detail string))
	// Accuracy asks the model how accurate it has been lately. The answer is a value from 0 to 1 and OK; else NaN and one of
	// Feedback's codes, where BadOutput means that the model's value is no accuracy and Overloaded that an earlier question
	// is not answered yet.
	Accuracy(done func(value float64, code api.Code, detail string))
}

// Info is what a transport knows of a replica when it becomes ready.
type Info struct {
	// ID is the number of the launch, [Expectation].Replica.
	ID uint64
	// PID is the worker's process on this host; 0 when it has none, or none that is known.
	PID int
	// Binding is the name and version of the library that the worker speaks through, such as "xebec-python/0.1.0".
	Binding      string
	Capabilities Capabilities
}

// Capabilities is what a worker's model does besides predicting. The worker says so when it connects.
type Capabilities struct {
	Feedback    bool // it learns from labels: [Learner].Feedback
	Accuracy    bool // it says how accurate it has been: [Learner].Accuracy
	Contexts    bool // it is given each query's context, in predictions and with labels
	Confidences bool // it says of each output how sure it is: api.Query.Confidence
}

// Stats counts what a replica has done.
type Stats struct {
	Batches, Queries uint64 // predictions that the worker has answered, also with an error
	Feedback         FeedbackCounts
	// LastError is the worker's most recent error text, bounded; empty when there was none.
	LastError string
}

// FeedbackCounts counts what became of batches of labels.
type FeedbackCounts struct {
	Batches, Labels uint64 // taken by the model
	Failed          uint64 // batches at which the model failed
	Dropped         uint64 // batches that made room for newer ones in a full queue
}
