package http

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestDialectsAgree: the same random tensors come back bit for bit in every form of every dialect from a model that answers its inputs.
func TestDialectsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWords(rt)
		f := serve(t, w.sig, func(it *scheduler.Item) {
			it.Outputs = append(it.Outputs[:0], it.Inputs...) // with their shapes, which End would drop
			it.Confidence = math.NaN()
			owner := it.Owner
			owner.Answered(it, api.OK)
			owner.Released(it, api.OK)
		})
		for _, form := range []struct {
			name, path string
			body       string
			header     []string
			read       func(rt *rapid.T, body string, header func(string) string) [][][]string
		}{
			{"native", "/f/predict", w.native(), nil, w.readNative},
			{"OIP JSON", "/v2/models/f/infer", w.oip(), nil, w.readOIP},
			{"OIP binary", "/v2/models/m/infer", w.oipBinary(), []string{"Inference-Header-Content-Length", strconv.Itoa(len(w.oipHeader()))}, w.readBinary},
			{"TensorFlow Serving, rows", "/v1/models/f:predict", w.rows(), nil, w.readRows},
			{"TensorFlow Serving, columns", "/v1/models/m:predict", w.columns(), nil, w.readColumns},
		} {
			status, header, body := f.post(form.path, "application/json", form.body, form.header...)
			if status != 200 {
				rt.Fatalf("%s: %d %s\nof %s", form.name, status, body, form.body)
			}
			if got := form.read(rt, body, header.Get); !slices.EqualFunc(got, w.values, func(a, b [][]string) bool { return slices.EqualFunc(a, b, slices.Equal) }) {
				rt.Errorf("%s answers\n%s\nto\n%s\nread as\n%q\nwant\n%q", form.name, body, form.body, got, w.values)
			}
		}
		if err := f.shutdown(t.Context()); err != nil {
			rt.Fatal(err)
		}
	})
}

// words are queries as values[query][tensor][element], each element a JSON literal.
type words struct {
	sig    api.Signature
	values [][][]string
}

func drawWords(t *rapid.T) *words {
	w := new(words)
	dtypes := []api.DType{api.Bool, api.Int8, api.Int16, api.Int32, api.Int64, api.Uint8, api.Uint16, api.Uint32, api.Uint64, api.Float32, api.Float64, api.String}
	shapes := [][]int64{nil, {1}, {3}, {2, 2}}
	for i := range rapid.IntRange(1, 3).Draw(t, "tensors") {
		d, shape := rapid.SampledFrom(dtypes).Draw(t, "dtype"), rapid.SampledFrom(shapes).Draw(t, "shape")
		name := fmt.Sprintf("t%d", i)
		w.sig.Inputs = append(w.sig.Inputs, api.TensorSpec{Name: name, DType: d, Shape: shape})
		w.sig.Outputs = append(w.sig.Outputs, api.TensorSpec{Name: name, DType: d, Shape: shape})
	}
	for range rapid.IntRange(1, 4).Draw(t, "queries") {
		q := make([][]string, len(w.sig.Inputs))
		for i, spec := range w.sig.Inputs {
			for range elements(spec.Shape) {
				q[i] = append(q[i], drawLiteral(t, spec.DType))
			}
		}
		w.values = append(w.values, q)
	}
	return w
}

