package wire

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func TestParserTakesAnyPieces(t *testing.T) {
	var stream []byte
	stream = AppendBell(stream)
	stream = (&Leaving{Reason: strings.Repeat("x", 3000)}).Append(stream)
	stream = AppendBell(AppendBell(stream))
	stream = append(stream, largestHello()...)
	stream = AppendDrain(stream)
	for _, piece := range []int{1, 2, 7, 8, 9, 4096, 1 << 20} {
		var p Parser
		var got []Type
		for rest := stream; len(rest) > 0; {
			space := p.Space()
			if len(space) == 0 {
				t.Fatalf("pieces of %d: no space with %d bytes buffered", piece, p.Buffered())
			}
			n := copy(space[:min(piece, len(space))], rest)
			p.Advance(n)
			rest = rest[n:]
			for {
				typ, payload, ok, err := p.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, typ)
				if typ == TypeLeaving && len(payload) != 3002 {
					t.Errorf("LEAVING has %d bytes", len(payload))
				}
			}
		}
		if len(got) != 3 || got[0] != TypeLeaving || got[1] != TypeHello || got[2] != TypeDrain {
			t.Errorf("pieces of %d: frames %v", piece, got)
		}
		if p.Bells() != 3 {
			t.Errorf("pieces of %d: %d bells, want 3", piece, p.Bells())
		}
		if len(p.buf) > HeaderBytes+MaxPayload {
			t.Errorf("the buffer grew to %d bytes", len(p.buf))
		}
	}
}

// largestHello is at the limits that CheckSignature checks, but for the number of tensors.
func largestHello() []byte {
	sig := &api.Signature{}
	for i := range 63 { // more of this size exceed api.MaxSignatureBytes
		name := strings.Repeat(string(rune('a'+i%26)), MaxTensorNameBytes)
		shape := make([]int64, api.MaxRank)
		sig.Inputs = append(sig.Inputs, api.TensorSpec{Name: name, DType: api.Float32, Shape: shape})
		sig.Outputs = append(sig.Outputs, api.TensorSpec{Name: name, DType: api.Bytes, Shape: shape})
	}
	long := strings.Repeat("é", 5000)
	return (&Hello{Major: 1, Token: long, Model: "m", Version: "1", Binding: "b", Signature: sig}).Append(nil)
}

func TestLargestHelloFits(t *testing.T) {
	var m Hello
	if err := m.Decode(largestHello()[HeaderBytes:]); err != nil {
		t.Fatal(err)
	}
	if len(m.Signature.Inputs) != 63 || len(m.Token) != maxTextBytes {
		t.Errorf("%d inputs, a token of %d bytes", len(m.Signature.Inputs), len(m.Token))
	}
}

func TestParserKeepsItsError(t *testing.T) {
	var p Parser
	p.Advance(copy(p.Space(), "GET / HTTP/1.1\r\n"))
	_, _, _, err := p.Next()
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "0x47") {
		t.Fatalf("error %v", err)
	}
	p.Advance(copy(p.Space(), AppendDrain(nil)))
	if _, _, ok, again := p.Next(); ok || !errors.Is(again, err) {
		t.Errorf("after an error: %v, %v", ok, again)
	}
}

func TestCheckSignature(t *testing.T) {
	for _, c := range []struct {
		spec api.TensorSpec
		want string
	}{
		{api.TensorSpec{DType: 99}, "unknown dtype"},
		{api.TensorSpec{DType: api.Int8, Shape: make([]int64, 17)}, "rank 17"},
		{api.TensorSpec{DType: api.Int8, Shape: []int64{-2}}, "-2"},
		{api.TensorSpec{DType: api.Int8, Shape: []int64{1 << 20, 1 << 20}}, "more elements"},
		{api.TensorSpec{DType: api.Float64, Shape: []int64{1 << 28}}, "more than"},
		{api.TensorSpec{DType: api.Int8, Shape: []int64{math.MaxInt64}}, "at most"},
		{api.TensorSpec{DType: api.Int8, Name: "\xff"}, "UTF-8"},
		{api.TensorSpec{DType: api.Int8, Name: strings.Repeat("n", 257)}, "257 bytes"},
		{api.TensorSpec{DType: api.Float64, Shape: []int64{-1, 3}, Name: "ok"}, ""},
		{api.TensorSpec{DType: api.Float64, Shape: []int64{0, 1 << 29}, Name: "ok"}, ""},
	} {
		err := CheckSignature(&api.Signature{Outputs: []api.TensorSpec{c.spec}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+.60v: %v, expected %q", c.spec, err, c.want)
		}
	}
	scalars := make([]api.TensorSpec, MaxTensors)
	for i := range scalars {
		scalars[i] = api.TensorSpec{Name: strings.Repeat("n", 80), DType: api.Float64}
	}
	many := api.Signature{Inputs: scalars, Outputs: scalars}
	if err := CheckSignature(&many); err != nil || len(appendSignature(nil, &many)) != many.EncodedBytes() {
		t.Errorf("%d inputs: %v, and %d bytes where EncodedBytes says %d", MaxTensors, err, len(appendSignature(nil, &many)), many.EncodedBytes())
	}
	scalars[0].Name = strings.Repeat("n", MaxTensorNameBytes)
	for i := range 40 {
		scalars[i].Name = scalars[0].Name
	}
	if err := CheckSignature(&many); err == nil || !strings.Contains(err.Error(), "bytes: expected at most 49152") {
		t.Errorf("long names of many tensors: %v", err)
	}
	if err := CheckSignature(&api.Signature{Inputs: append(slices.Clone(scalars), scalars[0])}); err == nil {
		t.Errorf("%d inputs were accepted", MaxTensors+1)
	}
}

func TestCutText(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"hello", 10, "hello"}, {"hello", 5, "hello"}, {"hello", 3, "hel"}, {"hello", 0, ""}, {"hé", 2, "h"}, {"hé", 3, "hé"},
		{"日本", 5, "日"}, {"日本", 2, ""}, {"😀", 3, ""}, {"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
	} {
		if got := CutText(c.s, c.n); got != c.want {
			t.Errorf("CutText(%q, %d) = %q, expected %q", c.s, c.n, got, c.want)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		section string
		value   api.Value
		want    string
	}{
		{"x float32[2]", api.Value{Data: make([]byte, 7)}, "has 7 bytes, expected 8"},
		{"x float32[-1]", api.Value{Data: make([]byte, 8), Dims: []int64{3}}, "expected 12"},
		{"x float32[-1]", api.Value{Data: make([]byte, 8)}, "shape []"},
		{"x float32[-1,2]", api.Value{Data: make([]byte, 12), Dims: []int64{1, 3}}, "shape [1, 3]"},
		{"x bytes[]", api.Value{Data: make([]byte, 8), Dims: []int64{1}}, "shape [1]"},
		{"x bytes[2]", api.Value{Data: elements("a"), Dims: []int64{2}}, "cannot hold"},
		{"x bytes[2]", api.Value{Data: elements("a", "b", "c"), Dims: []int64{2}}, "follow the last"},
		{"x bytes[2]", api.Value{Data: elements("a", "bcd")[:11], Dims: []int64{2}}, "3 bytes where 2 are left"},
	} {
		sc := NewSchema(specs(c.section))
		_, err := sc.Write(make([]byte, 1024), columns{{c.value}})
		if !errors.Is(err, ErrBlock) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", c.section, err, c.want)
		}
	}
}

func TestWriteNeedsRoom(t *testing.T) {
	sc := NewSchema(specs("a float32[2]", "b bytes[]", "c float32[-1]"))
	values := columns{plain(f32(1, 2), f32(3, 4)), plain([]byte("one"), []byte("three")), {{Data: f32(1), Dims: []int64{1}}, {Data: f32(1, 2), Dims: []int64{2}}}}
	size := sc.Size(values)
	for n := range size {
		if _, err := sc.Write(make([]byte, n), values); !errors.Is(err, ErrBlock) {
			t.Fatalf("%d of %d bytes: %v", n, size, err)
		}
	}
	if n, err := sc.Write(make([]byte, size), values); n != size || err != nil {
		t.Errorf("%d, %v, expected %d", n, err, size)
	}
}

func TestImpossibleSchema(t *testing.T) {
	sc := NewSchema([]api.TensorSpec{{DType: api.Float64, Shape: []int64{1 << 40, 1 << 40}}})
	var r Reader
	var b Builder
	if err := sc.Open(&r, make([]byte, 128), 1); !errors.Is(err, ErrBlock) {
		t.Errorf("Open: %v", err)
	}
	if _, err := sc.Write(make([]byte, 128), columns{plain(nil)}); !errors.Is(err, ErrBlock) {
		t.Errorf("Write: %v", err)
	}
	if err := b.Begin(sc, nil, 1); !errors.Is(err, ErrBlock) {
		t.Errorf("Begin: %v", err)
	}
	if n := sc.Size(columns{plain(nil)}); n != math.MaxUint64 {
		t.Errorf("Size: %d", n)
	}
	if n, ok := NewSchema(specs("x float64[1000000]")).FixedSize(math.MaxInt); n != math.MaxUint64 || !ok {
		t.Errorf("FixedSize: %d, %v", n, ok)
	}
}

func TestReaderOutOfRange(t *testing.T) {
	sc := NewSchema(specs("x int64[]"))
	block := make([]byte, 1024)
	if _, err := sc.Write(block, columns{plain(i64(1), i64(2))}); err != nil {
		t.Fatal(err)
	}
	var r Reader
	if r.Section(0) != nil || r.Len() != 0 {
		t.Error("a Reader that was never opened returns data")
	}
	if err := sc.Open(&r, block[:80], 2); err != nil {
		t.Fatal(err)
	}
	if got := r.Section(0); !bytes.Equal(got, i64(1, 2)) {
		t.Errorf("section %x", got)
	}
	for _, at := range [][2]int{{2, 0}, {-1, 0}, {0, 1}, {0, -1}} {
		if _, _, err := r.Item(at[0], at[1], nil); err == nil {
			t.Errorf("item %v exists", at)
		}
	}
	if err := sc.Open(&r, block[:80], 3); err == nil {
		t.Fatal("opened with a wrong count")
	}
	if _, _, err := r.Item(0, 0, nil); err == nil || r.Section(0) != nil {
		t.Error("a Reader whose Open failed returns data")
	}
}

// A peer that rewrites lengths inside an item after they were checked must not get them into a copy.
func TestAppendItemJudgesTheCopy(t *testing.T) {
	sc := NewSchema(specs("x bytes[2]"))
	block := make([]byte, 1024)
	n, err := sc.Write(block, columns{{{Data: elements("ab", "c"), Dims: []int64{2}}}})
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	if err := sc.Open(&r, block[:n], 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Item(0, 0, nil); err != nil {
		t.Fatal(err)
	}
	out, data, dims, err := r.AppendItem([]byte("before"), 0, 0, nil)
	if err != nil || string(out[:6]) != "before" || !bytes.Equal(data, elements("ab", "c")) || len(dims) != 1 || dims[0] != 2 {
		t.Fatalf("%q %q %v %v", out, data, dims, err)
	}
	block[64+24] = 200 // the length of "ab"
	if _, _, _, err := r.AppendItem(nil, 0, 0, nil); !errors.Is(err, ErrBlock) {
		t.Errorf("a rewritten length was accepted: %v", err)
	}
	block[64] = 0xff // an entry's offset: the private copy counts
	block[64+24] = 2
	if _, data, _, err := r.AppendItem(nil, 0, 0, nil); err != nil || !bytes.Equal(data, elements("ab", "c")) {
		t.Errorf("a rewritten entry was used: %q, %v", data, err)
	}
}
