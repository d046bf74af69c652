package tensorjson

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// Value reads one query's value of a tensor and overwrites v's Data and Dims.
//
// Rank 0 is a bare number, true or false, or (BYTES) a string or {"b64": "…"}. A higher rank is arrays nested like the
// shape, or one flat array in row-major order, from which at most one dimension of -1 is inferred.
func (r *Reader) Value(v *api.Value, spec *api.TensorSpec) error {
	v.Data, v.Dims = v.Data[:0], v.Dims[:0]
	rank := len(spec.Shape)
	if rank > api.MaxRank {
		return api.Errorf(api.Internal, "tensor %s has %d dimensions: expected at most %d", spec.Name, rank, api.MaxRank)
	}
	if rank == 0 {
		var err error
		v.Data, err = r.scalar(v.Data, spec.DType, 0)
		return err
	}
	if r.Peek() != '[' {
		return r.Expected(describe(spec))
	}
	t := tensor{r: r, spec: spec, data: v.Data}
	copy(t.dims[:], spec.Shape)
	err := t.read()
	v.Data = t.data
	if err != nil {
		return err
	}
	if !spec.Fixed() {
		v.Dims = append(v.Dims, t.dims[:rank]...)
	}
	return nil
}

// Column reads the values of one tensor for all queries of a request: an array whose leading dimension, if batched, is
// the query, and which otherwise (one query) has the dimensions dims itself. Every query has the same dims, none of
// them negative. The array is nested like that shape, or flat. Column overwrites Data and leaves Dims to the caller.
func (r *Reader) Column(queries [][]api.Value, input int, spec *api.TensorSpec, dims []int64, batched bool) error {
	if len(dims) > api.MaxRank || api.Elements(dims) < 0 {
		return r.Errorf("the shape %s is too large", api.ShapeString(dims))
	}
	r.columnSpec = api.TensorSpec{DType: spec.DType, Shape: dims}
	if !batched && len(dims) == 0 {
		return r.single(&queries[0][input], spec.DType)
	}
	if r.Peek() != '[' {
		return r.Expected("an array")
	}
	if !batched {
		v := &queries[0][input]
		t := tensor{r: r, spec: &r.columnSpec, data: v.Data[:0]}
		copy(t.dims[:], dims)
		err := t.read()
		v.Data = t.data
		return err
	}
	if len(dims) > 0 && r.nested() {
		return r.rows(queries, input, &r.columnSpec)
	}
	return r.flat(queries, input, &r.columnSpec)
}

// single reads a scalar, optionally in an array of its own.
func (r *Reader) single(v *api.Value, dtype api.DType) error {
	v.Data = v.Data[:0]
	bracket := r.Peek() == '['
	if bracket {
		r.pos++
	}
	var err error
	if v.Data, err = r.scalar(v.Data, dtype, 0); err != nil || !bracket {
		return err
	}
	if r.Peek() != ']' {
		return r.Expected("']' after one element")
	}
	r.pos++
	return nil
}

// nested reports whether the next array begins with an array, empty whether it is empty.
func (r *Reader) nested() bool { return r.inside() == '[' }

func (r *Reader) empty() bool { return r.inside() == ']' }

// inside returns the first byte inside the next array.
func (r *Reader) inside() byte {
	at := r.pos
	r.pos++
	c := r.Peek()
	r.pos = at
	return c
}

func (r *Reader) rows(queries [][]api.Value, input int, columnSpec *api.TensorSpec) error {
	r.pos++
	for q := range queries {
		ok, err := r.Element(q == 0)
		if err != nil {
			return err
		}
		if !ok {
			r.pos--
			return r.Errorf("expected %d rows, found %d", len(queries), q)
		}
		r.PushIndex(q)
		if r.Peek() != '[' {
			return r.Expected("an array")
		}
		v := &queries[q][input]
		t := tensor{r: r, spec: columnSpec, data: v.Data[:0], strict: true}
		copy(t.dims[:], columnSpec.Shape)
		err = t.read()
		v.Data = t.data
		if err != nil {
			return err
		}
		r.Pop()
	}
	return r.close("expected %d rows, found more", len(queries))
}

