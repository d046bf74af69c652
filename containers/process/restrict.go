package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// restrict applies the layers that need no namespace, to this process and all that it starts, and adds to the verdict
// which of them hold, with a sentence for each that does not.
func (s *sandbox) restrict(v *verdict) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		v.Missing = append(v.Missing, "no_new_privs cannot be set: "+err.Error()+".")
	}
	abi, err := s.landlock()
	v.note(fmt.Sprintf("%s (ABI %d)", layerLandlock, abi), "Landlock does not restrict files and sockets", err)
	if err == nil && !s.Namespaces && !s.Network {
		if abi >= 4 {
			v.Layers = append(v.Layers, "no TCP")
		} else {
			v.Missing = append(v.Missing, "It can reach the host's network: without a network namespace only Landlock forbids that, from ABI 4 (Linux 6.7) on.")
		}
	}
	v.note(layerSeccomp, "No filter restricts its system calls", filterCalls())
}

// drop gives up capabilities and the user of the calling thread.
func (s *sandbox) drop(v *verdict) {
	if s.Privileged {
		return
	}
	err := dropCapabilities(s.UID)
	v.note(layerCaps, "Capabilities could not be dropped", err)
	if err == nil && s.UID != 0 {
		v.Layers = append(v.Layers, fmt.Sprintf("%s (%d)", layerUser, s.UID))
	}
}

// note adds a layer, or why it is missing.
func (v *verdict) note(layer, problem string, err error) {
	if err == nil {
		v.Layers = append(v.Layers, layer)
	} else {
		v.Missing = append(v.Missing, problem+": "+err.Error()+".")
	}
}

// landlock lets the replica read everything but what is hidden, and write only below its temporary directories and to
// devices. Outside of a network namespace it also forbids TCP, and always signals and abstract sockets to processes
// that are not the replica's. It returns the kernel's version of Landlock.
func (s *sandbox) landlock() (abi int, err error) {
	abi, err = landlocksys.LandlockGetABIVersion()
	if err != nil {
		return 0, errors.New("this kernel has none, or it is not enabled at boot (lsm=landlock,…)")
	}
	hidden := toStrings(s.Hidden)
	rules := []landlock.Rule{landlock.RWDirs("/dev").WithIoctlDev().IgnoreIfMissing()}
	// A mount that covers a path vanishes when the host replaces what is there, for instance a token file by rename. So
	// hidden paths get no rule either. Only a zygote relies on its mounts: models that are declared later lie anywhere.
	readable := []string{"/"}
	if !s.Namespaces || !s.Control {
		if readable, err = around("/", existing(hidden)); err != nil {
			return abi, err
		}
	}
	for _, path := range existing(toStrings(s.Reveal)) {
		if within(path, hidden) != "" { // a model, or its socket, in the gateway's directory
			readable = append(readable, path)
		}
	}
	var dirs, files []string
	for _, path := range readable {
		if isDir(path) {
			dirs = append(dirs, path)
		} else {
			files = append(files, path)
		}
	}
	rules = append(rules, landlock.RODirs(dirs...).IgnoreIfMissing(), landlock.ROFiles(files...).IgnoreIfMissing())
	if !s.Namespaces && os.Geteuid() != 0 { // it holds the files of its own processes, and programs write there, for instance names of threads.
		// For root it also holds the kernel's parameters.
		rules = append(rules, landlock.RWDirs("/proc").IgnoreIfMissing())
	}
	for _, dir := range append([]string{"/tmp", "/var/tmp", "/dev/shm"}, string(s.Tmp)) {
		if dir == "" || !isDir(dir) || (!s.Namespaces || s.Control) && above(dir, hidden) {
			continue
		}
		rules = append(rules, landlock.RWDirs(dir).WithRefer().IgnoreIfMissing())
	}
	if len(s.Writable) > 0 {
		rules = append(rules, landlock.RWDirs(toStrings(s.Writable)...).WithRefer())
	}
	// One call makes one layer. A further layer, for sockets and scopes alone, would have no rules for files, and the kernel
	// forbids moves between directories in each layer that does not allow them.
	config := landlock.V7
	if s.Namespaces || s.Network {
		config.HandledAccessNet = 0
	}
	return abi, config.BestEffort().Restrict(rules...)
}

// above reports whether one of the paths lies in dir.
func above(dir string, paths []string) bool {
	for _, path := range paths {
		if within(path, []string{dir}) != "" {
			return true
		}
	}
	return false
}

// maxAround bounds the entries of the directories around hidden paths.
const maxAround = 8192

