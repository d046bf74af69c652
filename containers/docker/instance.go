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

	"github.com/xebec-serving/xebec/containers"
)

const (
	// drainWait is how long the output of a container that has ended is still read: the engine has closed it by then, as a rule.
	drainWait = 5 * time.Second
	// pauseMin and pauseMax bound the time between attempts to reach an engine that went away.
	pauseMin = 100 * time.Millisecond
	pauseMax = 2 * time.Second
	// lostAfter is how long an engine may be away until a replica that cannot be seen otherwise is given up: longer than an engine's
	// update takes.
	lostAfter = 5 * time.Minute
	// signalledFrom is added to a signal's number for the exit code of what it ended.
	signalledFrom = 128
)

// instance is one container. It is a [containers.Instance].
type instance struct {
	r      *Runtime
	name   string
	id     string
	launch containers.Launch
	pid    int
	// process is the container's first process, where it can be seen from here: it tells that it is gone, and can be killed, while the
	// engine is away. Its end is the end of all processes of the container, for it is the first of its PID name space.
	process *os.Process

	output   io.Closer     // the connection on which the output comes; belongs to launch, then to supervise
	drained  chan struct{} // closed when it has come to its end
	killOnce sync.Once
	killing  chan struct{} // closed when SIGKILL was asked for
	asked    atomic.Bool   // to end, in whatever way

	exit   containers.Exit
	exited chan struct{}
}

func (in *instance) PID() int                { return in.pid }
func (in *instance) Exited() <-chan struct{} { return in.exited }
func (in *instance) Exit() containers.Exit   { return in.exit }

// setPID takes a process for the container's only if the kernel says so: from another PID name space the engine's number means
// nothing, or another process.
func (in *instance) setPID(pid int) {
	in.pid = pid
	if pid <= 0 || !in.contains(pid) {
		return
	}
	if p, err := os.FindProcess(pid); err == nil { // a descriptor of the process, which stays this one's
		in.process = p
	}
}

// contains looks for the container's id in the names of a process's control groups, where every engine has it.
func (in *instance) contains(pid int) bool {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && strings.Contains(string(groups), in.id)
}

// attach takes the output from now on.
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
		_, _ = stdcopy.StdCopy(stdout, stderr, a.Reader) // ends with the container, or with the connection: supervise finds out which
	}()
	return nil
}

// closeOutput stops reading and waits until nothing is written any more.
func (in *instance) closeOutput() {
	if in.output != nil {
		in.output.Close()
		<-in.drained
	}
}

// Signal implements [containers.Instance]. The engine passes SIGTERM to the container's first process; SIGKILL ends them all. While the
// engine is away the kernel is asked instead, and SIGKILL is tried until the container has ended.
func (in *instance) Signal(term bool) error {
	select {
	case <-in.exited:
		return nil
	default:
	}
	in.asked.Store(true)
	err := in.signal(term)
	if !term {
		in.killOnce.Do(func() { close(in.killing) })
	}
	return err
}

func (in *instance) signal(term bool) error {
	name, number := "SIGTERM", syscall.SIGTERM
	if !term {
		name, number = "SIGKILL", syscall.SIGKILL
	}
	ctx, done := context.WithTimeout(in.r.life, callWithin)
	defer done()
	_, err := in.r.engine.ContainerKill(ctx, in.id, client.ContainerKillOptions{Signal: name})
	if err == nil || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // not there, or not running
		return nil
	}
	if in.process != nil && in.contains(in.pid) && in.process.Signal(number) == nil {
		return nil
	}
	select {
	case <-in.exited:
		return nil
	default:
		return fmt.Errorf("send %s to the container %s: %w; SIGKILL is sent when the Docker engine at %s answers", name, in.name, err, in.r.host)
	}
}

// supervise is the instance's goroutine: it waits for the end, sees to it that a kill is heard, and clears up.
func (in *instance) supervise() {
	defer in.r.supervised.Done()
	over := make(chan containers.Exit, 1)
	go func() { over <- in.watch() }()
	killing := in.killing
	var again <-chan time.Time
	var exit containers.Exit
	for ended := false; !ended; {
		select {
		case exit = <-over:
			ended = true
		case <-killing:
			killing = nil
			again = time.After(pauseMax)
		case <-again:
			_ = in.signal(false) // the first attempt's error was returned
			again = time.After(pauseMax)
		}
	}
	timer := time.NewTimer(drainWait)
	select {
	case <-in.drained:
	case <-timer.C:
	}
	timer.Stop()
	in.closeOutput()
	in.r.discard(in.name)
	if in.process != nil {
		_ = in.process.Release() // it is gone, and cannot fail to be
	}
	in.exit = exit
	in.r.mu.Lock()
	delete(in.r.instances, in)
	in.r.mu.Unlock()
	close(in.exited)
}

