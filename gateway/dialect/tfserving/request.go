package tfserving

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Signature is the name of the only signature that a model has here.
const Signature = "serving_default"

// Request is the body of a predict, classify or regress request. One Request is reused for many bodies by one goroutine at a time.
type Request struct {
	// Rows: the request has instances, and its answer predictions.
	Rows bool
	// Batched is false if the columns have no batch dimension: the request is one query, whose outputs have none either.
	Batched bool
	// Options are the members of "parameters".
	Options dialect.Options

	r        tensorjson.Reader
	specs    []api.TensorSpec
	sink     tensorjson.Sink
	rows     [][]api.Value
	has      members
	decided  bool              // an input has decided Batched and the number of queries
	given    []tensorjson.Seen // which features each example has
	contexts []int             // where the features are that all examples share
}

// members is a set of members of the request's object.
type members uint8

const (
	hasSignature members = 1 << iota
	hasInstances
	hasInputs
	hasParameters
	hasExamples
	hasContext
)

// Parse reads the body of a predict request for a model or, if function, a function with these inputs. Each query is written to storage from sink. After
// an error, which is an *api.Error, the result is not valid, and the caller reclaims what the sink has returned.
func (q *Request) Parse(body []byte, function bool, inputs []api.TensorSpec, sink tensorjson.Sink) error {
	q.begin(body, function, inputs, sink)
	r := &q.r
	if err := r.Members(func(name []byte) (err error) {
		switch string(name) {
		case "instances":
			if err = q.once(hasInstances, "instances"); err == nil {
				err = q.instances()
			}
		case "inputs":
			if err = q.once(hasInputs, "inputs"); err == nil {
				err = q.inputs()
			}
		default:
			err = q.common(name)
		}
		return err
	}); err != nil {
		return err
	}
	switch {
	case q.has&(hasInstances|hasInputs) == 0:
		return r.Errorf(`expected a member "instances" (rows) or "inputs" (columns)`)
	case len(q.rows) == 0:
		return r.Errorf("expected one query or more, found none")
	}
	q.Rows = q.has&hasInstances != 0
	return r.End()
}

func (q *Request) begin(body []byte, function bool, inputs []api.TensorSpec, sink tensorjson.Sink) {
	q.r.NonFinite, q.r.EncodedText = true, true
	q.r.Reset(body)
	q.Options.Begin(function)
	q.Rows, q.Batched, q.decided, q.has = false, true, false, 0
	q.specs, q.sink, q.rows, q.given, q.contexts = inputs, sink, q.rows[:0], q.given[:0], q.contexts[:0]
}

func (q *Request) once(bit members, name string) error {
	if q.has&bit != 0 {
		return q.r.Errorf("the member %q is there twice", name)
	}
	if q.has |= bit; q.has&hasInstances != 0 && q.has&hasInputs != 0 {
		return q.r.Errorf(`expected one of "instances" (rows) and "inputs" (columns), found both`)
	}
	return nil
}

// common reads a member that all requests may have. Unknown ones are skipped.
func (q *Request) common(name []byte) error {
	r := &q.r
	switch string(name) {
	case "signature_name":
		if err := q.once(hasSignature, "signature_name"); err != nil || r.Null() {
			return err
		}
		r.Push("signature_name")
		v, err := r.String()
		if err != nil {
			return err
		}
		if len(v) > 0 && string(v) != Signature {
			return r.Errorf("Serving signature name: %.60q not found in signature def: expected %q, or none", v, Signature)
		}
		r.Pop()
		return nil
	case "parameters":
		if err := q.once(hasParameters, "parameters"); err != nil {
			return err
		}
		r.Push("parameters")
		if !r.Null() {
			if err := r.Members(q.parameter); err != nil {
				return err
			}
		}
		r.Pop()
		return nil
	}
	return r.Skip()
}

