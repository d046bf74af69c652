package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A worker in a container serves batches through memory shared with the gateway, and drains on SIGTERM.
func TestServes(t *testing.T) {
	g := newRig(t, address)
	in := g.start([]string{"/worker"}, nil)
	s := workertest.NewSession(t, in.worker)
	big := strings.Repeat("z", 3<<20)
	for range 20 {
		s.WantTexts(s.Send(workertest.Texts("across", "the", "wall", big)...), "across", "the", "wall", big)
	}
	if in.PID() <= 0 || in.process == nil {
		t.Errorf("PID %d is not visible", in.PID())
	}
	if err := in.Signal(true); err != nil {
		t.Error(err)
	}
	s.Events.WaitLeaving(t)
	s.Replica.Drain()
	if exit := in.wantExit(t); exit.Code != 0 || exit.Signal != 0 || exit.Reason != "" {
		t.Errorf("%+v", exit)
	}
	s.End()
	if err := in.Signal(false); err != nil {
		t.Errorf("a signal after the exit: %v", err)
	}
	if left := g.containers(labelGateway + "=" + t.Name()); len(left) != 0 {
		t.Errorf("containers left behind: %v", left)
	}
}

// A worker that dies in the middle of a batch is gone for the hub and for the runtime.
func TestWorkerDies(t *testing.T) {
	g := newRig(t, address, `CMD ["/worker"]`)
	in := g.start(nil, nil)
	s := workertest.NewSession(t, in.worker)
	b := s.Send(workertest.Texts("die")...)
	s.End()
	if left := s.Left(); !left[b.ID] {
		t.Errorf("left %v", left)
	}
	if exit := in.wantExit(t); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
}

