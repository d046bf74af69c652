package querytest

import (
	"encoding/binary"
	"math"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Lane is a model's lane.
type Lane struct {
	// Submit gets each submitted query. It ends the query with End, at once or later.
	Submit func(it *scheduler.Item)
	// Cancelled gets the ids of cancelled queries; may be nil.
	Cancelled chan uint64
}

// SubmitAll passes each item to Submit.
func (l *Lane) SubmitAll(items []*scheduler.Item, _ *driver.Cork) {
	for _, it := range append([]*scheduler.Item(nil), items...) { // the caller owns the slice again after the last item
		l.Submit(it)
	}
}

// Cancel sends the item's id to Cancelled.
func (l *Lane) Cancel(it *scheduler.Item) {
	if l.Cancelled != nil {
		l.Cancelled <- it.ID
	}
}

// GiveBack does nothing: every query is with Submit.
func (l *Lane) GiveBack(func(*scheduler.Item) bool) {}

// Instant is a lane that answers every query with the integer 0 at once. It writes outputs into the item's own buffers, as transports do.
type Instant struct{}

// Cancel does nothing.
func (Instant) Cancel(*scheduler.Item) {}

// GiveBack does nothing: no query waits.
func (Instant) GiveBack(func(*scheduler.Item) bool) {}

// SubmitAll ends all items.
func (Instant) SubmitAll(items []*scheduler.Item, _ *driver.Cork) {
	for _, it := range items {
		if cap(it.Outputs) == 0 {
			it.Outputs = make([]api.Value, 1)
		}
		it.Outputs = it.Outputs[:1]
		it.Outputs[0].Data = append(it.Outputs[0].Data[:0], 0, 0, 0, 0, 0, 0, 0, 0)
		it.Confidence = 0.5
		it.Owner.Answered(it, api.OK)
		it.Owner.Released(it, api.OK)
	}
}

// End ends a query like a scheduler does, and releases it.
func End(it *scheduler.Item, code api.Code, outputs ...[]byte) {
	it.Outputs = it.Outputs[:0]
	for _, data := range outputs {
		it.Outputs = append(it.Outputs, api.Value{Data: data})
	}
	it.Confidence = math.NaN()
	owner := it.Owner
	owner.Answered(it, code)
	owner.Released(it, code)
}

// Floats4 is the signature of a model that takes four floats and returns an integer, as Sum does.
var Floats4 = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{4}}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Int64}},
}

// Bytes is the signature of a model that takes and returns bytes, as Echo does.
var Bytes = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "input", DType: api.Bytes}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Bytes}},
}

// Sum ends a query of Floats4 with the sum of its input.
func Sum(it *scheduler.Item) {
	total := float32(0)
	for i := range 4 {
		total += math.Float32frombits(binary.LittleEndian.Uint32(it.Inputs[0].Data[4*i:]))
	}
	End(it, api.OK, Int64(int64(total)))
}

// Echo ends a query of Bytes with its input.
func Echo(it *scheduler.Item) { End(it, api.OK, it.Inputs[0].Data) }

// Int64 is a scalar's data.
func Int64(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }
