package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// aged is longer than any time limit of zygotes.
const aged = 2 * time.Hour

// age makes the only zygote look as if it had been ready, and idle, for long.
func age(t *testing.T, r *Runtime) *zygote {
	t.Helper()
	z := theZygote(t, r)
	r.zygotes.mu.Lock()
	defer r.zygotes.mu.Unlock()
	z.since = z.since.Add(-aged)
	for _, p := range r.zygotes.byKey {
		p.used = p.used.Add(-aged)
	}
	return z
}

// newRuntimeWithoutRetries returns a Runtime that does not try a failed zygote again during the test, unless it was
// healthy for a while.
func newRuntimeWithoutRetries(t *testing.T) *Runtime {
	r := newRuntime(t)
	r.zygotes.backoff = containers.Backoff{First: aged, Max: aged, Healthy: zygoteBackoff.Healthy}
	return r
}

// run starts a launch that prints whether it is forked, and returns its output.
func run(t *testing.T, r *Runtime, l containers.Launch) []string {
	t.Helper()
	out := newOutput()
	l.Stdout, l.Stderr = out, out
	if exit := waitExit(t, start(t, r, l)); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	return out.all()
}

// checkAlone checks that a launch was started as a process of its own, and that its output begins with the reason.
func checkAlone(t *testing.T, lines []string, reasons ...string) {
	t.Helper()
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "xebec: this replica is not forked") || lines[1] != "alone" {
		t.Errorf("output %q: expected the reason and the line alone", lines)
		return
	}
	for _, reason := range reasons {
		if !strings.Contains(lines[0], reason) {
			t.Errorf("reason %q: expected it to contain %q", lines[0], reason)
		}
	}
}

func checkForked(t *testing.T, lines []string) {
	t.Helper()
	if !slices.Equal(lines, []string{"forked"}) {
		t.Errorf("output %q: expected forked", lines)
	}
}

func TestZygotesThatFail(t *testing.T) {
	m := newModels(t, map[string]string{
		"tale":    tale["tale"],
		"broken":  "import nothing_of_this_name\n",
		"raises":  "raise RuntimeError('on the way')\n",
		"exits":   "raise SystemExit(0)\n",
		"ends":    "import os, sys\nprint('last words', file=sys.stderr, flush=True)\nos._exit(3)\n",
		"thread":  "import threading\nt = threading.Thread(target=threading.Event().wait, name='worker of thread', daemon=True)\nt.start()\n",
		"opens":   "f = open(__file__)\n",
		"listens": "import socket\ns = socket.socket()\n",
	})
	r := newRuntimeWithoutRetries(t)
	for module, reasons := range map[string][]string{
		"no_such_module": {"import no_such_module: ModuleNotFoundError: No module named 'no_such_module'"},
		"broken":         {"import broken: ModuleNotFoundError: No module named 'nothing_of_this_name'"},
		"raises":         {"import raises: RuntimeError: on the way"},
		"exits":          {"import exits: SystemExit: 0"},
		"ends":           {"exited with code 3", "it wrote: last words"},
		"thread":         {"1 threads (worker of thread)"},
		"opens":          {"left " + m.dir + "/lib/opens.py open"},
		"listens":        {"left socket:"},
	} {
		t.Run(module, func(t *testing.T) {
			l := m.launch(t, []string{"tale", module}, tell, nil)
			checkAlone(t, run(t, r, l), reasons...)
			// The next launch does not try again so soon, and reports the same reason.
			checkAlone(t, run(t, r, l), append(reasons, "the next attempt may be made in")...)
			spec, _ := r.specOf(l)
			r.zygotes.mu.Lock()
			defer r.zygotes.mu.Unlock()
			if p := r.zygotes.byKey[spec.key()]; p == nil || p.failures != 1 {
				t.Errorf("entry %+v: expected one failure", p)
			}
		})
	}
	t.Run("no Python", func(t *testing.T) {
		l := m.launch(t, []string{"tale"}, "echo alone", nil)
		l.Command[0] = "/bin/sh"
		checkAlone(t, run(t, r, l), "could not be started", zygoteModule)
	})
	t.Run("too large a request", func(t *testing.T) {
		l := m.launch(t, []string{"tale"}, tell, nil, strings.Repeat("x", maxForkBytes))
		checkAlone(t, run(t, r, l), "a zygote takes at most 65536")
	})
	if n := zygoteCount(r); n != 1 {
		t.Errorf("%d zygotes, expected the last one", n)
	}
}

