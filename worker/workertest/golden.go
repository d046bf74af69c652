package workertest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/xebec-serving/xebec/api"
)

// Golden is one block of the golden vectors. Rows holds its values, one row per query; nil if the block must be
// refused.
type Golden struct {
	Name, Hex string
	Count     int
	Sections  []api.TensorSpec
	Rows      Column
}

type goldenJSON struct {
	Vectors, Refused []struct {
		Name, Kind, Hex string
		Count           int
		Sections        []struct {
			Name, DType string
			Shape       []int64
		}
		Items [][]struct {
			Dims []int64
			Data json.RawMessage
		}
	}
}

// GoldenBlocks reads the blocks of api/spec/golden: the valid ones and the invalid ones.
func GoldenBlocks(tb TB) (good, refused []Golden) {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join(Root(tb), "api/spec/golden/vectors.json"))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	var file goldenJSON
	if err := json.Unmarshal(raw, &file); err != nil {
		tb.Fatalf("the golden vectors: %v", err)
	}
	for i, v := range append(slices.Clone(file.Vectors), file.Refused...) {
		if v.Kind != "block" {
			continue
		}
		g := Golden{Name: v.Name, Hex: v.Hex, Count: v.Count}
		for s, sec := range v.Sections {
			d, err := api.ParseDType(sec.DType)
			if err != nil {
				tb.Fatalf("%s: %v", v.Name, err)
			}
			if sec.Name == "" {
				sec.Name = fmt.Sprintf("section%d", s)
			}
			g.Sections = append(g.Sections, api.TensorSpec{Name: sec.Name, DType: d, Shape: sec.Shape})
		}
		if i >= len(file.Vectors) {
			refused = append(refused, g)
			continue
		}
		g.Rows = make(Column, v.Count)
		for s, items := range v.Items {
			for q, item := range items {
				value, err := goldenValue(g.Sections[s], item.Data)
				if err != nil {
					tb.Fatalf("%s: %v", v.Name, err)
				}
				g.Rows[q] = append(g.Rows[q], api.Value{Data: value, Dims: item.Dims})
			}
		}
		good = append(good, g)
	}
	if len(good) == 0 || len(refused) == 0 {
		tb.Fatalf("the golden vectors have %d valid and %d invalid blocks: expected some of both", len(good), len(refused))
	}
	return good, refused
}

// goldenValue encodes the data of one item: a hex text, or a list of elements.
func goldenValue(spec api.TensorSpec, raw json.RawMessage) ([]byte, error) {
	var text string
	if spec.DType.Variable() && json.Unmarshal(raw, &text) == nil {
		return hex.DecodeString(text)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, err
	}
	data := []byte{}
	for _, e := range elements {
		if spec.DType.Variable() {
			if err := json.Unmarshal(e, &text); err != nil {
				return nil, err
			}
			b, err := hex.DecodeString(text)
			if err != nil {
				return nil, err
			}
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(b))), b...)
			continue
		}
		var err error
		if data, err = appendElement(data, spec.DType, string(bytes.Trim(e, `"`))); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// appendElement parses a number and appends it as type d.
func appendElement(data []byte, d api.DType, number string) ([]byte, error) {
	le := binary.LittleEndian
	switch d {
	case api.Bool:
		if number == "true" {
			return append(data, 1), nil
		}
		return append(data, 0), nil
	case api.Float16, api.BFloat16, api.Float32, api.Float64:
		f, err := strconv.ParseFloat(number, 64)
		if math.IsNaN(f) {
			f = math.Float64frombits(0x7ff8 << 48) // Go's own NaN has a payload that the vectors' NaN has not
		}
		switch d {
		case api.Float16:
			return le.AppendUint16(data, api.Float64ToFloat16(f)), err
		case api.BFloat16:
			return le.AppendUint16(data, api.Float64ToBFloat16(f)), err
		case api.Float32:
			return le.AppendUint32(data, math.Float32bits(float32(f))), err
		}
		return le.AppendUint64(data, math.Float64bits(f)), err
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		var i int64
		i, err = strconv.ParseInt(number, 10, 64)
		n = uint64(i)
	}
	return append(data, le.AppendUint64(nil, n)[:d.Size()]...), err
}

// WantRows compares the outputs of a batch.
func WantRows(tb TB, b *api.Batch, want Column) {
	tb.Helper()
	for i, q := range b.Queries {
		for s := range want[i] {
			got := q.Outputs[s]
			if !bytes.Equal(got.Data, want[i][s].Data) || !slices.Equal(got.Dims, want[i][s].Dims) {
				tb.Errorf("query %d, output %d: %x with dimensions %v, expected %x with %v", i, s, clip(got.Data), got.Dims, clip(want[i][s].Data), want[i][s].Dims)
			}
		}
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 64)] }

// Root is the module's directory, found from the test's working directory upwards.
func Root(tb TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatalf("no go.mod in the working directory or above")
		}
		dir = parent
	}
}
