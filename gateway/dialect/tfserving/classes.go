package tfserving

import (
	"encoding/binary"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// reading says which outputs are read as classes and scores.
//
// A classification reads the output named "scores", or else the first vector of floats: a score for each class. Labels are the output named "classes",
// or else the first vector of text or bytes; without one they are the classes' indexes. A model without scores whose only scalar output is a
// text or an integer names one class, with the query's confidence as its score. A regression reads the output named "outputs", or else the first that is
// one number.
type reading struct {
	scores, labels int // indexes of outputs; -1: none
}

// read finds the outputs that a verb reads.
func read(v verb, outputs []api.TensorSpec) (reading, error) {
	if v == regress {
		i := pick(outputs, "outputs", func(s *api.TensorSpec) bool {
			return !s.DType.Variable() && s.DType != api.Bool && (len(s.Shape) == 0 || len(s.Shape) == 1 && s.Shape[0] == 1)
		})
		if i < 0 {
			return reading{}, api.Errorf(api.InvalidArgument, "regress: none of the outputs %s is one number for each query: ask by :predict", tensorjson.Names(outputs))
		}
		return reading{scores: i, labels: -1}, nil
	}
	scores := pick(outputs, "scores", func(s *api.TensorSpec) bool { return len(s.Shape) == 1 && s.DType.Float() })
	if scores >= 0 {
		return reading{scores, pick(outputs, "classes", func(s *api.TensorSpec) bool { return len(s.Shape) == 1 && s.DType.Variable() })}, nil
	}
	label := pick(outputs, "classes", func(s *api.TensorSpec) bool { return len(s.Shape) == 0 && !s.DType.Float() })
	if label < 0 {
		return reading{}, api.Errorf(api.InvalidArgument, "classify: none of the outputs %s has scores or a class: ask by :predict", tensorjson.Names(outputs))
	}
	return reading{-1, label}, nil
}

// pick returns the output of that name if it fits, or else the first that does; -1: none.
func pick(outputs []api.TensorSpec, name string, fits func(*api.TensorSpec) bool) int {
	found := -1
	for i := range outputs {
		if !fits(&outputs[i]) {
			continue
		}
		if outputs[i].Name == name {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// appendResults appends the result of each example: a number, or a list of labels with scores.
func (c *call) appendResults(dst []byte) (_ []byte, err error) {
	for i := range c.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if values, _ := c.Outputs(i); c.verb == regress {
			dst = appendNumber(dst, c.Model().Signature.Outputs[c.how.scores].DType, values[c.how.scores].Data)
		} else if dst, err = c.appendClasses(dst, values, c.Query(i).Confidence); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendClasses appends the classes of one example.
func (c *call) appendClasses(dst []byte, values []api.Value, confidence float64) ([]byte, error) {
	specs := c.Model().Signature.Outputs
	if c.how.scores < 0 {
		dst = append(dst, "[["...)
		dst = appendLabel(dst, specs[c.how.labels].DType, values[c.how.labels].Data)
		dst = append(dst, ',')
		if !(confidence >= 0 && confidence <= 1) {
			confidence = 1
		}
		return append(strconv.AppendFloat(dst, confidence, 'g', -1, 64), "]]"...), nil
	}
	dtype := specs[c.how.scores].DType
	data, size := values[c.how.scores].Data, dtype.Size()
	var labels []byte
	if c.how.labels >= 0 {
		labels = values[c.how.labels].Data
	}
	dst = append(dst, '[')
	for i := 0; len(data) >= size; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		if c.how.labels >= 0 {
			if len(labels) < 4 {
				return dst, api.Errorf(api.Internal, "classify: the model returned fewer labels than scores")
			}
			n := 4 + int(binary.LittleEndian.Uint32(labels)) // the transport has judged the lengths
			dst = tensorjson.AppendString(dst, labels[4:n])
			labels = labels[n:]
		} else {
			dst = append(strconv.AppendInt(append(dst, '"'), int64(i), 10), '"')
		}
		dst = append(appendNumber(append(dst, ','), dtype, data[:size]), ']')
		data = data[size:]
	}
	return append(dst, ']'), nil
}

// appendLabel appends a scalar as a text.
func appendLabel(dst []byte, dtype api.DType, data []byte) []byte {
	if dtype.Variable() {
		return tensorjson.AppendString(dst, data)
	}
	return append(tensorjson.AppendElement(append(dst, '"'), dtype, data), '"')
}

// appendNumber appends a number, with the protocol's tokens.
func appendNumber(dst []byte, dtype api.DType, data []byte) []byte {
	spec := api.TensorSpec{DType: dtype}
	return tensorjson.Form{NonFinite: true}.AppendValue(dst, spec, api.Value{Data: data})
}
