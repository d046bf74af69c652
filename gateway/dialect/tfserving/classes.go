package tfserving

import (
	"encoding/binary"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Reading says which outputs are read as classes and scores.
//
// A classification reads the output named "scores", or else the first vector of floats: a score for each class. Labels are the output named "classes",
// or else the first vector of text or bytes; without one they are the classes' indexes. A model without scores whose only scalar output is a
// text or an integer names one class, with the query's confidence as its score. A regression reads the output named "outputs", or else the first that is
// one number.
type Reading struct {
	Scores, Labels int // indexes of outputs; -1: none
}

// ReadNumber finds the output that a regression reads.
func ReadNumber(outputs []api.TensorSpec) (Reading, error) {
	i := pick(outputs, "outputs", func(s *api.TensorSpec) bool {
		return !s.DType.Variable() && s.DType != api.Bool && (len(s.Shape) == 0 || len(s.Shape) == 1 && s.Shape[0] == 1)
	})
	if i < 0 {
		return Reading{}, api.Errorf(api.InvalidArgument, "regress: none of the outputs %s is one number for each query: ask to predict", tensorjson.Names(outputs))
	}
	return Reading{Scores: i, Labels: -1}, nil
}

// ReadClasses finds the outputs that a classification reads.
func ReadClasses(outputs []api.TensorSpec) (Reading, error) {
	scores := pick(outputs, "scores", func(s *api.TensorSpec) bool { return len(s.Shape) == 1 && s.DType.Float() })
	if scores >= 0 {
		return Reading{scores, pick(outputs, "classes", func(s *api.TensorSpec) bool { return len(s.Shape) == 1 && s.DType.Variable() })}, nil
	}
	label := pick(outputs, "classes", func(s *api.TensorSpec) bool { return len(s.Shape) == 0 && !s.DType.Float() })
	if label < 0 {
		return Reading{}, api.Errorf(api.InvalidArgument, "classify: none of the outputs %s has scores or a class: ask to predict", tensorjson.Names(outputs))
	}
	return Reading{-1, label}, nil
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
			dst = appendNumber(dst, c.Model().Signature.Outputs[c.how.Scores].DType, values[c.how.Scores].Data)
		} else if dst, err = c.appendClasses(dst, values, c.Query(i).Confidence); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendClasses appends the classes of one example.
func (c *call) appendClasses(dst []byte, values []api.Value, confidence float64) ([]byte, error) {
	specs := c.Model().Signature.Outputs
	dst = append(dst, '[')
	first := true
	err := c.how.Classes(specs, values, func(label, score []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(tensorjson.AppendString(append(dst, '['), label), ',')
		if score == nil {
			dst = strconv.AppendFloat(dst, Score(confidence), 'g', -1, 64)
		} else {
			dst = appendNumber(dst, specs[c.how.Scores].DType, score)
		}
		dst = append(dst, ']')
	})
	return append(dst, ']'), err
}

// Score is the score of the only class of a query with this confidence: 1 if none was computed.
func Score(confidence float64) float64 {
	if !(confidence >= 0 && confidence <= 1) {
		return 1
	}
	return confidence
}

// Classes calls yield with the label of each class of one query, as a text, and its score, an element of the output of scores; nil: the query's confidence is the
// score ([Score]). Both are valid during the call.
func (r Reading) Classes(specs []api.TensorSpec, values []api.Value, yield func(label, score []byte)) error {
	var memory [24]byte
	if r.Scores < 0 {
		label := values[r.Labels].Data
		if d := specs[r.Labels].DType; !d.Variable() {
			label = tensorjson.AppendElement(memory[:0], d, label)
		}
		yield(label, nil)
		return nil
	}
	data, size := values[r.Scores].Data, specs[r.Scores].DType.Size()
	var labels []byte
	if r.Labels >= 0 {
		labels = values[r.Labels].Data
	}
	for i := 0; len(data) >= size; i++ {
		label := memory[:0]
		if r.Labels >= 0 {
			if len(labels) < 4 {
				return api.Errorf(api.Internal, "classify: the model returned fewer labels than scores")
			}
			n := 4 + int(binary.LittleEndian.Uint32(labels)) // the transport has judged the lengths
			label, labels = labels[4:n], labels[n:]
		} else {
			label = strconv.AppendInt(label, int64(i), 10)
		}
		yield(label, data[:size])
		data = data[size:]
	}
	return nil
}

// appendNumber appends a number, with the protocol's tokens.
func appendNumber(dst []byte, dtype api.DType, data []byte) []byte {
	spec := api.TensorSpec{DType: dtype}
	return tensorjson.Form{NonFinite: true}.AppendValue(dst, spec, api.Value{Data: data})
}
