package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// readyTimeout is how long a server may take to answer; a busy machine needs a second or two.
	readyTimeout = 30 * time.Second
	pollInterval = 2 * time.Millisecond
	// Ports below those that connections are given: a client that dials a dead server in that range may be connected to itself.
	firstPort, lastPort = 12000, 32000
	portTries           = 20
)

// Config says what kind of server is wanted.
type Config struct {
	// AppendOnly writes every command to a file before it is answered (appendfsync always), so that a server that was killed has
	// all when it is started again. Without it such a server is empty. Redis's own default, everysec, is no use to a test: it may
	// answer up to two seconds before it writes.
	AppendOnly bool
	// Password is wanted from clients; empty: none is.
	Password string
	// Args are more arguments for redis-server, such as "--maxmemory", "1mb".
	Args []string
}

// Server is a Redis server. Its methods are for one goroutine, and end the test where they fail.
type Server struct {
	t      testing.TB
	config Config
	dir    string
	port   int
	cmd    *exec.Cmd     // nil while no server runs
	gone   chan struct{} // closed when cmd has ended
	log    bytes.Buffer  // what cmd said; read only after gone
}

// Start starts a server and waits until it answers. It is killed when the test ends.
func Start(t testing.TB, config Config) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is needed by this test and is not on the PATH: Debian, Ubuntu: apt-get install redis-server. Fedora: dnf install redis.")
	}
	// Not the test's own folder: its name would be too long for some, and Redis is still writing when that one is removed.
	dir, err := os.MkdirTemp("", "xebec-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, config: config, dir: dir}
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	var last error
	for range portTries {
		s.port = firstPort + rand.IntN(lastPort-firstPort)
		if last = s.start(); last == nil {
			return s
		}
		if !strings.Contains(last.Error(), "Address already in use") {
			break
		}
	}
	t.Fatal(last)
	return nil
}

// Addr is the server's host and port. It stays the same through Restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is how a gateway names the server, password included.
func (s *Server) URL() string {
	if s.config.Password != "" {
		return fmt.Sprintf("redis://:%s@%s/0", s.config.Password, s.Addr())
	}
	return fmt.Sprintf("redis://%s/0", s.Addr())
}

// Kill ends the server as kill -9 does, and returns when it is gone. Nothing happens where none runs.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.gone
	s.cmd = nil
}

// Restart starts the server again, after Kill or with one, at the same address and over the same folder, and waits until it
// answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server: its connections stay, and it accepts and answers nothing. It returns when the server has stopped.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	stat := filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat")
	for deadline := time.Now().Add(readyTimeout); ; {
		// The state is the first letter after the name, which stands in parentheses.
		text, err := os.ReadFile(stat)
		if i := bytes.LastIndexByte(text, ')'); err == nil && i >= 0 && bytes.HasPrefix(text[i:], []byte(") T")) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the Redis server has not stopped after %v: %s (%v)", readyTimeout, text, err)
		}
		time.Sleep(pollInterval)
	}
}

// Resume lets a paused server go on, and waits until it answers.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	if err := s.ready(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) signal(signal os.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("no Redis server runs that could be sent %v", signal)
	}
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the program and waits until it answers, or has ended.
func (s *Server) start() error {
	args := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no",
		"--save", "", "--appendfsync", "always", "--appendonly", map[bool]string{true: "yes", false: "no"}[s.config.AppendOnly],
	}
	if s.config.Password != "" {
		args = append(args, "--requirepass", s.config.Password)
	}
	s.log.Reset()
	cmd := exec.Command("redis-server", append(args, s.config.Args...)...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	gone, started := make(chan struct{}), make(chan error)
	go func() {
		// The signal comes when the thread ends that started the server, so this one is kept as long as the server runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(gone)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.gone = cmd, gone
	if err := s.ready(); err != nil {
		s.Kill()
		return fmt.Errorf("%w; it said:\n%s", err, s.log.String())
	}
	return nil
}

func (s *Server) ready() error {
	for deadline := time.Now().Add(readyTimeout); ; {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.gone:
			return errors.New("redis-server ended at once")
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redis-server does not answer after %v: %w", readyTimeout, err)
		}
		time.Sleep(pollInterval)
	}
}

// ping succeeds when this server, and not another one that has the port, serves commands.
func (s *Server) ping() error {
	conn, err := net.DialTimeout("tcp", s.Addr(), readyTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(readyTimeout))
	if s.config.Password != "" {
		fmt.Fprintf(conn, "AUTH %s\r\n", s.config.Password)
	}
	fmt.Fprint(conn, "CONFIG GET dir\r\nDBSIZE\r\n") // the first is answered while the server still reads its file, the second is not
	ours := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case line == s.dir:
			ours = true
		case ours && strings.HasPrefix(line, ":"):
			return nil
		case strings.HasPrefix(line, "-"):
			return errors.New(line)
		case strings.HasPrefix(line, "/"):
			return fmt.Errorf("the port is another server's, which works in %s", line)
		}
	}
	return errors.New("the connection ended without an answer")
}
