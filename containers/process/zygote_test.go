package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// python returns an interpreter with the worker binding and numpy.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("XEBEC_TEST_PYTHON")
	if path == "" {
		var err error
		if path, err = filepath.Abs("../../build/venv/bin/python"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(path, "-c", "import numpy, xebec._zygote").CombinedOutput(); err != nil {
		t.Fatalf("%s cannot run the Python binding (%v): `make venv` makes an environment that can; XEBEC_TEST_PYTHON names another interpreter\n%s", path, err, out)
	}
	return path
}

// models is a directory of Python files for the tests: models, and in its folder "lib" modules to preload.
type models struct {
	python, dir string
}

// waits ends a script: it prints the line "ready" and waits to be killed.
const waits = "\nprint('ready', flush=True)\nimport signal\nwhile True: signal.pause()\n"

func newModels(t *testing.T, lib map[string]string) models {
	t.Helper()
	m := models{python(t), t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, source := range lib {
		m.write(t, "lib/"+name+".py", source)
	}
	return m
}

func (m models) write(t *testing.T, name, source string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
}

// launch returns a launch of script, in a file of its own, as model.py; stdout and stderr go to out.
func (m models) launch(t *testing.T, preload []string, script string, out *output, args ...string) containers.Launch {
	t.Helper()
	dir, err := os.MkdirTemp(m.dir, "model")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return containers.Launch{
		Isolation: plain, Replica: 1, Model: api.ModelID{Name: "m", Version: "1"}, Dir: dir, Command: append([]string{m.python, "model.py"}, args...), Preload: preload,
		Env: []string{"PYTHONPATH=" + filepath.Join(m.dir, "lib"), "PYTHONDONTWRITEBYTECODE=1", "XEBEC_TOKEN=" + strconv.Itoa(len(args))}, Stdout: out, Stderr: out,
	}
}

// theZygote returns the only zygote of a Runtime and waits until it is ready.
func theZygote(t *testing.T, r *Runtime) *zygote {
	t.Helper()
	r.zygotes.mu.Lock()
	var all []*zygote
	for _, p := range r.zygotes.byKey {
		if p.zygote != nil {
			all = append(all, p.zygote)
		}
	}
	r.zygotes.mu.Unlock()
	if len(all) != 1 {
		t.Fatalf("there are %d zygotes, expected 1", len(all))
	}
	select {
	case <-all[0].ready:
	case <-time.After(patience):
		t.Fatal("the zygote is not ready")
	}
	if all[0].err != nil {
		t.Fatal(all[0].err)
	}
	return all[0]
}

// tale is a module that shows whether an instance was forked from a zygote.
var tale = map[string]string{"tale": "import os\nborn = os.getpid()\n"}

const tell = "import os, tale\nprint('forked' if tale.born != os.getpid() else 'alone', flush=True)\n"

// anywhere removes the addresses of objects from lines.
func anywhere(lines []string) []string {
	for i := range lines {
		lines[i] = address.ReplaceAllString(lines[i], "at …")
	}
	return lines
}

var address = regexp.MustCompile("at 0x[0-9a-f]+")

// A forked worker sees the same as a process of its own.
func TestForkedIsLikePlain(t *testing.T) {
	m := newModels(t, map[string]string{"pre": "x = 1\n", "tale": tale["tale"]})
	m.write(t, "lib/pack.py", "import sys\nprint(__name__, sys.argv, sys.path[0] == __import__('os').getcwd(), __spec__.name, sys.orig_argv[1:])\nsys.exit(4)\n")
	show := `import os, sys, signal, pre
print(sorted(globals()), __name__, __file__, __spec__, __package__, type(__loader__), sys.modules['__main__'].__dict__ is globals())
print(sys.argv, sys.orig_argv, sys.path, sys.executable, sys.flags)
print(os.getcwd(), os.environ == {os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()})
print(sorted((k, v) for k, v in os.environ.items() if k != 'XEBEC_LAUNCH'), flush=True)
os.system("env | sort | grep -v -e ^XEBEC_LAUNCH -e ^_= -e ^PWD= -e ^SHLVL=")
print([signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sys.stdin.read() == '', sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.write_through)
print([(t.name, t.daemon) for t in __import__('threading').enumerate()], os.umask(0))
`
	cases := []struct {
		name, script string
		command      []string // after the interpreter; nil: model.py
		code, signal int
	}{
		{name: "the process", script: show},
		{name: "arguments", script: show, command: []string{"./model.py", "-x", "", "ü"}},
		{name: "a module", command: []string{"-m", "pack", "-m", "a"}, code: 4},
		{name: "a module of the model's", script: show, command: []string{"-m", "model"}},
		{name: "no such file", command: []string{"gone.py"}, code: 2},
		{name: "no such module", command: []string{"-m", "gone"}, code: 1},
		{name: "a directory", command: []string{"app", "x"}, code: 5},
		{name: "a directory that is no program", command: []string{"."}, code: 1},
		{name: "exit code", script: "import sys\nsys.exit(7)\n", code: 7},
		{name: "exit text", script: "import sys\nsys.exit('so long')\n", code: 1},
		{name: "exception", script: "def f():\n    raise KeyError('x')\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('y') from e\n", code: 1},
		{name: "exception in a module", command: []string{"-m", "model"}, script: "1/0\n", code: 1},
		{name: "syntax", script: "a = (\n", code: 1},
		{name: "own hook", script: "import sys, traceback\nsys.excepthook = lambda *a: print('hook', a, traceback.extract_tb(a[2]))\nraise ValueError('x')\n", code: 1},
		{name: "interrupt", script: "raise KeyboardInterrupt\n", code: -1, signal: int(syscall.SIGINT)},
		{name: "at exit", script: "import atexit, threading\natexit.register(print, 'at exit')\nthreading.Thread(target=lambda: print('thread')).start()\nprint('end')\n"},
		{name: "buffers", script: "import os\nprint('later')\nos.write(1, b'sooner\\n')\n"},
		{name: "hard exit", script: "import os\nprint('lost')\nos._exit(3)\n", code: 3},
		{name: "pickles", script: "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)\n"},
		{name: "crash", script: "import os\nos.abort()\n", code: -1, signal: int(syscall.SIGABRT)},
	}
	r := newRuntime(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			outs := [2]*output{newOutput(), newOutput()}
			l := m.launch(t, nil, tc.script, outs[0])
			app := filepath.Join(l.Dir, "app")
			if err := os.Mkdir(app, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(app, "__main__.py"), []byte("import sys\nprint(sorted(globals()), __file__, sys.argv, sys.path[0])\nsys.exit(5)\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if tc.command != nil {
				l.Command = append([]string{m.python}, tc.command...)
			}
			plain := waitExit(t, start(t, r, l))
			l.Preload, l.Stdout, l.Stderr = []string{"pre", "tale"}, outs[1], outs[1]
			in := start(t, r, l)
			forked := waitExit(t, in)
			if forked.Code != tc.code || forked.Signal != tc.signal || forked.Code != plain.Code || forked.Signal != plain.Signal || forked.Reason != plain.Reason {
				t.Errorf("exit %+v, unforked %+v, expected code %d, signal %d", forked, plain, tc.code, tc.signal)
			}
			want, got := anywhere(outs[0].all()), anywhere(outs[1].all())
			slices.Sort(want) // the order of two streams is random
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("output\n%s\nunforked\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if theZygote(t, r).in.PID() == in.PID() {
				t.Error("the instance is the zygote itself")
			}
		})
	}
	out := newOutput()
	waitExit(t, start(t, r, m.launch(t, []string{"pre", "tale"}, tell, out)))
	if lines := out.all(); !slices.Equal(lines, []string{"forked"}) {
		t.Errorf("output %q: expected it to be forked", lines)
	}
}

// A forked worker's process: a child of the reaper, with a session and group of its own, only three descriptors, its
// launch's marker, and its own command line.
func TestForkedProcess(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	var all []containers.Instance
	outs := []*output{newOutput(), newOutput()}
	for _, out := range outs {
		script := "import os, tale, ctypes\nfor fd in os.listdir('/proc/self/fd'):\n  try: print(fd, os.readlink('/proc/self/fd/' + fd))\n  except OSError: pass\n" +
			"n = ctypes.c_int()\nctypes.CDLL(None).prctl(2, ctypes.byref(n))\nprint('parent death signal', n.value)\n" + waits
		in := start(t, r, m.launch(t, []string{"tale"}, script, out))
		all = append(all, in)
		lines := out.until(t, "ready")
		if len(lines) != 4 || lines[3] != "parent death signal 9" || lines[0] != "0 /dev/null" || !strings.HasPrefix(lines[1], "1 pipe:") || !strings.HasPrefix(lines[2], "2 pipe:") {
			t.Errorf("descriptors %q, expected three, and SIGKILL", lines)
		}
	}
	z := theZygote(t, r)
	for _, in := range all {
		st, ok := readStat(in.PID())
		sid, err := unix.Getsid(in.PID())
		if !ok || err != nil || st.ppid != reaperOf(t, r) || st.pgrp != in.PID() || sid != in.PID() {
			t.Errorf("process %+v, session %d: expected a child of the reaper, %d, that leads its group and session", st, sid, reaperOf(t, r))
		}
		id := in.(*instance).id
		if want := fmt.Sprintf("%s-%020d", z.link.nonce, id); !marked(in.PID(), want+"\x00") || marked(in.PID(), fmt.Sprintf("%s-%020d", z.link.nonce, z.in.id)) {
			t.Errorf("process %d is not marked as %s, or marked as the zygote", in.PID(), want)
		}
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(in.PID()), "cmdline"))
		if err != nil || !strings.HasPrefix(string(line), m.python+"\x00model.py\x00") {
			t.Errorf("command line %q, %v", line, err)
		}
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(in.PID()), "status"))
		if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
			t.Errorf("status %s, %v: expected no_new_privs", status, err)
		}
	}
}

