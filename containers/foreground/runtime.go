package foreground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

// Config says what replicas share with their author.
type Config struct {
	// Stdin, Stdout and Stderr are the replica's.
	Stdin, Stdout, Stderr *os.File
	// Environ is the environment that the launch's own variables are added to.
	Environ []string
	// Once lets a replica that ends by itself be gone for its supervisor, too.
	Once bool
	// Python returns the interpreter of the launch's environment, which it builds if necessary; empty: it needs none. Restart ends its context. Nil:
	// launches run as they are.
	Python func(ctx context.Context, l containers.Launch) (string, error)
	// Say tells the author what the runtime does. It may be called by several goroutines.
	Say func(format string, args ...any)
}

// Runtime implements [containers.Runtime].
type Runtime struct {
	cfg Config

	starting sync.Mutex // held while a process is started, and for host
	host     *pythonHost

	mu      sync.Mutex
	current *instance
	again   context.CancelFunc // has the environment of the launch that begins looked at again; nil: none begins
	closing bool
	ended   chan containers.Exit // of the first replica that ended by itself
}

var _ containers.Runtime = (*Runtime)(nil)

// New returns a Runtime that runs nothing yet.
func New(cfg Config) *Runtime { return &Runtime{cfg: cfg, ended: make(chan containers.Exit, 1)} }

// process is a started process, however it was started.
type process struct {
	pid    int
	signal func(syscall.Signal) error
	exited <-chan containers.Exit // gets one
}

// Start implements [containers.Runtime].
func (r *Runtime) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	if l.Image != "" && len(l.Command) == 0 {
		return nil, &containers.LaunchError{Message: fmt.Sprintf("the model runs in the image %s: expected a command, run.command, that runs it on this machine", l.Image)}
	}
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	before := r.current
	r.mu.Unlock()
	if before != nil { // of a declaration that has been replaced
		before.release()
		<-before.gone
	}
	p, err := r.prepared(ctx, l)
	if err != nil {
		return nil, err
	}
	i := &instance{r: r, process: p, gone: make(chan struct{}), released: make(chan struct{})}
	go i.watch()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = i
	if r.closing {
		i.letGo()
	}
	return i, nil
}

// prepared starts the process of a launch in its environment. Where there is none and its author can mend that, it is a process that has ended.
// r.starting is held.
func (r *Runtime) prepared(ctx context.Context, l containers.Launch) (*process, error) {
	for r.cfg.Python != nil {
		looking, again := context.WithCancel(ctx)
		r.setAgain(again)
		python, err := r.cfg.Python(looking, l)
		changed := looking.Err() != nil && ctx.Err() == nil
		r.setAgain(nil)
		again()
		switch {
		case changed: // what the directory asks for may have changed
			continue
		case err != nil && (r.cfg.Once || ctx.Err() != nil):
			return nil, err
		case err != nil:
			r.cfg.Say("%v", err)
			return ended(), nil
		case python != "":
			l.Command = append([]string{python}, l.Command[1:]...)
		}
		break
	}
	return r.begin(ctx, l)
}

func (r *Runtime) setAgain(again context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = again
}

// ended is a process that has not been started and is over.
func ended() *process {
	exited := make(chan containers.Exit, 1)
	exited <- containers.Exit{Code: 1, At: time.Now()}
	return &process{0, func(syscall.Signal) error { return nil }, exited}
}

// begin starts the process of a launch. r.starting is held.
func (r *Runtime) begin(ctx context.Context, l containers.Launch) (*process, error) {
	env := append(append([]string{}, r.cfg.Environ...), l.Env...)
	if !isPython(l.Command) {
		return r.execute(l.Dir, l.Command, env)
	}
	env = append(env, "PYTHONUNBUFFERED=1")
	p, err := r.fork(ctx, l, env)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	r.cfg.Say("%s is started without preloaded libraries, so that each start imports them again: %v", l.Command[0], err)
	return r.execute(l.Dir, l.Command, env)
}

// pythonName matches the names of Python interpreters.
var pythonName = regexp.MustCompile(`^python[0-9.]*$`)

// isPython reports whether a command is an interpreter of Python with a script or a module.
func isPython(command []string) bool {
	return len(command) > 1 && pythonName.MatchString(filepath.Base(command[0])) && (command[1] == "-m" && len(command) > 2 || !strings.HasPrefix(command[1], "-"))
}

