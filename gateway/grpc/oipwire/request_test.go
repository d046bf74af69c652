package oipwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
)

var outputs = []api.TensorSpec{{Name: "label", DType: api.Int64}, {Name: "p", DType: api.Float32, Shape: []int64{-1}}, {Name: "text", DType: api.String}}

func signature(inputs ...api.TensorSpec) *api.Signature {
	return &api.Signature{Inputs: inputs, Outputs: outputs}
}

var (
	fixed  = signature(api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{2}})
	ragged = signature(api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{-1, 2}})
	scalar = signature(api.TensorSpec{Name: "x", DType: api.Int32})
	text1  = signature(api.TensorSpec{Name: "s", DType: api.Bytes})
	texts  = signature(api.TensorSpec{Name: "s", DType: api.String, Shape: []int64{-1}})
	two    = signature(api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{2}}, api.TensorSpec{Name: "s", DType: api.Bytes})
	half   = signature(api.TensorSpec{Name: "h", DType: api.Float16, Shape: []int64{2}})
	flags  = signature(api.TensorSpec{Name: "b", DType: api.Bool, Shape: []int64{2}})
	small  = signature(api.TensorSpec{Name: "i", DType: api.Int8, Shape: []int64{-1}})
)

// store is a Sink.
type store struct {
	width int
	rows  [][]api.Value
	n     int
}

func (s *store) Next() ([]api.Value, error) {
	if s.n == len(s.rows) {
		s.rows = append(s.rows, make([]api.Value, s.width))
	}
	s.n++
	return s.rows[s.n-1], nil
}

const maxQueries = 100

func parse(message []byte, sig *api.Signature) (*Request, [][]api.Value, error) {
	q, s := &Request{}, &store{width: len(sig.Inputs)}
	err := q.Scan(message)
	if err == nil {
		err = q.Read(sig, s, maxQueries)
	}
	return q, s.rows[:s.n], err
}

func floats(x ...float32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, x)
	return b
}

func elements(items ...string) (b []byte) {
	for _, s := range items {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

func tensorOf(name, datatype string, contents *pb.InferTensorContents, shape ...int64) *pb.ModelInferRequest_InferInputTensor {
	return &pb.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: shape, Contents: contents}
}

func raw(t *pb.ModelInferRequest_InferInputTensor, data []byte) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{t}, RawInputContents: [][]byte{data}}
}

func typed(t *pb.ModelInferRequest_InferInputTensor) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{t}}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		sig  *api.Signature
		m    *pb.ModelInferRequest
		want [][]byte // the first input of each query
		dims []int64
	}{
		{fixed, raw(tensorOf("x", "FP32", nil, 2, 2), floats(1, 2, 3, 4)), [][]byte{floats(1, 2), floats(3, 4)}, nil},
		{fixed, raw(tensorOf("x", "FP32", nil, 2), floats(1, 2)), [][]byte{floats(1, 2)}, nil},
		{fixed, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4, 5, 6}}, 3, 2)), [][]byte{floats(1, 2), floats(3, 4), floats(5, 6)}, nil},
		{ragged, raw(tensorOf("x", "FP32", nil, 1, 2, 2), floats(1, 2, 3, 4)), [][]byte{floats(1, 2, 3, 4)}, []int64{2, 2}},
		{ragged, typed(tensorOf("x", "FP32", nil, 2, 0, 2)), [][]byte{{}, {}}, []int64{0, 2}},
		{scalar, typed(tensorOf("x", "INT32", &pb.InferTensorContents{IntContents: []int32{-1, math.MaxInt32}}, 2)), [][]byte{{255, 255, 255, 255}, {255, 255, 255, 127}}, nil},
		{text1, raw(tensorOf("s", "BYTES", nil, 2), elements("a", "")), [][]byte{[]byte("a"), {}}, nil},
		{text1, typed(tensorOf("s", "BYTES", &pb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), nil}}, 2)), [][]byte{[]byte("a"), {}}, nil},
		{texts, typed(tensorOf("s", "BYTES", &pb.InferTensorContents{BytesContents: [][]byte{[]byte("ä"), []byte("b")}}, 1, 2)), [][]byte{elements("ä", "b")}, []int64{2}},
		{half, raw(tensorOf("h", "FP16", nil, 1, 2), []byte{1, 2, 3, 4}), [][]byte{{1, 2, 3, 4}}, nil},
		{flags, typed(tensorOf("b", "BOOL", &pb.InferTensorContents{BoolContents: []bool{true, false}}, 2)), [][]byte{{1, 0}}, nil},
		{small, typed(tensorOf("i", "INT8", &pb.InferTensorContents{IntContents: []int32{-128, 127}}, 1, 2)), [][]byte{{128, 127}}, []int64{2}},
	} {
		_, rows, err := parse(marshal(t, c.m), c.sig)
		if err != nil {
			t.Errorf("%v: %v", c.m, err)
			continue
		}
		if len(rows) != len(c.want) {
			t.Errorf("%v: %d queries", c.m, len(rows))
			continue
		}
		for i, row := range rows {
			if !bytes.Equal(row[0].Data, c.want[i]) || len(row[0].Dims) != len(c.dims) {
				t.Errorf("%v: query %d is %v %v, want %v %v", c.m, i, row[0].Data, row[0].Dims, c.want[i], c.dims)
			}
		}
	}
}