// parameter is an option of the call, or is for the model.
func (q *Request) parameter(name []byte) error {
	r := &q.r
	taken, err := q.Options.Member(name, r)
	if taken || err != nil {
		return err
	}
	r.Peek()
	begin := r.Pos()
	if err := r.Skip(); err != nil {
		return err
	}
	q.Options.Pass(name, r.Text(begin))
	return nil
}

// next takes storage for one more query.
func (q *Request) next() ([]api.Value, error) {
	row, err := q.sink.Next()
	if err == nil && len(row) != len(q.specs) {
		err = api.Errorf(api.Internal, "storage for %d inputs: expected %d", len(row), len(q.specs))
	}
	if err == nil {
		q.rows = append(q.rows, row)
	}
	return row, err
}

// instances reads rows: the value of the only input, or an object of all inputs.
func (q *Request) instances() error {
	r := &q.r
	r.Push("instances")
	if err := r.Elements(func(int) error {
		row, err := q.next()
		if err != nil {
			return err
		}
		if len(q.specs) == 1 && !q.named() {
			return r.Value(&row[0], &q.specs[0])
		}
		return r.Inputs(row, q.specs)
	}); err != nil {
		return err
	}
	r.Pop()
	return nil
}

// named reports whether an object of inputs is next, not {"b64": "…"}.
func (q *Request) named() bool {
	r := &q.r
	if r.Peek() != '{' {
		return false
	}
	if !q.specs[0].DType.Variable() {
		return true
	}
	at := r.Pos()
	defer r.Seek(at)
	if r.Object() != nil {
		return false
	}
	name, ok, err := r.Member(true)
	return err == nil && ok && (string(name) != "b64" || q.specs[0].Name == "b64")
}

// inputs reads columns: the tensor of the only input, or an object of all inputs.
func (q *Request) inputs() error {
	r := &q.r
	r.Push("inputs")
	if len(q.specs) == 1 && !q.named() {
		if err := q.column(0); err != nil {
			return err
		}
		r.Pop()
		return nil
	}
	if r.Peek() != '{' {
		return r.Expected("an object of the inputs " + tensorjson.Names(q.specs))
	}
	var seen tensorjson.Seen
	at := 0
	if err := r.Members(func(name []byte) error {
		i := tensorjson.Find(q.specs, name, at)
		if i < 0 {
			return r.Errorf("unknown input %.60q: expected %s", name, tensorjson.Names(q.specs))
		}
		if seen.Has(i) {
			return r.Errorf("duplicate input %q", q.specs[i].Name)
		}
		seen.Add(i)
		at = i + 1
		r.Push(q.specs[i].Name)
		if err := q.column(i); err != nil {
			return err
		}
		r.Pop()
		return nil
	}); err != nil {
		return err
	}
	for i := range q.specs {
		if !seen.Has(i) {
			return r.Errorf("the input %q (%s) is missing", q.specs[i].Name, q.specs[i].String())
		}
	}
	r.Pop()
	return nil
}

// column reads one input of all queries. An array that is as deep as the input's shape, and no deeper, is one query without a batch dimension.
func (q *Request) column(input int) error {
	r, spec := &q.r, &q.specs[input]
	batched := r.Depth(len(spec.Shape)+1) > len(spec.Shape)
	if q.decided && batched != q.Batched {
		return r.Errorf("some inputs have a batch dimension, and others have none")
	}
	if !batched {
		q.Batched = false
		if !q.decided {
			q.decided = true
			if _, err := q.next(); err != nil {
				return err
			}
		}
		return r.Value(&q.rows[0][input], spec)
	}
	n := 0
	if err := r.Elements(func(i int) error {
		n++
		if !q.decided {
			if _, err := q.next(); err != nil {
				return err
			}
		}
		if i >= len(q.rows) {
			return r.Errorf("expected %d queries, as in the input before", len(q.rows))
		}
		return r.Value(&q.rows[i][input], spec)
	}); err != nil {
		return err
	}
	if q.decided = true; n < len(q.rows) {
		return r.Errorf("%d queries: expected %d, as in the input before", n, len(q.rows))
	}
	return nil
}
