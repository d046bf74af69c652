package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// drainWait is how long the output of an ended container is still read. Normally the engine has closed it by then.
	drainWait = 5 * time.Second
	// signalWithin is how long the engine has to deliver a signal, which takes it milliseconds, before the signal goes
	// to the process directly.
	signalWithin = 2 * time.Second //xebec:limit signal through the engine; then the process is signalled directly
	// reportWithin is how long the engine has to report the exit of a container whose process has ended, or
	// silentWithin if it did not answer before. A healthy engine takes about 100 ms, because it cleans up first, and
	// several times that on a busy machine. Owners report after 5 s a process that outlives its connection.
	reportWithin = 3 * time.Second
	// oomWithin is how long the engine has to report that the kernel killed a replica for memory, after the replica's end, and oomPause
	// how often it is asked.
	oomWithin = 2 * time.Second //xebec:limit report of an out-of-memory kill, after the end of its container
	oomPause  = 50 * time.Millisecond
	// pauseMin and pauseMax bound the time between attempts to reach an engine that went away.
	pauseMin = 100 * time.Millisecond
	pauseMax = 2 * time.Second
	// lostAfter is how long an engine may be away until a replica that is not visible otherwise is given up: longer
	// than an update of the engine.
	lostAfter = 5 * time.Minute //xebec:limit time without the engine after which a replica that cannot be observed otherwise is given up
	// signalledFrom plus a signal's number is the exit code of a process that the signal ended.
	signalledFrom = 128
)

// instance is one container. It is a [containers.Instance].
type instance struct {
	r         *Runtime
	name      string
	id        string
	launch    containers.Launch
	logWriter *logWriter // launch.Stderr
	pid       int
	image     containers.Image
	// process is the container's first process, if it is visible from here. It shows the container's end, and can be
	// killed, while the engine is away or hangs. When it ends, all processes of the container end, because it is the
	// first of its PID name space.
	process *os.Process
	// processCtx ends with that process, if its end is visible, or when the Runtime gives up.
	processCtx    context.Context
	cancelProcess context.CancelFunc
	pidfd         *os.File      // a pidfd of the process, to wait on; nil if it is not visible
	gone          chan struct{} // closed when the process ends; nil if it is not visible

	output       io.Closer     // the connection of the output; owned by launch, then by supervise
	drained      chan struct{} // closed when the output has reached its end
	killOnce     sync.Once
	killing      chan struct{} // closed when SIGKILL was requested
	endRequested atomic.Bool   // an end was requested, by any signal

	exit   containers.Exit
	exited chan struct{}
}

func (in *instance) PID() int                { return in.pid }
func (in *instance) Exited() <-chan struct{} { return in.exited }
func (in *instance) Exit() containers.Exit   { return in.exit }

// Image implements [containers.ImageReporter].
func (in *instance) Image() containers.Image { return in.image }

// setPID accepts a process as the container's only if the kernel confirms it: in another PID name space the engine's
// pid names no process, or another one.
func (in *instance) setPID(pid int) {
	in.pid = pid
	if pid <= 0 || !in.contains(pid) {
		return
	}
	p, err := os.FindProcess(pid) // holds a pidfd
	if err != nil {
		return
	}
	if !in.contains(pid) { // it ended in between, and the pid may have been reused
		_ = p.Release()
		return
	}
	in.process = p
	if in.pidfd = pidfdOf(p); in.pidfd != nil {
		in.gone = make(chan struct{})
	}
}

