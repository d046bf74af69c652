package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends a command and returns the last of lines of the answer. For a bulk string that is its content.
func ask(t *testing.T, s *Server, command string, lines int) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(readyTimeout))
	fmt.Fprintf(conn, "%s\r\n", command)
	answer := bufio.NewScanner(conn)
	for range lines {
		if !answer.Scan() {
			t.Fatalf("%s: the connection ended: %v", command, answer.Err())
		}
	}
	return answer.Text()
}

func TestAppendOnlyServersKeepTheirData(t *testing.T) {
	for _, appendOnly := range []bool{false, true} {
		s := Start(t, Config{AppendOnly: appendOnly})
		addr := s.Addr()
		if got := ask(t, s, "SET k v", 1); got != "+OK" {
			t.Fatal(got)
		}
		s.Kill()
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Fatal("a killed server accepts connections")
		}
		s.Kill() // does nothing
		s.Restart()
		if s.Addr() != addr {
			t.Fatalf("restarted at %s, was at %s", s.Addr(), addr)
		}
		if want := map[bool]string{false: "0", true: "1"}[appendOnly]; ask(t, s, "EXISTS k", 1) != ":"+want {
			t.Errorf("append only %v: the restarted server should have %s keys", appendOnly, want)
		}
		s.Restart() // of a running server
	}
}

func TestPausedServerAnswersWhenResumed(t *testing.T) {
	s := Start(t, Config{})
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.Pause()
	fmt.Fprint(conn, "INCR n\r\n")
	// Waiting cannot prove that no answer comes. Pause has verified that the process is stopped.
	conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	answer := make([]byte, 16)
	if n, err := conn.Read(answer); !os.IsTimeout(err) {
		t.Fatalf("a paused server answers %q, %v", answer[:n], err)
	}
	s.Resume()
	conn.SetReadDeadline(time.Now().Add(readyTimeout))
	if n, err := conn.Read(answer); err != nil || string(answer[:n]) != ":1\r\n" {
		t.Fatalf("the resumed server answers %q, %v", answer[:n], err)
	}
	s.Pause()
	s.Kill() // works on a paused server
}

func TestPasswordIsRequired(t *testing.T) {
	s := Start(t, Config{Password: "pass"})
	if got := ask(t, s, "GET k", 1); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without a password the server answers %q", got)
	}
	if want := "redis://:pass@" + s.Addr() + "/0"; s.URL() != want {
		t.Errorf("the URL is %s, want %s", s.URL(), want)
	}
	s.Restart()
}

// The server and its folder are gone after the test.
func TestServerIsRemovedAfterTheTest(t *testing.T) {
	var dir, addr string
	t.Run("inner", func(t *testing.T) {
		s := Start(t, Config{AppendOnly: true})
		dir, addr = s.dir, s.Addr()
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the server still runs")
	}
}
