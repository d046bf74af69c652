//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// function is what a model of these tests calls.
type function struct {
	inputs, outputs []api.TensorSpec
	digest          string
	// answer gets the values of the inputs. An error is the answer of the gateway, if it is an *api.Error.
	answer func(r *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error)
}

func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(e *api.Error) {
		w.WriteHeader(e.Code.HTTPStatus())
		fmt.Fprintf(w, `{"error":%q,"code":%q}`, e.Message, e.Code)
	}
	if r.Method == "GET" {
		specs := func(specs []api.TensorSpec) string {
			var all []string
			for _, s := range specs {
				shape, _ := json.Marshal(s.Shape)
				all = append(all, fmt.Sprintf(`{"name":%q,"dtype":%q,"shape":%s}`, s.Name, s.DType, shape))
			}
			return "[" + strings.Join(all, ",") + "]"
		}
		fmt.Fprintf(w, `{"digest":%q,"inputs":%s,"outputs":%s}`, f.digest, specs(f.inputs), specs(f.outputs))
		return
	}
	if r.Header.Get("Xebec-Signature") != f.digest {
		refuse(api.Errorf(api.Conflict, "the signature may have changed"))
		return
	}
	n, _ := strconv.Atoi(r.Header.Get("Xebec-Queries"))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has left
	}
	var reader wire.Reader
	if err := wire.NewSchema(f.inputs).Open(&reader, body, n); err != nil {
		refuse(api.Errorf(api.InvalidArgument, "%v", err))
		return
	}
	in := make(gatewaytest.Columns, len(f.inputs))
	for s := range f.inputs {
		for i := range n {
			data, dims, err := reader.Item(i, s, nil)
			if err != nil {
				refuse(api.Errorf(api.InvalidArgument, "%v", err))
				return
			}
			in[s] = append(in[s], api.Value{Data: data, Dims: dims})
		}
	}
	out, err := f.answer(r, in)
	if e, ok := errors.AsType[*api.Error](err); ok {
		refuse(e)
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler) // closes the line
	}
	schema := wire.NewSchema(f.outputs)
	block := make([]byte, schema.Size(out))
	if _, err := schema.Write(block, out); err != nil {
		refuse(api.Errorf(api.Internal, "%v", err))
		return
	}
	_, _ = w.Write(block) // it fails if the caller has left
}

