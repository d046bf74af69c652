package tfwire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
)

var bounds = Bounds{Queries: 8, Bytes: 1 << 16, Reserve: func(int) error { return nil }}

// sink keeps the inputs of each query.
type sink struct {
	specs int
	rows  [][]api.Value
}

func (s *sink) Next() ([]api.Value, error) {
	s.rows = append(s.rows, make([]api.Value, s.specs))
	return s.rows[len(s.rows)-1], nil
}

func read(inputs map[string]*pb.TensorProto, specs []api.TensorSpec) (*Request, [][]api.Value, error) {
	q, s := &Request{}, &sink{specs: len(specs)}
	err := q.Tensors(inputs, specs, s, bounds)
	return q, s.rows, err
}

func shape(dims ...int64) *pb.TensorShapeProto {
	s := &pb.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &pb.TensorShapeProto_Dim{Size: d})
	}
	return s
}

func floatTensor(values []float32, dims ...int64) *pb.TensorProto {
	return &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT, FloatVal: values, TensorShape: shape(dims...)}
}

// request has tensors by name: pairs.
func request(pairs ...any) *pb.PredictRequest {
	r := &pb.PredictRequest{Inputs: map[string]*pb.TensorProto{}}
	for i := 0; i < len(pairs); i += 2 {
		r.Inputs[pairs[i].(string)] = pairs[i+1].(*pb.TensorProto)
	}
	return r
}

func floats(v ...float32) *pb.Feature {
	return &pb.Feature{Kind: &pb.Feature_FloatList{FloatList: &pb.FloatList{Value: v}}}
}

func integers(v ...int64) *pb.Feature {
	return &pb.Feature{Kind: &pb.Feature_Int64List{Int64List: &pb.Int64List{Value: v}}}
}

// TestTypes: each type is read from its values and from content, and both are the same data.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		dtype  api.DType
		values *pb.TensorProto
		want   string
	}{
		{api.Bool, &pb.TensorProto{BoolVal: []bool{true, false}}, "\x01\x00"},
		{api.Int8, &pb.TensorProto{IntVal: []int32{-1, 127}}, "\xff\x7f"},
		{api.Uint8, &pb.TensorProto{IntVal: []int32{255}}, "\xff\xff"},
		{api.Int16, &pb.TensorProto{IntVal: []int32{-2, 1}}, "\xfe\xff\x01\x00"},
		{api.Uint16, &pb.TensorProto{IntVal: []int32{65535, 1}}, "\xff\xff\x01\x00"},
		{api.Int32, &pb.TensorProto{IntVal: []int32{-1, 1}}, "\xff\xff\xff\xff\x01\x00\x00\x00"},
		{api.Uint32, &pb.TensorProto{Uint32Val: []uint32{1 << 31, 1}}, "\x00\x00\x00\x80\x01\x00\x00\x00"},
		{api.Int64, &pb.TensorProto{Int64Val: []int64{-1}}, strings.Repeat("\xff", 16)},
		{api.Uint64, &pb.TensorProto{Uint64Val: []uint64{1 << 63, 1}}, "\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00\x00\x00\x00"},
		{api.Float16, &pb.TensorProto{HalfVal: []int32{0x3c00, 0xbc00}}, "\x00\x3c\x00\xbc"},
		{api.BFloat16, &pb.TensorProto{HalfVal: []int32{0x3f80}}, "\x80\x3f\x80\x3f"},
		{api.Float32, &pb.TensorProto{FloatVal: []float32{1, 2}}, "\x00\x00\x80\x3f\x00\x00\x00\x40"},
		{api.Float64, &pb.TensorProto{DoubleVal: []float64{1, 2}}, "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40"},
		{api.String, &pb.TensorProto{StringVal: [][]byte{[]byte("ä"), nil}}, "\x02\x00\x00\x00ä\x00\x00\x00\x00"},
		{api.Bytes, &pb.TensorProto{StringVal: [][]byte{{0xff}}}, "\x01\x00\x00\x00\xff\x01\x00\x00\x00\xff"},
	} {
		specs := []api.TensorSpec{{Name: "x", DType: c.dtype, Shape: []int64{2}}}
		c.values.Dtype, c.values.TensorShape = DType(c.dtype), shape(1, 2)
		content := &pb.TensorProto{Dtype: c.values.Dtype, TensorShape: c.values.TensorShape, TensorContent: []byte(c.want)}
		switch c.dtype {
		case api.String:
			content.TensorContent = []byte("\x02\x00ä")
		case api.Bytes:
			content.TensorContent = []byte("\x01\x01\xff\xff")
		}
		for _, m := range []*pb.TensorProto{c.values, content} {
			_, rows, err := read(map[string]*pb.TensorProto{"x": m}, specs)
			if err != nil || string(rows[0][0].Data) != c.want {
				t.Errorf("%v %v: %v %v, want %q", c.dtype, m, rows, err, c.want)
				continue
			}
			out, err := Tensor(&specs[0], 1, true, func(int) *api.Value { return &rows[0][0] })
			if err != nil || out.Dtype != c.values.Dtype || len(out.TensorContent) > 0 {
				t.Errorf("%v: %v %v", c.dtype, out, err)
			}
			_, again, err := read(map[string]*pb.TensorProto{"x": out}, specs)
			if err != nil || !bytes.Equal(again[0][0].Data, rows[0][0].Data) {
				t.Errorf("%v: %v %v", c.dtype, out, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	vector := []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{-1}}}
	small := []api.TensorSpec{{Name: "x", DType: api.Int8, Shape: []int64{2}}}
	text := []api.TensorSpec{{Name: "x", DType: api.String, Shape: []int64{-1}}}
	two := []api.TensorSpec{{Name: "x", DType: api.Float32}, {Name: "y", DType: api.Float32}}
	for _, c := range []struct {
		specs []api.TensorSpec
		r     *pb.PredictRequest
		want  string
	}{
		{vector, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_DOUBLE}), `inputs["x"]: dtype DT_DOUBLE: expected DT_FLOAT`},
		{vector, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT, TensorShape: &pb.TensorShapeProto{UnknownRank: true}}), "the rank is unknown"},
		{vector, request("x", floatTensor(nil, 1, -1)), "tensor_shape: [1, -1]: expected [-1, -1], or [-1] for one query"},
		{vector, request("x", floatTensor(nil, 1<<40, 1<<40)), "expected 1 to 8 queries"},
		{vector, request("x", floatTensor(nil, 1, 1<<62)), "elements"},
		{vector, request("x", floatTensor(nil, 8, 1<<20)), "expected at most 65536"},
		{vector, request("x", floatTensor([]float32{1, 2, 3}, 1, 2)), "float_val: 3 values: expected at most 2"},
		{vector, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_FLOAT, TensorShape: shape(1, 2), TensorContent: []byte("1234567")}), "tensor_content: 7 bytes: expected 8 for 2 elements"},
		{small, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_INT8, TensorShape: shape(2), IntVal: []int32{128}}), "int_val[0]: 128 is not DT_INT8"},
		{text, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shape(1), StringVal: [][]byte{{0xff}}}), "not valid UTF-8"},
		{text, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shape(1 << 20), TensorContent: []byte("\x01a")}), "too few for 1048576 strings"},
		{text, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shape(2), TensorContent: []byte("\x01\x05a")}), "string 1 has 5 bytes, and 0 are left"},
		{text, request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shape(1), TensorContent: []byte("\x80")}), "as varints"},
		{two, request("x", floatTensor(nil, 2), "y", floatTensor(nil, 3)), `3 queries: expected 2, as of "x"`},
		{two, request("x", floatTensor(nil, 1), "y", floatTensor(nil)), "the other way round"},
		{nil, request(), "takes no inputs"},
	} {
		_, _, err := read(c.r.Inputs, c.specs)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.r, err, c.want)
		}
	}
}

