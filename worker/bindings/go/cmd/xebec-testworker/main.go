// Command xebec-testworker is the worker of tests and benchmarks. It costs almost nothing, and misbehaves when told to.
//
//	xebec-testworker [-mode noop|echo|error|markers|stream] [-spin 2ms] [-no-ring] [-concurrency 4] [-contexts] [-parameters] [-calls]
//	                 [-functions] [-confidences] [-feedback] [-accuracy]
//
// noop sets every output of any signature to zeros, or empty if the signature allows that. echo copies the first input
// to the first output, and zeros to the others. error fails on every batch. markers needs the signature bytes[] → bytes[] and echoes, unless an
// input begins with
//
//	panic      predict panics
//	error      predict returns an error
//	bad        that query's output is left out: BAD_OUTPUT
//	die        the process exits with status 3, in the middle of the batch
//	hang       predict never returns
//	wait:PATH  predict reads the file PATH to its end first, which may be a FIFO
//	big:N      the output has N bytes
//	spin:D     predict is busy for the duration D first
//	refuse:T   that query is refused with the text T
//	fail:T     that query ends in a model error with the text T
//	raise:T    as refuse, if the query is alone in its batch; otherwise predict returns the error T
//	context    the output is the query's context (with -contexts)
//	parameters the output is the query's parameters (with -parameters)
//	call       the output is REQUEST ID|TRACEPARENT|TRACESTATE|soon (with -calls); without a deadline it ends with none
//	ask:F:T    calls the function F for that query, with T; the output is its first output, or CODE|TEXT of the error (with -functions)
//
// stream needs the signature bytes[] → bytes[], of bytes or strings, and answers in streams. Its input is a list of steps, separated by spaces:
//
//	out:T      sends the output T
//	count:N    sends the outputs 0 to N-1
//	big:N      sends an output of N bytes
//	forever    sends outputs of one byte until no more is wanted; forever:N, of N bytes
//	hang       waits until no more is wanted
//	wait:PATH  reads the file PATH to its end
//	ends:PATH  makes the file PATH, or opens the FIFO, when the stream has ended, however it ends
//	context, parameters, call         send what the markers answer
//	error, panic, die, refuse:T, fail:T  end the stream as the markers end a batch
//	bad        sends an output that is missing
//
// -spin makes predict busy for a time per batch, and per output of a stream. Each flag also has an environment variable, for launchers that cannot
// pass flags: XEBEC_TESTWORKER_MODE, XEBEC_TESTWORKER_SPIN and so on, with '_' for a dash.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

// exitDie is the exit status after the marker "die".
const exitDie = 3

func main() {
	log.SetFlags(0)
	log.SetPrefix("xebec-testworker: ")
	var m model
	flag.StringVar(&m.mode, "mode", "noop", "what predict does: noop, echo, error, markers or stream")
	flag.DurationVar(&m.spin, "spin", 0, "how long predict is busy with each batch")
	noRing := flag.Bool("no-ring", false, "exchange descriptors over the socket")
	concurrency := flag.Int("concurrency", 0, "how many batches, or streams, to evaluate at once")
	contexts := flag.Bool("contexts", false, "ask for contexts")
	parameters := flag.Bool("parameters", false, "ask for parameters")
	calls := flag.Bool("calls", false, "ask for calls")
	functions := flag.Bool("functions", false, "call other functions")
	flag.BoolVar(&m.confidences, "confidences", false, "return a confidence of 0.5 for each query")
	feedback := flag.Bool("feedback", false, "take feedback: a label \"panic\" panics")
	accuracy := flag.Bool("accuracy", false, "answer the share of feedback labels that were \"true\"")
	if err := flagsFromEnv(); err != nil {
		log.Fatal(err)
	}
	flag.Parse()

	var options []xebec.Option
	if *noRing {
		options = append(options, xebec.WithSocketDescriptors())
	}
	if *concurrency != 0 {
		options = append(options, xebec.WithConcurrency(*concurrency))
	}
	for _, o := range []struct {
		on     bool
		option xebec.Option
	}{
		{*contexts, xebec.WithContexts()}, {*parameters, xebec.WithParameters()}, {*calls, xebec.WithCalls()},
		{*functions, xebec.WithFunctionCalls()},
		{m.confidences, xebec.WithConfidences()}, {m.mode == "stream", xebec.WithStreams()},
	} {
		if o.on {
			options = append(options, o.option)
		}
	}
	if *feedback {
		options = append(options, xebec.WithFeedback(m.learn))
	}
	if *accuracy {
		options = append(options, xebec.WithAccuracy(m.accuracy))
	}
	serve := m.serve
	switch m.mode {
	case "noop":
		m.predict = noop
	case "echo":
		m.predict = echo
	case "error":
		m.predict = fail
	case "markers":
		m.predict = markers
	case "stream":
		serve = m.flow
	default:
		log.Fatalf("mode %q: expected noop, echo, error, markers or stream", m.mode)
	}
	if err := xebec.Serve(serve, options...); err != nil {
		log.Fatal(err)
	}
}

func flagsFromEnv() (err error) {
	flag.VisitAll(func(f *flag.Flag) {
		name := "XEBEC_TESTWORKER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && err == nil {
			if set := f.Value.Set(v); set != nil {
				err = fmt.Errorf("%s=%s: %w", name, v, set)
			}
		}
	})
	return err
}

type model struct {
	mode        string
	spin        time.Duration
	confidences bool
	predict     func(context.Context, *xebec.Batch) error

	labels, right int
}

