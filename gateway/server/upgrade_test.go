package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

// A program that is no gateway does not keep upgrades from ever being tried again: one that ends, one that never asks to take over, and
// one that somebody has thought better of.
func TestUpgradeToAProgramThatNeverAsks(t *testing.T) {
	var command []string
	dir := t.TempDir()
	s, _, _ := alive(t, Config{DataDir: dir, StartSuccessor: func(string, *Canary) (*os.Process, error) {
		cmd := exec.Command(command[0], command[1:]...)
		err := cmd.Start()
		return cmd.Process, err
	}})
	try := func(ctx context.Context, contact time.Duration, progress func(), program ...string) string {
		t.Helper()
		s.succession.mu.Lock()
		s.succession.contact, command = contact, program
		s.succession.mu.Unlock()
		_, err := Upgrade(ctx, dir, "", nil, func(UpgradeProgress) { progress() })
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("the upgrade to %v ends with %v", program, err)
		}
		return err.Error()
	}
	none := func() {}
	if got := try(t.Context(), time.Hour, none, "sh", "-c", "exit 3"); !strings.Contains(got, "has ended before it asked to take over (exit status 3)") {
		t.Errorf("a program that ends: %s", got)
	}
	if got := try(t.Context(), time.Millisecond, none, "sleep", "1000"); !strings.Contains(got, "did not ask to take over within 1ms") {
		t.Errorf("a program that hangs: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if got := try(ctx, time.Hour, cancel, "sleep", "1000"); !strings.Contains(got, "the upgrade is called off") {
		t.Errorf("a command that is interrupted: %s", got)
	}
	until(t, "the interrupted upgrade to be over", func() bool {
		s.succession.mu.Lock()
		defer s.succession.mu.Unlock()
		return s.succession.started == nil
	})
}

// A program that never asks is killed with what it has started.
func TestUpgradeKillsWhatTheProgramHasStarted(t *testing.T) {
	dir := t.TempDir()
	script, held := filepath.Join(dir, "program"), filepath.Join(dir, "held")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec 3>\"$1\"\nsleep 300 &\necho >&3\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(held, 0o600); err != nil { // it ends when no process has its other end
		t.Fatal(err)
	}
	alive(t, Config{DataDir: dir, StartSuccessor: func(string, *Canary) (*os.Process, error) { return StartProcess(script, []string{held}) }})
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Upgrade(ctx, dir, "", nil, func(UpgradeProgress) {})
		ended <- err
	}()
	r, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if err := <-ended; err == nil {
		t.Error("the upgrade has succeeded")
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a process that the program has started is left: %v", err)
	}
}

// A file that the kernel cannot run is named with the likely reason.
func TestStartProcessThatCannotRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xebec")
	if err := os.WriteFile(path, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := StartProcess(path, nil); err == nil || !strings.Contains(err.Error(), "it is no program for this machine ("+runtime.GOOS+"/"+runtime.GOARCH+"), or not all of it was copied") {
		t.Errorf("half a program: %v", err)
	}
	open, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := StartProcess(path, nil); err == nil || !strings.Contains(err.Error(), "it is still being written") {
		t.Errorf("a program that is being written: %v", err)
	}
}

// A process may ask to take over before its parent has returned from starting it. What the command is told has the order of the steps
// all the same.
func TestUpgradeTellsItsStepsInTheirOrder(t *testing.T) {
	dir := t.TempDir()
	asks := func() error {
		c, err := takeover.Dial(t.Context(), filepath.Join(dir, controlFile))
		if err != nil {
			return err
		}
		defer c.Close()
		err = c.Send(takeover.KindHello, takeover.Hello{Version: takeover.Version, Program: "test"})
		for _, kind := range []takeover.Kind{takeover.KindWelcome, takeover.KindAbort} {
			if err != nil {
				return err
			}
			var f takeover.Frame
			var files []*os.File
			f, files, err = c.Receive()
			for _, file := range files {
				file.Close()
			}
			if err == nil && f.Kind != kind {
				err = fmt.Errorf("got message %d %s, expected %d", f.Kind, f.Payload, kind)
			} else if kind == takeover.KindWelcome && err == nil {
				err = c.Send(takeover.KindAbort, takeover.Abort{Reason: "of the test"})
			}
		}
		return err
	}
	alive(t, Config{DataDir: dir, StartSuccessor: func(string, *Canary) (*os.Process, error) {
		if err := asks(); err != nil {
			return nil, err
		}
		cmd := exec.Command("true")
		err := cmd.Start()
		return cmd.Process, err
	}})
	var stages []takeover.Stage
	_, err := Upgrade(t.Context(), dir, "", nil, func(step UpgradeProgress) { stages = append(stages, step.Stage) })
	if err == nil || !strings.Contains(err.Error(), "of the test") {
		t.Errorf("the upgrade ends with %v", err)
	}
	if want := []takeover.Stage{takeover.StageStarted, takeover.StageLoading}; !slices.Equal(stages, want) {
		t.Errorf("the steps are %q, expected %q", stages, want)
	}
}

