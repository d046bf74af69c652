//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

func TestModelErrors(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, upper, options...))
		for _, c := range []struct {
			word   string
			cap    uint64
			status wire.Status
			want   string
		}{
			{"error here", 256, wire.StatusModelError, `the word "error here"`},
			{"error here", 8, wire.StatusModelError, `the word`},
			{"error ö", 17, wire.StatusModelError, `the word "error `}, // cut at a character boundary
			{"error here", 0, wire.StatusModelError, ""},
			{"panic", 4096, wire.StatusModelError, "panic: panic in the model"},
			{"write to an input", 4096, wire.StatusModelError, "panic: runtime error"},
			{"missing", 256, wire.StatusBadOutput, `"answer" of query 1 was not written`},
		} {
			g.WantText(g.Predict(c.cap, "fine", c.word), c.status, c.want)
			// The worker goes on.
			g.WantTexts(g.Predict(256, "fine"), "FINE")
		}
		g.Drain()
	})
}

func TestMisuse(t *testing.T) {
	in := []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}, {Name: "r", DType: api.Int64, Shape: []int64{-1}}}
	out := []api.TensorSpec{{Name: "y", DType: api.Float32}, {Name: "z", DType: api.Float64, Shape: []int64{-1, 2}}}
	var outside *Batch
	for _, c := range []struct {
		status wire.Status
		want   string
		do     func(b *Batch)
	}{
		{wire.StatusModelError, `no input "q"`, func(b *Batch) { Input[float32](b, "q") }},
		{wire.StatusModelError, `no output "q"`, func(b *Batch) { Output[float32](b, "q") }},
		{wire.StatusModelError, `cannot be viewed as float64`, func(b *Batch) { Input[float64](b, "x") }},
		{wire.StatusModelError, `cannot be viewed as int32`, func(b *Batch) { Output[int32](b, "y") }},
		{wire.StatusModelError, `use Bytes`, func(b *Batch) { Input[int64](b, "r") }},
		{wire.StatusModelError, `use Reserve`, func(b *Batch) { Output[float64](b, "z") }},
		{wire.StatusModelError, `query 7`, func(b *Batch) { b.Bytes("x", 7) }},
		{wire.StatusModelError, `query -1`, func(b *Batch) { b.Reserve("z", -1, 8, 1, 2) }},
		{wire.StatusModelError, `WithConfidences`, func(b *Batch) { b.Confidences() }},
		{wire.StatusModelError, `-1 bytes`, func(b *Batch) { b.Reserve("y", 0, -1) }},
		{wire.StatusBadOutput, `"y" of query 0 has 8 bytes, expected 4`, func(b *Batch) { b.SetBytes("y", 0, make([]byte, 8)) }},
		{wire.StatusBadOutput, `shape [2]`, func(b *Batch) { SetItem(b, "y", 0, []float32{1}, 2) }},
		{wire.StatusBadOutput, `shape [1, 3]`, func(b *Batch) { SetItem(b, "z", 0, []float64{1, 2, 3}, 1, 3) }},
		{wire.StatusBadOutput, `8 bytes, expected 16`, func(b *Batch) { SetItem(b, "z", 0, []float64{1}, 1, 2) }},
		{wire.StatusBadOutput, `"y" was not written`, func(b *Batch) { outside = b }},
		{wire.StatusModelError, `in predict only`, nil},
	} {
		t.Run(c.want, func(t *testing.T) {
			g := gatewaytest.New(t, in, out)
			do := c.do
			predict := func(_ context.Context, b *Batch) error {
				if do != nil {
					do(b)
				} else {
					outside.w = b.w
					Output[float32](outside, "y")
				}
				return nil
			}
			g.Start(serving(g, predict))
			batch := gatewaytest.Columns{gatewaytest.Values(f32(1, 2)), {{Data: i64(1, 2, 3), Dims: []int64{3}}}}
			g.WantText(g.Request(wire.KindPredict, batch, 4096), c.status, c.want)
			g.Drain()
		})
	}
}

