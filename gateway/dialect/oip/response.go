package oip

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// AppendResponse appends the answer to req, whose n queries have the outputs output(query, index in the signature).
// facts appends the members of the answer's parameters; nil: it has none. jsonLen is 0 if the answer is only JSON. Otherwise it is the length of the JSON, which the caller sends as
// Inference-Header-Content-Length, and binary data follow the JSON. Data in JSON are flat: floats have the fewest digits
// that read back exactly, NaN and the infinities are null, BYTES are strings.
//
// Outputs of different dimensions do not fit one tensor, and BYTES that are not UTF-8 do not fit JSON. Both are an
// *api.Error with code InvalidArgument that says what to request instead. On an error the returned body is dst,
// unchanged.
func AppendResponse(dst []byte, model, version string, facts func([]byte) []byte, req *Request, sig *api.Signature, n int, output func(query, tensor int) *api.Value) (body []byte, jsonLen int, err error) {
	if n < 1 || !req.Batched && n != 1 {
		return dst, 0, api.Errorf(api.Internal, "an answer of %d queries to a request of %d", n, req.Queries)
	}
	start := len(dst)
	body = append(dst, `{"model_name":`...)
	body = tensorjson.AppendString(body, model)
	if version != "" {
		body = append(body, `,"model_version":`...)
		body = tensorjson.AppendString(body, version)
	}
	if req.ID != nil {
		body = append(body, `,"id":`...)
		body = tensorjson.AppendString(body, req.ID)
	}
	if facts != nil {
		body = append(body, `,"parameters":{`...)
		body = append(facts(body), '}')
	}
	body = append(body, `,"outputs":[`...)
	anyBinary := false
	for k := range req.Outputs {
		o := &req.Outputs[k]
		if k > 0 {
			body = append(body, ',')
		}
		c := column{spec: &sig.Outputs[o.Index], index: o.Index, n: n}
		output := output
		if o.Classes > 0 {
			if c, output, err = req.classes(c, o.Classes, output); err != nil {
				return dst, 0, err
			}
		}
		if err = c.measure(output); err != nil {
			return dst, 0, err
		}
		body = c.appendHead(body, req.Batched)
		if o.Binary {
			anyBinary = true
			body = append(body, `,"parameters":{"binary_data_size":`...)
			body = strconv.AppendInt(body, c.binarySize, 10)
			body = append(body, "}}"...)
			continue
		}
		body = append(body, `,"data":[`...)
		if body, err = c.appendJSON(body, output); err != nil {
			return dst, 0, err
		}
		body = append(body, "]}"...)
	}
	body = append(body, "]}"...)
	if !anyBinary {
		return body, 0, nil
	}
	jsonLen = len(body) - start
	for k := range req.Outputs {
		if o := &req.Outputs[k]; o.Binary {
			c := column{spec: &sig.Outputs[o.Index], index: o.Index, n: n}
			output := output
			if o.Classes > 0 {
				if c, output, err = req.classes(c, o.Classes, output); err != nil {
					return dst, 0, err
				}
			}
			body = c.appendBinary(body, output)
		}
	}
	return body, jsonLen, nil
}

// classes replaces an output by the largest elements of each query's value: a row of texts of the form value:index. The result is valid until the
// next call.
func (q *Request) classes(c column, k int, output func(query, tensor int) *api.Value) (column, func(query, tensor int) *api.Value, error) {
	if err := c.measure(output); err != nil { // so that the data has the length of its elements, and all queries have as many classes
		return c, nil, err
	}
	if c.elements*int64(c.n) > classify.MaxElements {
		return c, nil, api.Errorf(api.InvalidArgument, "output %q: classification of %d elements: expected at most %d: ask for the output itself", c.spec.Name, c.elements*int64(c.n), classify.MaxElements)
	}
	d := c.spec.DType
	q.texts, q.values = q.texts[:0], q.values[:0]
	var ends []int
	for i := range c.n {
		data := output(i, c.index).Data
		for _, class := range q.classifier.Top(d, data, k) {
			at := len(q.texts)
			q.texts = append(q.texts, 0, 0, 0, 0)
			q.texts = classify.Append(q.texts, d, data, class)
			binary.LittleEndian.PutUint32(q.texts[at:], uint32(len(q.texts)-at-4))
		}
		ends = append(ends, len(q.texts))
	}
	k = min(k, int(c.elements))
	begin, dims := 0, []int64{int64(k)}
	for _, end := range ends {
		q.values = append(q.values, api.Value{Data: q.texts[begin:end:end], Dims: dims})
		begin = end
	}
	spec := &api.TensorSpec{Name: c.spec.Name, DType: api.String, Shape: dims}
	return column{spec: spec, index: c.index, n: c.n, dims: dims, elements: int64(k)}, func(query, _ int) *api.Value { return &q.values[query] }, nil
}

// column is one output of all queries.
type column struct {
	spec  *api.TensorSpec
	index int
	n     int
	// dims are the dimensions of each query's value, and elements is their product.
	dims       []int64
	elements   int64
	binarySize int64
}

