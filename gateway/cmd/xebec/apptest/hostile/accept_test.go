package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The repros with thousands of connections, made small: a gateway that may open 600 files meets 900 connections.
const (
	fewFiles        = 600
	tooMany         = 900
	acceptPatience  = 60 * time.Second
	acceptPollEvery = 10 * time.Millisecond
)

// acceptProgram builds the gateway's program.
func acceptProgram(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv("XEBEC_TEST_GATEWAY"); binary != "" { // another build, to compare with
		return binary
	}
	path := filepath.Join(t.TempDir(), "xebec")
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	if out, err := exec.Command(tool, "build", "-o", path, "github.com/xebec-serving/xebec/gateway/cmd/xebec").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// limited is a gateway that may open few files.
type limited struct {
	t                *testing.T
	functions, admin string
	log              string
	exited           chan struct{}
}

func startLimited(t *testing.T, program string) *limited {
	t.Helper()
	dir := t.TempDir()
	g := &limited{t: t, log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(g.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, fewFiles), program, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", "none")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(g.exited)
		runtime.LockOSThread() // the signal comes when this thread ends
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-g.exited:
		case <-time.After(acceptPatience):
			t.Error("the gateway does not end")
			_ = cmd.Process.Kill()
			<-g.exited
		}
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the gateway ended with status %d", code)
		}
		if t.Failed() {
			t.Log(g.text())
		}
	})
	g.until("it serves", func() bool {
		found := regexp.MustCompile(`serving\s+\{"functions": "([^"]+)", "admin": "([^"]+)"`).FindStringSubmatch(g.text())
		if found == nil {
			return false
		}
		g.functions, g.admin = found[1], found[2]
		return true
	})
	return g
}

func (g *limited) text() string {
	text, err := os.ReadFile(g.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// until waits for the condition, as long as the gateway lives.
func (g *limited) until(what string, holds func() bool) {
	g.t.Helper()
	tick := time.NewTicker(acceptPollEvery)
	defer tick.Stop()
	late := time.After(acceptPatience)
	for !holds() {
		select {
		case <-g.exited:
			g.t.Fatalf("the gateway ended while the test waited until %s", what)
		case <-late:
			g.t.Fatalf("it did not come true that %s", what)
		case <-tick.C:
		}
	}
}

// flood opens connections that send nothing.
func (g *limited) flood(address string) (close func()) {
	g.t.Helper()
	var open []net.Conn
	for range tooMany {
		c, err := net.DialTimeout("tcp", address, acceptPatience)
		if err != nil {
			g.t.Fatal(err)
		}
		open = append(open, c)
	}
	return func() {
		for _, c := range open {
			c.Close()
		}
	}
}

// metric is the value of a series, or "" where there is no answer or no such series.
func (g *limited) metric(series string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: acceptPatience}
	answer, err := client.Get("http://" + g.admin + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return value
		}
	}
	return ""
}

// alive asks on a connection that was open before the flood.
func (g *limited) alive(c net.Conn) {
	g.t.Helper()
	_ = c.SetDeadline(time.Now().Add(acceptPatience))
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		g.t.Errorf("a connection from before: %v", err)
		return
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != 200 {
		g.t.Errorf("a connection from before is answered %v, %v", answer, err)
		return
	}
	answer.Body.Close()
}

func TestConnectionsDoNotEndTheGateway(t *testing.T) {
	program := acceptProgram(t)
	t.Run("to the admin port", func(t *testing.T) {
		g := startLimited(t, program)
		before, err := net.Dial("tcp", g.functions)
		if err != nil {
			t.Fatal(err)
		}
		defer before.Close()
		g.alive(before)
		end := g.flood(g.admin)
		g.alive(before)
		end()
		g.until("the admin port counts what it did not accept", func() bool {
			n := g.metric(`xebec_accept_errors_total{port="admin"}`)
			return n != "" && n != "0"
		})
		g.alive(before)
	})
	t.Run("to the function port", func(t *testing.T) {
		g := startLimited(t, program)
		if !strings.Contains(g.text(), "too low for --max-connections") {
			t.Error("the log does not say that the limit of open files is too low")
		}
		before, err := net.Dial("tcp", g.functions)
		if err != nil {
			t.Fatal(err)
		}
		defer before.Close()
		g.alive(before)
		end := g.flood(g.functions)
		defer end()
		g.until("the admin port answers", func() bool { return g.metric(`xebec_accept_errors_total{port="functions"}`) != "" })
		g.alive(before)
	})
}
