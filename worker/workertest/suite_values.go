package workertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// numeric are the types with a fixed size. The last one is of version 2.
var numeric = []api.DType{api.Bool, api.Uint8, api.Uint16, api.Uint32, api.Uint64, api.Int8, api.Int16, api.Int32, api.Int64, api.Float16, api.Float32, api.Float64, api.BFloat16}

// numeric are the types that the worker knows.
func (su *suite) numeric() []api.DType {
	if su.Version1 {
		return numeric[:len(numeric)-1]
	}
	return numeric
}

// echoes makes a signature whose every input comes back as an output.
func echoes(inputs ...api.TensorSpec) (sig api.Signature) {
	sig.Inputs = inputs
	for i, spec := range inputs {
		spec.Name = fmt.Sprintf("out%d", i)
		sig.Outputs = append(sig.Outputs, spec)
	}
	return sig
}

// values makes the inputs of one query. seed varies elements, dimensions and lengths.
func values(sig api.Signature, seed int) (row []api.Value) {
	for s, spec := range sig.Inputs {
		dims, n := make([]int64, len(spec.Shape)), 1
		for j, d := range spec.Shape {
			if dims[j] = d; d < 0 {
				dims[j] = int64((seed + s + j) % 5) // including 0
			}
			n *= int(dims[j])
		}
		v := api.Value{Data: []byte{}}
		for e := range n {
			v.Data = appendNumber(v.Data, spec, seed+e)
		}
		if !spec.Fixed() {
			v.Dims = dims
		}
		row = append(row, v)
	}
	return row
}

func appendNumber(data []byte, spec api.TensorSpec, k int) []byte {
	if spec.DType.Variable() {
		text := fmt.Appendf(nil, "%0*d\x00\xff", k%30, k)
		if k%7 == 0 {
			text = nil
		}
		if len(spec.Shape) == 0 {
			return append(data, text...)
		}
		return append(binary.LittleEndian.AppendUint32(data, uint32(len(text))), text...)
	}
	number := fmt.Sprint(k % 100)
	switch {
	case spec.DType == api.Bool:
		number = fmt.Sprint(k%2 == 0)
	case spec.DType >= api.Float16:
		number = fmt.Sprintf("-%d.25", k%100)
	case spec.DType >= api.Int8 && k%3 == 0:
		number = "-" + number
	}
	data, err := appendElement(data, spec.DType, number)
	if err != nil {
		panic(err) // a mistake in this file
	}
	return data
}

// echoed sends batches of several sizes through an echo and compares the outputs.
func (su *suite) echoed(t *testing.T, inputs ...api.TensorSpec) {
	t.Helper()
	sig := echoes(inputs...)
	r := su.start(t, sig, 2, 0, model(Echo))
	for seed, count := range []int{1, 3, 17, 2} {
		var rows Column
		for i := range count {
			rows = append(rows, values(sig, seed+i))
		}
		b := r.Send(rows...)
		r.WantOK(b)
		WantRows(t, b, rows)
	}
	r.stop()
}

func testFixed(t *testing.T, su *suite) {
	var inputs []api.TensorSpec
	for _, d := range su.numeric() {
		for _, shape := range [][]int64{{}, {3}, {2, 2}} {
			inputs = append(inputs, Spec(fmt.Sprintf("%v_%d", d, len(shape)), d, shape...))
		}
	}
	su.echoed(t, append(inputs, Spec("empty", api.Float32, 0))...)
	su.echoed(t, Spec("only", api.Float32, 8))
}

func testRagged(t *testing.T, su *suite) {
	var inputs []api.TensorSpec
	for _, d := range su.numeric() {
		for _, shape := range [][]int64{{-1}, {-1, 2}, {2, -1, -1}} {
			inputs = append(inputs, Spec(fmt.Sprintf("%v_%d", d, len(shape)), d, shape...))
		}
	}
	su.echoed(t, inputs...)
	su.echoed(t, Spec("only", api.Int16, -1))
}

func testBytes(t *testing.T, su *suite) {
	su.echoed(t, Spec("only", api.Bytes, -1))
	su.echoed(t, Spec("scalar", api.Bytes), Spec("two", api.Bytes, 2), Spec("any", api.Bytes, -1), Spec("pairs", api.Bytes, -1, 2),
		Spec("n", api.Int32), Spec("boxes", api.Float32, -1, 4))
}

