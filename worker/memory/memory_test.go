package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/memory"
	"github.com/xebec-serving/xebec/worker/workertest"
)

func TestMain(m *testing.M) {
	// workertest initialises netpoll's pollers, which serve the whole process and never end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// The transport passes the suite that package local passes, including deaths of workers.
func TestTransport(t *testing.T) {
	workertest.RunTransport(t, workertest.Transport{
		Worker: workertest.Worker{NoLines: true, NoSteps: true},
		Open: func(_ testing.TB, maxBatchBytes uint64) (worker.Transport, error) {
			return memory.New(memory.Config{Now: workertest.Now, MaxBatchBytes: int(maxBatchBytes)}), nil
		},
		Start: func(tb testing.TB, tr worker.Transport, env []string) workertest.Process {
			return process{tr.(*memory.Transport).Start(env, conformance(tb, env))}
		},
	})
}

// process adapts a worker to the suite.
type process struct{ *memory.Worker }

func (p process) PID() int { return 0 }

func (p process) Signal(sig syscall.Signal) error {
	switch sig {
	case syscall.SIGTERM:
		p.Stop()
	case syscall.SIGKILL:
		p.Kill()
	default:
		return fmt.Errorf("a worker in memory has no signal %v", sig)
	}
	return nil
}

// conformance returns the suite's model that env selects.
func conformance(tb testing.TB, env []string) memory.Model {
	set := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value
	}
	var k markers
	m := memory.Model{Contexts: set[workertest.EnvContexts] == "1", Confidences: set[workertest.EnvConfidences] == "1",
		Parameters: set[workertest.EnvParameters] == "1", Calls: set[workertest.EnvCalls] == "1"}
	if n := strings.TrimPrefix(set[workertest.EnvConcurrency], "async"); n != "" {
		var err error
		if m.Concurrency, err = strconv.Atoi(n); err != nil {
			tb.Fatal(err)
		}
	}
	switch name := set[workertest.EnvModel]; name {
	case workertest.Echo:
		m.Predict = echo
	case workertest.Markers:
		m.Predict = k.predict
	case workertest.Wrong:
		m.Predict = wrong
	case workertest.Stream:
		m.Stream = flow
	default:
		tb.Fatalf("%s=%q: no such model", workertest.EnvModel, name)
	}
	if set[workertest.EnvFeedback] == "1" {
		m.Feedback, m.Accuracy = k.learn, k.accuracy
	}
	if predict := m.Predict; m.Confidences && predict != nil {
		m.Predict = func(b *memory.Batch) error {
			for i := range b.Confidences {
				b.Confidences[i] = 0.5
			}
			return predict(b)
		}
	}
	return m
}

func echo(b *memory.Batch) error {
	for i, row := range b.Inputs {
		b.Outputs[i] = append(b.Outputs[i], row...)
	}
	return nil
}

// markers is the suite's Markers model.
type markers struct {
	told          string
	labels, right int
}

func (m *markers) predict(b *memory.Batch) error {
	for i, row := range b.Inputs {
		data := row[0].Data
		word, rest, _ := strings.Cut(string(data), ":")
		switch {
		case bytes.HasPrefix(data, []byte("error")):
			return errors.New("the marker error")
		case bytes.HasPrefix(data, []byte("panic")):
			panic("the marker panic")
		case bytes.HasPrefix(data, []byte("bad")):
			continue
		case bytes.HasPrefix(data, []byte("die")):
			return memory.Exit(3)
		case word == "big":
			n, err := strconv.Atoi(rest)
			if err != nil {
				return err
			}
			data = bytes.Repeat([]byte{'x'}, n)
		case word == "wait":
			if _, err := os.ReadFile(rest); err != nil {
				return err
			}
		case bytes.HasPrefix(data, []byte("context")):
			data = b.Contexts[i]
		case string(data) == "parameters":
			data = b.Parameters[i]
		case string(data) == "call":
			data = callText(b.Calls[i])
		case string(data) == "told":
			data = []byte(m.told)
		case word == "refuse", word == "raise" && len(b.Inputs) == 1:
			b.Refused[i] = memory.Refusal{Code: api.InvalidInput, Text: rest}
			continue
		case word == "fail":
			b.Refused[i] = memory.Refusal{Code: api.ModelError, Text: rest}
			continue
		case word == "raise":
			return errors.New(rest)
		}
		b.Outputs[i] = []api.Value{{Data: data}}
	}
	return nil
}