// pidfdOf returns a descriptor that becomes readable when the process has ended (pidfd_open(2)), or nil before Linux
// 5.3.
func pidfdOf(p *os.Process) *os.File {
	fd := -1
	if err := p.WithHandle(func(handle uintptr) {
		fd, _ = unix.FcntlInt(handle, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil || fd < 0 {
		return nil
	}
	_ = unix.SetNonblock(fd, true) // otherwise each one blocks a thread
	return os.NewFile(uintptr(fd), "pidfd")
}

// waitProcess is the goroutine that waits for the end of the process. It also ends when pidfd is closed.
func (in *instance) waitProcess() {
	conn, err := in.pidfd.SyscallConn()
	if err != nil {
		return
	}
	ended := false
	_ = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		ended = err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
		return ended
	})
	if ended {
		close(in.gone)
		in.cancelProcess()
	}
}

// contains looks for the container's id in the names of a process's control groups, where every engine puts it.
func (in *instance) contains(pid int) bool {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && strings.Contains(string(groups), in.id)
}

// attach starts copying the output.
func (in *instance) attach(ctx context.Context) error {
	a, err := in.r.engine.ContainerAttach(ctx, in.id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	stdout, stderr := in.launch.Stdout, in.launch.Stderr
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		stderr = io.Discard
	}
	drained := make(chan struct{})
	in.output, in.drained = a.Conn, drained
	go func() {
		defer close(drained)
		_, _ = stdcopy.StdCopy(stdout, stderr, a.Reader) // ends with the container or with the connection; supervise finds out which
	}()
	return nil
}

// closeOutput stops the copying and waits until it has ended.
func (in *instance) closeOutput() {
	if in.output != nil {
		in.output.Close()
		<-in.drained
	}
}

// Signal implements [containers.Instance]. The engine passes SIGTERM to the container's first process; SIGKILL ends all
// of them. If the engine is away, or takes longer than signalWithin, the signal goes to the process directly. SIGKILL
// is repeated until the container has ended.
func (in *instance) Signal(term bool) error {
	if in.isGone() {
		return nil
	}
	in.endRequested.Store(true)
	past, err := in.signal(term)
	if past {
		logTo(in.launch.Stderr, "the Docker engine at %s does not answer: the signal was sent to the process directly", in.r.host)
	}
	if !term {
		in.killOnce.Do(func() { close(in.killing) })
	}
	return err
}

// isGone reports whether there is nothing left to signal.
func (in *instance) isGone() bool {
	select {
	case <-in.exited:
	case <-in.gone:
	default:
		return false
	}
	return true
}

// signal sends a signal and reports whether it went past the engine.
func (in *instance) signal(term bool) (past bool, err error) {
	name, number := "SIGTERM", syscall.SIGTERM
	if !term {
		name, number = "SIGKILL", syscall.SIGKILL
	}
	err = in.r.ask(in.processCtx, signalWithin, func(ctx context.Context) error {
		_, err := in.r.engine.ContainerKill(ctx, in.id, client.ContainerKillOptions{Signal: name})
		return err
	})
	if err == nil || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) || in.isGone() { // it does not exist, or does not run
		return false, nil
	}
	if in.process != nil && in.contains(in.pid) && in.process.Signal(number) == nil {
		return true, nil
	}
	if in.isGone() {
		return false, nil
	}
	return false, fmt.Errorf("send %s to the container %s: %w; SIGKILL is sent when it answers", name, in.name, err)
}

// releaseProcess releases the descriptors of the process.
func (in *instance) releaseProcess() {
	in.cancelProcess()
	if in.pidfd != nil {
		in.pidfd.Close()
	}
	if in.process != nil {
		_ = in.process.Release() // it cannot fail
	}
}

// supervise is the instance's goroutine: it waits for the end, repeats a kill until it works, and cleans up.
func (in *instance) supervise() {
	defer in.r.supervised.Done()
	type end struct {
		exit     containers.Exit
		reported bool
	}
	over := make(chan end, 1)
	go func() { exit, reported := in.watch(); over <- end{exit, reported} }()
	killing := in.killing
	var again <-chan time.Time
	var e end
	for ended := false; !ended; {
		select {
		case e = <-over:
			ended = true
		case <-killing:
			killing = nil
			again = time.After(pauseMax)
		case <-again:
			_, _ = in.signal(false) // the error of the first attempt was returned
			again = time.After(pauseMax)
		}
	}
	if e.reported {
		timer := time.NewTimer(drainWait)
		select {
		case <-in.drained:
		case <-timer.C:
		}
		timer.Stop()
	}
	in.closeOutput()
	if e.reported {
		in.r.discard(in.name)
	} else {
		in.r.orphan(in.name)
	}
	in.releaseProcess()
	in.exit = e.exit
	in.r.mu.Lock()
	delete(in.r.instances, in)
	in.r.mu.Unlock()
	in.logWriter.stop()
	close(in.exited)
}

