package replay

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/xebec-serving/xebec/api"
)

// sameOutput compares two outputs in the JSON of answers. Floating-point numbers may differ by tolerance, absolutely or
// as a fraction of the number in a.
func sameOutput(specs []api.TensorSpec, a, b []byte, tolerance float64) bool {
	return compareOutputs(specs, a, b, tolerance, false)
}

// isLabel reports whether an output is what a label says, which may leave out some of several outputs.
func isLabel(specs []api.TensorSpec, label, output []byte, tolerance float64) bool {
	return compareOutputs(specs, label, output, tolerance, true)
}

func compareOutputs(specs []api.TensorSpec, a, b []byte, tolerance float64, part bool) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := decodeOutput(a)
	y, okY := decodeOutput(b)
	if !okX || !okY {
		return false
	}
	if len(specs) == 1 {
		return sameJSON(x, y, specs[0].DType.Float(), tolerance)
	}
	p, okP := x.(map[string]any)
	q, okQ := y.(map[string]any)
	if !okP || !okQ || len(p) != len(q) && !part || len(p) == 0 {
		return false
	}
	known := 0
	for i := range specs {
		v, okV := p[specs[i].Name]
		if !okV && part {
			continue
		}
		known++
		w, okW := q[specs[i].Name]
		if !okV || !okW || !sameJSON(v, w, specs[i].DType.Float(), tolerance) {
			return false
		}
	}
	return known == len(p)
}

func decodeOutput(text []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // int64 does not fit into float64
	return v, d.Decode(&v) == nil
}

// sameJSON compares one output. Its only objects are bytes, {"b64": …}.
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
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return false
		}
		x, okX := a["b64"].(string)
		y, okY := b["b64"].(string)
		return okX && okY && x == y
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
		tolerance = 0 // 7.0 and 7 are the same
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	if errX != nil || errY != nil {
		return false
	}
	d := math.Abs(x - y)
	return d <= tolerance || d <= tolerance*math.Abs(x)
}