// around lists what is in dir but not hidden: siblings of hidden paths, of their parents, and so on. Landlock has no rule
// that takes a part of a directory away again.
func around(dir string, hidden []string) (all []string, err error) {
	if within(dir, hidden) != "" {
		return nil, nil
	}
	if !above(dir, hidden) {
		return []string{dir}, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxAround + 1)
	if len(names) > maxAround {
		return nil, fmt.Errorf("%s has more than %d entries, around what is to be hidden: choose another --data-dir", dir, maxAround)
	}
	if len(names) == 0 && err != nil {
		return nil, err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink != 0 {
			continue // the kernel checks a link's target
		}
		below, err := around(path, hidden)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

// forbidden are system calls that no model needs and that escapes are made of: looking into other processes, mounts and
// namespaces, the kernel's programmable parts, keys, modules and clocks.
const forbidden = `
	ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise
	mount umount2 move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr pivot_root chroot
	setns unshare name_to_handle_at open_by_handle_at quotactl quotactl_fd fanotify_init
	bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
	keyctl add_key request_key
	init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct syslog
	settimeofday clock_settime adjtimex clock_adjtime ioperm iopl modify_ldt
	sethostname setdomainname lookup_dcookie vhangup`

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// ofOthers are the calls by which a process changes priorities and limits of another one of its user. The caller may mean itself, as 0, and
// nothing else: a filter cannot tell the numbers of its own threads from those of strangers. What is left open is sched_setaffinity, which C
// libraries call with a thread's number for each thread that is created with an affinity.
//
// All conditions are that an argument differs from 0 or 1, and a call of which none holds leaves that number where the calls behind it
// look for theirs: no call that is listed here has such a number.
var ofOthers = []seccomp.NameWithConditions{
	{Name: "prlimit64", Conditions: []seccomp.Condition{isNot(0, 0), isNot(2, 0)}}, // without new limits it only reads
	{Name: "setpriority", Conditions: []seccomp.Condition{isNot(0, unix.PRIO_PROCESS)}},
	{Name: "setpriority", Conditions: []seccomp.Condition{isNot(1, 0)}},
	{Name: "ioprio_set", Conditions: []seccomp.Condition{isNot(0, ioprioProcess)}},
	{Name: "ioprio_set", Conditions: []seccomp.Condition{isNot(1, 0)}},
	{Name: "sched_setscheduler", Conditions: []seccomp.Condition{isNot(0, 0)}},
	{Name: "sched_setparam", Conditions: []seccomp.Condition{isNot(0, 0)}},
	{Name: "sched_setattr", Conditions: []seccomp.Condition{isNot(0, 0)}},
}

const ioprioProcess = 1 // IOPRIO_WHO_PROCESS of linux/ioprio.h

func isNot(argument uint32, value uint64) seccomp.Condition {
	return seccomp.Condition{Argument: argument, Operation: seccomp.NotEqual, Value: value}
}

// filterCalls forbids system calls to this process and all that it starts: they fail with EPERM.
func filterCalls() error {
	program, err := filterProgram()
	if err != nil {
		return err
	}
	return install(program, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// spareOthers forbids the calling thread and all that it starts to change priorities and limits of other processes, and adds to the verdict
// why that does not hold. Where a replica sees only processes of its own, it may. The launcher's other threads may: they set the replica's limits.
func (s *sandbox) spareOthers(v *verdict) {
	if s.Namespaces && !s.Control {
		return
	}
	program, err := assemble([]seccomp.SyscallGroup{{NamesWithCondtions: ofOthers, Action: notPermitted}})
	if err == nil {
		err = install(program, 0)
	}
	if err != nil {
		v.Missing = append(v.Missing, "It can lower priorities and limits of other processes of its user: "+err.Error()+".")
	}
}

// install adds a filter to those of the calling thread, or with SECCOMP_FILTER_FLAG_TSYNC of this process.
func install(program []unix.SockFilter, flags uintptr) error {
	if !seccomp.Supported() {
		return errors.New("this kernel was built without CONFIG_SECCOMP_FILTER")
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// filterProgram assembles the filter of all replicas.
func filterProgram() ([]unix.SockFilter, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	var namespaces []seccomp.NameWithConditions
	for flag := uint64(1); flag <= newNamespaces; flag <<= 1 {
		if flag&newNamespaces != 0 {
			namespaces = append(namespaces, seccomp.NameWithConditions{
				Name: "clone", Conditions: []seccomp.Condition{{Argument: 0, Operation: seccomp.BitsSet, Value: flag}},
			})
		}
	}
	return assemble([]seccomp.SyscallGroup{
		{Names: slices.DeleteFunc(strings.Fields(forbidden), func(name string) bool {
			_, found := native.SyscallNames[name]
			return !found // not every architecture has all
		}), Action: notPermitted},
		// Its flags are in memory, where a filter cannot see them. C libraries fall back to clone.
		{Names: []string{"clone3"}, Action: noSuchCall},
		// The last group: comparing an argument replaces the number of the call, which other groups compare.
		{NamesWithCondtions: namespaces, Action: notPermitted},
	})
}

// assemble makes a filter that allows what is in no group.
func assemble(groups []seccomp.SyscallGroup) ([]unix.SockFilter, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: groups}
	body, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	const archOffset = 4 // in struct seccomp_data
	// The library allows what comes by another architecture's table of calls: 32-bit programs on a 64-bit machine.
	all := append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(noSuchCall)},
	}, body...)
	raw, err := bpf.Assemble(all)
	if err != nil {
		return nil, err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}

// What a forbidden call fails with.
const (
	notPermitted = unix.SECCOMP_RET_ERRNO | seccomp.Action(unix.EPERM)
	noSuchCall   = unix.SECCOMP_RET_ERRNO | seccomp.Action(unix.ENOSYS)
)
