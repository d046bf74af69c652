package quality

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func named(list []Extreme) (names []string) {
	for _, x := range list {
		names = append(names, x.Name)
	}
	return names
}

func TestExtremes(t *testing.T) {
	for _, c := range []struct {
		inputs []api.TensorSpec
		want   string
	}{
		{[]api.TensorSpec{tensor("x", api.Float32, 3)}, "zeros and empty strings, largest, lowest, denormal, Inf, -Inf, NaN"},
		{[]api.TensorSpec{tensor("x", api.Int8)}, "zeros and empty strings, largest, lowest"},
		{[]api.TensorSpec{tensor("x", api.Uint16, 2, 2)}, "zeros and empty strings, largest"},
		{[]api.TensorSpec{tensor("x", api.Bool, 2)}, "zeros and empty strings, largest, neither true nor false"},
		{[]api.TensorSpec{tensor("x", api.Bool, -1, -1)}, "zeros and empty strings, largest, size 0, large, large in the last open dimension"},
		{[]api.TensorSpec{tensor("x", api.Bytes)}, "zeros and empty strings, long strings, invalid UTF-8, NUL characters"},
		{[]api.TensorSpec{tensor("x", api.Bytes, -1)}, "zeros and empty strings, long strings, invalid UTF-8, NUL characters, size 0, large"},
		{[]api.TensorSpec{tensor("x", api.Float64, 0)}, "zeros and empty strings"},
		{[]api.TensorSpec{tensor("x", api.Float64, 0, 1<<30, 1<<30, -1)}, "zeros and empty strings, size 0"},
		{[]api.TensorSpec{tensor("x", api.Float32, 1<<30, 1<<30, 0)}, ""},
		{[]api.TensorSpec{tensor("x", api.Float32, 17<<20)}, ""}, // 68 MiB
		{[]api.TensorSpec{tensor("n", api.Uint8), tensor("b", api.Bool), tensor("s", api.Bytes, 2)},
			"zeros and empty strings, largest, long strings, invalid UTF-8, NUL characters, n: largest, b: largest, s: long strings, s: invalid UTF-8, s: NUL characters"},
	} {
		if got := strings.Join(named(Extremes(api.Signature{Inputs: c.inputs})), ", "); got != c.want {
			t.Errorf("%v: got %s\nexpected %s", c.inputs, got, c.want)
		}
	}
}

func TestExtremeValues(t *testing.T) {
	sig := api.Signature{Inputs: []api.TensorSpec{tensor("f", api.Float32, -1, 3, -1), tensor("h", api.Float16), tensor("i", api.Int32, 2), tensor("s", api.Bytes, -1)}}
	for _, c := range []struct {
		name  string
		input int
		want  api.Value
	}{
		{"largest", 0, api.Value{Data: floats32(math.MaxFloat32, math.MaxFloat32, math.MaxFloat32), Dims: []int64{1, 3, 1}}},
		{"largest", 1, api.Value{Data: []byte{0xff, 0x7b}}},
		{"largest", 2, api.Value{Data: []byte{255, 255, 255, 127, 255, 255, 255, 127}}},
		{"largest", 3, api.Value{Data: []byte{0, 0, 0, 0}, Dims: []int64{1}}},
		{"lowest", 2, api.Value{Data: []byte{0, 0, 0, 128, 0, 0, 0, 128}}},
		{"denormal", 0, api.Value{Data: floats32(math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat32), Dims: []int64{1, 3, 1}}},
		{"denormal", 1, api.Value{Data: []byte{1, 0}}},
		{"h: NaN", 1, api.Value{Data: []byte{0, 0x7e}}},
		{"h: -Inf", 1, api.Value{Data: []byte{0, 0xfc}}},
		{"h: -Inf", 2, api.Value{Data: make([]byte, 8)}},
		{"NUL characters", 3, api.Value{Data: append([]byte{16, 0, 0, 0}, make([]byte, 16)...), Dims: []int64{1}}},
		{"size 0", 0, api.Value{Dims: []int64{0, 3, 0}}},
		{"size 0", 3, api.Value{Dims: []int64{0}}},
		{"size 0", 2, api.Value{Data: make([]byte, 8)}},
		{"f: large", 0, api.Value{Data: make([]byte, longBytes/12*12), Dims: []int64{longBytes / 12, 3, 1}}},
		{"f: large in the last open dimension", 0, api.Value{Data: make([]byte, longBytes/12*12), Dims: []int64{1, 3, longBytes / 12}}},
	} {
		list := Extremes(sig)
		at := slices.Index(named(list), c.name)
		if at < 0 {
			t.Errorf("%s is not among %v", c.name, named(list))
			continue
		}
		if got := list[at].Inputs[c.input]; !bytes.Equal(got.Data, c.want.Data) || !slices.Equal(got.Dims, c.want.Dims) {
			t.Errorf("%s of %s: got %d bytes %x…, %v", c.name, sig.Inputs[c.input], len(got.Data), got.Data[:min(len(got.Data), 16)], got.Dims)
		}
	}
}

