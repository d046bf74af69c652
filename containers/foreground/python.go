package foreground

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

// maxMessageBytes bounds a message of the host. Its reasons have at most a few thousand characters.
const maxMessageBytes = 64 << 10

// pythonHost is a process that has imported the libraries of a script, and forks its replicas, one at a time.
type pythonHost struct {
	purpose []string // what it was started for
	cmd     *exec.Cmd
	conn    *os.File
	replies chan message
	exits   chan containers.Exit
}

// message is a line from the host: see the docstring of xebec._dev.
type message struct {
	Ready  bool   `json:"ready"`
	Slow   string `json:"slow"`
	Stale  bool   `json:"stale"`
	Error  string `json:"error"`
	PID    int    `json:"pid"`
	Exit   *int   `json:"exit"`
	Signal int    `json:"signal"`
}

// request is a line to the host.
type request struct {
	Argv []string          `json:"argv,omitempty"`
	Dir  string            `json:"dir,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	Kill int               `json:"kill,omitempty"`
}

// fork starts a Python model from a host, which it starts first if there is none that fits.
func (r *Runtime) fork(ctx context.Context, l containers.Launch, env []string) (*process, error) {
	program, err := find(l.Dir, l.Command[0])
	if err != nil {
		return nil, err
	}
	wanted := slices.Concat([]string{program, l.Dir, l.Command[1]}, l.Preload)
	vars := make(map[string]string, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	for range 2 {
		if r.host != nil && !slices.Equal(r.host.purpose, wanted) {
			r.host.close()
			r.host = nil
		}
		if r.host == nil {
			if r.host, err = r.startHost(ctx, wanted, l, env); err != nil {
				return nil, err
			}
		}
		h := r.host
		m, err := h.ask(ctx, request{Argv: l.Command[1:], Dir: l.Dir, Env: vars})
		if err == nil && m.PID > 0 {
			return &process{m.PID, func(s syscall.Signal) error { h.tell(request{Kill: int(s)}); return nil }, h.exits}, nil
		}
		h.close()
		r.host = nil
		if err != nil {
			return nil, err
		}
		if !m.Stale {
			return nil, fmt.Errorf("its process was not forked: %s", m.Error)
		}
	}
	return nil, errors.New("its libraries change all the time")
}

// startHost starts a host and waits until it has imported the libraries.
func (r *Runtime) startHost(ctx context.Context, wanted []string, l containers.Launch, env []string) (*pythonHost, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "python host"), os.NewFile(uintptr(pair[1]), "control")
	h := &pythonHost{purpose: wanted, conn: ours, replies: make(chan message, 1), exits: make(chan containers.Exit, 1)}
	script := l.Command[1]
	if script == "-m" {
		script = "" // the module is found by the interpreter, and not read for its imports
	}
	h.cmd = exec.Command(wanted[0], slices.Concat([]string{"-u", "-m", "xebec._dev", l.Dir, script}, l.Preload)...)
	h.cmd.Dir, h.cmd.Env, h.cmd.ExtraFiles = l.Dir, env, []*os.File{theirs}
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = r.cfg.Stdin, r.cfg.Stdout, r.cfg.Stderr
	err = h.cmd.Start()
	theirs.Close() // so that the end of the host is seen
	if err != nil {
		ours.Close()
		return nil, err
	}
	go h.read()
	for {
		m, err := h.await(ctx)
		switch {
		case err != nil:
			h.close()
			return nil, err
		case m.Slow != "":
			r.cfg.Say("each start imports the libraries again: %s", m.Slow)
		case m.Ready:
			return h, nil
		}
	}
}

// read passes on what the host says, until it ends.
func (h *pythonHost) read() {
	defer close(h.replies)
	lines := bufio.NewScanner(h.conn)
	lines.Buffer(nil, maxMessageBytes)
	running := false
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			break
		}
		if m.Exit == nil {
			running = running || m.PID > 0
			h.replies <- m
			continue
		}
		running = false
		h.exits <- containers.Exit{Code: *m.Exit, Signal: m.Signal, At: time.Now()}
	}
	if running { // its replica ends with it
		h.exits <- containers.Exit{Code: -1, At: time.Now(), Reason: "the process that it was forked from has ended"}
	}
}

func (h *pythonHost) tell(q request) {
	text, err := json.Marshal(q)
	if err == nil {
		_, _ = h.conn.Write(append(text, '\n')) // a host that has ended needs no message
	}
}

func (h *pythonHost) ask(ctx context.Context, q request) (message, error) {
	h.tell(q)
	return h.await(ctx)
}

func (h *pythonHost) await(ctx context.Context) (message, error) {
	select {
	case m, ok := <-h.replies:
		if !ok {
			return m, errors.New("python -m xebec._dev ended: is the Python binding of this version installed for this interpreter? Its package is xebec-worker, not xebec")
		}
		return m, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

// close ends the host with its replica.
func (h *pythonHost) close() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
	h.conn.Close()
}
