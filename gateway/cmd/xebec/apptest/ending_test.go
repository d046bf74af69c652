package apptest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serviceManager receives what a gateway tells the program that started it.
type serviceManager struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	m := &serviceManager{t: t, path: filepath.Join(newDir(t), "notify")}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.conn.Close() })
	return m
}

// wants waits for a message with the beginning, and returns it. Messages of the watchdog, which come at any time, are left out.
func (m *serviceManager) wants(beginning string) string {
	m.t.Helper()
	buf := make([]byte, 4096)
	for {
		_ = m.conn.SetReadDeadline(time.Now().Add(patience))
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("waited for %s: %v", beginning, err)
		}
		text := string(buf[:n])
		if text == "WATCHDOG=1" && beginning != text {
			continue
		}
		if !strings.HasPrefix(text, beginning) {
			m.t.Fatalf("the service manager is told %q: expected %s", text, beginning)
		}
		return text
	}
}

// get asks the function port on a connection of its own.
func (g *gateway) getFresh(path string) (status int, closes bool, body string) {
	g.t.Helper()
	c, err := net.DialTimeout("tcp", g.functions, patience)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	return g.getOn(c, path)
}

func (g *gateway) getOn(c net.Conn, path string) (status int, closes bool, body string) {
	g.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		g.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.StatusCode, answer.Close, string(text)
}

func (g *gateway) signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
}

// A gateway that systemd runs: it gets its ports open, with a client that came before it, and says when it serves, reloads and ends.
// SIGHUP applies its configuration, whatever is in it. After SIGTERM it serves as a lame duck until the next one.
func TestTheLifeOfAService(t *testing.T) {
	t.Parallel()
	m := newServiceManager(t)
	config, logs := newDir(t), newDir(t)
	port, admin := socketFile(t), socketFile(t)
	early, err := net.DialTimeout("tcp", port.address, patience) // the kernel keeps it until the gateway accepts
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, programs.xebec, "serve", "--config", config, "--inference-log", logs,
		"--lame-duck", "1h", "--log-format", "console")
	cmd.ExtraFiles = []*os.File{admin.file, port.file}
	cmd.Env = []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=admin:functions", "NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=600000000"}
	g := launchCommand(t, newDir(t), cmd)
	m.wants("READY=1")
	m.wants("WATCHDOG=1")
	g.ready()
	if g.functions != port.address || g.admin != admin.address {
		t.Fatalf("it listens at %s and %s: expected the sockets %s and %s", g.functions, g.admin, port.address, admin.address)
	}
	if !strings.Contains(g.logText(), config+": has neither manifests") {
		t.Errorf("nothing warns of the empty directory:\n%s", g.logText())
	}
	if status, closes, _ := g.getOn(early, "/healthz"); status != 200 || closes {
		t.Errorf("a client that came before the gateway: %d, closes %v", status, closes)
	}

	file := filepath.Join(config, "all.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := number("m", "echo") + function("f", "m", "slo: 60s")
	reload := func(text, says string) {
		t.Helper()
		write(text)
		g.signal(syscall.SIGHUP)
		if told := m.wants("RELOADING=1"); !strings.Contains(told, "\nMONOTONIC_USEC=") {
			t.Errorf("the service manager is told %q: expected the time too", told)
		}
		m.wants("READY=1")
		g.await("the log to say "+says, func(context.Context) (bool, string) { return strings.Contains(g.logText(), says), g.logText() })
	}
	reload(good, `applied again	{"created": 2`)
	g.awaitReplicas("m", 1)
	reload(good+"nonsense: 1\n", file+":")
	reload(good, `"unchanged": 2`)
	if a := g.ask("f", 5, ""); a.number() != 5 {
		t.Errorf("5 is answered by %v", a)
	}

	g.signal(syscall.SIGTERM)
	m.wants("STOPPING=1")
	g.await("readyz to turn 503", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.functions+"/readyz")
		return status == 503 && strings.Contains(body, "stopping"), body
	})
	if status, closes, _ := g.getOn(early, "/healthz"); status != 200 || !closes {
		t.Errorf("a lame duck on a connection from before: %d, closes %v", status, closes)
	}
	for range 20 {
		if a := g.ask("f", 6, ""); a.number() != 6 {
			t.Errorf("a lame duck answers 6 by %v", a)
		}
	}
	if status, closes, _ := g.getFresh("/healthz"); status != 200 || !closes {
		t.Errorf("a lame duck on a new connection: %d, closes %v", status, closes)
	}
	if status, answer, err := g.applyHTTP(bounded(t), function("g", "m")); err != nil || status != 503 || !strings.Contains(answer, "stopping") {
		t.Errorf("an apply to a lame duck is answered by %d %s, %v: expected 503", status, answer, err)
	}
	g.signal(syscall.SIGHUP)
	g.signal(syscall.SIGINT) // another SIGTERM at once would count with the first
	g.gone(0)
	if text := g.logText(); !strings.Contains(text, "the lame duck ends") || !strings.Contains(text, "stopped") {
		t.Errorf("the log is\n%s", text)
	}
}

// SIGINT ends a gateway without a lame duck.
func TestInterruptHasNoLameDuck(t *testing.T) {
	t.Parallel()
	g := serve(t, "--lame-duck", "1h", "--log-level", "debug")
	g.signal(syscall.SIGINT)
	g.gone(0)
}

// listening is an open port that nothing serves yet.
type listening struct {
	file    *os.File
	address string
}

func socketFile(t *testing.T) listening {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return listening{f, ln.Addr().String()}
}
