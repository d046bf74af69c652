package replay

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// inferHeader gives the size of the JSON in a body that binary data follows.
const inferHeader = "Inference-Header-Content-Length"

// appendInfer appends a request of the Open Inference Protocol for one query. Its first jsonBytes bytes are JSON, the
// rest are the tensors as binary data, which holds every number exactly. It asks for a binary answer too.
func appendInfer(dst []byte, s *inferlog.Schema, inputs []api.Value) (body []byte, jsonBytes int) {
	start := len(dst)
	dst = append(dst, `{"inputs":[`...)
	for i := range s.Inputs {
		spec, v := &s.Inputs[i], &inputs[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = tensorjson.AppendString(dst, spec.Name)
		dst = append(dst, `,"shape":[1`...)
		dims := spec.Shape
		if !spec.Fixed() && len(dims) > 0 {
			dims = v.Dims
		}
		for _, d := range dims {
			dst = append(dst, ',')
			dst = strconv.AppendInt(dst, d, 10)
		}
		size := len(v.Data)
		if isScalarBytes(spec) {
			size += 4
		}
		dst = fmt.Appendf(dst, `],"datatype":%q,"parameters":{"binary_data_size":%d}}`, spec.DType.OIP(), size)
	}
	dst = append(dst, `],"parameters":{"binary_data_output":true}}`...)
	jsonBytes = len(dst) - start
	for i := range s.Inputs {
		if isScalarBytes(&s.Inputs[i]) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(inputs[i].Data)))
		}
		dst = append(dst, inputs[i].Data...)
	}
	return dst, jsonBytes
}

// isScalarBytes: the protocol puts the length before the only element of such a tensor, [api.Value] does not.
func isScalarBytes(s *api.TensorSpec) bool { return s.DType.Variable() && len(s.Shape) == 0 }

// inferAnswer is the part of an answer of the protocol that a replay reads.
type inferAnswer struct {
	Error   string        `json:"error"`
	Outputs []inferTensor `json:"outputs"`
}

type inferTensor struct {
	Name       string  `json:"name"`
	Shape      []int64 `json:"shape"`
	DataType   string  `json:"datatype"`
	Parameters struct {
		Size *int `json:"binary_data_size"`
	} `json:"parameters"`
}

// inferOutput converts the answer to a request of appendInfer into the JSON of a function's output.
func inferOutput(body []byte, jsonBytes int, s *inferlog.Schema) ([]byte, error) {
	if jsonBytes <= 0 || jsonBytes > len(body) {
		return nil, errors.New("the answer has no binary data: expected the header " + inferHeader)
	}
	var a inferAnswer
	if err := json.Unmarshal(body[:jsonBytes], &a); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	rest := body[jsonBytes:]
	named := map[string][]byte{}
	for i := range a.Outputs {
		o := &a.Outputs[i]
		if o.Parameters.Size == nil || *o.Parameters.Size < 0 || *o.Parameters.Size > len(rest) {
			return nil, fmt.Errorf("output %q has no binary data, or less than its binary_data_size", o.Name)
		}
		data := rest[:*o.Parameters.Size]
		rest = rest[len(data):]
		for k := range s.Outputs {
			spec := &s.Outputs[k]
			if spec.Name != o.Name {
				continue
			}
			v, err := o.value(spec, data)
			if err != nil {
				return nil, err
			}
			named[o.Name] = tensorjson.AppendValue(nil, *spec, v)
		}
	}
	out := []byte("{")
	for i := range s.Outputs {
		text, ok := named[s.Outputs[i].Name]
		if !ok {
			return nil, fmt.Errorf("the answer has no output %q, which the log has", s.Outputs[i].Name)
		}
		if len(s.Outputs) == 1 {
			return text, nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(tensorjson.AppendString(out, s.Outputs[i].Name), ':')
		out = append(out, text...)
	}
	return append(out, '}'), nil
}

// value checks the tensor against the schema. The value shares memory with data.
func (o *inferTensor) value(spec *api.TensorSpec, data []byte) (api.Value, error) {
	if o.DataType != spec.DType.OIP() || len(o.Shape) == 0 || o.Shape[0] != 1 || !api.FitsShape(spec.Shape, o.Shape[1:]) {
		return api.Value{}, fmt.Errorf("output %q is %s%s: expected %s, as in the log, after a leading 1", o.Name, o.DataType, api.ShapeString(o.Shape), spec)
	}
	if isScalarBytes(spec) {
		if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) != uint64(len(data)-4) {
			return api.Value{}, fmt.Errorf("output %q is not one string of bytes", o.Name)
		}
		return api.Value{Data: data[4:]}, nil
	}
	v := api.Value{Data: data}
	if !spec.Fixed() {
		v.Dims = o.Shape[1:]
	}
	return v, nil
}
