package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// eachPoller runs a test under each poller.
func eachPoller(t *testing.T, f func(t *testing.T, g *workertest.Hub)) {
	for _, poller := range workertest.Pollers {
		t.Run(string(poller), func(t *testing.T) { f(t, workertest.NewHub(t, poller, 0)) })
	}
}

// A worker of version 1 has no bfloat16 and at most 64 inputs: it is refused with what to do, and one of version 2 is not.
func TestSignaturesOfVersion2(t *testing.T) {
	out := []api.TensorSpec{workertest.Spec("y", api.Float32)}
	t.Run("type", func(t *testing.T) {
		testVersion2(t, api.Signature{Inputs: []api.TensorSpec{workertest.Spec("x", api.BFloat16)}, Outputs: out}, "bfloat16")
	})
	t.Run("columns", func(t *testing.T) {
		var in []api.TensorSpec
		for i := range api.MaxTensors {
			in = append(in, workertest.Spec(fmt.Sprintf("column %d", i), api.Float64))
		}
		testVersion2(t, api.Signature{Inputs: in, Outputs: out}, "more than 64 inputs")
	})
}

// testVersion2 connects a worker of each version to a model of a signature that version 1 lacks.
func testVersion2(t *testing.T, sig api.Signature, lacks string) {
	for major := uint16(1); major <= 2; major++ {
		eachPoller(t, func(t *testing.T, g *workertest.Hub) {
			l := g.Expect(sig, 1)
			w := workertest.DialRaw(t, g.Socket)
			t.Cleanup(w.Close)
			m := wire.Hello{Major: major, Token: l.Token(), Model: "conformance", Version: "1", Binding: "raw/1", Concurrency: 1}
			w.Write(m.Append(nil))
			typ, payload, err := w.Frame()
			if err != nil {
				t.Fatal(err)
			}
			if major == 2 {
				if typ != wire.TypeWelcome {
					t.Errorf("version 2 is answered by a frame of type %#x", typ)
				}
				return
			}
			var refused wire.Refused
			if err := refused.Decode(payload); typ != wire.TypeRefused || err != nil || refused.Code != wire.RefusedVersion || !strings.Contains(refused.Text, lacks) {
				t.Errorf("version 1 is answered by a frame of type %#x: %+v (%v)", typ, refused, err)
			}
		})
	}
}

// What a connection may send first, and how the gateway refuses it.
func TestRefusals(t *testing.T) {
	other := workertest.Text()
	other.Outputs[0].DType, other.Outputs[0].Name = api.Int8, "label"
	more := workertest.Text()
	more.Inputs = append(more.Inputs, workertest.Spec("second", api.Int8))
	for _, c := range []struct {
		name   string
		code   uint16
		change func(m *wire.Hello)
		entire []byte // sent instead of HELLO
		gone   string // the launch is consumed, and Gone says why
	}{
		{name: "garbage", code: wire.RefusedMalformed, entire: bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 100)},
		{name: "zeros", code: wire.RefusedMalformed, entire: make([]byte, 100)},
		{name: "oversized frame", code: wire.RefusedMalformed, entire: []byte{0x02, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
		{name: "empty HELLO", code: wire.RefusedMalformed, entire: []byte{0x02, 0, 0, 0, 0, 0, 0, 0}},
		{name: "READY first", code: wire.RefusedViolation, entire: (&wire.Ready{Generation: 1}).Append(nil)},
		{name: "LEAVING first", code: wire.RefusedViolation, entire: (&wire.Leaving{Reason: "x"}).Append(nil)},
		{name: "no version", code: wire.RefusedVersion, change: func(m *wire.Hello) { m.Major = 0 }},
		{name: "wrong token", code: wire.RefusedToken, change: func(m *wire.Hello) { m.Token = strings.Repeat("0", 48) }},
		{name: "no token", code: wire.RefusedToken, change: func(m *wire.Hello) { m.Token = "" }},
		{name: "wrong model", code: wire.RefusedModel, change: func(m *wire.Hello) { m.Model = "other" }, gone: "other@1"},
		{name: "wrong version", code: wire.RefusedModel, change: func(m *wire.Hello) { m.Version = "2" }, gone: "conformance@2"},
		{name: "another signature", code: wire.RefusedSignature, change: func(m *wire.Hello) { m.Signature = &other }, gone: "output 0"},
		{name: "more inputs", code: wire.RefusedSignature, change: func(m *wire.Hello) { m.Signature = &more }, gone: "2 inputs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPoller(t, func(t *testing.T, g *workertest.Hub) {
				l := g.Expect(workertest.Text(), 1)
				w := workertest.DialRaw(t, g.Socket)
				t.Cleanup(w.Close)
				if c.entire != nil {
					w.Write(c.entire)
				} else {
					m := wire.Hello{Major: wire.Major, Capabilities: math.MaxUint32, Token: l.Token(), Model: "conformance", Version: "1", Binding: "raw/1"}
					c.change(&m)
					w.Write(m.Append(nil))
				}
				if code := w.WantRefused(); code != c.code {
					t.Errorf("REFUSED %d, expected %d", code, c.code)
				}
				if _, _, err := w.Frame(); err == nil {
					t.Error("the connection was not closed")
				}
				if unused := l.Withdraw(); unused != (c.gone == "") {
					t.Errorf("the token is unused: %v", unused)
				}
				if c.gone != "" {
					if end := l.Events.WaitGone(t); end.Violation || !strings.Contains(end.Reason, c.gone) {
						t.Errorf("%+v: expected %q", end, c.gone)
					}
				}
			})
		})
	}
}

