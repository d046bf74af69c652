package workertest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

const envVersion1 = "XEBEC_CONFORMANCE_VERSION1"

// A worker of version 1 passes every case of that version, and gets nothing that its version lacks. It is written out here, without a binding, so
// that it does not learn what the bindings learn.
func TestVersion1(t *testing.T) {
	bothModes(t, func(env []string) func(testing.TB, []string) workertest.Process {
		return func(tb testing.TB, launch []string) workertest.Process {
			env := append([]string{"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE"), envVersion1 + "=1"}, env...)
			return workertest.StartProcess(tb, exec.Command("/proc/self/exe"), append(launch, env...))
		}
	}, workertest.Worker{Version1: true})
}

// process is the TB of a process of its own.
type process struct{}

func (process) Helper() {}

func (p process) Errorf(format string, args ...any) { p.Fatalf(format, args...) }

func (process) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// version1 is the worker.
type version1 struct {
	*workertest.Raw
	model         string
	capabilities  uint32
	draining      bool
	kept          map[uint64]answer1
	told          string
	labels, right int
}

// answer1 is an answer that may wait for more room.
type answer1 struct {
	response wire.Response
	block    []byte
}

func serveVersion1() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	w := &version1{Raw: workertest.DialRaw(process{}, os.Getenv("XEBEC_SOCKET")), model: os.Getenv(workertest.EnvModel), kept: map[uint64]answer1{}}
	w.Version, w.Binding, w.Other = 1, "xebec-version1/1.0", w.otherFrame
	if os.Getenv(envSocketOnly) != "1" {
		w.capabilities |= wire.CapRing
	}
	for name, capabilities := range map[string]uint32{workertest.EnvContexts: wire.CapContexts, workertest.EnvConfidences: wire.CapConfidences, workertest.EnvFeedback: wire.CapFeedback | wire.CapAccuracy} {
		if os.Getenv(name) == "1" {
			w.capabilities |= capabilities
		}
	}
	w.Hello(os.Getenv("XEBEC_TOKEN"), w.capabilities|wire.CapParameters|wire.CapCalls|wire.CapStreams) // bits that version 1 does not name are ignored
	w.ReadWelcome()
	w.checkWelcome()
	w.ReadSegments()
	w.Ready()
	go func() {
		<-signals
		m := wire.Leaving{Reason: "SIGTERM"}
		w.Write(m.Append(nil))
	}()
	for {
		req, ok := w.next()
		if !ok {
			w.Close()
			return
		}
		w.handle(req)
	}
}

func (w *version1) checkWelcome() {
	m := &w.Welcome
	if m.Major != 1 || m.Mode&^(wire.ModeRing|wire.ModeContexts) != 0 {
		w.TB.Fatalf("WELCOME has version %d and mode %#x: not for version 1", m.Major, m.Mode)
	}
	for _, spec := range append(m.Signature.Inputs, m.Signature.Outputs...) {
		if spec.DType > api.Bytes {
			w.TB.Fatalf("WELCOME declares a tensor of %v: version 1 has no such type", spec.DType)
		}
	}
}

func (w *version1) otherFrame(t wire.Type) {
	if t != wire.TypeDrain {
		w.TB.Fatalf("the gateway sent %v: not for version 1", t)
	}
	w.draining = true
}

// next waits for a request. It returns false when the worker is drained.
func (w *version1) next() (wire.Request, bool) {
	for {
		if req, ok := w.Poll(); ok {
			return req, true
		}
		if w.draining {
			return w.Poll() // what was there before DRAIN
		}
		if w.Ring() && !w.Consumer.PrepareSleep() {
			continue
		}
		err := w.Read(true)
		if w.Ring() {
			w.Consumer.Wake()
		}
		if err != nil {
			w.TB.Fatalf("the gateway is gone: %v", err)
		}
	}
}

func (w *version1) handle(req wire.Request) {
	kept, waits := w.kept[req.Batch]
	delete(w.kept, req.Batch)
	switch req.Kind {
	case wire.KindPredict:
		w.predict(req)
	case wire.KindFeedback:
		w.learn(req)
	case wire.KindAccuracy:
		w.accuracy(req)
	case wire.KindGrant, wire.KindDiscard:
		if !waits {
			w.TB.Fatalf("the gateway sent %v for batch %d, which waits for none", req.Kind, req.Batch)
		}
		res := kept.response
		res.Generation, res.OutOff = req.Generation, req.OutOff
		if req.Kind == wire.KindDiscard {
			res.Flags, res.OutLen = 0, 0
		} else {
			res.OutLen = uint64(copy(w.Granted(req), kept.block))
		}
		w.Respond(res)
	default:
		w.TB.Fatalf("the gateway sent %v: not for version 1", req.Kind)
	}
}