// watch returns when the container has ended, or can no longer be known to run. reported is false if the engine did not
// report the end; do not wait for it then.
func (in *instance) watch() (exit containers.Exit, reported bool) {
	for pause := pauseMin; ; {
		began := time.Now()
		code, err := in.wait()
		switch {
		case err == nil || cerrdefs.IsNotFound(err):
			return in.ended(code, err == nil, ""), true
		case in.r.life.Err() != nil:
			return in.lost("the gateway stopped, but the Docker engine at %s had not ended it", in.r.host), false
		case errors.Is(err, errNotReported):
			in.r.lostContact()
			return in.lost("it has ended with an unknown exit code, because the Docker engine at %s does not answer", in.r.host), false
		}
		in.r.lostContact()
		in.r.log.Warn("the Docker engine went away while a replica ran", zap.String("engine", in.r.host), zap.String("container", in.name), zap.Error(err))
		if time.Since(began) > lostAfter {
			pause = pauseMin
		}
		exit, over, reported := in.outage(&pause)
		if over {
			return exit, reported
		}
	}
}

// errNotReported is returned by wait if the process has ended and the engine does not report it.
var errNotReported = errors.New("the engine did not report the container's exit")

// wait waits until the engine reports the container's end, for as long as it runs. It is the only request without a
// time limit. If the process has ended, the engine has reportWithin left.
func (in *instance) wait() (code int64, err error) {
	ctx, done := context.WithCancel(in.r.life)
	defer done()
	type answer struct {
		code int64
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // the request itself may hang
		w := in.r.engine.ContainerWait(ctx, in.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case res := <-w.Result:
			if res.Error != nil && res.Error.Message != "" {
				answers <- answer{0, errors.New(res.Error.Message)}
				return
			}
			answers <- answer{res.StatusCode, nil}
		case err := <-w.Error:
			answers <- answer{0, err}
		}
	}()
	select {
	case a := <-answers:
		return a.code, a.err
	case <-in.gone:
	}
	within := reportWithin
	if in.r.silent.Load() {
		within = silentWithin
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.code, a.err
	case <-timer.C:
		done()
		<-answers
		in.r.noteNoAnswer()
		return 0, errNotReported
	}
}

// outage handles the time without the engine. over is true if the replica is gone, or must be assumed to be; reported
// is as in watch. Otherwise the engine is back and the replica still runs. pause is the time until the next attempt,
// which doubles.
func (in *instance) outage(pause *time.Duration) (exit containers.Exit, over, reported bool) {
	began := time.Now()
	for {
		if in.isGone() || in.process != nil && errors.Is(in.process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			return in.lost("the Docker engine at %s went away while it ran, and it has ended since", in.r.host), true, false
		}
		if in.process == nil && time.Since(began) > lostAfter {
			return in.lost("the Docker engine at %s went away while it ran, and did not come back within %v: it may still run", in.r.host, lostAfter), true, false
		}
		timer := time.NewTimer(*pause)
		select {
		case <-timer.C:
		case <-in.processCtx.Done():
			timer.Stop()
			if in.r.life.Err() == nil {
				continue
			}
			return in.lost("the gateway stopped while the Docker engine at %s was away", in.r.host), true, false
		}
		*pause = min(2**pause, pauseMax)
		if in.r.contact(in.processCtx) != nil {
			continue
		}
		var info client.ContainerInspectResult
		err := in.r.ask(in.processCtx, callWithin, func(ctx context.Context) (err error) {
			info, err = in.r.engine.ContainerInspect(ctx, in.id, client.ContainerInspectOptions{})
			return err
		})
		if cerrdefs.IsNotFound(err) {
			return in.lost("the Docker engine at %s went away while it ran, and came back without its container", in.r.host), true, true
		}
		if err != nil {
			in.r.lostContact()
			continue
		}
		if state := stateOf(info); !state.Running {
			return in.ended(int64(state.ExitCode), true, fmt.Sprintf("the Docker engine at %s went away while it ran, and ended it: ", in.r.host)), true, true
		}
		in.resume()
		return containers.Exit{}, false, false
	}
}