func f32(vs ...float32) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func f64(vs ...float64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func i64(vs ...int64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// A model with every kind of view: fixed and ragged numbers, elements, contexts, confidences.
func TestViews(t *testing.T) {
	in := []api.TensorSpec{
		{Name: "x", DType: api.Float32, Shape: []int64{2}}, {Name: "r", DType: api.Int64, Shape: []int64{-1, 2}},
		{Name: "s", DType: api.Bytes, Shape: []int64{-1}}, {Name: "flag", DType: api.Bool},
	}
	out := []api.TensorSpec{
		{Name: "joined", DType: api.Bytes, Shape: []int64{2}}, {Name: "sum", DType: api.Float32},
		{Name: "doubled", DType: api.Int64, Shape: []int64{-1, 2}}, {Name: "half", DType: api.Float16},
	}
	predict := func(_ context.Context, b *Batch) error {
		x, sum, half, flag := Input[float32](b, "x"), Output[float32](b, "sum"), Output[uint16](b, "half"), Input[uint8](b, "flag")
		for i := range b.Len() {
			sum[i] = x[2*i] + x[2*i+1]
			half[i] = api.Float64ToFloat16(float64(flag[i]) / 2)
			r, dims := Item[int64](b, "r", i)
			doubled := make([]int64, len(r))
			for j := range r {
				doubled[j] = 2 * r[j]
			}
			SetItem(b, "doubled", i, doubled, dims...)
			var joined []byte
			for e := range Elements(b.Bytes("s", i)) {
				joined = append(joined, e...)
			}
			b.SetBytes("joined", i, AppendElement(AppendElement(nil, joined), b.Context(i)), 2)
			if d := b.Dims("x", i); len(d) != 1 || d[0] != 2 {
				return fmt.Errorf("dims of x: %v", d)
			}
		}
		b.Confidences()[1] = 0.25
		if b.Budget() != 1500*time.Microsecond || b.ID() != 1 || len(b.Signature().Inputs) != 4 || b.Label(0) != nil {
			return errors.New("the batch's description is wrong")
		}
		return nil
	}
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, in, out)
		g.Start(serving(g, predict, append(options, WithContexts(), WithConfidences())...))
		elements := func(ss ...string) (b []byte) {
			for _, s := range ss {
				b = AppendElement(b, []byte(s))
			}
			return b
		}
		batch := gatewaytest.Columns{
			gatewaytest.Values(f32(1, 2), f32(3, 4.5)),
			{{Data: i64(1, 2, 3, 4), Dims: []int64{2, 2}}, {Dims: []int64{0, 2}}},
			{{Data: elements("a", "", "bc"), Dims: []int64{3}}, {Dims: []int64{0}}},
			gatewaytest.Values([]byte{1}, []byte{0}),
			gatewaytest.Texts("user-1", ""),
		}
		res := g.Answer(g.Request(wire.KindPredict, batch, 4096, wire.BytesSection), wire.StatusOK)
		if res.Flags != wire.FlagConfidences {
			t.Errorf("flags %d", res.Flags)
		}
		got := g.Outputs(res)
		for s, want := range [][][]byte{
			{elements("abc", "user-1"), elements("", "")}, {f32(3), f32(7.5)}, {i64(2, 4, 6, 8), nil},
			{{0, 0x38}, {0, 0}}, {f64(math.NaN()), f64(0.25)},
		} {
			for i := range want {
				if !bytes.Equal(got[s][i].Data, want[i]) {
					t.Errorf("output %d of query %d is %x, expected %x", s, i, got[s][i].Data, want[i])
				}
			}
		}
		g.Drain()
	})
}

