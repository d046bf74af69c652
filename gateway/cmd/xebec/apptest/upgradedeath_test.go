package apptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// takerVariable makes the test's own program a process that begins to take over: "socket=step". It is a process because the gateway
// kills one that may have its store.
const takerVariable = "XEBEC_APPTEST_TAKER"

func init() {
	socket, step, found := strings.Cut(os.Getenv(takerVariable), "=")
	if !found {
		return
	}
	if err := takeOverUntil(socket, step); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("there")
	select {} // until it is killed
}

// takeOverUntil does the new process's steps up to one of them.
func takeOverUntil(socket, step string) error {
	c, err := takeover.Dial(context.Background(), socket)
	if err != nil || step == "connected" {
		return err
	}
	if err := c.Send(takeover.KindHello, takeover.Hello{Version: takeover.Version, Program: "test"}); err != nil {
		return err
	}
	if f, _, err := c.Receive(); err != nil || f.Kind != takeover.KindWelcome || step == "welcomed" {
		return errors.Join(err, map[bool]error{true: fmt.Errorf("%d %s", f.Kind, f.Payload)}[f.Kind != takeover.KindWelcome])
	}
	if err := c.Send(takeover.KindReady, nil); err != nil || step == "ready" {
		return err
	}
	if f, _, err := c.Receive(); err != nil || f.Kind != takeover.KindRelease {
		return errors.Join(err, fmt.Errorf("%d %s", f.Kind, f.Payload))
	}
	return nil
}

// started is the process that the first upgrade has started.
func (u *upgradable) started() int {
	u.t.Helper()
	return u.logsProcess("started a process that is to take over", 1)
}

// goesOn checks that the gateway serves, learns, and takes changes.
func (u *upgradable) goesOn(name string) {
	u.t.Helper()
	u.await("changes to be possible", func(context.Context) (bool, string) {
		r := u.xebec("apply", "-f", manifest(u.t, function(name, "right", "slo: 60s")))
		return r.status == 0, r.err
	})
	u.await("the new function to answer", answers(u.gateway, name, 7, "right@1"))
	id := *u.ask("f", 7, "").QueryID
	if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != "counted" {
		u.t.Errorf("feedback is answered by %+v", said)
	}
}

// The new process dies at each step, by SIGKILL. The old one goes on, without a failed request: with its store, also where the new one
// had that already. Afterwards an upgrade succeeds.
func TestUpgradeNewProcessDies(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		u := serveUpgradable(t, args...)
		l := u.startLoop("g", 2, 20*time.Millisecond)
		for i, step := range []string{"connected", "welcomed", "ready", "released"} {
			cmd := exec.CommandContext(bounded(t), os.Args[0])
			cmd.Env = append(os.Environ(), takerVariable+"="+filepath.Join(u.dataDir, "control.sock")+"="+step)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 256)
			n, _ := out.Read(said)
			if got := string(said[:n]); got != "there\n" {
				t.Errorf("%s: the process says %s", step, got)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			u.goesOn("after" + strconv.Itoa(i))
		}
		u.shut()
		wait := u.upgrade()
		u.logs("taking over: loading")
		pid := u.started()
		kill(t, pid)
		if r := wait(); r.status == 0 || !strings.Contains(r.err, strconv.Itoa(pid)) {
			t.Errorf("an upgrade whose process was killed: status %d %s%s", r.status, r.out, r.err)
		}
		u.open()
		u.goesOn("later")
		if r := u.upgrade()(); r.status != 0 {
			t.Fatalf("an upgrade after those that failed: status %d %s%s", r.status, r.out, r.err)
		}
		u.oldEnds()
		l.end(t)
		u.goesOn("last")
	})
}

// The old process is killed while the new one loads. The new one goes on alone: it has the sockets, and takes the store.
func TestUpgradeOldProcessDies(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		u := serveUpgradable(t, args...)
		id := *u.ask("f", 7, "").QueryID
		if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != "counted" {
			t.Fatalf("feedback is answered by %+v", said)
		}
		u.awaitLearned("f", "the feedback is stored", func(p api.PolicyStatus) bool { return p.Store.Pending == 0 })
		u.shut()
		wait := u.upgrade()
		u.logs("taking over: loading")
		u.pid, u.ended = u.started(), true
		_ = syscall.Kill(u.cmd.Process.Pid, syscall.SIGKILL)
		<-u.exited
		wait()
		u.logs("the process before has died")
		u.client.CloseIdleConnections()
		u.open()
		u.await("the new process to serve", answers(u.gateway, "g", 7, "right@1"))
		u.goesOn("after")
		u.awaitLearned("f", "both feedbacks", func(p api.PolicyStatus) bool { return p.Candidates[1].Count > 1.9 && p.Candidates[1].Count < 2 })
		if r := u.upgrade()(); r.status != 0 {
			t.Errorf("an upgrade of the process that went on alone: status %d %s%s", r.status, r.out, r.err)
		}
	})
}

