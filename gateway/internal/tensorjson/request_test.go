package tensorjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

func spec(dtype api.DType, shape ...int64) []api.TensorSpec {
	return []api.TensorSpec{{Name: "x", DType: dtype, Shape: shape}}
}

// raw encodes numbers as a value's data.
func raw(dtype api.DType, numbers ...float64) []byte {
	var b []byte
	for _, f := range numbers {
		switch dtype {
		case api.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		case api.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		case api.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, api.Float64ToBFloat16(f))
		case api.Float16:
			b = binary.LittleEndian.AppendUint16(b, api.Float64ToFloat16(f))
		default:
			var wide [8]byte
			binary.LittleEndian.PutUint64(wide[:], uint64(int64(f)))
			b = append(b, wide[:dtype.Size()]...)
		}
	}
	return b
}

// elements encodes strings as the data of a BYTES value with a rank above 0.
func elements(list ...string) []byte {
	var b []byte
	for _, s := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

func parse(body string, specs []api.TensorSpec) (*Request, [][]api.Value, error) {
	s, q := &store{width: len(specs), limit: 8}, &Request{}
	err := q.Parse([]byte(body), specs, s)
	return q, s.rows[:s.n], err
}

func TestParse(t *testing.T) {
	two := []api.TensorSpec{{Name: "a", DType: api.Int32, Shape: []int64{2}}, {Name: "b", DType: api.Bytes}}
	one := func(data []byte, dims ...int64) [][]api.Value { return [][]api.Value{{{Data: data, Dims: dims}}} }
	for _, c := range []struct {
		name  string
		specs []api.TensorSpec
		body  string
		want  [][]api.Value
	}{
		{"flat", spec(api.Float32, 3), `{"input": [1, -2.5, 3e2]}`, one(raw(api.Float32, 1, -2.5, 300))},
		{"white space", spec(api.Float64, 3), "\t{\r\n\"input\" :[ 1 ,\n2\t, 3 ] } \n", one(raw(api.Float64, 1, 2, 3))},
		{"scalar", spec(api.Int64), `{"input":-9223372036854775808}`, one(raw(api.Int64, math.MinInt64))},
		{"integral", spec(api.Uint8, 3), `{"input":[255.0, 1e2, 0.5e1]}`, one(raw(api.Uint8, 255, 100, 5))},
		{"signed", spec(api.Int8, -1), `{"input":[-128,127,-0]}`, one(raw(api.Int8, -128, 127, 0), 3)},
		{"16 and 32 bits", spec(api.Uint16, 2), `{"input":[0,65535]}`, one(raw(api.Uint16, 0, 65535))},
		{"uint32", spec(api.Uint32, 2), `{"input":[0,4294967295]}`, one(raw(api.Uint32, 0, 4294967295))},
		{"uint64", spec(api.Uint64, 1), `{"input":[18446744073709551615]}`, one([]byte{255, 255, 255, 255, 255, 255, 255, 255})},
		{"bools", spec(api.Bool, 4), `{"input":[true,false,1,0]}`, one([]byte{1, 0, 1, 0})},
		{"half", spec(api.Float16, 2), `{"input":[65504, -0.1]}`, one(raw(api.Float16, 65504, -0.1))},
		{"nested", spec(api.Float32, 2, 3), `{"input":[[1,2,3],[4,5,6]]}`, one(raw(api.Float32, 1, 2, 3, 4, 5, 6))},
		{"nested as flat", spec(api.Float32, 2, 3), `{"input":[1,2,3,4,5,6]}`, one(raw(api.Float32, 1, 2, 3, 4, 5, 6))},
		{"inferred", spec(api.Float32, -1, 3), `{"input":[[1,2,3],[4,5,6]]}`, one(raw(api.Float32, 1, 2, 3, 4, 5, 6), 2, 3)},
		{"inferred from flat", spec(api.Float32, 3, -1), `{"input":[1,2,3,4,5,6]}`, one(raw(api.Float32, 1, 2, 3, 4, 5, 6), 3, 2)},
		{"two inferred", spec(api.Int32, -1, 1, -1), `{"input":[[[1,2]],[[3,4]],[[5,6]]]}`, one(raw(api.Int32, 1, 2, 3, 4, 5, 6), 3, 1, 2)},
		{"empty", spec(api.Float32, -1), `{"input":[]}`, one(nil, 0)},
		{"empty rows", spec(api.Float32, -1, -1), `{"input":[[],[]]}`, one(nil, 2, 0)},
		{"nothing", spec(api.Float32, -1, -1), `{"input":[]}`, one(nil, 0, 0)},
		{"no rows", spec(api.Float32, -1, -1, 4), `{"input":[[]]}`, one(nil, 1, 0, 4)},
		{"declared empty", spec(api.Float32, 0, 3), `{"input":[]}`, one(nil)},
		{"text", spec(api.Bytes), `{"input":"naïve \u00e9\ud83d\ude00\n\"\\\/"}`, one([]byte("naïve é😀\n\"\\/"))},
		{"empty text", spec(api.Bytes), `{"input":""}`, one(nil)},
		{"base64", spec(api.Bytes), `{"input":{"b64":"AP8B"}}`, one([]byte{0, 255, 1})},
		{"base64 with white space and an escape", spec(api.Bytes), `{"input":{ "b64" : "\/w==" }}`, one([]byte{255})},
		{"base64 with padding", spec(api.Bytes), `{"input":{"b64":"/w=="}}`, one([]byte{255})},
		{"texts", spec(api.Bytes, -1), `{"input":["a", "", {"b64":"AA=="}]}`, one(elements("a", "", "\x00"), 3)},
		{"string", spec(api.String), `{"input":"na\u00efve"}`, one([]byte("naïve"))},
		{"strings", spec(api.String, -1), `{"input":["AA==",""]}`, one(elements("AA==", ""), 2)},
		{"missing values", spec(api.Float64, 3), `{"input":[1,null,3]}`, one([]byte("\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\xf8\x7f\x00\x00\x00\x00\x00\x00\x08\x40"))},
		{"a missing scalar", spec(api.Float32), `{"input":null}`, one([]byte("\x00\x00\xc0\x7f"))},
		{"bfloat16", spec(api.BFloat16, 3), `{"input":[3e38, -0.1, null]}`, one(append(raw(api.BFloat16, 3e38, -0.1), "\xc0\x7f"...))},
		{"missing half", spec(api.Float16, 1), `{"input":[ null ]}`, one([]byte("\x00\x7e"))},
		{"fixed texts", spec(api.Bytes, 1, 2), `{"input":[["ab","c"]]}`, one(elements("ab", "c"), 1, 2)},
		{"batch", spec(api.Int32), `{"input_batch":[1,2,3]}`, [][]api.Value{{{Data: raw(api.Int32, 1)}}, {{Data: raw(api.Int32, 2)}}, {{Data: raw(api.Int32, 3)}}}},
		{"ragged batch", spec(api.Int8, -1), `{"input_batch":[[1],[2,3]]}`, [][]api.Value{{{Data: raw(api.Int8, 1), Dims: []int64{1}}}, {{Data: raw(api.Int8, 2, 3), Dims: []int64{2}}}}},
		{"named", two, `{"input":{"b":"t","a":[1,2]}}`, [][]api.Value{{{Data: raw(api.Int32, 1, 2)}, {Data: []byte("t")}}}},
		{"named batch", two, `{"input_batch":[{"a":[1,2],"b":"s"},{"\u0061":[3,4],"b":"t"}]}`,
			[][]api.Value{{{Data: raw(api.Int32, 1, 2)}, {Data: []byte("s")}}, {{Data: raw(api.Int32, 3, 4)}, {Data: []byte("t")}}}},
		{"unknown members", spec(api.Int8), `{"a":{"b":[1,{"c":null}]},"input":1,"d":[[],{},true,false,"\ud800",-1.5e-3]}`, one(raw(api.Int8, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, got, err := parse(c.body, c.specs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fmt.Sprintf("%v", c.want), fmt.Sprintf("%v", got)); diff != "" {
				t.Error(diff)
			}
			if q.Queries != len(c.want) || q.Batch != strings.Contains(c.body, "input_batch") {
				t.Errorf("got %d queries, batch %v", q.Queries, q.Batch)
			}
		})
	}
}

func TestParseMembers(t *testing.T) {
	q, _, err := parse(`{"salt":"7","context":"us\u0065r","models":["a","b@2"],"ttl_ms":1.5e3,"min_confidence":0.5,"version":"3","input":1}`, spec(api.Int8))
	if err != nil {
		t.Fatal(err)
	}
	if q.Has != HasContext|HasVersion|HasModels|HasMinConfidence|HasTTL|HasSalt {
		t.Errorf("has %b", q.Has)
	}
	got := fmt.Sprintf("%s %s %s %v %v %s", q.Context, q.Version, q.Models, q.MinConfidence, q.TTLMillis, q.Salt)
	if want := "user 3 [a b@2] 0.5 1500 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// The request is reused: nothing of the last body is left. A null counts as absent.
	if err := q.Parse([]byte(`{"input":1,"salt":-12345678901234567890123,"context":null}`), spec(api.Int8), &store{width: 1}); err != nil {
		t.Fatal(err)
	}
	if q.Has != HasSalt || string(q.Salt) != "-12345678901234567890123" || q.Context != nil || q.Version != nil || len(q.Models) != 0 || q.TTLMillis != 0 || q.MinConfidence != 0 {
		t.Errorf("got %+v", q)
	}
}

func TestParseNonFinite(t *testing.T) {
	for _, dtype := range []api.DType{api.Float16, api.Float32, api.Float64} {
		q, s := &Request{NonFinite: true}, &store{width: 1}
		if err := q.Parse([]byte(`{"input":[NaN,Infinity,-Infinity,1]}`), spec(dtype, 4), s); err != nil {
			t.Fatal(err)
		}
		if got, want := s.rows[0][0].Data, raw(dtype, math.NaN(), math.Inf(1), math.Inf(-1), 1); string(got) != string(want) {
			t.Errorf("%s: got %x, want %x", dtype, got, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	many := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	two := []api.TensorSpec{{Name: "image", DType: api.Float32, Shape: []int64{2, 2}}, {Name: "text", DType: api.Bytes}}
	for _, c := range []struct {
		specs      []api.TensorSpec
		body, want string
	}{
		{spec(api.Float32, 3), `{"input":[1,2,"abc"]}`, `input[2]: expected a number, found "abc" (byte 14)`},
		{spec(api.Float32, 3), `{"input_batch":[[1,2,3],[1,2]]}`, `input_batch[1]: expected 3 numbers for float32[3], found 2 (byte 28)`},
		{spec(api.Float32, 3), `{"input":[1,2,3,4,5]}`, `input: expected 3 numbers for float32[3], found 5 (byte 15)`},
		{spec(api.Float32, 3), `{"input":[1,2,3,]}`, `input: expected a value after ',', found ']' (byte 16)`},
		{spec(api.Float32, 3), `{"input":[1,2,3,4,5, ]}`, `input: expected a value after ',', found ']' (byte 21)`},
		{spec(api.Float32, 2, 2), `{"input":[[1,2],[3,4,]]}`, `input[1]: expected a value after ',', found ']' (byte 21)`},
		{spec(api.Float32, -1), `{"input":[1.5,]}`, `input[1]: expected a value after ',', found ']' (byte 14)`},
		{spec(api.Bytes, -1), `{"input":["a",]}`, `input[1]: expected a value after ',', found ']' (byte 14)`},
		{spec(api.Bytes, 1), `{"input":["a",]}`, `input: expected a value after ',', found ']' (byte 14)`},
		{spec(api.Int8), `{"input_batch":[1,2,]}`, `input_batch: expected a value after ',', found ']' (byte 20)`},
		{spec(api.Float32, 3), `{"input":[1,2,3,4,}]}`, `input: expected 3 numbers for float32[3], found more (byte 15)`},
		{spec(api.Float32, 3), `{"input":{"x":[1,2,3]}}`, `input: expected an array of numbers for float32[3], found an object (byte 9)`},
		{spec(api.Float32, 3), `{"input":null}`, `input: expected an array of numbers for float32[3], found null (byte 9)`},
		{spec(api.Float32, 3), `{"input":[1,,2]}`, `input[1]: expected a number, found ',' (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,2,]}`, `input[2]: expected a value after ',', found ']' (byte 14)`},
		{spec(api.Float32, 3), `{"input":[1 2]}`, `input: expected ',' or ']', found 2 (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,NaN,2]}`, `input[1]: expected a number, found NaN, which is not JSON (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,-Infinity,2]}`, `input[1]: expected a number, found -Infinity, which is not JSON (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,1e39,2]}`, `input[1]: 1e39 is out of range for float32 (byte 12)`},
		{spec(api.Float64, 3), `{"input":[1,-1e309,2]}`, `input[1]: -1e309 is out of range for float64 (byte 12)`},
		{spec(api.BFloat16, 2), `{"input":[1,3.4e38]}`, `input[1]: 3.4e38 is out of range for bfloat16 (byte 12)`},
		{spec(api.Float16, 3), `{"input":[1,65520,2]}`, `input[1]: 65520 is out of range for float16 (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,01,2]}`, `input[1]: expected a number, found 01 (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,2.,3]}`, `input[1]: expected a number, found 2. (byte 12)`},
		{spec(api.Float32, 3), `{"input":[1,true,3]}`, `input[1]: expected a number, found true (byte 12)`},
		{spec(api.Uint8, 3), `{"input":[1,256,3]}`, `input[1]: 256 is out of range for uint8 (byte 12)`},
		{spec(api.Uint8, 3), `{"input":[1,-1,3]}`, `input[1]: -1 is out of range for uint8 (byte 12)`},
		{spec(api.Int8, 3), `{"input":[1,-129,3]}`, `input[1]: -129 is out of range for int8 (byte 12)`},
		{spec(api.Int64, 1), `{"input":[9223372036854775808]}`, `input[0]: 9223372036854775808 is out of range for int64 (byte 10)`},
		{spec(api.Uint64, 1), `{"input":[18446744073709551616]}`, `input[0]: 18446744073709551616 is out of range for uint64 (byte 10)`},
		{spec(api.Int32, 1), `{"input":[1.5]}`, `input[0]: expected an integer for int32, found 1.5 (byte 10)`},
		{spec(api.Bool, 1), `{"input":[2]}`, `input[0]: 2 is out of range for bool (byte 10)`},
		{spec(api.Bool, 1), `{"input":["true"]}`, `input[0]: expected true or false, found "true" (byte 10)`},
		{spec(api.Bool, 1), `{"input":[trueish]}`, `input: expected ',' or ']', found ish (byte 14)`},
		{spec(api.Float32, 2, 2), `{"input":[[1,2],[3]]}`, `input[1]: expected 2 elements, found 1 (float32[2, 2]) (byte 18)`},
		{spec(api.Float32, 2, 2), `{"input":[[1,2],3]}`, `input[1]: expected an array, found 3 (byte 16)`},
		{spec(api.Float32, 2, 2), `{"input":[[1,2],[3,[4]]]}`, `input[1][1]: expected a number, found an array (byte 19)`},
		{spec(api.Float32, 2, 2), `{"input":[[1,2],[3,4],[5,6]]}`, `input: expected 2 rows for float32[2, 2], found more (byte 22)`},
		{spec(api.Float32, -1, 2), `{"input":[1,2,3]}`, `input: expected a multiple of 2 numbers for float32[-1, 2], found 3 (byte 16)`},
		{spec(api.Float32, -1, -1), `{"input":[1,2,3]}`, `input: expected arrays nested as float32[-1, -1]: a flat array leaves more than one dimension open (byte 9)`},
		{spec(api.Float32, -1, -1), `{"input":[[1,2],[3]]}`, `input[1]: expected 2 elements, found 1 (float32[-1, -1]) (byte 18)`},
		{spec(api.Float32, 0), `{"input":[1]}`, `input: expected an empty array for float32[0], found 1 (byte 10)`},
		{spec(api.Float32), `{"input":[1]}`, `input: expected a number, found an array (byte 9)`},
		{spec(api.Bytes), `{"input":1}`, `input: expected a string or {"b64": …}, found 1 (byte 9)`},
		{spec(api.String), `{"input":{"b64":"AA=="}}`, `input: expected a string, found an object (byte 9)`},
		{spec(api.Int32, 2), `{"input":[1,null]}`, `input[1]: expected a number, found null (byte 12)`},
		{spec(api.Bytes, -1), `{"input":["a",1]}`, `input[1]: expected a string or {"b64": …}, found 1 (byte 14)`},
		{spec(api.Bytes), "{\"input\":\"a\xff\"}", `input: a string is not UTF-8: expected UTF-8, or bytes as {"b64": …} (byte 9)`},
		{spec(api.Bytes), `{"input":"\ud800"}`, `input: a string has an unpaired surrogate: expected \uD8XX\uDCXX (byte 10)`},
		{spec(api.Bytes), `{"input":"\udc00\ud800"}`, `input: a string has an unpaired surrogate: expected \uD8XX\uDCXX (byte 10)`},
		{spec(api.Bytes), `{"input":"\ud800\u0041"}`, `input: a string has an unpaired surrogate: expected \uD8XX\uDCXX (byte 10)`},
		{spec(api.Bytes), `{"input":"\x"}`, `input: a string has a malformed escape: expected one of \" \\ \/ \b \f \n \r \t \uXXXX (byte 10)`},
		{spec(api.Bytes), "{\"input\":\"a\nb\"}", `input: a string has the unescaped control character 0x0a (byte 11)`},
		{spec(api.Bytes), `{"input":"abc`, `input: unterminated string: expected '"' (byte 13)`},
		{spec(api.Bytes), `{"input":{"b64":"a*=="}}`, `input: "b64" is not base64: expected the standard alphabet (A–Z a–z 0–9 + /), padded with = and without white space (byte 16)`},
		{spec(api.Bytes), `{"input":{"b64":"/w"}}`, `input: "b64" is not base64: expected the standard alphabet (A–Z a–z 0–9 + /), padded with = and without white space (byte 16)`},
		{spec(api.Bytes), `{"input":{"b64":"AA==","c":1}}`, `input: expected bytes as an object with the one member "b64", found more members (byte 27)`},
		{spec(api.Bytes), `{"input":{"B64":"AA=="}}`, `input: expected bytes as an object with the one member "b64" (byte 16)`},
		{spec(api.Bytes), `{"input":{}}`, `input: expected bytes as an object with the one member "b64" (byte 11)`},
		{spec(api.Bytes), `{"input":{"b64":1}}`, `input: expected a string, found 1 (byte 16)`},
		{two, `{"input":{"image":[[1,2],[3,true]],"text":""}}`, `input.image[1][1]: expected a number, found true (byte 28)`},
		{two, `{"input_batch":[{"text":"","image":[1,2,3]}]}`, `input_batch[0].image: expected 4 numbers for float32[2, 2], found 3 (byte 41)`},
		{two, `{"input":{"image":[1,2,3,4]}}`, `input: the input "text" (bytes[]) is missing (byte 28)`},
		{two, `{"input":{"image":[1,2,3,4],"image":[1,2,3,4]}}`, `input: duplicate input "image" (byte 36)`},
		{two, `{"input":{"img":[1,2,3,4]}}`, `input: unknown input "img": expected "image", "text" (byte 16)`},
		{two, `{"input":[1,2,3,4]}`, `input: expected an object of the inputs "image", "text", found an array (byte 9)`},
		{spec(api.Int8), `{}`, `body: expected a member "input" or "input_batch" (byte 2)`},
		{spec(api.Int8), `{"x":1}`, `body: expected a member "input" or "input_batch" (byte 7)`},
		{spec(api.Int8), `{"inputs":[1]}`, `body: there is no member "inputs": expected "input" for one query or "input_batch" for several (byte 10)`},
		{spec(api.Int8), `{"instances":[1],"input":1}`, `body: there is no member "instances": expected "input" for one query or "input_batch" for several (byte 13)`},
		{spec(api.Int8), `{"input":1,"data":[1]}`, `body: there is no member "data": expected "input" for one query or "input_batch" for several (byte 18)`},
		{spec(api.Int8), `{"Input":1}`, `body: there is no member "Input": expected "input" for one query or "input_batch" for several (byte 9)`},
		{spec(api.Int8), `{"inputBatch":[1]}`, `body: there is no member "inputBatch": expected "input" for one query or "input_batch" for several (byte 14)`},
		{spec(api.Int8), `{"input":1,"input":2}`, `body: duplicate member "input" (byte 19)`},
		{spec(api.Int8), `{"input":1,"input_batch":[2]}`, `body: expected one of "input" and "input_batch", found both (byte 25)`},
		{spec(api.Int8), `{"input_batch":[2],"in\u0070ut":1}`, `body: expected one of "input" and "input_batch", found both (byte 32)`},
		{spec(api.Int8), `{"input_batch":[]}`, `input_batch: expected at least one input, found an empty array (byte 17)`},
		{spec(api.Int8), `{"input_batch":3}`, `input_batch: expected an array, found 3 (byte 15)`},
		{spec(api.Int8), `{"input_batch":[1,]}`, `input_batch: expected a value after ',', found ']' (byte 18)`},
		{spec(api.Int8), `{"input":1} x`, `body: expected the end of the body, found x (byte 12)`},
		{spec(api.Int8), `{"input":1`, `body: expected ',' or '}', found the end of the body (byte 10)`},
		{spec(api.Int8), `{"input":1,}`, `body: expected a member's name in quotes, found '}' (byte 11)`},
		{spec(api.Int8), `{input:1}`, `body: expected a member's name in quotes, found input (byte 1)`},
		{spec(api.Int8), `{"input" 1}`, `body: expected ':', found 1 (byte 9)`},
		{spec(api.Int8), ``, `body: expected an object, found the end of the body (byte 0)`},
		{spec(api.Int8), `[1]`, `body: expected an object with a member "input" or "input_batch", found an array (byte 0)`},
		{spec(api.Int8), "\xef\xbb\xbf{}", `body: expected an object, found '\ufeff' (byte 0)`},
		{spec(api.Int8), `{"x":` + many + `,"input":1}`, `body: nested too deeply: expected at most 64 levels (byte 69)`},
		{spec(api.Int8), `{"x":[1,],"input":1}`, `body: expected a value, found ']' (byte 8)`},
		{spec(api.Int8), `{"x":{"a":1,},"input":1}`, `body: expected a member's name in quotes, found '}' (byte 12)`},
		{spec(api.Int8), `{"x":[1},"input":1}`, `body: expected ',' or ']', found '}' (byte 7)`},
		{spec(api.Int8), `{"x":nul,"input":1}`, `body: expected a value, found nul (byte 5)`},
		{spec(api.Int8), `{"x":-,"input":1}`, `body: expected a value, found - (byte 5)`},
		{spec(api.Int8), `{"context":1,"input":1}`, `context: expected a string, found 1 (byte 11)`},
		{spec(api.Int8), `{"context":"a","context":"b","input":1}`, `context: duplicate member (byte 25)`},
		{spec(api.Int8), `{"models":[],"input":1}`, `models: expected at least one model, found an empty array (byte 12)`},
		{spec(api.Int8), `{"models":[1],"input":1}`, `models[0]: expected a string, found 1 (byte 11)`},
		{spec(api.Int8), `{"min_confidence":1.5,"input":1}`, `min_confidence: expected a number from 0 to 1, found 1.5 (byte 21)`},
		{spec(api.Int8), `{"ttl_ms":-1,"input":1}`, `ttl_ms: expected a number of 0 or more, found -1 (byte 12)`},
		{spec(api.Int8), `{"ttl_ms":1e999,"input":1}`, `ttl_ms: 1e999 is out of range: expected a number that fits float64 (byte 10)`},
		{spec(api.Int8), `{"salt":1.5,"input":1}`, `salt: expected a string or an integer, found 1.5 (byte 8)`},
		{spec(api.Int8), `{"salt":1e3,"input":1}`, `salt: expected a string or an integer, found 1e3 (byte 8)`},
	} {
		_, _, err := parse(c.body, c.specs)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.InvalidArgument || e.Message != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.body, err, c.want)
		}
	}
}

func TestParseLimits(t *testing.T) {
	body := `{"models":["a"` + strings.Repeat(`,"a"`, MaxModels) + `],"input":1}`
	if _, _, err := parse(body, spec(api.Int8)); err == nil || !strings.Contains(err.Error(), "too many models: expected at most 64") {
		t.Errorf("models: got %v", err)
	}
	_, _, err := parse(`{"input_batch":[1`+strings.Repeat(",1", 8)+`]}`, spec(api.Int8))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.TooLarge {
		t.Errorf("want the sink's error unchanged, got %v", err)
	}
	if _, _, err := parse(`{"input":{}}`, make([]api.TensorSpec, MaxInputs+1)); err == nil {
		t.Error("more than MaxInputs inputs were accepted")
	}
	if err := new(Request).Parse([]byte(`{"input":1}`), spec(api.Int8), &store{width: 2}); err == nil {
		t.Error("storage of the wrong width was accepted")
	}
	if _, _, err := parse(`{"input":`+strings.Repeat("[", 100)+`1]}`, spec(api.Int8, make([]int64, api.MaxRank+1)...)); err == nil {
		t.Error("a shape with too many dimensions was accepted")
	}
}

// Storage that held a larger value keeps nothing of it, and steady state does not allocate.
func TestParseReuse(t *testing.T) {
	for _, c := range []struct {
		specs []api.TensorSpec
		body  string
	}{
		{spec(api.Float32, -1, 2), `{"input_batch":[[[1,2],[3,4]],[[5,6]]],"context":"a\nb","models":["m"],"salt":1}`},
		{spec(api.Float64, 3), `{"input":[1.23456789012345678,1e-30,2.5]}`},
		{spec(api.Float16, 2), `{"input":[0.1,2049.0]}`},
		{spec(api.Int16, 2), `{"input":[1e2,-7]}`},
		{spec(api.Bytes), `{"input":{"b64":"YWJj\/w=="}}`},
		{spec(api.Bytes, -1), `{"input":["a\u00e9",{"b64":"YWJj"}]}`},
		{[]api.TensorSpec{{Name: "a", DType: api.Bool}, {Name: "b", DType: api.Bytes}}, `{"input":{"b":"t","a":true}}`},
	} {
		s, q := &store{width: len(c.specs)}, &Request{}
		body := []byte(c.body)
		run := func() {
			s.n = 0
			if err := q.Parse(body, c.specs, s); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", c.body, n)
		}
		want := fmt.Sprint(s.rows[:s.n])
		for i := range s.rows {
			for k := range s.rows[i] {
				s.rows[i][k] = api.Value{Data: append([]byte("left over from a larger value"), make([]byte, 64)...), Dims: []int64{9, 9, 9, 9}}
			}
		}
		run()
		if got := fmt.Sprint(s.rows[:s.n]); got != want {
			t.Errorf("%s: got %s, want %s", c.body, got, want)
		}
	}
}
