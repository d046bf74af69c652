package tensorjson

import (
	"bytes"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// MaxInputs is the most inputs that a signature may declare; the worker protocol has the same limit.
const MaxInputs = api.MaxTensors

// Seen is a set of indexes into the inputs or outputs of a signature, for duplicates and what is missing.
type Seen [MaxInputs/64 + 1]uint64

// Has reports whether i is in the set.
func (s *Seen) Has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// Add puts i into the set.
func (s *Seen) Add(i int) { s[i/64] |= 1 << (i % 64) }

// MaxModels bounds the member "models": more than any function has candidates.
const MaxModels = 64

// Sink provides storage for the inputs of queries.
type Sink interface {
	// Next returns the inputs of one more query: one value for each input that the signature declares. Their Data and
	// Dims are overwritten (appended to [:0]), so that storage is reused. An error ends the parse and is returned
	// unchanged: the caller bounds the number of queries here.
	Next() ([]api.Value, error)
}

// Members is a set of optional members of a request.
type Members uint8

// Optional members.
const (
	HasContext Members = 1 << iota
	HasVersion
	HasModels
	HasMinConfidence
	HasTTL
	HasSalt
	HasParameters
)

// Request is a native prediction request: {"input": X} or {"input_batch": [X, …]}, or, if all inputs are scalars, MLflow's
// {"dataframe_split": {"columns": […], "data": [[…], …]}} or {"dataframe_records": [{…}, …]}; and optional members. Slices alias
// the body or the request's own buffer. They are valid until the next Parse, and no longer than the body. A Request is
// reused for many bodies and is not safe for concurrent use.
type Request struct {
	// NonFinite permits NaN, Infinity and -Infinity as float elements. Parse does not change it.
	NonFinite bool

	// Batch means that the request was an input_batch and is answered as one, whatever the number of queries.
	Batch bool
	// Queries is the number of inputs requested from the sink, at least 1.
	Queries int
	// Has says which of the members below were present and not null.
	Has Members
	// Context is the string "context".
	Context []byte
	// Version is the string "version".
	Version []byte
	// Models are the strings of "models": the candidates to ask, as name or name@version.
	Models [][]byte
	// MinConfidence is "min_confidence", from 0 to 1.
	MinConfidence float64
	// TTLMillis is "ttl_ms", not negative and finite.
	TTLMillis float64
	// Salt is "salt": a string's bytes, or an integer's decimal digits, so that 7 and "7" are the same salt.
	Salt []byte
	// Parameters is the object "parameters", as it was sent.
	Parameters []byte

	r    Reader
	form string // the member that holds the inputs
	cols columns
}

// Parse parses a body whose inputs are declared by specs and writes them to storage from sink. A single input is X
// itself; several are an object from name to value, with all of them, or an array in their order if all are scalars. After an error, which is an *api.Error with code
// InvalidArgument or the sink's, the result is not valid, and the caller reclaims what the sink has returned.
func (q *Request) Parse(body []byte, inputs []api.TensorSpec, sink Sink) error {
	r := &q.r
	q.Clear()
	r.Reset(body)
	if len(inputs) > MaxInputs {
		return api.Errorf(api.Internal, "the signature declares %d inputs: expected at most %d", len(inputs), MaxInputs)
	}
	if err := r.Members(func(name []byte) error { return q.member(name, inputs, sink) }); err != nil {
		if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] == '[' {
			return r.Errorf("expected an object with a member %s, found an array", inputMembers(inputs))
		}
		return err
	}
	if q.Queries == 0 {
		return r.Errorf("expected a member %s", inputMembers(inputs))
	}
	return r.End()
}

// Clear makes the request one without inputs and options. It is for callers whose body is not JSON: they read the inputs, and
// options by Option.
func (q *Request) Clear() {
	q.r.NonFinite = q.NonFinite
	q.r.Reset(nil)
	q.Batch, q.Queries, q.Has, q.form = false, 0, 0, ""
	q.Context, q.Version, q.Models, q.Salt, q.Parameters = nil, nil, q.Models[:0], nil, nil
	q.MinConfidence, q.TTLMillis = 0, 0
}

// Option reads one optional member whose value is a text of its own: "context", "version" and "salt" are the text, the others
// are JSON. It reports false if there is no such option. The text must not change while the request is used.
func (q *Request) Option(name, text []byte) (known bool, err error) {
	r := &q.r
	r.body, r.pos, r.depth = text, 0, 0 // the buffer still holds the strings of earlier options
	switch string(name) {
	case "context":
		q.Context, err = text, q.once("context", HasContext)
	case "version":
		q.Version, err = text, q.once("version", HasVersion)
	case "salt":
		q.Salt, err = text, q.once("salt", HasSalt)
	case "models", "min_confidence", "ttl_ms", "parameters":
		if err = q.member(name, nil, nil); err == nil {
			err = r.End()
		}
	default:
		return false, nil
	}
	return true, err
}

