package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// A default output is JSON in the form of the native API: the value of the model's output if it has one output, else an
// object with one member for each output. A number is an element of a numeric tensor, true and false are elements of a
// bool tensor, a string is an element of a string tensor, {"b64": "…"} of a
// bytes tensor. Arrays nest as the shape says.

// MaxDefaultDepth is the deepest nesting of a default output: an object of outputs, arrays up to the largest rank, and bytes.
const MaxDefaultDepth = MaxRank + 2 //xebec:limit nesting of a default output

// CanonicalJSON returns raw in the form that FunctionSpec.Default has: compact, object members sorted by name, escapes
// only where JSON requires them, numbers digit for digit as written. The error says why raw cannot be a default output.
func CanonicalJSON(raw []byte) (json.RawMessage, error) {
	v, err := decodeExact(raw)
	if err != nil {
		return nil, err
	}
	if err := checkPlain(v, 0); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func decodeExact(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("is more than one JSON value")
	}
	return v, nil
}

// checkPlain refuses what no tensor can hold and YAML cannot express: deeper nesting, and numbers beyond float64.
func checkPlain(v any, depth int) error {
	switch v := v.(type) {
	case json.Number:
		if _, err := strconv.ParseFloat(string(v), 64); err != nil {
			return fmt.Errorf("%.40s is beyond the largest float64", v)
		}
		return nil
	case []any:
		if depth == MaxDefaultDepth {
			return fmt.Errorf("nests deeper than %d", MaxDefaultDepth)
		}
		for _, item := range v {
			if err := checkPlain(item, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		if depth == MaxDefaultDepth {
			return fmt.Errorf("nests deeper than %d", MaxDefaultDepth)
		}
		for _, item := range v {
			if err := checkPlain(item, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDefault checks raw against the outputs. The path of its error is relative to the default.
func checkDefault(raw json.RawMessage, outputs []TensorSpec) *FieldError {
	v, err := decodeExact(raw)
	if err != nil {
		return &FieldError{Message: err.Error()}
	}
	if len(outputs) == 1 {
		return checkTensorJSON("", v, outputs[0].DType, outputs[0].Shape)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return &FieldError{Message: fmt.Sprintf("%s: expected an object with a member for each of %d outputs", kindOf(v), len(outputs))}
	}
	for _, t := range outputs {
		member, ok := object[t.Name]
		if !ok {
			return &FieldError{Message: fmt.Sprintf("has no %q: expected a member for each of %d outputs", t.Name, len(outputs))}
		}
		if err := checkTensorJSON("."+t.Name, member, t.DType, t.Shape); err != nil {
			return err
		}
	}
	for name := range object {
		if !slices.ContainsFunc(outputs, func(t TensorSpec) bool { return t.Name == name }) {
			return &FieldError{Path: "." + name, Message: "is not an output"}
		}
	}
	return nil
}

func checkTensorJSON(path string, v any, dtype DType, shape []int64) *FieldError {
	if len(shape) == 0 {
		if bad := checkElementJSON(v, dtype); bad != "" {
			return &FieldError{path, bad}
		}
		return nil
	}
	items, ok := v.([]any)
	if !ok {
		return &FieldError{path, fmt.Sprintf("%s: expected an array of shape %s", kindOf(v), ShapeString(shape))}
	}
	if shape[0] >= 0 && int64(len(items)) != shape[0] {
		return &FieldError{path, fmt.Sprintf("has %d elements: expected %d", len(items), shape[0])}
	}
	for i, item := range items {
		if err := checkTensorJSON(fmt.Sprintf("%s[%d]", path, i), item, dtype, shape[1:]); err != nil {
			return err
		}
	}
	return nil
}

func checkElementJSON(v any, dtype DType) string {
	switch dtype {
	case Bool:
		if _, ok := v.(bool); !ok {
			return fmt.Sprintf("%s: expected true or false", kindOf(v))
		}
	case Bytes:
		object, ok := v.(map[string]any)
		text, isText := object["b64"].(string)
		if !ok || !isText || len(object) != 1 {
			return fmt.Sprintf("%s: expected {\"b64\": …}, the bytes in base64", kindOf(v))
		}
		if _, err := AppendBase64(nil, []byte(text)); err != nil {
			return fmt.Sprintf("%.40q %s", text, err)
		}
	case String:
		if _, ok := v.(string); !ok {
			return fmt.Sprintf("%s: expected a string", kindOf(v))
		}
	default:
		n, ok := v.(json.Number)
		if !ok {
			return fmt.Sprintf("%s: expected a number (%s)", kindOf(v), dtype)
		}
		if !numberFits(string(n), dtype) {
			return fmt.Sprintf("%.40s is not a value of %s", n, dtype)
		}
	}
	return ""
}

func numberFits(n string, dtype DType) bool {
	bits := 8 * dtype.Size()
	switch dtype {
	case Int8, Int16, Int32, Int64:
		_, err := strconv.ParseInt(n, 10, bits)
		return err == nil
	case Uint8, Uint16, Uint32, Uint64:
		_, err := strconv.ParseUint(n, 10, bits)
		return err == nil
	case Float16:
		f, err := strconv.ParseFloat(n, 64)
		return err == nil && Float64ToFloat16(math.Abs(f)) < 0x7c00
	case BFloat16:
		f, err := strconv.ParseFloat(n, 64)
		return err == nil && Float64ToBFloat16(math.Abs(f)) < 0x7f80
	default:
		_, err := strconv.ParseFloat(n, bits)
		return err == nil
	}
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return fmt.Sprintf("%.40s is a number", v)
	case string:
		return fmt.Sprintf("%.40q is a string", v)
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
