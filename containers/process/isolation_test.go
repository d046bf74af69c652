package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// A spy tries what a model may not do. spied says what each attempt ends with: "denied", or "done" where it is allowed.
var spied = map[string]string{
	"read a hidden file": "denied", "read a hidden file by a link": "denied", "read the store": "denied",
	"write beside itself": "denied", "write to /etc": "denied", "write to /tmp": "done", "write to /dev/shm": "done", "write to TMPDIR": "done",
	"read its own directory": "done",
	"environ of the gateway": "denied", "mem of the gateway": "denied", "fd of the gateway": "denied", "map_files of the gateway": "denied",
	"environ of the reaper": "denied", "environ of another replica": "denied", "mem of another replica": "denied", "map_files of another replica": "denied",
	"trace the gateway": "denied", "trace another replica": "denied", "trace its parent": "denied", "read the gateway's memory": "denied",
	"signal the gateway": "denied", "signal another replica": "denied",
	"see other processes": "denied", "gain capabilities": "denied", "become root": "denied",
	"mount": "denied", "unshare": "denied", "clone a user namespace": "denied", "io_uring": "denied", "bpf": "denied", "keyctl": "denied", "add_key": "denied", "perf_event_open": "denied", "userfaultfd": "denied",
	"write a kernel parameter": "denied", "connect to the gateway": "denied", "connect to an abstract socket": "denied", "use its own loopback interface": "done",
}

// The attempts end as they should under a gateway that is root's, and under one that has no privileges. A replica of
// root's gateway has a user of its own. Neither the spy's last act, a signal to every process it can reach, nor its
// daemon without an environment outlives it or hurts anyone else.
func TestSpy(t *testing.T) {
	for _, user := range []string{"root", "nobody"} {
		t.Run(user, func(t *testing.T) {
			if os.Geteuid() != 0 && user == "root" {
				t.Log("this test does not run as root: only the gateway of an ordinary user is tested")
				return
			}
			layers := spyUnder(t, user, true)
			wanted := []string{layerPrivs, layerNS, layerView, layerNet, layerSeccomp, layerCaps}
			for _, layer := range wanted {
				if !slices.Contains(layers, layer) {
					t.Errorf("layers %q: expected %q", layers, layer)
				}
			}
			if own := slices.ContainsFunc(layers, func(l string) bool { return strings.HasPrefix(l, layerUser) }); own != (user == "root") {
				t.Errorf("layers %q: expected a user of its own only under root", layers)
			}
		})
	}
}

// Where the machine gives no namespaces, Landlock and the filter of system calls still keep the gateway's files, memory
// and ports closed. The replica sees other processes, and cannot signal them. It may not write to /tmp here, because
// the gateway's data lies in there.
func TestSpyWithoutNamespaces(t *testing.T) {
	layers := spyUnder(t, "nobody", false)
	for _, layer := range []string{layerPrivs, layerSeccomp, layerCaps, "no TCP"} {
		if !slices.Contains(layers, layer) {
			t.Errorf("layers %q: expected %q", layers, layer)
		}
	}
	if slices.Contains(layers, layerNS) {
		t.Errorf("layers %q: expected no namespaces", layers)
	}
}

// withoutNamespaces is what differs then from spied. The scope of signals is that of Landlock.
var withoutNamespaces = map[string]string{
	"see other processes": "done", "write to /tmp": "denied", "write to TMPDIR": "denied", "use its own loopback interface": "denied",
}