// once notes that an option is there.
func (q *Request) once(name string, bit Members) error {
	present, err := q.beginMember(name, bit)
	if err == nil && !present { // the text is "null"
		q.Has |= bit
	}
	return err
}

func (q *Request) member(name []byte, inputs []api.TensorSpec, sink Sink) (err error) {
	r := &q.r
	switch string(name) {
	case "input":
		if err = q.onlyInput("input"); err != nil {
			return err
		}
		r.Push("input")
		if err = q.input(inputs, sink); err == nil {
			r.Pop()
		}
	case "input_batch":
		if err = q.onlyInput("input_batch"); err != nil {
			return err
		}
		r.Push("input_batch")
		if err = q.batch(inputs, sink); err == nil {
			r.Pop()
		}
	case "dataframe_split":
		err = q.frame("dataframe_split", inputs, sink)
	case "dataframe_records":
		err = q.frame("dataframe_records", inputs, sink)
	case "context":
		q.Context, err = q.text("context", HasContext)
	case "version":
		q.Version, err = q.text("version", HasVersion)
	case "models":
		err = q.models()
	case "min_confidence":
		q.MinConfidence, err = q.number("min_confidence", HasMinConfidence, 1)
	case "ttl_ms":
		q.TTLMillis, err = q.number("ttl_ms", HasTTL, math.MaxFloat64)
	case "salt":
		err = q.salt()
	case "parameters":
		err = q.parameters()
	default:
		switch {
		case meansInput(name) && len(inputs) > 1 && tabular(inputs):
			return r.Errorf("there is no member %q: expected \"input\" for one row, \"input_batch\" or \"dataframe_records\" for several, or \"dataframe_split\"", clip(name))
		case meansInput(name):
			return r.Errorf("there is no member %q: expected \"input\" for one query or \"input_batch\" for several", clip(name))
		}
		return r.Skip() // clients may send what a later version knows
	}
	return err
}

// inputWords are what callers write who mean "input" or "input_batch": the names of other protocols, and slips of the pen. None of them can become
// a member.
var inputWords = [...]string{"input", "inputs", "instance", "instances", "data", "input_batch", "input_batches", "inputs_batch", "inputBatch"}

// meansInput reports whether an unknown member was surely meant to hold inputs. To skip it would answer another question than the caller asked.
func meansInput(name []byte) bool {
	for _, word := range inputWords {
		if bytes.EqualFold(name, []byte(word)) {
			return true
		}
	}
	return false
}

// inputMembers are the members that may hold the inputs, for a message.
func inputMembers(inputs []api.TensorSpec) string {
	if len(inputs) > 1 && tabular(inputs) {
		return `"input", "input_batch", "dataframe_records" or "dataframe_split"`
	}
	return `"input" or "input_batch"`
}

// onlyInput rejects a second member that holds inputs.
func (q *Request) onlyInput(name string) error {
	first := q.form
	switch {
	case first == "":
		q.form = name
		return nil
	case first == name:
		return q.r.Errorf("duplicate member %q", name)
	case first == "input_batch" && name == "input":
		first, name = name, first
	}
	return q.r.Errorf("expected one of %q and %q, found both", first, name)
}

func (q *Request) batch(inputs []api.TensorSpec, sink Sink) error {
	q.Batch = true
	if err := q.r.Elements(func(int) error { return q.input(inputs, sink) }); err != nil {
		return err
	}
	if q.Queries == 0 {
		return q.r.Errorf("expected at least one input, found an empty array")
	}
	return nil
}

// input reads one X.
func (q *Request) input(inputs []api.TensorSpec, sink Sink) error {
	values, err := q.next(inputs, sink)
	if err != nil {
		return err
	}
	if len(inputs) == 1 {
		return q.r.Value(&values[0], &inputs[0])
	}
	return q.r.query(values, inputs)
}

// record reads an object that maps the specs' names to one query's values: all of them, in any order, and no others. what is the word for the values
// in messages.
func (r *Reader) record(values []api.Value, specs []api.TensorSpec, what string) error {
	return r.part(values, specs, what, -1)
}

// Inputs reads an object of all inputs by name.
func (r *Reader) Inputs(values []api.Value, specs []api.TensorSpec) error {
	return r.record(values, specs, "input")
}

