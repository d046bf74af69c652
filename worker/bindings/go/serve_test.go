//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

var (
	text    = []api.TensorSpec{{Name: "text", DType: api.Bytes}}
	answers = []api.TensorSpec{{Name: "answer", DType: api.Bytes}}
)

// upper answers texts in upper case, and fails on some words.
func upper(_ context.Context, b *Batch) error {
	for i := range b.Len() {
		data := b.Bytes("text", i)
		switch {
		case bytes.HasPrefix(data, []byte("error")):
			return fmt.Errorf("the word %q", data)
		case bytes.HasPrefix(data, []byte("panic")):
			panic("panic in the model")
		case bytes.HasPrefix(data, []byte("missing")):
			continue
		case bytes.HasPrefix(data, []byte("write")):
			data[0] = 'W'
		}
		b.SetBytes("answer", i, bytes.ToUpper(data))
	}
	return nil
}

// serving runs Serve for a gateway of this test.
func serving(g *gatewaytest.Gateway, predict func(context.Context, *Batch) error, options ...Option) func() error {
	launch := Launch{Socket: g.Socket, Token: gatewaytest.Token, Model: gatewaytest.Model, Version: gatewaytest.Version}
	return func() error { return Serve(predict, append([]Option{WithLaunch(launch)}, options...)...) }
}

// bothWays runs a test with rings and with descriptors on the socket.
func bothWays(t *testing.T, f func(t *testing.T, options ...Option)) {
	t.Run("ring", func(t *testing.T) { f(t) })
	t.Run("socket", func(t *testing.T) { f(t, WithSocketDescriptors()) })
}

func TestFromHelloToDrain(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Run(serving(g, upper, options...))
		want := wire.Hello{Major: wire.Major, Capabilities: wire.CapRing, Token: "secret", Model: "m", Version: "1", Binding: "xebec-go/" + Version, Concurrency: 1}
		if len(options) > 0 {
			want.Capabilities = 0
		}
		if g.Hello != want {
			t.Errorf("HELLO %+v, expected %+v", g.Hello, want)
		}
		g.Welcome()
		g.Segments(1 << 20)
		g.Ready()
		for round := range 40 { // more than the ring has entries
			res := g.WantTexts(g.Predict(1024, "one", "", fmt.Sprint("round ", round)), "ONE", "", fmt.Sprint("ROUND ", round))
			if res.Need != 0 || res.Flags != 0 || res.OutLen == 0 {
				t.Errorf("response %+v", res)
			}
		}
		g.Drain()
	})
}

func TestManyRequestsAtOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, upper, options...))
		for range 20 {
			g.Segments(1 << 20) // new cursors, and so new memory
			g.Ready()
			var rs []wire.Request
			for i := range gatewaytest.Entries {
				rs = append(rs, g.Predict(256, fmt.Sprint("q", i)))
			}
			for i, r := range rs {
				g.WantTexts(r, fmt.Sprint("Q", i))
			}
		}
		g.Drain()
	})
}

// Requests that were in the ring before DRAIN are answered.
func TestDrainAnswersWhatIsHeld(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		begun, release := make(chan struct{}, 8), make(chan struct{})
		hold := func(ctx context.Context, b *Batch) error {
			begun <- struct{}{}
			<-release
			return upper(ctx, b)
		}
		g.Start(serving(g, hold, options...))
		r1 := g.Predict(256, "one")
		<-begun
		r2 := g.Predict(256, "two")
		g.Send(wire.AppendDrain(nil))
		close(release)
		g.WantTexts(r1, "ONE")
		g.WantTexts(r2, "TWO")
		g.WantEnd(nil)
	})
}

func TestWithStopLeaves(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	stop, cancel := context.WithCancel(context.Background())
	g.Start(serving(g, upper, WithStop(stop)))
	cancel()
	var m wire.Leaving
	if err := m.Decode(g.Frame(wire.TypeLeaving)); err != nil || m.Reason == "" {
		t.Errorf("LEAVING %+v, %v", m, err)
	}
	g.WantTexts(g.Predict(256, "one more"), "ONE MORE")
	g.Drain()
}

// LEAVING is legal only after SEGMENTS. A request to leave that comes earlier waits.
func TestLeaveBeforeSegments(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	stop, cancel := context.WithCancel(context.Background())
	cancel()
	g.Run(serving(g, upper, WithStop(stop)))
	g.Welcome()
	g.Segments(1 << 20)
	g.Ready()
	g.Frame(wire.TypeLeaving)
	g.Drain()
}

func TestGatewayGone(t *testing.T) {
	hold := func(ctx context.Context, b *Batch) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, step := range map[string]func(g *gatewaytest.Gateway){
		"after HELLO":    func(g *gatewaytest.Gateway) {},
		"after WELCOME":  func(g *gatewaytest.Gateway) { g.Welcome() },
		"after SEGMENTS": func(g *gatewaytest.Gateway) { g.Welcome(); g.Segments(1 << 20) },
		"after READY":    func(g *gatewaytest.Gateway) { g.Welcome(); g.Segments(1 << 20); g.Ready() },
		"in a batch": func(g *gatewaytest.Gateway) {
			g.Welcome()
			g.Segments(1 << 20)
			g.Ready()
			g.Predict(64, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, options ...Option) {
				g := gatewaytest.New(t, text, answers)
				g.Run(serving(g, hold, options...))
				step(g)
				g.HangUp()
				g.WantEnd(ErrGatewayGone)
			})
		})
	}
}