// A launch that wants no zygote, or cannot be forked, starts without a message.
func TestLaunchesWithoutZygotes(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	l := m.launch(t, nil, tell, nil)
	if lines := run(t, r, l); !slices.Equal(lines, []string{"alone"}) {
		t.Errorf("output %q", lines)
	}
	l.Preload = []string{"tale"}
	for _, command := range [][]string{{m.python}, {m.python, "-m"}, {m.python, "-u", "model.py"}, {m.python, ""}} {
		l.Command = command
		if _, ok := specOf(m.python, l); ok {
			t.Errorf("command %q would be forked", command)
		}
	}
}

// A repaired module is noticed at the next attempt.
func TestZygoteIsTriedAgain(t *testing.T) {
	m := newModels(t, map[string]string{"tale": "raise RuntimeError\n"})
	r := newRuntime(t)
	l := m.launch(t, []string{"tale"}, "print('alone')\n", nil)
	checkAlone(t, run(t, r, l), "RuntimeError")
	m.write(t, "lib/tale.py", tale["tale"])
	r.zygotes.mu.Lock()
	for _, p := range r.zygotes.byKey {
		if wait := time.Until(p.next); wait > zygoteBackoff.First {
			t.Errorf("the next attempt is in %v, expected %v at most", wait, zygoteBackoff.First)
		}
		p.next = time.Now()
	}
	r.zygotes.mu.Unlock()
	if err := os.WriteFile(filepath.Join(l.Dir, "model.py"), []byte(tell), 0o644); err != nil {
		t.Fatal(err)
	}
	checkForked(t, run(t, r, l))
}

// gate is a module whose import blocks until the test opens the fifo.
const gate = "open('%s').read()\n"

func gated(t *testing.T) (m models, open func()) {
	t.Helper()
	m = newModels(t, tale)
	fifo := filepath.Join(m.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	m.write(t, "lib/gate.py", fmt.Sprintf(gate, fifo))
	return m, func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the reader
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
	}
}

func TestSlowImport(t *testing.T) {
	m, open := gated(t)
	r := newRuntime(t)
	r.zygotes.wait = time.Millisecond
	l := m.launch(t, []string{"tale", "gate"}, tell, nil)
	checkAlone(t, run(t, r, l), "has been importing for 1ms")
	open()
	theZygote(t, r)
	checkForked(t, run(t, r, l))
}

