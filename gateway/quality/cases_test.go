package quality

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tensor(name string, d api.DType, shape ...int64) api.TensorSpec {
	return api.TensorSpec{Name: name, DType: d, Shape: shape}
}

func floats32(x ...float32) (b []byte) {
	for _, f := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func ints64(x ...int64) (b []byte) {
	for _, n := range x {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func compressed(t testing.TB, text []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(text, nil)
}

// pair takes two numbers and returns one.
var pair = api.Signature{Inputs: []api.TensorSpec{tensor("x", api.Float32, 2)}, Outputs: []api.TensorSpec{tensor("y", api.Int64)}}

// text takes strings and a number, and returns text and a list.
var text = api.Signature{
	Inputs:  []api.TensorSpec{tensor("words", api.Bytes, -1), tensor("n", api.Int64)},
	Outputs: []api.TensorSpec{tensor("summary", api.Bytes), tensor("scores", api.Float32, -1)},
}

func TestReadCases(t *testing.T) {
	for _, c := range []struct {
		name, file string
		sig        api.Signature
		want       []Case
	}{
		{"with and without a label", `{"input": [1, 2], "label": 3}` + "\n" + `{"input": [3, 4]}` + "\n", pair, []Case{
			{Line: 1, Inputs: []api.Value{{Data: floats32(1, 2)}}, Label: []api.Value{{Data: ints64(3)}}},
			{Line: 2, Inputs: []api.Value{{Data: floats32(3, 4)}}},
		}},
		{"a byte order mark, as some editors write", "\ufeff" + `{"input": [1, 2], "label": 3}` + "\n", pair, []Case{
			{Line: 1, Inputs: []api.Value{{Data: floats32(1, 2)}}, Label: []api.Value{{Data: ints64(3)}}},
		}},
		{"blank lines, no final newline, a null label, CRLF", "\n \t\r\n" + `{"label": null, "input": [1, 2]}` + "\r\n\r\n" + `{"label":-1,"input":[0,0]}`, pair, []Case{
			{Line: 3, Inputs: []api.Value{{Data: floats32(1, 2)}}},
			{Line: 5, Inputs: []api.Value{{Data: floats32(0, 0)}}, Label: []api.Value{{Data: ints64(-1)}}},
		}},
		{"several tensors", `{"input": {"n": 7, "words": ["a", {"b64": "/w=="}]}, "label": {"summary": {"b64": "YQ=="}, "scores": [0.5]}}`, text, []Case{{
			Line:   1,
			Inputs: []api.Value{{Data: []byte("\x01\x00\x00\x00a\x01\x00\x00\x00\xff"), Dims: []int64{2}}, {Data: ints64(7)}},
			Label:  []api.Value{{Data: []byte("a")}, {Data: floats32(0.5), Dims: []int64{1}}},
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain := filepath.Join(t.TempDir(), "q.jsonl")
			for path, data := range map[string][]byte{plain: []byte(c.file), plain + ".zst": compressed(t, []byte(c.file))} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				got, err := ReadCases(path, c.sig, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", path, diff)
				}
			}
		})
	}
}

func TestReadCasesRefuses(t *testing.T) {
	const good = `{"input": [1, 2], "label": 3}` + "\n"
	for _, c := range []struct{ name, file, want string }{
		{"nothing", "", `q.jsonl: has no queries: expected lines of {"input": …}`},
		{"white space", "\n\n \n", `q.jsonl: has no queries`},
		{"not JSON", good + "[1, 2]\n", `q.jsonl:2: body: expected an object, found an array (byte 0)`},
		{"half a line", good + good[:9], `q.jsonl:2: body: expected a value, found the end of the body (byte 9)`},
		{"no input", `{"label": 3}`, `q.jsonl:1: body: expected a member "input" (byte 12)`},
		{"a third member", `{"input": [1, 2], "labels": 3}`, `q.jsonl:1: body: unknown member "labels": a recorded query has only "input" and "label" (byte 27)`},
		{"a batch", `{"input_batch": [[1, 2]]}`, `unknown member "input_batch"`},
		{"an input twice", `{"input": [1, 2], "input": [1, 2]}`, `duplicate member "input"`},
		{"a label twice", `{"input": [1, 2], "label": null, "label": 3}`, `duplicate member "label"`},
		{"another shape", `{"input": [1, 2, 3]}`, `q.jsonl:1: input: expected 2 numbers for float32[2], found 3`},
		{"another label", good + good + `{"input": [1, 2], "label": 3.5}`, `q.jsonl:3: label: expected an integer for int64, found 3.5`},
		{"input null", `{"input": null}`, `q.jsonl:1: input: expected an array of numbers for float32[2], found null`},
		{"trailing data", `{"input": [1, 2]} {"input": [1, 2]}`, `q.jsonl:1: body: expected the end of the body`},
		{"too many", good + good + good + good, `q.jsonl:4: a file may have at most 3 queries: remove some`},
		{"too long", good + strings.Repeat(" ", 400), `q.jsonl: has more than 400 bytes of text: remove some queries`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, how := range []string{"", ".zst"} {
				path := filepath.Join(t.TempDir(), "q.jsonl"+how)
				data := []byte(c.file)
				if how != "" {
					data = compressed(t, data)
				}
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				want := strings.Replace(c.want, "q.jsonl", path, 1)
				got, err := ReadCases(path, pair, 3, 400)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path+":") {
					t.Errorf("got %v, %v; expected %s", got, err, want)
				}
			}
		})
	}
}

// TestReadCasesBounds: small text can make large tensors, and a small compressed file large text.
func TestReadCasesBounds(t *testing.T) {
	sig := api.Signature{Inputs: []api.TensorSpec{tensor("x", api.Float64, -1)}, Outputs: pair.Outputs}
	line := `{"input":[` + strings.Repeat("0,", 200) + "0]}\n" // 413 bytes of text, 1608 of tensors
	if cases, err := readCases("q", strings.NewReader(line+line), sig, 0, 4000); err != nil || len(cases) != 2 {
		t.Errorf("two lines: %v", err)
	}
	if _, err := readCases("q", strings.NewReader(line+line+line), sig, 0, 4000); err == nil || err.Error() != "q:3: the queries up to this line take more than 4000 bytes as tensors: remove some" {
		t.Errorf("three lines: %v", err)
	}
	bomb := compressed(t, bytes.Repeat([]byte(" "), 64<<20))
	if len(bomb) > 64<<10 {
		t.Fatalf("the zstd bomb has %d bytes", len(bomb))
	}
	if _, err := readCompressed("q.zst", bytes.NewReader(bomb), sig, 0, 1<<20); err == nil || err.Error() != "q.zst: has more than 1048576 bytes of text: remove some queries" {
		t.Errorf("a zstd bomb: %v", err)
	}
	if _, err := readCases("q", strings.NewReader(strings.Repeat(" ", MaxLineBytes+1)), sig, 0, 0); err == nil || err.Error() != "q:1: has more than 67108864 bytes, the limit of a request" {
		t.Errorf("a long line: %v", err)
	}
	long := `{"input":[1,` + strings.Repeat(" ", 200<<10) + "2]}\n" // longer than the buffer of lines
	if cases, err := readCases("q", strings.NewReader(long+long), sig, 0, 0); err != nil || len(cases) != 2 || len(cases[1].Inputs[0].Data) != 16 {
		t.Errorf("lines of 200 KiB: %v", err)
	}
}

func TestReadCasesFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := compressed(t, bytes.Repeat([]byte(`{"input": [1, 2], "label": 3}`+"\n"), 1000))
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "gone.jsonl"), ": no such file or directory"},
		{dir, ": is not a regular file: expected a file of queries"},
		{pipe, ": is not a regular file: expected a file of queries"},
		{file("cut.zst", good[:len(good)-4]), ": the compressed file is incomplete: copy it again"},
		{file("plain.zst", []byte(`{"input": [1, 2]}`)), ":1: cannot be read: invalid input: magic number mismatch"},
		{file("empty.zst", nil), ": has no queries"},
	} {
		_, err := ReadCases(c.path, pair, 0, 0)
		if err == nil || !strings.HasPrefix(err.Error(), c.path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %s", c.path, err, c.want)
		}
	}
}

