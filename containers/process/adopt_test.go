package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// A reaper that is killed takes its zygotes, and the workers that they have forked, with it. The next launch gets new
// ones.
func TestZygoteReaperKilled(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	out := newOutput()
	l := m.launch(t, []string{"tale"}, strays+waits, out)
	in := start(t, r, l)
	all := append(seen(t, out, "fork", "program"), watch(t, "worker", in.PID()))
	z := age(t, r)
	all = append(all, watch(t, "zygote", z.in.PID()))
	if err := unix.Kill(reaperOf(t, r), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); !strings.Contains(exit.Reason, "reaper") {
		t.Errorf("exit %+v: expected a reason that names the reaper", exit)
	}
	waitGone(t, all...)
	checkForked(t, run(t, r, m.launch(t, []string{"tale"}, tell, nil)))
}

// actPythonGateway is a gateway with a forked worker that has children of its own. Its arguments are in the
// environment.
func actPythonGateway() {
	r, err := New(Config{})
	if err != nil {
		fatal(err)
	}
	out := newOutput()
	l := containers.Launch{
		Isolation: plain, Replica: 1, Dir: os.Getenv(modeEnv + "_DIR"), Command: []string{os.Getenv(modeEnv + "_PYTHON"), "model.py"}, Preload: []string{"tale"},
		Env: []string{"PYTHONPATH=" + os.Getenv(modeEnv+"_LIB")}, Stdout: out, Stderr: out,
	}
	in, err := r.Start(context.Background(), l)
	if err != nil {
		fatal(err)
	}
	fmt.Println("worker", in.PID())
	for line := range out.lines {
		fmt.Println(line)
		if line == "forked" {
			break
		}
	}
	r.zygotes.mu.Lock()
	for _, p := range r.zygotes.byKey {
		fmt.Println("zygote", p.zygote.in.PID())
	}
	r.zygotes.mu.Unlock()
	fmt.Println("ready")
	select {}
}

func TestGatewayKilledWithZygotes(t *testing.T) {
	m := newModels(t, tale)
	l := m.launch(t, nil, strays+tell+waits, nil)
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		gateway := exec.Command(self())
		gateway.Env = append(os.Environ(), modeEnv+"=python gateway", modeEnv+"_DIR="+l.Dir, modeEnv+"_PYTHON="+m.python, modeEnv+"_LIB="+filepath.Join(m.dir, "lib"))
		gateway.Stderr = os.Stderr
		stdout, err := gateway.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for scan := bufio.NewScanner(stdout); scan.Scan() && scan.Text() != "ready"; {
			if scan.Text() != "forked" {
				lines = append(lines, scan.Text())
			}
		}
		all := family(t, lines)
		if len(all) < 2 {
			t.Fatalf("the gateway printed %q, expected at least a worker and a zygote", lines)
		}
		if err := gateway.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		waitGone(t, all...)
		if err := gateway.Wait(); err == nil {
			t.Error("the gateway exited with 0, expected the signal")
		}
	}
}

// A forked worker handles SIGTERM as the binding defines it, also before the gateway's welcome.
func TestForkedServe(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	socket := filepath.Join(t.TempDir(), "gateway")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	out := newOutput()
	l := m.launch(t, []string{"tale"}, tell+"import xebec\nxebec.serve(lambda batch: batch)\n", out)
	l.Env = append(l.Env, "XEBEC_SOCKET="+socket, "XEBEC_TOKEN=token-of-this-launch", "XEBEC_MODEL=m", "XEBEC_VERSION=1")
	in := start(t, r, l)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := make([]byte, 4096)
	n, err := conn.Read(hello)
	if err != nil || !strings.Contains(string(hello[:n]), "token-of-this-launch") {
		t.Errorf("hello %q, %v: expected it to contain this launch's token", hello[:n], err)
	}
	if err := in.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, in); exit.Code != 0 {
		t.Errorf("exit %+v, output %q: expected code 0", exit, out.all())
	}
}

// The reaper checks which process it is to adopt.
func TestAdoptsOnlyItsOwn(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	other := start(t, r, launch(1, "sleep", out))
	out.until(t, "ready")
	k := other.(*instance).link
	for what, pid := range map[string]int{"this process": os.Getpid(), "the first process": 1, "another worker": other.PID(), "no process": 1<<31 - 1} {
		in, fds, err := k.open("/bin/true", launch(2, "sleep", out), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.ask(request{Op: opAdopt, ID: in.id, PID: pid, Marker: fmt.Sprintf("%s-%020d", k.nonce, in.id)}, fds[0]); err != nil {
			t.Fatal(err)
		}
		closeAll(fds)
		if _, err := k.await(t.Context(), in); !errors.Is(err, unix.ESRCH) {
			t.Errorf("adopting %s: error %v, expected %v", what, err, unix.ESRCH)
		}
	}
	if st, ok := readStat(other.PID()); !ok || st.zombie {
		t.Error("the other worker has ended")
	}
}
