package tfserving

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// maxContext bounds the features that all examples of a request share.
const maxContext = 64 << 10 //xebec:limit bytes of `context` in a request to classify or regress

// ParseExamples reads the body of a classify or regress request: {"examples": [{feature: value or list, …}, …], "context": {…}}, where the context has
// features that all examples share. It is [Request.Parse] otherwise.
func (q *Request) ParseExamples(body []byte, function bool, inputs []api.TensorSpec, sink tensorjson.Sink) error {
	q.begin(body, function, inputs, sink)
	r := &q.r
	if err := r.Members(func(name []byte) (err error) {
		switch string(name) {
		case "examples":
			if err = q.once(hasExamples, "examples"); err == nil {
				err = q.examples()
			}
		case "context":
			if err = q.once(hasContext, "context"); err == nil {
				r.Peek()
				begin := r.Pos()
				q.contexts = append(q.contexts, begin)
				if err = r.Skip(); err == nil && r.Pos()-begin > maxContext { // it is read for each example
					r.Push("context")
					err = r.Errorf("%d bytes: expected at most %d", r.Pos()-begin, maxContext)
				}
			}
		default:
			err = q.common(name)
		}
		return err
	}); err != nil {
		return err
	}
	switch {
	case q.has&hasExamples == 0:
		return r.Errorf(`expected a member "examples"`)
	case len(q.rows) == 0:
		return r.Errorf("expected one example or more, found none")
	}
	if err := r.End(); err != nil {
		return err
	}
	for i := range q.rows {
		if len(q.contexts) > 0 {
			r.Seek(q.contexts[0])
			r.Push("context")
			if err := q.features(i); err != nil {
				return err
			}
			r.Pop()
		}
		for k := range q.specs {
			if !q.given[i].Has(k) {
				return r.Errorf("examples[%d]: the feature %q (%s) is missing", i, q.specs[k].Name, q.specs[k].String())
			}
		}
	}
	return nil
}

func (q *Request) examples() error {
	r := &q.r
	r.Push("examples")
	if err := r.Elements(func(i int) error {
		if _, err := q.next(); err != nil {
			return err
		}
		q.given = append(q.given, tensorjson.Seen{})
		return q.features(i)
	}); err != nil {
		return err
	}
	r.Pop()
	return nil
}

// features reads an object of features of example i. A feature is a list, and one value need not be in one.
func (q *Request) features(i int) error {
	r, at := &q.r, 0
	return r.Members(func(name []byte) error {
		k := tensorjson.Find(q.specs, name, at)
		if k < 0 {
			return r.Errorf("unknown feature %.60q: expected %s", name, tensorjson.Names(q.specs))
		}
		if q.given[i].Has(k) {
			return r.Errorf("the feature %q is there twice", q.specs[k].Name)
		}
		q.given[i].Add(k)
		at = k + 1
		r.Push(q.specs[k].Name)
		v, spec := &q.rows[i][k], &q.specs[k]
		var err error
		switch listed := r.Depth(1) == 1; {
		case len(spec.Shape) == 0 && listed:
			n := 0
			err = r.Elements(func(int) error {
				if n++; n > 1 {
					return r.Errorf("expected one value")
				}
				return r.Value(v, spec)
			})
			if err == nil && n == 0 {
				err = r.Errorf("expected one value, found none")
			}
		case len(spec.Shape) == 1 && !listed:
			err = q.alone(v, spec)
		default:
			err = r.Value(v, spec)
		}
		if err == nil {
			r.Pop()
		}
		return err
	})
}

// alone reads the only element of a vector.
func (q *Request) alone(v *api.Value, spec *api.TensorSpec) error {
	if spec.Shape[0] != 1 && spec.Shape[0] != -1 {
		return q.r.Errorf("expected a list of %d values", spec.Shape[0])
	}
	scalar := api.TensorSpec{Name: spec.Name, DType: spec.DType}
	var one api.Value
	if err := q.r.Value(&one, &scalar); err != nil {
		return err
	}
	v.Data, v.Dims = v.Data[:0], v.Dims[:0]
	if spec.DType.Variable() {
		n := len(one.Data)
		v.Data = append(v.Data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	v.Data = append(v.Data, one.Data...)
	if !spec.Fixed() {
		v.Dims = append(v.Dims, 1)
	}
	return nil
}