// The engine's description of a replica's container: all restrictions apply, and only the socket and the model are
// mounted.
func TestInspect(t *testing.T) {
	g := newRig(t, address)
	dir := modelDir(t)
	in := g.start([]string{"/stray", "sleep"}, func(l *containers.Launch) {
		l.Dir = dir
		l.Limits = containers.Limits{CPUMillis: 500, MemoryBytes: 64 << 20, PIDs: 33, OpenFiles: 99}
	})
	in.wantOutput(t, "asleep")
	info, err := g.engine.ContainerInspect(t.Context(), in.id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, h := info.Container.Config, info.Container.HostConfig
	for what, ok := range map[string]bool{
		"network none":         h.NetworkMode == "none",
		"read-only root":       h.ReadonlyRootfs,
		"no capabilities":      len(h.CapDrop) == 1 && h.CapDrop[0] == "ALL" && len(h.CapAdd) == 0,
		"no new privileges":    len(h.SecurityOpt) == 1 && h.SecurityOpt[0] == "no-new-privileges",
		"not privileged":       !h.Privileged && h.PidMode == "" && h.UTSMode == "" && h.IpcMode == "private",
		"user nobody":          c.User == nobody,
		"memory":               h.Memory == 64<<20 && h.MemorySwap == 64<<20,
		"CPU":                  h.NanoCPUs == 5e8,
		"processes":            h.PidsLimit != nil && *h.PidsLimit == 33,
		"/tmp":                 len(h.Tmpfs) == 1 && h.Tmpfs["/tmp"] == "rw,noexec,nosuid,nodev,size=67108864,mode=1777",
		"/dev/shm":             h.ShmSize == shmBytes,
		"init":                 h.Init != nil && *h.Init,
		"no devices":           len(h.Devices) == 0 && len(h.DeviceRequests) == 0,
		"no restart":           h.RestartPolicy.Name == "no" || h.RestartPolicy.Name == "",
		"no automatic removal": !h.AutoRemove,
		"no log":               h.LogConfig.Type == "none",
		"stop signal":          c.StopSignal == "SIGTERM",
		"working directory":    c.WorkingDir == "/model",
		"labels":               c.Labels[labelModel] == "conformance" && c.Labels[labelVersion] == "1" && c.Labels[labelReplica] == "1" && c.Labels[labelGateway] == t.Name(),
	} {
		if !ok {
			t.Errorf("%s: %+v %+v", what, c, h)
		}
	}
	mounts := map[string]container.MountPoint{}
	for _, m := range info.Container.Mounts {
		mounts[m.Destination] = m
	}
	if len(mounts) != 2 || mounts["/model"].Source != dir || mounts["/model"].RW || mounts[socketInside].Source != socketOf(in) || mounts[socketInside].RW {
		t.Errorf("mounts: %+v", info.Container.Mounts)
	}
	in.Signal(true)
	if exit := in.wantExit(t); exit.Code != 7 || !strings.Contains(in.out.String(), "asked to end") {
		t.Errorf("%+v, %s", exit, in.out)
	}
}

func socketOf(in *started) string {
	for _, entry := range in.worker.Env {
		if path, ok := strings.CutPrefix(entry, envSocket+"="); ok {
			return path
		}
	}
	return ""
}

// The same restrictions, seen from inside.
func TestWalls(t *testing.T) {
	g := newRig(t, address, `VOLUME ["/baked"]`, "USER 1234")
	dir := modelDir(t)
	below := filepath.Join(dir, "mounted") // what is mounted below the model is not writable either
	os.Mkdir(below, 0o755)
	if err := syscall.Mount("none", below, "tmpfs", 0, "mode=1777"); err == nil {
		t.Cleanup(func() { syscall.Unmount(below, syscall.MNT_DETACH) })
	} else if os.Getuid() == 0 {
		t.Errorf("mount: %v", err)
	}
	in := g.start([]string{"/stray", "walls"}, func(l *containers.Launch) {
		l.Dir = dir
		l.Env = append([]string{"TWICE=1"}, append(l.Env, "TWICE=2", "CUDA_VISIBLE_DEVICES=1")...)
		l.Limits.OpenFiles = 99
	})
	exit := in.wantExit(t)
	if exit.Code != 0 {
		t.Fatalf("%+v\n%s", exit, in.err)
	}
	got := in.out.String()
	for _, want := range []string{
		"write /: open /x: read-only file system\n", "write the program's directory: open /usr/x: read-only file system\n", "write /model: open /model/x: read-only file system\n",
		"write the socket's directory: open /run/xebec/x: ", "write /tmp: <nil>\n", "read the model: <nil>\n", "the model says: hello\n",
		"run from /tmp: fork/exec /tmp/stray: permission denied\n", "networks: 0\n", "connect: dial tcp 192.0.2.1:80: connect: network is unreachable\n",
		"mount: operation not permitted\n", "become root: operation not permitted\n", "ids: 1234:1234\n",
		"CapInh: 0000000000000000\n", "CapPrm: 0000000000000000\n", "CapEff: 0000000000000000\n", "CapBnd: 0000000000000000\n", "CapAmb: 0000000000000000\n",
		"NoNewPrivs: 1\n", "Seccomp: 2\n", "XEBEC_SOCKET=/run/xebec/worker.sock (true)\n", "XEBEC_GPUS= (false)\n", "CUDA_VISIBLE_DEVICES=1 (true)\n", "TWICE=2 (true)\n",
		"in /model\n", "sockets: 1\n", "baked:  open /baked/weights: no such file or directory\n", "write a volume: <nil>\n", "a volume holds 64 MiB\n", "core: 0\n", "files: 99\n",
		"below a mount: open /model/mounted/x: read-only file system\n",
		"MiB of /tmp: write /tmp/fill: no space left on device\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("expected %q", want)
		}
	}
	if strings.Contains(got, "write the socket's directory: <nil>") || t.Failed() {
		t.Errorf("%s", got)
	}
}

