package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

func TestOutputAndExitCode(t *testing.T) {
	r := newRuntime(t)
	out, errs := newOutput(), newOutput()
	l := shell(t, `echo one; echo two >&2; pwd; exit 3`, out)
	l.Stderr = errs
	exit := waitExit(t, start(t, r, l))
	if exit.Code != 3 || exit.Signal != 0 || exit.At.IsZero() {
		t.Errorf("exit %+v: expected code 3", exit)
	}
	if got, want := out.all(), []string{"one", l.Dir}; !slices.Equal(got, want) {
		t.Errorf("stdout %q, expected %q", got, want)
	}
	if got, want := errs.all(), []string{"two"}; !slices.Equal(got, want) {
		t.Errorf("stderr %q, expected %q", got, want)
	}
}

func TestOutputDiscarded(t *testing.T) {
	r := newRuntime(t)
	l := shell(t, `echo one && echo two >&2 && exit 4`, nil)
	l.Stdout, l.Stderr = nil, nil
	if exit := waitExit(t, start(t, r, l)); exit.Code != 4 {
		t.Errorf("exit %+v: expected code 4", exit)
	}
}

// A worker's output is complete when Exited is closed, however large it was.
func TestOutputIsCompleteAtExit(t *testing.T) {
	r := newRuntime(t)
	var n counter
	l := shell(t, `head -c 3000000 /dev/zero`, nil)
	l.Stdout, l.Stderr = &n, nil
	waitExit(t, start(t, r, l))
	if n != 3000000 {
		t.Errorf("%d bytes of output, expected 3000000", n)
	}
}

type counter int // written by the pump, read after Exited

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func TestSignals(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, launch(1, "polite", out))
	out.until(t, "ready")
	if err := in.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Code != 7 {
		t.Errorf("asked to end: exit %+v, expected its own code 7", exit)
	}
	if err := in.Signal(true); err != nil {
		t.Errorf("a signal after the exit: %v", err)
	}

	in = start(t, r, launch(2, "stubborn", out))
	out.until(t, "ready")
	if err := in.Signal(true); err != nil {
		t.Fatal(err)
	}
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) || exit.Code != -1 {
		t.Errorf("killed: exit %+v, expected signal 9", exit)
	}

	exit := waitExit(t, start(t, r, shell(t, `kill -SEGV $$`, out)))
	if exit.Signal != int(syscall.SIGSEGV) || !strings.Contains(exit.String(), "SIGSEGV") {
		t.Errorf("crashed: exit %v, expected SIGSEGV", exit)
	}
}

// When a worker ends, everything that it has started ends: its group, sessions of their own, daemons.
func TestFamilyEndsWithItsWorker(t *testing.T) {
	for _, how := range []string{"killed by the owner", "killed by another process"} {
		t.Run(how, func(t *testing.T) {
			r := newRuntime(t)
			out, other := newOutput(), newOutput()
			neighbour := start(t, r, launch(1, "family", other))
			neighbours := family(t, other.until(t, "ready"))
			in := start(t, r, launch(2, "family", out))
			all := family(t, out.until(t, "ready"))
			if len(all) != 3 {
				t.Fatalf("%d processes below the worker, expected 3", len(all))
			}
			if how == "killed by the owner" {
				if err := in.Signal(false); err != nil {
					t.Fatal(err)
				}
			} else if err := unix.Kill(in.PID(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitExit(t, in)
			waitGone(t, all...)
			for _, n := range neighbours {
				if st, ok := readStat(n.pid); !ok || st.zombie {
					t.Errorf("%s of the other worker has ended too", n.name)
				}
			}
			if err := neighbour.Signal(false); err != nil {
				t.Fatal(err)
			}
			waitExit(t, neighbour)
			waitGone(t, neighbours...)
			noZombies(t, reaperOf(t, r))
		})
	}
}

// noZombies waits until the reaper has no children at all.
func noZombies(t *testing.T, reaper int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(sweepMillis * time.Millisecond)
	defer again.Stop()
	for {
		left := descendants(reaper, processes())
		if len(left) == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the reaper still has %+v", left)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	in := start(t, r, launch(1, "family", out))
	all := family(t, out.until(t, "ready"))
	stubborn := start(t, r, launch(2, "stubborn", out))
	out.until(t, "ready")
	polite := start(t, r, launch(3, "polite", out))
	out.until(t, "ready")
	all = append(all, watch(t, "worker", in.PID()), watch(t, "reaper", reaperOf(t, r)))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, all...)
	for _, in := range []containers.Instance{in, stubborn, polite} {
		waitExit(t, in)
	}
	if exit := polite.Exit(); exit.Code != 7 {
		t.Errorf("exit %+v of a worker that ends on SIGTERM, expected its own code 7", exit)
	}
	if exit := stubborn.Exit(); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v of a worker that ignores SIGTERM, expected signal 9", exit)
	}
	if _, err := r.Start(t.Context(), launch(4, "sleep", out)); !errors.Is(err, errRuntimeClosed) {
		t.Errorf("start after Close: %v, expected %v", err, errRuntimeClosed)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// startGateway starts a command that runs this program as a gateway of a mode, and returns what it prints until it is ready.
func startGateway(t *testing.T, gateway *exec.Cmd, mode string) (lines []string) {
	t.Helper()
	gateway.Env = append(os.Environ(), modeEnv+"="+mode)
	gateway.Stderr = os.Stderr
	stdout, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(stdout); scan.Scan() && scan.Text() != "ready"; {
		lines = append(lines, scan.Text())
	}
	return lines
}

func TestGatewayKilled(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			gateway := exec.Command(self())
			lines := startGateway(t, gateway, "gateway")
			all := family(t, lines)
			if len(all) != 9 { // two workers with three processes below each, and the reaper
				t.Fatalf("the gateway has started %d processes, expected 9: %q", len(all), lines)
			}
			if err := gateway.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			waitGone(t, all...)
			if err := gateway.Wait(); err == nil {
				t.Error("the gateway exited with 0, expected the signal")
			}
		})
	}
}