// A model that ignores its context is ended with its process.
func TestGatewayGoneAndModelStuck(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	release, exited := make(chan struct{}), make(chan int, 1)
	stuck := func(context.Context, *Batch) error {
		<-release
		return nil
	}
	g.Start(serving(g, stuck, func(c *config) {
		c.grace = time.Millisecond
		c.exit = func(code int) {
			exited <- code
			close(release)
		}
	}))
	g.Predict(64, "x")
	g.HangUp()
	select {
	case code := <-exited:
		if code != exitGone {
			t.Errorf("exit status %d", code)
		}
	case <-time.After(gatewaytest.Patience):
		t.Fatal("the process was not ended")
	}
	g.WantEnd(ErrGatewayGone)
}

func TestRefused(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Run(serving(g, upper, WithSignature(&api.Signature{Inputs: text})))
	if g.Hello.Signature == nil || len(g.Hello.Signature.Inputs) != 1 {
		t.Errorf("HELLO %+v", g.Hello)
	}
	m := wire.Refused{Code: wire.RefusedSignature, Text: "no outputs"}
	g.Send(m.Append(nil))
	g.HangUp()
	g.Wait(func(err error) {
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Code != wire.RefusedSignature || refused.Text != "no outputs" {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// Serve ends if the gateway breaks the protocol.
func TestGatewayBreaksTheProtocol(t *testing.T) {
	predict := func(g *gatewaytest.Gateway, change func(r *wire.Request)) {
		r := wire.Request{Batch: 1, Generation: g.Number, Kind: wire.KindPredict, Count: 1, InOff: g.OffA, InLen: 128, OutOff: g.OffB, OutCap: 64}
		change(&r)
		g.Put(&r)
	}
	for want, do := range map[string]func(g *gatewaytest.Gateway){
		"unknown frame type":       func(g *gatewaytest.Gateway) { g.Send([]byte{0x55}) },
		"sent WELCOME, which":      func(g *gatewaytest.Gateway) { g.Welcome() },
		"sent HELLO, which":        func(g *gatewaytest.Gateway) { g.Send(g.Hello.Append(nil)) },
		"follow the last":          func(g *gatewaytest.Gateway) { g.Send([]byte{8, 0, 0, 0, 1, 0, 0, 0, 0}) },
		"0 descriptors":            func(g *gatewaytest.Gateway) { m := wire.Segments{Generation: 9}; g.Send(m.Append(nil)) },
		"generation 1 after":       func(g *gatewaytest.Gateway) { g.Number--; g.Segments(1 << 20) },
		"for generation 7":         func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.Generation = 7 }) },
		"outside of the segm":      func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.InLen = 1 << 40 }) },
		"outside of the slab":      func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.OutOff = 0 }) },
		"cannot be read":           func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.InLen = 8 }) },
		"batch 0 after":            func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.Batch = 0 }) },
		"did not answer NEED_MORE": func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.Kind = wire.KindGrant }) },
		"unknown kind 77":          func(g *gatewaytest.Gateway) { predict(g, func(r *wire.Request) { r.Kind = 77 }) },
	} {
		t.Run(want, func(t *testing.T) {
			bothWays(t, func(t *testing.T, options ...Option) {
				g := gatewaytest.New(t, text, answers)
				g.Start(serving(g, upper, options...))
				do(g)
				g.Wait(func(err error) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Serve returned %v, expected %q", err, want)
					}
				})
			})
		})
	}
}

func TestWelcomeThatDoesNotFit(t *testing.T) {
	for want, change := range map[string]func(m *wire.Welcome){
		"version 3 of the protocol": func(m *wire.Welcome) { m.Major = 3 },
		"wants other@1":             func(m *wire.Welcome) { m.Model = "other" },
		"wants m@2":                 func(m *wire.Welcome) { m.Version = "2" },
		"but this worker":           func(m *wire.Welcome) { m.Mode = wire.ModeRing },
	} {
		g := gatewaytest.New(t, text, answers)
		g.Run(serving(g, upper, WithSocketDescriptors()))
		m := wire.Welcome{Major: 1, Model: "m", Version: "1", Signature: g.Sig}
		change(&m)
		g.Send(m.Append(nil))
		g.Wait(func(err error) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Serve returned %v, expected %q", err, want)
			}
		})
	}
}

func TestServeBeforeConnecting(t *testing.T) {
	t.Setenv("XEBEC_SOCKET", "")
	for want, err := range map[string]error{
		"XEBEC_SOCKET is not set": Serve(upper),
		"predict is nil":          Serve(nil),
		"is the gateway running":  Serve(upper, WithLaunch(Launch{Socket: t.TempDir() + "/none"})),
		"cannot be declared":      Serve(upper, WithSignature(&api.Signature{Inputs: make([]api.TensorSpec, 99)})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv("XEBEC_GO_TEST_PART"); role != "" {
		os.Exit(runRole(role))
	}
	goleak.VerifyTestMain(m)
}

// runRole runs this test binary as a process of its own.
func runRole(role string) int {
	switch role {
	case "worker": // finds the gateway through the environment
		if err := Serve(upper); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	return 2
}

func TestSIGTERM(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "XEBEC_GO_TEST_PART=worker"), g.Env()...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.Run(cmd.Wait)
	g.Welcome()
	g.Segments(1 << 20)
	g.Ready()
	g.WantTexts(g.Predict(256, "one"), "ONE")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.Frame(wire.TypeLeaving)
	g.WantTexts(g.Predict(256, "two"), "TWO")
	g.Drain()
}