// spyUnder runs a gateway with a spy and returns the spy's layers.
func spyUnder(t *testing.T, user string, namespaces bool) []string {
	dir, err := os.MkdirTemp("", "xebec-spy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test") // the original lies where others may not look
	b, err := os.ReadFile(self())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	token := filepath.Base(dir)
	cmd := exec.Command(program)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), modeEnv+"=spied gateway", "TMPDIR="+dir, "XEBEC_TEST_SPY="+token)
	if !namespaces {
		cmd.Env = append(cmd.Env, "XEBEC_TEST_SPY_CALLS=filtered")
	}
	if user == "nobody" && os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	var layers []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		name, result, ok := strings.Cut(line, ": ")
		switch {
		case name == "layer":
			layers = append(layers, result)
		case name == "missing":
			t.Logf("missing: %s", result)
		case !ok:
			t.Errorf("output %q", line)
		default:
			word, detail, _ := strings.Cut(result, " ")
			got[name] = word
			want := spied[name]
			if other := withoutNamespaces[name]; other != "" && !namespaces {
				want = other
			}
			if word != want {
				t.Errorf("%s: %s (%s), expected %s", name, word, detail, want)
			}
		}
	}
	for name := range spied {
		if got[name] == "" {
			t.Errorf("%s: not tried", name)
		}
	}
	return layers
}

// actSpiedGateway is a gateway with a spy and another replica. It fails if the other one is hurt, or the spy's daemon
// survives the spy.
func actSpiedGateway() {
	if os.Getenv("XEBEC_TEST_SPY_CALLS") != "" { // as a container engine does: no new namespaces
		if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), filterCalls()); err != nil {
			fatal(err)
		}
	}
	if err := Conceal(); err != nil {
		fatal(err)
	}
	dir, err := os.MkdirTemp("", "gateway-")
	if err != nil {
		fatal(err)
	}
	defer os.RemoveAll(dir)
	data, model, secret := filepath.Join(dir, "data"), filepath.Join(dir, "model"), filepath.Join(dir, "token")
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Mkdir(data, 0o700), os.Mkdir(model, 0o755), os.WriteFile(secret, []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(data, "state.db"), []byte("secret"), 0o600), os.WriteFile(filepath.Join(model, "weights"), []byte("weights"), 0o644),
		os.Symlink(secret, filepath.Join(model, "link")),
	} {
		if err != nil {
			fatal(err)
		}
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fatal(err)
	}
	defer admin.Close()
	abstract := fmt.Sprintf("@xebec-spy-%d", os.Getpid())
	socket, err := net.Listen("unix", abstract)
	if err != nil {
		fatal(err)
	}
	defer socket.Close()
	r, err := New(Config{Hidden: []string{data, secret}})
	if err != nil {
		fatal(err)
	}
	isolated := func(mode string, out io.Writer, env ...string) containers.Instance {
		in, err := r.Start(context.Background(), containers.Launch{
			Replica: 1, Dir: model, Command: []string{self()}, Env: append(env, modeEnv+"="+mode), Stdout: out, Stderr: out,
		})
		if err != nil {
			fatal(err)
		}
		return in
	}
	peer := isolated("sleep", io.Discard)
	token := os.Getenv("XEBEC_TEST_SPY")
	spy := isolated("spy", os.Stdout, "SPY_SECRET="+secret, "SPY_STORE="+filepath.Join(data, "state.db"), "SPY_GATEWAY="+strconv.Itoa(os.Getpid()),
		"SPY_REAPER="+strconv.Itoa(r.link.cmd.Process.Pid), "SPY_PEER="+strconv.Itoa(peer.PID()), "SPY_ADMIN="+admin.Addr().String(), "SPY_ABSTRACT="+abstract, "SPY_TOKEN="+token)
	<-spy.Exited()
	if exit := spy.Exit(); exit.Code != 0 {
		fatal(fmt.Errorf("the spy: %v", exit))
	}
	layers, missing := spy.(containers.IsolationReporter).Isolation()
	for _, l := range layers {
		fmt.Println("layer:", l)
	}
	for _, m := range missing {
		fmt.Println("missing:", m)
	}
	for _, st := range processes() {
		if b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.pid), "cmdline")); strings.HasSuffix(string(b), "\x00daemon-"+token+"\x00") {
			fatal(fmt.Errorf("the spy's daemon lives: process %d", st.pid))
		}
	}
	select {
	case <-peer.Exited():
		fatal(fmt.Errorf("the other replica: %v", peer.Exit()))
	default:
	}
	if err := r.Close(); err != nil {
		fatal(err)
	}
}

