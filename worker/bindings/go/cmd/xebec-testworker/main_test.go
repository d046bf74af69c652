//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// asMain makes the test binary run the command itself.
const asMain = "XEBEC_TESTWORKER_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Unsetenv(asMain)
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var (
	text    = []api.TensorSpec{{Name: "text", DType: api.Bytes}}
	answers = []api.TensorSpec{{Name: "answer", DType: api.Bytes}}
)

// childEnv is the environment of a worker process. By default a process under the race detector sleeps for a second
// before it exits, in case another thread still has a race to report.
func childEnv(g *gatewaytest.Gateway) []string {
	return append(append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), g.Env()...)
}

// start starts the command with these flags.
func start(t *testing.T, inputs, outputs []api.TensorSpec, flags ...string) (*gatewaytest.Gateway, *exec.Cmd) {
	t.Helper()
	g := gatewaytest.New(t, inputs, outputs)
	cmd := exec.Command(os.Args[0], flags...)
	cmd.Env = childEnv(g)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr: %s", stderr.Bytes())
		}
	})
	g.Start(cmd.Wait)
	return g, cmd
}

func TestMarkers(t *testing.T) {
	for _, flags := range [][]string{{"-mode=markers"}, {"-mode=markers", "-no-ring"}} {
		g, _ := start(t, text, answers, flags...)
		if ring := g.Mode&wire.ModeRing != 0; ring != (len(flags) == 1) {
			t.Errorf("ring: %v", ring)
		}
		g.WantTexts(g.Predict(1024, "plain", "", "big:10", "spin:1us"), "plain", "", "xxxxxxxxxx", "spin:1us")
		g.Drain()
	}
}

func TestMarkersOneByOne(t *testing.T) {
	g, _ := start(t, text, answers, "-mode=markers", "-contexts")
	context := func(text, context string) wire.Request {
		return g.Request(wire.KindPredict, gatewaytest.Columns{gatewaytest.Texts(text), gatewaytest.Texts(context)}, 4096, wire.BytesSection)
	}
	g.WantTexts(context("context", "user-1"), "user-1")
	g.WantText(context("panic!", ""), wire.StatusModelError, "the marker panic")
	g.WantText(context("error", ""), wire.StatusModelError, "the marker error")
	g.WantText(context("bad", ""), wire.StatusBadOutput, "was not written")
	big := context("big:100000", "")
	res := g.Answer(big, wire.StatusNeedMore)
	g.WantTexts(g.Grant(big, res.Need), strings.Repeat("x", 100000))
	g.WantTexts(context("fine", ""), "fine")
	g.Drain()
}

func TestDieAndHang(t *testing.T) {
	g, _ := start(t, text, answers, "-mode=markers")
	g.Predict(64, "die")
	g.Wait(func(err error) {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitDie {
			t.Errorf("the worker ended with %v", err)
		}
	})
	g, cmd := start(t, text, answers, "-mode=markers")
	g.WantTexts(g.Predict(256, "fine"), "fine")
	g.Predict(64, "hang")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	g.Wait(func(err error) {
		if err == nil {
			t.Error("a killed worker ended well")
		}
	})
}

func TestNoopFitsEverySignature(t *testing.T) {
	outputs := []api.TensorSpec{
		{Name: "f", DType: api.Float32, Shape: []int64{3}}, {Name: "b", DType: api.Bytes},
		{Name: "r", DType: api.Int64, Shape: []int64{-1, 2}}, {Name: "s", DType: api.Bytes, Shape: []int64{2}},
	}
	g, _ := start(t, text, outputs, "-spin=1us", "-confidences")
	got := g.Outputs(g.Answer(g.Predict(1024, "a", "b"), wire.StatusOK))
	for s, want := range [][]byte{make([]byte, 12), nil, nil, make([]byte, 8), {0, 0, 0, 0, 0, 0, 0xe0, 0x3f}} {
		for i := range 2 {
			if !bytes.Equal(got[s][i].Data, want) {
				t.Errorf("output %d is %x, expected %x", s, got[s][i].Data, want)
			}
		}
	}
	g.Drain()
}

func TestEcho(t *testing.T) {
	t.Setenv("XEBEC_TESTWORKER_MODE", "echo") // flags may come from the environment
	fixed := []api.TensorSpec{{Name: "x", DType: api.Int16, Shape: []int64{2}}}
	more := append(fixed, api.TensorSpec{Name: "zero", DType: api.Uint8})
	g, _ := start(t, fixed, more)
	batch := gatewaytest.Columns{gatewaytest.Values([]byte{1, 2, 3, 4}, []byte{5, 6, 7, 8})}
	got := g.Outputs(g.Answer(g.Request(wire.KindPredict, batch, 1024), wire.StatusOK))
	if string(got[0][1].Data) != "\x05\x06\x07\x08" || string(got[1][0].Data) != "\x00" {
		t.Errorf("outputs %v", got)
	}
	g.Drain()

	ragged := []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{-1}}}
	g, _ = start(t, ragged, ragged)
	batch = gatewaytest.Columns{{{Data: make([]byte, 12), Dims: []int64{3}}, {Dims: []int64{0}}}}
	got = g.Outputs(g.Answer(g.Request(wire.KindPredict, batch, 1024), wire.StatusOK))
	if len(got[0][0].Data) != 12 || got[0][0].Dims[0] != 3 || len(got[0][1].Data) != 0 {
		t.Errorf("outputs %v", got)
	}
	g.Drain()
}

func TestFeedback(t *testing.T) {
	g, _ := start(t, text, answers, "-feedback", "-accuracy")
	g.Answer(g.Request(wire.KindAccuracy, nil, 128), wire.StatusModelError)
	label := func(labels ...string) wire.Request {
		return g.Request(wire.KindFeedback, gatewaytest.Columns{gatewaytest.Texts("a", "b"), gatewaytest.Texts(labels...)}, 0, wire.BytesSection)
	}
	g.Answer(label("true", "false"), wire.StatusOK)
	g.Answer(label("1", `"panic"`), wire.StatusModelError)
	res := g.Answer(g.Request(wire.KindAccuracy, nil, 128), wire.StatusOK)
	if third := g.Block(res)[64:]; !bytes.Equal(third, []byte{0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xd5, 0x3f}) {
		t.Errorf("accuracy %x", third)
	}
	g.Drain()
}
