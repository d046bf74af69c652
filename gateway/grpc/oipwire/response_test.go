package oipwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
)

func int64s(x ...int64) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, x)
	return b
}

func respond(t *testing.T, r *Response) *pb.ModelInferResponse {
	t.Helper()
	most, err := r.Measure()
	if err != nil {
		t.Fatal(err)
	}
	b := r.Append(nil)
	if len(b) > most {
		t.Errorf("a response of %d bytes was measured as %d", len(b), most)
	}
	m := new(pb.ModelInferResponse)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestResponse(t *testing.T) {
	rows := [][]api.Value{
		{{Data: int64s(-7)}, {Data: floats(0.5, 0.25), Dims: []int64{2}}, {Data: []byte("seven")}},
		{{Data: int64s(1 << 40)}, {Data: floats(1, 2), Dims: []int64{2}}, {Data: nil}},
	}
	r := &Response{
		Model: "m", Version: "1", ID: []byte("7"), Signature: fixed, Outputs: []int{0, 1, 2}, Batched: true, Queries: 2, Raw: true,
		Output: func(q, k int) *api.Value { return &rows[q][k] },
	}
	r.Parameters = AppendTextParameter(r.Parameters, "models", []byte("m@1"))
	r.Parameters = AppendBoolParameter(r.Parameters, "default", true)
	r.Parameters = AppendIntParameter(r.Parameters, "query_id", math.MaxInt64)
	r.Parameters = AppendFloatParameter(r.Parameters, "confidence", 0.5)
	m := respond(t, r)
	if m.ModelName != "m" || m.ModelVersion != "1" || m.Id != "7" || len(m.Outputs) != 3 || m.Outputs[1].Datatype != "FP32" || len(m.Outputs[1].Shape) != 2 || m.Outputs[1].Shape[0] != 2 {
		t.Errorf("%v", m)
	}
	if p := m.Parameters; p["models"].GetStringParam() != "m@1" || !p["default"].GetBoolParam() || p["query_id"].GetInt64Param() != math.MaxInt64 || p["confidence"].GetDoubleParam() != 0.5 {
		t.Errorf("parameters %v", m.Parameters)
	}
	for i, want := range [][]byte{int64s(-7, 1<<40), floats(0.5, 0.25, 1, 2), elements("seven", "")} {
		if !bytes.Equal(m.RawOutputContents[i], want) {
			t.Errorf("output %d is %x, want %x", i, m.RawOutputContents[i], want)
		}
	}
	r.Raw = false
	m = respond(t, r)
	if c := m.Outputs; len(m.RawOutputContents) != 0 || c[0].Contents.Int64Contents[0] != -7 || c[1].Contents.Fp32Contents[3] != 2 || string(c[2].Contents.BytesContents[0]) != "seven" || len(c[2].Contents.BytesContents) != 2 {
		t.Errorf("%v", m)
	}
}

// TestResponseClasses: an output is its largest elements as texts, raw or typed, beside outputs that are themselves.
func TestResponseClasses(t *testing.T) {
	rows := [][]api.Value{
		{{Data: int64s(-7)}, {Data: floats(0.25, 0.5), Dims: []int64{2}}},
		{{Data: int64s(1 << 40)}, {Data: floats(2, 2), Dims: []int64{2}}},
	}
	r := &Response{
		Model: "m", Signature: fixed, Outputs: []int{1, 0}, Batched: true, Queries: 2, Raw: true,
		Output: func(q, k int) *api.Value { return &rows[q][k] },
	}
	r.Classes = []int{1, 0}
	m := respond(t, r)
	if o := m.Outputs[0]; o.Name != "p" || o.Datatype != "BYTES" || !slices.Equal(o.Shape, []int64{2, 1}) || !bytes.Equal(m.RawOutputContents[0], elements("0.5:1", "2:0")) || !bytes.Equal(m.RawOutputContents[1], int64s(-7, 1<<40)) {
		t.Errorf("%v", m)
	}
	r.Classes, r.Raw, r.Batched, r.Queries = []int{9, 0}, false, false, 1
	m = respond(t, r)
	if o := m.Outputs[0]; !slices.Equal(o.Shape, []int64{2}) || string(bytes.Join(o.Contents.BytesContents, []byte(" "))) != "0.5:1 0.25:0" || m.Outputs[1].Contents.Int64Contents[0] != -7 {
		t.Errorf("%v", m)
	}
	rows[0][1] = api.Value{Data: make([]byte, 4*(classify.MaxElements+1)), Dims: []int64{classify.MaxElements + 1}}
	r.Signature = &api.Signature{Outputs: []api.TensorSpec{{Name: "l", DType: api.Int64}, {Name: "p", DType: api.Float32, Shape: []int64{-1}}}}
	if _, err := r.Measure(); err == nil || !strings.Contains(err.Error(), "expected at most 1048576") {
		t.Errorf("%v", err)
	}
}

// TestResponseRawOnly: types without typed contents make all outputs raw.
func TestResponseRawOnly(t *testing.T) {
	sig := &api.Signature{Outputs: []api.TensorSpec{{Name: "a", DType: api.Int8, Shape: []int64{2}}, {Name: "b", DType: api.Float16}}}
	row := []api.Value{{Data: []byte{1, 255}}, {Data: []byte{1, 2}}}
	r := &Response{Model: "m", Signature: sig, Outputs: []int{0, 1}, Queries: 1, Output: func(_, k int) *api.Value { return &row[k] }}
	m := respond(t, r)
	if len(m.RawOutputContents) != 2 || m.Outputs[0].Contents != nil || len(m.Outputs[1].Shape) != 0 {
		t.Errorf("%v", m)
	}
	r.Outputs, r.Raw = []int{0}, false
	if m = respond(t, r); m.Outputs[0].Contents.GetIntContents()[1] != -1 {
		t.Errorf("%v", m)
	}
}

func TestResponseUnlike(t *testing.T) {
	rows := []api.Value{{Data: floats(1), Dims: []int64{1}}, {Data: floats(1, 2), Dims: []int64{2}}}
	r := &Response{Signature: fixed, Outputs: []int{1}, Batched: true, Queries: 2, Output: func(q, _ int) *api.Value { return &rows[q] }}
	_, err := r.Measure()
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.InvalidArgument || !strings.Contains(e.Message, "send the queries one by one") {
		t.Errorf("%v", err)
	}
}

func BenchmarkScanRead(b *testing.B) {
	sig := signature(api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{784}})
	message := marshal(b, raw(tensorOf("x", "FP32", nil, 1, 784), make([]byte, 3136)))
	q, s := &Request{}, &store{width: 1}
	b.ReportAllocs()
	b.SetBytes(int64(len(message)))
	for b.Loop() {
		s.n = 0
		if err := q.Scan(message); err != nil {
			b.Fatal(err)
		}
		if err := q.Read(sig, s, maxQueries); err != nil {
			b.Fatal(err)
		}
	}
}
