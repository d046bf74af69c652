package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

const (
	// zygoteModule is what Python runs as a zygote. It is part of the worker binding; its docstring specifies the
	// messages.
	zygoteModule = "xebec._zygote"
	// maxForkBytes is the largest request that a zygote reads. maxForkAnswer exceeds every answer.
	maxForkBytes  = 64 << 10
	maxForkAnswer = 64 << 10
	// importWait bounds the imports: minutes on a cold disk. A zygote that takes longer is stuck.
	importWait = 5 * time.Minute //xebec:limit imports of a zygote
	// forkWait bounds a fork, which takes milliseconds. A zygote that takes longer has been swapped out or hangs, and
	// its launch is faster without it.
	forkWait = 5 * time.Second //xebec:limit a fork
)

// perLaunch lists the variables that differ between launches of one model. They are set in the forked process, and a
// zygote does not see them. A name that ends in '*' is a prefix. The visible devices are read when the first device is
// opened, and a zygote that has opened one does not fork.
var perLaunch = []string{"XEBEC_*", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// zygoteSpec is everything that a zygote depends on: launches with equal specs are forked from the same zygote.
type zygoteSpec struct {
	path    string // of the interpreter
	preload []string
	env     []string // without perLaunch, sorted
	// isolation is the zygote's, and so its forks'.
	isolation containers.Isolation
	// owner is the model whose launches have secrets, and the zygote for itself: every fork has what earlier requests left
	// in the zygote's memory, and where the kernel has no Landlock, forks can read each other's. Zero for launches without secrets.
	owner api.ModelID
}

// specOf returns the spec of the zygote that a launch can be forked from, or false if it must be started normally. path
// is the resolved program of its command.
func specOf(path string, l containers.Launch) (zygoteSpec, bool) {
	words := l.Command[1:]
	switch {
	case len(l.Preload) == 0 || len(words) == 0 || l.Isolation.Level == containers.IsolateStrict:
		return zygoteSpec{}, false
	case words[0] == "-m":
		if len(words) == 1 {
			return zygoteSpec{}, false
		}
	case words[0] == "" || strings.HasPrefix(words[0], "-"): // options of the interpreter only work for a new one
		return zygoteSpec{}, false
	}
	s := zygoteSpec{path: path, preload: slices.Clone(l.Preload), isolation: l.Isolation}
	if len(l.Secret) > 0 {
		s.owner = l.Model
	}
	for _, entry := range l.Env {
		if name, _, _ := strings.Cut(entry, "="); !matches(perLaunch, name) && !slices.Contains(l.Secret, name) {
			s.env = append(s.env, entry)
		}
	}
	slices.SortStableFunc(s.env, func(a, b string) int { // stable: of duplicates the last one wins
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	return s, true
}

func (s zygoteSpec) key() string {
	all := slices.Concat([]string{s.path}, s.preload, []string{""}, s.env) // no module's name is empty, and none contains a zero byte
	return fmt.Sprintf("%v\x00%v\x00%s", s.isolation, s.owner, strings.Join(all, "\x00"))
}

// zygote is one process that has imported modules and forks. Its goroutine is run; all others wait for ready first.
type zygote struct {
	link   *link
	born   time.Time
	cancel context.CancelFunc // ends it
	// broken ends the zygote, because it is of no use any more.
	broken func(error)

	// ready is closed when it can fork, or never will, in which case err says why. in, conn, since, enters and apart are set
	// before that if it can.
	ready chan struct{}
	err   error
	in    *instance
	conn  *net.UnixConn
	since time.Time
	words *stderrHead
	// enters: what it forks enters its cgroups by itself. apart says how it sets its forks apart from each other.
	enters bool
	apart  apart

	urgentOnce sync.Once
	urgent     chan struct{} // closed when a launch that is not quiet waits for it

	turn chan struct{} // holds one value while a fork is in progress
}

// forkRequest is a request to a zygote; stdout, stderr and the descriptor to wait at are sent with it, and the files by which the
// process enters its cgroups of version 1.
type forkRequest struct {
	Argv   [][]byte `json:"argv"`
	Dir    []byte   `json:"dir"`
	Env    [][]byte `json:"env"`
	Marker string   `json:"marker"`
	// Apart: the process enters a Landlock domain of its own. Older bindings ignore it.
	Apart bool `json:"apart,omitempty"`
}

// forkAnswer is a zygote's answer.
type forkAnswer struct {
	Ready bool `json:"ready"`
	// Groups comes with Ready: it takes the files of cgroups. Older bindings do not.
	Groups bool `json:"groups"`
	// Landlock comes with Ready: the kernel's version of Landlock, or 0 and Why. Nil: the binding is older and does not use it.
	Landlock *int   `json:"landlock"`
	Why      string `json:"why"`
	PID      int    `json:"pid"`
	Error    string `json:"error"`
	Stale    string `json:"stale"`
}

// errStale means that the zygote has ended because the installed packages have changed since its imports.
var errStale = errors.New("its zygote was out of date")

// run is the zygote's goroutine, from start to end. The zygote ends with ctx at the latest. run returns why it ended.
func (z *zygote) run(ctx context.Context, environ []string, s zygoteSpec) error {
	err := z.start(ctx, environ, s)
	if err != nil {
		err = errors.New("its zygote could not be started: " + err.Error()) // not wrapped: later launches get it too
	}
	z.err = err
	if err != nil {
		z.broken(err) // before ready is closed, so that a waiting launch does not use it again
	}
	close(z.ready)
	if z.in != nil {
		if err == nil {
			select {
			case <-z.in.Exited():
			case <-ctx.Done():
			}
		}
		_ = z.in.Signal(false)
		<-z.in.Exited()
		z.conn.Close()
	}
	if err == nil {
		err = fmt.Errorf("its zygote has ended (%v)%s", z.in.Exit(), z.words)
	}
	return err
}

// start starts the process and waits until it can fork. It imports quietly, like a loading replica, until a launch that
// is not quiet waits or it starves: on a busy machine an import of two seconds was seen to take 27 at the lowest priority. It has
// full priority before it forks.
func (z *zygote) start(ctx context.Context, environ []string, s zygoteSpec) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "zygote's end")
	defer theirs.Close()
	ours := os.NewFile(uintptr(fds[0]), "zygote")
	conn, err := net.FileConn(ours) // duplicates the descriptor
	ours.Close()
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	z.conn = conn.(*net.UnixConn)
	command := append([]string{s.path, "-m", zygoteModule}, s.preload...)
	in, err := z.link.launch(ctx, environ, s.path, containers.Launch{
		Dir: "/", Command: command, Env: s.env, Isolation: s.isolation, Quiet: true, Stdout: z.words, Stderr: z.words,
	}, int(theirs.Fd()))
	if err != nil {
		conn.Close()
		return err
	}
	z.in = in
	theirs.Close() // so that this process sees the zygote hang up
	go z.raiseEarly(in)
	answer, err := z.readAnswer(ctx, importWait)
	if err != nil {
		return err
	}
	if !answer.Ready {
		return errors.New("it did not report that it is ready")
	}
	if err := in.Raise(); err != nil {
		return err
	}
	z.since, z.enters, z.apart = time.Now(), answer.Groups, apartBy(answer)
	return nil
}

// raiseEarly raises a zygote that imports if a launch that is not quiet waits for it, or if it starves.
func (z *zygote) raiseEarly(in *instance) {
	sample := time.NewTicker(containers.StarvedEvery)
	defer sample.Stop()
	var hunger containers.Starvation
	hunger.Starved(in.Progress())
	for {
		select {
		case <-sample.C:
			if !hunger.Starved(in.Progress()) {
				continue
			}
		case <-z.urgent:
		case <-z.ready:
			return
		}
		_ = in.Raise() // start repeats it
		return
	}
}

// readAnswer reads one message. An error reported by the zygote is returned as an error.
func (z *zygote) readAnswer(ctx context.Context, wait time.Duration) (forkAnswer, error) {
	if err := z.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return forkAnswer{}, err
	}
	stop := context.AfterFunc(ctx, func() { z.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, maxForkAnswer)
	n, err := z.conn.Read(buf)
	switch {
	case ctx.Err() != nil:
		return forkAnswer{}, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return forkAnswer{}, fmt.Errorf("it did not answer within %v", wait)
	case err != nil: // it hung up: its exit says more, and its last words are complete then
		_ = z.in.Signal(false)
		<-z.in.Exited()
		return forkAnswer{}, fmt.Errorf("it ended (%v)%s", z.in.Exit(), z.words)
	}
	var a forkAnswer
	if err := json.Unmarshal(buf[:n], &a); err != nil {
		return forkAnswer{}, fmt.Errorf("its answer is not JSON: %w", err)
	}
	switch {
	case a.Stale != "":
		return a, fmt.Errorf("%w: %s", errStale, a.Stale)
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

// fork starts a launch by a fork. The zygote forks, the reaper adopts the process that the zygote names, and releases
// it. Until then the forked process waits at the read end of a pipe, and ends if the write end is closed.
func (z *zygote) fork(ctx context.Context, environ []string, path string, l containers.Launch) (*instance, error) {
	in, fds, err := z.link.open(path, l, false)
	if err != nil {
		return nil, err
	}
	q, release, err := z.child(ctx, in, environ, l, fds)
	closeAll(fds)
	if err == nil {
		err = z.link.ask(q, release)
		unix.Close(release)
	}
	if err != nil {
		z.link.forget(in)
		return nil, err
	}
	return z.link.await(ctx, in)
}

// child forks, and returns the request to adopt the child and the descriptor to send with it, which the caller closes.
func (z *zygote) child(ctx context.Context, in *instance, environ []string, l containers.Launch, outputs []int) (q request, release int, err error) {
	q, err = z.link.launchRequest(in, environ, l)
	if err != nil {
		return q, -1, err
	}
	body, err := json.Marshal(forkRequest{Argv: q.Argv[1:], Dir: q.Dir, Env: q.Env, Marker: q.Marker, Apart: l.Isolation.Level != containers.IsolateNone})
	if err != nil {
		return q, -1, err
	}
	if len(body) > maxForkBytes {
		return q, -1, fmt.Errorf("command and environment take %d bytes: a zygote takes at most %d", len(body), maxForkBytes)
	}
	var gate [2]int
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		return q, -1, err
	}
	var doors []int
	if z.enters {
		doors = in.places().Doors()
	}
	answer, err := z.ask(ctx, body, append([]int{outputs[0], outputs[1], gate[0]}, doors...)...)
	closeAll(doors)
	unix.Close(gate[0])
	if err == nil && answer.PID <= 0 {
		err = fmt.Errorf("its zygote reported process %d", answer.PID)
	}
	if err != nil {
		unix.Close(gate[1])
		return q, -1, err
	}
	q.Op, q.PID, q.Zygote = opAdopt, answer.PID, z.in.id
	q.Path, q.Argv, q.Dir, q.Env = nil, nil, nil, nil
	layers, missing := z.in.Isolation()
	if l.Isolation.Level != containers.IsolateNone {
		layers, missing = z.apart.add(layers, missing)
	}
	if len(layers) > 0 && in.unbounded != "" {
		missing = append(slices.Clone(missing), in.unbounded)
	}
	in.isolated(layers, missing)
	return q, gate[1], nil
}

// ask sends one request and returns the answer. It waits for a fork in progress even if ctx is cancelled, because the
// next request would get its answer. A zygote that does not answer is ended. A zygote that says why it could not fork
// continues.
func (z *zygote) ask(ctx context.Context, body []byte, fds ...int) (forkAnswer, error) {
	select {
	case z.turn <- struct{}{}:
	case <-ctx.Done():
		return forkAnswer{}, ctx.Err()
	}
	defer func() { <-z.turn }()
	err := z.conn.SetWriteDeadline(time.Now().Add(forkWait))
	if err == nil {
		_, _, err = z.conn.WriteMsgUnix(body, unix.UnixRights(fds...), nil)
	}
	var answer forkAnswer
	if err == nil {
		answer, err = z.readAnswer(context.Background(), forkWait)
	}
	if err != nil {
		err = fmt.Errorf("its zygote did not fork: %w", err)
		if answer.Error == "" {
			z.broken(err)
		}
	}
	return answer, err
}