// watch returns when the container has ended, or can no longer be known to run.
func (in *instance) watch() containers.Exit {
	for pause := pauseMin; ; {
		began := time.Now()
		code, err := in.wait()
		if err == nil || cerrdefs.IsNotFound(err) {
			return in.ended(code, err == nil, "")
		}
		if in.r.life.Err() != nil {
			return in.lost("the gateway stopped, and the Docker engine at %s had not ended it", in.r.host)
		}
		in.r.lostContact()
		in.r.log.Warn("the Docker engine went away while a replica ran", zap.String("engine", in.r.host), zap.String("container", in.name), zap.Error(err))
		if time.Since(began) > lostAfter {
			pause = pauseMin
		}
		exit, over := in.outage(&pause)
		if over {
			return exit
		}
	}
}

// wait asks the engine to say when the container ends.
func (in *instance) wait() (code int64, err error) {
	ctx, done := context.WithCancel(in.r.life)
	defer done()
	w := in.r.engine.ContainerWait(ctx, in.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case res := <-w.Result:
		if res.Error != nil && res.Error.Message != "" {
			return 0, errors.New(res.Error.Message)
		}
		return res.StatusCode, nil
	case err := <-w.Error:
		return 0, err
	}
}

// outage is the time without the engine. It returns over when the replica is gone, or must be taken to be; else the engine is back, and
// the replica runs on. pause is the time until the next attempt, which doubles.
func (in *instance) outage(pause *time.Duration) (exit containers.Exit, over bool) {
	began := time.Now()
	for {
		if in.process != nil && errors.Is(in.process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			return in.lost("the Docker engine at %s went away while it ran, and it has ended since", in.r.host), true
		}
		if in.process == nil && time.Since(began) > lostAfter {
			return in.lost("the Docker engine at %s went away while it ran, and has not been back within %v: it may run on until the engine is", in.r.host, lostAfter), true
		}
		timer := time.NewTimer(*pause)
		select {
		case <-timer.C:
		case <-in.r.life.Done():
			timer.Stop()
			return in.lost("the gateway stopped while the Docker engine at %s was away", in.r.host), true
		}
		*pause = min(2**pause, pauseMax)
		if in.r.contact(in.r.life) != nil {
			continue
		}
		ctx, done := context.WithTimeout(in.r.life, callWithin)
		info, err := in.r.engine.ContainerInspect(ctx, in.id, client.ContainerInspectOptions{})
		done()
		if cerrdefs.IsNotFound(err) {
			return in.lost("the Docker engine at %s went away while it ran, and came back without its container", in.r.host), true
		}
		if err != nil {
			in.r.lostContact()
			continue
		}
		if state := stateOf(info); !state.Running {
			return in.ended(int64(state.ExitCode), true, fmt.Sprintf("the Docker engine at %s went away while it ran, and ended it: ", in.r.host)), true
		}
		in.resume()
		return containers.Exit{}, false
	}
}

// resume goes on with a container that has outlived an absence of its engine.
func (in *instance) resume() {
	in.closeOutput()
	tell(in.launch.Stderr, "the Docker engine at %s was away: what this replica wrote meanwhile may be missing", in.r.host)
	in.r.log.Info("the Docker engine is back, and a replica has run on", zap.String("engine", in.r.host), zap.String("container", in.name))
	ctx, done := context.WithTimeout(in.r.life, callWithin)
	defer done()
	if err := in.attach(ctx); err != nil { // the wait for its end finds out whether that is all there is to it
		tell(in.launch.Stderr, "what this replica writes from now on is lost: %v", err)
	}
}

func (in *instance) lost(format string, args ...any) containers.Exit {
	return containers.Exit{Code: -1, At: time.Now(), Reason: fmt.Sprintf(format, args...)}
}

// ended asks what the engine knows of the end. there is false when the container is gone.
func (in *instance) ended(code int64, there bool, prefix string) containers.Exit {
	if !there {
		return in.lost("its container %s was removed by somebody else", in.name)
	}
	var state container.State
	ctx, done := context.WithTimeout(in.r.life, callWithin)
	defer done()
	if info, err := in.r.engine.ContainerInspect(ctx, in.id, client.ContainerInspectOptions{}); err == nil {
		state = stateOf(info)
	}
	exit := in.exitOf(int(code), state.OOMKilled)
	if prefix != "" {
		exit.Reason = prefix + exit.String()
	}
	return exit
}

// exitOf turns an exit code into an exit. What a signal ended has its number and 128, be it that the engine saw it or the init in front.
func (in *instance) exitOf(code int, outOfMemory bool) containers.Exit {
	exit := containers.Exit{Code: code, At: time.Now()}
	if code > signalledFrom && code <= signalledFrom+64 {
		exit.Code, exit.Signal = -1, code-signalledFrom
	}
	limit := in.launch.Limits.MemoryBytes
	killed := exit.Signal == int(syscall.SIGKILL)
	switch {
	case outOfMemory && killed && limit > 0:
		exit.Reason = fmt.Sprintf("killed by the kernel, for it had used up its memory of %s (limits.memory)", size(limit))
	case outOfMemory && killed:
		exit.Reason = "killed by the kernel, for memory had run out"
	case outOfMemory && limit > 0:
		exit.Reason = fmt.Sprintf("%s, after one of its processes had been killed for using up its memory of %s (limits.memory)", exit, size(limit))
	case killed && limit > 0 && !in.asked.Load(): // the news of the kernel's reason can come late
		exit.Reason = fmt.Sprintf("%s; it may have %s (limits.memory)", exit, size(limit))
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