// TestExtremesAreBounded: the limits of number and size hold for any number and size of inputs.
func TestExtremesAreBounded(t *testing.T) {
	var many api.Signature
	for i := range api.MaxTensors {
		many.Inputs = append(many.Inputs, tensor(fmt.Sprint(i), api.Float64, -1, -1))
	}
	large := api.Signature{Inputs: []api.TensorSpec{tensor("x", api.Float32, 12<<20)}} // 48 MiB
	for _, sig := range []api.Signature{many, large} {
		list := Extremes(sig)
		var size int64
		for _, x := range list {
			var one int64
			for _, v := range x.Inputs {
				one += int64(len(v.Data))
			}
			if one > maxExtremeBytes {
				t.Errorf("%s has %d bytes", x.Name, one)
			}
			size += one
		}
		if len(list) == 0 || len(list) > MaxExtremes || size > maxExtremesBytes {
			t.Errorf("%d extremes of %d bytes", len(list), size)
		}
	}
}

// TestExtremesFit: every extreme is an input that a caller could send.
func TestExtremesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sig api.Signature
		for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
			shape := rapid.SliceOfN(rapid.SampledFrom([]int64{-1, -1, 0, 1, 2, 7}), 0, 3).Draw(t, "shape")
			sig.Inputs = append(sig.Inputs, tensor(fmt.Sprint(i), api.DType(rapid.IntRange(int(api.Bool), int(api.Bytes)).Draw(t, "dtype")), shape...))
		}
		list := Extremes(sig)
		if len(list) == 0 {
			t.Fatal("no extremes")
		}
		for i, x := range list {
			if slices.Contains(named(list[:i]), x.Name) {
				t.Fatalf("duplicate extreme %s", x.Name)
			}
			for k, spec := range sig.Inputs {
				v, dims := x.Inputs[k], spec.Shape
				if !spec.Fixed() && len(spec.Shape) > 0 {
					dims = v.Dims
				} else if len(v.Dims) > 0 {
					t.Fatalf("%s: %s has dimensions %v", x.Name, spec, v.Dims)
				}
				if !api.FitsShape(spec.Shape, dims) {
					t.Fatalf("%s: %s has dimensions %v", x.Name, spec, dims)
				}
				if n := api.Elements(dims); spec.DType != api.Bytes && int64(len(v.Data)) != n*int64(spec.DType.Size()) || spec.DType == api.Bytes && len(dims) > 0 && !elements(v.Data, n) {
					t.Fatalf("%s: %s of %v has %d bytes", x.Name, spec, dims, len(v.Data))
				}
				if spec.DType == api.Bool && x.Name != fillNames[notABool] && slices.Max(append(v.Data, 0)) > 1 {
					t.Fatalf("%s: a bool with the value %d", x.Name, slices.Max(v.Data))
				}
			}
		}
	})
}

// elements reports whether data consists of n elements of BYTES, each preceded by its length.
func elements(data []byte, n int64) bool {
	for ; n > 0; n-- {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
			return false
		}
		data = data[4+binary.LittleEndian.Uint32(data):]
	}
	return len(data) == 0
}