// resume continues with a container that has outlived an outage of its engine.
func (in *instance) resume() {
	in.closeOutput()
	logTo(in.launch.Stderr, "the Docker engine at %s was away: what this replica wrote meanwhile may be missing", in.r.host)
	in.r.log.Info("the Docker engine is back, and a replica still runs", zap.String("engine", in.r.host), zap.String("container", in.name))
	if err := in.r.ask(in.processCtx, callWithin, in.attach); err != nil { // if this fails, the wait for its end finds out why
		logTo(in.launch.Stderr, "further output of this replica is lost: %v", err)
	}
}

func (in *instance) lost(format string, args ...any) containers.Exit {
	return containers.Exit{Code: -1, At: time.Now(), Reason: fmt.Sprintf(format, args...), Cause: containers.Lost}
}

// ended queries the engine about the end. there is false if the container no longer exists.
func (in *instance) ended(code int64, there bool, prefix string) containers.Exit {
	if !there {
		return in.lost("its container %s was removed by another program", in.name)
	}
	exit := in.exitOf(int(code), in.outOfMemory(code))
	if prefix != "" {
		exit.Reason = prefix + exit.String()
	}
	return exit
}

// outOfMemory asks the engine whether the kernel has killed a process of the container for memory. The engine learns of the end and of
// the kill in two messages, in any order: if a kill explains the end, it has oomWithin to learn of that.
func (in *instance) outOfMemory(code int64) bool {
	may := code == signalledFrom+int64(syscall.SIGKILL) && !in.endRequested.Load() && (in.launch.Limits.MemoryBytes > 0 || in.r.memory > 0)
	for end := time.Now().Add(oomWithin); ; {
		killed := false
		err := in.r.ask(in.r.life, callWithin, func(ctx context.Context) error { // on failure the code is still known
			info, err := in.r.engine.ContainerInspect(ctx, in.id, client.ContainerInspectOptions{})
			killed = err == nil && stateOf(info).OOMKilled
			return err
		})
		if killed || err != nil || !may || time.Now().After(end) {
			return killed
		}
		timer := time.NewTimer(oomPause)
		select {
		case <-timer.C:
		case <-in.r.life.Done():
			timer.Stop()
			return false
		}
	}
}

// exitOf converts an exit code to an exit. A process ended by a signal has its number plus 128, whether the engine or
// the init reported it.
func (in *instance) exitOf(code int, outOfMemory bool) containers.Exit {
	exit := containers.Exit{Code: code, At: time.Now()}
	if code > signalledFrom && code <= signalledFrom+64 {
		exit.Code, exit.Signal = -1, code-signalledFrom
	}
	limit := in.launch.Limits.MemoryBytes
	killed := exit.Signal == int(syscall.SIGKILL)
	if outOfMemory {
		exit.Cause = containers.OutOfMemory
	}
	// The engine does not say whether the container reached the bound or the host ran out of memory before.
	beyond := fmt.Sprintf("it took more than %d MiB, which is what the machine, or the gateway's cgroup, has for replicas, or the host ran out of memory; "+
		"bound each model (limits.memory), or find out what the models hold", in.r.memory>>20)
	switch {
	case outOfMemory && killed && limit > 0:
		exit.Reason = fmt.Sprintf("killed by the kernel: it exceeded its memory limit of %s (limits.memory)", size(limit))
	case outOfMemory && killed && in.r.memory > 0:
		exit.Reason = "killed by the kernel: " + beyond
	case outOfMemory && killed:
		exit.Reason = "killed by the kernel: the host ran out of memory"
	case outOfMemory && limit > 0:
		exit.Reason = fmt.Sprintf("%s, after the kernel killed one of its processes at its memory limit of %s (limits.memory)", exit, size(limit))
	case outOfMemory && in.r.memory > 0:
		exit.Reason = fmt.Sprintf("%s, after the kernel killed one of its processes: %s", exit, beyond)
	case killed && limit > 0 && !in.endRequested.Load(): // the engine can learn of an out-of-memory kill late
		exit.Reason = fmt.Sprintf("%s; its memory limit is %s (limits.memory)", exit, size(limit))
	case code == 127 && len(in.launch.Command) > 0:
		exit.Reason = fmt.Sprintf("exited with code 127: is there a program %q in the image %s?", in.launch.Command[0], in.launch.Image)
	}
	return exit
}

func size(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