func TestFeedbackAndAccuracy(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		var mu sync.Mutex // the data go through the kernel, where the race detector cannot follow
		var seen []string
		learn := func(_ context.Context, b *Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range b.Len() {
				if string(b.Label(i)) == `"fail"` {
					return errors.New("cannot learn that")
				}
				seen = append(seen, fmt.Sprintf("%s %s %s", b.Bytes("text", i), b.Context(i), b.Label(i)))
			}
			return nil
		}
		accuracy := func(context.Context) (float64, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) < 2 {
				return 0, errors.New("too early")
			}
			return 0.75, nil
		}
		g.Start(serving(g, upper, append(options, WithFeedback(learn), WithAccuracy(accuracy), WithContexts())...))
		if want := wire.CapFeedback | wire.CapAccuracy | wire.CapContexts; g.Hello.Capabilities&^wire.CapRing != want {
			t.Errorf("capabilities %b", g.Hello.Capabilities)
		}
		g.Answer(g.Request(wire.KindAccuracy, nil, 128), wire.StatusModelError)
		feedback := func(label string) wire.Request {
			return g.Request(wire.KindFeedback, gatewaytest.Columns{gatewaytest.Texts("a", "b"), gatewaytest.Texts("u1", "u2"), gatewaytest.Texts(`1`, label)}, 0, wire.BytesSection, wire.BytesSection)
		}
		if res := g.Answer(feedback(`{"x":2}`), wire.StatusOK); res.OutLen != 0 {
			t.Errorf("feedback answered with a block: %+v", res)
		}
		mu.Lock()
		got := strings.Join(seen, "|")
		mu.Unlock()
		if got != `a u1 1|b u2 {"x":2}` {
			t.Errorf("the model saw %s", got)
		}
		g.Answer(feedback(`"fail"`), wire.StatusModelError)
		res := g.Answer(g.Request(wire.KindAccuracy, nil, 128), wire.StatusOK)
		if got := g.Block(res); len(got) != 72 || !bytes.Equal(got[64:], f64(0.75)) {
			t.Errorf("accuracy block %x", got)
		}
		// A grant that is too small for the one number.
		r := g.Request(wire.KindAccuracy, nil, 0)
		if res := g.Answer(r, wire.StatusNeedMore); res.Need != 72 {
			t.Errorf("response %+v", res)
		}
		if res := g.Answer(g.Discard(r), wire.StatusOK); res.OutLen != 0 || res.Kind != wire.KindAccuracy {
			t.Errorf("response %+v", res)
		}
		g.Drain()
	})
}

func TestUnsupportedKinds(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Start(serving(g, upper))
	g.Answer(g.Request(wire.KindAccuracy, nil, 128), wire.StatusUnsupported)
	g.Answer(g.Request(wire.KindFeedback, gatewaytest.Columns{gatewaytest.Texts("a"), gatewaytest.Texts("1")}, 0, wire.BytesSection), wire.StatusUnsupported)
	g.WantTexts(g.Predict(256, "go on"), "GO ON")
	g.Drain()
}

func TestNeedMore(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, upper, append(options, WithConfidences())...))
		long := strings.Repeat("long ", 40)
		batch := gatewaytest.Columns{gatewaytest.Texts("a", long, "c")}
		needMore := func(outCap uint64) (wire.Request, wire.Response) {
			r := g.Request(wire.KindPredict, batch, outCap)
			res := g.Answer(r, wire.StatusNeedMore)
			if res.OutLen != 0 || res.Flags != 0 || res.Need <= outCap {
				t.Errorf("response %+v", res)
			}
			return r, res
		}
		for _, outCap := range []uint64{0, 64, 128, 192, 256} {
			r, res := needMore(outCap)
			// Another batch runs meanwhile.
			g.WantTexts(g.Predict(512, "meanwhile"), "MEANWHILE")
			res2 := g.WantTexts(g.Grant(r, res.Need), "A", strings.ToUpper(long), "C")
			if res2.Kind != wire.KindPredict || res2.Count != 3 || res2.Flags != wire.FlagConfidences || res2.OutLen != res.Need {
				t.Errorf("response to the grant %+v", res2)
			}
		}
		r, _ := needMore(64)
		if res := g.Answer(g.Discard(r), wire.StatusOK); res.OutLen != 0 || res.Count != 3 || res.Kind != wire.KindPredict {
			t.Errorf("response to the discard %+v", res)
		}
		// Two batches wait while the segments grow. One is granted in the new generation.
		r1, res1 := needMore(64)
		r2, _ := needMore(64)
		g.Segments(4 << 20)
		g.Ready()
		g.WantTexts(g.Grant(r1, res1.Need), "A", strings.ToUpper(long), "C")
		g.Answer(g.Discard(r2), wire.StatusOK)
		g.Answer(g.Predict(0, strings.Repeat("x", 3<<20)), wire.StatusNeedMore)
		g.Drain() // with an answer still kept
	})
}