// TestUnpacked: lists come in parts, and one by one, too.
func TestUnpacked(t *testing.T) {
	var contents []byte
	contents = appendBytes(contents, fp32Contents, floats(1))
	contents = binary.LittleEndian.AppendUint32(appendTag(contents, fp32Contents, typeFixed4), math.Float32bits(2))
	contents = appendBytes(contents, fp32Contents, floats(3, 4))
	var in []byte
	in = appendBytes(in, 1, "x")
	in = appendBytes(in, 2, "FP32")
	in = append(in, 3<<3, 2, 3<<3, 2)
	in = appendBytes(in, 5, contents)
	_, rows, err := parse(appendBytes(nil, 5, in), fixed)
	if err != nil || len(rows) != 2 || !bytes.Equal(rows[1][0].Data, floats(3, 4)) {
		t.Errorf("%v %v", rows, err)
	}
}

func TestParameters(t *testing.T) {
	m := raw(tensorOf("x", "FP32", nil, 2), floats(1, 2))
	m.ModelVersion, m.Id = "3", "7"
	m.Parameters = map[string]*pb.InferParameter{
		"a": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}, "b": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: -5}},
		"c": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "x"}}, "d": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}},
		"e": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 9}}, "f": {},
	}
	m.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "p"}, {Name: "label"}}
	q, _, err := parse(marshal(t, m), fixed)
	if err != nil || string(q.Model) != "m" || string(q.Version) != "3" || string(q.ID) != "7" || len(q.Parameters) != 6 || len(q.Outputs) != 2 || q.Outputs[0] != 1 {
		t.Fatalf("%+v %v", q, err)
	}
	for _, p := range q.Parameters {
		ok := map[string]bool{"a": p.Kind == KindBool && p.Bool, "b": p.Int == -5, "c": string(p.Text) == "x", "d": p.Float == 0.5, "e": p.Uint == 9, "f": p.Kind == KindNone}[string(p.Name)]
		if !ok {
			t.Errorf("parameter %+v", p)
		}
	}
}

