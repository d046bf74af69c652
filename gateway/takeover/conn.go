package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFiles bounds the descriptors that come with a message: two listening sockets, the lock of the data directory and that of the
	// inference log, and room for more.
	maxFiles = 8 //xebec:limit descriptors in one message of a takeover
	// sendWithin bounds how long a message may wait for a process that does not read.
	sendWithin = 10 * time.Second //xebec:limit time to send one message of a takeover
	// diesWithin bounds how long a process whose connection has ended may still be seen: the kernel closes its sockets before it is gone.
	diesWithin = 2 * time.Second //xebec:limit time from the end of a process's connection to that of the process
)

// Listen listens at a socket file of mode 0600, in the place of what a process that was killed has left. The caller is sure that no
// other process listens there.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The mode is set before the file exists, so it never has a wider one.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return failed
	}}
	ln, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return ln.(*net.UnixListener), nil
}

// Conn is a connection to another process of the gateway, or to its command line. One goroutine receives, any may send.
type Conn struct {
	conn    *net.UnixConn
	peer    unix.Ucred
	process int // a pidfd of the other process

	sending sync.Mutex
	within  time.Duration // sendWithin, except in tests
	failed  error         // of a message that was not sent whole: nothing can follow it

	calls   sync.Mutex
	last    uint64
	waiting map[uint64]chan Answer
	ended   bool
}

// Dial connects to the gateway that listens at a path, to take over from it. It must have this process's user.
func Dial(ctx context.Context, path string) (*Conn, error) {
	return dial(ctx, path, func(uid int) error { return mayTakeOver(uid, os.Getuid()) })
}

// mayTakeOver returns why a process may not take over from a gateway; both users are given.
func mayTakeOver(gateway, own int) error {
	if gateway == own {
		return nil
	}
	return fmt.Errorf("its user is %d, and that of this process %d: start this one as that user (sudo -u %s)", gateway, own, UserName(gateway))
}

// DialToAsk connects to the gateway that listens at a path, to ask it for an upgrade. Root may ask a gateway of any user: nothing that
// comes back has an effect.
func DialToAsk(ctx context.Context, path string) (*Conn, error) {
	return dial(ctx, path, func(uid int) error { return mayAsk(uid, os.Getuid()) })
}

// mayAsk returns why a command may not ask a gateway for an upgrade; both users are given.
func mayAsk(gateway, own int) error {
	if gateway == own || own == 0 {
		return nil
	}
	return fmt.Errorf("its user is %d, and that of this command %d: run it as that user (sudo -u %s) or root", gateway, own, UserName(gateway))
}

// UserName is the name of a user as sudo takes it.
func UserName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("'#%d'", uid)
}

func dial(ctx context.Context, path string, check func(uid int) error) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return newConn(c.(*net.UnixConn), check)
}

// NewConn takes over an accepted connection. The other process must have this one's user, or be root's.
func NewConn(c *net.UnixConn) (*Conn, error) {
	return newConn(c, func(uid int) error {
		if isTrusted(uid) {
			return nil
		}
		return fmt.Errorf("its user is %d: only user %d and root may take over", uid, os.Getuid())
	})
}

func isTrusted(uid int) bool { return uid == os.Getuid() || uid == 0 }

// newConn takes over a connection, if the other process's user passes the check.
func newConn(c *net.UnixConn, check func(uid int) error) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	var cred *unix.Ucred
	process := -1
	if closed := raw.Control(func(fd uintptr) {
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			err = fmt.Errorf("identify the other process: %w", err)
		} else if err = check(int(cred.Uid)); err != nil {
			err = fmt.Errorf("process %d: %w", cred.Pid, err)
		} else if process, err = processAt(int(fd), int(cred.Pid)); err != nil {
			err = fmt.Errorf("watch process %d: %w", cred.Pid, err)
		}
	}); closed != nil {
		err = closed
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Conn{conn: c, peer: *cred, process: process, within: sendWithin, waiting: map[uint64]chan Answer{}}, nil
}

// processAt returns a pidfd of the process at the other end of a socket, by which it is killed. The kernel has that since Linux 6.5. Before, only
// its number is known, which another process may have by now; so it counts only if the connection has not ended since. That is no proof
// where it has left its end of the connection to a third process.
func processAt(socket, pid int) (int, error) {
	process, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if !errors.Is(err, unix.ENOPROTOOPT) {
		return process, err
	}
	if process, err = unix.PidfdOpen(pid, 0); err != nil {
		return -1, err
	}
	end := []unix.PollFd{{Fd: int32(socket)}} // POLLHUP needs not be asked for
	if _, err = unix.Poll(end, 0); err == nil && end[0].Revents&unix.POLLHUP != 0 {
		err = errEnded
	}
	if err != nil {
		_ = unix.Close(process)
		return -1, err
	}
	return process, nil
}

// EndReceive ends Receive, now and later.
func (c *Conn) EndReceive() { _ = c.conn.CloseRead() } // it fails only if the connection has ended

// PID is the other process's.
func (c *Conn) PID() int { return int(c.peer.Pid) }

// Close ends the connection. Calls that wait fail. It may be called once.
func (c *Conn) Close() error {
	c.failCalls()
	return errors.Join(c.conn.Close(), unix.Close(c.process))
}