// The old process is killed after the new one has said that it is ready and before it serves: while it has the store, or when it is letting the store go. The new
// one takes the store, with what was learned, and serves.
func TestUpgradeOldProcessDiesAtTheCommitPoint(t *testing.T) {
	t.Parallel()
	for name, letsGo := range map[string]bool{"with the store": false, "without the store": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := serveUpgradable(t)
			id := *u.ask("f", 7, "").QueryID
			if _, said := u.tell("f", `{"query_id":%d,"label":7}`, id); said.Status != "counted" {
				t.Fatalf("feedback is answered by %+v", said)
			}
			u.awaitLearned("f", "the feedback is stored", func(p api.PolicyStatus) bool { return p.Store.Pending == 0 })
			u.shut()
			wait := u.upgrade()
			u.logs("taking over: loading")
			before, next := u.cmd.Process.Pid, u.started()
			signal := func(pid int, s syscall.Signal) {
				t.Helper()
				if err := syscall.Kill(pid, s); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { _ = syscall.Kill(next, syscall.SIGCONT) })
			signal(before, syscall.SIGSTOP) // it answers nothing: the new process loads, says that it is ready, and waits
			u.open()
			u.logs("taking over: loaded")
			// The message that it is ready follows the line. The two run in turn, so that the old process has read it, and the new one no answer.
			for released := !letsGo; !released; {
				signal(next, syscall.SIGSTOP)
				signal(before, syscall.SIGCONT)
				s := u.describedUpgrade()
				if released = s != nil && s.Step == api.UpgradeCommitting; !released {
					signal(before, syscall.SIGSTOP)
					signal(next, syscall.SIGCONT)
				}
			}
			u.pid, u.ended = next, true
			signal(before, syscall.SIGKILL)
			<-u.exited
			signal(next, syscall.SIGCONT)
			wait()
			u.client.CloseIdleConnections()
			u.await("the new process to serve", answers(u.gateway, "g", 7, "right@1"))
			u.goesOn("after")
			u.awaitLearned("f", "both feedbacks", func(p api.PolicyStatus) bool { return p.Candidates[1].Count > 1.9 && p.Candidates[1].Count < 2 })
			if r := u.upgrade()(); r.status != 0 {
				t.Errorf("an upgrade of the process that went on alone: status %d %s%s", r.status, r.out, r.err)
			}
		})
	}
}

// Either process is killed after the new one has begun to serve, while the old one answers its last request. The new one needs the old one
// for nothing: it takes changes and can be upgraded. Without the new one the old one ends, and the next start has everything.
func TestUpgradeDeathAfterTheCommitPoint(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, args ...string) {
		args = append([]string{"--drain-timeout", "30s"}, args...)
		u := serveUpgradable(t, args...)
		u.halfRequest()
		if r := u.upgrade()(); r.status != 0 {
			t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
		}
		_ = syscall.Kill(u.cmd.Process.Pid, syscall.SIGKILL)
		<-u.exited
		u.fresh()
		u.goesOn("first")

		before := u.pid
		finish := u.halfRequest()
		if r := u.upgrade()(); r.status != 0 || u.pid == before {
			t.Fatalf("an upgrade of the process that is left: status %d %s%s", r.status, r.out, r.err)
		}
		kill(t, u.pid)
		finish() // the old process answers what it has
		u.await("the old process to end", func(context.Context) (bool, string) {
			return errors.Is(syscall.Kill(before, 0), syscall.ESRCH), tail(u.logText(), 5)
		})
		if r := u.xebec("upgrade", "--data-dir", u.dataDir); r.status == 0 || !strings.Contains(r.err, "no gateway answers") {
			t.Errorf("an upgrade where none runs any more: status %d %s%s", r.status, r.out, r.err)
		}
		u.gateway = serve(t, append([]string{"--config", u.models, "--data-dir", u.dataDir}, args...)...)
		u.pid = u.cmd.Process.Pid
		u.goesOn("last")
		u.await("what was declared before", answers(u.gateway, "first", 7, "right@1"))
	})
}
