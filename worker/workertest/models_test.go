package workertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// serve runs the conformance models on the Go binding.
func serve(env func(string) string, stop context.Context) error {
	var m marked
	predict, ok := map[string]func(context.Context, *xebec.Batch) error{workertest.Echo: echo, workertest.Markers: m.predict, workertest.Wrong: wrong, workertest.Stream: flow{env(workertest.EnvConfidences) == "1"}.predict}[env(workertest.EnvModel)]
	if !ok {
		return fmt.Errorf("%s=%q: no such model", workertest.EnvModel, env(workertest.EnvModel))
	}
	micros, _ := strconv.Atoi(env("XEBEC_BUSY_POLL")) // 0 without it
	options := []xebec.Option{xebec.WithLaunch(xebec.Launch{BusyPoll: time.Duration(micros) * time.Microsecond, Socket: env("XEBEC_SOCKET"), Token: env("XEBEC_TOKEN"), Model: env("XEBEC_MODEL"), Version: env("XEBEC_VERSION")})}
	if stop != nil {
		options = append(options, xebec.WithStop(stop))
	}
	if env(envSocketOnly) == "1" {
		options = append(options, xebec.WithSocketDescriptors())
	}
	for name, option := range map[string]xebec.Option{workertest.EnvContexts: xebec.WithContexts(), workertest.EnvParameters: xebec.WithParameters(), workertest.EnvCalls: xebec.WithCalls(),
		workertest.EnvFunctions: xebec.WithFunctionCalls()} {
		if env(name) == "1" {
			options = append(options, option)
		}
	}
	if env(workertest.EnvModel) == workertest.Stream {
		options = append(options, xebec.WithStreams())
	}
	if text := strings.TrimPrefix(env(workertest.EnvConcurrency), "async"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		options = append(options, xebec.WithConcurrency(n))
	}
	if env(workertest.EnvFeedback) == "1" {
		options = append(options, xebec.WithFeedback(m.learn), xebec.WithAccuracy(m.accuracy))
	}
	sure := env(workertest.EnvConfidences) == "1"
	if sure {
		options = append(options, xebec.WithConfidences())
	}
	if env(workertest.EnvSteps) == "1" && env(workertest.EnvModel) == workertest.Stream {
		return xebec.ServeSteps(startFlowing, flow{sure}.advance, options...)
	}
	return xebec.Serve(func(ctx context.Context, b *xebec.Batch) error {
		if sure && env(workertest.EnvModel) != workertest.Stream {
			confide(b)
		}
		return predict(ctx, b)
	}, options...)
}

func confide(b *xebec.Batch) {
	for i := range b.Confidences() {
		b.Confidences()[i] = 0.5
	}
}

func echo(_ context.Context, b *xebec.Batch) error {
	for s, in := range b.Signature().Inputs {
		out := b.Signature().Outputs[s].Name
		if in.Fixed() {
			copy(b.OutputRaw(out), b.InputRaw(in.Name))
			continue
		}
		for i := range b.Len() {
			b.SetBytes(out, i, b.Bytes(in.Name, i), b.Dims(in.Name, i)...)
		}
	}
	return nil
}

// marked is the Markers model.
type marked struct {
	mu            sync.Mutex
	told          string
	labels, right int
}

func (m *marked) learn(_ context.Context, b *xebec.Batch) error {
	var told []string
	for i := range b.Len() {
		label := string(b.Label(i))
		if text, err := strconv.Unquote(label); err == nil {
			if text == "panic" {
				panic("the label panic")
			}
			if path, ok := strings.CutPrefix(text, "wait:"); ok {
				if _, err := os.ReadFile(path); err != nil {
					return err
				}
			}
		}
		m.mu.Lock()
		m.labels++
		if label == "true" {
			m.right++
		}
		m.mu.Unlock()
		told = append(told, fmt.Sprintf("%s/%s/%s", b.Bytes("in", i), b.Context(i), label))
	}
	m.mu.Lock()
	m.told = strings.Join(told, ";")
	m.mu.Unlock()
	return nil
}

func (m *marked) accuracy(context.Context) (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.labels == 0 {
		return 0, errors.New("no feedback yet")
	}
	return float64(m.right) / float64(m.labels), nil
}