// A spy in a container gets at nothing of its gateway or of another replica, though the files and processes that it tries are open to
// every user of the host. Its daemon ends with it, and the other replica stays.
func TestSpy(t *testing.T) {
	g := newRig(t, address)
	dir := modelDir(t)
	token, store := filepath.Join(dir, "token"), filepath.Join(dir, "state.db")
	for _, path := range []string{token, store} {
		if err := os.WriteFile(path, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	peer := g.start([]string{"/stray", "sleep"}, nil)
	peer.wantOutput(t, "asleep")
	word := fmt.Sprintf("daemon-of-%d", os.Getpid())
	spy := g.start([]string{"/stray", "spy"}, func(l *containers.Launch) {
		l.Env = append(l.Env, "SPY_TOKEN="+token, "SPY_STORE="+store, "SPY_SOCKETS="+filepath.Dir(socketOf(peer)), "SPY_GATEWAY="+strconv.Itoa(os.Getpid()),
			"SPY_PEER="+strconv.Itoa(peer.PID()), "SPY_ADMIN="+admin.Addr().String(), "SPY_WORD="+word)
	})
	if exit := spy.wantExit(t); exit.Code != 0 {
		t.Fatalf("%+v\n%s%s", exit, spy.out, spy.err)
	}
	allowed := map[string]bool{"read its own memory": true, "leave a daemon": true}
	tried := 0
	for line := range strings.Lines(spy.out.String()) {
		what, result, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if tried++; strings.HasPrefix(result, "denied") == allowed[what] {
			t.Errorf("%s: %s", what, result)
		}
	}
	if tried != 28 || !strings.HasSuffix(spy.out.String(), "over\n") {
		t.Errorf("%d attempts:\n%s", tried, spy.out)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), word) {
			t.Errorf("the spy's daemon lives: %s says %q", path, b)
		}
	}
	select {
	case <-peer.Exited():
		t.Errorf("the other replica: %+v", peer.Exit())
	default:
	}
}

// A fork bomb stops at its limit and is killed as a whole.
func TestForkBomb(t *testing.T) {
	g := newRig(t, address)
	in := g.start([]string{"/stray", "bomb"}, func(l *containers.Launch) { l.Limits = containers.Limits{PIDs: 60, MemoryBytes: 512 << 20} })
	in.wantOutput(t, "copies, then: ")
	var copies int
	if _, err := fmt.Sscanf(in.out.String(), "%d copies", &copies); err != nil || copies >= 60 || !strings.Contains(in.out.String(), "resource temporarily unavailable") {
		t.Errorf("%v: %s", err, in.out)
	}
	in.Signal(false)
	if exit := in.wantExit(t); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", exit)
	}
}

// A replica that exceeds its memory limit is killed, and the reason names the limit.
func TestMemory(t *testing.T) {
	g := newRig(t, address)
	in := g.start([]string{"/stray", "eat"}, func(l *containers.Launch) { l.Limits.MemoryBytes = 32 << 20 })
	exit := in.wantExit(t)
	if exit.Signal != int(syscall.SIGKILL) || !strings.Contains(exit.String(), "32 MiB (limits.memory)") {
		t.Errorf("%+v", exit)
	}
	if strings.Contains(in.err.String(), "33 MiB\n") {
		t.Errorf("it exceeded its limit: %s", in.err)
	}
}

// So is one whose model declares none, at the bound of all.
func TestMemoryOfMachine(t *testing.T) {
	g := newRig(t, address)
	g.r = g.runtime("a small machine", 32<<20)
	in := g.start([]string{"/stray", "eat"}, nil)
	exit := in.wantExit(t)
	if exit.Signal != int(syscall.SIGKILL) || exit.Cause != containers.OutOfMemory || !strings.Contains(exit.String(), "it took more than 32 MiB") {
		t.Errorf("%+v", exit)
	}
	if strings.Contains(in.err.String(), "33 MiB\n") {
		t.Errorf("it exceeded the bound: %s", in.err)
	}
}

// A replica that ignores SIGTERM is killed.
func TestDeaf(t *testing.T) {
	g := newRig(t, address)
	in := g.start([]string{"/stray", "deaf"}, nil)
	in.wantOutput(t, "deaf")
	if err := in.Signal(true); err != nil {
		t.Error(err)
	}
	info, err := g.engine.ContainerInspect(t.Context(), in.id, client.ContainerInspectOptions{})
	if err != nil || !info.Container.State.Running {
		t.Errorf("error %v, or SIGTERM ended it", err)
	}
	if err := in.Signal(false); err != nil {
		t.Error(err)
	}
	if exit := in.wantExit(t); exit.Signal != int(syscall.SIGKILL) || exit.Reason != "" {
		t.Errorf("%+v", exit)
	}
}

// All output of a replica has arrived when its exit is reported.
func TestOutput(t *testing.T) {
	g := newRig(t, address)
	const lines = 3000
	in := g.start([]string{"/stray", "talk", fmt.Sprint(lines)}, nil)
	if exit := in.wantExit(t); exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	for name, got := range map[string]string{"out": in.out.String(), "err": in.err.String()} {
		if n := strings.Count(got, "\n"); n != lines || !strings.HasSuffix(got, "the end of "+name) {
			t.Errorf("%d lines of %s, expected %d and an end", n, name, lines)
		}
	}
}

