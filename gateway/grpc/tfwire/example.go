package tfwire

import (
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Examples reads the input of a request to classify or regress: each example is one query, and its features are the inputs by name. Features that an
// example does not have are those of the context. It is [Request.Tensors] otherwise.
func (q *Request) Examples(input *pb.Input, specs []api.TensorSpec, sink tensorjson.Sink, b Bounds) error {
	q.begin(specs, b)
	var list []*pb.Example
	var context map[string]*pb.Feature
	switch kind := input.GetKind().(type) {
	case *pb.Input_ExampleList:
		list = kind.ExampleList.GetExamples()
	case *pb.Input_ExampleListWithContext:
		list, context = kind.ExampleListWithContext.GetExamples(), kind.ExampleListWithContext.GetContext().GetFeatures().GetFeature()
	default:
		return api.Errorf(api.InvalidArgument, "input: expected example_list or example_list_with_context")
	}
	if len(list) < 1 || len(list) > b.Queries {
		return api.Errorf(api.InvalidArgument, "input: %d examples: expected 1 to %d", len(list), b.Queries)
	}
	q.Queries, q.Batched = len(list), true
	for _, name := range unknown(context, specs) {
		return api.Errorf(api.InvalidArgument, "input: context: unknown feature %.60q: expected %s", name, tensorjson.Names(specs))
	}
	features, total := make([]feature, len(list)*len(specs)), int64(0)
	for i, example := range list {
		given := example.GetFeatures().GetFeature()
		for _, name := range unknown(given, specs) {
			return api.Errorf(api.InvalidArgument, "input: examples[%d]: unknown feature %.60q: expected %s", i, name, tensorjson.Names(specs))
		}
		for k := range specs {
			message, ok := given[specs[k].Name]
			if !ok {
				message, ok = context[specs[k].Name]
			}
			if !ok {
				return api.Errorf(api.InvalidArgument, "input: examples[%d]: the feature %q (%s) is missing", i, specs[k].Name, specs[k].String())
			}
			f := &features[i*len(specs)+k]
			n, err := f.check(message, &specs[k], i)
			if err != nil {
				return err
			}
			total += n
		}
		if total > int64(b.Bytes) {
			break // storage says so
		}
	}
	if err := q.storage(sink, total); err != nil {
		return err
	}
	for i, row := range q.rows {
		for k := range specs {
			features[i*len(specs)+k].write(&row[k], &specs[k])
		}
	}
	return nil
}

// feature is an input of one query.
type feature struct {
	message *pb.Feature
	open    int64 // the dimension that is not declared
}

// check compares a feature with the declared type and shape, and returns how many bytes it takes.
func (f *feature) check(message *pb.Feature, spec *api.TensorSpec, example int) (bytes int64, err error) {
	bad := func(format string, args ...any) error {
		return api.Errorf(api.InvalidArgument, "input: examples[%d]: feature %q: "+format, append([]any{example, spec.Name}, args...)...)
	}
	f.message = message
	var n int
	var kind string // of values that the type cannot have
	switch list := message.GetKind().(type) {
	case *pb.Feature_BytesList:
		n, kind = len(list.BytesList.GetValue()), "bytes_list"
		if !spec.DType.Variable() {
			break
		}
		kind = ""
		for i, item := range list.BytesList.GetValue() {
			if spec.DType == api.String && !utf8.Valid(item) {
				return 0, bad("bytes_list[%d] is not valid UTF-8, which a string is", i)
			}
			bytes += 4 + int64(len(item))
		}
	case *pb.Feature_FloatList:
		n, kind = len(list.FloatList.GetValue()), "float_list"
		if spec.DType.Float() {
			kind = ""
		}
	case *pb.Feature_Int64List:
		n, kind = len(list.Int64List.GetValue()), "int64_list"
		if spec.DType.Variable() {
			break
		}
		kind = ""
		for i, v := range list.Int64List.GetValue() {
			if !spec.DType.Float() && !fits(spec.DType, v) {
				return 0, bad("int64_list[%d]: %d is not of type %s", i, v, spec.DType)
			}
		}
	default:
		return 0, bad("it has no value: expected bytes_list, float_list or int64_list")
	}
	if kind != "" {
		return 0, bad("%s: expected values of type %s", kind, spec.DType)
	}
	if !spec.DType.Variable() {
		bytes = int64(n) * int64(spec.DType.Size())
	}
	return bytes, f.shape(spec, n, bad)
}

// shape finds the dimension that is not declared, of which there may be one.
func (f *feature) shape(spec *api.TensorSpec, n int, bad func(string, ...any) error) error {
	known, open := int64(1), 0
	for _, d := range spec.Shape {
		if d >= 0 {
			known *= d
		} else {
			open++
		}
	}
	switch {
	case open > 1:
		return bad("its shape %s has several dimensions that an example cannot say: ask by Predict", api.ShapeString(spec.Shape))
	case open == 0 && int64(n) != known:
		return bad("%d values: expected %d for the shape %s", n, known, api.ShapeString(spec.Shape))
	case open == 1 && (known == 0 || int64(n)%known != 0):
		return bad("%d values do not fit the shape %s", n, api.ShapeString(spec.Shape))
	}
	if open == 1 {
		f.open = int64(n) / known
	}
	return nil
}

// write copies the feature.
func (f *feature) write(v *api.Value, spec *api.TensorSpec) {
	v.Data, v.Dims = v.Data[:0], v.Dims[:0]
	if !spec.Fixed() {
		for _, d := range spec.Shape {
			if d < 0 {
				d = f.open
			}
			v.Dims = append(v.Dims, d)
		}
	}
	for _, item := range f.message.GetBytesList().GetValue() {
		v.Data = appendItem(v.Data, item, len(spec.Shape) > 0)
	}
	for _, x := range f.message.GetFloatList().GetValue() {
		v.Data = appendFloat(v.Data, spec.DType, float64(x))
	}
	for _, x := range f.message.GetInt64List().GetValue() {
		if spec.DType.Float() {
			v.Data = appendFloat(v.Data, spec.DType, float64(x))
		} else {
			v.Data = appendBits(v.Data, spec.DType.Size(), uint64(x))
		}
	}
}
