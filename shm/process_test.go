package shm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Gateway and worker run in two processes, and the descriptors are handed over as in the protocol.
func TestTwoProcesses(t *testing.T) {
	const messages = 200_000
	gateway, worker, _ := startWorker(t)
	if err := newExchange(gateway.side).run(messages); err != nil {
		t.Error(err)
	}
	gateway.conn.Close()
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker failed after its gateway hung up: %v", err)
	}
	t.Logf("gateway: %d sleeps, %d bells", gateway.sleeps, gateway.bells)
}

// A worker is killed at any moment. The gateway sees the hang-up, the finished answers are still there, the worker's
// head says what it had begun, and the segments are gone when the gateway closes them.
func TestWorkerKilled(t *testing.T) {
	gateway, worker, segs := startWorker(t)
	x := newExchange(gateway.side)
	if err := x.run(1000); err != nil {
		t.Fatal(err)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := x.run(1 << 40); !errors.Is(err, errHungUp) {
		t.Fatalf("%v: expected the hang-up", err)
	}
	if err := worker.Wait(); err == nil {
		t.Error("the worker exited with 0: expected the kill")
	}
	var d Descriptor
	for {
		ok, err := gateway.Pop(&d, x.sent-x.got)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if err := x.take(&d); err != nil {
			t.Fatal(err)
		}
	}
	if head := gateway.PeerHead(); head < x.got || head > x.sent || gateway.Pushed() != x.sent {
		t.Errorf("head %d with %d sent and %d answered", head, x.sent, x.got)
	}
	inodes := []uint64{inodeOf(t, segs.a), inodeOf(t, segs.b)}
	if n := holders(t, inodes); n == 0 {
		t.Error("no process is found that holds the segments, although this one does")
	}
	mustClose(t, segs.a)
	mustClose(t, segs.b)
	mustBeGone(t, inodes)
}

// A gateway is killed at any moment. Its worker sees the hang-up and ends, and nothing is left.
func TestGatewayKilled(t *testing.T) {
	alive, aliveInChild, err := os.Pipe() // reads end of file when the gateway and its worker are both gone
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	cmd := self(t, "gateway", aliveInChild)
	stdin, err := cmd.StdinPipe() // closed if this test ends early, which ends the gateway
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	aliveInChild.Close()
	line, err := bufio.NewReader(out).ReadString('\n') // arrives during the exchange
	if err != nil {
		t.Fatalf("the gateway printed %q, then: %v", line, err)
	}
	inodes := make([]uint64, 2)
	if _, err = fmt.Sscan(line, &inodes[0], &inodes[1]); err != nil {
		t.Fatalf("the gateway printed %q: %v", line, err)
	}
	if n := holders(t, inodes); n < 2 {
		t.Errorf("%d processes hold the segments: expected the gateway and its worker", n)
	}
	if err = cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Wait(); err == nil {
		t.Error("the gateway exited with 0: expected the kill")
	}
	if _, err = io.Copy(io.Discard, alive); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, inodes)
}

// The seals hold against a process that has the descriptors and attacks the segments.
func TestSealsHoldAgainstAnotherProcess(t *testing.T) {
	segs := newSegments(t, MinEntries, 64<<10)
	slab := SlabOffset(MinEntries)
	for _, s := range []*Segment{segs.a, segs.b} {
		for i := range s.Bytes()[slab:] {
			s.Bytes()[slab:][i] = 0xa5
		}
	}
	before := string(segs.a.Bytes())
	conn, childEnd, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd := self(t, "attacker", mustFile(t, childEnd))
	cmd.Stderr = os.Stderr
	if err = sendSegments(conn, segs); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the attacker: %v", err)
	}
	refused := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "refused ") {
			refused++
		} else {
			t.Errorf("attacker: %s", strings.TrimSpace(line))
		}
	}
	if refused != numAttacks {
		t.Errorf("%d attacks were refused: expected %d\n%s", refused, numAttacks, out)
	}
	if string(segs.a.Bytes()) != before {
		t.Error("A has changed")
	}
	// The attacker may write B. It has punched a hole into it: the bytes read as zeros, and nothing faults.
	if b := segs.b.Bytes()[slab:]; b[0] != 0 || b[len(b)-1] != 0xb6 {
		t.Errorf("B begins with %#x and ends with %#x: expected the hole, 0, and what the attacker wrote, 0xb6", b[0], b[len(b)-1])
	}
}