// part is record for an object that needs only the member of one spec; -1: of all.
func (r *Reader) part(values []api.Value, specs []api.TensorSpec, what string, only int) error {
	if r.Peek() != '{' {
		return r.Expected("an object of the " + what + "s " + Names(specs))
	}
	var seen Seen
	// Members are usually in the order of the signature: each search starts after the last match.
	at := 0
	err := r.Members(func(name []byte) error {
		i := Find(specs, name, at)
		if i < 0 {
			return r.Errorf("unknown %s %q: expected %s", what, clip(name), Names(specs))
		}
		if seen.Has(i) {
			return r.Errorf("duplicate %s %q", what, specs[i].Name)
		}
		seen.Add(i)
		r.Push(specs[i].Name)
		if err := r.Value(&values[i], &specs[i]); err != nil {
			return err
		}
		r.Pop()
		at = i + 1
		return nil
	})
	if err != nil {
		return err
	}
	for i := range specs {
		if !seen.Has(i) && (only < 0 || i == only) {
			return r.Errorf("the %s %q (%s) is missing", what, specs[i].Name, specs[i].String())
		}
	}
	return nil
}

// Find returns the index of the spec with that name, or -1. It searches cyclically from at, 0 to len(specs): tensors
// mostly come in the order of the signature.
func Find(specs []api.TensorSpec, name []byte, at int) int {
	for k := range specs {
		i := at + k
		if i >= len(specs) {
			i -= len(specs)
		}
		if specs[i].Name == string(name) {
			return i
		}
	}
	return -1
}

// Names lists the specs' names for a message.
func Names(specs []api.TensorSpec) string {
	var out []byte
	for i := range specs {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = AppendString(out, specs[i].Name)
	}
	return string(out)
}

// beginMember starts a member. null counts as absent, and a duplicate is an error.
func (q *Request) beginMember(name string, bit Members) (present bool, err error) {
	q.r.Push(name)
	if q.Has&bit != 0 {
		return false, q.r.Errorf("duplicate member")
	}
	if q.r.Null() {
		q.r.Pop()
		return false, nil
	}
	q.Has |= bit
	return true, nil
}

func (q *Request) text(name string, bit Members) ([]byte, error) {
	present, err := q.beginMember(name, bit)
	if err != nil || !present {
		return nil, err
	}
	s, err := q.r.String()
	if err != nil {
		return nil, err
	}
	q.r.Pop()
	return s, nil
}

func (q *Request) number(name string, bit Members, limit float64) (float64, error) {
	present, err := q.beginMember(name, bit)
	if err != nil || !present {
		return 0, err
	}
	f, err := q.r.Float64()
	if err != nil {
		return 0, err
	}
	if f < 0 || f > limit {
		if limit == math.MaxFloat64 {
			return 0, q.r.Errorf("expected a number of 0 or more, found %v", f)
		}
		return 0, q.r.Errorf("expected a number from 0 to %v, found %v", limit, f)
	}
	q.r.Pop()
	return f, nil
}

func (q *Request) models() error {
	r := &q.r
	present, err := q.beginMember("models", HasModels)
	if err != nil || !present {
		return err
	}
	err = r.Elements(func(i int) error {
		if i == MaxModels {
			return r.Errorf("too many models: expected at most %d", MaxModels)
		}
		s, err := r.String()
		q.Models = append(q.Models, s)
		return err
	})
	if err != nil {
		return err
	}
	if len(q.Models) == 0 {
		return r.Errorf("expected at least one model, found an empty array")
	}
	r.Pop()
	return nil
}

func (q *Request) salt() error {
	r := &q.r
	present, err := q.beginMember("salt", HasSalt)
	if err != nil || !present {
		return err
	}
	if q.Salt, err = r.StringOrInteger(); err != nil {
		return err
	}
	r.Pop()
	return nil
}

func (q *Request) parameters() error {
	r := &q.r
	present, err := q.beginMember("parameters", HasParameters)
	if err != nil || !present {
		return err
	}
	if q.Parameters, err = r.RawObject(); err != nil {
		return err
	}
	r.Pop()
	return nil
}

// RawObject reads an object of any members and returns its text, which aliases the body.
func (r *Reader) RawObject() ([]byte, error) {
	if r.Peek() != '{' {
		return nil, r.Expected("an object")
	}
	start := r.pos
	if err := r.Skip(); err != nil {
		return nil, err
	}
	return r.body[start:r.pos:r.pos], nil
}

// Text returns the bytes from start to the reader's position, which alias the body.
func (r *Reader) Text(start int) []byte { return r.body[start:r.pos:r.pos] }

// StringOrInteger reads a string's bytes or an integer's decimal digits, so that 7 and "7" give the same result.
func (r *Reader) StringOrInteger() ([]byte, error) {
	if r.Peek() == '"' {
		return r.String()
	}
	start := r.pos
	_, exp, next, flags := scan(r.body, start)
	if flags&malformed != 0 || exp != 0 || !isDigits(r.body[start:next]) {
		return nil, r.Expected("a string or an integer")
	}
	r.pos = next
	return r.body[start:next:next], nil
}

// isDigits reports whether a number's text consists of digits and a sign.
func isDigits(text []byte) bool {
	for _, c := range text {
		if c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
