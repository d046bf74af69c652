package oipwire

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
)

// classes are the texts that stand for an output; without a spec the output stands for itself.
type classes struct {
	spec   *api.TensorSpec
	values []api.Value // of each query
}

// classify makes the texts of the outputs that are to be classified. An output whose elements would take long to order is an *api.Error.
func (r *Response) classify() error {
	r.classified = nil
	for i, k := range r.Classes {
		if k == 0 {
			continue
		}
		c := column{spec: &r.Signature.Outputs[r.Outputs[i]], index: r.Outputs[i], n: r.Queries}
		if err := c.measure(r.Output); err != nil { // so that the data has the length of its elements, and all queries have as many classes
			return err
		}
		if c.total() > classify.MaxElements {
			return api.Errorf(api.InvalidArgument, "output %q: classification of %d elements: expected at most %d: ask for the output itself", c.spec.Name, c.total(), classify.MaxElements)
		}
		if r.classified == nil {
			r.classified = make([]classes, len(r.Outputs))
		}
		dims := []int64{min(int64(k), c.each)}
		of := &r.classified[i]
		of.spec = &api.TensorSpec{Name: c.spec.Name, DType: api.String, Shape: dims}
		var order classify.Classifier
		for q := range r.Queries {
			var texts []byte
			data := r.Output(q, c.index).Data
			for _, class := range order.Top(c.spec.DType, data, k) {
				at := len(texts)
				texts = classify.Append(append(texts, 0, 0, 0, 0), c.spec.DType, data, class)
				binary.LittleEndian.PutUint32(texts[at:], uint32(len(texts)-at-4))
			}
			of.values = append(of.values, api.Value{Data: texts, Dims: dims})
		}
	}
	return nil
}

// column is what is sent as one of Outputs, and the function that has its values.
func (r *Response) column(i int) (column, func(query, tensor int) *api.Value) {
	c := column{spec: &r.Signature.Outputs[r.Outputs[i]], index: r.Outputs[i], n: r.Queries}
	if len(r.classified) == 0 || r.classified[i].spec == nil {
		return c, r.Output
	}
	of := &r.classified[i]
	c.spec = of.spec
	return c, func(query, _ int) *api.Value { return &of.values[query] }
}
