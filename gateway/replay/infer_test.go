package replay

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// oneQuery is where the gateway's codec puts the inputs of one query.
type oneQuery []api.Value

func (q oneQuery) Next() ([]api.Value, error) { return q, nil }

// The gateway's own codec reads the requests, and its answers are read.
func TestInferRoundTrip(t *testing.T) {
	s := &inferlog.Schema{
		Function: "f",
		Inputs:   []api.TensorSpec{{Name: "text", DType: api.Bytes}, {Name: "m", DType: api.Int16, Shape: []int64{2, -1}}, {Name: "words", DType: api.Bytes, Shape: []int64{-1}}},
		Outputs:  []api.TensorSpec{{Name: "text", DType: api.Bytes}, {Name: "p", DType: api.Float64, Shape: []int64{-1}}},
	}
	in := []api.Value{{Data: []byte("\x00\xff")}, {Data: []byte("abcdefgh"), Dims: []int64{2, 2}}, {Data: []byte("\x01\x00\x00\x00x\x00\x00\x00\x00"), Dims: []int64{2}}}
	body, jsonBytes := appendInfer(nil, s, in)
	sig := api.Signature{Inputs: s.Inputs, Outputs: s.Outputs}
	var req oip.Request
	got := oneQuery{{}, {}, {}}
	if err := req.Parse(body, jsonBytes, &sig, got, 1); err != nil {
		t.Fatalf("%s: %v", body[:jsonBytes], err)
	}
	for i := range in {
		if string(in[i].Data) != string(got[i].Data) || !slices.Equal(in[i].Dims, got[i].Dims) {
			t.Errorf("input %d: sent %v, read %v", i, in[i], got[i])
		}
	}
	out := []api.Value{{Data: []byte("hi")}, {Data: make([]byte, 16), Dims: []int64{2}}}
	answer, n, err := oip.AppendResponse(nil, "m", "1", nil, &req, &sig, 1, func(_, k int) *api.Value { return &out[k] })
	if err != nil {
		t.Fatal(err)
	}
	text, err := inferOutput(answer, n, s)
	if err != nil || string(text) != `{"text":{"b64":"aGk="},"p":[0,0]}` {
		t.Errorf("the output is %s, %v", text, err)
	}
	rapid.Check(t, func(t *rapid.T) { // a broken answer is an error or an output
		b := slices.Clone(answer)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] = rapid.Byte().Draw(t, "byte")
		if text, err := inferOutput(b, rapid.IntRange(-1, len(b)+1).Draw(t, "json"), s); err == nil && !json.Valid(text) {
			t.Fatalf("the output is not JSON: %q", text)
		}
	})
}