func TestReaperKilled(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, launch(1, "family", out))
	all := append(family(t, out.until(t, "ready")), watch(t, "worker", in.PID()))
	first := reaperOf(t, r)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit := waitExit(t, in)
	if exit.Code != -1 || !strings.Contains(exit.Reason, "reaper") {
		t.Errorf("exit %+v: expected a reason that names the reaper", exit)
	}
	waitGone(t, all...)

	in = start(t, r, launch(2, "sleep", out))
	out.until(t, "ready")
	if second := reaperOf(t, r); second == first {
		t.Error("the reaper is the same")
	}
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
}

// Signals that a terminal or a service manager sends to all processes must not end the reaper before the workers.
func TestReaperIgnoresBroadcastSignals(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, launch(1, "sleep", out))
	out.until(t, "ready")
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		if err := unix.Kill(reaperOf(t, r), sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v: expected the owner's SIGKILL", exit)
	}
}

func TestNoDescriptorsLeak(t *testing.T) {
	// A descriptor without close-on-exec that this process inherited or opened.
	leak, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	r := newRuntime(t)
	waiting := newOutput()
	start(t, r, launch(1, "sleep", waiting)) // its pipes are open meanwhile
	waiting.until(t, "ready")
	out := newOutput()
	fds := launch(2, "fds", out)
	fds.Stderr = newOutput()
	waitExit(t, start(t, r, fds))
	lines := out.all()
	if len(lines) < 3 {
		t.Fatalf("descriptors %q, expected at least 0, 1 and 2", lines)
	}
	for _, line := range lines {
		fd, target, _ := strings.Cut(line, " ")
		switch {
		case fd == "0" && target == "/dev/null":
		case (fd == "1" || fd == "2") && strings.HasPrefix(target, "pipe:"):
		// Opened by the worker's Go runtime itself.
		case strings.HasPrefix(target, "anon_inode:[event"), strings.HasPrefix(target, "/proc/"), strings.HasPrefix(target, "/sys/fs/cgroup"):
		default:
			t.Errorf("the worker has descriptor %s", line)
		}
	}
}