// A token is valid for one connection, however that one ends.
func TestTokenIsUsedOnce(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := g.Expect(workertest.Text(), 1)
		first := workertest.StartRaw(t, g.Socket, l.Token(), wire.CapRing)
		t.Cleanup(first.Close)
		s := workertest.NewSession(t, l)
		second := workertest.DialRaw(t, g.Socket)
		t.Cleanup(second.Close)
		second.Hello(l.Token(), wire.CapRing)
		if code := second.WantRefused(); code != wire.RefusedToken {
			t.Errorf("REFUSED %d", code)
		}
		b := s.Send(workertest.Texts("x")...)
		req := first.Next()
		first.Respond(first.Outputs(req, first.Inputs(req)))
		s.WantTexts(b, "x")
		first.Close()
		s.End()
		third := workertest.DialRaw(t, g.Socket)
		t.Cleanup(third.Close)
		third.Hello(l.Token(), wire.CapRing)
		if code := third.WantRefused(); code != wire.RefusedToken {
			t.Errorf("REFUSED %d after the end", code)
		}
	})
}

// The binding returns the gateway's refusal to its caller.
func TestRefusedBinding(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		var refused *xebec.RefusedError
		if err := serveEcho(g.Socket, "unknown"); !errors.As(err, &refused) || refused.Code != wire.RefusedToken {
			t.Errorf("%v", err)
		}
	})
}

// Connections that do not speak in time are closed, and a launch that had begun ends with Gone.
func TestSilence(t *testing.T) {
	local.ShortenHandshake(t, 50*time.Millisecond, 50*time.Millisecond)
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		silent := workertest.DialRaw(t, g.Socket)
		t.Cleanup(silent.Close)
		silent.WantRefused()

		half := workertest.DialRaw(t, g.Socket)
		t.Cleanup(half.Close)
		half.Write([]byte{0x02, 0, 0, 0, 100})
		half.WantRefused()

		l := g.Expect(workertest.Text(), 1)
		unready := workertest.DialRaw(t, g.Socket)
		t.Cleanup(unready.Close)
		unready.Hello(l.Token(), wire.CapRing)
		if end := l.Events.WaitGone(t); end.Violation || !strings.Contains(end.Reason, "before it was ready") {
			t.Errorf("%+v", end)
		}
	})
}