func (m *marked) predict(ctx context.Context, b *xebec.Batch) error {
	for i := range b.Len() {
		data := b.Bytes("in", i)
		word, rest, _ := bytes.Cut(data, []byte(":"))
		switch {
		case bytes.HasPrefix(data, []byte("error")):
			return errors.New("the marker error")
		case bytes.HasPrefix(data, []byte("panic")):
			panic("the marker panic")
		case bytes.HasPrefix(data, []byte("bad")):
			continue
		case bytes.HasPrefix(data, []byte("die")):
			os.Exit(3)
		case string(word) == "big":
			n, err := strconv.Atoi(string(rest))
			if err != nil {
				return err
			}
			copy(b.Reserve("out", i, n), bytes.Repeat([]byte{'x'}, n))
			continue
		case string(word) == "wait":
			if _, err := os.ReadFile(string(rest)); err != nil {
				return err
			}
		case bytes.HasPrefix(data, []byte("context")):
			data = b.Context(i)
		case string(data) == "parameters":
			data = b.Parameters(i)
		case string(data) == "call":
			data = callText(b.Call(i))
		case string(word) == "ask":
			data = ask(ctx, b, i, rest)
		case string(data) == "told":
			m.mu.Lock()
			data = []byte(m.told)
			m.mu.Unlock()
		case string(word) == "refuse", string(word) == "raise" && b.Len() == 1:
			b.Refuse(i, string(rest))
			continue
		case string(word) == "fail":
			b.Fail(i, string(rest))
			continue
		case string(word) == "raise":
			return errors.New(string(rest))
		}
		b.SetBytes("out", i, data)
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
	return r.Bytes("out", 0)
}

func wrong(_ context.Context, b *xebec.Batch) error {
	switch xebec.Input[int32](b, "code")[0] {
	case 0:
		b.OutputRaw("out")
	case 2:
		b.SetBytes("out", 0, make([]byte, 12))
	case 3:
		b.SetBytes("out", 0, make([]byte, 16), 2, 2)
	}
	return nil
}

func callText(c xebec.Call) []byte {
	when := "soon"
	switch {
	case c.Deadline.IsZero():
		when = "none"
	case c.Deadline.Before(time.Now()):
		when = "past"
	}
	return fmt.Appendf(nil, "%s|%s|%s|%s", c.RequestID, c.TraceParent, c.TraceState, when)
}

// flow is the Stream model.
type flow struct{ sure bool }

func (f flow) predict(_ context.Context, b *xebec.Batch) error {
	for step := range strings.FieldsSeq(string(b.Bytes("in", 0))) {
		word, rest, _ := strings.Cut(step, ":")
		if word == "ends" {
			defer func() {
				if end, err := os.OpenFile(rest, os.O_WRONLY, 0); err == nil { // blocks until the FIFO has a reader
					end.Close()
				}
			}()
			continue
		}
		if done, err := f.step(b, word, rest); done || err != nil {
			return err
		}
	}
	return nil
}

// step reports whether the stream has ended.
func (f flow) step(b *xebec.Batch, word, rest string) (done bool, err error) {
	switch word {
	case "out":
		return false, f.send(b, []byte(rest))
	case "context":
		return false, f.send(b, b.Context(0))
	case "parameters":
		return false, f.send(b, b.Parameters(0))
	case "call":
		return false, f.send(b, callText(b.Call(0)))
	case "count", "big":
		n, err := strconv.Atoi(rest)
		if word == "big" && err == nil {
			return false, f.send(b, bytes.Repeat([]byte{'x'}, n))
		}
		for i := 0; i < n && err == nil; i++ {
			err = f.send(b, []byte(strconv.Itoa(i)))
		}
		return false, err
	case "forever":
		for err == nil {
			err = f.send(b, []byte{'x'})
		}
		return true, err
	case "wait":
		_, err := os.ReadFile(rest)
		return false, err
	case "bad":
		return true, b.Send()
	case "refuse":
		b.Refuse(0, rest)
		return true, nil
	case "fail":
		b.Fail(0, rest)
		return true, nil
	case "die":
		os.Exit(3)
	case "panic":
		panic("the marker panic")
	}
	return true, errors.New("the marker error")
}

func (f flow) send(b *xebec.Batch, data []byte) error {
	if f.sure {
		confide(b)
	}
	b.SetBytes("out", 0, data)
	return b.Send()
}
