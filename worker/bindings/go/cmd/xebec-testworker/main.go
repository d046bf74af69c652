// Command xebec-testworker is the worker of tests and benchmarks. It costs almost nothing, and misbehaves when told to.
//
//	xebec-testworker [-mode noop|echo|error|markers] [-spin 2ms] [-no-ring] [-contexts] [-confidences] [-feedback] [-accuracy]
//
// noop sets every output of any signature to zeros, or empty if the signature allows that. echo copies the first input
// to the first output, and zeros to the others. error fails on every batch. markers needs the signature bytes[] → bytes[] and echoes, unless an
// input begins with
//
//	panic     predict panics
//	error     predict returns an error
//	bad       that query's output is left out: BAD_OUTPUT
//	die       the process exits with status 3, in the middle of the batch
//	hang      predict never returns
//	big:N     the output has N bytes
//	spin:D    predict is busy for the duration D first
//	context   the output is the query's context (with -contexts)
//
// -spin makes predict busy for a time per batch. Each flag also has an environment variable, for launchers that cannot
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
	flag.StringVar(&m.mode, "mode", "noop", "what predict does: noop, echo, error or markers")
	flag.DurationVar(&m.spin, "spin", 0, "how long predict is busy with each batch")
	noRing := flag.Bool("no-ring", false, "exchange descriptors over the socket")
	contexts := flag.Bool("contexts", false, "ask for contexts")
	confidences := flag.Bool("confidences", false, "return a confidence of 0.5 for each query")
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
	if *contexts {
		options = append(options, xebec.WithContexts())
	}
	if *confidences {
		m.confidences = true
		options = append(options, xebec.WithConfidences())
	}
	if *feedback {
		options = append(options, xebec.WithFeedback(m.learn))
	}
	if *accuracy {
		options = append(options, xebec.WithAccuracy(m.accuracy))
	}
	predict, ok := map[string]func(*xebec.Batch) error{"noop": noop, "echo": echo, "error": fail, "markers": markers}[m.mode]
	if !ok {
		log.Fatalf("mode %q: expected noop, echo, error or markers", m.mode)
	}
	m.predict = predict
	if err := xebec.Serve(m.serve, options...); err != nil {
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
	mode          string
	spin          time.Duration
	confidences   bool
	predict       func(*xebec.Batch) error
	labels, right int
}

func (m *model) serve(_ context.Context, b *xebec.Batch) error {
	spin(m.spin)
	if m.confidences {
		for i := range b.Confidences() {
			b.Confidences()[i] = 0.5
		}
	}
	return m.predict(b)
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
func noop(b *xebec.Batch) error {
	for s := range b.Signature().Outputs {
		zeros(b, &b.Signature().Outputs[s])
	}
	return nil
}

// fail is a model that is broken.
func fail(*xebec.Batch) error { return errors.New("this model fails on every batch") }

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

func echo(b *xebec.Batch) error {
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

func markers(b *xebec.Batch) error {
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
		case bytes.HasPrefix(data, []byte("context")):
			data = b.Context(i)
		}
		b.SetBytes(out, i, data)
	}
	return nil
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