// Violations between HELLO and READY.
func TestViolationsBeforeReady(t *testing.T) {
	for _, c := range []struct {
		name string
		send []byte
	}{
		{"READY of generation 0", (&wire.Ready{Generation: 0}).Append(nil)},
		{"READY of generation 2", (&wire.Ready{Generation: 2}).Append(nil)},
		{"LEAVING before READY is not READY", (&wire.Response{Kind: wire.KindPredict}).Append(nil)},
		{"a second HELLO", (&wire.Hello{Major: wire.Major}).Append(nil)},
		{"an unknown type", []byte{0x7e}},
		{"READY without its field", []byte{0x05, 0, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPoller(t, func(t *testing.T, g *workertest.Hub) {
				l := g.Expect(workertest.Text(), 1)
				w := workertest.DialRaw(t, g.Socket)
				t.Cleanup(w.Close)
				w.Hello(l.Token(), wire.CapRing)
				w.ReadWelcome()
				w.ReadSegments()
				w.Write(c.send)
				if end := l.Events.WaitGone(t); !end.Violation {
					t.Errorf("%+v: expected a violation", end)
				}
				if code := w.WantRefused(); code != wire.RefusedViolation {
					t.Errorf("REFUSED %d, expected %d", code, wire.RefusedViolation)
				}
			})
		})
	}
}

// Workers that die at each step before READY: Gone comes if their token was consumed.
func TestDeathBeforeReady(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		workertest.DialRaw(t, g.Socket).Close()
		for _, steps := range []int{1, 2, 3} {
			l := g.Expect(workertest.Text(), 1)
			w := workertest.DialRaw(t, g.Socket)
			w.Hello(l.Token(), wire.CapRing)
			if steps > 1 {
				w.ReadWelcome()
			}
			if steps > 2 {
				w.ReadSegments()
			}
			w.Close()
			if end := l.Events.WaitGone(t); end.Violation {
				t.Errorf("%+v", end)
			}
		}
	})
}

// Frames that arrive together with READY are not lost. A worker that was told to stop while it started sends LEAVING at
// once.
func TestLeavingRightBehindReady(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		g := workertest.NewHub(t, poller, 0)
		l := g.Expect(workertest.Text(), 1)
		w := workertest.DialRaw(t, g.Socket)
		t.Cleanup(w.Close)
		w.Hello(l.Token(), capabilities)
		w.ReadWelcome()
		w.ReadSegments()
		w.Write((&wire.Leaving{Reason: "told to stop"}).Append((&wire.Ready{Generation: 1}).Append(nil)))
		s := workertest.NewSession(t, l)
		if reason := s.Events.WaitLeaving(t); reason != "told to stop" {
			t.Errorf("reason %q", reason)
		}
		s.Replica.Drain()
		w.Want(wire.TypeDrain)
		w.Close()
		s.End()
	})
}

// Closing a hub ends every connection: in the handshake, while mapping, while serving.
func TestCloseEndsEverybody(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		silent := workertest.DialRaw(t, g.Socket)
		t.Cleanup(silent.Close)
		mapping := g.Expect(workertest.Text(), 1)
		w := workertest.DialRaw(t, g.Socket)
		t.Cleanup(w.Close)
		w.Hello(mapping.Token(), wire.CapRing)
		w.ReadWelcome()
		serving := g.Expect(workertest.Text(), 2)
		v := workertest.StartRaw(t, g.Socket, serving.Token(), wire.CapRing)
		t.Cleanup(v.Close)
		s := workertest.NewSession(t, serving)
		b := s.Send(workertest.Texts("x")...)
		v.Next()
		unused := g.Expect(workertest.Text(), 1)
		g.Close()
		if end := mapping.Events.WaitGone(t); end.Violation {
			t.Errorf("%+v", end)
		}
		if end := s.End(); end.Violation || !strings.Contains(end.Reason, "shutting down") {
			t.Errorf("%+v", end)
		}
		if left := s.Left(); !left[b.ID] {
			t.Errorf("left %v, expected batch %d, begun", left, b.ID)
		}
		if !unused.Withdraw() {
			t.Error("an unused token is gone")
		}
	})
}