// fail answers with a text.
func (w *version1) fail(req wire.Request, status wire.Status, text string) {
	res := workertest.Answer(req)
	res.Status, res.OutLen = status, uint64(copy(w.Granted(req), text))
	w.Respond(res)
}

func (w *version1) predict(req wire.Request) {
	inputs := w.Inputs(req)
	rows := make(workertest.Column, len(inputs))
	for i, in := range inputs {
		switch w.model {
		case workertest.Echo:
			rows[i] = in[:len(w.Welcome.Signature.Inputs)]
		case workertest.Wrong:
			if inputs[0][0].Data[0] != 0 {
				w.fail(req, wire.StatusBadOutput, "the outputs are wrong")
				return
			}
			rows[i] = []api.Value{{Data: make([]byte, 16)}}
		default:
			out, status, text := w.marked(in)
			if status != wire.StatusOK {
				w.fail(req, status, text)
				return
			}
			rows[i] = []api.Value{{Data: out}}
		}
	}
	specs, flags := w.Welcome.Signature.Outputs, uint32(0)
	if w.capabilities&wire.CapConfidences != 0 {
		specs, flags = append(specs[:len(specs):len(specs)], wire.ConfidenceSection), wire.FlagConfidences
		for i := range rows {
			half := binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.5))
			rows[i] = append(rows[i][:len(rows[i]):len(rows[i])], api.Value{Data: half})
		}
	}
	schema := wire.NewSchema(specs)
	block := make([]byte, schema.Size(rows))
	if _, err := schema.Write(block, rows); err != nil {
		w.TB.Fatalf("%v", err)
	}
	res := workertest.Answer(req)
	if res.Flags = flags; len(block) <= len(w.Granted(req)) {
		res.OutLen = uint64(copy(w.Granted(req), block))
		w.Respond(res)
		return
	}
	w.kept[req.Batch] = answer1{res, block}
	res.Status, res.Flags, res.Need = wire.StatusNeedMore, 0, uint64(len(block))
	w.Respond(res)
}

// marked answers one query of the Markers model.
func (w *version1) marked(in []api.Value) (out []byte, status wire.Status, text string) {
	data := in[0].Data
	word, rest, _ := strings.Cut(string(data), ":")
	switch {
	case bytes.HasPrefix(data, []byte("error")):
		return nil, wire.StatusModelError, "the marker error"
	case bytes.HasPrefix(data, []byte("panic")):
		return nil, wire.StatusModelError, "the marker panic"
	case bytes.HasPrefix(data, []byte("bad")):
		return nil, wire.StatusBadOutput, "an output is missing"
	case bytes.HasPrefix(data, []byte("die")):
		os.Exit(3)
	case word == "big":
		n, _ := strconv.Atoi(rest)
		return bytes.Repeat([]byte{'x'}, n), wire.StatusOK, ""
	case word == "wait":
		if _, err := os.ReadFile(rest); err != nil {
			return nil, wire.StatusModelError, err.Error()
		}
	case string(data) == "context":
		return in[1].Data, wire.StatusOK, ""
	case string(data) == "told":
		return []byte(w.told), wire.StatusOK, ""
	}
	return data, wire.StatusOK, ""
}

func (w *version1) learn(req wire.Request) {
	if w.capabilities&wire.CapFeedback == 0 {
		w.TB.Fatalf("the gateway sent FEEDBACK to a worker that does not learn")
	}
	var told []string
	for _, row := range w.Inputs(req) {
		label, context := string(row[len(row)-1].Data), []byte(nil)
		if len(row) == 3 {
			context = row[1].Data
		}
		if text, err := strconv.Unquote(label); err == nil {
			if text == "panic" {
				w.fail(req, wire.StatusModelError, "the label panic")
				return
			}
			if path, ok := strings.CutPrefix(text, "wait:"); ok {
				if _, err := os.ReadFile(path); err != nil {
					w.fail(req, wire.StatusModelError, err.Error())
					return
				}
			}
		}
		w.labels++
		if label == "true" {
			w.right++
		}
		told = append(told, fmt.Sprintf("%s/%s/%s", row[0].Data, context, label))
	}
	w.told = strings.Join(told, ";")
	w.Respond(workertest.Answer(req))
}

func (w *version1) accuracy(req wire.Request) {
	if w.labels == 0 {
		w.fail(req, wire.StatusModelError, "no feedback yet")
		return
	}
	w.Respond(w.Accuracy(req, float64(w.right)/float64(w.labels)))
}
