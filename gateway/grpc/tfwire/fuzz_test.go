package tfwire

import (
	"bytes"
	"errors"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
)

var fuzzInputs = [][]api.TensorSpec{
	{{Name: "x", DType: api.Float32, Shape: []int64{2}}},
	{{Name: "x", DType: api.Float64}, {Name: "b", DType: api.Bool, Shape: []int64{-1}}},
	{{Name: "x", DType: api.Int64, Shape: []int64{-1, 2}}},
	{{Name: "x", DType: api.Int8, Shape: []int64{2}}, {Name: "h", DType: api.Float16, Shape: []int64{-1, -1}}},
	{{Name: "x", DType: api.Uint16}, {Name: "u", DType: api.Uint64}, {Name: "v", DType: api.Uint32, Shape: []int64{1}}},
	{{Name: "x", DType: api.String}},
	{{Name: "x", DType: api.Bytes, Shape: []int64{-1}}, {Name: "s", DType: api.String, Shape: []int64{2}}},
	{},
}

// FuzzTensors: nothing panics; a refusal has a code and a message for its caller; what is accepted fits the signature within the bounds, and the tensors made of
// it are read as the same values.
func FuzzTensors(f *testing.F) {
	for i, m := range []*pb.PredictRequest{
		request("x", floatTensor([]float32{1}, 2, 2)),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_DOUBLE, TensorShape: shape()}, "b", &pb.TensorProto{Dtype: pb.DataType_DT_BOOL, BoolVal: []bool{true}, TensorShape: shape(3)}),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_INT64, Int64Val: []int64{-1, 5}, TensorShape: shape(1, 3, 2)}),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_INT8, IntVal: []int32{-128}, TensorShape: shape(1, 2)}, "h", &pb.TensorProto{Dtype: pb.DataType_DT_HALF, HalfVal: []int32{15360}, TensorShape: shape(1, 1, 2)}),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_UINT16, TensorContent: []byte{1, 2}, TensorShape: shape()}, "u", &pb.TensorProto{Dtype: pb.DataType_DT_UINT64, Uint64Val: []uint64{1 << 63}, TensorShape: shape()},
			"v", &pb.TensorProto{Dtype: pb.DataType_DT_UINT32, Uint32Val: []uint32{7}, TensorShape: shape(1)}),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorContent: []byte("\x01\x02abc"), TensorShape: shape(2)}),
		request("x", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, StringVal: [][]byte{{0xff}}, TensorShape: shape(2, 3)}, "s", &pb.TensorProto{Dtype: pb.DataType_DT_STRING, TensorShape: shape(2, 2)}),
		{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, i)
	}
	f.Fuzz(func(t *testing.T, message []byte, which int) {
		specs := fuzzInputs[uint(which)%uint(len(fuzzInputs))]
		var m pb.PredictRequest
		if proto.Unmarshal(message, &m) != nil {
			return
		}
		q, rows, err := read(m.Inputs, specs)
		if err != nil {
			refused(t, err)
			return
		}
		judge(t, q, rows, specs)
		back := map[string]*pb.TensorProto{}
		for k := range specs {
			out, err := Tensor(&specs[k], q.Queries, q.Batched, func(i int) *api.Value { return &rows[i][k] })
			if err != nil {
				t.Fatal(err)
			}
			back[specs[k].Name] = out
		}
		again, others, err := read(back, specs)
		if err != nil || again.Queries != q.Queries || again.Batched != q.Batched {
			t.Fatalf("%v is %v", back, err)
		}
		for i := range rows {
			for k := range specs {
				if !bytes.Equal(rows[i][k].Data, others[i][k].Data) {
					t.Fatalf("%v: query %d, input %d changed", back, i, k)
				}
			}
		}
	})
}

// FuzzExamples is [FuzzTensors] for examples.
func FuzzExamples(f *testing.F) {
	for i, in := range []*pb.Input{
		{Kind: &pb.Input_ExampleList{ExampleList: &pb.ExampleList{Examples: []*pb.Example{{Features: &pb.Features{Feature: map[string]*pb.Feature{"x": floats(1, 2)}}}}}}},
		{Kind: &pb.Input_ExampleListWithContext{ExampleListWithContext: &pb.ExampleListWithContext{
			Examples: []*pb.Example{{}, {Features: &pb.Features{Feature: map[string]*pb.Feature{"x": integers(3)}}}},
			Context:  &pb.Example{Features: &pb.Features{Feature: map[string]*pb.Feature{"x": floats(1), "b": integers(1, 0)}}},
		}}},
		{},
	} {
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, i)
	}
	f.Fuzz(func(t *testing.T, message []byte, which int) {
		specs := fuzzInputs[uint(which)%uint(len(fuzzInputs))]
		var in pb.Input
		if proto.Unmarshal(message, &in) != nil {
			return
		}
		q, s := &Request{}, &sink{specs: len(specs)}
		if err := q.Examples(&in, specs, s, bounds); err != nil {
			refused(t, err)
			return
		}
		judge(t, q, s.rows, specs)
	})
}

func refused(t *testing.T, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidArgument || !utf8.ValidString(e.Message) {
		t.Fatalf("error %#v", err)
	}
}

// judge checks that values fit their signature, and the bounds.
func judge(t *testing.T, q *Request, rows [][]api.Value, specs []api.TensorSpec) {
	t.Helper()
	if len(rows) != q.Queries || q.Queries < 1 || q.Queries > bounds.Queries || !q.Batched && q.Queries != 1 {
		t.Fatalf("%d queries, %d rows", q.Queries, len(rows))
	}
	total := 0
	for i := range rows {
		for k := range specs {
			if err := specs[k].Check(&rows[i][k]); err != nil {
				t.Fatalf("query %d, input %q: %v", i, specs[k].Name, err)
			}
			total += len(rows[i][k].Data)
		}
	}
	if total > bounds.Bytes {
		t.Fatalf("%d bytes", total)
	}
}