func TestWorkerAttributes(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	l := launch(1, "status", out)
	waitExit(t, start(t, r, l))
	lines := out.all()
	if !slices.Contains(lines, "NoNewPrivs:\t1") {
		t.Errorf("status %q: expected no_new_privs", lines)
	}
	// Signals 32 and 33 belong to the C library. Some launchers of this test leave them ignored, and they stay so
	// across exec.
	const own = 1<<31 | 1<<32
	ignored := uint64(1)
	for _, line := range lines {
		if mask, ok := strings.CutPrefix(line, "SigIgn:\t"); ok {
			ignored, _ = strconv.ParseUint(mask, 16, 64)
		}
	}
	if ignored&^own != 0 {
		t.Errorf("status %q: expected no ignored signals", lines)
	}
	in := start(t, r, shell(t, `ulimit -c; ulimit -n; ulimit -d`, out))
	waitExit(t, in)
	if lines := out.all(); len(lines) != 3 || lines[0] != "0" {
		t.Errorf("limits %q: expected no core dumps", lines)
	}
	limited := launch(2, "sleep", out)
	limited.Limits = containers.Limits{OpenFiles: 123, DataBytes: 4 << 30}
	in = start(t, r, limited)
	out.until(t, "ready")
	var files, data unix.Rlimit
	if err := errors.Join(unix.Prlimit(in.PID(), unix.RLIMIT_NOFILE, nil, &files), unix.Prlimit(in.PID(), unix.RLIMIT_DATA, nil, &data)); err != nil {
		t.Fatal(err)
	}
	if files != (unix.Rlimit{Cur: 123, Max: 123}) || data != (unix.Rlimit{Cur: 4 << 30, Max: 4 << 30}) {
		t.Errorf("limits %+v and %+v: expected 123 files and 4 GiB", files, data)
	}
	pgid, err := unix.Getpgid(in.PID())
	if sid, err2 := unix.Getsid(in.PID()); err != nil || err2 != nil || pgid != in.PID() || sid != in.PID() {
		t.Errorf("group %d and session %d: expected the worker's own, %d", pgid, sid, in.PID())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "3")
	t.Setenv("LC_TIME", "C")
	t.Setenv("LANG", "C")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("PYTHONPATH", "/somewhere")
	r := newRuntime(t)
	out := newOutput()
	l := shell(t, `exec env`, out)
	l.Env = []string{"XEBEC_TOKEN=early", "LANG=C.UTF-8", "XEBEC_TOKEN=late", "ODD=\xff\xfe", markerName + "=forged"}
	waitExit(t, start(t, r, l))
	env := out.all()
	for _, want := range []string{"OMP_NUM_THREADS=3", "LC_TIME=C", "LANG=C.UTF-8", "XEBEC_TOKEN=late", "ODD=\xff\xfe"} {
		if !slices.Contains(env, want) {
			t.Errorf("the worker's environment lacks %q", want)
		}
	}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "PWD" || name == "_" || name == "SHLVL" || name == "OLDPWD": // the shell's own
		case name == "XEBEC_TOKEN" || name == "ODD":
		case name == markerName && value != "forged":
		case len(Inherited([]string{entry})) == 1:
		default:
			t.Errorf("the worker's environment holds %q", entry)
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "#!/bin/sh\n", 0o644)
	write("garbage", "not a program\n", 0o755)
	write("lost", "#!/nonexistent/interpreter\n", 0o755)
	r := newRuntime(t)
	for _, tc := range []struct {
		name    string
		dir     string
		command []string
		env     []string
		want    string
	}{
		{"empty", dir, nil, nil, "command is empty"},
		{"unknown", dir, []string{"no-such-program"}, nil, "not found"},
		{"unknown in the directory", dir, []string{"./no-such-program"}, nil, "does not exist"},
		{"a line", dir, []string{"python model.py"}, nil, `"python model.py" is one element: expected an element for each argument, ["python", "model.py"]`},
		{"a line with a path", dir, []string{"./run.sh  --fast"}, nil, `expected an element for each argument, ["./run.sh", "--fast"]`},
		{"no environment", dir, []string{filepath.Join(dir, "venv", "bin", "python")}, nil, `names the directory of a virtual environment: expected one at ` + filepath.Join(dir, "venv")},
		{"an interpreter for an environment", dir, []string{filepath.Join(dir, "plain", "bin", "python")}, nil, `python does not exist: a model's field "python" names the directory`},
		{"unknown absolute", dir, []string{"/no/such/program"}, nil, "does not exist"},
		{"not executable", dir, []string{"plain"}, nil, "chmod +x"},
		{"a directory", dir, []string{dir}, nil, "is a directory"},
		{"a device", dir, []string{"/dev/null"}, nil, "not a regular file"},
		{"no program", dir, []string{"garbage"}, nil, "begins with #!"},
		{"no interpreter", dir, []string{"lost"}, nil, "interpreter"},
		{"no directory", filepath.Join(dir, "gone"), []string{"/bin/sh"}, nil, "was the model's directory moved or deleted"},
		{"a file for a directory", filepath.Join(dir, "plain"), []string{"/bin/sh"}, nil, "not a directory"},
		{"a relative directory", "models", []string{"/bin/sh"}, nil, "absolute path"},
		{"zero byte", dir, []string{"/bin/sh", "a\x00b"}, nil, "zero byte"},
		{"bad environment", dir, []string{"/bin/sh"}, []string{"NOVALUE"}, "NAME=value"},
		{"large", dir, []string{"/bin/sh", strings.Repeat("x", 1<<20)}, nil, "too large"},
		{"huge", dir, []string{"/bin/sh", strings.Repeat("x", 8<<20)}, nil, "expected at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.Start(t.Context(), containers.Launch{Dir: tc.dir, Command: tc.command, Env: tc.env})
			var launchError *containers.LaunchError
			if !errors.As(err, &launchError) || !launchError.Permanent() || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v: expected a permanent one with %q", err, tc.want)
			}
		})
	}
	if in := start(t, r, shell(t, "exit 5", nil)); waitExit(t, in).Code != 5 {
		t.Error("the reaper no longer starts processes")
	}
}

