package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The roles of the test binary when a test runs it as another process.

const (
	envPart       = "XEBEC_SHM_TEST_PART"
	segmentsBytes = 24
)

func play(part string) int {
	parts := map[string]func() error{"worker": playWorker, "gateway": playGateway, "attacker": playAttacker}
	f, ok := parts[part]
	if !ok {
		f = func() error { return errors.New("unknown part") }
	}
	if err := f(); err != nil {
		fmt.Fprintf(os.Stderr, "shm test, part %q: %v\n", part, err)
		return 1
	}
	return 0
}

// playWorker maps the segments received on descriptor 3 and echoes until the gateway hangs up.
func playWorker() error {
	conn, err := unixConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	defer conn.Close()
	a, b, fds, err := receiveSegments(conn)
	if err != nil {
		return err
	}
	for _, fd := range fds {
		if err = unix.Close(fd); err != nil {
			return err
		}
	}
	s, err := newSide(b, a, conn)
	if err != nil {
		return err
	}
	if err = echo(s); !errors.Is(err, errHungUp) {
		return err
	}
	return errors.Join(a.Close(), b.Close())
}

func receiveSegments(conn *net.UnixConn) (a, b *Segment, fds []int, err error) {
	var frame [segmentsBytes]byte
	oob := make([]byte, syscall.CmsgSpace(2*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(frame[:], oob)
	if err != nil {
		return nil, nil, nil, err
	}
	if n != segmentsBytes {
		return nil, nil, nil, fmt.Errorf("a frame of %d bytes: expected 24", n)
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, nil, nil, fmt.Errorf("%d control messages: %w", len(messages), err)
	}
	if fds, err = syscall.ParseUnixRights(&messages[0]); err != nil || len(fds) != 2 {
		return nil, nil, nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	le := binary.LittleEndian
	generation, entries := le.Uint32(frame[0:]), int(le.Uint32(frame[4:]))
	if a, err = Open(fds[0], RoleA, generation, entries, le.Uint64(frame[8:])); err != nil {
		return nil, nil, nil, err
	}
	b, err = Open(fds[1], RoleB, generation, entries, le.Uint64(frame[16:]))
	return a, b, fds, err
}

// playGateway starts a worker and exchanges messages with it until it is killed. After the first thousand it prints the
// inodes of A and B. Descriptor 3 is only held and handed on to the worker, so that the process with its other end sees
// when both are gone. It ends by itself when the test is gone, which closes its standard input.
func playGateway() error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	held := os.NewFile(3, "held")
	const entries, size = 64, 1 << 20
	a, err := Create(RoleA, 1, entries, size)
	if err != nil {
		return err
	}
	b, err := Create(RoleB, 1, entries, size)
	if err != nil {
		return err
	}
	conn, childEnd, err := socketPair()
	if err != nil {
		return err
	}
	file, err := childEnd.File()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envPart+"=worker")
	cmd.ExtraFiles = []*os.File{file, held}
	if err = cmd.Start(); err != nil {
		return err
	}
	file.Close()
	childEnd.Close()
	if err = sendSegments(conn, &pair{a: a, b: b}); err != nil {
		return err
	}
	s, err := newSide(a, b, conn)
	if err != nil {
		return err
	}
	x := newExchange(s)
	if err = x.run(1000); err != nil {
		return err
	}
	var stA, stB unix.Stat_t
	if err = errors.Join(unix.Fstat(a.FD(), &stA), unix.Fstat(b.FD(), &stB)); err != nil {
		return err
	}
	fmt.Println(stA.Ino, stB.Ino)
	return x.run(1 << 40)
}

// attack is one attempt on a segment. It returns nil if the kernel allowed it.
type attack struct {
	name string
	try  func(fd int, s *Segment) error
}

// What no process may do to either segment.
var attacksOnBoth = []attack{
	{"shrink", func(fd int, s *Segment) error { return unix.Ftruncate(fd, 4096) }},
	{"shrink to nothing", func(fd int, s *Segment) error { return unix.Ftruncate(fd, 0) }},
	{"grow", func(fd int, s *Segment) error { return unix.Ftruncate(fd, int64(s.Size())+4096) }},
	{"grow by fallocate", func(fd int, s *Segment) error { return unix.Fallocate(fd, 0, 0, int64(s.Size())+4096) }},
	{"grow by pwrite", func(fd int, s *Segment) error { _, err := unix.Pwrite(fd, []byte{1}, int64(s.Size())); return err }},
	{"add a seal", func(fd int, s *Segment) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		return err
	}},
	{"truncate by opening again", func(fd int, s *Segment) error {
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_TRUNC|unix.O_CLOEXEC, 0)
		if err == nil {
			closeFD(again)
		}
		return err
	}},
}

