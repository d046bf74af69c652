package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

var update = flag.Bool("update", false, "write the golden vectors from the values in golden_values_test.go")

const goldenFile = "../../api/spec/golden/vectors.json"

// goldenSet is the file as api/spec/golden/README.md describes it.
type goldenSet struct {
	Protocol string    `json:"protocol"`
	Vectors  []*vector `json:"vectors"`
	Refused  []*vector `json:"refused"`
}

type vector struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Why      string          `json:"why,omitempty"`
	Type     string          `json:"type,omitempty"`
	Fields   json.RawMessage `json:"fields,omitempty"`
	Frames   []string        `json:"frames,omitempty"`
	Sections []jsonTensor    `json:"sections,omitempty"`
	Count    *int            `json:"count,omitempty"`
	Items    [][]jsonItem    `json:"items,omitempty"` // section, then query
	// Layout is "any" for a block that is valid but laid out differently from Schema.Write.
	Layout string `json:"layout,omitempty"`
	Hex    string `json:"hex"`
}

func TestGolden(t *testing.T) {
	if *update {
		set := goldenSet{Protocol: "1.0", Vectors: goldenVectors(t), Refused: goldenRefused()}
		writeGolden(t, &set)
	}
	raw, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatalf("%v: write the vectors with go test ./worker/wire -run TestGolden -update", err)
	}
	var set goldenSet
	if err := json.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, v := range append(set.Vectors, set.Refused...) {
		if names[v.Name] {
			t.Errorf("two vectors have the name %q", v.Name)
		}
		names[v.Name] = true
	}
	for _, v := range set.Vectors {
		t.Run(v.Name, func(t *testing.T) { checkVector(t, v) })
	}
	for _, v := range set.Refused {
		t.Run(v.Name, func(t *testing.T) {
			if err := decodeVector(v); err == nil {
				t.Errorf("decoded, expected a refusal: %s", v.Why)
			}
		})
	}
}

// TestGoldenIsCurrent fails if the file differs from what this package's values encode to.
func TestGoldenIsCurrent(t *testing.T) {
	set := goldenSet{Protocol: "1.0", Vectors: goldenVectors(t), Refused: goldenRefused()}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := renderGolden(t, &set); !bytes.Equal(got, want) {
		t.Errorf("%s differs from golden_values_test.go; if the change is meant: go test ./worker/wire -run TestGolden -update", goldenFile)
	}
}

// renderGolden writes one vector per line, so that diffs are readable.
func renderGolden(t *testing.T, set *goldenSet) []byte {
	t.Helper()
	var out bytes.Buffer
	list := func(vs []*vector) {
		for i, v := range vs {
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString("\n    ")
			out.Write(raw)
		}
	}
	out.WriteString("{\n  \"protocol\": \"" + set.Protocol + "\",\n  \"vectors\": [")
	list(set.Vectors)
	out.WriteString("\n  ],\n  \"refused\": [")
	list(set.Refused)
	out.WriteString("\n  ]\n}\n")
	return out.Bytes()
}