// actSpy tries everything.
func actSpy() {
	env := os.Getenv
	number := func(name string) int { n, _ := strconv.Atoi(env(name)); return n }
	try := func(name string, err error) {
		if err == nil {
			fmt.Printf("%s: done\n", name)
		} else {
			fmt.Printf("%s: denied %v\n", name, err)
		}
	}
	read := func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := f.Read(make([]byte, 1))
		if err == nil && n == 0 {
			err = io.EOF
		}
		return err
	}
	try("read a hidden file", read(env("SPY_SECRET")))
	try("read a hidden file by a link", read("link"))
	try("read the store", read(env("SPY_STORE")))
	try("read its own directory", read("weights"))
	try("write beside itself", os.WriteFile("x", nil, 0o600))
	try("write to /etc", os.WriteFile("/etc/xebec-spy", nil, 0o600))
	try("write to /tmp", os.WriteFile("/tmp/x", nil, 0o600))
	try("write to /dev/shm", os.WriteFile("/dev/shm/x", nil, 0o600))
	_ = os.Remove("/dev/shm/x") // without namespaces it is the host's
	try("write to TMPDIR", os.WriteFile(filepath.Join(os.TempDir(), "x"), nil, 0o600))
	try("write a kernel parameter", os.WriteFile("/proc/sys/kernel/core_pattern", []byte("core"), 0o600))
	list := func(path string) error {
		names, err := os.ReadDir(path)
		if err == nil && len(names) == 0 {
			err = errors.New("nothing there")
		}
		return err
	}
	for who, pid := range map[string]int{"the gateway": number("SPY_GATEWAY"), "another replica": number("SPY_PEER"), "the reaper": number("SPY_REAPER")} {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		try("environ of "+who, read(filepath.Join(proc, "environ")))
		if who == "the reaper" {
			continue
		}
		f, err := os.OpenFile(filepath.Join(proc, "mem"), os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		try("mem of "+who, err)
		try("map_files of "+who, list(filepath.Join(proc, "map_files")))
		try("trace "+who, unix.PtraceAttach(pid))
		try("signal "+who, unix.Kill(pid, 0))
	}
	gateway := number("SPY_GATEWAY")
	try("fd of the gateway", list(filepath.Join("/proc", strconv.Itoa(gateway), "fd")))
	try("trace its parent", unix.PtraceAttach(os.Getppid()))
	buf := make([]byte, 1)
	_, err := unix.ProcessVMReadv(gateway, []unix.Iovec{{Base: &buf[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	try("read the gateway's memory", err)
	others := errors.New("none but its own")
	for _, st := range processes() {
		if st.pid != 1 && st.pid != os.Getpid() {
			others = nil
		}
	}
	try("see other processes", others)
	status, _ := os.ReadFile("/proc/self/status")
	err = nil
	if strings.Contains(string(status), "CapEff:\t0000000000000000") && strings.Contains(string(status), "CapPrm:\t0000000000000000") {
		err = errors.New("it has none")
	}
	try("gain capabilities", err)
	if err = unix.Setresuid(0, 0, 0); os.Getuid() == 0 && err == nil {
		err = nil
	}
	try("become root", err)
	try("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	try("unshare", unix.Unshare(unix.CLONE_NEWUTS))
	_, err = syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
	try("clone a user namespace", err)
	for name, call := range map[string]uintptr{
		"io_uring": unix.SYS_IO_URING_SETUP, "bpf": unix.SYS_BPF, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD,
	} {
		err = nil // another error than EPERM comes from the call itself
		if _, _, errno := unix.Syscall6(call, 0, 0, 0, 0, 0, 0); errno == unix.EPERM {
			err = errno
		}
		try(name, err)
	}
	connect := func(network, address string) error {
		c, err := net.Dial(network, address)
		if err == nil {
			c.Close()
		}
		return err
	}
	try("connect to the gateway", connect("tcp", env("SPY_ADMIN")))
	try("connect to an abstract socket", connect("unix", env("SPY_ABSTRACT")))
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = connect("tcp", own.Addr().String())
	}
	try("use its own loopback interface", err)
	// A daemon in a session of its own, whose parent has ended and whose environment says nothing.
	forker := exec.Command("/bin/sh", "-c", `setsid "$0" daemon-"$1" <&- >&- 2>&- &`, "/proc/self/exe", env("SPY_TOKEN"))
	forker.Args[3] = self()
	forker.Env = []string{modeEnv + "=stubborn"}
	if err := forker.Run(); err != nil {
		fatal(err)
	}
	_ = unix.Kill(-1, unix.SIGUSR1)
}

// The filters answer what they should for each call and architecture: evaluated as the kernel would.
func TestFilterProgram(t *testing.T) {
	all, err := filterProgram()
	if err != nil {
		t.Fatal(err)
	}
	others, err := assemble([]seccomp.SyscallGroup{{NamesWithCondtions: ofOthers, Action: notPermitted}})
	if err != nil {
		t.Fatal(err)
	}
	var vms []*bpf.VM
	for _, program := range [][]unix.SockFilter{all, others} {
		raw := make([]bpf.Instruction, len(program))
		for i, f := range program {
			raw[i] = bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble()
		}
		vm, err := bpf.NewVM(raw)
		if err != nil {
			t.Fatal(err)
		}
		vms = append(vms, vm)
	}
	const allow = unix.SECCOMP_RET_ALLOW
	args := func(a ...uint64) (all [3]uint64) {
		copy(all[:], a)
		return all
	}
	for _, tc := range []struct {
		name string
		call uint32
		arch uint32
		args [3]uint64
		want seccomp.Action
	}{
		{"read", unix.SYS_READ, unix.AUDIT_ARCH_X86_64, args(), allow},
		{"a thread", unix.SYS_CLONE, unix.AUDIT_ARCH_X86_64, args(unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND), allow},
		{"a user namespace", unix.SYS_CLONE, unix.AUDIT_ARCH_X86_64, args(unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)), notPermitted},
		{"a time namespace", unix.SYS_CLONE, unix.AUDIT_ARCH_X86_64, args(unix.CLONE_NEWTIME), notPermitted},
		{"clone3", unix.SYS_CLONE3, unix.AUDIT_ARCH_X86_64, args(), noSuchCall},
		{"ptrace", unix.SYS_PTRACE, unix.AUDIT_ARCH_X86_64, args(), notPermitted},
		{"bpf", unix.SYS_BPF, unix.AUDIT_ARCH_X86_64, args(), notPermitted},
		{"its own limit", unix.SYS_PRLIMIT64, unix.AUDIT_ARCH_X86_64, args(0, unix.RLIMIT_NOFILE, 0x7000), allow},
		{"read another's limit", unix.SYS_PRLIMIT64, unix.AUDIT_ARCH_X86_64, args(77, unix.RLIMIT_NOFILE, 0), allow},
		{"another's limit", unix.SYS_PRLIMIT64, unix.AUDIT_ARCH_X86_64, args(77, unix.RLIMIT_NOFILE, 0x7000), notPermitted},
		{"another's limit, at an address whose low half is zero", unix.SYS_PRLIMIT64, unix.AUDIT_ARCH_X86_64, args(77, unix.RLIMIT_NOFILE, 1<<32), notPermitted},
		{"its own priority", unix.SYS_SETPRIORITY, unix.AUDIT_ARCH_X86_64, args(unix.PRIO_PROCESS, 0, 5), allow},
		{"another's priority", unix.SYS_SETPRIORITY, unix.AUDIT_ARCH_X86_64, args(unix.PRIO_PROCESS, 77, 5), notPermitted},
		{"a group's priority", unix.SYS_SETPRIORITY, unix.AUDIT_ARCH_X86_64, args(unix.PRIO_PGRP, 0, 5), notPermitted},
		{"a user's priority", unix.SYS_SETPRIORITY, unix.AUDIT_ARCH_X86_64, args(unix.PRIO_USER, 0, 5), notPermitted},
		{"a user's priority, with more bits than the kernel reads", unix.SYS_SETPRIORITY, unix.AUDIT_ARCH_X86_64, args(1<<32|unix.PRIO_USER, 0, 5), notPermitted},
		{"its own I/O priority", unix.SYS_IOPRIO_SET, unix.AUDIT_ARCH_X86_64, args(ioprioProcess, 0, 3<<13), allow},
		{"another's I/O priority", unix.SYS_IOPRIO_SET, unix.AUDIT_ARCH_X86_64, args(ioprioProcess, 77, 3<<13), notPermitted},
		{"a user's I/O priority", unix.SYS_IOPRIO_SET, unix.AUDIT_ARCH_X86_64, args(3, 0, 3<<13), notPermitted},
		{"its own policy", unix.SYS_SCHED_SETSCHEDULER, unix.AUDIT_ARCH_X86_64, args(0, 5, 0x7000), allow},
		{"another's policy", unix.SYS_SCHED_SETSCHEDULER, unix.AUDIT_ARCH_X86_64, args(77, 5, 0x7000), notPermitted},
		{"another's parameters", unix.SYS_SCHED_SETPARAM, unix.AUDIT_ARCH_X86_64, args(77, 0x7000), notPermitted},
		{"another's attributes", unix.SYS_SCHED_SETATTR, unix.AUDIT_ARCH_X86_64, args(77, 0x7000), notPermitted},
		{"a thread's processors", unix.SYS_SCHED_SETAFFINITY, unix.AUDIT_ARCH_X86_64, args(77, 8, 0x7000), allow},
		{"another architecture's", unix.SYS_READ, unix.AUDIT_ARCH_I386, args(), noSuchCall},
	} {
		data := make([]byte, 64) // struct seccomp_data; the machine of package bpf loads words in network order
		binary.BigEndian.PutUint32(data, tc.call)
		binary.BigEndian.PutUint32(data[4:], tc.arch)
		for i, a := range tc.args {
			binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
		}
		got := seccomp.Action(allow)
		for _, vm := range vms { // the kernel takes the strictest answer
			one, err := vm.Run(data)
			if err != nil {
				t.Fatal(err)
			}
			if one != allow {
				got = seccomp.Action(one)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %#x: expected %#x", tc.name, uint32(got), uint32(tc.want))
		}
	}
}

// A launch that needs every layer is refused where one is missing, with its name and what to do. It is not forked from
// a zygote, whose forks lack some.
func TestStrict(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	l := launch(1, "status", out)
	l.Isolation, l.Preload = containers.Isolation{Level: containers.IsolateStrict}, []string{"json"}
	in, err := r.Start(t.Context(), l)
	var refused *containers.LaunchError
	switch {
	case errors.As(err, &refused): // this program lies where a user of its own cannot read it, or the machine lacks something
		if !strings.Contains(err.Error(), "run.isolation is strict") || !strings.HasSuffix(err.Error(), ".") {
			t.Errorf("error %v: expected it to say what is missing", err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		if _, missing := in.(containers.IsolationReporter).Isolation(); len(missing) > 0 {
			t.Errorf("a strict launch lacks %q", missing)
		}
		waitExit(t, in)
	}
}

// The host's network is refused while it would open the way around the isolation.
func TestNoHostNetwork(t *testing.T) {
	r, err := New(Config{NoHostNetwork: "set a token"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := launch(1, "status", newOutput())
	l.Isolation = containers.Isolation{Network: true}
	var refused *containers.LaunchError
	if _, err := r.Start(t.Context(), l); !errors.As(err, &refused) || err.Error() != "run.network: set a token" {
		t.Errorf("error %v: expected a refusal", err)
	}
}

// An isolated replica is like a plain one to its owner: its output, its pid, its exit code, SIGTERM, a kill, limits, and
// priority.
func TestIsolatedIsLikePlain(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	isolated := func(l containers.Launch) containers.Launch {
		l.Isolation = containers.Isolation{}
		return l
	}
	if exit := waitExit(t, start(t, r, isolated(shell(t, "echo hello; exit 3", out)))); exit.Code != 3 || exit.Signal != 0 || exit.Reason != "" {
		t.Errorf("exit %+v: expected code 3", exit)
	}
	if lines := out.all(); len(lines) != 1 || lines[0] != "hello" {
		t.Errorf("output %q", lines)
	}
	if exit := waitExit(t, start(t, r, isolated(shell(t, "kill -SEGV $$", out)))); exit.Signal != int(syscall.SIGSEGV) {
		t.Errorf("exit %+v: expected SIGSEGV", exit)
	}
	polite := start(t, r, isolated(launch(2, "polite", out)))
	out.until(t, "ready")
	if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(polite.PID()), "cmdline")); err != nil || !strings.HasPrefix(string(b), self()) {
		t.Errorf("process %d is %q, error %v: expected the replica", polite.PID(), b, err)
	}
	if err := polite.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, polite); exit.Code != 7 {
		t.Errorf("exit %+v: expected its own code 7", exit)
	}
	limited := isolated(launch(3, "stubborn", out))
	limited.Limits, limited.Quiet = containers.Limits{OpenFiles: 123, DataBytes: 4 << 30}, true
	out.all()
	in := start(t, r, limited)
	out.until(t, "ready")
	var files unix.Rlimit
	if err := unix.Prlimit(in.PID(), unix.RLIMIT_NOFILE, nil, &files); err != nil || files.Max != 123 {
		t.Errorf("it may open %d files, error %v: expected 123", files.Max, err)
	}
	if err := in.(containers.Raiser).Raise(); err != nil {
		t.Error(err)
	}
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v: expected SIGKILL", exit)
	}
	if _, err := r.Start(t.Context(), isolated(containers.Launch{Dir: "/", Command: []string{"/etc/passwd"}})); err == nil {
		t.Error("no error for a program that cannot be run")
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("garbage"), 0o755); err != nil {
		t.Fatal(err)
	}
	var refused *containers.LaunchError
	if _, err := r.Start(t.Context(), isolated(containers.Launch{Dir: "/", Command: []string{garbage}})); !errors.As(err, &refused) || !errors.Is(err, syscall.ENOEXEC) {
		t.Errorf("error %v: expected that of exec", err)
	}
}

// What is hidden stays hidden when the host replaces it while the replica runs.
func TestHiddenFileIsReplaced(t *testing.T) {
	// The file must not lie in a directory that the replica has of its own.
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, ".xebec-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	secret := filepath.Join(dir, "token")
	replace := func(text string) {
		if err := errors.Join(os.WriteFile(secret+".new", []byte(text), 0o600), os.Rename(secret+".new", secret)); err != nil {
			t.Fatal(err)
		}
	}
	replace("old")
	r, err := New(Config{Hidden: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := newOutput()
	l := shell(t, `echo ready; until [ -e go ]; do sleep 0.01; done; cat "$1"; echo; echo end`, out, secret)
	l.Isolation = containers.Isolation{}
	in := start(t, r, l)
	out.until(t, "ready")
	replace("new")
	if err := os.WriteFile(filepath.Join(l.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range out.until(t, "end") {
		if strings.Contains(line, "new") || strings.Contains(line, "old") {
			t.Errorf("it reads %q", line)
		}
	}
	waitExit(t, in)
}