// What the worker may not do to A: all the ways to write.
var attacksOnA = []attack{
	{"map for writing", mapForWriting},
	{"make the mapping writable", func(_ int, s *Segment) error {
		return unix.Mprotect(s.Bytes(), unix.PROT_READ|unix.PROT_WRITE)
	}},
	{"pwrite", writeByte},
	{"open again and map for writing", openedAgain(mapForWriting)},
	{"open again and pwrite", openedAgain(writeByte)},
	{"punch a hole", punch},
	{"drop pages by madvise", func(_ int, s *Segment) error { return unix.Madvise(s.Bytes(), unix.MADV_REMOVE) }},
	{"splice", func(fd int, s *Segment) error {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil // counts as a successful attack, because it was not tried
		}
		defer closeFD(p[0])
		defer closeFD(p[1])
		if _, err := unix.Write(p[1], []byte{1}); err != nil {
			return nil
		}
		off := int64(offTail)
		_, err := unix.Splice(p[0], nil, fd, &off, 1, 0)
		return err
	}},
	{"write through /proc/self/mem", func(_ int, s *Segment) error {
		mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer closeFD(mem)
		_, err = unix.Pwrite(mem, []byte{1}, int64(uintptr(unsafe.Pointer(&s.Bytes()[offTail]))))
		return err
	}},
}

var numAttacks = 2*len(attacksOnBoth) + len(attacksOnA)

// closeFD closes a descriptor of the attacker. Errors do not matter.
func closeFD(fd int) { _ = unix.Close(fd) }

func mapForWriting(fd int, s *Segment) error {
	m, err := unix.Mmap(fd, 0, int(s.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		_ = unix.Munmap(m)
	}
	return err
}

func writeByte(fd int, _ *Segment) error {
	_, err := unix.Pwrite(fd, []byte{1}, offTail)
	return err
}

func punch(fd int, s *Segment) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(SlabOffset(s.Entries())), 4096)
}

// openedAgain runs an attack through a new descriptor, which the file's mode may allow it to open.
func openedAgain(try func(int, *Segment) error) func(int, *Segment) error {
	return func(fd int, s *Segment) error {
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer closeFD(again)
		return try(again, s)
	}
}

// playAttacker runs all attacks on A and B and prints a line for each. Then it does to B what is allowed.
func playAttacker() error {
	conn, err := unixConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	defer conn.Close()
	a, b, fds, err := receiveSegments(conn)
	if err != nil {
		return err
	}
	run := func(attacks []attack, fd int, s *Segment) {
		for _, at := range attacks {
			if err := at.try(fd, s); err != nil {
				fmt.Printf("refused %v: %s: %v\n", s.Role(), at.name, err)
			} else {
				fmt.Printf("SUCCEEDED %v: %s\n", s.Role(), at.name)
			}
		}
	}
	run(attacksOnBoth, fds[0], a)
	run(attacksOnA, fds[0], a)
	run(attacksOnBoth, fds[1], b)
	b.Bytes()[b.Size()-1] = 0xb6
	return punch(fds[1], b)
}
