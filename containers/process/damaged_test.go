package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// damagedReaperEnv makes a reaper send what its value says. A reaper inherits variables with this name.
const damagedReaperEnv = "LC_XEBEC_TEST_DAMAGED"

// actDamagedReaper is a reaper that says hello, takes one launch, and then sends frames that it must not send: the value has one in each
// line. "raise" waits for that request; "half" is the beginning of one, "garbage" a whole one that is not JSON. Then it waits until it is killed, or ends at once if the
// last line says so.
func actDamagedReaper(script string) {
	frames := strings.Split(script, "\n")
	if frames[0] == "hello" {
		frames = frames[1:]
		if err := sendFrame(reaperFD, reply{Op: opHello, PID: os.Getpid()}); err != nil {
			fatal(err)
		}
		if _, with, err := receiveFrame(reaperFD); err != nil {
			fatal(err)
		} else {
			closeAll(with.fds)
		}
	}
	for _, frame := range frames {
		var raw []byte
		switch frame {
		case "end":
			return
		case "raise":
			var q request
			if err := readFrame(reaperFD, &q); err != nil || q.Op != opRaise {
				fatal(fmt.Errorf("%v, %w: expected a raise", q.Op, err))
			}
			continue
		case "half":
			raw = []byte{100, 0, 0, 0, '{'}
		case "endless":
			raw = []byte{255, 255, 255, 255}
		default:
			raw = append(binary.LittleEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		}
		for len(raw) > 0 {
			n, err := unix.Write(reaperFD, raw)
			if err != nil {
				fatal(err)
			}
			raw = raw[n:]
		}
	}
	select {}
}

// Whatever a reaper sends, and wherever it ends, a launch has an outcome, the processes that it knows of are reported as lost, and the
// reaper does not live on.
func TestDamagedReaper(t *testing.T) {
	started := fmt.Sprintf(`{"op":"started","id":1,"pid":%d}`, os.Getpid())
	for name, c := range map[string]struct {
		script string
		runs   bool // the launch has started when the damage shows
		says   string
	}{
		"no hello":                {script: started, says: `it sent "started": expected "hello"`},
		"it ends before a hello":  {script: "end", says: "it sent no hello"},
		"half a hello":            {script: "half\nend", says: "it sent no hello"},
		"an endless frame":        {script: "hello\nendless", says: "a frame of 4294967295 bytes"},
		"half a frame":            {script: "hello\nhalf\nend", says: "the reaper has ended"},
		"no JSON":                 {script: "hello\n]", says: "cannot be understood"},
		"an unknown message":      {script: `hello` + "\n" + `{"op":"launch","id":1}`, says: `unknown reply "launch"`},
		"process 0":               {script: `hello` + "\n" + `{"op":"started","id":1}`, says: "launch 1 started as process 0"},
		"a second hello":          {script: `hello` + "\n" + `{"op":"hello"}`, says: "a second hello"},
		"an end before the start": {script: `hello` + "\n" + `{"op":"exited","id":1}`, says: "launch 1 ended before its start"},
		"it ends":                 {script: "hello\nend", says: "the reaper has ended"},
		"a second start":          {script: "hello\n" + started + "\n" + started, runs: true, says: "started launch 1 twice"},
		"a failure after a start": {script: "hello\n" + started + "\n" + `{"op":"failed","id":1}`, runs: true, says: "launch 1 failed after its start"},
		"it ends after a start":   {script: "hello\n" + started + "\nend", runs: true, says: "the reaper has ended"},
		"unknown launches":        {script: "hello\n" + `{"op":"exited","id":9}` + "\n" + `{"op":"failed","id":8}` + "\n" + `{"op":"raised","id":7}` + "\n" + strings.Replace(started, ":1,", ":6,", 1) + "\nend", says: "the reaper has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t)
			r.environ = append(r.environ, damagedReaperEnv+"="+c.script)
			type outcome struct {
				in  containers.Instance
				err error
			}
			done := make(chan outcome, 1)
			go func() {
				in, err := r.Start(t.Context(), launch(1, "sleep", newOutput()))
				done <- outcome{in, err}
			}()
			var got outcome
			select {
			case got = <-done:
			case <-time.After(patience):
				t.Fatal("the launch has no outcome")
			}
			if !c.runs {
				if got.err == nil || !strings.Contains(got.err.Error(), c.says) {
					t.Errorf("error %v: expected %q", got.err, c.says)
				}
				return
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if exit := waitExit(t, got.in); exit.Cause != containers.Lost || !strings.Contains(exit.Reason, c.says) {
				t.Errorf("exit %+v: expected one that is lost and says %q", exit, c.says)
			}
		})
	}
}

// rawReaper is a reaper whose gateway is the test.
type rawReaper struct {
	t     *testing.T
	conn  *net.UnixConn
	cmd   *exec.Cmd
	sends *os.File
}

func startRawReaper(t *testing.T) *rawReaper {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "reaper"), os.NewFile(uintptr(fds[1]), "reaper's end")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := &rawReaper{t: t, conn: conn.(*net.UnixConn)}
	r.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{reaperName}, Dir: "/", Env: append(reaperEnviron(os.Environ()), reaperEnv+"=1", "GORACE="+noRaceSleep),
		ExtraFiles: []*os.File{theirs}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close(); _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
	if p := r.receive(); p.Op != opHello {
		t.Fatalf("got %+v instead of a hello", p)
	}
	return r
}