// Limits and quietness apply to a forked worker like to any other, before its first line runs.
func TestForkedLimitsAndQuiet(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	low := expected(t, r)
	out := newOutput()
	script := "import os, resource, tale, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n" +
		"print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_DATA), resource.getrlimit(resource.RLIMIT_CORE), os.getpriority(os.PRIO_PROCESS, 0))\n"
	l := m.launch(t, []string{"tale"}, script+waits, out)
	l.Limits, l.Quiet = containers.Limits{OpenFiles: 123, DataBytes: 4 << 30}, true
	in := start(t, r, l)
	if lines, want := out.until(t, "ready"), fmt.Sprintf("(123, 123) (%d, %d) (0, 0) %d", 4<<30, 4<<30, low); !slices.Equal(lines, []string{want}) {
		t.Errorf("limits and niceness %q, expected %q", lines, want)
	}
	checkNice(t, "quiet", in.PID(), low)
	checkGroup(t, "quiet", in.PID(), lowest)
	checkNice(t, "the zygote", theZygote(t, r).in.PID(), own(t))
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	checkNice(t, "raised", in.PID(), own(t))
	checkGroup(t, "raised", in.PID(), 0)
	l.Quiet = false
	in = start(t, r, l)
	out.until(t, "ready")
	checkNice(t, "not quiet", in.PID(), own(t))
	checkGroup(t, "not quiet", in.PID(), 0)
}