// measure determines the dimensions that all queries share, and checks that each value has as much data as they need.
func (c *column) measure(output func(query, tensor int) *api.Value) error {
	c.dims = c.spec.Shape
	for q := range c.n {
		v := output(q, c.index)
		if !c.spec.Fixed() && len(c.spec.Shape) > 0 {
			if q == 0 {
				c.dims = v.Dims
			} else if !equal(c.dims, v.Dims) {
				return api.Errorf(api.InvalidArgument, "output %q: query 0 has shape %s and query %d %s, which one tensor cannot hold: send the queries one by one",
					c.spec.Name, api.ShapeString(c.dims), q, api.ShapeString(v.Dims))
			}
		}
		if q == 0 {
			c.elements = api.Elements(c.dims)
		}
		if c.elements < 0 || len(c.dims) != len(c.spec.Shape) || !c.holds(v) {
			return api.Errorf(api.Internal, "output %q: the value of query %d does not fit its shape %s", c.spec.Name, q, api.ShapeString(c.dims))
		}
		c.binarySize += int64(len(v.Data))
		if c.spec.DType.Variable() && len(c.dims) == 0 {
			c.binarySize += 4
		}
	}
	return nil
}

// holds reports whether a value's data has the length of its elements.
func (c *column) holds(v *api.Value) bool {
	if !c.spec.DType.Variable() {
		return int64(len(v.Data)) == c.elements*int64(c.spec.DType.Size())
	}
	if len(c.dims) == 0 {
		return true
	}
	data := v.Data
	for range c.elements {
		if len(data) < 4 {
			return false
		}
		size := uint64(binary.LittleEndian.Uint32(data))
		if size > uint64(len(data)-4) {
			return false
		}
		data = data[4+size:]
	}
	return len(data) == 0
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (c *column) appendHead(dst []byte, batched bool) []byte {
	dst = append(dst, `{"name":`...)
	dst = tensorjson.AppendString(dst, c.spec.Name)
	dst = append(dst, `,"datatype":"`...)
	dst = append(dst, c.spec.DType.OIP()...)
	dst = append(dst, `","shape":[`...)
	if batched {
		dst = strconv.AppendInt(dst, int64(c.n), 10)
	}
	for i, d := range c.dims {
		if batched || i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, d, 10)
	}
	return append(dst, ']')
}

func (c *column) appendJSON(dst []byte, output func(query, tensor int) *api.Value) ([]byte, error) {
	size := c.spec.DType.Size()
	comma := false
	for q := range c.n {
		data := output(q, c.index).Data
		for range c.elements {
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			if size > 0 {
				dst = tensorjson.AppendElement(dst, c.spec.DType, data)
				data = data[size:]
				continue
			}
			item := data
			if len(c.dims) > 0 {
				n := 4 + int(binary.LittleEndian.Uint32(data))
				item, data = data[4:n], data[n:]
			}
			if !utf8.Valid(item) {
				return dst, api.Errorf(api.InvalidArgument, "output %q of query %d is not UTF-8, so JSON cannot hold it: ask for it with the parameter binary_data", c.spec.Name, q)
			}
			dst = tensorjson.AppendString(dst, item)
		}
	}
	return dst, nil
}

func (c *column) appendBinary(dst []byte, output func(query, tensor int) *api.Value) []byte {
	for q := range c.n {
		v := output(q, c.index)
		if c.spec.DType.Variable() && len(c.spec.Shape) == 0 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v.Data)))
		}
		dst = append(dst, v.Data...)
	}
	return dst
}

// AppendModelMetadata appends a model's metadata: its tensors with the batch dimension -1 before their declared shapes.
func AppendModelMetadata(dst []byte, name string, versions []string, platform string, sig *api.Signature) []byte {
	dst = append(dst, `{"name":`...)
	dst = tensorjson.AppendString(dst, name)
	dst = append(dst, `,"versions":`...)
	dst = appendStrings(dst, versions)
	dst = append(dst, `,"platform":`...)
	dst = tensorjson.AppendString(dst, platform)
	dst = append(dst, `,"inputs":`...)
	dst = appendSpecs(dst, sig.Inputs)
	dst = append(dst, `,"outputs":`...)
	dst = appendSpecs(dst, sig.Outputs)
	return append(dst, '}')
}

func appendSpecs(dst []byte, specs []api.TensorSpec) []byte {
	dst = append(dst, '[')
	for i := range specs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = tensorjson.AppendString(dst, specs[i].Name)
		dst = append(dst, `,"datatype":"`...)
		dst = append(dst, specs[i].DType.OIP()...)
		dst = append(dst, `","shape":[-1`...)
		for _, d := range specs[i].Shape {
			dst = append(dst, ',')
			dst = strconv.AppendInt(dst, d, 10)
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

// AppendServerMetadata appends the server's metadata.
func AppendServerMetadata(dst []byte, name, version string, extensions []string) []byte {
	dst = append(dst, `{"name":`...)
	dst = tensorjson.AppendString(dst, name)
	dst = append(dst, `,"version":`...)
	dst = tensorjson.AppendString(dst, version)
	dst = append(dst, `,"extensions":`...)
	dst = appendStrings(dst, extensions)
	return append(dst, '}')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = tensorjson.AppendString(dst, s)
	}
	return append(dst, ']')
}

// AppendError appends the protocol's error object, with our code.
func AppendError(dst []byte, code api.Code, msg string) []byte {
	dst = append(dst, `{"error":`...)
	dst = tensorjson.AppendString(dst, msg)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, code.String()...)
	return append(dst, `"}`...)
}
