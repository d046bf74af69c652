package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// spy tries what a model may not do to its gateway and to other replicas, whose pids are those of the host, and prints a line for each
// attempt. At the end it leaves a daemon, whose only argument is a word of the test's, in a session of its own and without an
// environment.
func spy() {
	try := func(what string, err error) {
		if err == nil {
			fmt.Printf("%s: done\n", what)
		} else {
			fmt.Printf("%s: denied %v\n", what, err)
		}
	}
	try("read its own memory", read("/proc/self/maps")) // so that the attempts are known to work
	try("read the token", read(os.Getenv("SPY_TOKEN")))
	try("read state.db", read(os.Getenv("SPY_STORE")))
	try("find the sockets of others", list(os.Getenv("SPY_SOCKETS")))
	for _, who := range []string{"gateway", "peer"} {
		pid, _ := strconv.Atoi(os.Getenv("SPY_" + strings.ToUpper(who)))
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		try("environ of "+who, read(filepath.Join(proc, "environ")))
		try("read mem of "+who, touch(filepath.Join(proc, "mem"), os.O_RDONLY))
		try("write mem of "+who, touch(filepath.Join(proc, "mem"), os.O_WRONLY))
		try("segments of "+who, list(filepath.Join(proc, "map_files")))
		try("descriptors of "+who, list(filepath.Join(proc, "fd")))
		try("trace "+who, syscall.PtraceAttach(pid))
		try("signal "+who, syscall.Kill(pid, 0))
		b := make([]byte, 1)
		local, remote := syscall.Iovec{Base: &b[0], Len: 1}, [2]uintptr{0x400000, 1}
		_, _, errno := syscall.Syscall6(sysProcessVMReadv, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		try("process_vm_readv of "+who, failed(errno))
	}
	try("see other processes", others())
	try("segments in /dev/shm", list("/dev/shm"))
	c, err := net.Dial("tcp", os.Getenv("SPY_ADMIN"))
	if err == nil {
		c.Close()
	}
	try("connect to the admin port", err)
	for what, number := range map[string]uintptr{"bpf": sysBPF, "keyctl": syscall.SYS_KEYCTL, "add_key": syscall.SYS_ADD_KEY, "unshare": syscall.SYS_UNSHARE} {
		first := uintptr(0)
		if what == "unshare" {
			first = syscall.CLONE_NEWUSER
		}
		_, _, errno := syscall.RawSyscall6(number, first, 0, 0, 0, 0, 0)
		if errno != syscall.EPERM { // another one comes from the call itself
			errno = 0
		}
		try(what, failed(errno))
	}
	forker := exec.Command("/stray", "daemonize", os.Getenv("SPY_WORD"))
	forker.Env = []string{}
	try("leave a daemon", forker.Run())
	fmt.Println("over")
}

// daemonize starts a daemon and ends, so that the daemon loses its parent.
func daemonize(word string) {
	daemon := exec.Command("/stray", "deaf", word)
	daemon.Env, daemon.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The system calls that package syscall has no number of.
var sysProcessVMReadv, sysBPF = numbers[runtime.GOARCH][0], numbers[runtime.GOARCH][1]

var numbers = map[string][2]uintptr{"amd64": {310, 321}, "arm64": {270, 280}}

func failed(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// read reads a byte of a file.
func read(path string) error {
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

// touch opens a file.
func touch(path string, how int) error {
	f, err := os.OpenFile(path, how, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// list succeeds if a directory has entries.
func list(path string) error {
	names, err := os.ReadDir(path)
	if err == nil && len(names) == 0 {
		err = errors.New("nothing there")
	}
	return err
}

// others succeeds if there is a process that is neither this one nor the container's init.
func others() error {
	names, err := os.ReadDir("/proc")
	for _, name := range names {
		if pid, err := strconv.Atoi(name.Name()); err == nil && pid != 1 && pid != os.Getpid() {
			return nil
		}
	}
	return errors.Join(err, errors.New("none"))
}