// execute starts a command as a child of this process.
func (r *Runtime) execute(dir string, command, env []string) (*process, error) {
	program, err := find(dir, command[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, command[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.cfg.Stdin, r.cfg.Stdout, r.cfg.Stderr
	if err := cmd.Start(); err != nil {
		return nil, &containers.LaunchError{Message: fmt.Sprintf("command %s cannot be run: %v", program, err), Err: err}
	}
	exited := make(chan containers.Exit, 1)
	go func() {
		_ = cmd.Wait() // ProcessState says how it ended
		exited <- exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
	}()
	return &process{cmd.Process.Pid, func(s syscall.Signal) error { return ignoreGone(cmd.Process.Signal(s)) }, exited}, nil
}

// find resolves a program as other runtimes do: a bare name means a file in the model's directory, else the first one in PATH.
func find(dir, name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	here := filepath.Join(dir, name)
	if info, err := os.Stat(here); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 || strings.Contains(name, "/") {
		return here, nil
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", &containers.LaunchError{Message: fmt.Sprintf("command %q not found: it is neither an executable file in %s nor in one of the directories of PATH", name, dir), Err: err}
	}
	return found, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func exitOf(status syscall.WaitStatus) containers.Exit {
	e := containers.Exit{Code: -1, At: time.Now()}
	if status.Signaled() {
		e.Signal = int(status.Signal())
	} else {
		e.Code = status.ExitStatus()
	}
	return e
}

// Restart ends the replica, if its process still runs, and lets the supervisor start the next one.
func (r *Runtime) Restart() {
	r.mu.Lock()
	i := r.current
	if r.again != nil {
		r.again()
	}
	r.mu.Unlock()
	if i != nil {
		i.release()
	}
}

// Ended gets how the first replica ended that ended by itself.
func (r *Runtime) Ended() <-chan containers.Exit { return r.ended }

// Closing says that the program ends: a replica whose process has ended is gone now.
func (r *Runtime) Closing() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	if r.current != nil {
		r.current.letGo()
	}
}

// Close implements [containers.Runtime].
func (r *Runtime) Close() error {
	r.Closing()
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	i, host := r.current, r.host
	r.host = nil
	r.mu.Unlock()
	if i != nil {
		_ = i.process.signal(syscall.SIGKILL)
		<-i.gone
	}
	if host != nil {
		host.close()
	}
	return nil
}

// instance is one replica. Its process may have ended before it is gone.
type instance struct {
	r       *Runtime
	process *process

	exit     containers.Exit
	gone     chan struct{}
	once     sync.Once
	released chan struct{} // closed when an end of the process is the end of the replica
}

// watch waits for the process, then for the permission to be gone.
func (i *instance) watch() {
	exit := <-i.process.exited
	restarted := true
	select {
	case <-i.released:
	default:
		restarted = false
		select {
		case i.r.ended <- exit:
		default:
		}
		if !i.r.cfg.Once {
			if i.process.pid == 0 {
				i.r.cfg.Say("the model is started when a file changes")
			} else {
				i.r.cfg.Say("the model's process has ended (%s): it is started again when a file changes", exit)
			}
			<-i.released
			restarted = true
		}
	}
	if restarted { // its author wanted it: nothing is wrong with the model
		exit.Cause, exit.Reason = containers.Lost, "it was restarted"
	}
	i.exit = exit
	close(i.gone)
}

// letGo makes the end of the process the end of the replica.
func (i *instance) letGo() { i.once.Do(func() { close(i.released) }) }

// endWithin is how long a replica may answer what it has before it is killed for a restart.
const endWithin = 300 * time.Millisecond

// release ends the replica.
func (i *instance) release() {
	i.letGo()
	_ = i.process.signal(syscall.SIGTERM)
	kill := time.AfterFunc(endWithin, func() { _ = i.process.signal(syscall.SIGKILL) }) // it may be stopped in a debugger
	go func() {
		<-i.gone
		kill.Stop()
	}()
}

// PID implements [containers.Instance].
func (i *instance) PID() int { return i.process.pid }

// Exited implements [containers.Instance].
func (i *instance) Exited() <-chan struct{} { return i.gone }

// Exit implements [containers.Instance].
func (i *instance) Exit() containers.Exit { return i.exit }

// Signal implements [containers.Instance].
func (i *instance) Signal(term bool) error {
	if term {
		i.letGo() // its supervisor wants it gone
		return i.process.signal(syscall.SIGTERM)
	}
	return i.process.signal(syscall.SIGKILL)
}
