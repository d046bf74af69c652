package apptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// hello is a HELLO frame (api/spec/worker.md) of a worker that the gateway has not launched.
func hello(token, model string) []byte {
	text := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	body := []byte{1, 0, 0, 0, 1, 0, 0, 0} // version 1.0, RING
	for _, s := range []string{token, model, "1", "nobody/1"} {
		body = text(body, s)
	}
	body = append(body, 0) // no signature
	return append(binary.LittleEndian.AppendUint32([]byte{2, 0, 0, 0}, uint32(len(body))), body...)
}

// socketOf finds the workers' socket of a gateway: in its data directory, or an abstract one.
func socketOf(t *testing.T, g *gateway, dataDir string) string {
	t.Helper()
	if dataDir != "" {
		return filepath.Join(dataDir, "worker.sock")
	}
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 7 && strings.HasPrefix(fields[7], fmt.Sprintf("@xebec-%d-", g.cmd.Process.Pid)) {
			return fields[7]
		}
	}
	t.Fatalf("no abstract socket of gateway %d in /proc/net/unix", g.cmd.Process.Pid)
	return ""
}

// Unknown clients connect to the workers' socket: they send garbage, frames that announce too much, or wrong tokens, or
// stay silent, and there are many of them. None becomes a worker, and queries are not affected.
func TestStrangersAtTheWorkerSocket(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"abstract", "data directory"} {
		t.Run(where, func(t *testing.T) {
			args := []string{"--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s"))}
			dataDir := ""
			if where != "abstract" {
				dataDir = newDir(t)
				args = append(args, "--data-dir", dataDir)
			}
			g := serve(t, args...)
			pid := g.awaitReplicas("m", 1).Replicas[0].PID
			l := g.startLoad("f", 4, maxLoad)
			strangers(t, socketOf(t, g, dataDir))
			l.served(100)
			judge(t, l.stop(), "ok")
			if m := g.model("m"); m.Replicas[0].PID != pid || restarts(m) != 0 || len(m.Replicas) != 1 {
				t.Errorf("the model's replicas are %+v: expected only worker %d", m.Replicas, pid)
			}
		})
	}
}

func strangers(t *testing.T, socket string) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{1})
	garbage := make([]byte, 1<<20)
	_, _ = random.Read(garbage) // never fails
	for what, sent := range map[string][]byte{
		"garbage":         garbage,
		"zeros":           make([]byte, 1<<16),
		"bells":           bytes.Repeat([]byte{1}, 1<<20),
		"a huge frame":    {2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
		"READY first":     {5, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0},
		"a wrong token":   hello(strings.Repeat("0", 48), "m"),
		"an empty token":  hello("", "m"),
		"a long token":    hello(strings.Repeat("x", 60_000), "m"),
		"half of a HELLO": hello("0", "m")[:20],
	} {
		c := dialUnix(t, socket)
		_, _ = c.Write(sent) // the gateway may close the connection meanwhile
		_ = c.CloseWrite()
		heard, err := io.ReadAll(c)
		if isTimeout(err) {
			t.Errorf("%s: the gateway has not closed the connection", what)
		}
		if len(heard) > 0 && heard[0] != 6 {
			t.Errorf("%s: the gateway answered with frame %#x: expected REFUSED or nothing", what, heard[0])
		}
	}
	for range 400 { // silent connections, more than are accepted for a handshake at a time; the gateway closes those beyond
		c, err := net.Dial("unix", socket)
		if err != nil {
			continue // the backlog is full of earlier connections
		}
		t.Cleanup(func() { c.Close() })
	}
}

func dialUnix(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Workers that the gateway has launched break the protocol. The gateway ends them, although they ignore SIGTERM, and
// describe says what they did. Only their own model is affected.
func TestHostileWorkers(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("testdata/hostile.py")
	if err != nil {
		t.Fatal(err)
	}
	hows := map[string]string{ // and what describe says
		"garbage-before-ready": "protocol violation",
		"garbage":              "protocol violation",
		"forged":               "protocol violation",
		"beyond":               "protocol violation",
		"other-model":          "launched for",
	}
	parts := []string{testModel("good", nil), function("good", "good", "slo: 60s")}
	for how := range hows {
		parts = append(parts, fmt.Sprintf(`
---
kind: Model
name: %s
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [python, %s, %s]}
`, how, script, how), function(how, how, "slo: 30s", theDefault))
	}
	g := serve(t, "--config", manifest(t, parts...), "--python", python(t), "--drain-timeout", "1s") // they ignore SIGTERM
	pid := g.awaitReplicas("good", 1).Replicas[0].PID
	l := g.startLoad("good", 2, maxLoad)
	victims := g.startLoad("beyond", 1, 1) // it breaks the protocol with its answer, so it needs a query
	for how, says := range hows {
		g.awaitModel(how, "ended for what it did", func(m api.ModelStatus) bool { return strings.Contains(lastExits(m), says) })
		if text := g.must("describe", "model", how); !strings.Contains(text, says) {
			t.Errorf("describe does not say %q of %s:\n%s", says, how, text)
		}
	}
	l.served(50)
	judge(t, l.stop(), "ok")
	judge(t, victims.stop(), "default")
	if m := g.model("good"); m.Replicas[0].PID != pid || restarts(m) != 0 {
		t.Errorf("the good model's replica is %+v: expected worker %d", m.Replicas[0], pid)
	}
}