func TestRefused(t *testing.T) {
	parameter := func(name string) map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{name: {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 1}}}
	}
	x := func(shape ...int64) *pb.ModelInferRequest_InferInputTensor {
		return tensorOf("x", "FP32", nil, shape...)
	}
	with := func(m *pb.ModelInferRequest, change func(m *pb.ModelInferRequest)) *pb.ModelInferRequest {
		change(m)
		return m
	}
	asking := func(output string, classes int64) func(m *pb.ModelInferRequest) {
		return func(m *pb.ModelInferRequest) {
			m.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: output, Parameters: map[string]*pb.InferParameter{"classification": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: classes}}}}}
		}
	}
	for _, c := range []struct {
		sig  *api.Signature
		m    *pb.ModelInferRequest
		want string
		code api.Code
	}{
		{fixed, raw(x(2, 2), floats(1, 2)), `raw_input_contents[0]: 8 bytes: expected 16 for FP32 of shape [2, 2]`, 0},
		{fixed, raw(x(2, 3), floats(1, 2)), `inputs[0]: the input "x" has shape [2, 3]: expected [-1, 2], or [2] for one query`, 0},
		{fixed, raw(x(0, 2), nil), `inputs[0]: the input "x" has shape [0, 2]: expected one query or more`, 0},
		{fixed, raw(x(101, 2), nil), `inputs[0]: the input "x" has shape [101, 2]: expected at most 100 queries`, 0},
		{fixed, raw(x(-1, 2), nil), `inputs.shape: expected a dimension from 0 to 1073741824, found -1`, 0},
		{ragged, raw(x(1, 1<<30, 2), nil), `inputs[0]: the input "x" has shape [1, 1073741824, 2]: expected at most 1073741824 elements`, 0},
		{ragged, typed(x(1, 1<<29, 2)), `inputs[0].contents: 0 bytes cannot hold the 1073741824 elements of shape [1, 536870912, 2]: expected them in fp32_contents or in raw_input_contents`, 0},
		{fixed, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1, 2, 3}}, 2)), `inputs[0].contents: expected 2 elements for shape [2], found more`, 0},
		{fixed, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1}}, 2)), `inputs[0].contents: 1 elements: expected 2 for shape [2]`, 0},
		{fixed, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp64Contents: []float64{1}}, 2)), `inputs[0].contents.fp64_contents: expected fp32_contents for FP32`, 0},
		{half, typed(tensorOf("h", "FP16", &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}, 2)), `inputs[0].contents: the protocol has no typed contents for FP16: send raw_input_contents`, 0},
		{small, typed(tensorOf("i", "INT8", &pb.InferTensorContents{IntContents: []int32{128}}, 1, 1)), `inputs[0].contents: element 0 does not fit INT8`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) {
			m.Inputs[0].Contents = &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}
		}),
			`raw_input_contents and contents exclude each other: expected the data of all inputs in one of them`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) { m.RawInputContents = append(m.RawInputContents, nil) }), `raw_input_contents: 2 for 1 inputs: expected one for each input, in their order`, 0},
		{fixed, raw(tensorOf("y", "FP32", nil, 2), floats(1, 2)), `inputs[0].name: the model has no input "y": expected "x"`, 0},
		{fixed, raw(tensorOf("", "FP32", nil, 2), floats(1, 2)), `inputs[0]: the name is missing`, 0},
		{fixed, raw(tensorOf("x", "INT32", nil, 2), floats(1, 2)), `inputs[0]: the input "x" has datatype "INT32": expected FP32`, 0},
		{fixed, &pb.ModelInferRequest{}, `inputs: the input "x" (FP32 [-1, 2]) is missing`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) {
			m.Inputs, m.RawInputContents = append(m.Inputs, m.Inputs[0]), append(m.RawInputContents, floats(1, 2))
		}), `inputs[1].name: the input "x" is there twice`, 0},
		{two, with(raw(x(2, 2), floats(1, 2, 3, 4)), func(m *pb.ModelInferRequest) {
			m.Inputs, m.RawInputContents = append(m.Inputs, tensorOf("s", "BYTES", nil, 1)), append(m.RawInputContents, elements("a"))
		}), `inputs[1]: the input "s" is of 1 queries: expected 2, as of "x"`, 0},
		{text1, raw(tensorOf("s", "BYTES", nil, 2), elements("a")), `raw_input_contents[0]: 5 bytes: expected at least 8 for BYTES of shape [2]`, 0},
		{text1, raw(tensorOf("s", "BYTES", nil, 1), []byte{255, 255, 255, 255, 'a'}), `input "s": raw element 0 has a length of 4294967295 bytes, and 1 are left`, 0},
		{text1, raw(tensorOf("s", "BYTES", nil, 1), elements("a", "b")), `input "s": 5 bytes follow the last of 1 raw elements`, 0},
		{texts, raw(tensorOf("s", "BYTES", nil, 1, 1), elements("\xff")), `input "s": element 0 is not valid UTF-8, which a string is`, 0},
		{flags, raw(tensorOf("b", "BOOL", nil, 2), []byte{1, 2}), `input "b": raw element 1 is 2: expected 0 or 1 for BOOL`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) { m.Inputs[0].Parameters = parameter("shared_memory_region") }),
			`inputs[0].parameters: shared memory regions are not supported: send the data in the request`, api.Unsupported},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) {
			m.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "p", Parameters: map[string]*pb.InferParameter{"classification": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "1"}}}}}
		}), `outputs.parameters.classification: expected 0 to 65536 classes`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), asking("p", -1)), `outputs.parameters.classification: expected 0 to 65536 classes`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), asking("p", 1<<16+1)), `outputs.parameters.classification: expected 0 to 65536 classes`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), asking("label", 1)), `outputs[0]: parameters.classification: the output "label" is int64[]: only arrays of numbers have classes`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), asking("text", 1)), `outputs[0]: parameters.classification: the output "text" is string[]: only arrays of numbers have classes`, 0},
		{fixed, with(raw(x(2), floats(1, 2)), func(m *pb.ModelInferRequest) {
			m.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "z"}}
		}), `outputs[0].name: the model has no output "z": expected "label", "p", "text"`, 0},
	} {
		_, _, err := parse(marshal(t, c.m), c.sig)
		e, ok := errors.AsType[*api.Error](err)
		code := c.code
		if code == 0 {
			code = api.InvalidArgument
		}
		if !ok || e.Message != c.want || e.Code != code {
			t.Errorf("%v\n got %v\nwant %s", c.m, err, c.want)
		}
	}
}

