package hostile

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// patience is how long a condition may take to come true on a busy machine.
	patience = 60 * time.Second
	// pollEvery is the interval at which a condition is checked.
	pollEvery = 10 * time.Millisecond
	// sideBySide is the number of tests that run at a time on a small machine, unless -parallel is given: they mostly wait.
	sideBySide = 4
)

// program is the gateway's, and worker that of models. They are built once for all tests.
var program, worker string

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) && runtime.GOMAXPROCS(0) < sideBySide {
		_ = f.Value.Set(fmt.Sprint(sideBySide))
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "xebec-hostile-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines of the tests themselves are left:", err)
		return 1
	}
	return code
}

func build(dir string) error {
	worker = filepath.Join(dir, "xebec-testworker")
	if err := compile(worker, "worker/bindings/go/cmd/xebec-testworker"); err != nil {
		return err
	}
	if program = os.Getenv("XEBEC_TEST_GATEWAY"); program != "" { // another build, to compare with
		return nil
	}
	program = filepath.Join(dir, "xebec")
	return compile(program, "gateway/cmd/xebec")
}

func compile(to, from string) error {
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	if out, err := exec.Command(tool, "build", "-o", to, "github.com/xebec-serving/xebec/"+from).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", from, err, out)
	}
	return nil
}

// gateway is a gateway, mostly without functions: what is tested here lies before the routes.
type gateway struct {
	t                *testing.T
	cmd              *exec.Cmd
	functions, admin string // host:port
	log              string
	exited           chan struct{}
}

// serve starts a gateway and waits until it serves. It is stopped after the test, and must then end with status 0.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	return serveAfter(t, ":", args...)
}

// serveAfter is serve in a process that has run a shell command first.
func serveAfter(t *testing.T, command string, args ...string) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{t: t, log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(g.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	g.cmd = exec.Command("sh", append([]string{"-c", command + ` && exec "$0" "$@"`, program, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", "none"}, args...)...)
	g.cmd.Dir, g.cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(g.exited)
		runtime.LockOSThread() // the signal comes when this thread ends
		err := g.cmd.Start()
		started <- err
		if err == nil {
			_ = g.cmd.Wait() // ProcessState says how it ended
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.stop)
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

func (g *gateway) stop() {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		g.t.Errorf("SIGTERM: %v", err)
	}
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.t.Error("the gateway does not end")
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 0 {
		g.t.Errorf("the gateway ended with %v: expected status 0", g.cmd.ProcessState)
	}
	if g.t.Failed() {
		g.t.Log(g.text())
	}
}

func (g *gateway) text() string {
	text, err := os.ReadFile(g.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// until waits for the condition, as long as the gateway lives.
func (g *gateway) until(what string, holds func() bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-g.exited:
			g.t.Fatalf("the gateway ended while the test waited until %s: %v", what, g.cmd.ProcessState)
		case <-ctx.Done():
			g.t.Fatalf("it did not come true within %v that %s", patience, what)
		case <-tick.C:
		}
	}
}

// ports calls do for both ports.
func (g *gateway) ports(do func(port, address string)) {
	do("functions", g.functions)
	do("admin", g.admin)
}

// dial opens a connection, which ends with the test.
func (g *gateway) dial(address string) net.Conn {
	g.t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// send writes to a connection, which the gateway must not have closed.
func (g *gateway) send(c net.Conn, text string) {
	g.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		g.t.Fatal(err)
	}
}

// next is a request that both ports answer with 200.
const next = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// alive asks on a connection.
func (g *gateway) alive(c net.Conn) {
	g.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	g.send(c, next)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != 200 {
		g.t.Errorf("a connection from before is answered %v, %v", answer, err)
		return
	}
	answer.Body.Close()
}

// metric is the value of a series, or "" where there is no answer or no such series.
func (g *gateway) metric(series string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
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

// kilobytes is a line of /proc/PID/status.
func (g *gateway) kilobytes(name string) int {
	g.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				g.t.Fatal(err)
			}
			return n
		}
	}
	g.t.Fatalf("no %s in\n%s", name, text)
	return 0
}
