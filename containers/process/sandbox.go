package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandbox is what isolates a launch: the part of a request that the launcher gets.
type sandbox struct {
	// Namespaces: user, mount, pid, IPC and, unless Network, network namespaces of its own.
	Namespaces bool `json:"namespaces,omitempty"`
	// Network: it may use the host's network.
	Network bool `json:"network,omitempty"`
	Strict  bool `json:"strict,omitempty"`
	// UID is the user of its own that the replica runs as; 0: the gateway's.
	UID int `json:"uid,omitempty"`
	// Privileged: it keeps the gateway's capabilities, because without them it could not reach its files.
	Privileged bool `json:"privileged,omitempty"`
	// Hidden are the absolute paths that the replica must not see. Reveal are those that it needs, wherever they are.
	Hidden [][]byte `json:"hidden,omitempty"`
	Reveal [][]byte `json:"reveal,omitempty"`
	// Writable are the directories that it may write to beside its temporary ones.
	Writable [][]byte `json:"writable,omitempty"`
	// Tmp is its TMPDIR.
	Tmp []byte `json:"tmp,omitempty"`
	// Control: it is a zygote, whose socket is its first descriptor after stderr.
	Control bool `json:"control,omitempty"`
	// Missing says which layers are left out, and why.
	Missing []string `json:"missing,omitempty"`

	// noHidepid says why /proc could not be mounted so that it hides processes. Only that of a zygote is.
	noHidepid error
}

// The layers of isolation, by the names that describe shows.
const (
	layerPrivs    = "no_new_privs"
	layerUser     = "own uid"
	layerCaps     = "no capabilities"
	layerNS       = "user, mount, pid and ipc namespaces"
	layerView     = "read-only view, private /tmp"
	layerNet      = "no network"
	layerLandlock = "landlock"
	layerSeccomp  = "seccomp"
	layerMemory   = "memory cgroup"
	// What only forks of a zygote have.
	layerProc   = "/proc hides other forks"
	layerDomain = "landlock domain of its own"
)

const (
	// launcherName is the launcher's argv[0] and its name in ps.
	launcherName = "xebec-init"
	// launcherFD is the launcher's end of its socket.
	launcherFD = 3
	// launcherTasks is how many threads the launcher may have. It is in the replica's cgroup, so they come on top of the
	// replica's limit.
	launcherTasks = 16
)

// defaultTasks stops a fork bomb before it hurts the host. A numerical library starts one thread per core for each of
// its pools.
const defaultTasks = 4096 //xebec:limit processes and threads of an isolated process without `limits.pids`

// verdict is a message of the launcher.
type verdict struct {
	// Step is where it failed; stepStarted and stepExited otherwise.
	Step  string `json:"step"`
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"`
	// Layers and Missing come with stepStarted, Status with stepExited: the wait status.
	Layers  []string `json:"layers,omitempty"`
	Missing []string `json:"missing,omitempty"`
	Status  uint32   `json:"status,omitempty"`
	// PID comes with stepExited of a process that a zygote has forked: its pid in the namespace.
	PID int `json:"pid,omitempty"`
}

const (
	stepStarted   = "started"   // the replica runs; the message carries its credentials, and so its pid
	stepExited    = "exited"    // the replica's first process has ended
	stepNamespace = "namespace" // the namespaces cannot be set up
	stepLayer     = "layer"     // a launch with IsolateStrict lacks a layer
	stepExec      = "exec"
	stepLost      = "lost" // the launcher was killed before it said a word; only the reaper says so
)

