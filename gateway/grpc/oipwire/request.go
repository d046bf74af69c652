package oipwire

import (
	"math"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
)

const (
	// maxRank is the largest rank of a tensor on the wire: the declared one and the batch dimension.
	maxRank = api.MaxRank + 1
	// MaxTensors bounds the inputs, and the outputs, of a request. No signature has more.
	MaxTensors = 256 //xebec:limit inputs, and requested outputs, of a gRPC inference request
	// maxParameters bounds the parameters of a request.
	maxParameters = 64 //xebec:limit parameters of a gRPC inference request
)

// Kind is the type of a parameter's value.
type Kind uint8

// The kinds.
const (
	KindNone Kind = iota // the parameter has no value
	KindBool
	KindInt
	KindUint
	KindFloat
	KindText
)

// Parameter is one parameter of a request.
type Parameter struct {
	Name []byte
	Kind Kind
	Bool bool
	Int  int64
	Uint uint64
	// Float is set for KindFloat only. Number converts.
	Float float64
	Text  []byte
}

// Number returns the value as a number; ok is false if it is none.
func (p *Parameter) Number() (f float64, ok bool) {
	switch p.Kind {
	case KindInt:
		return float64(p.Int), true
	case KindUint:
		return float64(p.Uint), true
	case KindFloat:
		return p.Float, true
	}
	return 0, false
}

// Request is one ModelInferRequest. Slices alias the message, and live as long as it does. One Request is reused for many messages by one goroutine at
// a time.
type Request struct {
	// What Scan has found. Empty: the field is not set.
	Model, Version, ID []byte
	Parameters         []Parameter

	// What Read has found. Queries is the leading dimension of every input. Batched is false if the inputs have the declared shapes, without one: then
	// there is one query, and the outputs have none either.
	Queries int
	Batched bool
	// Outputs are those of the response, by their places in the signature.
	Outputs []int
	// Classes has for each of Outputs how many of its classes are asked for instead of it; 0: the output itself.
	Classes []int

	// Borrow is offered a large raw input of the only query, and makes it the query's first value if it returns true. May be nil. Read calls it when
	// the query's storage has been taken from the sink.
	Borrow func(raw []byte) bool

	inputs  []tensor
	names   [][]byte // of the outputs that are asked for
	classes []int    // of each name
	raws    [][]byte // raw_input_contents
	typed   bool     // an input has contents
	sharing bool     // an output is to be in shared memory
	sig     *api.Signature
	rows    [][]api.Value
	sink    Sink
	limit   int
	first   string // the input that decided Queries and Batched
	seen    seen
}

// tensor is one input.
type tensor struct {
	name, datatype []byte
	shape          [maxRank]int64
	rank           int
	contents       []byte
	hasContents    bool
	sharedMemory   bool
	index          int // its place in the signature
}

// seen is a set of places in a signature.
type seen [MaxTensors / 64]uint64

func (s *seen) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *seen) add(i int)      { s[i/64] |= 1 << (i % 64) }

