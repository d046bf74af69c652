package apptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// siblingProgram is a model that tries to look into, trace, signal and slow another replica of itself. A query names the attempt and
// the pids of both replicas, as they see them. A result that would be empty counts as denied.
const siblingProgram = `
import ctypes, os, resource, signal, socket
import xebec

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.process_vm_readv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
ADDRESS = ctypes.cast(libc.getpid, ctypes.c_void_p).value  # the same in both, which were forked from one process

def check(result):
    if result is None or result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def read(name):
    def attempt(pid):
        with open(f"/proc/{pid}/{name}", "rb") as f:
            if not f.read(1):
                raise OSError("it is empty")
    return attempt

def memory(pid):
    fd = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    try:
        os.pread(fd, 1, ADDRESS)
    finally:
        os.close(fd)

def trace(pid):
    check(libc.ptrace(16, pid, None, None))
    os.waitpid(pid, 0x40000000)
    check(libc.ptrace(17, pid, None, None))

class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def vm(pid):
    buffer = ctypes.create_string_buffer(1)
    here, there = Iovec(ctypes.addressof(buffer), 1), Iovec(ADDRESS, 1)
    check(libc.process_vm_readv(pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0))

def descriptor(pid):
    fd = os.pidfd_open(pid)
    try:
        os.close(check(libc.syscall(438, fd, 1, 0)))
    finally:
        os.close(fd)

def pidfd_signal(pid):
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGCONT)
    finally:
        os.close(fd)

def name(pid):
    return f"\0xebec-sibling-{pid}"

listener = socket.socket(socket.AF_UNIX)
listener.bind(name(os.getpid()))
listener.listen(64)

def connect(pid):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(name(pid))

def listed(pid):
    if str(pid) not in os.listdir("/proc"):
        raise OSError("it is not there")

def limit(pid):
    # the same again: what ends the other one would end the attempts that follow
    resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))

def user_priority(pid):
    try:
        os.setpriority(os.PRIO_USER, 2_000_000_000, 0)  # not its own user: without isolation that is everything on the machine
    except ProcessLookupError:
        pass  # the kernel has looked for the processes of that user

class Attributes(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
                ("priority", ctypes.c_uint32), ("times", ctypes.c_uint64 * 3)]

def attributes(pid):
    a = Attributes(size=48, policy=0, nice=os.getpriority(os.PRIO_PROCESS, pid))
    check(libc.syscall(314, pid, ctypes.byref(a), 0))

attempts = {
    "prlimit": limit, "setpriority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
    "setpriority of a user": user_priority,
    "ioprio_set": lambda pid: check(libc.syscall(251, 1, pid, 2 << 13 | 4)), "sched_setattr": attributes,
    "sched_setscheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
    "sched_setparam": lambda pid: os.sched_setparam(pid, os.sched_param(0)),
    "environ": read("environ"), "maps": read("maps"), "mem": memory, "map_files": lambda pid: os.listdir(f"/proc/{pid}/map_files")[0],
    "fd": lambda pid: os.listdir(f"/proc/{pid}/fd")[0], "cwd": lambda pid: os.readlink(f"/proc/{pid}/cwd"), "root": lambda pid: os.listdir(f"/proc/{pid}/root/"),
    "ptrace": trace, "process_vm_readv": vm, "pidfd_getfd": descriptor,
    "kill": lambda pid: os.kill(pid, 0), "SIGCONT": lambda pid: os.kill(pid, signal.SIGCONT), "pidfd_send_signal": pidfd_signal, "abstract socket": connect,
    "cmdline": read("cmdline"), "listed": listed,
}

def attempt(query):
    what, first, second = query.decode().split(",")
    try:
        attempts[what](int(second) if os.getpid() == int(first) else int(first))
    except OSError as e:
        return f"denied: {e}".encode()
    return b"done"

xebec.serve(lambda batch: [attempt(query) for query in batch])
`

// siblingAttempts says for each attempt of siblingProgram which layer denies it.
var siblingAttempts = map[string]string{
	"environ": aDomain, "maps": aDomain, "mem": aDomain, "map_files": aDomain, "fd": aDomain, "cwd": aDomain, "root": aDomain,
	"ptrace": aDomain, "process_vm_readv": aDomain, "pidfd_getfd": aDomain,
	"kill": theSignals, "SIGCONT": theSignals, "pidfd_send_signal": theSignals, "abstract socket": theSignals,
	"cmdline": aProc, "listed": aProc,
	"prlimit": theFilter, "setpriority": theFilter, "setpriority of a user": theFilter, "ioprio_set": theFilter, "sched_setattr": theFilter,
	"sched_setscheduler": theFilter, "sched_setparam": theFilter,
}

// The layers of a fork as describe names them. The scope of signals and the filter for other processes have no name of their own: describe
// says where they are missing.
const (
	aDomain    = "landlock domain of its own"
	theSignals = "can signal it"
	aProc      = "/proc hides other forks"
	theFilter  = "can lower priorities"

	keepsCapabilities = "It keeps capabilities"
)

