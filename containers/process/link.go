package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// helloWait bounds the reaper's start, which is a start of this program, on a machine that swaps.
	helloWait = 10 * time.Second
	// replyWait bounds a launch: fork and exec from a slow disk. One that takes longer is killed. A reaper that does not answer then
	// is broken and is replaced.
	replyWait = 30 * time.Second
	// hurryEvery is how long a quiet launch may take to begin before it gets full priority.
	hurryEvery = time.Second //xebec:limit start of a process at the lowest CPU priority, before its program begins
	// writeWait bounds the sending of a request: the reaper always reads, unless it is stopped.
	writeWait = 10 * time.Second
	// closeWait bounds the end of everything: the reaper's grace, and time to reap.
	closeWait = graceMillis*time.Millisecond + 5*time.Second
	// sweepWait bounds the search for processes that a dead reaper's workers left behind.
	sweepWait = 3 * time.Second
	// stderrHeadBytes is how much of a reaper's stderr is kept: the beginning of a crash says what it was.
	stderrHeadBytes = 2 << 10
)

// delays are replyWait, hurryEvery and lowEnd, except in tests.
type delays struct{ reply, hurry, lowEnd time.Duration }

// interruptedError is the error of a launch that ended with its reaper or launcher. It implements [containers.Interrupted].
type interruptedError struct{ why string }

func (e interruptedError) Error() string   { return e.why }
func (interruptedError) Interrupted() bool { return true }

// link is the gateway's side of one reaper, from its start to its end.
type link struct {
	nonce string // prefix of the markers of this reaper's launches
	cmd   *exec.Cmd
	conn  *net.UnixConn
	words *stderrHead
	// cannotBeQuiet says why the reaper cannot start replicas quietly, nil if it can.
	cannotBeQuiet error
	delays        delays
	// confined makes what bounds a launch from outside.
	confined func(l containers.Launch, zygote bool) (confinement, error)

	// isolation decides what isolates a launch: see [Runtime.isolation].
	isolation func(l containers.Launch, path string, env []string, id uint64, zygote bool) *sandbox

	writing sync.Mutex // held while a request is written
	hungUp  bool       // guarded by writing

	mu        sync.Mutex
	launches  uint64
	instances map[uint64]*instance
	closing   bool
	gone      bool

	// lost is closed when the reaper takes no more requests. done is closed when it is gone, all its instances have
	// exited and all goroutines have ended.
	lost, done chan struct{}
	finishing  sync.WaitGroup // only the reading goroutine adds
}

// startReaper runs this program again as a reaper.
func startReaper(nonce string, env []string) (*link, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the reaper: socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "reaper"), os.NewFile(uintptr(fds[1]), "reaper's end")
	defer theirs.Close()
	conn, err := net.FileConn(ours) // duplicates the descriptor
	ours.Close()
	if err != nil {
		return nil, fmt.Errorf("start the reaper: socket pair: %w", err)
	}
	k := &link{
		nonce: nonce, conn: conn.(*net.UnixConn), words: &stderrHead{}, instances: map[uint64]*instance{},
		lost: make(chan struct{}), done: make(chan struct{}),
	}
	// /proc/self/exe is this program, even if its file has been replaced since. A session of its own protects the
	// reaper from a terminal's signals, and "/" avoids holding a mounted file system.
	k.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{reaperName}, Dir: "/", Env: append(env, reaperEnv+"=1", "GOMAXPROCS=2"),
		ExtraFiles: []*os.File{theirs}, Stderr: k.words, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay: time.Second,
	}
	if err := k.cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	theirs.Close()
	if err := k.hello(); err != nil {
		conn.Close()
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
		return nil, fmt.Errorf("start the reaper: %w%s", err, k.words)
	}
	go k.read()
	return k, nil
}

func (k *link) hello() error {
	if err := k.conn.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
		return err
	}
	p, err := k.receive()
	if err != nil {
		return fmt.Errorf("it sent no hello: %w", err)
	}
	if p.Op != opHello {
		return fmt.Errorf("it sent %q: expected %q", p.Op, opHello)
	}
	if p.Errno != 0 {
		k.cannotBeQuiet = fmt.Errorf("%s: %w", p.Step, syscall.Errno(p.Errno))
	}
	return k.conn.SetReadDeadline(time.Time{})
}

