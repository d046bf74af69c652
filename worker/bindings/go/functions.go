//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// CallError says why a call of another function has failed. errors.Is finds the cause of a context that ended the call.
//
// A predict that returns one fails its batch, as with any error. If the batch has a single query, and the callee has refused its input
// (api.InvalidInput), the query's caller gets status 400 and the text.
type CallError struct {
	Callee  string
	Code    api.Code // for example api.DeadlineExceeded, api.Overloaded, api.InvalidInput, api.NotFound, api.Forbidden, api.Cycle
	Message string   // what the gateway says; in the words of the callee if Code is api.InvalidInput

	cause error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("call of %q: %s (%v)", e.Callee, e.Message, e.Code)
}

func (e *CallError) Unwrap() error { return e.cause }

// refuses returns the text for the caller of a query, if err says that a callee has refused what the query led to.
func refuses(err error) (text string, ok bool) {
	e, ok := errors.AsType[*CallError](err)
	if !ok || e.Code != api.InvalidInput {
		return "", false
	}
	return e.Error(), true
}

// CallOption changes one call: see [Batch.CallFunction].
type CallOption func(*callOptions)

type callOptions struct {
	query      int
	within     time.Duration // 0: not given
	context    string
	parameters []byte
}

// allQueries is what a call belongs to without ForQuery.
const allQueries = -1

// ForQuery says that a call belongs to query i of the batch alone, not to all of them.
func ForQuery(i int) CallOption {
	return func(o *callOptions) { o.query = i }
}

// CallWithin ends a call after d, if the deadline of what it belongs to is later. The gateway then answers with the function's default output, if it
// has one, or with api.DeadlineExceeded. A deadline of the call's context does the same, but may cut off the default output.
func CallWithin(d time.Duration) CallOption {
	return func(o *callOptions) { o.within = max(d, time.Microsecond) }
}

// CallContext passes on this context in place of the query's.
func CallContext(context string) CallOption {
	return func(o *callOptions) { o.context = context }
}

// CallParameters passes on parameters, a JSON object.
func CallParameters(object []byte) CallOption {
	return func(o *callOptions) { o.parameters = object }
}

// CallFunction calls another function of the gateway, or a model if there is no function of that name, with one or more inputs, which are one request,
// and returns an output for each. Serve must be given [WithFunctionCalls], and the model's manifest must name the callee in calls.
//
// inputs has the values of the callee's only input, or is a map[string]any with those of each. Values are
//
//   - numbers, for an input of fixed shape: a slice of the type that [Input] would have, of shape (n, *shape), row-major
//   - text, for bytes[] and string[]: a []byte or string, which is one, or a [][]byte or []string
//   - any input: a []api.Value with the data and dimensions of each
//
// The call belongs to the batch, or to the query that [ForQuery] names: it has that query's request id, trace and context, and ends at its deadline.
// For a batch of several queries these are the first one's, the context that all have, and the last deadline. The end of ctx cancels it.
//
// The error is always a *CallError. If one input has no output, the call fails. At most 48 calls of a worker are under way; others wait.
// CallFunction may be called in predict only, or in start and step of [ServeSteps], there by several goroutines at once, which end before it returns.
func (b *Batch) CallFunction(ctx context.Context, callee string, inputs any, options ...CallOption) (*Results, error) {
	fail := func(code api.Code, format string, args ...any) (*Results, error) {
		err := fmt.Errorf(format, args...)
		return nil, &CallError{Callee: callee, Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
	}
	switch {
	case !b.predicting:
		return fail(api.Forbidden, "functions can be called in predict only")
	case b.w.openLines == nil:
		return fail(api.Forbidden, "this model calls nothing: pass WithFunctionCalls() to Serve")
	case b.w.calling == nil:
		return fail(api.Forbidden, "this model calls nothing: add calls: [%s] to its manifest, and let the gateway start it", callee)
	}
	results, err := b.callFunction(ctx, callee, inputs, options)
	if err == nil {
		return results, nil
	}
	if e, ok := errors.AsType[*CallError](err); ok {
		return nil, e
	}
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return fail(api.Unavailable, "%w", err)
	case errors.Is(cause, context.DeadlineExceeded):
		return fail(api.DeadlineExceeded, "%w", cause)
	default:
		return fail(api.Cancelled, "%w", cause)
	}
}