// runLauncher is the launcher's main. The launcher is this program again, started in the replica's namespaces. It sets
// up what the replica sees, gives up what the replica must not have, and starts it. With namespaces it stays as the
// first process of the pid namespace: its end is the end of everything in there. Without, the replica takes its place.
func runLauncher() error {
	runtime.LockOSThread()
	setName(launcherName)
	// Signals to everything below the reaper must not end it before the replica.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	ctl, err := unix.FcntlInt(launcherFD, unix.F_DUPFD_CLOEXEC, launcherFD+2) // a zygote's own socket has the next number
	if err != nil {
		return err
	}
	unix.CloseOnExec(launcherFD)
	var q request
	if err := readFrame(ctl, &q); err != nil {
		return err
	}
	s := q.Sandbox
	if s == nil {
		return errors.New("a launcher was started without a sandbox")
	}
	started := verdict{Step: stepStarted, Layers: []string{layerPrivs}, Missing: s.Missing}
	if s.Namespaces {
		if err := s.enter(); err != nil {
			return report(ctl, verdict{Step: stepNamespace, Error: err.Error()})
		}
		started.Layers = append(started.Layers, layerNS, layerView)
		if !s.Network {
			started.Layers = append(started.Layers, layerNet)
		}
		if s.Control {
			started.note(layerProc, "/proc shows it to other forks of its zygote (hidepid=ptraceable, since Linux 5.8)", s.noHidepid)
		}
	}
	s.restrict(&started)
	if s.Namespaces {
		return s.supervise(ctl, q, started)
	}
	s.drop(&started)
	s.spareOthers(&started)
	if s.Strict && len(started.Missing) > 0 {
		return report(ctl, verdict{Step: stepLayer, Error: started.Missing[0]})
	}
	if err := report(ctl, started); err != nil {
		return err
	}
	err = unix.Chdir(string(q.Dir))
	if err == nil {
		err = setLimits(0, q)
	}
	if err == nil && s.Control {
		err = unix.Dup3(launcherFD+1, launcherFD, 0)
		unix.CloseOnExec(launcherFD + 1)
	}
	if err == nil {
		err = unix.Exec(string(q.Path), toStrings(q.Argv), toStrings(q.Env))
	}
	return report(ctl, verdict{Step: stepExec, Errno: int(errnoOf(err))})
}

// supervise starts the replica, reports it, reaps what loses its parent, and returns when the replica has ended.
func (s *sandbox) supervise(ctl int, q request, started verdict) error {
	type child struct {
		pid int
		err error
	}
	forked := make(chan child)
	// The thread that forks has given up its capabilities, and lives as long as the replica (PDEATHSIG). The others keep
	// theirs, to report the replica's pid.
	go func() {
		runtime.LockOSThread()
		s.drop(&started)
		s.spareOthers(&started)
		if s.Strict && len(started.Missing) > 0 {
			forked <- child{err: errLayer}
			return
		}
		files, env := []uintptr{0, 1, 2}, toStrings(q.Env)
		if s.Control {
			files = append(files, launcherFD+1)
		} else {
			env = withCaches(env)
		}
		pid, err := syscall.ForkExec(string(q.Path), toStrings(q.Argv), &syscall.ProcAttr{
			Dir: string(q.Dir), Env: env, Files: files,
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
		forked <- child{pid, err}
		select {}
	}()
	c := <-forked
	if s.Control {
		_ = unix.Close(launcherFD + 1)
	}
	switch {
	case c.err == errLayer:
		return report(ctl, verdict{Step: stepLayer, Error: started.Missing[0]})
	case c.err != nil:
		return report(ctl, verdict{Step: stepExec, Errno: int(errnoOf(c.err))})
	}
	// The kernel counts the processes of a user for each user namespace (since Linux 5.14), so this bounds the replica. It
	// does not bind root.
	err := unix.Prlimit(c.pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: defaultTasks, Max: defaultTasks}, nil)
	if err == nil {
		err = setLimits(c.pid, q)
	}
	if err != nil {
		return report(ctl, verdict{Step: "limits of a process", Errno: int(errnoOf(err))})
	}
	if err := report(ctl, started, c.pid); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// The pipes of the output end with the replica.
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			return err
		}
	}
	go func() { // the reaper is gone: so is everything here
		_, _ = unix.Read(ctl, make([]byte, 1))
		os.Exit(1)
	}()
	return s.reapInside(ctl, c.pid)
}

// reapInside waits for the processes of the pid namespace until the first one has ended. What a zygote has forked
// outlives it: then it waits for all, and reports each.
func (s *sandbox) reapInside(ctl, first int) error {
	for {
		pid, err := peekDead()
		if err == unix.ECHILD {
			return nil
		}
		if err != nil {
			return err
		}
		if s.Control {
			_ = unix.Kill(-pid, unix.SIGKILL) // the rest of its group, while the number is taken
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			return err
		}
		v := verdict{Step: stepExited, Status: uint32(status)}
		switch {
		case pid == first && !s.Control:
			return report(ctl, v)
		case pid == first:
			err = report(ctl, v)
		case s.Control:
			v.PID = pid
			err = report(ctl, v)
		}
		if err != nil {
			return err
		}
	}
}