func TestStartCancelled(t *testing.T) {
	r := newRuntime(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Start(ctx, launch(1, "sleep", newOutput())); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected %v", err, context.Canceled)
	}
	// Cancelled while the reaper is stopped and does not answer: nothing may run when Start returns.
	out := newOutput()
	in := start(t, r, launch(2, "sleep", out))
	reaper := reaperOf(t, r)
	if err := unix.Kill(reaper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := r.Start(ctx, launch(3, "sleep", newOutput()))
		result <- err
	}()
	cancel()
	if err := unix.Kill(reaper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected %v", err, context.Canceled)
	}
	if below := descendants(reaper, processes()); len(below) != 1 || below[0].pid != in.PID() {
		t.Errorf("below the reaper: %+v, expected process %d alone", below, in.PID())
	}
}

// Many at once, through one reaper, with strays to look for at each end.
func TestManyLaunches(t *testing.T) {
	r := newRuntime(t)
	const n = 30
	results := make(chan containers.Exit, n)
	for i := range n {
		go func() {
			in, err := r.Start(t.Context(), containers.Launch{
				Replica: uint64(i), Dir: "/", Command: []string{"/bin/sh", "-c", "sleep 1000 & exit " + string(rune('0'+i%10))},
			})
			if err != nil {
				results <- containers.Exit{Reason: err.Error()}
				return
			}
			<-in.Exited()
			results <- in.Exit()
		}()
	}
	counts := map[int]int{}
	for range n {
		exit := <-results
		if exit.Reason != "" || exit.Signal != 0 {
			t.Errorf("exit %+v", exit)
		}
		counts[exit.Code]++
	}
	for code := range 10 {
		if counts[code] != n/10 {
			t.Errorf("exit code %d seen %d times, expected %d", code, counts[code], n/10)
		}
	}
	noZombies(t, reaperOf(t, r))
}

func TestNewWithoutMaybeReaper(t *testing.T) {
	armed.Store(false)
	defer armed.Store(true)
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "MaybeReaper") {
		t.Errorf("error %v: expected it to name MaybeReaper", err)
	}
}

// When memory runs out the kernel ends a replica, with what it has started, before the gateway.
func TestWorkersGoFirstWhenMemoryRunsOut(t *testing.T) {
	own, err := oomAdj("self")
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t)
	out := newOutput()
	waitExit(t, start(t, r, shell(t, `sleep 0; cat /proc/self/oom_score_adj`, out)))
	if lines, want := out.all(), strconv.Itoa(min(oomMax, own+oomAbove)); len(lines) != 1 || lines[0] != want {
		t.Errorf("a worker's child has the OOM score adjustment %q: expected %s, above this process's %d", lines, want, own)
	}
	if reaper, err := oomAdj(strconv.Itoa(reaperOf(t, r))); err != nil || reaper != own {
		t.Errorf("the reaper has the adjustment %d, error %v: expected this process's %d", reaper, err, own)
	}
}

// A process of the same user can neither read the reaper's environment nor its memory.
func TestReaperIsConcealed(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), modeEnv+"=concealed reaper")
	if os.Geteuid() == 0 { // privileges would open everything
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if want := "environ: permission denied\nmem: permission denied\nmaps: permission denied\n"; err != nil || string(out) != want {
		t.Errorf("%q, error %v: expected %q", out, err, want)
	}
}

// actPeer tries to look into its own reaper.
func actPeer() {
	r, err := New(Config{})
	if err != nil {
		fatal(err)
	}
	if _, err := r.reaper(); err != nil {
		fatal(err)
	}
	for _, file := range []string{"environ", "mem", "maps"} {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(r.link.cmd.Process.Pid), file))
		if err == nil {
			_, err = f.Read(make([]byte, 1))
		}
		fmt.Printf("%s: %v\n", file, errors.Unwrap(err))
	}
	if err := r.Close(); err != nil {
		fatal(err)
	}
}
