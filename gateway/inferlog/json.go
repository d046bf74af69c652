package inferlog

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// JSON appends the entry as one JSON object without line breaks. A query is
//
//	{"time", "function", "query_id", "context"?, "request_id"?, "input", "output"?, "default", "models", "confidence"?, "code", "latency_ms"}
//
// where "input" has the form that callers send, and "output" that of answers. A feedback is
//
//	{"time", "function", "query_id", "context"?, "label" | "correct" | "loss"}
func (e *Entry) JSON(dst []byte) []byte {
	at, id, context := e.Record.AtMicros, e.Record.ID, e.Record.Context
	if e.Kind == KindFeedback {
		at, id, context = e.Feedback.AtMicros, e.Feedback.ID, e.Feedback.Context
	}
	dst = append(dst, `{"time":"`...)
	dst = time.UnixMicro(clampMicros(at)).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
	dst = append(dst, `","function":`...)
	dst = tensorjson.AppendString(dst, e.Schema.Function)
	dst = append(dst, `,"query_id":`...)
	dst = strconv.AppendUint(dst, id, 10)
	if len(context) > 0 {
		dst = append(dst, `,"context":`...)
		dst = tensorjson.AppendString(dst, context)
	}
	if e.Kind == KindFeedback {
		dst = append(dst, ',')
		dst = e.Feedback.AppendVerdict(dst)
		return append(dst, '}')
	}
	return e.appendQuery(dst)
}

// clampMicros limits a time to the years that RFC 3339 supports.
func clampMicros(at int64) int64 {
	const year9999 = 253402300799_999999
	return min(max(at, 0), year9999)
}

func (e *Entry) appendQuery(dst []byte) []byte {
	r := &e.Record
	if len(r.RequestID) > 0 {
		dst = append(dst, `,"request_id":`...)
		dst = tensorjson.AppendString(dst, r.RequestID)
	}
	dst = append(dst, `,"input":`...)
	dst, _ = e.AppendInput(dst)
	if len(r.Outputs) > 0 {
		dst = append(dst, `,"output":`...)
		dst = e.AppendOutput(dst)
	}
	dst = append(dst, `,"default":`...)
	dst = strconv.AppendBool(dst, r.Default)
	dst = append(dst, `,"models":[`...)
	for i := range r.Models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = tensorjson.AppendString(dst, r.Models[i].String())
	}
	dst = append(dst, ']')
	if c := r.Confidence; c >= 0 && c <= 1 {
		dst = append(dst, `,"confidence":`...)
		dst = strconv.AppendFloat(dst, c, 'g', -1, 64)
	}
	dst = append(dst, `,"code":"`...)
	dst = append(dst, r.Code.String()...)
	dst = append(dst, `","latency_ms":`...)
	dst = strconv.AppendFloat(dst, float64(r.TookMicros)/1e3, 'f', -1, 64)
	return append(dst, '}')
}

// AppendVerdict appends the member that rates the answer: "label":…, "correct":… or "loss":….
func (f *Feedback) AppendVerdict(dst []byte) []byte {
	switch f.Kind {
	case FeedbackCorrect:
		dst = append(dst, `"correct":`...)
		return strconv.AppendBool(dst, f.Loss == 0)
	case FeedbackLoss:
		dst = append(dst, `"loss":`...)
		return strconv.AppendFloat(dst, f.Loss, 'g', -1, 64)
	}
	dst = append(dst, `"label":`...)
	start := len(dst)
	dst = append(dst, f.Label...)
	for i, c := range dst[start:] { // between tokens only: in strings they are escaped
		if c == '\n' || c == '\r' {
			dst[start+i] = ' '
		}
	}
	return dst
}

// AppendOutput appends a query's output in the form of an answer: a single output alone, several as an object, none as
// null.
func (e *Entry) AppendOutput(dst []byte) []byte {
	specs, values := e.Schema.Outputs, e.Record.Outputs
	switch {
	case len(values) == 0:
		return append(dst, "null"...)
	case len(values) == 1:
		return tensorjson.AppendValue(dst, specs[0], values[0])
	}
	for i := range specs {
		dst = appendName(dst, i, specs[i].Name)
		dst = tensorjson.AppendValue(dst, specs[i], values[i])
	}
	return append(dst, '}')
}

// AppendInput appends a query's input in the form that callers send: a single input alone, several as an object; BYTES
// as a string if they are UTF-8, as {"b64": …} otherwise. exact is false if the input has numbers that JSON lacks,
// which become null.
func (e *Entry) AppendInput(dst []byte) (out []byte, exact bool) {
	specs, values := e.Schema.Inputs, e.Record.Inputs
	if len(values) == 1 {
		return appendInput(dst, &specs[0], &values[0])
	}
	exact = true
	for i := range specs {
		dst = appendName(dst, i, specs[i].Name)
		var one bool
		dst, one = appendInput(dst, &specs[i], &values[i])
		exact = exact && one
	}
	return append(dst, '}'), exact
}

// appendName appends the opening brace or a comma, and the name of member i of an object.
func appendName(dst []byte, i int, name string) []byte {
	if i == 0 {
		dst = append(dst, '{')
	} else {
		dst = append(dst, ',')
	}
	dst = tensorjson.AppendString(dst, name)
	return append(dst, ':')
}

func appendInput(dst []byte, s *api.TensorSpec, v *api.Value) (out []byte, exact bool) {
	dims := s.Shape
	if !s.Fixed() && len(s.Shape) > 0 {
		dims = v.Dims
	}
	if !s.DType.Variable() || api.Elements(dims) == 0 {
		return tensorjson.AppendValue(dst, *s, *v), exactFloats(s.DType, v.Data)
	}
	if len(dims) == 0 {
		return appendBytes(dst, v.Data), true
	}
	dst, _ = appendNested(dst, dims, v.Data)
	return dst, true
}

// exactFloats reports whether JSON holds the numbers: all finite ones, and as null the NaN that null is read as.
func exactFloats(d api.DType, data []byte) bool {
	le := binary.LittleEndian
	size := d.Size()
	for ; len(data) >= size && size > 0; data = data[size:] {
		var f float64
		var canonical bool
		switch d {
		case api.Float16:
			bits := le.Uint16(data)
			f, canonical = float64(api.Float16ToFloat32(bits)), bits == 0x7e00
		case api.BFloat16:
			bits := le.Uint16(data)
			f, canonical = float64(api.BFloat16ToFloat32(bits)), bits == 0x7fc0
		case api.Float32:
			bits := le.Uint32(data)
			f, canonical = float64(math.Float32frombits(bits)), bits == 0x7fc00000
		case api.Float64:
			bits := le.Uint64(data)
			f, canonical = math.Float64frombits(bits), bits == 0x7ff8000000000000
		default:
			return true
		}
		if math.IsInf(f, 0) || math.IsNaN(f) && !canonical {
			return false
		}
	}
	return true
}

// appendNested appends the elements of BYTES that fill dims, none of which is 0, and returns the remaining data.
func appendNested(dst []byte, dims []int64, data []byte) (out, rest []byte) {
	if len(dims) == 0 {
		n := 4 + binary.LittleEndian.Uint32(data)
		return appendBytes(dst, data[4:n]), data[n:]
	}
	dst = append(dst, '[')
	for i := range dims[0] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst, data = appendNested(dst, dims[1:], data)
	}
	return append(dst, ']'), data
}

func appendBytes(dst, item []byte) []byte {
	if utf8.Valid(item) {
		return tensorjson.AppendString(dst, item)
	}
	return tensorjson.AppendValue(dst, api.TensorSpec{DType: api.Bytes}, api.Value{Data: item})
}