// close reads the bracket that closes an array of as many elements as expected. format and n make the error about a further one.
func (r *Reader) close(format string, n int) error {
	c := r.Peek()
	if c == ',' {
		at := r.pos
		r.pos++
		if r.Peek() == ']' {
			return r.Expected(valueAfterComma)
		}
		r.pos = at
	}
	if c != ']' {
		return r.Errorf(format, n)
	}
	r.pos++
	return nil
}

func (r *Reader) flat(queries [][]api.Value, input int, columnSpec *api.TensorSpec) error {
	r.pos++
	items := int(api.Elements(columnSpec.Shape))
	total := items * len(queries)
	found := 0
	if items > 0 && r.Peek() == ']' {
		return r.Errorf("expected %d elements, found none", total)
	}
	for q := range queries {
		v := &queries[q][input]
		v.Data = v.Data[:0]
		if items == 0 {
			continue
		}
		if q > 0 {
			if r.Peek() != ',' {
				break
			}
			r.pos++
		}
		lengthPrefixed := columnSpec.DType.Variable() && len(columnSpec.Shape) > 0
		var n int
		var err error
		v.Data, n, err = r.run(v.Data, columnSpec.DType, lengthPrefixed, items, found)
		if err != nil {
			return err
		}
		if found += n; n < items {
			break
		}
	}
	if found < total {
		return r.Errorf("expected %d elements, found %d", total, found)
	}
	return r.close("expected %d elements, found more", total)
}

// tensor is an array while it is being read into a value.
type tensor struct {
	r    *Reader
	spec *api.TensorSpec
	data []byte
	// dims starts as the declared shape. The first array at a level sets a dimension of -1.
	dims [api.MaxRank]int64
	// strict permits only nested arrays, because the level above was nested.
	strict bool
}

func (t *tensor) rank() int { return len(t.spec.Shape) }

// lengthPrefixed reports whether elements are preceded by their lengths.
func (t *tensor) lengthPrefixed() bool { return t.spec.DType.Variable() }

func (t *tensor) read() error {
	if size := t.spec.ItemBytes(); size > 0 {
		// An element takes at least two bytes of text, so a short body cannot cause a large allocation.
		t.data = slices.Grow(t.data, min(size, (len(t.r.body)-t.r.pos)/2*t.spec.DType.Size()))
	}
	if t.rank() > 1 && (t.strict || t.r.nested()) {
		return t.nestedArrays()
	}
	return t.flat()
}

func (t *tensor) nestedArrays() error {
	if err := t.level(0); err != nil {
		return err
	}
	for i, d := range t.dims[:t.rank()] {
		if d < 0 {
			t.dims[i] = 0 // below an empty array
		}
	}
	return t.checkSize()
}

// checkSize checks the limits that the rest of the project relies on.
func (t *tensor) checkSize() error {
	if api.Elements(t.dims[:t.rank()]) < 0 || len(t.data) > api.MaxItemBytes {
		return t.r.Errorf("the tensor is too large: expected at most %d bytes", api.MaxItemBytes)
	}
	return nil
}