func (k *link) receive() (reply, error) {
	var header [frameHeaderBytes]byte
	if _, err := io.ReadFull(k.conn, header[:]); err != nil {
		return reply{}, err
	}
	n, err := frameLen(header)
	if err != nil {
		return reply{}, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(k.conn, body); err != nil {
		return reply{}, err
	}
	return decodeReply(body)
}

// ask sends a request. If that fails, it kills the reaper, and with it its workers.
func (k *link) ask(q request, fds ...int) error {
	frame, err := appendFrame(nil, q)
	if err != nil {
		return launchErrorf(err, "%v", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.hungUp {
		return errRuntimeClosed
	}
	err = k.conn.SetWriteDeadline(time.Now().Add(writeWait))
	if err == nil {
		// The descriptors go with the header alone: a short write of the whole frame would be indistinguishable from
		// one without them.
		_, _, err = k.conn.WriteMsgUnix(frame[:frameHeaderBytes], rights, nil)
	}
	if err == nil {
		_, err = k.conn.Write(frame[frameHeaderBytes:])
	}
	if err != nil {
		_ = k.cmd.Process.Kill()
		return interruptedError{fmt.Sprintf("ask the reaper: %v", err)}
	}
	return nil
}

// launch starts a replica and waits for the answer. The process gets the descriptors of more as 3 and up; the caller
// keeps owning them.
func (k *link) launch(ctx context.Context, environ []string, path string, l containers.Launch, more ...int) (*instance, error) {
	zygote := len(more) > 0
	in, fds, err := k.open(path, l, zygote)
	if err != nil {
		return nil, err
	}
	q, err := k.launchRequest(in, environ, l)
	if err == nil {
		q.Sandbox = k.isolation(l, path, toStrings(q.Env), in.id, zygote)
		if q.Sandbox != nil && in.unbounded != "" {
			q.Sandbox.Missing = append([]string{in.unbounded}, q.Sandbox.Missing...)
		}
		err = k.ask(q, append(slices.Clone(fds), more...)...)
	}
	closeAll(fds)
	if err != nil {
		k.forget(in)
		return nil, err
	}
	return k.await(ctx, in)
}

// open makes an instance with its cgroup and the write ends of its output, which the caller closes.
func (k *link) open(path string, l containers.Launch, zygote bool) (in *instance, writeEnds []int, err error) {
	in = &instance{link: k, path: path, answered: make(chan error, 1), raised: make(chan struct{}), exited: make(chan struct{})}
	if in.confinement, err = k.confined(l, zygote); err != nil {
		return nil, nil, err
	}
	in.begins = l.Quiet
	in.yields = l.Quiet && in.group != nil
	writeEnds, err = in.openStreams(l)
	if err == nil {
		if err = k.register(in); err != nil {
			in.closeStreams()
			closeAll(writeEnds)
		}
	}
	if err != nil {
		in.ungroup()
		return nil, nil, err
	}
	return in, writeEnds, nil
}

// await waits for the answer to a launch or an adoption. It kills a launch that takes too long, or whose ctx ends; the others go on.
func (k *link) await(ctx context.Context, in *instance) (*instance, error) {
	late, hurry := time.NewTimer(k.delays.reply), time.NewTicker(k.delays.hurry)
	defer late.Stop()
	defer hurry.Stop()
	cancelled := ctx.Done()
	var why error // it is killed
	kill := func(reason error) {
		why, cancelled = reason, nil
		late.Reset(k.delays.reply)
		_ = k.ask(request{Op: opSignal, ID: in.id, Kill: true}) // the reaper reads this after the launch
	}
	for {
		select {
		case err := <-in.answered:
			return in.begun(err, why)
		case <-hurry.C:
			in.hurry()
		case <-cancelled:
			kill(ctx.Err())
		case <-late.C:
			if why != nil {
				_ = k.cmd.Process.Kill() // which is an answer
				continue
			}
			kill(interruptedError{fmt.Sprintf("it had not begun within %v", k.delays.reply)})
		}
	}
}

// begun takes the answer to a launch that was not killed, or was, for a reason.
func (in *instance) begun(err, killed error) (*instance, error) {
	if killed != nil {
		if err == nil {
			<-in.exited
		}
		err = killed
	}
	if err != nil {
		if cut := (interruptedError{}); errors.As(err, &cut) && in.group != nil && in.group.Events().OOMKills > 0 {
			err = fmt.Errorf("%s: the kernel killed it for want of memory; raise limits.memory, or run fewer replicas", cut.why)
		}
		in.ungroup()
		return nil, err
	}
	if in.group != nil {
		in.group.Started()
	}
	// The reaper has done this, unless the kernel is older. Not before: its thread is in the group while it forks, and other launches
	// wait for that.
	if in.yields {
		quiet := in.begins
		in.yields = in.group.SetQuiet(quiet) == nil && quiet
	}
	return in, nil
}

// hurry gives a quiet launch that has not begun full priority. Beside threads that never pause, the lowest one was seen to be too
// little for a launcher to begin within replyWait.
func (in *instance) hurry() {
	if !in.begins && !in.hurried {
		return
	}
	in.begins, in.hurried = false, true
	if in.yields {
		_ = in.group.SetQuiet(false)
	}
	_ = in.link.ask(request{Op: opRaise, ID: in.id}) // each time: the reaper may start another launcher
}

func (k *link) launchRequest(in *instance, environ []string, l containers.Launch) (request, error) {
	marker := fmt.Sprintf("%s-%020d", k.nonce, in.id) // all of one length, so that one can be written over another
	env, err := workerEnv(marker, environ, l.Env)
	if err != nil {
		return request{}, err
	}
	argv := append([]string{in.path}, l.Command[1:]...)
	for _, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return request{}, launchErrorf(os.ErrInvalid, "argument %q of the command holds a zero byte", arg)
		}
	}
	return request{
		Op: opLaunch, ID: in.id, Path: []byte(in.path), Argv: toBytes(argv), Dir: []byte(l.Dir), Env: toBytes(env), Marker: marker,
		OpenFiles: in.limits.OpenFiles, DataBytes: in.limits.DataBytes, Groups: in.places(), Quiet: l.Quiet,
	}, nil
}

func (k *link) register(in *instance) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closing:
		return errRuntimeClosed
	case k.gone:
		return interruptedError{"the reaper has just ended; the next attempt starts another"}
	}
	k.launches++
	for range blockUIDs {
		if !k.hasUser(k.launches) {
			break
		}
		k.launches++
	}
	in.id = k.launches
	k.instances[in.id] = in
	return nil
}

