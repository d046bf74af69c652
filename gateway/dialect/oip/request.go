package oip

import (
	"errors"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// WholeBody is the JSON length of a request without the header Inference-Header-Content-Length.
const WholeBody = -1

// Output is one output that a request asks for.
type Output struct {
	// Index is the output's place in the signature.
	Index int
	// Binary asks for raw data behind the JSON instead of a "data" member.
	Binary bool
	// Classes asks for the largest elements, as many of each query, instead of the tensor; 0: for the tensor.
	Classes int
}

// Request is one infer request. Slices alias the body or the request's own buffers and live until the next Parse, and no
// longer than the body. One Request is reused for many bodies by one goroutine at a time.
type Request struct {
	// ID is the request's "id", which the response repeats; nil if it is absent.
	ID []byte
	// Queries is n, the leading dimension of every input.
	Queries int
	// Batched is false if the inputs have the declared shapes, without a leading dimension: one query, whose outputs have
	// none either.
	Batched bool
	// Outputs are the outputs of the response, in order: the requested ones, or all of the signature.
	Outputs []Output
	// Function says that the request addresses a function, which has more options. It is set before Parse.
	Function bool
	// Options are those of the request's parameters. Its Parameters are the members that are neither the protocol's nor options.
	Options dialect.Options
	// Sequence is the parameter sequence_id, a string or an integer as it is written, which names the request's context; nil: there is none.
	Sequence []byte
	// TimeoutMicros is the request parameter "timeout", 0 if it is absent.
	TimeoutMicros int64

	r     tensorjson.Reader
	sig   *api.Signature
	sink  tensorjson.Sink
	limit int
	rows  [][]api.Value
	// tensors are the inputs in the order of the request, which is that of their binary data.
	tensors []tensor
	// first is the name of the input that decided Queries and Batched; empty before.
	first string
	seen  tensorjson.Seen
	// binaryLen is the length of the binary part, binaryLeft the part of it that no input has claimed.
	binaryLen, binaryLeft int
	hasHeader             bool
	members               member
	// binaryDefault is binary_data_output; binaryChosen has each output that has the
	// parameter binary_data, which overrides it.
	binaryDefault bool
	binaryChosen  tensorjson.Seen
	classifier    classify.Classifier // of the answer
	texts         []byte              // the classes of an output: each with its length before it
	values        []api.Value
}

// member is a set of members seen in an object, for duplicates.
type member uint8

const (
	hasID member = 1 << iota
	hasRequestParameters
	hasInputs
	hasOutputList
)

// Parse reads the body of an infer request for a model of that signature. jsonLen is the length of the JSON that the body
// begins with, from the header, or [WholeBody]. Inputs are written to storage from sink, once for each query; a request
// of more than maxQueries queries is refused before any is taken. After an error, which is an *api.Error, the result is
// not valid, and the caller reclaims what the sink has returned.
func (q *Request) Parse(body []byte, jsonLen int, sig *api.Signature, sink tensorjson.Sink, maxQueries int) error {
	q.begin(sig, sink, maxQueries)
	q.hasHeader = jsonLen != WholeBody
	if !q.hasHeader {
		jsonLen = len(body)
	}
	if jsonLen < 0 || jsonLen > len(body) {
		return api.Errorf(api.InvalidArgument, "Inference-Header-Content-Length is %d: expected 0 to %d, the length of the body", jsonLen, len(body))
	}
	if len(sig.Inputs) > tensorjson.MaxInputs || len(sig.Outputs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature has more than %d inputs or outputs", tensorjson.MaxInputs)
	}
	q.binaryLen = len(body) - jsonLen
	q.binaryLeft = q.binaryLen
	q.r.Reset(body[:jsonLen])
	if err := q.envelope(); err != nil {
		return err
	}
	if err := q.r.End(); err != nil {
		return err
	}
	if err := q.complete(); err != nil {
		return err
	}
	return q.binary(body[jsonLen:])
}

// begin forgets the request before.
func (q *Request) begin(sig *api.Signature, sink tensorjson.Sink, maxQueries int) {
	q.ID, q.Queries, q.Batched, q.Outputs, q.TimeoutMicros, q.Sequence = nil, 0, false, q.Outputs[:0], 0, nil
	q.Options.Begin(q.Function)
	q.sig, q.sink, q.limit = sig, sink, maxQueries
	q.rows, q.tensors, q.first, q.seen, q.members = q.rows[:0], q.tensors[:0], "", tensorjson.Seen{}, 0
	q.hasHeader, q.binaryDefault, q.binaryChosen = false, false, tensorjson.Seen{}
}

// envelope reads the request's object.
func (q *Request) envelope() error {
	r := &q.r
	return r.Members(func(name []byte) (err error) {
		switch string(name) {
		case "id":
			err = once(r, &q.members, hasID, "id")
			if err == nil && !r.Null() {
				r.Push("id")
				q.ID, err = r.String()
				r.Pop()
			}
		case "parameters":
			if err = once(r, &q.members, hasRequestParameters, "parameters"); err == nil {
				err = q.requestParameters()
			}
		case "inputs":
			if err = once(r, &q.members, hasInputs, "inputs"); err == nil {
				err = q.inputs()
			}
		case "outputs":
			if err = once(r, &q.members, hasOutputList, "outputs"); err == nil {
				err = q.outputs()
			}
		default:
			err = r.Skip()
		}
		return err
	})
}

// once refuses a member that the object already had.
func once(r *tensorjson.Reader, seen *member, bit member, name string) error {
	if *seen&bit != 0 {
		return r.Errorf("the member %q is there twice", name)
	}
	*seen |= bit
	return nil
}

func (q *Request) requestParameters() error {
	r := &q.r
	return parameters(r, func(name []byte) (err error) {
		switch string(name) {
		case "binary_data_output":
			r.Push("binary_data_output")
			q.binaryDefault, err = r.Bool()
			r.Pop()
			return err
		case "timeout":
			r.Push("timeout")
			if q.TimeoutMicros, err = r.Int64(); err == nil && q.TimeoutMicros < 0 {
				err = r.Errorf("expected microseconds, 0 or more, found %d", q.TimeoutMicros)
			}
			r.Pop()
			return err
		}
		if taken, err := q.Options.Member(name, r); taken {
			return err
		}
		r.Peek()
		start := r.Pos()
		switch string(name) {
		case "sequence_id":
			r.Push("sequence_id")
			if q.Sequence, err = r.StringOrInteger(); string(q.Sequence) == "0" {
				q.Sequence = nil // none, as in Triton's extension of the protocol
			}
			r.Pop()
		case "priority": // no model has priority levels: deadlines order the queries
			r.Push("priority")
			var n int64
			if n, err = r.Int64(); err == nil && n < 0 {
				err = r.Errorf("expected 0 or more, found %d", n)
			}
			r.Pop()
		default:
			err = r.Skip() // the protocol leaves the others to servers
		}
		if err == nil {
			q.Options.Pass(name, r.Text(start))
		}
		return err
	})
}

// parameters reads the member "parameters", which may be null, and calls parameter to read the value of each.
func parameters(r *tensorjson.Reader, parameter func(name []byte) error) error {
	r.Push("parameters")
	if !r.Null() {
		if err := r.Members(parameter); err != nil {
			return err
		}
	}
	r.Pop()
	return nil
}

func (q *Request) outputs() error {
	r := &q.r
	r.Push("outputs")
	if r.Null() {
		r.Pop()
		return nil
	}
	var seen tensorjson.Seen
	err := r.Elements(func(int) error {
		o, err := q.output()
		if err != nil {
			return err
		}
		if seen.Has(o.Index) {
			return r.Errorf("the output %q is there twice", q.sig.Outputs[o.Index].Name)
		}
		seen.Add(o.Index)
		q.Outputs = append(q.Outputs, o)
		return nil
	})
	if err != nil {
		return err
	}
	r.Pop()
	return nil
}

// output reads one object of "outputs".
func (q *Request) output() (Output, error) {
	r := &q.r
	o := Output{Index: -1}
	var seen member
	err := r.Members(func(name []byte) (err error) {
		switch string(name) {
		case "name":
			if err = once(r, &seen, hasName, "name"); err != nil {
				return err
			}
			r.Push("name")
			if name, err = r.String(); err != nil {
				return err
			}
			if o.Index = tensorjson.Find(q.sig.Outputs, name, len(q.Outputs)); o.Index < 0 {
				return r.Errorf("the model has no output %q: expected %s", printable(name), tensorjson.Names(q.sig.Outputs))
			}
			r.Pop()
		case "parameters":
			if err = once(r, &seen, hasParameters, "parameters"); err == nil {
				err = q.outputParameters(&o)
			}
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return o, err
	}
	if o.Index < 0 {
		return o, r.Errorf("the member \"name\" is missing")
	}
	if spec := &q.sig.Outputs[o.Index]; o.Classes > 0 && (!classify.Supports(spec.DType) || len(spec.Shape) == 0) {
		return o, r.Errorf("parameters.classification: the output %q is %s: only arrays of numbers have classes", spec.Name, spec.String())
	}
	return o, nil
}

// outputParameters reads the parameters of a requested output.
func (q *Request) outputParameters(o *Output) error {
	r := &q.r
	return parameters(r, func(name []byte) (err error) {
		switch string(name) {
		case "binary_data":
			r.Push("binary_data")
			o.Binary, err = r.Bool()
			q.binaryChosen.Add(len(q.Outputs)) // duplicates are refused, so that this is at most the number of outputs
			r.Pop()
		case "classification":
			r.Push("classification")
			var k int64
			if k, err = r.Int64(); err == nil && (k < 0 || k > classify.MaxClasses) {
				err = r.Errorf("expected 0 to %d classes, found %d", classify.MaxClasses, k)
			}
			o.Classes = int(k)
			r.Pop()
		case "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size":
			err = unsupported(r, "shared memory regions are not supported: take the data from the response")
		default:
			err = r.Skip()
		}
		return err
	})
}

// complete checks that no input is missing, and determines the outputs.
func (q *Request) complete() error {
	for i := range q.sig.Inputs {
		if spec := &q.sig.Inputs[i]; !q.seen.Has(i) {
			return q.r.Errorf("the input %q (%s %s) is missing", spec.Name, spec.DType.OIP(), batchShape(spec.Shape))
		}
	}
	if q.Queries == 0 {
		return q.r.Errorf("the model takes no inputs, so the protocol cannot say how many queries there are")
	}
	if len(q.Outputs) == 0 {
		for i := range q.sig.Outputs {
			q.Outputs = append(q.Outputs, Output{Index: i})
		}
	}
	for i := range q.Outputs {
		if !q.binaryChosen.Has(i) {
			q.Outputs[i].Binary = q.binaryDefault
		}
	}
	return nil
}

func unsupported(r *tensorjson.Reader, message string) error {
	err := r.Errorf("%s", message)
	var e *api.Error
	if errors.As(err, &e) {
		e.Code = api.Unsupported
	}
	return err
}