func callText(c memory.Call) []byte {
	when := "soon"
	switch {
	case c.Deadline == api.Never:
		when = "none"
	case c.Deadline < workertest.Now():
		when = "past"
	}
	return fmt.Appendf(nil, "%s|%s|%s|%s", c.RequestID, c.TraceParent, c.TraceState, when)
}

// flow is the suite's Stream model.
func flow(b *memory.Batch, out *memory.Outputs) error {
	send := func(data []byte) error { return out.Send(0.5, api.Value{Data: data}) }
	for step := range strings.FieldsSeq(string(b.Inputs[0][0].Data)) {
		word, rest, _ := strings.Cut(step, ":")
		var err error
		switch word {
		case "ends":
			defer func() {
				if end, err := os.OpenFile(rest, os.O_WRONLY, 0); err == nil { // blocks until the FIFO has a reader
					end.Close()
				}
			}()
		case "out":
			err = send([]byte(rest))
		case "context":
			err = send(b.Contexts[0])
		case "parameters":
			err = send(b.Parameters[0])
		case "call":
			err = send(callText(b.Calls[0]))
		case "count", "big":
			n, bad := strconv.Atoi(rest)
			if err = bad; word == "big" && err == nil {
				err, n = send(bytes.Repeat([]byte{'x'}, n)), 0
			}
			for i := 0; i < n && err == nil; i++ {
				err = send([]byte(strconv.Itoa(i)))
			}
		case "forever":
			for err == nil {
				err = send([]byte{'x'})
			}
		case "wait":
			_, err = os.ReadFile(rest)
		case "bad":
			err = out.Send(0.5)
		case "refuse":
			b.Refused[0] = memory.Refusal{Code: api.InvalidInput, Text: rest}
			return nil
		case "fail":
			b.Refused[0] = memory.Refusal{Code: api.ModelError, Text: rest}
			return nil
		case "die":
			return memory.Exit(3)
		case "panic":
			panic("the marker panic")
		default:
			err = errors.New("the marker error")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *markers) learn(b *memory.Batch) error {
	var told []string
	for i, label := range b.Labels {
		if text, err := strconv.Unquote(string(label)); err == nil {
			if text == "panic" {
				panic("the label panic")
			}
			if path, ok := strings.CutPrefix(text, "wait:"); ok {
				if _, err := os.ReadFile(path); err != nil {
					return err
				}
			}
		}
		m.labels++
		if string(label) == "true" {
			m.right++
		}
		context := []byte(nil)
		if b.Contexts != nil {
			context = b.Contexts[i]
		}
		told = append(told, fmt.Sprintf("%s/%s/%s", b.Inputs[i][0].Data, context, label))
	}
	m.told = strings.Join(told, ";")
	return nil
}

func (m *markers) accuracy() (float64, error) {
	if m.labels == 0 {
		return 0, errors.New("no feedback yet")
	}
	return float64(m.right) / float64(m.labels), nil
}

func wrong(b *memory.Batch) error {
	value := api.Value{Data: make([]byte, 16)}
	switch b.Inputs[0][0].Data[0] {
	case 1:
		b.Outputs = b.Outputs[:len(b.Outputs)-1]
	case 2:
		value.Data = value.Data[:12]
	case 3:
		value.Dims = []int64{2, 2}
	}
	for i := range b.Outputs {
		b.Outputs[i] = []api.Value{value}
	}
	return nil
}