// How a container that exits by itself is reported.
func TestExits(t *testing.T) {
	g := newRig(t, address)
	for code, want := range map[string]string{"0": "exited with code 0", "5": "exited with code 5", "137": "ended by SIGKILL"} {
		in := g.start([]string{"/stray", "exit", code}, nil)
		if exit := in.wantExit(t); !strings.HasPrefix(exit.String(), want) {
			t.Errorf("%+v: expected %s", exit, want)
		}
	}
	in := g.start([]string{"/no/such/program"}, nil)
	if exit := in.wantExit(t); exit.Code != 127 || !strings.Contains(exit.String(), `"/no/such/program"`) {
		t.Errorf("%+v, %s", exit, in.err)
	}
	in = g.start([]string{"/stray", "sleep"}, nil)
	in.wantOutput(t, "asleep")
	if err := g.r.remove(t.Context(), in.name); err != nil {
		t.Fatal(err)
	}
	if exit := in.wantExit(t); exit.Signal != int(syscall.SIGKILL) && !strings.Contains(exit.String(), "removed by another program") {
		t.Errorf("%+v", exit)
	}
}

// A launch that fails says why and what to do, and leaves nothing.
func TestRefused(t *testing.T) {
	g := newRig(t, address)
	closed, unreadable := modelDir(t), modelDir(t)
	os.Chmod(closed, 0o700)
	os.WriteFile(filepath.Join(unreadable, "model.py"), nil, 0o600)
	for _, c := range []struct {
		name      string
		change    func(*containers.Launch)
		permanent bool
		parts     []string
	}{
		{"no such image", func(l *containers.Launch) { l.Image = "xebec-test/no-such-image:9" }, true, []string{"xebec-test/no-such-image:9", "docker pull", "docker load", "docker login"}},
		{"an invalid image name", func(l *containers.Launch) { l.Image = "x/../../containers/json?" }, true, []string{"expected a name such as"}},
		{"nothing to run", func(l *containers.Launch) { l.Command = nil }, true, []string{"give one of them a command"}},
		{"no directory", func(l *containers.Launch) { l.Dir = "/no/such/model" }, true, []string{"/no/such/model", "moved or deleted"}},
		{"a closed directory", func(l *containers.Launch) { l.Dir = closed }, true, []string{closed, "65534:65534", "0700", "chmod -R a+rX " + closed}},
		{"a closed file", func(l *containers.Launch) { l.Dir, l.Command = unreadable, []string{"/stray", "model.py"} }, true, []string{"chmod a+r " + unreadable + "/model.py"}},
		{"a relative directory", func(l *containers.Launch) { l.Dir = "model" }, true, []string{"absolute"}},
		{"too little memory", func(l *containers.Launch) { l.Limits.MemoryBytes = 1 << 20 }, true, []string{"memory"}},
		{"missing GPUs", func(l *containers.Launch) { l.Env = append(l.Env, "XEBEC_GPUS=0,2") }, true, []string{"NVIDIA container toolkit"}},
		{"a bad variable", func(l *containers.Launch) { l.Env = append(l.Env, "A\x00=b") }, true, []string{"NAME=value"}},
		{"no socket", func(l *containers.Launch) { l.Env = nil }, false, []string{"XEBEC_SOCKET"}},
		{"a missing socket", func(l *containers.Launch) { l.Env = append(l.Env, "XEBEC_SOCKET=/no/socket") }, false, []string{"/no/socket"}},
		{"a file that is no socket", func(l *containers.Launch) { l.Env = append(l.Env, "XEBEC_SOCKET=/etc/passwd") }, false, []string{"not a socket"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := g.launch([]string{"/stray", "sleep"}, c.change)
			_, err := g.r.Start(t.Context(), l)
			var permanent containers.Permanent
			if err == nil || (errors.As(err, &permanent) && permanent.Permanent()) != c.permanent {
				t.Fatalf("%v: expected an error, permanent: %v", err, c.permanent)
			}
			for _, part := range c.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: expected %q", err, part)
				}
			}
		})
	}
	if left := g.containers(labelGateway + "=" + t.Name()); len(left) != 0 {
		t.Errorf("containers left behind: %v", left)
	}
}