// callFunction makes the call, and once again if the callee has another signature now.
func (b *Batch) callFunction(ctx context.Context, name string, inputs any, options []CallOption) (*Results, error) {
	l := b.w.calling
	for again := true; ; again = false {
		known, err := l.find(ctx, name)
		if err != nil {
			return nil, err
		}
		block, n, err := known.layOut(inputs)
		if err != nil {
			return nil, &CallError{Callee: name, Code: api.InvalidArgument, Message: err.Error()}
		}
		r, err := b.request(ctx, known, block, n, options)
		if err != nil {
			return nil, &CallError{Callee: name, Code: api.InvalidArgument, Message: err.Error()}
		}
		status, body, err := l.do(r)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusConflict && again:
			l.forget(known)
			continue
		case status != http.StatusOK:
			return nil, callError(name, status, body)
		}
		results := &Results{callee: known}
		if err := known.outputs.Open(&results.reader, body, n); err != nil {
			return nil, &CallError{Callee: name, Code: api.Internal, Message: err.Error()}
		}
		return results, nil
	}
}

// request is the request of a call.
func (b *Batch) request(ctx context.Context, c *callee, block []byte, n int, options []CallOption) (*http.Request, error) {
	o := callOptions{query: allQueries}
	for _, option := range options {
		option(&o)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", callURL(c.name), bytes.NewReader(block))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Xebec-Signature", c.digest)
	r.Header.Set("Xebec-Queries", strconv.Itoa(n))
	switch {
	case o.query >= b.n || o.query < allQueries:
		return nil, fmt.Errorf("no query %d: the batch has %d", o.query, b.n)
	case o.query == allQueries && b.n > 1:
		r.Header.Set("Xebec-For", strconv.FormatUint(b.id, 10))
	default:
		r.Header.Set("Xebec-For", fmt.Sprintf("%d.%d", b.id, max(o.query, 0)))
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := max(time.Until(deadline), time.Microsecond); o.within == 0 || left < o.within {
			o.within = left
		}
	}
	if o.within > 0 {
		r.Header.Set("Xebec-Slo-Ms", strconv.FormatFloat(float64(o.within)/1e6, 'f', 3, 64))
	}
	if o.context != "" {
		if strings.ContainsAny(o.context, "\r\n\x00") {
			return nil, errors.New("a context has no line breaks")
		}
		r.Header.Set("Xebec-Context", o.context)
	}
	if o.parameters != nil {
		var line bytes.Buffer // without line breaks
		if err := json.Compact(&line, o.parameters); err != nil {
			return nil, fmt.Errorf("the parameters: %w", err)
		}
		r.Header.Set("Xebec-Parameters", line.String())
	}
	return r, nil
}

func callURL(name string) string { return "http://gateway/call/" + url.PathEscape(name) }

// do sends a request and reads the whole answer.
func (l *lines) do(r *http.Request) (status int, body []byte, err error) {
	a, err := l.http.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	if a.ContentLength < 0 {
		body, err = io.ReadAll(a.Body)
		return a.StatusCode, body, err
	}
	body = make([]byte, a.ContentLength)
	_, err = io.ReadFull(a.Body, body)
	return a.StatusCode, body, err
}

// callError is the error of an answer.
func callError(name string, status int, body []byte) error {
	var said struct{ Error, Code string }
	if json.Unmarshal(body, &said) == nil {
		for code := range api.Codes {
			if code.String() == said.Code {
				return &CallError{Callee: name, Code: code, Message: said.Error}
			}
		}
	}
	return &CallError{Callee: name, Code: api.Internal, Message: fmt.Sprintf("the gateway has answered %d %s", status, said.Error)}
}

// callee is what is known of a function or model that is called.
type callee struct {
	name, digest    string
	sig             api.Signature
	inputs, outputs *wire.Schema
}

