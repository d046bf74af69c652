package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

const (
	// pumpBytes is the read size for a worker's stdout and stderr.
	pumpBytes = 16 << 10
	// drainWait is how long the output of an ended replica is still read. Its pipe reaches its end at once, unless a
	// process that was not found holds it open.
	drainWait = 500 * time.Millisecond
	// raiseWait bounds a raise: it is longer than the reaper tries.
	raiseWait = 10 * time.Second
	// lowEnd is longer than it takes to take a large program apart where the others leave some time over.
	lowEnd = 2 * time.Second //xebec:limit end of a process at the lowest CPU priority
)

// instance is one launch. It is a [containers.Instance].
type instance struct {
	link *link
	id   uint64
	path string
	// The link's reading goroutine writes pid, quiet, layers, missing, raiseErr and exit: pid and quiet before it sends to answered,
	// raiseErr before it closes raised, exit before it closes exited.
	pid      int
	quiet    bool
	raiseErr error
	exit     containers.Exit
	// layers and missing are what isolates it: see [containers.IsolationReporter].
	layers, missing []string

	// begins: it is to begin quietly, and hurried: it got full priority before it had. They belong to the goroutine that launches it.
	begins, hurried bool

	// yields: its group yields the processors to everything beside it. killed is set when the owner has requested the
	// kill.
	confinement
	yields bool
	killed atomic.Bool

	answered chan error // receives one value: the answer to the launch
	raised   chan struct{}
	exited   chan struct{}

	streams []outputStream
	hinter  *hinter // one of the streams' ends; nil without hints
	pumping sync.WaitGroup
}

type outputStream struct {
	file *os.File // the read end of a pipe
	to   io.Writer
}

func (in *instance) PID() int                { return in.pid }
func (in *instance) Exited() <-chan struct{} { return in.exited }
func (in *instance) Exit() containers.Exit   { return in.exit }

// Isolation implements [containers.IsolationReporter].
func (in *instance) Isolation() (layers, missing []string) { return in.layers, in.missing }

// Progress implements [containers.Progresser].
func (in *instance) Progress() (ran time.Duration, runnable, ok bool) {
	st, ok := readStat(in.pid)
	if !ok || st.zombie {
		return 0, false, false
	}
	for _, th := range threads(in.pid) {
		runnable = runnable || th.runnable
	}
	return time.Duration(st.ticks) * (time.Second / 100), runnable, true
}

// isolated says what isolates it: layers and missing without its cgroup, which the launcher does not know.
func (in *instance) isolated(layers, missing []string) {
	in.layers, in.missing = layers, missing
	if in.bound > 0 && len(layers) > 0 {
		in.layers = append(slices.Clone(layers), layerMemory)
	}
}

// Signal implements [containers.Instance]. SIGTERM goes to the replica's first process only, as with a container
// engine, so that its helpers live until it has drained. SIGKILL goes to its whole process group, and processes that
// left the group follow.
func (in *instance) Signal(term bool) error {
	select {
	case <-in.exited:
		return nil
	case <-in.link.lost: // it ends with its reaper, also when the Runtime is being closed
		return nil
	default:
	}
	if !term {
		in.killed.Store(true)
		if in.group != nil { // an exit takes processor time, and what yields gets none on a busy machine
			_ = in.group.SetQuiet(false)
		}
	}
	if err := in.link.ask(request{Op: opSignal, ID: in.id, Kill: !term}); err != nil && !errors.Is(err, errRuntimeClosed) {
		return fmt.Errorf("signal process %d: %w", in.pid, err)
	}
	return nil
}

// Lower implements [containers.Lowerer].
func (in *instance) Lower() {
	if in.group != nil && !in.killed.Load() {
		_ = in.group.SetQuiet(true)
	}
	select {
	case <-in.exited:
		return
	case <-in.link.lost:
		return
	default:
	}
	if err := in.link.ask(request{Op: opLower, ID: in.id}); err == nil {
		go in.endSoon()
	}
}

// endSoon raises a lowered replica that has not ended within lowEnd: beside threads that never pause it might never end.
func (in *instance) endSoon() {
	late := time.NewTimer(in.link.delays.lowEnd)
	defer late.Stop()
	select {
	case <-in.exited:
		return
	case <-in.link.lost:
		return
	case <-late.C:
	}
	if in.group != nil {
		_ = in.group.SetQuiet(false)
	}
	_ = in.link.ask(request{Op: opRaise, ID: in.id})
}

