package tfwire

import (
	"slices"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Bounds are what a request may take.
type Bounds struct {
	Queries int
	// Bytes bounds the data of all inputs. Reserve takes room for them before they are written.
	Bytes   int
	Reserve func(bytes int) error
}

// Request is what a message has asked. One Request is reused for many messages by one goroutine at a time.
type Request struct {
	Queries int
	// Batched is false if the tensors have no batch dimension: the request is one query, whose outputs have none either.
	Batched bool

	specs []api.TensorSpec
	bound Bounds
	rows  [][]api.Value
	first int // the input that has decided Queries and Batched; -1: none has
}

func (q *Request) begin(specs []api.TensorSpec, b Bounds) {
	q.Queries, q.Batched, q.specs, q.bound, q.rows, q.first = 0, false, specs, b, q.rows[:0], -1
}

// storage reserves bytes and takes the inputs of each query from the sink.
func (q *Request) storage(sink tensorjson.Sink, bytes int64) error {
	if bytes > int64(q.bound.Bytes) {
		return api.Errorf(api.InvalidArgument, "inputs: with all repeated values they take %d bytes: expected at most %d", bytes, q.bound.Bytes)
	}
	if err := q.bound.Reserve(int(bytes)); err != nil {
		return err
	}
	for range q.Queries {
		row, err := sink.Next()
		if err != nil {
			return err
		}
		if len(row) != len(q.specs) {
			return api.Errorf(api.Internal, "storage for %d inputs: expected %d", len(row), len(q.specs))
		}
		q.rows = append(q.rows, row)
	}
	return nil
}

// Tensors reads the inputs of a request to predict. Each query is written to storage from the sink. After an error, which is an *api.Error, the result is not
// valid, and the caller reclaims what the sink has returned.
func (q *Request) Tensors(inputs map[string]*pb.TensorProto, specs []api.TensorSpec, sink tensorjson.Sink, b Bounds) error {
	q.begin(specs, b)
	for _, name := range unknown(inputs, specs) {
		return api.Errorf(api.InvalidArgument, "inputs: there is no input %.60q: expected %s", name, tensorjson.Names(specs))
	}
	tensors, total := make([]tensor, len(specs)), int64(0)
	for i := range specs {
		t, ok := inputs[specs[i].Name]
		if !ok {
			return api.Errorf(api.InvalidArgument, "inputs: the input %q (%s) is missing", specs[i].Name, specs[i].String())
		}
		if err := q.shape(&tensors[i], t, i); err != nil {
			return err
		}
		n, err := tensors[i].check()
		if err != nil {
			return err
		}
		if total += n; total > int64(b.Bytes) {
			break // storage says so
		}
	}
	if q.Queries == 0 {
		return api.Errorf(api.InvalidArgument, "the model takes no inputs, so the protocol cannot say how many queries there are")
	}
	if err := q.storage(sink, total); err != nil {
		return err
	}
	for i := range tensors {
		tensors[i].write(q.rows, i)
	}
	return nil
}

// unknown returns the first name of a map that is not an input's, so that the same message has the same error.
func unknown[V any](given map[string]V, specs []api.TensorSpec) []string {
	var names []string
	for name := range given {
		if tensorjson.Find(specs, []byte(name), 0) < 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), 1)]
}

// shape compares type and shape of input i with the declared ones, and its number of queries with that of the other inputs.
func (q *Request) shape(t *tensor, message *pb.TensorProto, i int) error {
	spec := &q.specs[i]
	bad := func(format string, args ...any) error { return misfit(spec, format, args...) }
	if got, want := message.GetDtype(), DType(spec.DType); got != want {
		return bad("dtype %v: expected %v", got, want)
	}
	given := message.GetTensorShape()
	if given.GetUnknownRank() {
		return bad("tensor_shape: the rank is unknown: expected the shape of the values")
	}
	if len(given.GetDim()) > len(spec.Shape)+1 {
		return bad("tensor_shape: %d dimensions: expected %d, and one more for several queries", len(given.GetDim()), len(spec.Shape))
	}
	dims := make([]int64, len(given.GetDim()))
	for k, d := range given.GetDim() {
		dims[k] = d.GetSize()
	}
	batched, n, all := len(dims) == len(spec.Shape)+1, int64(1), dims
	if batched {
		n, dims = dims[0], dims[1:]
	}
	each := api.Elements(dims)
	switch {
	case !api.FitsShape(spec.Shape, dims):
		return bad("tensor_shape: %s: expected %s, or %s for one query", api.ShapeString(all), api.ShapeString(append([]int64{-1}, spec.Shape...)), api.ShapeString(spec.Shape))
	case n < 1 || n > int64(q.bound.Queries):
		return bad("tensor_shape: %s: expected 1 to %d queries", api.ShapeString(all), q.bound.Queries)
	case each < 0 || api.Elements(all) < 0:
		return bad("tensor_shape: %s: expected at most %d elements", api.ShapeString(all), int64(api.MaxItemBytes))
	case q.first < 0:
		q.first, q.Queries, q.Batched = i, int(n), batched
	case batched != q.Batched:
		return bad("tensor_shape: %s: either it has a batch dimension and %q has none, or the other way round", api.ShapeString(all), q.specs[q.first].Name)
	case int(n) != q.Queries:
		return bad("tensor_shape: %s: %d queries: expected %d, as of %q", api.ShapeString(all), n, q.Queries, q.specs[q.first].Name)
	}
	*t = tensor{message: message, spec: spec, dims: dims, each: int(each), n: int(n)}
	return nil
}

func misfit(spec *api.TensorSpec, format string, args ...any) error {
	return api.Errorf(api.InvalidArgument, "inputs[%q]: "+format, append([]any{spec.Name}, args...)...)
}

// Filter finds the outputs that a request has named: all if it names none.
func Filter(names []string, specs []api.TensorSpec) ([]int, error) {
	chosen := make([]int, 0, len(specs))
	for _, name := range names {
		i := tensorjson.Find(specs, []byte(name), 0)
		if i < 0 {
			return nil, api.Errorf(api.InvalidArgument, "output_filter: output tensor alias not found in signature: %.60q: expected %s", name, tensorjson.Names(specs))
		}
		if slices.Contains(chosen, i) {
			return nil, api.Errorf(api.InvalidArgument, "output_filter: %q is there twice", name)
		}
		chosen = append(chosen, i)
	}
	for i := range specs {
		if len(names) == 0 {
			chosen = append(chosen, i)
		}
	}
	return chosen, nil
}
