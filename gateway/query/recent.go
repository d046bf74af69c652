package query

import (
	"sync"

	"github.com/xebec-serving/xebec/api"
)

// Bounds of what a Recent keeps.
const (
	recentMost  = 8       //xebec:limit recent queries that a version is warmed up with before it takes over
	recentBytes = 1 << 20 //xebec:limit inputs of these queries together
)

// Recent keeps the inputs of a few queries that a model has answered, for a version that is about to take its place. While
// [Model.Recent] points to it the model's queries are offered to it; when it is full it takes itself out, so that later ones pay
// nothing.
type Recent struct {
	model *Model

	mu     sync.Mutex
	inputs [][]api.Value
	bytes  int64
}

// Collect begins to keep inputs of the model's queries. A Recent that collects already is replaced.
func Collect(m *Model) *Recent {
	r := &Recent{model: m}
	m.Recent.Store(r)
	return r
}

// Stop ends the collection and returns the inputs, each with the values of a query as in the signature. A nil Recent has none.
func (r *Recent) Stop() [][]api.Value {
	if r == nil {
		return nil
	}
	r.model.Recent.CompareAndSwap(r, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	inputs := r.inputs
	r.inputs = nil
	return inputs
}

// offer keeps a copy of a query's inputs if there is room for it and no other goroutine is at it.
func (r *Recent) offer(inputs []api.Value) {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	n := valuesSize(inputs)
	if n <= recentBytes-r.bytes {
		values := make([]api.Value, len(inputs))
		for i := range inputs {
			copyValue(&values[i], &inputs[i])
		}
		r.inputs, r.bytes = append(r.inputs, values), r.bytes+n
	}
	if len(r.inputs) == recentMost || n > recentBytes-r.bytes {
		r.model.Recent.CompareAndSwap(r, nil)
	}
}

// offerRecent passes a query that was answered to the model's Recent.
func (m *member) offerRecent(r *Recent) {
	if !m.query.request.unlisted {
		r.offer(m.Inputs)
	}
}