func (r *rawReaper) receive() reply {
	r.t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	p, err := (&link{conn: r.conn}).receive()
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// send sends bytes, with so many copies of a descriptor: of /dev/null, unless the test has another one.
func (r *rawReaper) send(b []byte, descriptors int) {
	r.t.Helper()
	var rights []byte
	if descriptors > 0 {
		file := r.sends
		if file == nil {
			var err error
			if file, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
				r.t.Fatal(err)
			}
			defer file.Close()
		}
		fds := make([]int, descriptors)
		for i := range fds {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := r.conn.WriteMsgUnix(b, rights, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawReaper) request(q request, descriptors int) {
	r.t.Helper()
	frame, err := appendFrame(nil, q)
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(frame, descriptors)
}

func sleeper(id uint64) request {
	marker := fmt.Sprintf("raw-%d-%d", os.Getpid(), id)
	return request{
		Op: opLaunch, ID: id, Path: []byte(self()), Argv: toBytes([]string{self()}), Dir: []byte("/"),
		Env: toBytes([]string{markerName + "=" + marker, modeEnv + "=stubborn", "GORACE=" + noRaceSleep}), Marker: marker,
	}
}

// A gateway whose requests make no sense is as good as none: the reaper ends its processes, and itself.
func TestReaperOfADamagedGateway(t *testing.T) {
	frame, err := appendFrame(nil, sleeper(2))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(r *rawReaper){
		"no bytes":                   func(r *rawReaper) { r.conn.CloseWrite() },
		"half a header":              func(r *rawReaper) { r.send(frame[:2], 0); r.conn.CloseWrite() },
		"half a header with files":   func(r *rawReaper) { r.send(frame[:2], 3); r.conn.CloseWrite() },
		"half a frame":               func(r *rawReaper) { r.send(frame[:len(frame)/2], 2); r.conn.CloseWrite() },
		"an empty frame":             func(r *rawReaper) { r.send([]byte{0, 0, 0, 0}, 0) },
		"an endless frame":           func(r *rawReaper) { r.send([]byte{255, 255, 255, 255}, 2) },
		"no JSON":                    func(r *rawReaper) { r.send([]byte{1, 0, 0, 0, ']'}, 1) },
		"a reply":                    func(r *rawReaper) { r.request(request{Op: opExited, ID: 1}, 0) },
		"a launch without files":     func(r *rawReaper) { r.request(sleeper(2), 0) },
		"a launch with one file":     func(r *rawReaper) { r.request(sleeper(2), 1) },
		"a launch with four files":   func(r *rawReaper) { r.request(sleeper(2), 4) },
		"a launch with many files":   func(r *rawReaper) { r.request(sleeper(2), 250) },
		"an adoption without a file": func(r *rawReaper) { r.request(request{Op: opAdopt, ID: 2, PID: 1, Marker: "x"}, 0) },
		"an adoption with two files": func(r *rawReaper) { r.request(request{Op: opAdopt, ID: 2, PID: 1, Marker: "x"}, 2) },
		"an adoption without a pid":  func(r *rawReaper) { r.request(request{Op: opAdopt, ID: 2, Marker: "x"}, 1) },
		"a launch without a number":  func(r *rawReaper) { r.request(sleeper(0), 2) },
		"a number for a second time": func(r *rawReaper) { r.request(sleeper(1), 2) },
		"an adoption of the same": func(r *rawReaper) {
			q := sleeper(1)
			r.request(request{Op: opAdopt, ID: 1, PID: 1, Marker: q.Marker}, 1)
		},
		"it is gone without a word":    func(r *rawReaper) { r.conn.Close() },
		"a signal with too many files": func(r *rawReaper) { r.request(request{Op: opSignal, ID: 1}, 250) },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRawReaper(t)
			r.request(sleeper(1), 2)
			p := r.receive()
			if p.Op != opStarted {
				t.Fatalf("got %+v", p)
			}
			child := watch(t, "its child", p.PID)
			damage(r)
			waitGone(t, child)
			ended := make(chan error, 1)
			go func() { ended <- r.cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("the reaper does not end")
			}
		})
	}
}

// Descriptors that a request must not have are closed. Processes that are not the reaper's can be neither adopted nor signalled by it.
func TestReaperClosesDescriptorsAndSparesOthers(t *testing.T) {
	r := startRawReaper(t)
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writeEnd.Close()
	r.sends = readEnd
	other := exec.Command("cat")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r.request(request{Op: opSignal, ID: 77, Kill: true}, 3)
		r.request(request{Op: opRaise, ID: 77}, 2)
		r.request(request{Op: opAdopt, ID: 5, PID: other.Process.Pid, Marker: "x"}, 1)
		if p := r.receive(); p.Op != opFailed || p.ID != 5 || p.Step != stepAdopt {
			t.Fatalf("the adoption of another process is answered by %+v", p)
		}
		r.request(request{Op: opSignal, ID: 5, Kill: true}, 0)
		q := sleeper(6)
		q.Path, q.Argv = []byte("/none"), toBytes([]string{"/none"})
		r.request(q, 3)
		if p := r.receive(); p.Op != opFailed || p.ID != 6 || syscall.Errno(p.Errno) != unix.ENOENT {
			t.Fatalf("a launch of nothing is answered by %+v", p)
		}
	}
	r.sends = nil
	readEnd.Close()
	r.request(request{Op: opAdopt, ID: 7, PID: other.Process.Pid, Marker: "x"}, 1)
	if p := r.receive(); p.ID != 7 { // it is done with those before
		t.Errorf("got %+v", p)
	}
	if _, err := writeEnd.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the reaper keeps a descriptor: %v", err)
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Errorf("another process has ended: %v", err)
	}
}