// Two replicas that were forked from one zygote can neither see, read, trace, signal nor slow each other, under a gateway of root and under
// one of an ordinary user. Without isolation each of the attempts succeeds, so that they are known to be right. The gateway still ends
// the replicas.
func TestForksOfAZygoteAreIsolatedFromEachOther(t *testing.T) {
	t.Parallel()
	users := []string{"the test's user"}
	if os.Geteuid() == 0 {
		users = append(users, "nobody")
	}
	for _, user := range users {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			g := siblings(t, user == "nobody")
			if g == nil {
				return
			}
			for _, name := range []string{"apart", "open"} {
				m := g.awaitModel(name, "two replicas serve", func(m api.ModelStatus) bool {
					return len(m.Replicas) == 2 && !slices.ContainsFunc(m.Replicas, func(r api.ReplicaStatus) bool { return r.State != api.ReplicaReady })
				})
				var pids []string
				for _, r := range m.Replicas {
					pids = append(pids, innermostPID(t, r.PID))
				}
				layers, lacks := strings.Join(m.Replicas[0].Isolation, "; "), strings.Join(m.Replicas[0].NotIsolated, " ")
				for what, layer := range siblingAttempts {
					a := g.raw(name, what+","+strings.Join(pids, ","))
					switch {
					case name == "open" && mayNotTrace(what, user):
					case name == "open":
						if a.text() != "done" {
							t.Errorf("%s without isolation: %v: expected done", what, a)
						}
					case denies(layers, lacks, layer):
						if !a.predicted() || !strings.HasPrefix(a.text(), "denied: ") {
							t.Errorf("%s: %v: expected it to be denied (%s)", what, a, layers)
						}
					case !saysWhyNot(lacks, layer):
						t.Errorf("%s: no layer denies it (%s), and describe does not say why: %s", what, layers, lacks)
					default:
						t.Logf("%s: this machine lacks a layer: %s", what, lacks)
					}
				}
				if name == "apart" {
					g.describes(name, "forked from a zygote")
				}
			}
		})
	}
}

// denies reports whether a fork has the layer that denies an attempt.
func denies(layers, lacks, layer string) bool {
	if layer == theFilter {
		return strings.Contains(layers, "seccomp") && !strings.Contains(lacks, theFilter)
	}
	if layer == theSignals {
		return strings.Contains(layers, aDomain) && !strings.Contains(lacks, theSignals)
	}
	return strings.Contains(layers, layer) && (layer != aDomain || !strings.Contains(lacks, keepsCapabilities))
}

// saysWhyNot reports whether describe says that a fork lacks such a layer.
func saysWhyNot(lacks, layer string) bool {
	reasons := []string{"no Landlock domain of its own"}
	switch layer {
	case aDomain:
		reasons = append(reasons, keepsCapabilities)
	case theSignals:
		reasons = append(reasons, theSignals)
	case theFilter:
		reasons = append(reasons, "No filter restricts its system calls", theFilter)
	case aProc:
		reasons = append(reasons, "hidepid", "no namespaces of its own")
	}
	return slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(lacks, r) })
}

// mayNotTrace reports whether Yama forbids an attempt that is made without isolation.
func mayNotTrace(what, user string) bool {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	scope := strings.TrimSpace(string(b))
	if err != nil || scope == "0" || scope != "3" && os.Geteuid() == 0 && user != "nobody" {
		return false
	}
	return slices.Contains([]string{"mem", "ptrace", "process_vm_readv", "pidfd_getfd"}, what)
}

// siblings starts a gateway with two replicas of siblingProgram, which are forked, and two more without isolation. It returns nil if
// the user has no Python.
func siblings(t *testing.T, nobody bool) *gateway {
	place, err := os.MkdirTemp("", "xebec-apptest-") // where that user may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	dir, models := filepath.Join(place, "t"), filepath.Join(place, "models") // zygotes have a TMPDIR of their own, which would cover models
	for _, err := range []error{os.Mkdir(dir, 0o700), os.Mkdir(models, 0o755), os.Chmod(place, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(programs.xebec)
	interpreter, env := python(t), ""
	if nobody {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Path = filepath.Join(place, "xebec")
		binding := filepath.Join(place, "binding")
		env = fmt.Sprintf("PYTHONPATH: %q", binding)
		for _, err := range []error{
			os.Chown(dir, 65534, 65534), os.Link(programs.xebec, cmd.Path),
			os.CopyFS(binding, os.DirFS(filepath.Join(programs.repo, "worker/bindings/python/src"))),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		find := exec.Command("/bin/sh", "-c", "for p in /usr/bin/python3 /usr/local/bin/python3; do $p -c 'import sys, xebec; print(sys.executable)' && exit 0; done; exit 1")
		find.Dir, find.Env, find.SysProcAttr = place, []string{"PYTHONPATH=" + binding}, &syscall.SysProcAttr{Credential: cmd.SysProcAttr.Credential}
		out, err := find.CombinedOutput()
		if err != nil {
			t.Logf("no Python that an ordinary user may run: only the test's own user is tested (%s)", out)
			return nil
		}
		interpreter = strings.TrimSpace(string(out))
	}
	model := func(name string) string {
		m := pythonModel(t, models, name, siblingProgram, "preload: [json]", "replicas: {min: 2, max: 2}", uncached)
		return strings.Replace(m, "run: {", "run: {env: {"+env+"}, ", 1) + function(name, name, "slo: 60s")
	}
	writeFile(t, models, "xebec.yaml", model("apart")+plain(model("open")))
	cmd.Args = []string{"xebec", "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--python", interpreter, "--config", filepath.Join(models, "xebec.yaml")}
	g := launchCommand(t, dir, cmd)
	g.ready()
	return g
}

// innermostPID returns the number of a process in its own pid namespace.
func innermostPID(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "NSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	if len(numbers) == 0 {
		t.Fatalf("process %d: no NSpid in %s", pid, b)
	}
	return numbers[len(numbers)-1]
}