// Send sends a message, with descriptors. A nil body has an empty payload, a []byte is sent as it is, anything else as JSON. If the other
// process does not take all of a message in time, it cannot make out what follows: later messages are not sent, and it sees the end.
func (c *Conn) Send(kind Kind, body any, files ...*os.File) error {
	payload, raw := body.([]byte)
	if !raw && body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return err
		}
	}
	frame, err := appendFrame(make([]byte, 0, headerBytes+len(payload)), kind, payload)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			// Not f.Fd: it would make a listening socket block, in every process that has it.
			raw, err := f.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
			}
			if err != nil {
				return err
			}
		}
		defer runtime.KeepAlive(files)
		rights = unix.UnixRights(fds...)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.failed != nil {
		return c.failed
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
		return err
	}
	n, _, err := c.conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = c.conn.Write(frame[n:])
	}
	if err != nil {
		c.failed = fmt.Errorf("process %d does not take messages any more: %w", c.PID(), err)
		_ = c.conn.CloseWrite() // it fails only if the connection has ended
	}
	return c.failed
}

// Receive waits for the next message. The caller owns the files.
func (c *Conn) Receive() (f Frame, files []*os.File, err error) {
	var header [headerBytes]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(header[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return f, nil, err
	}
	if files, err = parseFiles(oob[:oobn]); err != nil {
		return f, nil, err
	}
	defer func() {
		if err != nil {
			for _, file := range files {
				file.Close()
			}
			files = nil
		}
	}()
	if flags&unix.MSG_CTRUNC != 0 {
		return f, files, fmt.Errorf("a message of a takeover has more than %d descriptors", maxFiles)
	}
	if _, err = io.ReadFull(c.conn, header[n:]); err != nil {
		return f, files, err
	}
	kind, size, err := parseHeader(header)
	if err != nil {
		return f, files, err
	}
	f.Kind = kind
	// Its memory grows with what has arrived: a header alone costs nothing.
	f.Payload, err = io.ReadAll(io.LimitReader(c.conn, int64(size)))
	if err == nil && len(f.Payload) < size {
		err = io.ErrUnexpectedEOF
	}
	return f, files, err
}

func parseFiles(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another kind of message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "from the other process"))
		}
	}
	return files, nil
}

// SetReceiveDeadline bounds Receive; the zero time: it waits.
func (c *Conn) SetReceiveDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// HasDied reports whether the other process has ended, or is about to: its connection has ended already.
func (c *Conn) HasDied() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.process), Events: unix.POLLIN}}, int(diesWithin.Milliseconds()))
	return err == nil && n == 1
}

// Kill kills the other process, and returns when it has ended.
func (c *Conn) Kill() error {
	if err := unix.PidfdSendSignal(c.process, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", c.peer.Pid, err)
	}
	if !c.HasDied() {
		return fmt.Errorf("process %d has been killed and does not end", c.peer.Pid)
	}
	return nil
}

// errEnded says that the other process is gone.
var errEnded = errors.New("the other process of this gateway has ended")

// Call asks the other process and waits for its answer, which is decoded into answer.
func (c *Conn) Call(ctx context.Context, op string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	got := make(chan Answer, 1)
	c.calls.Lock()
	if c.ended {
		c.calls.Unlock()
		return errEnded
	}
	c.last++
	id := c.last
	c.waiting[id] = got
	c.calls.Unlock()
	defer func() {
		c.calls.Lock()
		delete(c.waiting, id)
		c.calls.Unlock()
	}()
	if err := c.Send(KindCall, Call{ID: id, Op: op, Body: text}); err != nil {
		return err
	}
	select {
	case a, ok := <-got:
		switch {
		case !ok:
			return errEnded
		case a.Error != "":
			return errors.New(a.Error)
		}
		return json.Unmarshal(a.Body, answer)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Answered gives an answer that was received to the call that waits for it.
func (c *Conn) Answered(f Frame) error {
	var a Answer
	if err := f.Decode(&a); err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	if got := c.waiting[a.ID]; got != nil {
		got <- a // it has room for the one answer
		delete(c.waiting, a.ID)
	}
	return nil
}

// Answer answers a call that was received. An answer that the other process does not take any more is no error: what it has sent before it
// went is still to be received, and may say why.
func (c *Conn) Answer(f Frame, do func(op string, body []byte) (any, error)) error {
	var call Call
	if err := f.Decode(&call); err != nil {
		return err
	}
	a := Answer{ID: call.ID}
	result, err := do(call.Op, call.Body)
	if err == nil {
		a.Body, err = json.Marshal(result)
	}
	if err != nil {
		a.Error = err.Error()
	}
	if err = c.Send(KindAnswer, a); err != nil && c.isCut() {
		return nil
	}
	return err
}

// isCut reports whether the other process takes no more messages.
func (c *Conn) isCut() bool {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.failed != nil
}

// failCalls ends the calls that wait: no answer will come.
func (c *Conn) failCalls() {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.ended = true
	for id, got := range c.waiting {
		close(got)
		delete(c.waiting, id)
	}
}

// Ended reports whether calls fail because the other process is gone.
func (c *Conn) Ended() bool {
	c.calls.Lock()
	defer c.calls.Unlock()
	return c.ended
}

// EndCalls fails the calls that wait, and later ones: the other process is gone.
func (c *Conn) EndCalls() { c.failCalls() }