// A process that was started and has ended may leave its number to another one, which must not be killed in its place.
func TestCallOffKillsNoOtherProcess(t *testing.T) {
	started := exec.Command("true")
	if err := started.Run(); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("cat")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	started.Process.Pid = other.Process.Pid // as if the system had given the number again
	if why := new(Server).callOff(started.Process, "the reason", false); why != "the reason" {
		t.Errorf("the upgrade is called off because %q", why)
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Errorf("the process that has the number now has ended: %v", err)
	}
}

// heldDir is the data directory of a gateway that runs, and has no control socket.
func heldDir(t *testing.T) dataDir {
	t.Helper()
	d, err := openDataDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.lock.Close() })
	return d
}

// Where no gateway runs there is nothing to wait for. Where one runs, the error does not say that there is none.
func TestDialWithoutControlSocket(t *testing.T) {
	d := heldDir(t)
	dial := func(d dataDir, begun time.Time) (waited string, err error) {
		_, err = (&dialer{dir: d, connect: takeover.DialToAsk, begun: begun, since: begun, waits: func(serves, ends int) { waited += fmt.Sprint(serves, " ", ends, "\n") }}).dial(t.Context())
		return waited, err
	}
	long := time.Now().Add(-controlWithin)
	if waited, err := dial(d, long); !errors.Is(err, errNotNow) || !strings.Contains(err.Error(), d.path) || !strings.Contains(err.Error(), "it starts or stops") || waited != "" {
		t.Errorf("where a gateway runs: waited for %q, %v", waited, err)
	}
	if err := d.noteHolders(77); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(d, time.Now().Add(-finishWithin)); !errors.Is(err, errNotNow) || !strings.Contains(err.Error(), "process 77, which answers its last requests") {
		t.Errorf("where a process does not end: %v", err)
	}
	if err := d.lock.Close(); err != nil {
		t.Fatal(err)
	}
	for what, dir := range map[string]string{"a gateway has run": d.path, "none has run": t.TempDir()} {
		if _, err := dial(dataDir{path: dir}, time.Time{}); !errors.Is(err, unix.ENOENT) || !errors.Is(err, errNoGateway) {
			t.Errorf("where %s: %v", what, err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, err := Upgrade(t.Context(), none, "", nil, nil); !errors.Is(err, errNoGateway) {
		t.Errorf("an upgrade where none has run: %v", err)
	}
	if _, err := os.Stat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command has made the directory that its user has mistyped: %v", err)
	}
}

// While the process before answers its last requests, the command says so and waits, for longer than for a gateway that starts. When
// that one has ended, the command asks the new process.
func TestUpgradeWaitsForTheEndOfTheOneBefore(t *testing.T) {
	d := heldDir(t)
	if err := d.noteHolders(77); err != nil {
		t.Fatal(err)
	}
	if serves, before := d.holders(); serves != os.Getpid() || before != 77 {
		t.Errorf("the lock names %d and %d", serves, before)
	}
	var serving sync.WaitGroup
	var told []UpgradeProgress
	long := time.Now().Add(-2 * controlWithin)
	dial := dialer{dir: d, connect: takeover.DialToAsk, begun: long, since: long, waits: func(serves, ends int) {
		told = append(told, UpgradeProgress{PID: serves, Reason: fmt.Sprint(ends)})
		if err := d.noteHolders(0); err != nil { // it has ended
			t.Error(err)
		}
		ln, err := takeover.Listen(d.control())
		if err != nil {
			t.Error(err)
			return
		}
		serving.Go(func() {
			defer ln.Close()
			_ = ln.SetDeadline(time.Now().Add(time.Minute)) // of a test that fails
			if c, err := ln.AcceptUnix(); err != nil {
				t.Error(err)
			} else {
				c.Close()
			}
		})
	}}
	c, err := dial.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	serving.Wait()
	if want := []UpgradeProgress{{PID: os.Getpid(), Reason: "77"}}; !slices.Equal(told, want) {
		t.Errorf("told is %+v, expected %+v", told, want)
	}
	if serves, before := d.holders(); serves != os.Getpid() || before != 0 {
		t.Errorf("the lock names %d and %d at the end", serves, before)
	}
}

// A process that has just been replaced ends connections without an answer. The command asks the next one, also if that has no socket
// yet.
func TestUpgradeAsksTheNextProcess(t *testing.T) {
	d := heldDir(t)
	old, err := takeover.Listen(d.control())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		c, err := old.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		old.Close()
		c.Close()
		ln, err := takeover.Listen(d.control())
		if err != nil {
			t.Error(err)
			return
		}
		defer ln.Close()
		_ = ln.SetDeadline(time.Now().Add(time.Minute)) // of a test that fails
		if c, err = ln.AcceptUnix(); err != nil {
			t.Error(err)
			return
		}
		conn, err := takeover.NewConn(c)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if f, _, err := conn.Receive(); err != nil || f.Kind != takeover.KindUpgrade {
			t.Errorf("the next process gets message %d, %v", f.Kind, err)
		}
		if err := conn.Send(takeover.KindResult, takeover.Result{PID: 7}); err != nil {
			t.Error(err)
		}
	})
	if pid, err := Upgrade(t.Context(), d.path, "", nil, nil); pid != 7 || err != nil {
		t.Errorf("the upgrade ends with process %d, %v", pid, err)
		old.Close()
	}
	serving.Wait()
}