// find returns a callee. It asks the gateway at its first call.
func (l *lines) find(ctx context.Context, name string) (*callee, error) {
	l.mu.Lock()
	known := l.callees[name]
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	r, err := http.NewRequestWithContext(ctx, "GET", callURL(name), nil)
	if err != nil {
		return nil, err
	}
	status, body, err := l.do(r)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, callError(name, status, body)
	}
	if known, err = readCallee(name, body); err != nil {
		return nil, &CallError{Callee: name, Code: api.Internal, Message: err.Error()}
	}
	l.mu.Lock()
	l.callees[name] = known
	l.mu.Unlock()
	return known, nil
}

// forget drops what is known of a callee that has changed.
func (l *lines) forget(c *callee) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callees[c.name] == c {
		delete(l.callees, c.name)
	}
}

// readCallee reads the signature of a callee.
func readCallee(name string, text []byte) (*callee, error) {
	type spec struct {
		Name, DType string
		Shape       []int64
	}
	var said struct {
		Digest          string
		Inputs, Outputs []spec
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, fmt.Errorf("the signature: %w", err)
	}
	c := &callee{name: name, digest: said.Digest}
	for _, kind := range []struct {
		said []spec
		to   *[]api.TensorSpec
	}{{said.Inputs, &c.sig.Inputs}, {said.Outputs, &c.sig.Outputs}} {
		for _, s := range kind.said {
			dtype, err := api.ParseDType(s.DType)
			if err != nil {
				return nil, fmt.Errorf("the signature: %q: %w", s.Name, err)
			}
			*kind.to = append(*kind.to, api.TensorSpec{Name: s.Name, DType: dtype, Shape: s.Shape})
		}
	}
	c.inputs, c.outputs = wire.NewSchema(c.sig.Inputs), wire.NewSchema(c.sig.Outputs)
	return c, nil
}

// layOut makes the input block of a call, and says for how many queries.
func (c *callee) layOut(inputs any) (block []byte, n int, err error) {
	named, ok := inputs.(map[string]any)
	if !ok && len(c.sig.Inputs) == 1 {
		named = map[string]any{c.sig.Inputs[0].Name: inputs}
	}
	if len(named) != len(c.sig.Inputs) {
		return nil, 0, fmt.Errorf("expected the values of its inputs, a map[string]any: %v", c.sig.Inputs)
	}
	columns := make(columns, len(c.sig.Inputs))
	for s := range c.sig.Inputs {
		spec := &c.sig.Inputs[s]
		values, ok := named[spec.Name]
		if !ok {
			return nil, 0, fmt.Errorf("input %q has no values", spec.Name)
		}
		if columns[s], err = columnOf(spec, values); err != nil {
			return nil, 0, fmt.Errorf("input %q: %w", spec.Name, err)
		}
		if len(columns[s]) != columns.Len() {
			return nil, 0, fmt.Errorf("input %q has %d values and %q has %d", c.sig.Inputs[0].Name, columns.Len(), spec.Name, len(columns[s]))
		}
	}
	if n = columns.Len(); n == 0 {
		return nil, 0, errors.New("there are no inputs")
	}
	size := c.inputs.Size(columns)
	if size > api.MaxItemBytes {
		return nil, 0, fmt.Errorf("the inputs are larger than %d bytes", api.MaxItemBytes)
	}
	block = make([]byte, size)
	_, err = c.inputs.Write(block, columns)
	return block, n, err
}

// columns are the values of a block: section, then query.
type columns [][]api.Value

func (c columns) Len() int { return len(c[0]) }

func (c columns) At(i, s int) *api.Value { return &c[s][i] }