var fuzzSigs = []api.Signature{pair, text,
	{Inputs: []api.TensorSpec{tensor("b", api.Bool, 2, -1)}, Outputs: []api.TensorSpec{tensor("h", api.Float16)}},
	{Inputs: []api.TensorSpec{tensor("s", api.Bytes)}, Outputs: []api.TensorSpec{tensor("s", api.Bytes, -1)}},
}

// FuzzReadCases: nothing panics, errors name their line, and accepted lines are JSON with only the two members.
// Accepted cases can be written and read again unchanged.
func FuzzReadCases(f *testing.F) {
	f.Add([]byte(`{"input": [1, 2], "label": 3}`+"\n"+`{"input": [3, 4]}`), uint8(0))
	f.Add([]byte(`{"input": {"n": 7, "words": ["a"]}, "label": {"summary": {"b64": "YQ=="}, "scores": [0.5]}}`), uint8(1))
	f.Add([]byte("\ufeff"+`{"input": [1, 2]}`), uint8(0))
	f.Fuzz(func(t *testing.T, file []byte, which uint8) {
		sig := fuzzSigs[int(which)%len(fuzzSigs)]
		cases, err := readCases("q", bytes.NewReader(file), sig, 50, 1<<16)
		again, err2 := readCompressed("q", bytes.NewReader(compressed(t, file)), sig, 50, 1<<16)
		if diff := cmp.Diff(cases, again); diff != "" || (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("compressed: %v, plain: %v\n%s", err2, err, diff)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "q:") {
				t.Fatalf("an error without a line number: %v", err)
			}
			return
		}
		file = bytes.TrimPrefix(file, []byte(byteOrderMark))
		var want []int
		for i, line := range bytes.Split(file, []byte("\n")) {
			if len(bytes.Trim(line, " \t\r")) > 0 {
				want = append(want, i+1)
			}
		}
		if len(want) != len(cases) {
			t.Fatalf("%d cases of %d lines", len(cases), len(want))
		}
		lines := bytes.Split(file, []byte("\n"))
		for i, c := range cases {
			var members map[string]json.RawMessage
			if err := json.Unmarshal(lines[c.Line-1], &members); err != nil || c.Line != want[i] {
				t.Fatalf("line %d was accepted as line %d: %v", want[i], c.Line, err)
			}
			label, ok := members["label"]
			if ok && string(label) == "null" {
				ok = false
			}
			if ok != (c.Label != nil) || members["input"] == nil {
				t.Fatalf("line %d: %d members, label %v", c.Line, len(members), c.Label)
			}
			rewritten := `{"input":` + write(sig.Inputs, c.Inputs)
			if ok {
				rewritten += `,"label":` + write(sig.Outputs, c.Label)
			}
			back, err := readCases("q", strings.NewReader(rewritten+"}"), sig, 1, 1<<20)
			if err != nil {
				t.Fatalf("rewritten: %v: %s", err, rewritten)
			}
			back[0].Line = c.Line
			if diff := cmp.Diff(c, back[0]); diff != "" {
				t.Fatalf("rewritten (-first read +second read):\n%s", diff)
			}
		}
	})
}

// write formats values as JSON.
func write(specs []api.TensorSpec, values []api.Value) string {
	var b []byte
	for i, spec := range specs {
		part := tensorjson.AppendValue(nil, spec, values[i])
		if len(specs) > 1 {
			part = append([]byte(`"`+spec.Name+`":`), part...)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, part...)
	}
	if len(specs) > 1 {
		return "{" + string(b) + "}"
	}
	return string(b)
}