// An engine that is not there may start later: the error names it and is not permanent.
func TestNoEngine(t *testing.T) {
	r, err := New(Config{Host: "unix:///no/such/docker.sock", Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	l := containers.Launch{Image: "x", Env: []string{"XEBEC_SOCKET=" + listen(t, dir)}}
	_, err = r.Start(t.Context(), l)
	var permanent containers.Permanent
	if err == nil || errors.As(err, &permanent) || !strings.Contains(err.Error(), "unix:///no/such/docker.sock") || !strings.Contains(err.Error(), "systemctl") {
		t.Errorf("%v", err)
	}
	if err := r.Sweep(t.Context()); err == nil {
		t.Error("Sweep without an engine: no error")
	}
}

// A launch that is cancelled at any time leaves nothing running.
func TestGivenUp(t *testing.T) {
	g := newRig(t, address)
	var wg sync.WaitGroup
	for i := range 12 {
		l, _ := g.launch([]string{"/stray", "sleep"}, nil)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*30*time.Millisecond)
			defer cancel()
			if in, err := g.r.Start(ctx, l); err == nil { // it was faster
				in.Signal(false)
				<-in.Exited()
			}
		})
	}
	wg.Wait()
	if left := g.containers(labelGateway + "=" + t.Name()); len(left) != 0 {
		t.Errorf("containers left behind: %v", left)
	}
}

// Close ends what runs, what ignores SIGTERM and what is starting; nothing starts after it.
func TestClose(t *testing.T) {
	g := newRig(t, address)
	g.r = g.runtime("another", 0)
	one, two := g.start([]string{"/stray", "sleep"}, nil), g.start([]string{"/stray", "deaf"}, nil)
	one.wantOutput(t, "asleep")
	two.wantOutput(t, "deaf")
	var wg sync.WaitGroup
	for range 6 {
		l, _ := g.launch([]string{"/stray", "sleep"}, nil)
		wg.Go(func() {
			if in, err := g.r.Start(t.Context(), l); err == nil {
				<-in.Exited()
			}
		})
	}
	if err := g.r.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if e1, e2 := one.wantExit(t), two.wantExit(t); e1.Code != 7 || e2.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v, %+v", e1, e2)
	}
	if left := g.containers(labelGateway + "=another"); len(left) != 0 {
		t.Errorf("containers left behind: %v", left)
	}
	l, _ := g.launch([]string{"/stray", "sleep"}, nil)
	if _, err := g.r.Start(t.Context(), l); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("started after Close: %v", err)
	}
}

// A killed gateway leaves containers behind. The next one removes them, and does not touch others.
func TestOrphans(t *testing.T) {
	g := newRig(t, address)
	foreign, err := g.engine.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: g.image, Cmd: []string{"/stray", "sleep"},
		Labels: map[string]string{"io.xebec.gateway": "a foreign container with our label"}}, HostConfig: &container.HostConfig{NetworkMode: "none"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.r.remove(context.Background(), foreign.ID) })
	living := g.runtime("a living gateway", 0)
	l, _ := g.launch([]string{"/stray", "deaf"}, nil)
	kept, err := living.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	victim := exec.Command("/proc/self/exe")
	victim.Env = append(os.Environ(), envPart+"=gateway", "PART_HOST="+g.host, "PART_IMAGE="+g.image, "PART_SOCKET="+listen(t, dir))
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var name string
	if _, err := fmt.Fscanln(out, &name); err != nil {
		t.Fatalf("the gateway to be killed: %v", err)
	}
	if err := g.r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := g.containers("name"); len(g.containers(labelGateway+"=victim")) != 1 {
		t.Errorf("a living gateway's container was removed; left: %v", left)
	}
	victim.Process.Kill()
	victim.Wait()

	next := g.runtime("the next gateway", 0)
	if err := next.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := g.containers(labelGateway + "=victim"); len(left) != 0 {
		t.Errorf("containers of the killed gateway left behind: %v", left)
	}
	if _, err := g.engine.ContainerInspect(t.Context(), foreign.ID, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("a foreign container: %v", err)
	}
	info, err := g.engine.ContainerInspect(t.Context(), kept.(*instance).id, client.ContainerInspectOptions{})
	if err != nil || !info.Container.State.Running {
		t.Errorf("a living gateway's container: %v", err)
	}
}