func TestLaunchWaitsForImport(t *testing.T) {
	m, open := gated(t)
	r := newRuntime(t)
	l := m.launch(t, []string{"tale", "gate"}, tell, nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := r.Start(ctx, l)
		result <- err
	}()
	waitUntil(t, "the launch waits", func() bool { return zygoteCount(r) == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected %v", err, context.Canceled)
	}
	out := newOutput()
	l.Stdout, l.Stderr = out, out
	started := make(chan error, 1)
	go func() {
		in, err := r.Start(t.Context(), l)
		if err == nil {
			<-in.Exited()
		}
		started <- err
	}()
	open()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	checkForked(t, out.all())
}

// A zygote imports quietly, until a launch that is not quiet waits for it.
func TestImportIsQuiet(t *testing.T) {
	m, open := gated(t)
	r := newRuntime(t)
	low := expected(t, r)
	quiet := m.launch(t, []string{"gate", "tale"}, tell, newOutput())
	r.Preload([]containers.Launch{quiet})
	pid := func() int { // of the zygote, once it runs
		below := descendants(reaperOf(t, r), processes())
		if len(below) != 1 {
			return 0
		}
		return below[0].pid
	}
	waitUntil(t, "the zygote runs", func() bool { return pid() != 0 })
	checkNice(t, "the importing zygote", pid(), low)
	quiet.Quiet = true
	done := make(chan struct{}, 2)
	for _, l := range []containers.Launch{quiet, m.launch(t, quiet.Preload, tell, newOutput())} {
		go func() {
			defer func() { done <- struct{}{} }()
			in, err := r.Start(t.Context(), l)
			if err != nil {
				t.Error(err)
				return
			}
			<-in.Exited()
		}()
	}
	waitUntil(t, "the zygote has been raised", func() bool {
		return !slices.ContainsFunc(threads(pid()), func(s stat) bool { return s.nice != own(t) })
	})
	open()
	<-done
	<-done
}

// A Runtime can be closed while a zygote imports and a launch waits for it.
func TestCloseWhileImporting(t *testing.T) {
	m, _ := gated(t)
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := m.launch(t, []string{"gate"}, tell, newOutput())
	result := make(chan error, 1)
	go func() {
		_, err := r.Start(context.Background(), l)
		result <- err
	}()
	waitUntil(t, "the launch waits", func() bool { return zygoteCount(r) == 1 })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, errRuntimeClosed) {
		t.Errorf("error %v, expected %v", err, errRuntimeClosed)
	}
	r.Preload([]containers.Launch{l})
	if n := zygoteCount(r); n != 0 {
		t.Errorf("%d zygotes after Close", n)
	}
}

// Packages that were installed after the imports are not mixed with those from before.
func TestStaleZygote(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntimeWithoutRetries(t)
	l := m.launch(t, []string{"tale"}, tell, nil)
	checkForked(t, run(t, r, l))
	first := age(t, r)
	m.write(t, "lib/installed.py", "")
	checkForked(t, run(t, r, l))
	second := theZygote(t, r)
	if second == first {
		t.Error("the zygote is the same")
	}
	waitExit(t, first.in)
	// If that keeps happening, launches are not delayed by it.
	m.write(t, "lib/again.py", "")
	checkAlone(t, run(t, r, l), "out of date", "packages have been installed")
}

// Launches that differ only in per-launch variables share a zygote, and each sees its own.
func TestPerLaunchVariables(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "gateway's")
	m := newModels(t, tale)
	r := newRuntime(t)
	base := m.launch(t, []string{"tale"}, "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('XEBEC_GPUS'), flush=True)\nos.system('echo $CUDA_VISIBLE_DEVICES')\n", nil)
	for _, gpu := range []string{"0", "1", ""} {
		l, want := base, []string{"gateway's None", "gateway's"}
		if gpu != "" {
			l.Env = append(slices.Clone(l.Env), "CUDA_VISIBLE_DEVICES="+gpu, "XEBEC_GPUS="+gpu)
			want = []string{gpu + " " + gpu, gpu}
		}
		if lines := run(t, r, l); !slices.Equal(lines, want) {
			t.Errorf("output %q, expected %q", lines, want)
		}
	}
	theZygote(t, r)
	// A variable that an import sets stays set.
	m.write(t, "lib/sets.py", "import os\nos.environ['SET'] = 'by import'\nos.environ['HOME'] = '/nowhere'\n")
	l := m.launch(t, []string{"sets"}, "import os\nprint(os.environ['SET'], os.environ['HOME'])\n", nil)
	if lines := run(t, r, l); !slices.Equal(lines, []string{"by import /nowhere"}) {
		t.Errorf("output %q", lines)
	}
}