// level reads the next array, of dimension k.
func (t *tensor) level(k int) error {
	r := t.r
	if r.Peek() != '[' {
		return r.Expected("an array")
	}
	r.pos++
	want := t.dims[k]
	var n int64
	if k == t.rank()-1 {
		if r.Peek() != ']' {
			limit := math.MaxInt
			if want >= 0 {
				limit = int(want)
			}
			if limit == 0 {
				return r.Errorf("expected an empty array, found %s", r.found())
			}
			var m int
			var err error
			if t.data, m, err = r.run(t.data, t.spec.DType, t.lengthPrefixed(), limit, 0); err != nil {
				return err
			}
			n = int64(m)
			if r.Peek() == ',' {
				return t.tooMany(n)
			}
		}
		r.pos++
	} else {
		for {
			ok, err := r.Element(n == 0)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if want >= 0 && n == want {
				return r.Errorf("expected %d rows for %s, found more", want, t.spec.String())
			}
			r.PushIndex(int(n))
			if err := t.level(k + 1); err != nil {
				return err
			}
			r.Pop()
			n++
		}
	}
	if want < 0 {
		t.dims[k] = n
		return nil
	}
	if n != want {
		r.pos--
		return r.Errorf("expected %d elements, found %d (%s)", want, n, t.spec.String())
	}
	return nil
}

// flat reads a flat array and infers at most one missing dimension.
func (t *tensor) flat() error {
	r := t.r
	rest, unknown := int64(1), -1
	for i, d := range t.spec.Shape {
		switch {
		case d >= 0:
			if d > 0 && rest > api.MaxItemBytes/d {
				return r.Errorf("%s is too large", t.spec.String())
			}
			rest *= d
		case unknown >= 0 && r.empty():
			return t.nestedArrays() // no rows
		case unknown >= 0:
			return r.Errorf("expected arrays nested as %s: a flat array leaves more than one dimension open", t.spec.String())
		default:
			unknown = i
		}
	}
	limit := int(rest)
	if unknown >= 0 {
		limit = math.MaxInt
	}
	r.pos++
	n := 0
	if r.Peek() != ']' {
		if limit == 0 {
			return r.Errorf("expected an empty array for %s, found %s", t.spec.String(), r.found())
		}
		var err error
		if t.data, n, err = r.run(t.data, t.spec.DType, t.lengthPrefixed(), limit, 0); err != nil {
			return err
		}
		if r.Peek() == ',' {
			return t.tooMany(int64(n))
		}
	}
	r.pos++
	switch {
	case unknown < 0:
		if int64(n) != rest {
			r.pos--
			return r.Errorf("expected %d %s for %s, found %d", rest, pluralOf(t.spec.DType), t.spec.String(), n)
		}
	case rest == 0:
		if n != 0 {
			return r.Errorf("expected an empty array for %s, found %d elements", t.spec.String(), n)
		}
		t.dims[unknown] = 0
	default:
		if int64(n)%rest != 0 {
			return r.Errorf("expected a multiple of %d %s for %s, found %d", rest, pluralOf(t.spec.DType), t.spec.String(), n)
		}
		t.dims[unknown] = int64(n) / rest
	}
	return t.checkSize()
}

// tooMany returns the error for an array with more than n elements. It counts the others for the message.
func (t *tensor) tooMany(n int64) error {
	ahead := *t.r
	count := n
	for {
		ok, err := ahead.Element(false)
		if err == nil && ok {
			err = ahead.Skip()
		}
		if err != nil && ahead.Peek() == ']' {
			return err // of the comma before it
		}
		if err != nil {
			return t.r.Errorf("expected %d %s for %s, found more", n, pluralOf(t.spec.DType), t.spec.String())
		}
		if !ok {
			return t.r.Errorf("expected %d %s for %s, found %d", n, pluralOf(t.spec.DType), t.spec.String(), count)
		}
		count++
	}
}

// describe returns a message's description of a spec.
func describe(spec *api.TensorSpec) string {
	if len(spec.Shape) == 0 {
		return oneOf(spec.DType)
	}
	return "an array of " + pluralOf(spec.DType) + " for " + spec.String()
}

func pluralOf(d api.DType) string {
	switch d {
	case api.Bool:
		return "booleans"
	case api.Bytes, api.String:
		return "strings"
	}
	return "numbers"
}

func oneOf(d api.DType) string {
	switch d {
	case api.Bool:
		return "true or false"
	case api.String:
		return "a string"
	case api.Bytes:
		return "a string or {\"b64\": …}"
	}
	return "a number"
}
