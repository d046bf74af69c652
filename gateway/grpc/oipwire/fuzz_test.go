package oipwire

import (
	"bytes"
	"errors"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
)

var fuzzSignatures = []*api.Signature{fixed, ragged, scalar, text1, texts, two, half, flags, small}

// FuzzRequest: nothing panics; a refusal has a code and a message for its caller; what is accepted is a protocol buffer to the library, too, with the same
// name, and values that fit the signature in every respect; and answered as outputs, raw and typed, the values come back unchanged.
func FuzzRequest(f *testing.F) {
	add := func(which int, m *pb.ModelInferRequest) { f.Add(marshal(f, m), which) }
	add(0, raw(tensorOf("x", "FP32", nil, 2, 2), floats(1, 2, 3, 4)))
	add(0, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}, 2)))
	add(1, raw(tensorOf("x", "FP32", nil, 1, 2, 2), floats(1, 2, 3, 4)))
	add(2, typed(tensorOf("x", "INT32", &pb.InferTensorContents{IntContents: []int32{-1, 5}}, 2)))
	add(3, raw(tensorOf("s", "BYTES", nil, 2), elements("a", "")))
	add(4, typed(tensorOf("s", "BYTES", &pb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), nil}}, 1, 2)))
	both := raw(tensorOf("x", "FP32", nil, 1, 2), floats(1, 2))
	both.Inputs, both.RawInputContents = append(both.Inputs, tensorOf("s", "BYTES", nil, 1)), append(both.RawInputContents, elements("a"))
	both.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "p"}}
	both.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 5}}}
	add(5, both)
	add(6, raw(tensorOf("h", "FP16", nil, 1, 2), []byte{1, 2, 3, 4}))
	add(7, raw(tensorOf("b", "BOOL", nil, 1, 2), []byte{0, 1}))
	add(8, typed(tensorOf("i", "INT8", &pb.InferTensorContents{IntContents: []int32{-128}}, 1, 1)))
	f.Fuzz(func(t *testing.T, message []byte, which int) {
		sig := fuzzSignatures[uint(which)%uint(len(fuzzSignatures))]
		q, rows, err := parse(message, sig)
		inParts(t, message, sig, rows, err)
		if err != nil {
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Code != api.InvalidArgument && e.Code != api.Unsupported || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", message, err)
			}
			return
		}
		var known pb.ModelInferRequest
		if err := proto.Unmarshal(message, &known); err != nil || known.ModelName != string(q.Model) || known.Id != string(q.ID) || len(known.Inputs) != len(q.inputs) {
			t.Fatalf("%q was accepted with the name %q, and is to the library %v, %v", message, q.Model, &known, err)
		}
		if len(rows) != q.Queries || q.Queries < 1 || q.Queries > maxQueries || !q.Batched && q.Queries != 1 {
			t.Fatalf("%q: %d queries, %d rows", message, q.Queries, len(rows))
		}
		mirror := &api.Signature{Inputs: sig.Inputs, Outputs: sig.Inputs}
		for _, asRaw := range []bool{true, false} {
			r := &Response{Model: "m", Signature: mirror, Batched: q.Batched, Queries: q.Queries, Raw: asRaw, Output: func(i, k int) *api.Value { return &rows[i][k] }}
			for i := range sig.Inputs {
				r.Outputs = append(r.Outputs, i)
			}
			most, err := r.Measure()
			if err != nil {
				t.Fatalf("%q: %v", message, err)
			}
			out := r.Append(nil)
			var answer pb.ModelInferResponse
			if err := proto.Unmarshal(out, &answer); err != nil || len(out) > most {
				t.Fatalf("%q is answered by %q of at most %d bytes: %v", message, out, most, err)
			}
			back := &pb.ModelInferRequest{ModelName: "m", RawInputContents: answer.RawOutputContents}
			for _, o := range answer.Outputs {
				back.Inputs = append(back.Inputs, tensorOf(o.Name, o.Datatype, o.Contents, o.Shape...))
			}
			_, again, err := parse(marshal(t, back), sig)
			if err != nil || len(again) != len(rows) {
				t.Fatalf("%v: %d rows, %v", back, len(again), err)
			}
			for i := range rows {
				for k := range rows[i] {
					if !bytes.Equal(rows[i][k].Data, again[i][k].Data) {
						t.Fatalf("%v: query %d input %d changed", back, i, k)
					}
				}
			}
		}
	})
}

// inParts: a message of which only the beginning is looked at first, and the contents are added later, is read as the whole one.
func inParts(t *testing.T, message []byte, sig *api.Signature, rows [][]api.Value, want error) {
	for _, n := range []int{len(message), len(message) - 1, len(message) / 2} {
		if n <= 0 {
			continue
		}
		end, data, ok := Contents(message[:n], len(message))
		if !ok {
			continue
		}
		if end < 0 || end >= data || data >= len(message) || data > n {
			t.Fatalf("%q: contents after %d from %d on", message, end, data)
		}
		q, s := &Request{}, &store{width: len(sig.Inputs)}
		err := q.Scan(message[:end])
		if err == nil {
			q.AddContents(message[data:])
			err = q.Read(sig, s, maxQueries)
		}
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Fatalf("%q in parts: %v, whole: %v", message, err, want)
		}
		for i := range rows {
			for k := range rows[i] {
				if !bytes.Equal(rows[i][k].Data, s.rows[i][k].Data) {
					t.Fatalf("%q in parts: query %d input %d differs", message, i, k)
				}
			}
		}
	}
}