// Inputs that were received in the replica's own memory, in any order and among others, come back unchanged.
func testReceivedInPlace(t *testing.T, su *suite) {
	for _, in := range []api.TensorSpec{Spec("fixed", api.Uint8, 64<<10), Spec("odd", api.Uint8, 64<<10+3), Spec("ragged", api.Uint8, -1), Spec("text", api.Bytes)} {
		r := su.start(t, echoes(in), 2, 0, model(Echo))
		to, ok := r.Replica.(worker.Reserver)
		if !ok {
			r.stop()
			continue
		}
		next := byte(0)
		// fill makes an input of its own, in a slot unless it is to be copied. There is no slot before the replica was asked for some.
		fill := func(copied bool) (api.Value, api.Slot) {
			n := 64<<10 + in.ItemBytes()%64
			next++
			v := api.Value{Data: bytes.Repeat([]byte{next}, n)}
			if !in.Fixed() && len(in.Shape) > 0 {
				v.Dims = []int64{int64(n)}
			}
			if s, _ := to.Reserve(n, nil); s != nil && !copied {
				copy(s.Bytes(), v.Data)
				v.Data = s.Bytes()
				return v, s
			} else if s != nil {
				s.Free()
			}
			return v, nil
		}
		for _, batch := range [][]bool{{false}, {false}, {false, false, false}, {false, true, false}, {true}, {false, false, false, false, false}} {
			var rows Column
			var slots []api.Slot
			for _, copied := range batch {
				v, s := fill(copied)
				rows, slots = append(rows, []api.Value{v}), append(slots, s)
			}
			slices.Reverse(rows)
			b := r.Send(rows...)
			r.WantOK(b)
			for _, q := range b.Queries {
				if !bytes.Equal(q.Outputs[0].Data, q.Inputs[0].Data) {
					t.Errorf("%s: an input of %d × %d came back as %d bytes that begin with %d", in, len(q.Inputs[0].Data), q.Inputs[0].Data[0], len(q.Outputs[0].Data), q.Outputs[0].Data[0])
				}
			}
			for _, s := range slots {
				if s != nil {
					s.Free()
				}
			}
		}
		if n := r.Replica.Stats().InPlace; n < 9 && in.Name != "odd" || n == 0 {
			t.Errorf("%s: the worker has read %d inputs in place", in, n)
		}
		r.stop()
	}
}

// The values of the golden vectors pass through every binding unchanged. Vectors with the same number of queries share
// a worker, as inputs of one model.
func testGolden(t *testing.T, su *suite) {
	good, _ := GoldenBlocks(t)
	inputs, rows := map[int][]api.TensorSpec{}, map[int]Column{}
	for _, g := range good {
		if su.Version1 && slices.ContainsFunc(g.Sections, func(s api.TensorSpec) bool { return s.DType == api.BFloat16 }) {
			continue
		}
		if rows[g.Count] == nil {
			rows[g.Count] = make(Column, g.Count)
		}
		for s, spec := range g.Sections {
			spec.Name = g.Name + "." + spec.Name
			inputs[g.Count] = append(inputs[g.Count], spec)
			for i := range g.Count {
				rows[g.Count][i] = append(rows[g.Count][i], g.Rows[i][s])
			}
		}
	}
	for count, rows := range rows {
		r := su.start(t, echoes(inputs[count]...), 1, 0, model(Echo))
		b := r.Send(rows...)
		r.WantOK(b)
		WantRows(t, b, rows)
		r.stop()
	}
}

func testTexts(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Echo))
	r.WantTexts(r.Send(Texts("")...), "")
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprint("text ", i, string(make([]byte, i)))
	}
	for range 2 {
		r.WantTexts(r.Send(Texts(many...)...), many...)
	}
	r.stop()
}

// Padding is copies of the last query. Their outputs are dropped.
func testPadding(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Echo))
	b := r.NewBatch(Texts("one", "two")...)
	b.Pad = 6
	if err := r.TrySend(b); err != nil {
		t.Fatal(err)
	}
	r.WantTexts(b, "one", "two")
	r.wantServed(1, 2)
	r.stop()
}