// calling is a gateway of functions, by name.
func calling(t *testing.T, functions map[string]*function) *gatewaytest.Gateway {
	g := gatewaytest.New(t, text, answers)
	g.Lines = &gatewaytest.Lines{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := functions[strings.TrimPrefix(r.URL.Path, "/call/")]
		if f == nil {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"no function or model","code":"not_found"}`)
			return
		}
		f.ServeHTTP(w, r)
	})}
	return g
}

// doubling doubles vectors.
func doubling() *function {
	return &function{
		inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}, outputs: []api.TensorSpec{{Name: "y", DType: api.Float64, Shape: []int64{2}}},
		digest: "d1",
		answer: func(_ *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
			var out []api.Value
			for _, v := range in[0] {
				x, err := api.NumbersOf[float32](v)
				if err != nil {
					return nil, err
				}
				out = append(out, api.Numbers(2*float64(x[0]), 2*float64(x[1])))
			}
			return gatewaytest.Columns{out}, nil
		},
	}
}

// uppering answers texts in upper case, unless answer is set.
func uppering(answer func(r *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error)) *function {
	if answer == nil {
		answer = func(_ *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
			var out []string
			for _, v := range in[0] {
				out = append(out, strings.ToUpper(string(v.Data)))
			}
			return gatewaytest.Columns{gatewaytest.Texts(out...)}, nil
		}
	}
	return &function{inputs: text, outputs: answers, digest: "t1", answer: answer}
}

func TestCallsOfFunctions(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := calling(t, map[string]*function{"double": doubling()})
		g.Start(serving(g, func(ctx context.Context, b *Batch) error {
			r, err := b.CallFunction(ctx, "double", []float32{1, 2, 3, 4})
			if err != nil {
				return err
			}
			item, dims := ResultItem[float64](r, "y", 1)
			if r.Len() != 2 || !slices.Equal(item, []float64{6, 8}) || !slices.Equal(dims, []int64{2}) || len(r.Bytes("y", 0)) != 16 {
				t.Errorf("%d outputs, the second is %v of %v", r.Len(), item, dims)
			}
			for i := range b.Len() {
				b.SetBytes("answer", i, fmt.Append(nil, Result[float64](r, "y")))
			}
			return nil
		}, append(options, WithFunctionCalls())...))
		if g.Hello.Capabilities&wire.CapLines == 0 {
			t.Errorf("HELLO %+v", g.Hello)
		}
		for range 3 {
			g.WantTexts(g.Predict(256, "x", "y"), "[2 4 6 8]", "[2 4 6 8]")
		}
		if n := g.Lines.Given.Load(); n != 1 {
			t.Errorf("%d lines, expected that one is kept", n)
		}
		g.Drain()
	})
}

func TestFormsOfInputs(t *testing.T) {
	join := &function{
		inputs:  []api.TensorSpec{{Name: "text", DType: api.String}, {Name: "raw", DType: api.Bytes}, {Name: "n", DType: api.Int64, Shape: []int64{-1}}},
		outputs: []api.TensorSpec{{Name: "text", DType: api.String}, {Name: "sum", DType: api.Int64}, {Name: "n", DType: api.Int64, Shape: []int64{-1}}},
		answer: func(_ *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
			out := make(gatewaytest.Columns, 3)
			for i := range in[0] {
				n, err := api.NumbersOf[int64](in[2][i])
				if err != nil {
					return nil, err
				}
				sum := int64(0)
				for _, x := range n {
					sum += x
				}
				out[0] = append(out[0], api.Value{Data: append(slices.Clone(in[0][i].Data), in[1][i].Data...)})
				out[1], out[2] = append(out[1], api.Numbers(sum)), append(out[2], in[2][i])
			}
			return out, nil
		},
	}
	ints := func(x ...int64) api.Value {
		v := api.Numbers(x...)
		v.Dims = []int64{int64(len(x))}
		return v
	}
	g := calling(t, map[string]*function{"join": join})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		one, err := b.CallFunction(ctx, "join", map[string]any{"text": "a", "raw": []byte("b"), "n": []api.Value{ints(1, 2)}})
		if err != nil {
			return err
		}
		two, err := b.CallFunction(ctx, "join", map[string]any{"text": []string{"c", "d"}, "raw": [][]byte{nil, []byte("e")}, "n": []api.Value{ints(), ints(5)}})
		if err != nil {
			return err
		}
		item, _ := ResultItem[int64](two, "n", 1)
		b.SetBytes("answer", 0, fmt.Appendf(nil, "%s %d %s %s %d %d %d", one.Bytes("text", 0), Result[int64](one, "sum"), two.Bytes("text", 0), two.Bytes("text", 1),
			Result[int64](two, "sum"), two.Dims("n", 0), item))
		return nil
	}, WithFunctionCalls()))
	g.WantTexts(g.Predict(256, "x"), "ab [3] c de [0 5] [0] [5]")
	g.Drain()
}

// What a call belongs to, and its options, are in its head.
func TestWhatACallSays(t *testing.T) {
	heads := make(chan http.Header, 1)
	g := calling(t, map[string]*function{"up": uppering(func(r *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
		heads <- r.Header
		return in, nil
	})})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		options := []CallOption{CallWithin(1500 * time.Millisecond), CallContext("ann é"), CallParameters([]byte("{\n \"k\": \"é\"}"))}
		switch string(b.Bytes("text", 0)) {
		case "last":
			options = append(options, ForQuery(b.Len()-1))
		case "sooner":
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, time.Minute)
			defer stop()
			options = nil
		}
		_, err := b.CallFunction(ctx, "up", "x", options...)
		for i := range b.Len() {
			b.SetBytes("answer", i, nil)
		}
		return err
	}, WithFunctionCalls()))
	for i, c := range []struct {
		texts []string
		says  string
	}{{[]string{"a"}, "1.0"}, {[]string{"a", "b"}, "2"}, {[]string{"last", "b", "c"}, "3.2"}} {
		g.Answer(g.Predict(256, c.texts...), wire.StatusOK)
		head := <-heads
		if got := []string{head.Get("Xebec-For"), head.Get("Xebec-Context"), head.Get("Xebec-Slo-Ms"), head.Get("Xebec-Parameters"), head.Get("Accept-Encoding")}; !slices.Equal(got, []string{c.says, "ann é", "1500.000", `{"k":"é"}`, ""}) {
			t.Errorf("call %d: %q", i, got)
		}
	}
	g.Answer(g.Predict(256, "sooner"), wire.StatusOK)
	head := <-heads
	if left, err := strconv.ParseFloat(head.Get("Xebec-Slo-Ms"), 64); err != nil || left <= 0 || left > 60_000 || head["Xebec-Context"] != nil || head["Xebec-Parameters"] != nil {
		t.Errorf("a call with a minute left: %v", head)
	}
	g.Drain()
}

// An error of a call has a code, and the words of the gateway.
func TestErrorsOfCalls(t *testing.T) {
	late := uppering(func(*http.Request, gatewaytest.Columns) (gatewaytest.Columns, error) {
		return nil, api.Errorf(api.DeadlineExceeded, "too late")
	})
	broken := uppering(func(*http.Request, gatewaytest.Columns) (gatewaytest.Columns, error) { return nil, io.EOF })
	calls := map[string]func(context.Context, *Batch) (*Results, error){
		"late":   func(ctx context.Context, b *Batch) (*Results, error) { return b.CallFunction(ctx, "late", "x") },
		"none":   func(ctx context.Context, b *Batch) (*Results, error) { return b.CallFunction(ctx, "none", "x") },
		"broken": func(ctx context.Context, b *Batch) (*Results, error) { return b.CallFunction(ctx, "broken", "x") },
		"odd": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "double", []float32{1, 2, 3})
		},
		"type": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "double", []float64{1, 2})
		},
		"text": func(ctx context.Context, b *Batch) (*Results, error) { return b.CallFunction(ctx, "double", "x") },
		"name": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "double", map[string]any{"z": "x"})
		},
		"no": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "double", []float32{})
		},
		"query": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "late", "x", ForQuery(1))
		},
		"breaks": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "late", "x", CallContext("a\nb"))
		},
		"json": func(ctx context.Context, b *Batch) (*Results, error) {
			return b.CallFunction(ctx, "late", "x", CallParameters([]byte("{")))
		},
	}
	g := calling(t, map[string]*function{"late": late, "double": doubling(), "broken": broken})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		_, err := calls[string(b.Bytes("text", 0))](ctx, b)
		e, ok := errors.AsType[*CallError](err)
		if !ok {
			return fmt.Errorf("the error is %T %w", err, err)
		}
		b.SetBytes("answer", 0, fmt.Appendf(nil, "%s|%v|%v", e.Callee, e.Code, e))
		return nil
	}, WithFunctionCalls()))
	for code, want := range map[string][]string{
		"late":   {"late", "deadline_exceeded", `call of "late": too late (deadline_exceeded)`},
		"none":   {"none", "not_found", "no function or model"},
		"broken": {"broken", "unavailable", "EOF"},
		"odd":    {"double", "invalid_argument", "3 elements are no number of float32[2]"},
		"type":   {"double", "invalid_argument", `input "x": the values are a []float64`},
		"text":   {"double", "invalid_argument", "the values are a string"},
		"name":   {"double", "invalid_argument", `"x" has no values`},
		"no":     {"double", "invalid_argument", "no inputs"},
		"query":  {"late", "invalid_argument", "the batch has 1"},
		"breaks": {"late", "invalid_argument", "line breaks"},
		"json":   {"late", "invalid_argument", "the parameters"},
	} {
		res := g.Answer(g.Predict(1024, code), wire.StatusOK)
		got := strings.SplitN(string(g.Outputs(res)[0][0].Data), "|", 3)
		if got[0] != want[0] || got[1] != want[1] || !strings.Contains(got[2], want[2]) {
			t.Errorf("%s: %q, expected %q", code, got, want)
		}
	}
	g.Drain()
}

// An error that predict returns fails its batch. What a callee has refused is refused, if it belongs to one query.
func TestErrorsOfCallsThatPredictReturns(t *testing.T) {
	stage := uppering(func(_ *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
		if string(in[0][0].Data) == "refused" {
			return nil, api.Errorf(api.InvalidInput, "bad")
		}
		return nil, api.Errorf(api.ModelError, "broken")
	})
	predict := func(ctx context.Context, b *Batch) error {
		_, err := b.CallFunction(ctx, "stage", b.Bytes("text", 0))
		return fmt.Errorf("the first stage: %w", err)
	}
	for name, options := range map[string][]Option{"batches": nil, "streams": {WithStreams()}} {
		t.Run(name, func(t *testing.T) {
			g := calling(t, map[string]*function{"stage": stage})
			g.Start(serving(g, predict, append(options, WithFunctionCalls())...))
			res := g.Answer(g.Predict(1024, "refused"), wire.StatusOK)
			if got := g.Outputs(res); res.Flags != wire.FlagStatuses || string(got[2][0].Data) != `call of "stage": bad (invalid_input)` || got[1][0].Data[0] != byte(wire.ItemInvalidInput) {
				t.Errorf("flags %d, %q", res.Flags, got[2][0].Data)
			}
			r := g.Predict(1024, "broken")
			res = g.Response()
			if text := string(g.Block(res)); res.Batch != r.Batch || res.Status != wire.StatusModelError || text != `the first stage: call of "stage": broken (model_error)` {
				t.Errorf("%+v %q", res, text)
			}
			if name == "batches" {
				g.WantText(g.Predict(1024, "refused", "x"), wire.StatusModelError, "bad (invalid_input)")
			}
			g.Drain()
		})
	}
}

// A callee whose signature has changed is asked for it once again, and not for ever.
func TestASignatureThatChanges(t *testing.T) {
	second, third := doubling(), doubling()
	second.digest, second.outputs[0].DType = "d2", api.Int64
	third.digest = "\"d3 " // no such digest can be sent back
	versions := []*function{doubling(), second, third}
	var now atomic.Int64
	g := gatewaytest.New(t, text, answers)
	g.Lines = &gatewaytest.Lines{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { versions[now.Load()].ServeHTTP(w, r) })}
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		r, err := b.CallFunction(ctx, "double", []float32{1, 2})
		if err == nil {
			b.SetBytes("answer", 0, fmt.Append(nil, r.Signature().Outputs[0]))
		}
		return err
	}, WithFunctionCalls()))
	for _, want := range []string{"float64[2]", "int64[2]"} {
		g.WantTexts(g.Predict(256, "x"), want)
		now.Add(1)
	}
	g.WantText(g.Predict(1024, "x"), wire.StatusModelError, "(conflict)")
	g.Drain()
}

// Calls at once have a line each, up to a bound, and lines are kept.
func TestCallsAtOnce(t *testing.T) {
	const calls = 3 * maxLines
	var meeting sync.WaitGroup
	meeting.Add(maxLines)
	var come, most, inside atomic.Int64
	f := uppering(func(_ *http.Request, in gatewaytest.Columns) (gatewaytest.Columns, error) {
		now := inside.Add(1)
		defer inside.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		if come.Add(1) <= maxLines { // the first ones wait for each other
			meeting.Done()
			meeting.Wait()
		}
		return in, nil
	})
	g := calling(t, map[string]*function{"up": f})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		var all sync.WaitGroup
		var failed atomic.Int64
		for range calls {
			all.Go(func() {
				if _, err := b.CallFunction(ctx, "up", "x"); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		b.SetBytes("answer", 0, fmt.Append(nil, failed.Load()))
		return nil
	}, WithFunctionCalls()))
	g.WantTexts(g.Predict(256, "x"), "0")
	if given := g.Lines.Given.Load(); most.Load() != maxLines || given != maxLines {
		t.Errorf("%d calls at once on %d lines, expected %d", most.Load(), given, maxLines)
	}
	g.Drain()
}

// A call ends with its context, and so does its line, which tells the gateway.
func TestACallThatIsCancelled(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	f := uppering(func(r *http.Request, _ gatewaytest.Columns) (gatewaytest.Columns, error) {
		close(entered)
		<-r.Context().Done()
		close(left)
		return nil, io.EOF
	})
	why := errors.New("enough")
	g := calling(t, map[string]*function{"waits": f, "double": doubling()})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		ctx, stop := context.WithCancelCause(ctx)
		go func() {
			<-entered
			stop(why)
		}()
		_, err := b.CallFunction(ctx, "waits", "x")
		if e, ok := errors.AsType[*CallError](err); !ok || e.Code != api.Cancelled || !errors.Is(err, why) {
			t.Errorf("the error is %v", err)
		}
		late, stop2 := context.WithDeadline(b.w.ctx, time.Now())
		defer stop2()
		_, err = b.CallFunction(late, "double", []float32{1, 2})
		if e, ok := errors.AsType[*CallError](err); !ok || e.Code != api.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		<-left
		b.SetBytes("answer", 0, nil)
		return nil
	}, WithFunctionCalls()))
	g.WantTexts(g.Predict(256, "x"), "")
	g.Drain()
}

func TestAGatewayThatGivesNoLine(t *testing.T) {
	g := calling(t, map[string]*function{"double": doubling()})
	g.Lines.Limit = -1
	predict := func(ctx context.Context, b *Batch) error {
		_, err := b.CallFunction(ctx, "double", []float32{1, 2})
		return err
	}
	g.Start(serving(g, predict, WithFunctionCalls()))
	for range 2 {
		g.WantText(g.Predict(1024, "x"), wire.StatusModelError, `call of "double": the gateway gives no connection: it is stopping, or has no descriptors left (unavailable)`)
	}
	g.Drain()
}

// A model that may not call is told what to do.
func TestAModelThatCallsNothing(t *testing.T) {
	var kept *Batch
	predict := func(ctx context.Context, b *Batch) error {
		kept = b
		_, err := b.CallFunction(ctx, "double", []float32{1, 2})
		return err
	}
	for want, options := range map[string][]Option{"pass WithFunctionCalls() to Serve (forbidden)": nil, "add calls: [double] to its manifest": {WithFunctionCalls()}} {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, predict, options...))
		if calls := g.Hello.Capabilities&wire.CapLines != 0; calls != (options != nil) {
			t.Errorf("HELLO %+v", g.Hello)
		}
		g.WantText(g.Predict(1024, "x"), wire.StatusModelError, want)
		g.Drain()
		if _, err := kept.CallFunction(t.Context(), "double", nil); err == nil || !strings.Contains(err.Error(), "in predict only") {
			t.Errorf("after predict: %v", err)
		}
	}
}

// LINES comes once, with a descriptor, if the mode says so.
func TestLinesOutOfPlace(t *testing.T) {
	for name, lines := range map[string]*gatewaytest.Lines{"not said in WELCOME": nil, "twice": {Handler: http.NotFoundHandler()}} {
		t.Run(name, func(t *testing.T) {
			g := gatewaytest.New(t, text, answers)
			g.Lines = lines
			g.Run(serving(g, upper, WithFunctionCalls()))
			g.Welcome()
			if lines != nil {
				g.SendLines(lines)
			}
			g.SendLines(&gatewaytest.Lines{Handler: http.NotFoundHandler()})
			g.Wait(func(err error) {
				if err == nil || !strings.Contains(err.Error(), "not legal here") {
					t.Errorf("the worker ended with %v", err)
				}
			})
		})
	}
	g := gatewaytest.New(t, text, answers)
	g.Lines = &gatewaytest.Lines{}
	g.Run(serving(g, upper, WithFunctionCalls()))
	g.Welcome()
	g.Send(wire.AppendLines(nil))
	g.Wait(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "without a descriptor") {
			t.Errorf("the worker ended with %v", err)
		}
	})
}

// A wrong name, type or number is a mistake of the program, as with inputs.
func TestMistakesWithResults(t *testing.T) {
	g := calling(t, map[string]*function{"double": doubling()})
	g.Start(serving(g, func(ctx context.Context, b *Batch) error {
		r, err := b.CallFunction(ctx, "double", []float32{1, 2})
		if err != nil {
			return err
		}
		switch string(b.Bytes("text", 0)) {
		case "name":
			r.Bytes("z", 0)
		case "type":
			Result[float32](r, "y")
		case "number":
			r.Bytes("y", 1)
		}
		return nil
	}, WithFunctionCalls()))
	for code, want := range map[string]string{"name": `double has no output "z"`, "type": "cannot be viewed as float32", "number": "no output 1 of double: the call had 1 inputs"} {
		g.WantText(g.Predict(1024, code), wire.StatusModelError, want)
	}
	g.Drain()
}