type gatewaySide struct {
	*side
	conn *net.UnixConn
}

// startWorker makes a generation and starts a worker process on it.
func startWorker(t *testing.T) (gatewaySide, *exec.Cmd, *pair) {
	t.Helper()
	segs := newSegments(t, MinEntries, 256<<10)
	conn, childEnd, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	cmd := self(t, "worker", mustFile(t, childEnd))
	cmd.Stderr = os.Stderr
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // the test failed before it waited
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for _, f := range cmd.ExtraFiles {
		f.Close() // otherwise the worker's end would never be closed
	}
	if err = sendSegments(conn, segs); err != nil {
		t.Fatal(err)
	}
	s, err := newSide(segs.a, segs.b, conn)
	if err != nil {
		t.Fatal(err)
	}
	return gatewaySide{s, conn}, cmd, segs
}

// newSegments is newPair without the worker's mappings.
func newSegments(tb testing.TB, entries int, slabBytes uint64) *pair {
	tb.Helper()
	size := SlabOffset(entries) + slabBytes
	return &pair{a: mustCreate(tb, RoleA, 1, entries, size), b: mustCreate(tb, RoleB, 1, entries, size)}
}

// self returns a command that runs this test binary in another role. The files are its descriptors from 3 on.
func self(tb testing.TB, part string, files ...*os.File) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envPart+"="+part)
	cmd.ExtraFiles = files
	return cmd
}

// mustFile converts a connection to a file to inherit and closes the connection.
func mustFile(tb testing.TB, c *net.UnixConn) *os.File {
	tb.Helper()
	defer c.Close()
	f, err := c.File()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

// sendSegments sends the part of SEGMENTS that these tests need, with the two descriptors.
func sendSegments(conn *net.UnixConn, p *pair) error {
	var frame [segmentsBytes]byte
	le := binary.LittleEndian
	le.PutUint32(frame[0:], p.a.Generation())
	le.PutUint32(frame[4:], uint32(p.a.Entries()))
	le.PutUint64(frame[8:], p.a.Size())
	le.PutUint64(frame[16:], p.b.Size())
	_, _, err := conn.WriteMsgUnix(frame[:], syscall.UnixRights(p.a.FD(), p.b.FD()), nil)
	return err
}

func inodeOf(tb testing.TB, s *Segment) uint64 {
	tb.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		tb.Fatal(err)
	}
	return st.Ino
}

// mustBeGone checks that no process of the machine maps one of the memfds or holds a descriptor of it, after which the
// kernel frees it, and that /dev/shm has no file of this project.
func mustBeGone(tb testing.TB, inodes []uint64) {
	tb.Helper()
	if n := holders(tb, inodes); n != 0 {
		tb.Errorf("%d processes still hold the segments", n)
	}
	names, err := filepath.Glob("/dev/shm/*xebec*")
	if err != nil || len(names) != 0 {
		tb.Errorf("left in /dev/shm: %v, %v", names, err)
	}
}

// holders counts the processes that map one of these memfds or hold a descriptor of one.
func holders(tb testing.TB, inodes []uint64) int {
	tb.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, dir := range processes {
		if holds(dir, inodes) {
			n++
		}
	}
	return n
}

// holds checks one process. A process that ends meanwhile holds nothing.
func holds(dir string, inodes []uint64) bool {
	const mark = "/memfd:xebec-"
	maps, _ := os.ReadFile(dir + "/maps")
	for line := range strings.Lines(string(maps)) {
		// address permissions offset device inode path
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[5], mark) {
			continue
		}
		for _, inode := range inodes {
			if f[4] == fmt.Sprint(inode) {
				return true
			}
		}
	}
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		path := dir + "/fd/" + fd.Name()
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, mark) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		for _, inode := range inodes {
			if st.Ino == inode {
				return true
			}
		}
	}
	return false
}
