package tensorjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// FuzzNumber compares every JSON number with strconv's rounding for float64 and float32, and with exact arithmetic for
// float16 and integers.
func FuzzNumber(f *testing.F) {
	for _, s := range numbers {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 1000 {
			return
		}
		_, _, next, flags := scan([]byte(s), 0)
		valid := json.Valid([]byte(s)) && s[0] != '"' && s[0] != '{' && s[0] != '[' && s[0] != 't' && s[0] != 'f' && s[0] != 'n' && s[0] > ' ' && s[len(s)-1] > ' '
		if got := flags&malformed == 0 && next == len(s); got != valid {
			t.Fatalf("%q: is a number: %v, encoding/json says %v", s, got, valid)
		}
		if !valid {
			return
		}
		checkFloat(t, s)
		_, mag, _, st := integer([]byte(s), 0)
		if _, exp, _, _ := scan([]byte(s), 0); exp > 1000 || exp < -2000 {
			return // big.Rat would take too long
		}
		x, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatalf("big.Rat cannot parse %q", s)
		}
		want := numOK
		switch x.Abs(x); {
		case x.Cmp(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 64))) >= 0:
			want = numRange
		case !x.IsInt():
			want = numFraction
		}
		if want == numOK && (st != numOK || x.Num().Uint64() != mag) || (st == numOK) != (want == numOK) {
			t.Fatalf("integer %q: got %d %d, want %d %s", s, mag, st, want, x)
		}
	})
}

// FuzzSkip: Skip accepts what encoding/json accepts, except for excessive depth and bytes that are not UTF-8.
func FuzzSkip(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"a":[1,{"b":null}],"c":"\u00e9\ud800"}`, `[1,]`, `{"a":1,}`, `{"a"}`, `[[[[]]]]`, ` true `, `nul`, "\"\xff\"", `"\u12g4"`, `-`, `1e5`, "\"\x1f\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Reader
		r.Reset(body)
		err := r.Skip()
		if err == nil {
			err = r.End()
		}
		if want := json.Valid(body) && utf8.Valid(body) && depth(body) <= MaxDepth; (err == nil) != want {
			t.Fatalf("%q: got %v, encoding/json says %v", body, err, want)
		}
	})
}

// depth returns the nesting of a valid text.
func depth(body []byte) int {
	deepest, level, quoted := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			level++
			deepest = max(deepest, level)
		case c == ']' || c == '}':
			level--
		}
	}
	return deepest
}

// fuzzSpecs are the signatures with which FuzzParse parses bodies.
var fuzzSpecs = [][]api.TensorSpec{
	spec(api.Float32, 3), spec(api.Float64, -1, 2), spec(api.Int16), spec(api.Uint64, -1, -1), spec(api.Bool, 2, 2), spec(api.Bytes), spec(api.Bytes, -1), spec(api.Float16, -1), spec(api.BFloat16, -1),
	{{Name: "a", DType: api.Float32, Shape: []int64{2}}, {Name: "b", DType: api.Bytes}},
}

// FuzzParse: nothing panics, errors have a message for the caller, and accepted bodies are JSON and agree with
// encoding/json.
func FuzzParse(f *testing.F) {
	for i, s := range []string{
		`{"input":[1,2.5,-3e2]}`, `{"input_batch":[[[1,2]],[3,4]]}`, `{"input":7,"context":"x","salt":1}`, `{"input":[[1,2],[3,4]]}`, `{"input":[[true,false],[1,0]]}`,
		`{"input":{"b64":"AAEC"}}`, `{"input_batch":[["a",{"b64":"/w=="}],[]]}`, `{"models":["a@1"],"input":[0.1,65504]}`, `{"input":{"b":"\ud83d\ude00","a":[1,2]}}`,
	} {
		f.Add([]byte(s), i)
	}
	f.Fuzz(func(t *testing.T, body []byte, which int) {
		specs := fuzzSpecs[uint(which)%uint(len(fuzzSpecs))]
		s, q := &store{width: len(specs), limit: 100}, &Request{}
		err := q.Parse(bytes.Clone(body), specs, s)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.TooLarge || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was accepted, but is not JSON", body)
		}
		var top map[string]json.RawMessage
		if err := json.Unmarshal(body, &top); err != nil {
			t.Fatal(err)
		}
		inputs := []json.RawMessage{top["input"]}
		if q.Batch {
			if err := json.Unmarshal(top["input_batch"], &inputs); err != nil {
				t.Fatal(err)
			}
		}
		if len(inputs) != q.Queries || s.n != q.Queries {
			t.Fatalf("%q: %d queries, encoding/json finds %d", body, q.Queries, len(inputs))
		}
		for i, in := range inputs {
			parts := map[string]json.RawMessage{specs[0].Name: in}
			if len(specs) > 1 {
				if err := json.Unmarshal(in, &parts); err != nil || len(parts) != len(specs) {
					t.Fatalf("%q: %v", in, err)
				}
			}
			for k := range specs {
				got := s.rows[i][k]
				if want := reference(t, parts[specs[k].Name], specs[k]); string(got.Data) != string(want) {
					t.Fatalf("%s of %q: got %x, want %x", specs[k], in, got.Data, want)
				}
				if !specs[k].Fixed() && len(specs[k].Shape) > 0 && !api.FitsShape(specs[k].Shape, got.Dims) {
					t.Fatalf("%s of %q: dims %v", specs[k], in, got.Dims)
				}
			}
		}
	})
}

// reference parses a value with encoding/json.
func reference(t *testing.T, text []byte, s api.TensorSpec) (data []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(node any) {
		var item string
		switch node := node.(type) {
		case []any:
			for _, n := range node {
				walk(n)
			}
			return
		case json.Number:
			data = append(data, referenceNumber(t, string(node), s.DType)...)
			return
		case bool:
			data = append(data, raw(api.Bool, map[bool]float64{true: 1}[node])...)
			return
		case string:
			item = node
		case map[string]any:
			text := node["b64"].(string)
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(node) != 1 || base64.StdEncoding.EncodeToString(b) != text {
				t.Fatalf("%v was accepted: %v", node, err)
			}
			item = string(b)
		}
		if len(s.Shape) > 0 {
			data = append(data, elements(item)...)
		} else {
			data = append(data, item...)
		}
	}
	walk(tree)
	return data
}

func referenceNumber(t *testing.T, text string, dtype api.DType) []byte {
	switch dtype {
	case api.BFloat16:
		h := roundBrain16(t, text)
		return []byte{byte(h), byte(h >> 8)}
	case api.Float16:
		h := round16(t, text)
		return []byte{byte(h), byte(h >> 8)}
	case api.Float32:
		f, _ := strconv.ParseFloat(text, 32)
		return raw(dtype, f)
	case api.Float64:
		f, _ := strconv.ParseFloat(text, 64)
		return raw(dtype, f)
	}
	x, _ := new(big.Rat).SetString(text)
	if !x.IsInt() || x.Num().BitLen() > 64 {
		t.Fatalf("%s was accepted for %s", text, dtype)
	}
	mag := new(big.Int).And(x.Num(), new(big.Int).SetUint64(math.MaxUint64)).Uint64() // two's complement
	var b []byte
	for range dtype.Size() {
		b = append(b, byte(mag))
		mag >>= 8
	}
	return b
}