func writeGolden(t *testing.T, set *goldenSet) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(goldenFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, renderGolden(t, set), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (v *vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkVector decodes the bytes and compares with the fields, then encodes the fields and compares with the bytes.
func checkVector(t *testing.T, v *vector) {
	b := v.bytes(t)
	switch v.Kind {
	case "frame":
		m := newMessage(v.Type)
		if m == nil {
			t.Fatalf("unknown frame type %q", v.Type)
		}
		payload := onlyFrame(t, b, v.Type)
		if err := m.Decode(payload); err != nil {
			t.Fatal(err)
		}
		checkJSON(t, v.Fields, m.fields())
		if err := m.setFields(v.Fields); err != nil {
			t.Fatal(err)
		}
		checkBytes(t, m.Append(nil), b)
	case "request":
		var r Request
		if err := r.Get((*[DescriptorBytes]byte)(b)); err != nil {
			t.Fatal(err)
		}
		checkJSON(t, v.Fields, requestFields(&r))
		var d [DescriptorBytes]byte
		r.Put(&d)
		checkBytes(t, d[:], b)
		checkBytes(t, onlyFrame(t, r.Append(nil), "REQUEST"), b)
	case "response":
		var r Response
		if err := r.Get((*[DescriptorBytes]byte)(b)); err != nil {
			t.Fatal(err)
		}
		checkJSON(t, v.Fields, responseFields(&r))
		var d [DescriptorBytes]byte
		r.Put(&d)
		checkBytes(t, d[:], b)
		checkBytes(t, onlyFrame(t, r.Append(nil), "RESPONSE"), b)
	case "stream":
		frames, err := frameNames(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v.Frames, frames); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
	case "block":
		checkBlockVector(t, v, b)
	default:
		t.Fatalf("unknown kind %q", v.Kind)
	}
}

func checkBlockVector(t *testing.T, v *vector, b []byte) {
	sc := NewSchema(tensorSpecs(v.Sections))
	var r Reader
	if err := sc.Open(&r, b, *v.Count); err != nil {
		t.Fatal(err)
	}
	got := make([][]jsonItem, len(v.Sections))
	for s := range v.Sections {
		for i := range *v.Count {
			data, dims, err := r.Item(i, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			got[s] = append(got[s], itemToJSON(v.Sections[s].dtype(), data, dims, len(v.Sections[s].Shape) > 0 && !v.Sections[s].spec().Fixed()))
		}
	}
	checkJSON(t, v.Items, got)
	if v.Layout == "any" {
		return
	}
	values := columns{}
	for s, items := range v.Items {
		var column []api.Value
		for _, item := range items {
			column = append(column, itemFromJSON(t, v.Sections[s].dtype(), item))
		}
		values = append(values, column)
	}
	if size := sc.Size(values); size != uint64(len(b)) {
		t.Errorf("Size is %d, the vector has %d bytes", size, len(b))
	}
	dirty := bytes.Repeat([]byte{0xee}, len(b))
	n, err := sc.Write(dirty, values)
	if err != nil {
		t.Fatal(err)
	}
	checkBytes(t, dirty[:n], b)
}

// decodeVector returns the error that a refused vector must produce.
func decodeVector(v *vector) error {
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		return nil // not the refusal that is meant
	}
	switch v.Kind {
	case "frame":
		var p Parser
		p.Advance(copy(p.Space(), b))
		typ, payload, ok, err := p.Next()
		if err != nil || !ok {
			return err
		}
		return newMessage(typ.String()).Decode(payload)
	case "stream":
		_, err := frameNames(b)
		return err
	case "request":
		return new(Request).Get((*[DescriptorBytes]byte)(b))
	case "response":
		return new(Response).Get((*[DescriptorBytes]byte)(b))
	case "block":
		return readAll(NewSchema(tensorSpecs(v.Sections)), b, *v.Count)
	}
	return nil
}

// readAll opens a block and reads every item.
func readAll(sc *Schema, block []byte, count int) error {
	var r Reader
	if err := sc.Open(&r, block, count); err != nil {
		return err
	}
	for s := range sc.Sections() {
		for i := range count {
			if _, _, err := r.Item(i, s, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// frameNames passes a stream to a parser, as much at a time as it accepts.
func frameNames(b []byte) ([]string, error) {
	var p Parser
	var names []string
	for {
		n := copy(p.Space(), b)
		p.Advance(n)
		b = b[n:]
		for {
			typ, _, ok, err := p.Next()
			if err != nil {
				return names, err
			}
			if !ok {
				break
			}
			names = append(names, typ.String())
		}
		if len(b) == 0 {
			return names, nil
		}
	}
}

func onlyFrame(t *testing.T, b []byte, want string) []byte {
	t.Helper()
	var p Parser
	for len(b) > 0 {
		n := copy(p.Space(), b)
		p.Advance(n)
		b = b[n:]
		typ, payload, ok, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if typ.String() != want || p.Buffered() != 0 || len(b) != 0 {
				t.Fatalf("a frame %v and %d bytes more, expected one %s", typ, p.Buffered()+len(b), want)
			}
			return payload
		}
	}
	t.Fatal("no whole frame")
	return nil
}

func checkBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("encoded:\n%x\nexpected:\n%x", got, want)
	}
}

// checkJSON compares two things by their JSON.
func checkJSON(t *testing.T, want, got any) {
	t.Helper()
	norm := func(v any) (out any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if diff := cmp.Diff(norm(want), norm(got)); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// columns is a batch: section, then query.
type columns [][]api.Value

func (c columns) Len() int {
	if len(c) == 0 {
		return 0
	}
	return len(c[0])
}

func (c columns) At(i, s int) *api.Value { return &c[s][i] }
