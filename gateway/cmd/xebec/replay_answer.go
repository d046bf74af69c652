package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// sameOutput reports whether two outputs, as JSON in the form of answers, are the same: floating-point numbers may be tolerance apart,
// absolutely or as a part of the first one.
func sameOutput(specs []api.TensorSpec, a, b []byte, tolerance float64) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := decodeOutput(a)
	y, okY := decodeOutput(b)
	if !okX || !okY {
		return false
	}
	if len(specs) == 1 {
		return sameJSON(x, y, isFloat(specs[0].DType), tolerance)
	}
	p, okP := x.(map[string]any)
	q, okQ := y.(map[string]any)
	if !okP || !okQ || len(p) != len(q) {
		return false
	}
	for i := range specs {
		v, okV := p[specs[i].Name]
		w, okW := q[specs[i].Name]
		if !okV || !okW || !sameJSON(v, w, isFloat(specs[i].DType), tolerance) {
			return false
		}
	}
	return true
}

func isFloat(d api.DType) bool { return d == api.Float16 || d == api.Float32 || d == api.Float64 }

func decodeOutput(text []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // the integers of models do not all fit a float64
	return v, d.Decode(&v) == nil
}

func sameJSON(a, b any, float bool, tolerance float64) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], b[i], float, tolerance) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || sameNumber(a, b, float, tolerance))
	case map[string]any: // no output has any
		return false
	}
	if _, ok := b.(map[string]any); ok {
		return false
	}
	if _, ok := b.([]any); ok {
		return false
	}
	return a == b
}

func sameNumber(a, b json.Number, float bool, tolerance float64) bool {
	if !float {
		x, errX := strconv.ParseInt(string(a), 10, 64)
		y, errY := strconv.ParseInt(string(b), 10, 64)
		if errX == nil && errY == nil {
			return x == y
		}
		tolerance = 0 // "7.0" is 7
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	if errX != nil || errY != nil {
		return false
	}
	d := math.Abs(x - y)
	return d <= tolerance || d <= tolerance*math.Abs(x)
}

// appendInfer appends a request of the Open Inference Protocol for one query: JSON of jsonBytes, and all tensors as binary data, which
// holds every number exactly. The answer is asked for as binary data too.
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
		if lone(spec) {
			size += 4
		}
		dst = fmt.Appendf(dst, `],"datatype":%q,"parameters":{"binary_data_size":%d}}`, spec.DType.OIP(), size)
	}
	dst = append(dst, `],"parameters":{"binary_data_output":true}}`...)
	jsonBytes = len(dst) - start
	for i := range s.Inputs {
		if lone(&s.Inputs[i]) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(inputs[i].Data)))
		}
		dst = append(dst, inputs[i].Data...)
	}
	return dst, jsonBytes
}

// lone tensors are one string of bytes, which the protocol leads by its length and [api.Value] does not.
func lone(s *api.TensorSpec) bool { return s.DType == api.Bytes && len(s.Shape) == 0 }

// inferAnswer is what is read of an answer of the protocol.
type inferAnswer struct {
	Error   string `json:"error"`
	Outputs []struct {
		Name       string  `json:"name"`
		Shape      []int64 `json:"shape"`
		DataType   string  `json:"datatype"`
		Parameters struct {
			Size *int `json:"binary_data_size"`
		} `json:"parameters"`
	} `json:"outputs"`
}

// inferOutput turns the answer to appendInfer's request into the form of a function's output.
func inferOutput(body []byte, jsonBytes int, s *inferlog.Schema) ([]byte, error) {
	if jsonBytes <= 0 || jsonBytes > len(body) {
		return nil, fmt.Errorf("an answer without binary data: expected the header Inference-Header-Content-Length")
	}
	var a inferAnswer
	if err := json.Unmarshal(body[:jsonBytes], &a); err != nil {
		return nil, fmt.Errorf("an answer that is not JSON: %w", err)
	}
	rest := body[jsonBytes:]
	named := map[string][]byte{}
	for _, o := range a.Outputs {
		if o.Parameters.Size == nil || *o.Parameters.Size < 0 || *o.Parameters.Size > len(rest) {
			return nil, fmt.Errorf("output %q has no binary data, or less than it says", o.Name)
		}
		data := rest[:*o.Parameters.Size]
		rest = rest[len(data):]
		for i := range s.Outputs {
			spec := &s.Outputs[i]
			if spec.Name != o.Name {
				continue
			}
			if o.DataType != spec.DType.OIP() || len(o.Shape) == 0 || o.Shape[0] != 1 || !api.FitsShape(spec.Shape, o.Shape[1:]) {
				return nil, fmt.Errorf("output %q is %s%s: expected %s, as in the log, after a leading 1", o.Name, o.DataType, api.ShapeString(o.Shape), spec)
			}
			v := api.Value{Data: data}
			if !spec.Fixed() {
				v.Dims = o.Shape[1:]
			}
			if lone(spec) {
				if v.Dims = nil; len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) != uint64(len(data)-4) {
					return nil, fmt.Errorf("output %q is not one string of bytes", o.Name)
				}
				v.Data = data[4:]
			}
			named[o.Name] = tensorjson.AppendValue(nil, *spec, v)
		}
	}
	out := []byte("{")
	for i := range s.Outputs {
		text, ok := named[s.Outputs[i].Name]
		if !ok {
			return nil, fmt.Errorf("no output %q: the log's answers have one", s.Outputs[i].Name)
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

// latencies counts times in buckets an eighth of a power of two wide, so that a quantile is at most 6 % off, in a fixed size.
type latencies struct {
	n       uint64
	buckets [64 * 8]uint64
}

// add takes a time in microseconds.
func (l *latencies) add(micros int64) {
	l.n++
	l.buckets[latencyBucket(uint64(max(micros, 0)))]++
}

func latencyBucket(v uint64) int {
	if v < 8 {
		return int(v)
	}
	e := bits.Len64(v) - 4 // 8 buckets for each power of two
	return 8*e + int(v>>e)
}

// latencyOf is the middle of a bucket.
func latencyOf(bucket int) float64 {
	if bucket < 16 {
		return float64(bucket)
	}
	e := bucket/8 - 1
	return math.Ldexp(float64(bucket-8*e)+0.5, e)
}

// quantile is in milliseconds; 0 where there are no times.
func (l *latencies) quantile(q float64) float64 {
	rank, seen := uint64(math.Ceil(q*float64(l.n))), uint64(0)
	for b, n := range l.buckets {
		if seen += n; seen >= rank && seen > 0 {
			return latencyOf(b) / 1e3
		}
	}
	return 0
}
