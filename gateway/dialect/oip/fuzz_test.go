package oip

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

var fuzzSignatures = []*api.Signature{fixed, ragged, scalar, text, texts, two, half, flags, nothing}

// FuzzParse: nothing panics; a refusal has a code and a message for its caller; what is accepted has a JSON part that
// encoding/json takes too, and values that fit the signature in every respect; and it can be answered.
func FuzzParse(f *testing.F) {
	add := func(which int, json string, data ...[]byte) {
		body, jsonLen := binaryBody(json, data...)
		f.Add([]byte(body), jsonLen, which)
	}
	add(0, `{"id":"1","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}]}`)
	add(0, `{"inputs":[{"data":[1,2],"name":"x","shape":[2],"datatype":"FP32"}],"outputs":[{"name":"p","parameters":{"binary_data":true}}]}`)
	add(1, `{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","shape":[1,2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}]}`, floats(1, 2, 3, 4))
	add(2, `{"inputs":[{"name":"x","shape":[3],"datatype":"INT32","data":[1,2,3]}]}`)
	add(3, `{"inputs":[{"name":"s","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}}]}`, elements("a", ""))
	add(4, `{"inputs":[{"name":"s","shape":[2,1],"datatype":"BYTES","data":["a",{"b64":"AA=="}]}]}`)
	add(5, `{"inputs":[{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":4}},{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`, elements(""))
	add(6, `{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","data":[0.1,65504]}]}`)
	add(7, `{"inputs":[{"name":"b","shape":[1,2],"datatype":"BOOL","parameters":{"binary_data_size":2}}]}`, []byte{0, 1})
	add(8, `{"inputs":[{"name":"e","shape":[2,3,0],"datatype":"FP32","data":[]}]}`)
	f.Fuzz(func(t *testing.T, body []byte, jsonLen, which int) {
		sig := fuzzSignatures[uint(which)%uint(len(fuzzSignatures))]
		q, rows, err := parse(string(body), jsonLen, sig)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.Unsupported || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		if jsonLen == WholeBody {
			jsonLen = len(body)
		}
		if !json.Valid(body[:jsonLen]) {
			t.Fatalf("%q is not JSON, and was accepted", body[:jsonLen])
		}
		if len(rows) != q.Queries || q.Queries < 1 || q.Queries > maxQueries || !q.Batched && q.Queries != 1 {
			t.Fatalf("%q: %d queries, %d rows", body, q.Queries, len(rows))
		}
		// The inputs are answered as if they were outputs: AppendResponse refuses a value that does not fit its spec.
		mirror := &api.Signature{Inputs: sig.Inputs, Outputs: sig.Inputs}
		q.Outputs = q.Outputs[:0]
		for i := range sig.Inputs {
			q.Outputs = append(q.Outputs, Output{Index: i, Binary: true})
		}
		answered, n, err := AppendResponse(nil, "m", "", nil, q, mirror, q.Queries, func(query, tensor int) *api.Value { return &rows[query][tensor] })
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		back := bytes.Replace(answered, []byte(`"outputs":[`), []byte(`"inputs":[`), 1)
		again, rowsAgain, err := parse(string(back), n-1, sig)
		if err != nil || again.Queries != q.Queries {
			t.Fatalf("%q: %d queries, %v", back, again.Queries, err)
		}
		for i := range rows {
			for k := range rows[i] {
				if !bytes.Equal(rows[i][k].Data, rowsAgain[i][k].Data) {
					t.Fatalf("%q: query %d input %d changed", back, i, k)
				}
			}
		}
	})
}
