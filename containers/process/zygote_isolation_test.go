package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

// spyScript is a forked model that tries what a model may not do, as far as Python can.
const spyScript = `
import ctypes, os, signal, socket, sys, tale
libc = ctypes.CDLL(None, use_errno=True)
secret, gateway, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def attempt(name, what):
    try:
        what()
    except OSError:
        print(name, "denied", flush=True)
    else:
        print(name, "done", flush=True)

def call(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "")

def peek():
    if not open(secret).read():
        raise OSError("it is empty")

def tmp():
    import tempfile
    with tempfile.TemporaryFile() as f:
        f.write(b"x")

print("forked" if tale.born != os.getpid() else "alone", flush=True)
attempt("secret", peek)
attempt("environ", lambda: open(f"/proc/{gateway}/environ").read())
attempt("signal", lambda: os.kill(gateway, 0))
attempt("write", lambda: open("x", "w"))
attempt("temporary", tmp)
attempt("connect", lambda: socket.create_connection(("127.0.0.1", port)))
attempt("ptrace", lambda: call(101, 16, gateway, 0, 0))
attempt("unshare", lambda: os.unshare(os.CLONE_NEWUSER) if hasattr(os, "unshare") else call(272, 0x10000000))
if os.fork() == 0:
    os.setsid()
    os.execve("/bin/sleep", ["sleep", "1000"], {})
print("ready", flush=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
while True:
    signal.pause()
`

// A worker that was forked from a zygote has its zygote's isolation, and is to its owner as any other: its pid, its
// exit code, SIGTERM and a kill. It outlives its zygote. A daemon without an environment ends with the last of them.
func TestForkedIsIsolated(t *testing.T) {
	m := newModels(t, tale)
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Hidden: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	begin := func() (containers.Instance, *output) {
		out := newOutput()
		l := m.launch(t, []string{"tale"}, spyScript, out, secret, "1", "1")
		l.Isolation = containers.Isolation{}
		in, err := r.Start(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"secret": "denied", "signal": "done", "environ": "done", "write": "denied", "temporary": "done", "connect": "denied", "ptrace": "denied", "unshare": "denied"}
		layers, missing := in.(containers.IsolationReporter).Isolation()
		if all := strings.Join(layers, " "); strings.Contains(all, layerNS) {
			want["signal"], want["environ"] = "denied", "denied" // process 1 is the launcher
		} else {
			t.Logf("this machine gives it no namespaces: %q", missing)
			delete(want, "signal")
			delete(want, "environ")
		}
		for i, line := range out.until(t, "ready") {
			name, result, _ := strings.Cut(line, " ")
			if i == 0 && line != "forked" {
				t.Fatalf("output %q: expected it to be forked", line)
			}
			if i > 0 && want[name] != "" && result != want[name] {
				t.Errorf("%s: %s, expected %s", name, result, want[name])
			}
		}
		return in, out
	}
	polite, _ := begin()
	z := theZygote(t, r)
	killed, _ := begin()
	child := watch(t, "the killed one's daemon", daemonOf(t, killed.PID()))
	if err := killed.Signal(false); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, killed); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v: expected SIGKILL", exit)
	}
	if err := z.in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, z.in)
	select {
	case <-polite.Exited():
		t.Fatalf("it ended with its zygote: %v", polite.Exit())
	default:
	}
	other := watch(t, "the other's daemon", daemonOf(t, polite.PID()))
	if err := polite.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, polite); exit.Code != 7 || exit.Reason != "" {
		t.Errorf("exit %+v: expected its own code 7", exit)
	}
	waitGone(t, child, other)
}

// daemonScript is a forked model that leaves a daemon without an environment in a session of its own: its parent has ended.
const daemonScript = `
import os, signal, tale
print("forked" if tale.born != os.getpid() else "alone", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve("/bin/sleep", ["sleep", "1000"], {})
os.wait()
print("ready", flush=True)
signal.pause()
`

// Such a daemon ends with its replica, while the zygote and its other forks live, wherever the machine gives the replica a cgroup.
func TestDaemonOfAForkEndsWithIt(t *testing.T) {
	m := newModels(t, tale)
	r, err := New(Config{MemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all [2]containers.Instance
	var daemons [2]watched
	for i := range all {
		out := newOutput()
		l := m.launch(t, []string{"tale"}, daemonScript, out)
		l.Isolation = containers.Isolation{}
		before := map[int]bool{}
		for _, st := range processes() {
			before[st.pid] = true
		}
		if all[i], err = r.Start(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if lines := out.until(t, "ready"); lines[0] != "forked" {
			t.Fatalf("output %q: expected it to be forked", lines)
		}
		pid := 0
		until(t, "the daemon runs", func() bool {
			for _, st := range descendants(reaperOf(t, r), processes()) {
				if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.pid), "cmdline")); err == nil && string(b) == "sleep\x001000\x00" && !before[st.pid] {
					pid = st.pid
				}
			}
			return pid != 0
		})
		daemons[i] = watch(t, "a fork's daemon", pid)
	}
	z := theZygote(t, r)
	if err := all[0].Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, all[0])
	if able(r, cgroup.Memory) {
		waitGone(t, daemons[0])
	}
	for _, in := range []*instance{all[1].(*instance), z.in} {
		select {
		case <-in.Exited():
			t.Errorf("another one has ended too: %v", in.Exit())
		default:
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	waitGone(t, daemons[:]...)
}

// daemonOf returns the child of a process.
func daemonOf(t *testing.T, pid int) int {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		for _, st := range processes() {
			if st.ppid == pid {
				return st.pid
			}
		}
		_, _ = unix.Poll(nil, 1)
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