// Raise implements [containers.Raiser].
func (in *instance) Raise() error {
	if in.yields {
		if err := in.group.SetQuiet(false); err != nil {
			return err
		}
	}
	if !in.quiet {
		return nil
	}
	select {
	case <-in.exited:
		return nil
	case <-in.link.lost:
		return nil
	default:
	}
	if err := in.link.ask(request{Op: opRaise, ID: in.id}); err != nil && !errors.Is(err, errRuntimeClosed) {
		return fmt.Errorf("raise the priority of process %d: %w", in.pid, err)
	}
	late := time.NewTimer(raiseWait)
	defer late.Stop()
	select {
	case <-in.raised:
		return in.raiseErr
	case <-in.exited:
	case <-in.link.lost: // it ends with its reaper
	case <-late.C:
		return fmt.Errorf("raise the priority of process %d: the reaper did not answer within %v", in.pid, raiseWait)
	}
	return nil
}

// openStreams makes the pipes and returns their write ends, stdout's first, which the caller closes. They are blocking
// descriptors, as programs expect of their stdout.
func (in *instance) openStreams(l containers.Launch) (writeEnds []int, err error) {
	stderr := l.Stderr
	if hints := hintsFor(l); stderr != nil && len(hints) > 0 {
		in.hinter = &hinter{to: stderr, hints: hints}
		stderr = in.hinter
	}
	for _, to := range []io.Writer{l.Stdout, stderr} {
		var end int
		if to == nil {
			end, err = unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		} else {
			end, err = in.openPipe(to)
		}
		if err != nil {
			in.closeStreams()
			closeAll(writeEnds)
			return nil, fmt.Errorf("open the replica's output: %w", err)
		}
		writeEnds = append(writeEnds, end)
	}
	return writeEnds, nil
}

func (in *instance) openPipe(to io.Writer) (writeEnd int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(p[0], true); err != nil { // only the read end: each end has its own flags
		closeAll(p[:])
		return -1, err
	}
	in.streams = append(in.streams, outputStream{file: os.NewFile(uintptr(p[0]), "worker output"), to: to})
	return p[1], nil
}

// recordRaised records the reaper's answer. A second one changes nothing.
func (in *instance) recordRaised(p reply) {
	select {
	case <-in.raised:
		return
	default:
	}
	if p.Errno != 0 {
		in.raiseErr = fmt.Errorf("%s of process %d: %w", p.Step, in.pid, syscall.Errno(p.Errno))
	}
	close(in.raised)
}

func (in *instance) closeStreams() {
	for _, s := range in.streams {
		s.file.Close()
	}
}

// pump copies the output to its end.
func (in *instance) pump() {
	for _, s := range in.streams {
		in.pumping.Go(func() {
			defer s.file.Close()
			buf := make([]byte, pumpBytes)
			for {
				n, err := s.file.Read(buf)
				if n > 0 {
					_, _ = s.to.Write(buf[:n])
				}
				if err != nil { // the end, or drainWait is over
					return
				}
			}
		})
	}
}

// places returns the cgroup directories of the instance's processes, nil without a cgroup.
func (in *instance) places() cgroup.Places {
	if in.group == nil {
		return nil
	}
	return in.group.Places()
}

// ungroup removes the cgroup and kills what is left in it.
func (in *instance) ungroup() {
	if in.group != nil {
		in.group.Remove()
	}
}

// finish reads the rest of the output, removes the cgroup and reports the exit.
func (in *instance) finish(exit containers.Exit) {
	deadline := time.Now().Add(drainWait)
	for _, s := range in.streams {
		_ = s.file.SetReadDeadline(deadline)
	}
	in.pumping.Wait()
	if in.hinter != nil {
		in.hinter.end(exit)
	}
	if in.group != nil {
		exit = in.explain(exit, in.group.Events(), in.killed.Load())
		in.ungroup()
	}
	in.exit = exit
	close(in.exited)
}

func exitOf(status syscall.WaitStatus) containers.Exit {
	exit := containers.Exit{Code: -1, At: time.Now()}
	switch {
	case status.Exited():
		exit.Code = status.ExitStatus()
	case status.Signaled():
		exit.Signal = int(status.Signal())
	}
	return exit
}
