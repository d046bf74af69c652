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
	// readyTimeout is how long a server may take to answer. A busy machine needs a second or two.
	readyTimeout = 30 * time.Second
	pollInterval = 2 * time.Millisecond
	// Below the ephemeral ports: a client that dials a dead server on an ephemeral port may connect to itself.
	firstPort, lastPort = 12000, 32000
	portTries           = 20
)

// Config configures a server.
type Config struct {
	// AppendOnly makes the server write every command to a file before it answers (appendfsync always), so a killed server has all
	// data after its restart. Without AppendOnly it is empty. Redis's default, everysec, may answer up to two seconds before it writes.
	AppendOnly bool
	// Password is required from clients unless it is empty.
	Password string
	// Args are further arguments of redis-server, such as "--maxmemory", "1mb".
	Args []string
}

// Server is a Redis server. One goroutine may use it. A method that fails ends the test.
type Server struct {
	t      testing.TB
	config Config
	dir    string
	port   int
	cmd    *exec.Cmd     // nil while no server runs
	gone   chan struct{} // closed when cmd has ended
	log    bytes.Buffer  // output of cmd; read only after gone
}

// Start starts a server and waits until it answers. It is killed when the test ends.
func Start(t testing.TB, config Config) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is needed by this test and is not on the PATH: Debian, Ubuntu: apt-get install redis-server. Fedora: dnf install redis.")
	}
	// Not t.TempDir: its name can be too long, and Redis may still be writing when it is removed.
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

// Addr returns the server's host and port. Restart does not change it.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address of database 0 as a gateway takes it, password included.
func (s *Server) URL() string {
	if s.config.Password != "" {
		return fmt.Sprintf("redis://:%s@%s/0", s.config.Password, s.Addr())
	}
	return fmt.Sprintf("redis://%s/0", s.Addr())
}

// Kill kills the server with SIGKILL and returns once it has exited. If no server runs, it does nothing.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.gone
	s.cmd = nil
}

// Restart kills the server if it runs, starts it again at the same address with the same folder, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server with SIGSTOP and returns once it has stopped. Its connections remain open, and it answers nothing.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	stat := filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat")
	for deadline := time.Now().Add(readyTimeout); ; {
		// The state is the first letter after the name, which is in parentheses.
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

// Resume continues a paused server and waits until it answers.
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

// start starts the program and waits until it answers or exits.
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
		// Pdeathsig is sent when the thread that started the server exits, so keep the thread while the server runs.
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

// ping succeeds if this server serves commands. Another server on the same port is an error.
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
	fmt.Fprint(conn, "CONFIG GET dir\r\nDBSIZE\r\n") // a server that is still loading its file answers the first only
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
