package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

const (
	// pumpBytes is read from a worker's stdout or stderr at once.
	pumpBytes = 16 << 10
	// drainWait is how long the output of a replica that is gone is still read. Its pipe is at its end at once, unless some
	// process that was not found holds it open.
	drainWait = 500 * time.Millisecond
	// raiseWait is for a replica to be raised: longer than the reaper tries.
	raiseWait = 10 * time.Second
)

// instance is one launch. It is a [containers.Instance].
type instance struct {
	link *link
	id   uint64
	path string
	// pid, quiet, raiseErr and exit are written by the link's reading goroutine: the first two before answered, the others before
	// raised and exited.
	pid      int
	quiet    bool
	raiseErr error
	exit     containers.Exit

	// limits are those of its processes, and what its cgroup, which may be nil, was made for; hushed: the group was made with the least share
	// of processors. killed is set when the owner has asked for the end.
	limits containers.Limits
	group  *cgroup.Group
	hushed bool
	killed atomic.Bool

	answered chan error // one value: the answer to the launch
	raised   chan struct{}
	exited   chan struct{}

	streams []outputStream
	pumping sync.WaitGroup
}

type outputStream struct {
	file *os.File // the read end of a pipe
	to   io.Writer
}

func (in *instance) PID() int                { return in.pid }
func (in *instance) Exited() <-chan struct{} { return in.exited }
func (in *instance) Exit() containers.Exit   { return in.exit }

// Signal implements [containers.Instance]: SIGTERM goes to the replica's first process only, as a container engine does it, so
// that the helpers of its own live until it has drained; SIGKILL goes to its whole process group, and what has left the
// group follows.
func (in *instance) Signal(term bool) error {
	select {
	case <-in.exited:
		return nil
	case <-in.link.lost: // it goes with its reaper, as it does when the Runtime is being closed
		return nil
	default:
	}
	if !term {
		in.killed.Store(true)
	}
	if err := in.link.ask(request{Op: opSignal, ID: in.id, Kill: !term}); err != nil && !errors.Is(err, errRuntimeClosed) {
		return fmt.Errorf("signal process %d: %w", in.pid, err)
	}
	return nil
}

// Raise implements [containers.Raiser].
func (in *instance) Raise() error {
	if in.hushed {
		if err := in.group.Hush(false); err != nil {
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
	case <-in.link.lost: // it goes with its reaper
	case <-late.C:
		return fmt.Errorf("raise the priority of process %d: the reaper did not answer within %v", in.pid, raiseWait)
	}
	return nil
}

// openStreams makes the pipes and returns their write ends, stdout's first; the caller closes them. They are plain blocking
// descriptors, as programs expect of their stdout.
func (in *instance) openStreams(l containers.Launch) (writeEnds []int, err error) {
	for _, to := range []io.Writer{l.Stdout, l.Stderr} {
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
	if err := unix.SetNonblock(p[0], true); err != nil { // of the read end alone: each end has its own flags
		closeAll(p[:])
		return -1, err
	}
	in.streams = append(in.streams, outputStream{file: os.NewFile(uintptr(p[0]), "worker output"), to: to})
	return p[1], nil
}

// heardRaised takes the reaper's answer; a second one changes nothing.
func (in *instance) heardRaised(p reply) {
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

// pump copies the output until its end.
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

// places is where the processes of the instance are to be, nil for one without a cgroup.
func (in *instance) places() cgroup.Places {
	if in.group == nil {
		return nil
	}
	return in.group.Places()
}

// ungroup removes the cgroup, with what is left in it.
func (in *instance) ungroup() {
	if in.group != nil {
		in.group.Remove()
	}
}

// finish lets the output run dry, removes the cgroup and reports the exit.
func (in *instance) finish(exit containers.Exit) {
	deadline := time.Now().Add(drainWait)
	for _, s := range in.streams {
		_ = s.file.SetReadDeadline(deadline)
	}
	in.pumping.Wait()
	if in.group != nil {
		exit = explain(exit, in.group.Events(), in.limits, in.killed.Load())
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