// TestTruncated: every beginning of a message is either complete itself or refused.
func TestTruncated(t *testing.T) {
	m := raw(tensorOf("x", "FP32", nil, 2, 2), floats(1, 2, 3, 4))
	m.Parameters = map[string]*pb.InferParameter{"a": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "b"}}}
	message := marshal(t, m)
	for n := range message {
		if _, _, err := parse(message[:n], fixed); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(message))
		}
	}
	for _, bad := range []string{"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x2a\xff\xff\xff\x7f", "\x0b", "\x00", "\x07", "\x0a\x01\xff", "\x08\x01"} {
		if _, _, err := parse([]byte(bad), fixed); err == nil || !strings.Contains(err.Error(), ":") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestReadAsksLate: storage is not asked for before the number of queries is plausible.
func TestReadAsksLate(t *testing.T) {
	for _, m := range []*pb.ModelInferRequest{
		raw(tensorOf("x", "FP32", nil, 100, 2), floats(1)), typed(tensorOf("x", "FP32", nil, 100, 2)),
	} {
		if _, rows, err := parse(marshal(t, m), fixed); err == nil || len(rows) > 0 {
			t.Errorf("%v: %d rows, %v", m, len(rows), err)
		}
	}
}

// TestBorrow: only a large raw input of one query is offered.
func TestBorrow(t *testing.T) {
	sig := signature(api.TensorSpec{Name: "x", DType: api.Uint8, Shape: []int64{-1}})
	for size, want := range map[int64]bool{borrowFrom - 1: false, borrowFrom: true} {
		m := marshal(t, raw(tensorOf("x", "UINT8", nil, 1, size), make([]byte, size)))
		borrowed := false
		q, s := &Request{}, &store{width: 1}
		q.Borrow = func(b []byte) bool { borrowed = true; return int64(len(b)) == size }
		if err := q.Scan(m); err != nil {
			t.Fatal(err)
		}
		if err := q.Read(sig, s, maxQueries); err != nil || borrowed != want || len(s.rows[0][0].Data) > 0 == want {
			t.Errorf("%d bytes: borrowed %v, %d copied, %v", size, borrowed, len(s.rows[0][0].Data), err)
		}
	}
}