// Launches of one model share a zygote though their secrets differ, and its imports see none of them.
func TestSecretsStayOutOfZygotes(t *testing.T) {
	m := newModels(t, map[string]string{"early": "import os\nseen = os.environ.get('KEY')\n"})
	r := newRuntime(t)
	base := m.launch(t, []string{"early"}, "import os, early\nprint(early.seen, os.environ['KEY'])\n", nil)
	for _, key := range []string{"one", "other"} {
		l := base
		l.Env, l.Secret = append(slices.Clone(l.Env), "KEY="+key), []string{"KEY"}
		if lines := run(t, r, l); !slices.Equal(lines, []string{"None " + key}) {
			t.Errorf("output %q", lines)
		}
	}
	theZygote(t, r)
}

// memorySpy looks for a text in the memory of other processes. It knows the text's beginning from its arguments.
const memorySpy = `
import os, sys, early
wanted = (sys.argv[1] + "-s3cret").encode()

def seen(pid):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for region in maps:
                span, mode = region.split()[:2]
                start, end = (int(n, 16) for n in span.split("-"))
                if not mode.startswith("rw"):
                    continue
                try:
                    memory.seek(start)
                    if wanted in memory.read(end - start):
                        return True
                except (OSError, ValueError):
                    pass
    except OSError:
        pass
    return False

print("forked" if early.born != os.getpid() else "alone")
print([pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and seen(pid)])
`

// A model's secrets are closed to other models that would otherwise share its zygote: forks of one zygote can read each other.
func TestSecretsAreClosedToOtherModels(t *testing.T) {
	m := newModels(t, map[string]string{"early": "import os\nborn = os.getpid()\n"})
	r := newRuntime(t)
	secretly := func(model, key string, l containers.Launch) containers.Launch {
		l.Model.Name, l.Isolation = model, containers.Isolation{}
		l.Env, l.Secret = append(slices.Clone(l.Env), "KEY="+key), []string{"KEY"}
		return l
	}
	out := newOutput()
	in := start(t, r, secretly("victim", "victims-s3cret", m.launch(t, []string{"early"}, "import signal\nprint('up', flush=True)\nsignal.pause()\n", out)))
	out.until(t, "up")
	lines := run(t, r, secretly("spy", "own", m.launch(t, []string{"early"}, memorySpy, nil, "victims")))
	layers, missing := in.(containers.IsolationReporter).Isolation()
	if !strings.Contains(strings.Join(layers, " "), layerNS) {
		t.Logf("this machine gives it no namespaces: %q", missing)
	} else if !slices.Equal(lines, []string{"forked", "[]"}) {
		t.Errorf("output %q: expected a fork that sees the secret nowhere", lines)
	}
	r.zygotes.mu.Lock()
	n := len(r.zygotes.byKey)
	r.zygotes.mu.Unlock()
	if n != 2 {
		t.Errorf("two models with secrets have %d zygotes", n)
	}
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
}

// variant returns a launch with an environment of its own, and so a zygote of its own.
func (m models) variant(t *testing.T, i int) containers.Launch {
	t.Helper()
	l := m.launch(t, []string{"tale"}, tell, nil)
	l.Env = append(l.Env, fmt.Sprintf("VARIANT=%d", i))
	return l
}

func zygoteOf(r *Runtime, l containers.Launch) *zygote {
	spec, _ := r.specOf(l)
	r.zygotes.mu.Lock()
	defer r.zygotes.mu.Unlock()
	if p := r.zygotes.byKey[spec.key()]; p != nil {
		return p.zygote
	}
	return nil
}