// hasUser reports whether a replica that lives has the user that a launch with this number would get. Users are
// numbered by launches, and begin again after 65535 of them. The caller holds k.mu.
func (k *link) hasUser(id uint64) bool {
	const users = blockUIDs - 1
	if id < users { // they have not begun again
		return false
	}
	for other := range k.instances {
		if other%users == id%users {
			return true
		}
	}
	return false
}

// forget drops an instance whose request was not sent completely. If the reaper received it anyway, the instance ends
// with the reaper, which ask has killed.
func (k *link) forget(in *instance) {
	if k.take(in.id) != nil {
		in.closeStreams()
	}
	in.ungroup()
}

// take removes an instance from the table and returns it.
func (k *link) take(id uint64) *instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	in := k.instances[id]
	delete(k.instances, id)
	return in
}

// read is the link's goroutine: it processes the reaper's messages to their end and then cleans up.
func (k *link) read() {
	defer close(k.done)
	var err error
	for err == nil {
		var p reply
		if p, err = k.receive(); err == nil {
			err = k.handle(p)
		}
	}
	k.mu.Lock()
	k.gone = true
	closing := k.closing
	k.mu.Unlock()
	close(k.lost)
	if !closing || !errors.Is(err, io.EOF) {
		_ = k.cmd.Process.Kill() // its messages can no longer be read
	}
	reason := "the reaper has ended"
	if ended := k.cmd.Wait(); ended != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET) {
			reason = fmt.Sprintf("the reaper was killed, because its messages cannot be understood: %v", err)
		} else {
			reason = fmt.Sprintf("the reaper has ended (%v)%s", ended, k.words)
		}
		sweep(k.nonce + "-")
	}
	k.conn.Close()
	k.abandon(reason)
	k.finishing.Wait()
}