func (m *model) serve(ctx context.Context, b *xebec.Batch) error {
	spin(m.spin)
	m.confide(b)
	return m.predict(ctx, b)
}

func (m *model) confide(b *xebec.Batch) {
	if m.confidences {
		for i := range b.Confidences() {
			b.Confidences()[i] = 0.5
		}
	}
}

// spin keeps the processor busy, as a model does. A sleep would release it.
func spin(d time.Duration) {
	if d <= 0 {
		return
	}
	for start := time.Now(); time.Since(start) < d; {
	}
}

// noop answers zeros of the smallest shape that fits.
func noop(_ context.Context, b *xebec.Batch) error {
	for s := range b.Signature().Outputs {
		zeros(b, &b.Signature().Outputs[s])
	}
	return nil
}

// fail is a model that is broken.
func fail(context.Context, *xebec.Batch) error { return errors.New("this model fails on every batch") }

func zeros(b *xebec.Batch, spec *api.TensorSpec) {
	if spec.Fixed() {
		b.OutputRaw(spec.Name) // zeroed at first
		return
	}
	var dims [api.MaxRank]int64
	n := 1
	for j, d := range spec.Shape {
		dims[j] = max(d, 0)
		n *= int(dims[j])
	}
	switch {
	case len(spec.Shape) == 0:
		n = 0
	case spec.DType.Variable():
		n *= 4 // the lengths of empty elements
	default:
		n *= spec.DType.Size()
	}
	for i := range b.Len() {
		clear(b.Reserve(spec.Name, i, n, dims[:len(spec.Shape)]...))
	}
}

func echo(_ context.Context, b *xebec.Batch) error {
	sig := b.Signature()
	if len(sig.Inputs) == 0 || len(sig.Outputs) == 0 {
		return errors.New("echo needs an input and an output")
	}
	in, out := &sig.Inputs[0], &sig.Outputs[0]
	if in.Fixed() && out.Fixed() {
		from, to := b.InputRaw(in.Name), b.OutputRaw(out.Name)
		if len(from) != len(to) {
			return fmt.Errorf("echo: input %v and output %v differ in size", in, out)
		}
		copy(to, from)
	} else {
		for i := range b.Len() {
			b.SetBytes(out.Name, i, b.Bytes(in.Name, i), b.Dims(in.Name, i)...)
		}
	}
	for s := 1; s < len(sig.Outputs); s++ {
		zeros(b, &sig.Outputs[s])
	}
	return nil
}

func markers(ctx context.Context, b *xebec.Batch) error {
	in, out := b.Signature().Inputs[0].Name, b.Signature().Outputs[0].Name
	for i := range b.Len() {
		data := b.Bytes(in, i)
		word, rest, _ := bytes.Cut(data, []byte(":"))
		switch {
		case bytes.HasPrefix(data, []byte("panic")):
			panic("the marker panic")
		case bytes.HasPrefix(data, []byte("error")):
			return errors.New("the marker error")
		case bytes.HasPrefix(data, []byte("bad")):
			continue
		case bytes.HasPrefix(data, []byte("die")):
			os.Exit(exitDie)
		case bytes.HasPrefix(data, []byte("hang")):
			<-make(chan struct{})
		case string(word) == "big":
			n, err := strconv.Atoi(string(rest))
			if err != nil {
				return fmt.Errorf("the marker big: %w", err)
			}
			fill(b.Reserve(out, i, n))
			continue
		case string(word) == "spin":
			d, err := time.ParseDuration(string(rest))
			if err != nil {
				return fmt.Errorf("the marker spin: %w", err)
			}
			spin(d)
		case string(word) == "wait":
			if _, err := os.ReadFile(string(rest)); err != nil {
				return err
			}
		case string(word) == "refuse", string(word) == "raise" && b.Len() == 1:
			b.Refuse(i, string(rest))
			continue
		case string(word) == "fail":
			b.Fail(i, string(rest))
			continue
		case string(word) == "raise":
			return errors.New(string(rest))
		case bytes.HasPrefix(data, []byte("context")):
			data = b.Context(i)
		case string(data) == "parameters":
			data = b.Parameters(i)
		case string(data) == "call":
			data = callText(b.Call(i))
		case string(word) == "ask":
			data = ask(ctx, b, i, rest)
		}
		b.SetBytes(out, i, data)
	}
	return nil
}

// ask calls a function for query i, with FUNCTION:TEXT.
func ask(ctx context.Context, b *xebec.Batch, i int, what []byte) []byte {
	callee, text, _ := bytes.Cut(what, []byte(":"))
	r, err := b.CallFunction(ctx, string(callee), text, xebec.ForQuery(i))
	if e, ok := errors.AsType[*xebec.CallError](err); ok {
		return fmt.Appendf(nil, "%v|%s", e.Code, e.Message)
	}
	return r.Bytes(r.Signature().Outputs[0].Name, 0)
}

func fill(dst []byte) {
	for i := range dst {
		dst[i] = 'x'
	}
}

func (m *model) learn(_ context.Context, b *xebec.Batch) error {
	for i := range b.Len() {
		switch label := string(b.Label(i)); label {
		case `"panic"`:
			panic("the label panic")
		case "true":
			m.right++
		}
		m.labels++
	}
	return nil
}

func (m *model) accuracy(context.Context) (float64, error) {
	if m.labels == 0 {
		return 0, errors.New("no feedback yet")
	}
	return float64(m.right) / float64(m.labels), nil
}