// Whatever bytes come with however many descriptors, a frame or an error comes out, and after an error all descriptors are closed.
func FuzzReceiveFrame(f *testing.F) {
	frame, err := appendFrame(nil, sleeper(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame, uint8(2), uint16(len(frame)))
	f.Add(frame, uint8(9), uint16(3))
	f.Add([]byte{2, 0, 0, 0, '{', '}'}, uint8(3), uint16(1))
	f.Add([]byte{255, 255, 255, 255}, uint8(1), uint16(4))
	f.Add([]byte(nil), uint8(0), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, descriptors uint8, first uint16) {
		if len(b) > 4096 || len(b) == 0 {
			return // more than the socket takes without a reader; without a byte there is no message
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[1])
		sent := make([]int, min(descriptors, 100))
		for i := range sent {
			sent[i] = pipe[0]
		}
		var rights []byte
		if len(sent) > 0 {
			rights = unix.UnixRights(sent...)
		}
		cut := min(max(int(first), 1), len(b))
		err = unix.Sendmsg(fds[0], b[:cut], rights, nil, 0)
		if err == nil && cut < len(b) {
			err = unix.Sendmsg(fds[0], b[cut:], rights, nil, 0)
		}
		closeAll([]int{fds[0], pipe[0]})
		if err != nil {
			t.Fatal(err)
		}
		for {
			body, with, err := receiveFrame(fds[1])
			if err != nil {
				break
			}
			if len(body) == 0 || len(with.fds) > maxFrameFDs {
				t.Errorf("a frame of %d bytes with %d descriptors", len(body), len(with.fds))
			}
			closeAll(with.fds)
		}
		// What is still in the socket is closed with it.
		unix.Close(fds[1])
		if _, err := unix.Write(pipe[1], []byte{1}); !errors.Is(err, unix.EPIPE) {
			t.Errorf("a descriptor is still open: %v", err)
		}
	})
}
