package oip

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

var (
	prompt = &api.Signature{Inputs: []api.TensorSpec{{Name: "text_input", DType: api.String, Shape: []int64{1}}, {Name: "n", DType: api.Int32}}}
	lists  = &api.Signature{Inputs: []api.TensorSpec{{Name: "s", DType: api.Bytes, Shape: []int64{-1}}, {Name: "x", DType: api.Float32, Shape: []int64{2}}}}
)

func generateFrom(sig *api.Signature, body string) (*GenerateRequest, []api.Value, error) {
	q, inputs := new(GenerateRequest), make([]api.Value, len(sig.Inputs))
	err := q.Parse([]byte(body), sig, inputs)
	return q, inputs, err
}

func TestGenerateRequests(t *testing.T) {
	for _, c := range []struct {
		sig  *api.Signature
		body string
		want string // the inputs' data and the parameters, or the error
	}{
		{prompt, `{"text_input":"hi","n":2,"id":"7","stream":false,"temperature":0.5,"parameters":{"top_k":[1],"context":"ann"}}`,
			`["\x02\x00\x00\x00hi" "\x02\x00\x00\x00"] {"temperature":0.5,"top_k":[1]} 7`},
		{prompt, `{"text_input":["hi"],"n":2}`, `["\x02\x00\x00\x00hi" "\x02\x00\x00\x00"]  `},
		{lists, `{"s":"a","x":[1,2]}`, `["\x01\x00\x00\x00a" "\x00\x00\x80?\x00\x00\x00@"]  `},
		{lists, `{"s":["a","b"],"x":[1,2]}`, `["\x01\x00\x00\x00a\x01\x00\x00\x00b" "\x00\x00\x80?\x00\x00\x00@"]  `},
		{prompt, `{"n":2}`, `body: the member "text_input" (string[1]) is missing (byte 7)`},
		{prompt, `{"n":2,"n":2}`, `body: the member "n" is there twice (byte 11)`},
		{prompt, `{"text_input":["a","b"],"n":2}`, `text_input: expected 1 strings for string[1], found 2 (byte 18)`},
		{lists, `{"s":"a","x":1}`, `x: expected an array of numbers for float32[2], found 1 (byte 13)`},
		{prompt, `[]`, `body: expected an object, found an array (byte 0)`},
	} {
		q, inputs, err := generateFrom(c.sig, c.body)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			var data []string
			for _, v := range inputs {
				data = append(data, string(v.Data))
			}
			got = fmt.Sprintf("%q %s %s", data, q.Options.Parameters, q.ID)
		}
		if got != c.want {
			t.Errorf("%s is read as\n%s, want\n%s", c.body, got, c.want)
		}
	}
}

func TestGenerate(t *testing.T) {
	f, _ := serveShelf(t, func(it *scheduler.Item) {
		if it.Inputs[0].Data[3] == 0 {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	f.want("POST", "/v2/models/m@1/generate", `{"id":"7","input":[1,2,3,4]}`, 200, `{"model_name":"m","model_version":"1","id":"7","output":10}`)
	f.want("POST", "/v2/models/m/versions/1/generate", `{"input":[0,2,3,4]}`, 502, `{"error":"the model failed on this input","code":"model_error"}`)
	a := f.do("POST", "/v2/models/d/generate", `{"input":[0,2,3,4],"context":"ann"}`)
	want := `{"model_name":"d","parameters":{"query_id":ID,"default":true,"default_explanation":"the model failed on this input","confidence":0,"models":""},"output":-1}`
	if got := withoutID(t, a.Body); a.Status != 200 || got != want {
		t.Errorf("answered %d %s, want %s", a.Status, got, want)
	}
	f.want("POST", "/v2/models/m@1/generate_stream", `{"input":[1,2,3,4]}`, 400, `{"error":"a stream needs HTTP/1.1 or HTTP/2: send the request to …/generate","code":"invalid_argument"}`)
	f.model.Streams = true
	f.want("POST", "/v2/models/m@1/generate", `{"input":[1,2,3,4]}`, 400, `{"error":"m@1 answers in streams: send the request to …/generate_stream","code":"invalid_argument"}`)
}

func TestGeneratedValues(t *testing.T) {
	prefixed := func(text ...string) []byte { return elements(text...) }
	for _, c := range []struct {
		spec api.TensorSpec
		v    api.Value
		want string
	}{
		{api.TensorSpec{DType: api.String}, api.Value{Data: []byte("a")}, `"a"`},
		{api.TensorSpec{DType: api.Bytes}, api.Value{Data: []byte("a")}, `"a"`},
		{api.TensorSpec{DType: api.Bytes}, api.Value{Data: []byte("\xff")}, `{"b64":"/w=="}`},
		{api.TensorSpec{DType: api.String, Shape: []int64{1}}, api.Value{Data: prefixed("a"), Dims: []int64{1}}, `"a"`},
		{api.TensorSpec{DType: api.String, Shape: []int64{-1}}, api.Value{Data: prefixed("a"), Dims: []int64{1}}, `"a"`},
		{api.TensorSpec{DType: api.String, Shape: []int64{-1}}, api.Value{Data: prefixed("a", "b"), Dims: []int64{2}}, `["a","b"]`},
		{api.TensorSpec{DType: api.Float32, Shape: []int64{1}}, api.Value{Data: floats(2)}, `2`},
		{api.TensorSpec{DType: api.Float32, Shape: []int64{2}}, api.Value{Data: floats(2, 3)}, `[2,3]`},
	} {
		if got := string(appendValue(nil, &c.spec, &c.v)); got != c.want {
			t.Errorf("%v is rendered as %s, want %s", c.v, got, c.want)
		}
	}
}

// FuzzGenerate: nothing panics, a refusal has a code, and what is accepted is JSON whose values fit the signature.
func FuzzGenerate(f *testing.F) {
	signatures := append([]*api.Signature{prompt, lists}, fuzzSignatures...)
	f.Add(`{"text_input":"hi","n":2,"id":"7","stream":false,"temperature":0.5,"parameters":{"top_k":[1],"context":"ann"}}`, 0)
	f.Add(`{"text_input":["hi"],"n":2}`, 0)
	f.Add(`{"s":"a","x":[1,2]}`, 1)
	f.Add(`{"s":["a",{"b64":"/w=="}],"x":[1e1,-2],"models":["a"],"slo_ms":1}`, 1)
	f.Add(`{"x":[1,2]}`, 2)
	f.Add(`{"b":[true,false]}`, 9)
	f.Fuzz(func(t *testing.T, body string, which int) {
		sig := signatures[uint(which)%uint(len(signatures))]
		q, inputs, err := generateFrom(sig, body)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.Unsupported || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		if !json.Valid([]byte(body)) || len(q.Options.Parameters) > 0 && !json.Valid(q.Options.Parameters) {
			t.Fatalf("%q is read with the parameters %s", body, q.Options.Parameters)
		}
		for i := range sig.Inputs {
			if err := sig.Inputs[i].Check(&inputs[i]); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if text := appendValue(nil, &sig.Inputs[i], &inputs[i]); !json.Valid(text) {
				t.Fatalf("%q is rendered as %s", body, text)
			}
		}
	})
}
