package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

func (f *fixture) get(path string) (*dialect.Answer, string) {
	f.t.Helper()
	a, err := f.local.Do(f.t.Context(), &dialect.Message{Method: "GET", Path: path})
	if err != nil {
		f.t.Fatal(err)
	}
	return a, string(a.Body)
}

func TestDescribe(t *testing.T) {
	sig := api.Signature{
		Inputs:  []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{-1, 2}}},
		Outputs: []api.TensorSpec{{Name: "class", DType: api.Int8}, {Name: "text", DType: api.String}},
	}
	f := serve(t, sig, querytest.Sum, withDefault(`{"class":-1,"text":""}`), func(f *fixture) { f.fn.Label = 1 })
	a, body := f.get("/f")
	var indented bytes.Buffer
	if err := json.Indent(&indented, a.Body, "", " "); err != nil || a.Status != 200 {
		t.Fatalf("%d %s: %v", a.Status, body, err)
	}
	const want = `{"function":"f","models":["m@1"],"slo_ms":60000,"streams":false,"default":{"class":-1,"text":""},"label":"class",` +
		`"inputs":[{"name":"input","dtype":"float32","shape":[-1,2]}],"outputs":[{"name":"class","dtype":"int8","shape":[]},{"name":"text","dtype":"string","shape":[]}],` +
		`"input":{"$schema":"https://json-schema.org/draft/2020-12/schema","description":"float32[-1, 2]","type":"array",` +
		`"items":{"type":"array","items":{"type":["number","null"]},"minItems":2,"maxItems":2}},` +
		`"output":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["class","text"],"properties":{` +
		`"class":{"description":"int8[]","type":"integer","minimum":-128,"maximum":127},"text":{"description":"string[]","type":"string"}}},` +
		`"raw":{"input":true,"output":false},"example":{"input":[[0,0]]}}` + "\n"
	if body != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
	if a, body := f.get("/nothing"); a.Status != 404 || !strings.Contains(body, `no function \"nothing\"`) {
		t.Errorf("an unknown function is answered %d %s", a.Status, body)
	}
	if a, body := f.get("/docs/functions"); a.Status != 200 || body != `{"functions":["f"],"total":1}`+"\n" {
		t.Errorf("the list is %d %s", a.Status, body)
	}
}

// The example of a description is an input that predict takes, for every type and for dimensions of every kind.
func TestDescribeExample(t *testing.T) {
	for d := api.Bool; d.Valid(); d++ {
		for _, shape := range [][]int64{nil, {3}, {-1}, {2, 0, 3}} {
			sig := api.Signature{Inputs: []api.TensorSpec{{Name: "a", DType: d, Shape: shape}, {Name: "b", DType: d, Shape: shape}}, Outputs: querytest.Floats4.Outputs}
			for _, inputs := range [][]api.TensorSpec{sig.Inputs[:1], sig.Inputs} {
				sig.Inputs = inputs
				f := serve(t, sig, says(1))
				_, body := f.get("/f")
				var got struct{ Example json.RawMessage }
				if err := json.Unmarshal([]byte(body), &got); err != nil || got.Example == nil {
					t.Fatalf("%s has no example: %v", body, err)
				}
				want := 200
				if len(shape) == 3 {
					want = 400 // an input with a dimension of 0 has no elements to show
				}
				if a, answer := f.post(predict, string(got.Example)); a.Status != want {
					t.Errorf("%v: %s is answered %d %s", inputs, got.Example, a.Status, answer)
				}
			}
		}
	}
	large := api.Signature{Inputs: []api.TensorSpec{{Name: "image", DType: api.Uint8, Shape: []int64{3, 224, 224}}}, Outputs: querytest.Floats4.Outputs}
	if _, body := serve(t, large, says(1)).get("/f"); strings.Contains(body, "example") || !strings.Contains(body, `"raw":{"input":true`) {
		t.Errorf("a large input is described as %s", body)
	}
}

func TestDescribeIntegers(t *testing.T) {
	for d, want := range map[api.DType]string{api.Uint8: "0 255", api.Uint64: "0 18446744073709551615", api.Int16: "-32768 32767", api.Int64: "-9223372036854775808 9223372036854775807"} {
		if least, most := integerBounds(d); fmt.Sprint(least, most) != want {
			t.Errorf("%v: %d to %d, want %s", d, least, most, want)
		}
	}
}