// Contents finds the large contents at the end of a message of size bytes that begins with head, so that the message need not lie in one piece: if its last
// field is raw contents that begin within head, message[:end] are all other fields, and message[data:] the contents.
func Contents(head []byte, size int) (end, data int, ok bool) {
	for m := head; len(m) > 0; {
		at := len(head) - len(m)
		if tag, rest, ok := varint(m); ok && tag == 7<<3|typeBytes {
			n, rest, ok := varint(rest)
			data := len(head) - len(rest)
			if ok && n == uint64(size-data) && data < size {
				return at, data, true
			}
		}
		if _, m, ok = next(m); !ok {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// AddContents adds the contents that Contents has found to a message whose other fields were scanned.
func (q *Request) AddContents(raw []byte) { q.raws = append(q.raws, raw) }

// OneInput reports whether the message is of one query to a model of these tensors, with one input of fixed-size elements: then Borrow may be offered
// its contents.
func (q *Request) OneInput(sig *api.Signature) bool {
	if len(q.inputs) != 1 || len(sig.Inputs) != 1 || sig.Inputs[0].DType.Variable() {
		return false
	}
	t, rank := &q.inputs[0], len(sig.Inputs[0].Shape)
	return t.rank == rank || t.rank == rank+1 && t.shape[0] == 1
}

// Scan takes a message apart. After an error only Model is of use, if it was found.
func (q *Request) Scan(message []byte) error {
	q.Model, q.Version, q.ID, q.Parameters = nil, nil, nil, q.Parameters[:0]
	q.inputs, q.names, q.classes, q.raws, q.typed, q.sharing = q.inputs[:0], q.names[:0], q.classes[:0], q.raws[:0], false, false
	q.rows = q.rows[:0]
	for m := message; len(m) > 0; {
		f, rest, ok := next(m)
		if !ok {
			return malformed("request")
		}
		m = rest
		if err := q.field(&f); err != nil {
			return err
		}
	}
	return nil
}

func (q *Request) field(f *field) (err error) {
	if f.number > 7 {
		return nil
	}
	if err = f.is(typeBytes, "request", requestFields[f.number]); err != nil {
		return err
	}
	switch f.number {
	case 1:
		q.Model, err = text(f.bytes, "model_name")
	case 2:
		q.Version, err = text(f.bytes, "model_version")
	case 3:
		q.ID, err = text(f.bytes, "id")
	case 4:
		if len(q.Parameters) == maxParameters {
			return api.Errorf(api.InvalidArgument, "parameters: expected at most %d", maxParameters)
		}
		var p Parameter
		if p, err = parameter(f.bytes, "parameters"); err == nil {
			q.Parameters = append(q.Parameters, p)
		}
	case 5:
		if len(q.inputs) == MaxTensors {
			return api.Errorf(api.InvalidArgument, "inputs: expected at most %d", MaxTensors)
		}
		q.inputs = append(q.inputs, tensor{})
		err = q.scanInput(&q.inputs[len(q.inputs)-1], f.bytes)
	case 6:
		if len(q.names) == MaxTensors {
			return api.Errorf(api.InvalidArgument, "outputs: expected at most %d", MaxTensors)
		}
		err = q.scanOutput(f.bytes)
	case 7:
		if len(q.raws) == MaxTensors {
			return api.Errorf(api.InvalidArgument, "raw_input_contents: expected at most %d", MaxTensors)
		}
		q.raws = append(q.raws, f.bytes)
	}
	return err
}

var requestFields = [...]string{1: "model_name", 2: "model_version", 3: "id", 4: "parameters", 5: "inputs", 6: "outputs", 7: "raw_input_contents"}

func text(v []byte, name string) ([]byte, error) {
	if !utf8.Valid(v) {
		return nil, api.Errorf(api.InvalidArgument, "%s: the text is not valid UTF-8", name)
	}
	return v, nil
}

// parameter reads an entry of a map from names to values.
func parameter(m []byte, where string) (p Parameter, err error) {
	for len(m) > 0 {
		f, rest, ok := next(m)
		if !ok {
			return p, malformed(where)
		}
		m = rest
		switch f.number {
		case 1:
			if err = f.is(typeBytes, where, "key"); err == nil {
				p.Name, err = text(f.bytes, where)
			}
		case 2:
			if err = f.is(typeBytes, where, "value"); err == nil {
				err = p.value(f.bytes, where)
			}
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// value reads an InferParameter. The last field that is set counts.
func (p *Parameter) value(m []byte, where string) error {
	for len(m) > 0 {
		f, rest, ok := next(m)
		if !ok {
			return malformed(where)
		}
		m = rest
		if f.number > 5 {
			continue
		}
		if err := f.is(parameterTypes[f.number], where, "value"); err != nil {
			return err
		}
		switch f.number {
		case 1:
			p.Kind, p.Bool = KindBool, f.varint != 0
		case 2:
			p.Kind, p.Int = KindInt, int64(f.varint)
		case 3:
			v, err := text(f.bytes, where)
			if err != nil {
				return err
			}
			p.Kind, p.Text = KindText, v
		case 4:
			p.Kind, p.Float = KindFloat, math.Float64frombits(f.varint)
		case 5:
			p.Kind, p.Uint = KindUint, f.varint
		}
	}
	return nil
}

var parameterTypes = [...]int{1: typeVarint, 2: typeVarint, 3: typeBytes, 4: typeFixed8, 5: typeVarint}

// scanInput reads one InferInputTensor.
func (q *Request) scanInput(t *tensor, m []byte) (err error) {
	const where = "inputs"
	for len(m) > 0 {
		f, rest, ok := next(m)
		if !ok {
			return malformed(where)
		}
		m = rest
		if f.number == 3 { // packed or not
			if err = t.addShape(&f); err != nil {
				return err
			}
			continue
		}
		if f.number > 5 {
			continue
		}
		if err = f.is(typeBytes, where, inputFields[f.number]); err != nil {
			return err
		}
		switch f.number {
		case 1:
			t.name, err = text(f.bytes, "inputs.name")
		case 2:
			t.datatype, err = text(f.bytes, "inputs.datatype")
		case 4:
			var p Parameter
			if p, err = parameter(f.bytes, "inputs.parameters"); err == nil && isSharedMemory(p.Name) {
				t.sharedMemory = true
			}
		case 5:
			if t.hasContents {
				return api.Errorf(api.InvalidArgument, "inputs.contents: the message is there twice")
			}
			t.contents, t.hasContents = f.bytes, true
			q.typed = q.typed || len(f.bytes) > 0
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var inputFields = [...]string{1: "name", 2: "datatype", 3: "shape", 4: "parameters", 5: "contents"}

func (t *tensor) addShape(f *field) error {
	switch f.wire {
	case typeVarint:
		return t.addDim(f.varint)
	case typeBytes:
		for m := f.bytes; len(m) > 0; {
			v, rest, ok := varint(m)
			if !ok {
				return malformed("inputs.shape")
			}
			m = rest
			if err := t.addDim(v); err != nil {
				return err
			}
		}
		return nil
	}
	return f.is(typeBytes, "inputs", "shape")
}

func (t *tensor) addDim(v uint64) error {
	if t.rank == maxRank {
		return api.Errorf(api.InvalidArgument, "inputs.shape: too many dimensions: expected at most %d", maxRank)
	}
	if d := int64(v); d < 0 || d > api.MaxItemBytes {
		return api.Errorf(api.InvalidArgument, "inputs.shape: expected a dimension from 0 to %d, found %d", api.MaxItemBytes, d)
	}
	t.shape[t.rank] = int64(v)
	t.rank++
	return nil
}

// scanOutput reads one InferRequestedOutputTensor.
func (q *Request) scanOutput(m []byte) error {
	const where = "outputs"
	var name []byte
	classes := 0
	for len(m) > 0 {
		f, rest, ok := next(m)
		if !ok {
			return malformed(where)
		}
		m = rest
		if f.number > 2 {
			continue
		}
		if err := f.is(typeBytes, where, "name or parameters"); err != nil {
			return err
		}
		var err error
		if f.number == 1 {
			if name, err = text(f.bytes, "outputs.name"); err != nil {
				return err
			}
			continue
		}
		p, err := parameter(f.bytes, "outputs.parameters")
		if err != nil {
			return err
		}
		if string(p.Name) == "classification" {
			n, ok := p.Number()
			if !ok || !(n >= 0 && n <= classify.MaxClasses) || n != math.Trunc(n) {
				return api.Errorf(api.InvalidArgument, "outputs.parameters.classification: expected 0 to %d classes", classify.MaxClasses)
			}
			classes = int(n)
		}
		q.sharing = q.sharing || isSharedMemory(p.Name)
	}
	q.names, q.classes = append(q.names, name), append(q.classes, classes)
	return nil
}

func isSharedMemory(name []byte) bool {
	switch string(name) {
	case "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size":
		return true
	}
	return false
}