func elements(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

func drawLiteral(t *rapid.T, d api.DType) string {
	bits := 8 * d.Size()
	switch d {
	case api.Bool:
		return strconv.FormatBool(rapid.Bool().Draw(t, "bool"))
	case api.Int8, api.Int16, api.Int32, api.Int64:
		return strconv.FormatInt(rapid.Int64().Draw(t, "int")>>(64-bits), 10)
	case api.Uint8, api.Uint16, api.Uint32, api.Uint64:
		return strconv.FormatUint(rapid.Uint64().Draw(t, "uint")>>(64-bits), 10)
	case api.Float32:
		return canonical(d, strconv.FormatFloat(float64(rapid.Float32().Draw(t, "float32")), 'g', -1, 32))
	case api.Float64:
		return canonical(d, strconv.FormatFloat(rapid.Float64().Draw(t, "float64"), 'g', -1, 64))
	default:
		text, _ := json.Marshal(rapid.String().Draw(t, "text"))
		return string(text)
	}
}

// canonical is the one way in which the test writes a value.
func canonical(d api.DType, literal string) string {
	switch {
	case d.Float():
		x, err := strconv.ParseFloat(literal, 8*d.Size())
		if err != nil {
			return "not a number: " + literal
		}
		return strconv.FormatFloat(x, 'g', -1, 8*d.Size())
	case d == api.String:
		var s string
		if err := json.Unmarshal([]byte(literal), &s); err != nil {
			return "no text: " + literal
		}
		text, _ := json.Marshal(s)
		return string(text)
	}
	return literal
}

// nested writes elements as JSON lists of the shape.
func nested(shape []int64, elements []string) string {
	if len(shape) == 0 {
		return elements[0]
	}
	each := len(elements) / int(shape[0])
	parts := make([]string, shape[0])
	for i := range parts {
		parts[i] = nested(shape[1:], elements[i*each:(i+1)*each])
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// flat appends the elements of nested lists.
func flat(dst []string, d api.DType, raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return append(dst, canonical(d, string(raw)))
	}
	for _, x := range list {
		dst = flat(dst, d, x)
	}
	return dst
}

// object writes a query: its only tensor, or all by name.
func (w *words) object(q [][]string) string {
	if len(q) == 1 {
		return nested(w.sig.Inputs[0].Shape, q[0])
	}
	parts := make([]string, len(q))
	for i, x := range q {
		parts[i] = fmt.Sprintf("%q:%s", w.sig.Inputs[i].Name, nested(w.sig.Inputs[i].Shape, x))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (w *words) readObject(t *rapid.T, raw json.RawMessage) [][]string {
	byName := map[string]json.RawMessage{w.sig.Outputs[0].Name: raw}
	if len(w.sig.Outputs) > 1 {
		unmarshal(t, string(raw), &byName)
	}
	q := make([][]string, len(w.sig.Outputs))
	for i, spec := range w.sig.Outputs {
		q[i] = flat(nil, spec.DType, byName[spec.Name])
	}
	return q
}

func unmarshal(t *rapid.T, text string, into any) {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func (w *words) objects() string {
	parts := make([]string, len(w.values))
	for i, q := range w.values {
		parts[i] = w.object(q)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func (w *words) native() string { return `{"input_batch":` + w.objects() + "}" }

func (w *words) readNative(t *rapid.T, body string, _ func(string) string) (values [][][]string) {
	var a struct {
		Predictions []struct{ Output json.RawMessage } `json:"batch_predictions"`
	}
	unmarshal(t, body, &a)
	for _, p := range a.Predictions {
		values = append(values, w.readObject(t, p.Output))
	}
	return values
}

func (w *words) rows() string { return `{"instances":` + w.objects() + "}" }

func (w *words) readRows(t *rapid.T, body string, _ func(string) string) (values [][][]string) {
	var a struct{ Predictions []json.RawMessage }
	unmarshal(t, body, &a)
	for _, p := range a.Predictions {
		values = append(values, w.readObject(t, p))
	}
	return values
}

// whole is one tensor of all queries, with the queries as its first dimension.
func (w *words) whole(i int) (shape []int64, elements []string) {
	for _, q := range w.values {
		elements = append(elements, q[i]...)
	}
	return append([]int64{int64(len(w.values))}, w.sig.Inputs[i].Shape...), elements
}

// split divides elements of tensors, of all queries, by query.
func (w *words) split(tensors [][]string) [][][]string {
	values := make([][][]string, len(w.values))
	for q := range values {
		for _, x := range tensors {
			each := len(x) / len(values)
			values[q] = append(values[q], x[q*each:(q+1)*each])
		}
	}
	return values
}

func (w *words) columns() string {
	parts := make([]string, len(w.sig.Inputs))
	for i, spec := range w.sig.Inputs {
		shape, elements := w.whole(i)
		parts[i] = fmt.Sprintf("%q:%s", spec.Name, nested(shape, elements))
	}
	return `{"inputs":{` + strings.Join(parts, ",") + "}}"
}

func (w *words) readColumns(t *rapid.T, body string, _ func(string) string) [][][]string {
	var a struct{ Outputs json.RawMessage }
	unmarshal(t, body, &a)
	return w.split(w.readObject(t, a.Outputs))
}

type oipTensor struct {
	Name, Datatype string
	Shape          []int64
	Data           json.RawMessage
	Parameters     struct {
		Size int `json:"binary_data_size"`
	}
}

func (w *words) oipTensors(data func(i int, elements []string) string) string {
	parts := make([]string, len(w.sig.Inputs))
	for i, spec := range w.sig.Inputs {
		shape, elements := w.whole(i)
		dims, _ := json.Marshal(shape)
		parts[i] = fmt.Sprintf(`{"name":%q,"datatype":%q,"shape":%s,%s}`, spec.Name, spec.DType.OIP(), dims, data(i, elements))
	}
	return strings.Join(parts, ",")
}

func (w *words) oip() string {
	return `{"inputs":[` + w.oipTensors(func(_ int, elements []string) string { return `"data":[` + strings.Join(elements, ",") + "]" }) + "]}"
}

func (w *words) readOIP(t *rapid.T, body string, _ func(string) string) [][][]string {
	var a struct{ Outputs []oipTensor }
	unmarshal(t, body, &a)
	tensors := make([][]string, len(a.Outputs))
	for i, o := range a.Outputs {
		tensors[i] = flat(nil, w.sig.Outputs[i].DType, o.Data)
	}
	return w.split(tensors)
}

func (w *words) oipHeader() string {
	return `{"parameters":{"binary_data_output":true},"inputs":[` + w.oipTensors(func(i int, elements []string) string {
		return fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(binaryOf(w.sig.Inputs[i].DType, elements)))
	}) + "]}"
}

func (w *words) oipBinary() string {
	body := w.oipHeader()
	for i, spec := range w.sig.Inputs {
		_, elements := w.whole(i)
		body += string(binaryOf(spec.DType, elements))
	}
	return body
}

// binaryOf has the elements as the protocol's binary extension lays them out.
func binaryOf(d api.DType, elements []string) (dst []byte) {
	for _, literal := range elements {
		switch d {
		case api.String:
			var s string
			_ = json.Unmarshal([]byte(literal), &s)
			dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(s))), s...)
		case api.Bool:
			dst = append(dst, map[string]byte{"true": 1, "false": 0}[literal])
		case api.Float32:
			x, _ := strconv.ParseFloat(literal, 32)
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x)))
		case api.Float64:
			x, _ := strconv.ParseFloat(literal, 64)
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
		default:
			x, err := strconv.ParseInt(literal, 10, 64)
			if err != nil { // above the signed ones
				u, _ := strconv.ParseUint(literal, 10, 64)
				x = int64(u)
			}
			dst = append(dst, binary.LittleEndian.AppendUint64(nil, uint64(x))[:d.Size()]...)
		}
	}
	return dst
}

// readBinary compares bytes: what the answer has must be what the queries are.
func (w *words) readBinary(t *rapid.T, body string, header func(string) string) [][][]string {
	n, err := strconv.Atoi(header("Inference-Header-Content-Length"))
	if err != nil || n > len(body) {
		t.Fatalf("a header of %q bytes in %q", header("Inference-Header-Content-Length"), body)
	}
	var a struct{ Outputs []oipTensor }
	unmarshal(t, body[:n], &a)
	rest := []byte(body[n:])
	tensors := make([][]string, len(a.Outputs))
	for i, o := range a.Outputs {
		_, elements := w.whole(i)
		if o.Parameters.Size > len(rest) || !bytes.Equal(rest[:o.Parameters.Size], binaryOf(w.sig.Outputs[i].DType, elements)) {
			t.Fatalf("output %s: %q of %d bytes, want the input's", o.Name, rest, o.Parameters.Size)
		}
		tensors[i], rest = elements, rest[o.Parameters.Size:]
	}
	return w.split(tensors)
}