// handle takes a message of the reaper. One that must not come now is an error: a launch that waits for it, or for the end of its
// process, would wait for ever.
func (k *link) handle(p reply) error {
	k.mu.Lock()
	in := k.instances[p.ID]
	k.mu.Unlock()
	hasStarted := in != nil && in.pid != 0
	switch p.Op {
	case opHello:
		return errors.New("it sent a second hello")
	case opStarted:
		switch {
		case hasStarted:
			return fmt.Errorf("it started launch %d twice", p.ID)
		case in != nil:
			in.pid, in.quiet = p.PID, p.Quiet
			if p.Layers != nil { // an adopted process has its zygote's
				in.isolated(p.Layers, p.Missing)
			}
			in.pump()
			in.answered <- nil
		}
	case opRaised:
		if in != nil {
			in.recordRaised(p)
		}
	case opFailed:
		if hasStarted {
			return fmt.Errorf("launch %d failed after its start", p.ID)
		}
		if in := k.take(p.ID); in != nil {
			in.closeStreams()
			in.answered <- launchFailure(in.path, p)
		}
	case opExited:
		if in != nil && !hasStarted {
			return fmt.Errorf("launch %d ended before its start", p.ID)
		}
		if in := k.take(p.ID); in != nil {
			k.finish(in, exitOf(syscall.WaitStatus(p.Status)))
		}
	}
	return nil
}

// abandon reports every remaining instance as ended with the reaper.
func (k *link) abandon(reason string) {
	k.mu.Lock()
	left := k.instances
	k.instances = map[uint64]*instance{}
	k.mu.Unlock()
	for _, in := range left {
		if in.pid == 0 {
			in.closeStreams()
			in.answered <- interruptedError{reason}
			continue
		}
		k.finish(in, containers.Exit{Code: -1, At: time.Now(), Reason: "ended with its reaper: " + reason, Cause: containers.Lost})
	}
}

func (k *link) finish(in *instance, exit containers.Exit) {
	k.finishing.Add(1)
	go func() {
		defer k.finishing.Done()
		in.finish(exit)
	}()
}

// close hangs up and waits until nothing is left.
func (k *link) close() error {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	k.writing.Lock()
	k.hungUp = true
	_ = k.conn.CloseWrite() // fails if the reaper is gone, which is fine
	k.writing.Unlock()
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case <-k.done:
		return nil
	case <-late.C:
		_ = k.cmd.Process.Kill()
		<-k.done
		return fmt.Errorf("the reaper had not ended every replica within %v and was killed: look for processes that hang in the kernel", closeWait)
	}
}

// sweep kills what a dead reaper's workers have left behind. The workers themselves died with it (PDEATHSIG), their
// children may not have. The marker in the environment identifies them wherever they are.
func sweep(prefix string) {
	deadline := time.NewTimer(sweepWait)
	defer deadline.Stop()
	again := time.NewTicker(sweepMillis * time.Millisecond)
	defer again.Stop()
	for {
		left := 0
		for _, st := range processes() {
			if !st.zombie && marked(st.pid, prefix) {
				left++
				signalExactly(st, unix.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-deadline.C:
			return
		case <-again.C:
		}
	}
}

// stderrHead keeps the beginning of what a process writes to stderr.
type stderrHead struct {
	mu   sync.Mutex
	text []byte
}

func (w *stderrHead) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p[:min(len(p), stderrHeadBytes-len(w.text))]...)
	return len(p), nil
}

// String is empty, or continues a sentence.
func (w *stderrHead) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := strings.TrimSpace(string(w.text)); text != "" {
		return "; it wrote: " + text
	}
	return ""
}

func toBytes(ss []string) [][]byte {
	bs := make([][]byte, len(ss))
	for i, s := range ss {
		bs[i] = []byte(s)
	}
	return bs
}
