package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/xebec-serving/xebec/api"
)

// maxSampleElements bounds a sample input: a longer one is not for a command line.
const maxSampleElements = 4096

// unknownDimension stands for a dimension that may have any size.
const unknownDimension = 3

// sampleRequest is a request with an input of the declared types and shapes, or why there is none.
func sampleRequest(m *api.ModelSpec) (body []byte, why string) {
	var one json.RawMessage
	all := map[string]json.RawMessage{}
	elements := int64(0)
	for _, t := range m.Inputs {
		if t.Media != "" {
			return nil, fmt.Sprintf("the input %s is a file of type %s", t.Name, t.Media)
		}
		shape := make([]int64, len(t.Shape))
		n := int64(1)
		for i, d := range t.Shape {
			if shape[i] = d; d < 0 {
				shape[i] = unknownDimension
			}
			n *= shape[i]
			if n > maxSampleElements {
				return nil, fmt.Sprintf("the input %s has more than %d elements", t.Name, maxSampleElements)
			}
		}
		if elements += n; elements > maxSampleElements {
			return nil, fmt.Sprintf("the inputs have more than %d elements", maxSampleElements)
		}
		var text bytes.Buffer
		writeSample(&text, t.DType, shape)
		one = text.Bytes()
		all[t.Name] = one
	}
	if len(m.Inputs) == 1 {
		return fmt.Appendf(nil, `{"input":%s}`, one), ""
	}
	input, err := json.Marshal(all)
	if err != nil {
		return nil, err.Error()
	}
	return fmt.Appendf(nil, `{"input":%s}`, input), ""
}

func writeSample(w *bytes.Buffer, dtype api.DType, shape []int64) {
	if len(shape) == 0 {
		switch dtype {
		case api.Bytes, api.String:
			w.WriteString(`"hello"`)
		case api.Bool:
			w.WriteString("false")
		default:
			w.WriteByte('0')
		}
		return
	}
	w.WriteByte('[')
	for i := range shape[0] {
		if i > 0 {
			w.WriteByte(',')
		}
		writeSample(w, dtype, shape[1:])
	}
	w.WriteByte(']')
}
