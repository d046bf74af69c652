package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// drawSpecs draws a signature of up to five sections.
func drawSpecs(t *rapid.T) []api.TensorSpec {
	var specs []api.TensorSpec
	for range rapid.IntRange(0, 5).Draw(t, "sections") {
		s := api.TensorSpec{Name: rapid.SampledFrom([]string{"", "x", "long name"}).Draw(t, "name"),
			DType: api.DType(rapid.IntRange(1, 13).Draw(t, "dtype"))}
		for range rapid.IntRange(0, 3).Draw(t, "rank") {
			s.Shape = append(s.Shape, int64(rapid.IntRange(-1, 4).Draw(t, "dim")))
		}
		specs = append(specs, s)
	}
	return specs
}

// drawValues draws a batch that fits the specs.
func drawValues(t *rapid.T, specs []api.TensorSpec, count int) columns {
	values := make(columns, len(specs))
	for s, spec := range specs {
		for range count {
			var dims []int64
			for _, d := range spec.Shape {
				if d < 0 {
					d = int64(rapid.IntRange(0, 3).Draw(t, "dim"))
				}
				dims = append(dims, d)
			}
			v := api.Value{Dims: dims}
			switch {
			case spec.DType.Variable() && len(dims) == 0:
				v.Data = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")
			case spec.DType.Variable():
				for range api.Elements(dims) {
					v.Data = append(v.Data, elements(string(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "element")))...)
				}
			default:
				v.Data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, int(api.Elements(dims))*spec.DType.Size())
			}
			if spec.Fixed() {
				v.Dims = nil
			}
			values[s] = append(values[s], v)
		}
	}
	return values
}

// sameValues compares a block's values with v. It reads with a Reader that was used before.
func sameValues(t *rapid.T, r *Reader, sc *Schema, block []byte, values columns, count int) {
	if err := sc.Open(r, block, count); err != nil {
		t.Fatal(err)
	}
	var arena []byte
	for s := range values {
		for i := range count {
			data, dims, err := r.Item(i, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := api.Value{Data: data, Dims: dims}
			if diff := cmp.Diff(values[s][i], got, cmp.Comparer(bytes.Equal), cmp.Transformer("dims", func(d []int64) string { return api.ShapeString(d) })); diff != "" {
				t.Fatalf("section %d, query %d (-want +got):\n%s", s, i, diff)
			}
			var copied []byte
			arena, copied, _, err = r.AppendItem(arena, i, s, nil)
			if err != nil || !bytes.Equal(copied, data) {
				t.Fatalf("a copy differs: %x, %x, %v", copied, data, err)
			}
		}
	}
}

func TestWriteThenRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Reader
		for range 2 { // the second time with a used Reader
			specs := drawSpecs(t)
			count := rapid.IntRange(0, 5).Draw(t, "count")
			if len(specs) == 0 {
				count = 0
			}
			values := drawValues(t, specs, count)
			sc := NewSchema(specs)
			size := sc.Size(values)
			if fixed, ok := sc.FixedSize(count); ok && fixed != size {
				t.Fatalf("FixedSize is %d, Size %d", fixed, size)
			}
			block := bytes.Repeat([]byte{0xee}, int(size))
			n, err := sc.Write(block, values)
			if err != nil || n != size {
				t.Fatalf("Write: %d, %v; Size is %d", n, err, size)
			}
			sameValues(t, &r, sc, block, values, count)
		}
	})
}

// build passes the values to a Builder, with queries and sections in a drawn order.
func build(t *rapid.T, b *Builder, sc *Schema, block []byte, values columns, count int) (uint64, []byte) {
	if err := b.Begin(sc, block, count); err != nil {
		t.Fatal(err)
	}
	type cell struct{ s, i int }
	var cells []cell
	for s := range values {
		for i := range count {
			cells = append(cells, cell{s, i})
		}
		if sc.sections[s].fixed {
			b.Fixed(s)
		}
	}
	for _, c := range rapid.Permutation(cells).Draw(t, "order") {
		v := values[c.s][c.i]
		if all := b.Fixed(c.s); sc.sections[c.s].fixed {
			copy(all[c.i*len(v.Data):], v.Data)
			continue
		}
		if rapid.IntRange(0, 9).Draw(t, "twice") == 0 && sc.sections[c.s].spec.DType.Variable() && len(v.Dims) == 0 {
			junk, err := b.Item(c.s, c.i, 5, nil)
			if err != nil {
				t.Fatal(err)
			}
			copy(junk, "wrong")
		}
		dst, err := b.Item(c.s, c.i, len(v.Data), v.Dims)
		if err != nil {
			t.Fatal(err)
		}
		if copy(dst, v.Data) != len(v.Data) || len(dst) != len(v.Data) {
			t.Fatalf("Item returned %d bytes, expected %d", len(dst), len(v.Data))
		}
	}
	n, kept, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return n, kept
}

func TestBuildThenRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Reader
		var b Builder
		for range 3 {
			specs := drawSpecs(t)
			count := rapid.IntRange(0, 5).Draw(t, "count")
			if len(specs) == 0 {
				count = 0
			}
			values := drawValues(t, specs, count)
			sc := NewSchema(specs)
			// Room for everything, for a part, or for nothing. The Builder must not touch what lies behind it.
			room := rapid.IntRange(0, int(sc.Size(values))+64).Draw(t, "room")
			memory := bytes.Repeat([]byte{0xee}, room+128)
			n, kept := build(t, &b, sc, memory[:room], values, count)
			if !bytes.Equal(memory[room:], bytes.Repeat([]byte{0xee}, 128)) {
				t.Fatal("the Builder wrote beyond its block")
			}
			block := kept
			if kept == nil {
				block = memory[:n]
			} else if n != uint64(len(kept)) || n <= uint64(room) {
				t.Fatalf("kept %d bytes, length %d, with room for %d", len(kept), n, room)
			}
			sameValues(t, &r, sc, block, values, count)
		}
	})
}

func TestBuilderRefuses(t *testing.T) {
	sc := NewSchema(specs("fixed float32[2]", "ragged float32[-1]", "strs bytes[2]"))
	var b Builder
	begin := func() {
		t.Helper()
		if err := b.Begin(sc, make([]byte, 4096), 1); err != nil {
			t.Fatal(err)
		}
	}
	give := func(s int, data []byte, dims ...int64) {
		t.Helper()
		dst, err := b.Item(s, 0, len(data), dims)
		if err != nil {
			t.Fatal(err)
		}
		copy(dst, data)
	}
	finish := func(want string) {
		t.Helper()
		if _, _, err := b.Finish(); !errors.Is(err, ErrBlock) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	begin()
	finish(`"fixed" was not written`)
	begin()
	b.Fixed(0)
	finish(`"ragged" of query 0 was not written`)
	begin()
	b.Fixed(0)
	give(1, f32(1), 1)
	give(2, elements("a", "b")[:9:9], 2)
	finish(`"strs" of query 0: element 1`)
	for _, c := range []struct {
		s, i, n int
		dims    []int64
	}{{0, 0, 8, nil}, {1, 1, 4, []int64{1}}, {1, -1, 4, []int64{1}}, {1, 0, 5, []int64{1}}, {1, 0, -4, []int64{-1}}, {1, 0, 4, nil}, {2, 0, 7, []int64{2}}, {2, 0, 12, []int64{3}}} {
		if _, err := b.Item(c.s, c.i, c.n, c.dims); !errors.Is(err, ErrBlock) {
			t.Errorf("%+v was accepted: %v", c, err)
		}
	}
	if b.Fixed(1) != nil {
		t.Error("Fixed returned a ragged section")
	}
	if err := b.Begin(sc, nil, 1<<50); !errors.Is(err, ErrBlock) {
		t.Errorf("a count of 2^50: %v", err)
	}
}

// placed are values of which some lie behind the written part of a block.
type placed struct {
	columns
	at []uint64
}

func (p placed) Place(i int) uint64 { return p.at[i] }

// A block with placed items, wherever they lie, is read like any other.
func TestWritePlacedThenRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := drawSpecs(t)
		if len(specs) == 0 {
			return
		}
		specs = specs[:1]
		count := rapid.IntRange(1, 5).Draw(t, "count")
		values := drawValues(t, specs, count)
		sc := NewSchema(specs)
		if !sc.CanPlace() {
			t.Fatal("a schema of one section cannot place")
		}
		p := placed{values, make([]uint64, count)}
		item := sc.FixedItem()
		if item == 0 && specs[0].Fixed() {
			return // nothing to place
		}
		order := rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "order")
		for i := range count { // so that SizePlaced knows which are
			if item > 0 || rapid.Bool().Draw(t, "placed") {
				p.at[i] = 1
			}
		}
		size := sc.SizePlaced(p)
		end := alignUp(size, BlockAlign)
		at := func(i int) {
			p.at[i] = end
			end += uint64(len(values[0][i].Data))
			if item == 0 {
				end = alignUp(end+uint64(rapid.IntRange(0, 40).Draw(t, "gap")), itemAlign)
			}
		}
		for k := range 5 {
			i := k
			if item == 0 {
				i = order[k]
			}
			if i < count && p.at[i] != 0 {
				at(i)
			}
		}
		block := bytes.Repeat([]byte{0xee}, int(end))
		for i, off := range p.at {
			if off != 0 {
				copy(block[off:], values[0][i].Data)
			}
		}
		n, err := sc.WritePlaced(block[:size], p)
		if err != nil || n > end {
			t.Fatalf("WritePlaced: %d of %d, %v", n, end, err)
		}
		var r Reader
		sameValues(t, &r, sc, block[:n], values, count)
	})
}

// Fixed items that are not neighbours, or not aligned, are refused.
func TestWritePlacedRefuses(t *testing.T) {
	sc := NewSchema([]api.TensorSpec{{DType: api.Uint8, Shape: []int64{64}}})
	row := columns{{{Data: make([]byte, 64)}, {Data: make([]byte, 64)}}}
	for _, at := range [][]uint64{{64, 192}, {64, 0}, {65, 129}, {128, 64}} {
		if _, err := sc.WritePlaced(make([]byte, 64), placed{row, at}); !errors.Is(err, ErrBlock) {
			t.Errorf("items at %d: %v", at, err)
		}
	}
	if n, err := sc.WritePlaced(make([]byte, 64), placed{row, []uint64{128, 192}}); n != 256 || err != nil {
		t.Errorf("neighbours: %d, %v", n, err)
	}
}