// columnOf reads the values of one input.
func columnOf(spec *api.TensorSpec, values any) (column []api.Value, err error) {
	if spec.DType.Variable() {
		switch v := values.(type) {
		case []byte:
			return []api.Value{{Data: v}}, nil
		case string:
			return []api.Value{{Data: []byte(v)}}, nil
		case [][]byte:
			for _, data := range v {
				column = append(column, api.Value{Data: data})
			}
			return column, nil
		case []string:
			for _, text := range v {
				column = append(column, api.Value{Data: []byte(text)})
			}
			return column, nil
		}
	}
	switch v := values.(type) {
	case []api.Value:
		return v, nil
	case []uint8:
		return numbers(spec, v)
	case []uint16:
		return numbers(spec, v)
	case []uint32:
		return numbers(spec, v)
	case []uint64:
		return numbers(spec, v)
	case []int8:
		return numbers(spec, v)
	case []int16:
		return numbers(spec, v)
	case []int32:
		return numbers(spec, v)
	case []int64:
		return numbers(spec, v)
	case []float32:
		return numbers(spec, v)
	case []float64:
		return numbers(spec, v)
	}
	return nil, fmt.Errorf("the values are a %T, which is no form of %v", values, spec)
}

// numbers cuts the elements of all queries into theirs.
func numbers[T Element](spec *api.TensorSpec, v []T) (column []api.Value, err error) {
	if !fits[T](spec.DType) || !spec.Fixed() {
		return nil, fmt.Errorf("the values are a %T, which is no form of %v", v, spec)
	}
	var zero T
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
	size := spec.ItemBytes()
	if size == 0 || len(data)%size != 0 {
		return nil, fmt.Errorf("%d elements are no number of %v", len(v), spec)
	}
	for ; len(data) > 0; data = data[size:] {
		column = append(column, api.Value{Data: data[:size]})
	}
	return column, nil
}

// Results are the outputs of a call, one of each for every input. They are the caller's own. Functions that take a name panic if the callee has no such
// output, if it has another type, or if a query number is not in [0, Len()).
type Results struct {
	callee *callee
	reader wire.Reader
}

// Len is the number of inputs that the call had.
func (r *Results) Len() int { return r.reader.Len() }

// Signature is what the callee takes and returns, for one query. It must not be modified.
func (r *Results) Signature() *api.Signature { return &r.callee.sig }

func (r *Results) output(name string) int {
	for s := range r.callee.sig.Outputs {
		if r.callee.sig.Outputs[s].Name == name {
			return s
		}
	}
	misused("%s has no output %q", r.callee.name, name)
	return 0
}

func (r *Results) item(i, s int) (data []byte, dims []int64) {
	if i < 0 || i >= r.Len() {
		misused("no output %d of %s: the call had %d inputs", i, r.callee.name, r.Len())
	}
	data, dims, err := r.reader.Item(i, s, nil)
	if err != nil {
		misused("output %d of %s: %v", i, r.callee.name, err)
	}
	if spec := &r.callee.sig.Outputs[s]; spec.Fixed() {
		dims = spec.Shape
	}
	return data, dims
}

// Bytes returns the raw data of an output for input i, as [Batch.Bytes] does for inputs.
func (r *Results) Bytes(name string, i int) []byte {
	data, _ := r.item(i, r.output(name))
	return data
}

// Dims returns the dimensions of an output for input i: those of the signature, with every -1 replaced. They must not be modified.
func (r *Results) Dims(name string, i int) []int64 {
	_, dims := r.item(i, r.output(name))
	return dims
}

// Result returns an output of fixed shape for all inputs of a call: an array of shape (Len(), *shape), row-major. It panics if the output's size
// varies: see [ResultItem].
func Result[T Element](r *Results, name string) []T {
	s := r.output(name)
	spec := &r.callee.sig.Outputs[s]
	checkElement[T]("output", spec)
	if !spec.Fixed() {
		misused("output %q is %v, whose size varies: use ResultItem", name, spec)
	}
	return view[T](r.reader.Section(s))
}

// ResultItem returns an output for input i of a call, row-major, and its dimensions. It works for every numeric output.
func ResultItem[T Element](r *Results, name string, i int) (data []T, dims []int64) {
	s := r.output(name)
	checkElement[T]("output", &r.callee.sig.Outputs[s])
	raw, dims := r.item(i, s)
	return view[T](raw), dims
}
