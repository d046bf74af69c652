package local_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// Each golden block is accepted as outputs if it is valid and answered with BAD_OUTPUT if not. The worker goes on in
// both cases.
func TestGoldenBlocksAsOutputs(t *testing.T) {
	good, bad := workertest.GoldenBlocks(t)
	for _, v := range append(good, bad...) {
		t.Run(v.Name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				sig := workertest.Text()
				sig.Outputs = v.Sections
				st := newStage(t, poller, capabilities, sig, 1, 0)
				raw, err := hex.DecodeString(v.Hex)
				if err != nil {
					t.Fatal(err)
				}
				b := st.Send(workertest.Texts(make([]string, v.Count)...)...)
				req := st.w.Next()
				res := workertest.Answer(req)
				res.OutLen = uint64(copy(st.w.Granted(req), raw))
				st.w.Respond(res)
				if v.Rows == nil {
					st.WantCode(b, api.BadOutput, "is invalid")
				} else {
					st.WantOK(b)
					workertest.WantRows(t, b, v.Rows)
				}
				// The next answer is honest.
				b = st.Send(workertest.Texts("x")...)
				req = st.w.Next()
				res = workertest.Answer(req)
				res.Status = wire.StatusUnsupported
				st.w.Respond(res)
				st.WantCode(b, api.ModelError, "")
				st.w.Close()
				st.End()
				st.unaffected(t)
			})
		})
	}
}

// Invalid tables in blocks of two ragged outputs.
func TestTablesThatLie(t *testing.T) {
	sig := workertest.Text()
	sig.Outputs = []api.TensorSpec{workertest.Spec("words", api.Bytes, -1), workertest.Spec("boxes", api.Float32, -1, 2)}
	words := func(texts ...string) (v api.Value) {
		for _, text := range texts {
			v.Data = append(binary.LittleEndian.AppendUint32(v.Data, uint32(len(text))), text...)
		}
		v.Dims = []int64{int64(len(texts))}
		return v
	}
	rows := workertest.Column{
		{words("a", "bc"), {Data: make([]byte, 16), Dims: []int64{2, 2}}},
		{words(), {Dims: []int64{0, 2}}},
	}
	// The section of words begins at 64: two entries of 16 bytes, two dimensions, then data at 48.
	const section = 64
	for _, c := range []struct {
		name      string
		at, value uint64
	}{
		{"section of all ones", 0, math.MaxUint64},
		{"section misaligned", 0, 65},
		{"section in its table", 0, 0},
		{"section length of all ones", 8, math.MaxUint64},
		{"section length wraps", 8, math.MaxUint64 - 63},
		{"sections overlap", 16, 64},
		{"item of all ones", section, math.MaxUint64},
		{"item misaligned", section, 49},
		{"item in the tables", section, 0},
		{"item length of all ones", section + 8, math.MaxUint64},
		{"item length wraps", section + 8, math.MaxUint64 - 47},
		{"items overlap", section + 24, 1 << 20},
		{"dimension negative", section + 32, math.MaxUint64},
		{"dimension too large", section + 32, 1 << 40},
		{"dimension overflows", section + 32, 1 << 62},
		{"dimension off by one", section + 32, 3},
		{"element length", section + 48, 1 << 31},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				st := newStage(t, poller, capabilities, sig, 1, 0)
				for _, lie := range []bool{false, true, false} {
					b := st.Send(workertest.Texts("x", "y")...)
					req := st.w.Next()
					res := st.w.Outputs(req, rows)
					if lie {
						st.w.Word(req, c.at, c.value)
					}
					st.w.Respond(res)
					if lie {
						st.WantCode(b, api.BadOutput, "is invalid")
						continue
					}
					st.WantOK(b)
					workertest.WantRows(t, b, rows)
				}
				st.w.Close()
				st.End()
				st.unaffected(t)
			})
		})
	}
}

// A worker that writes into its block while the gateway reads it can only corrupt values. The copy that the gateway
// reports as OK is always well-formed.
func TestScribbling(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		sig := workertest.Text()
		sig.Outputs = []api.TensorSpec{workertest.Spec("words", api.Bytes, -1), workertest.Spec("n", api.Int32)}
		st := newStage(t, poller, capabilities, sig, 1, 0)
		element := func(n, pad int) (data []byte) {
			data = append(binary.LittleEndian.AppendUint32(data, uint32(n)), bytes.Repeat([]byte{'w'}, n)...)
			return append(binary.LittleEndian.AppendUint32(data, uint32(pad)), bytes.Repeat([]byte{'w'}, pad)...)
		}
		long := api.Value{Data: element(300, 900), Dims: []int64{2}}
		rows := workertest.Column{{long, {Data: make([]byte, 4)}}, {long, {Data: make([]byte, 4)}}}
		for round := range 200 {
			b := st.Send(workertest.Texts(strings.Repeat("i", 4096), "y")...)
			req := st.w.Next()
			res := st.w.Outputs(req, rows)
			block, before := st.w.Granted(req), bytes.Clone(st.w.Granted(req))
			stop := make(chan struct{})
			var scribbler sync.WaitGroup
			scribbler.Go(func() {
				targets := []int{0, 8, 16, 24, 128, 136, 144, 152, 160, 168, 176}
				at := targets[round%len(targets)]
				if round%3 == 0 {
					at = 176 // the first element's length
				}
				for flip := false; ; flip = !flip {
					select {
					case <-stop:
						return
					default:
					}
					if flip {
						block[at] ^= 0x55
					} else {
						block[at] = before[at]
					}
				}
			})
			st.w.Respond(res)
			done := st.Wait(b)
			close(stop)
			scribbler.Wait()
			switch done.Code {
			case api.OK:
				for _, q := range b.Queries {
					wantSoundWords(t, q.Outputs[0])
				}
			case api.BadOutput:
			default:
				t.Fatalf("%+v", done)
			}
		}
		st.w.Close()
		if end := st.End(); end.Violation {
			t.Errorf("%+v", end)
		}
		st.unaffected(t)
	})
}

func wantSoundWords(t *testing.T, v api.Value) {
	t.Helper()
	data, n := v.Data, int64(0)
	for ; len(data) >= 4; n++ {
		size := binary.LittleEndian.Uint32(data)
		if uint64(size) > uint64(len(data)-4) {
			t.Fatalf("element %d of an answer that is OK has %d bytes where %d are left", n, size, len(data)-4)
		}
		data = data[4+size:]
	}
	if len(data) > 0 || len(v.Dims) != 1 || n != v.Dims[0] {
		t.Fatalf("an answer that is OK: %d elements, %d bytes behind them, dimensions %v", n, len(data), v.Dims)
	}
}

// Confidences that the block does not have.
func TestConfidencesThatAreNotThere(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 1, 0)
		b, req := st.take("x")
		res := st.echo(req)
		res.Flags = wire.FlagConfidences
		st.w.Respond(res)
		st.WantCode(b, api.BadOutput, "is invalid")
		b, req = st.take("x")
		st.w.Respond(st.echo(req))
		st.WantTexts(b, "x")
		if c := b.Queries[0].Confidence; !math.IsNaN(c) {
			t.Errorf("confidence %v, but the worker sent none", c)
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}