// TestRagged: outputs of different shapes do not fit one tensor.
func TestRagged(t *testing.T) {
	spec := &api.TensorSpec{Name: "x", DType: api.Int8, Shape: []int64{-1}}
	values := []api.Value{{Data: []byte{1}, Dims: []int64{1}}, {Data: []byte{1, 2}, Dims: []int64{2}}}
	if _, err := Tensor(spec, 2, true, func(q int) *api.Value { return &values[q] }); err == nil || !strings.Contains(err.Error(), "send the queries one by one") {
		t.Error(err)
	}
}

// TestFeatures: features of numbers are of any type of numbers that has their values.
func TestFeatures(t *testing.T) {
	specs := []api.TensorSpec{{Name: "x", DType: api.Float64, Shape: []int64{-1, 2}}}
	q, s := &Request{}, &sink{specs: 1}
	in := &pb.Input{Kind: &pb.Input_ExampleList{ExampleList: &pb.ExampleList{Examples: []*pb.Example{{Features: &pb.Features{Feature: map[string]*pb.Feature{"x": integers(1, 2, 3, 4)}}}}}}}
	if err := q.Examples(in, specs, s, bounds); err != nil || s.rows[0][0].Dims[0] != 2 || Number(api.Float64, s.rows[0][0].Data[24:]) != 4 {
		t.Errorf("%v %v", s.rows, err)
	}
	specs[0].DType = api.Uint8
	in.GetExampleList().Examples[0].Features.Feature["x"] = integers(1, 256)
	if err := q.Examples(in, specs, s, bounds); err == nil || !strings.Contains(err.Error(), "256 is not of type uint8") {
		t.Error(err)
	}
	in.GetExampleList().Examples[0].Features.Feature["x"] = floats(1, 2)
	if err := q.Examples(in, specs, s, bounds); err == nil || !strings.Contains(err.Error(), "float_list: expected values of type uint8") {
		t.Error(err)
	}
}
