package deployment

import (
	"bytes"
	"slices"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

const (
	// maxLessons bounds the labels that wait for a model that learns by itself. Beyond it the oldest are dropped.
	maxLessons = 1024 //xebec:limit labels that wait for a model that learns
	//xebec:limit inputs of these labels
	maxLessonBytes = 64 << 20 // of inputs and labels that wait
	// maxTaught bounds the labels of one batch, maxTaughtBytes their inputs, except for the first one's.
	maxTaught      = 256     //xebec:limit labels handed to a model at once
	maxTaughtBytes = 8 << 20 //xebec:limit inputs of these labels
)

// lessons are labels on their way to a model's replicas. While the replicas learn from one batch, the next one gathers.
type lessons struct {
	mu      sync.Mutex
	queries []*api.Query
	labels  [][]byte
	bytes   int
	busy    int // replicas that still learn from the previous batch
}

// teach sends a label to every replica, because each learns by itself. It copies its arguments and never blocks.
func (d *Deployment) teach(inputs []api.Value, context, label []byte) {
	q := &api.Query{Context: bytes.Clone(context), Inputs: make([]api.Value, len(inputs))}
	for i, v := range inputs {
		q.Inputs[i] = api.Value{Data: bytes.Clone(v.Data), Dims: slices.Clone(v.Dims)}
	}
	l := &d.lessons
	l.mu.Lock()
	l.queries, l.labels = append(l.queries, q), append(l.labels, bytes.Clone(label))
	l.bytes += l.size(len(l.queries) - 1)
	for len(l.queries) > maxLessons || len(l.queries) > 1 && l.bytes > maxLessonBytes {
		l.drop(1)
	}
	idle := l.busy == 0
	l.mu.Unlock()
	if idle {
		d.teachNext()
	}
}

// teachNext sends the gathered labels to the replicas, unless they still learn from the previous ones.
func (d *Deployment) teachNext() {
	replicas := d.learners()
	l := &d.lessons
	l.mu.Lock()
	n, size := 0, 0
	for n < min(len(l.queries), maxTaught) && (n == 0 || size+l.size(n) <= maxTaughtBytes) {
		size += l.size(n)
		n++
	}
	if l.busy > 0 || n == 0 || len(replicas) == 0 {
		l.mu.Unlock()
		return
	}
	b, labels := &api.Batch{Queries: slices.Clone(l.queries[:n])}, slices.Clone(l.labels[:n])
	l.drop(n)
	l.busy = len(replicas)
	l.mu.Unlock()
	for _, r := range replicas {
		r.Feedback(b, labels, func(code api.Code, detail string) {
			if code == api.ModelError || code == api.BadOutput || code == api.TooLarge {
				d.noteError(r.id, code, detail)
			}
			l.mu.Lock()
			l.busy--
			more := l.busy == 0 && len(l.queries) > 0
			l.mu.Unlock()
			if more {
				go d.teachNext() // the caller may be a poller, or this function
			}
		})
	}
}

// size is the number of bytes that lesson i holds.
func (l *lessons) size(i int) int { return l.queries[i].InputBytes() + len(l.labels[i]) }

// drop removes the first n lessons.
func (l *lessons) drop(n int) {
	for i := range n {
		l.bytes -= l.size(i)
	}
	l.queries, l.labels = slices.Delete(l.queries, 0, n), slices.Delete(l.labels, 0, n)
}

// learner is a replica that learns from labels.
type learner struct {
	worker.Learner
	id uint64
}

// learners are the replicas that learn from labels.
func (d *Deployment) learners() []learner {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []learner
	for r := range d.connected {
		if l, ok := r.(worker.Learner); ok && r.Info().Capabilities.Feedback {
			out = append(out, learner{l, r.Info().ID})
		}
	}
	return out
}