// A memory limit applies to a forked worker, and to no other.
func TestForkedMemoryLimit(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	out := newOutput()
	script := tell + "x = []\nwhile True: x.append(bytearray(1 << 20))\n"
	l := m.launch(t, []string{"tale"}, script, out)
	l.Limits.MemoryBytes = 128 << 20
	exit := waitExit(t, start(t, r, l))
	lines := out.all()
	killed := exit.Signal == int(syscall.SIGKILL)
	failed := exit.Code == 1 && slices.Contains(lines, "MemoryError") // where there is no cgroup
	if !killed && !failed || !slices.Contains(lines, "forked") {
		t.Errorf("exit %+v, output %q: expected a forked worker that ran out of memory", exit, lines)
	}
	if r.Unenforced(l.Limits) == nil && !killed {
		t.Errorf("exit %+v: expected SIGKILL by the kernel", exit)
	}
	l.Limits = containers.Limits{}
	l.Command[1] = "after.py"
	if err := os.WriteFile(filepath.Join(l.Dir, "after.py"), []byte(tell+"x = bytearray(256 << 20)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, start(t, r, l)); exit.Code != 0 || !slices.Equal(out.all(), []string{"forked"}) {
		t.Errorf("exit %+v without limits, from the same zygote", exit)
	}
}

func TestForkedRandomNumbersDiffer(t *testing.T) {
	m := newModels(t, nil)
	r := newRuntime(t)
	script := "import random, numpy, os, tempfile, uuid\nprint(random.random())\nprint(numpy.random.random())\nprint(numpy.random.default_rng().random())\nprint(uuid.uuid4())\n"
	seen := map[string]bool{}
	for range 3 {
		out := newOutput()
		waitExit(t, start(t, r, m.launch(t, []string{"random", "numpy", "numpy.random"}, script, out)))
		lines := out.all()
		if len(lines) != 4 {
			t.Fatalf("output %q", lines)
		}
		for _, line := range lines {
			if seen[line] {
				t.Errorf("number %s repeats", line)
			}
			seen[line] = true
		}
	}
	theZygote(t, r)
}

// numpy's own threads, which it starts at import on more than one processor, do not prevent a fork: they end for it and
// are created again in the worker.
func TestForkedThreadsOfOpenBLAS(t *testing.T) {
	t.Setenv("OPENBLAS_NUM_THREADS", "2")
	m := newModels(t, tale)
	r := newRuntime(t)
	out := newOutput()
	script := "import numpy\na = numpy.ones((300, 300))\nprint((a @ a).sum())\n" + tell
	for range 2 {
		waitExit(t, start(t, r, m.launch(t, []string{"numpy", "tale"}, script, out)))
		if lines := out.all(); !slices.Equal(lines, []string{"27000000.0", "forked"}) {
			t.Errorf("output %q", lines)
		}
	}
}

func TestForkedManyAtOnce(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	const n = 50
	l := m.launch(t, []string{"tale"}, "import sys, os, tale\nsys.exit(int(os.environ['XEBEC_TOKEN']) if tale.born != os.getpid() else 99)\n", nil)
	l.Stdout, l.Stderr = nil, nil
	results := make(chan error, n)
	for i := range n {
		go func() {
			l := l
			l.Env = append(slices.Clone(l.Env), fmt.Sprintf("XEBEC_TOKEN=%d", i))
			in, err := r.Start(t.Context(), l)
			if err == nil {
				<-in.Exited()
				if exit := in.Exit(); exit.Code != i {
					err = fmt.Errorf("launch %d: exit %+v", i, exit)
				}
			}
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	z := theZygote(t, r)
	if below := descendants(reaperOf(t, r), processes()); len(below) != 1 || below[0].pid != z.in.PID() {
		t.Errorf("below the reaper: %+v, expected the zygote alone", below)
	}
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(z.in.PID()), "fd"))
	want := 4
	if z.apart.abi > 0 {
		want = 5 // its forks' Landlock ruleset
	}
	if err != nil || len(fds) != want {
		t.Errorf("the zygote has %d descriptors, %v: expected %d", len(fds), err, want)
	}
}

// strays makes a worker leave two processes in sessions of their own: a fork of itself and another program.
const strays = `import os, subprocess, sys, tale
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("fork", os.getpid(), flush=True)
        while True: __import__("signal").pause()
    os._exit(0)
p = subprocess.Popen(["/bin/sh", "-c", "echo program $$; while :; do sleep 1000; done"], start_new_session=True, stdin=subprocess.PIPE)
os.wait()
`

// seen reads lines until all names have arrived, each with a pid.
func seen(t *testing.T, out *output, names ...string) []watched {
	t.Helper()
	var all []watched
	for len(all) < len(names) {
		select {
		case line := <-out.lines:
			if name, _, ok := strings.Cut(line, " "); ok && slices.Contains(names, name) {
				all = append(all, family(t, []string{line})...)
			}
		case <-time.After(patience):
			t.Fatalf("timeout: got only %v of %q", all, names)
		}
	}
	return all
}

func TestForkedFamilyEndsWithItsWorker(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	out, other := newOutput(), newOutput()
	neighbour := start(t, r, m.launch(t, []string{"tale"}, strays+waits, other))
	neighbours := append(seen(t, other, "fork", "program"), watch(t, "worker", neighbour.PID()))
	in := start(t, r, m.launch(t, []string{"tale"}, strays+waits, out))
	all := append(seen(t, out, "fork", "program"), watch(t, "worker", in.PID()))
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
	waitGone(t, all...)
	for _, w := range append(neighbours, watch(t, "zygote", theZygote(t, r).in.PID())) {
		if st, ok := readStat(w.pid); !ok || st.zombie {
			t.Errorf("%s of the other worker has ended too", w.name)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, neighbours...)
}

// The end of a zygote does not end other processes, and the next launch gets a new one.
func TestZygoteKilled(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, m.launch(t, []string{"tale"}, strays+waits, out))
	family := append(seen(t, out, "fork", "program"), watch(t, "worker", in.PID()))
	z := age(t, r) // otherwise the next one has to wait
	if err := unix.Kill(z.in.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitExit(t, z.in)
	waitUntil(t, "the zygote is removed", func() bool { return zygoteCount(r) == 0 })
	again := newOutput()
	waitExit(t, start(t, r, m.launch(t, []string{"tale"}, tell, again)))
	if lines := again.all(); !slices.Equal(lines, []string{"forked"}) {
		t.Errorf("output %q after the zygote's end", lines)
	}
	if theZygote(t, r) == z {
		t.Error("the zygote is the same")
	}
	for _, w := range family {
		if st, ok := readStat(w.pid); !ok || st.zombie {
			t.Errorf("%s has ended with its zygote", w.name)
		}
	}
	if err := in.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Signal != int(syscall.SIGTERM) {
		t.Errorf("exit %+v", exit)
	}
	waitGone(t, family...)
}

func zygoteCount(r *Runtime) int {
	r.zygotes.mu.Lock()
	defer r.zygotes.mu.Unlock()
	return r.zygotes.count()
}

// waitUntil polls for a condition that no channel reports.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(sweepMillis * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}