func TestMaxZygotes(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	var all []containers.Launch
	for i := range maxZygotes {
		all = append(all, m.variant(t, i))
		checkForked(t, run(t, r, all[i]))
	}
	idle := func(i int, d time.Duration) {
		spec, _ := r.specOf(all[i])
		r.zygotes.mu.Lock()
		defer r.zygotes.mu.Unlock()
		r.zygotes.byKey[spec.key()].used = time.Now().Add(-d)
	}
	for i := range all {
		idle(i, -aged) // a time in the future: none is idle, however slow this machine is
	}
	more := m.variant(t, maxZygotes)
	checkAlone(t, run(t, r, more), "there are 8 zygotes, and none of them has been idle for 1m0s")
	idle(2, aged)
	idle(5, 2*aged)
	longest := zygoteOf(r, all[5])
	checkForked(t, run(t, r, more))
	waitExit(t, longest.in)
	if zygoteOf(r, all[5]) != nil || zygoteOf(r, all[2]) == nil || zygoteCount(r) != maxZygotes {
		t.Error("the zygote ended is not the one that was idle longest")
	}
	// A zygote with announced launches is ended last.
	r.Preload(append([]containers.Launch{more}, all...))
	waitUntil(t, "Preload is done", func() bool { return preloaded(r) })
	if zygoteOf(r, all[5]) != nil || zygoteCount(r) != maxZygotes {
		t.Error("Preload ended one zygote to start another")
	}
	r.zygotes.mu.Lock()
	spec, _ := r.specOf(all[3])
	r.zygotes.byKey[spec.key()].wanted = false
	r.zygotes.mu.Unlock()
	idle(2, 2*aged)
	idle(3, aged)
	checkForked(t, run(t, r, all[5]))
	if zygoteOf(r, all[3]) != nil || zygoteOf(r, all[2]) == nil {
		t.Error("a wanted zygote was ended before one that is not")
	}
	r.Preload(nil)
	waitUntil(t, "no zygote is left", func() bool { return zygoteCount(r) == 0 })
}

func preloaded(r *Runtime) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.preloading
}

// The number of remembered failures is bounded.
func TestFailuresAreForgotten(t *testing.T) {
	zs := newZygotes(nil)
	now := time.Now()
	for i := range 3 * maxRemembered {
		p := &place{spec: zygoteSpec{path: fmt.Sprint(i)}, used: now.Add(time.Duration(i) * time.Second)}
		zs.byKey[p.spec.key()] = p
		zs.forget(p)
		if len(zs.byKey) > maxRemembered || zs.byKey[p.spec.key()] != p {
			t.Fatalf("%d entries, newest present: %t", len(zs.byKey), zs.byKey[p.spec.key()] == p)
		}
	}
	for i := range 2 * maxRemembered {
		if zs.byKey[zygoteSpec{path: fmt.Sprint(i)}.key()] != nil {
			t.Errorf("entry %d is kept although newer ones are dropped", i)
		}
	}
}

func TestPreload(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntimeWithoutRetries(t)
	one, two := m.variant(t, 1), m.variant(t, 2)
	broken := m.variant(t, 3)
	broken.Command = []string{"/no/such/python", "model.py"}
	plain := m.launch(t, nil, tell, nil)
	r.Preload([]containers.Launch{plain, broken, one})
	waitUntil(t, "there is a zygote", func() bool { return zygoteCount(r) == 1 })
	first := theZygote(t, r)
	r.Preload([]containers.Launch{one, one})
	waitUntil(t, "Preload is done", func() bool { return preloaded(r) })
	if theZygote(t, r) != first {
		t.Error("the zygote was replaced by an equal one")
	}
	r.Preload([]containers.Launch{two})
	waitUntil(t, "the zygote is another", func() bool { return zygoteOf(r, two) != nil })
	waitExit(t, first.in)
	second := theZygote(t, r)
	checkForked(t, run(t, r, two))
	if theZygote(t, r) != second {
		t.Error("the launch did not use the existing zygote")
	}
	// A zygote that was killed soon after its start counts as failed: the next launch starts without one and reports
	// it.
	if err := unix.Kill(second.in.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the zygote is gone", func() bool { return zygoteCount(r) == 0 })
	checkAlone(t, run(t, r, two), "its zygote has ended (ended by SIGKILL")
}