// caches are the variables by which libraries are told where to keep what they compile. Their defaults lie in the home
// directory, which is read-only.
var caches = []string{
	"MPLCONFIGDIR=/tmp/matplotlib", "NUMBA_CACHE_DIR=/tmp/numba", "TRITON_CACHE_DIR=/tmp/triton", "TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor", "CUDA_CACHE_PATH=/tmp/cuda",
}

// withCaches adds the caches that the launch does not set itself. It is only for a replica with a /tmp of its own: in the
// host's, another user could have prepared them.
func withCaches(env []string) []string {
	for _, entry := range caches {
		if name, _, _ := strings.Cut(entry, "="); lookupEnv(env, name) == "" {
			env = append(env, entry)
		}
	}
	return env
}

var errLayer = errors.New("a layer is missing")

// setLimits sets the limits of one process; 0 is the calling one.
func setLimits(pid int, q request) error {
	for _, l := range []struct {
		resource int
		value    uint64
	}{{unix.RLIMIT_NOFILE, q.OpenFiles}, {unix.RLIMIT_DATA, q.DataBytes}} {
		if l.value == 0 {
			continue
		}
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}, nil); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the launcher's namespaces usable: ids, the loopback interface, what is mounted.
func (s *sandbox) enter() error {
	if os.Geteuid() != 0 { // else the reaper has mapped them
		if err := mapIDs(); err != nil {
			return fmt.Errorf("map the user in a new user namespace: %w", err)
		}
	}
	if !s.Network {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("start the loopback interface of a new network namespace: %w", err)
		}
	}
	return s.mountView()
}

// mapIDs maps the user and group of the process's creator to themselves, which is all that a user without privileges may
// map.
func mapIDs() error {
	uid, gid := os.Getenv(envUID), os.Getenv(envGID)
	for _, f := range []struct{ name, text string }{
		{"setgroups", "deny"}, {"uid_map", uid + " " + uid + " 1"}, {"gid_map", gid + " " + gid + " 1"},
	} {
		if err := os.WriteFile(filepath.Join("/proc/self", f.name), []byte(f.text), 0); err != nil {
			return err
		}
	}
	return nil
}

// envUID and envGID tell the launcher the ids of its creator, which it cannot see in its user namespace.
const envUID, envGID = "XEBEC_UID", "XEBEC_GID"

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// dropCapabilities gives up every capability of the calling thread, for good: it also empties the bounding set, so that
// not even user 0 has any after exec. With uid it becomes that user first.
func dropCapabilities(uid int) error {
	for c := uintptr(0); c <= lastCap; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL && err != unix.EPERM {
			return err
		}
	}
	if uid != 0 {
		// These change the calling thread alone, from which the replica is forked.
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			return e
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			return e
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			return e
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

// lastCap is above the highest capability that any kernel has; it refuses those that it does not know.
const lastCap = 63

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	errors.As(err, &errno)
	return errno
}

// readFrame reads a frame of the reaper's protocol from a blocking descriptor.
func readFrame(fd int, into any) error {
	body, with, err := receiveFrame(fd)
	if err != nil {
		return err
	}
	closeAll(with.fds) // none belong to it
	return json.Unmarshal(body, into)
}

// report sends a verdict to the reaper. With a pid it carries the credentials of that process, which the kernel translates
// to the pid that the reaper knows it by.
func report(fd int, v verdict, pid ...int) error {
	var rights []byte
	if len(pid) > 0 {
		rights = unix.UnixCredentials(&unix.Ucred{Pid: int32(pid[0]), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
	}
	return sendFrame(fd, v, rights...)
}

// sendFrame writes a frame of the reaper's protocol to a blocking socket, with a control message.
func sendFrame(fd int, m any, rights ...byte) error {
	frame, err := appendFrame(nil, m)
	if err != nil {
		return err
	}
	for len(frame) > 0 {
		n, err := unix.SendmsgN(fd, frame, rights, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		frame, rights = frame[n:], nil
	}
	return nil
}
