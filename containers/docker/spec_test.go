package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/jsonstream"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/containers"
)

func TestUserOf(t *testing.T) {
	for image, want := range map[string]string{
		"": nobody, "0": nobody, "0:0": nobody, "0:5": nobody, "root": nobody, "app": nobody, "app:app": nobody, "1000:app": nobody, "-1": nobody, "1000:-1": nobody, ":": nobody,
		"1000": "1000:1000", "1000:100": "1000:100", "1001:0": "1001:0", "01000": "1000:1000",
	} {
		if user, uid, gid := userOf(image); user != want || fmt.Sprintf("%d:%d", uid, gid) != want {
			t.Errorf("%q: %s (%d, %d), expected %s", image, user, uid, gid, want)
		}
	}
}

// No replica runs as root, whatever the image says.
func TestUserIsNeverRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		image := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9+-]{0,4}(:[0-9a-z+-]{0,4})?`)).Draw(t, "user")
		if _, uid, _ := userOf(image); uid <= 0 {
			t.Fatalf("%q runs as %d", image, uid)
		}
	})
}

func TestExitOf(t *testing.T) {
	limited := containers.Launch{Image: "img", Command: []string{"python"}, Limits: containers.Limits{MemoryBytes: 256 << 20}}
	for _, c := range []struct {
		code   int
		oom    bool
		asked  bool
		bound  int64
		launch containers.Launch
		signal int
		want   string
	}{
		{code: 0, want: "exited with code 0"},
		{code: 1, want: "exited with code 1"},
		{code: 143, signal: 15, want: "ended by SIGTERM (asked to end)"},
		{code: 139, signal: 11, want: "ended by SIGSEGV (an invalid memory access in native code)"},
		{code: 255, want: "exited with code 255"},
		{code: 137, oom: true, launch: limited, signal: 9, want: "killed by the kernel: it exceeded its memory limit of 256 MiB (limits.memory)"},
		{code: 137, oom: true, signal: 9, want: "killed by the kernel: the host ran out of memory"},
		{code: 137, launch: limited, signal: 9, want: "ended by SIGKILL (killed from outside: the kernel does this when memory runs out); its memory limit is 256 MiB (limits.memory)"},
		{code: 137, launch: limited, asked: true, signal: 9, want: "ended by SIGKILL (killed from outside: the kernel does this when memory runs out)"},
		{code: 1, oom: true, launch: limited, want: "exited with code 1, after the kernel killed one of its processes at its memory limit of 256 MiB (limits.memory)"},
		{code: 137, oom: true, bound: 3 << 30, launch: limited, signal: 9, want: "killed by the kernel: it exceeded its memory limit of 256 MiB (limits.memory)"},
		{code: 137, oom: true, bound: 3 << 30, signal: 9, want: "killed by the kernel: it took more than 3072 MiB, which is what the machine, or the gateway's cgroup, has for replicas, or the host ran out of memory; " +
			"bound each model (limits.memory), or find out what the models hold"},
		{code: 1, oom: true, bound: 3 << 30, want: "exited with code 1, after the kernel killed one of its processes: it took more than 3072 MiB, which is what the machine, or the gateway's cgroup, has for replicas, " +
			"or the host ran out of memory; bound each model (limits.memory), or find out what the models hold"},
		{code: 137, bound: 3 << 30, signal: 9, want: "ended by SIGKILL (killed from outside: the kernel does this when memory runs out)"},
		{code: 127, launch: limited, want: `exited with code 127: is there a program "python" in the image img?`},
	} {
		in := &instance{r: &Runtime{memory: c.bound}, launch: c.launch}
		in.endRequested.Store(c.asked)
		if exit := in.exitOf(c.code, c.oom); exit.String() != c.want || exit.Signal != c.signal {
			t.Errorf("code %d: %q, signal %d; expected %q, %d", c.code, exit, exit.Signal, c.want, c.signal)
		} else if (exit.Cause == containers.OutOfMemory) != c.oom {
			t.Errorf("code %d, out of memory: %t: it is counted as %v", c.code, c.oom, exit.Cause)
		}
	}
}

func TestAbandoned(t *testing.T) {
	me := owner{id: "me", boot: "b", pids: "pid:[1]", pid: 10, start: 100}
	gone := func(pid int, start uint64) bool { return pid >= 50 || start != uint64(pid*10) }
	change := func(f func(*owner)) owner { o := me; f(&o); return o }
	for name, c := range map[string]struct {
		o    owner
		want bool // while it runs
	}{
		"mine, and not known":             {me, true},
		"of an earlier boot":              {change(func(o *owner) { o.id, o.boot = "other", "a" }), true},
		"of another that runs":            {change(func(o *owner) { o.id, o.pid, o.start = "other", 20, 200 }), false},
		"of another in this process":      {change(func(o *owner) { o.id = "other" }), false},
		"of another whose pid was reused": {change(func(o *owner) { o.id, o.pid, o.start = "other", 20, 150 }), true},
		"of another that is gone":         {change(func(o *owner) { o.id, o.pid, o.start = "other", 60, 600 }), true},
		"of my earlier process":           {change(func(o *owner) { o.pid, o.start = 60, 90 }), true},
		"of my name, which runs":          {change(func(o *owner) { o.pid, o.start = 20, 200 }), false},
		"in another name space":           {change(func(o *owner) { o.id, o.pids, o.pid = "other", "pid:[2]", 60 }), false},
		"in another name space, my name":  {change(func(o *owner) { o.pids = "pid:[2]" }), false},
	} {
		if got := me.abandoned(c.o, false, gone); got != c.want {
			t.Errorf("%s: abandoned %v", name, got)
		}
		ended := c.want || strings.HasSuffix(name, "my name") // an ended container is abandoned if nothing else decides
		if got := me.abandoned(c.o, true, gone); got != ended {
			t.Errorf("%s, ended: abandoned %v", name, got)
		}
		back, ok := ownerOf(c.o.labels())
		if !ok || back != c.o {
			t.Errorf("%s: %+v was parsed as %+v", name, c.o, back)
		}
	}
	for _, labels := range []map[string]string{nil, {labelGateway: "x"}, {labelGateway: "x", labelPID: "1", labelStart: "2"}} {
		if o, ok := ownerOf(labels); ok {
			t.Errorf("labels %v were accepted as ours: %+v", labels, o)
		}
	}
}

func TestStartOf(t *testing.T) {
	if start, ok := startOf(os.Getpid()); !ok || start == 0 {
		t.Error("startOf does not find this process")
	}
}

// A sweep takes a process for dead only if it is sure of that.
func TestHasEnded(t *testing.T) {
	start, _ := startOf(os.Getpid())
	if hasEnded(os.Getpid(), start) {
		t.Error("this process has ended")
	}
	if !hasEnded(os.Getpid(), start+1) {
		t.Error("a process whose pid is this one's now lives")
	}
	const noPID = 1<<22 + 1 // above the highest pid
	if !hasEnded(noPID, start) {
		t.Error("a process that does not exist lives")
	}
	stat := func(state string) []byte {
		return []byte("7 (x) " + state + strings.Repeat(" 1", 18) + " 100 0")
	}
	for name, c := range map[string]struct {
		signalled error
		stat      []byte
		err       error
		want      bool
	}{
		"it lives":                     {nil, stat("S"), nil, false},
		"another user's lives":         {syscall.EPERM, stat("S"), nil, false},
		"a zombie":                     {nil, stat("Z"), nil, true},
		"there is none":                {syscall.ESRCH, nil, os.ErrNotExist, true},
		"it is hidden":                 {syscall.EPERM, nil, os.ErrNotExist, false},
		"it cannot be read just now":   {nil, nil, syscall.EMFILE, false},
		"what is read is not expected": {nil, []byte("7"), nil, false},
	} {
		if got := provesEnd(c.signalled, c.stat, c.err, 100); got != c.want {
			t.Errorf("%s: ended %v", name, got)
		}
	}
}

func TestConfig(t *testing.T) {
	for part, cfg := range map[string]Config{
		"through memory that both map": {Host: "tcp://127.0.0.1:2375", Owner: "x"},
		"unix:///path":                 {Host: "unix://docker.sock", Owner: "x"},
		"Owner":                        {Host: "unix:///x"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: %v, expected %q", cfg, err, part)
		}
	}
	for env, want := range map[string]string{"": defaultHost, "unix:///elsewhere/docker.sock": "unix:///elsewhere/docker.sock"} {
		t.Setenv("DOCKER_HOST", env)
		r, err := New(Config{Owner: "x"})
		if err != nil || r.host != want {
			t.Fatalf("%v: %v, expected %s", r, err, want)
		}
		r.Close()
	}
	t.Setenv("DOCKER_HOST", "ssh://elsewhere") // an error for launches, not for a gateway that runs no images
	r, err := New(Config{Owner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Start(t.Context(), containers.Launch{Image: "x", Env: []string{"XEBEC_SOCKET=" + listen(t, t.TempDir())}})
	var permanent *containers.LaunchError
	if !errors.As(err, &permanent) || !strings.Contains(err.Error(), "ssh://elsewhere") {
		t.Errorf("%v", err)
	}
}

// The rights that a mode gives to owner, group and others.
func TestGrants(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	for _, c := range []struct {
		mode     os.FileMode
		uid, gid int
		want     bool
	}{
		{0o600, uid, gid, true}, {0o600, uid + 1, gid, false}, {0o640, uid + 1, gid, true}, {0o640, uid + 1, gid + 1, false},
		{0o604, uid + 1, gid + 1, true}, {0o004, uid, gid, false}, {0o604, uid + 1, gid, false},
	} {
		os.Chmod(file, c.mode)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := grants(file, info, c.uid, c.gid, 0o4); got != c.want {
			t.Errorf("mode %o for %d:%d: %v", c.mode, c.uid-uid, c.gid-gid, got)
		}
	}
}

// fakeEngine answers with a handler. It covers what a real engine without a registry cannot show. The Config lacks only
// the engine's address and the owner.
func fakeEngine(t *testing.T, cfg Config, handle http.HandlerFunc) *Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "xdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("Api-Version", "1.41")
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			fmt.Fprint(w, "[]")
		default:
			handle(w, r)
		}
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	cfg.Host, cfg.Owner = "unix://"+filepath.Join(dir, "s"), t.Name()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// What the engine is asked for bounds the memory and the processes of each container, also where its model declares no
// limits.
func TestCreateRequest(t *testing.T) {
	type bounds struct{ Memory, MemorySwap, PidsLimit int64 }
	const machine = 3 << 30
	for name, c := range map[string]struct {
		bound  int64 // Config.MemoryBytes
		limits containers.Limits
		want   bounds
	}{
		"no limits":                         {machine, containers.Limits{}, bounds{machine, machine, 512}},
		"a limit of something else":         {machine, containers.Limits{CPUMillis: 500, PIDs: 33}, bounds{machine, machine, 33}},
		"a limit of memory":                 {machine, containers.Limits{MemoryBytes: 1 << 30}, bounds{1 << 30, 1 << 30, 512}},
		"a limit larger than the machine":   {machine, containers.Limits{MemoryBytes: 8 << 30}, bounds{8 << 30, 8 << 30, 512}},
		"the machine's memory not known":    {0, containers.Limits{}, bounds{0, 0, 512}},
		"a limit, and that is not known":    {0, containers.Limits{MemoryBytes: 1 << 30}, bounds{1 << 30, 1 << 30, 512}},
		"a bound that is no size of memory": {-1, containers.Limits{}, bounds{0, 0, 512}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan bounds, 1)
			r := fakeEngine(t, Config{MemoryBytes: c.bound}, func(w http.ResponseWriter, req *http.Request) {
				if !strings.HasSuffix(req.URL.Path, "/containers/create") {
					fmt.Fprint(w, `{"Config":{"User":"7"}}`)
					return
				}
				var body struct{ HostConfig bounds }
				if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				asked <- body.HostConfig
				w.WriteHeader(http.StatusBadRequest) // the request is all that is looked at
				fmt.Fprint(w, `{"message":"enough"}`)
			})
			_, err := r.Start(t.Context(), containers.Launch{Image: "x", Limits: c.limits, Env: []string{"XEBEC_SOCKET=" + listen(t, t.TempDir())}})
			if err == nil || !strings.Contains(err.Error(), "enough") {
				t.Fatalf("%v", err)
			}
			if got := <-asked; got != c.want {
				t.Errorf("%+v, expected %+v", got, c.want)
			}
		})
	}
}

// A pull reports its progress, and the pulled image is used.
func TestPull(t *testing.T) {
	pulled := false
	r := fakeEngine(t, Config{}, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/images/create"):
			if image := req.URL.Query().Get("fromImage") + ":" + req.URL.Query().Get("tag"); image != "registry.example.org/team/model:1.2" {
				t.Errorf("pulled %s", image)
			}
			pulled = true
			for _, m := range []string{
				`{"status":"Pulling from team/model","id":"1.2"}`, `{"status":"Pulling fs layer","id":"aa"}`, `{"status":"Downloading","id":"aa","progressDetail":{"current":1048576,"total":8388608}}`,
				`{"status":"Already exists","id":"bb"}`, `{"status":"Download complete","id":"aa"}`, `{"status":"Pull complete","id":"aa"}`, `{"status":"Status: Downloaded newer image"}`,
			} {
				fmt.Fprintln(w, m)
			}
		case pulled:
			json.NewEncoder(w).Encode(map[string]any{"Config": map[string]any{"User": "7"}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	var log collected
	img, err := r.image(t.Context(), containers.Launch{Image: "registry.example.org/team/model:1.2", Stderr: &log})
	if err != nil || img.user != "7" {
		t.Errorf("%+v, %v", img, err)
	}
	if got := log.String(); !strings.HasPrefix(got, "pulling registry.example.org/team/model:1.2: it is not on this host\n") || !strings.Contains(got, "\npulled registry.example.org/team/model:1.2 in ") {
		t.Errorf("log %q", got)
	}
}

// Errors during a pull, and the sum of its messages.
func TestProgress(t *testing.T) {
	r := fakeEngine(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"errorDetail":{"code":401,"message":"unauthorized: a password is wanted"},"error":"unauthorized"}`)
	})
	err := r.pull(t.Context(), containers.Launch{Image: "private"}, "private")
	if err == nil || !strings.Contains(err.Error(), "a password is wanted") || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("%v", err)
	}
	r = fakeEngine(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"Downloading","id":"aa","progressDetail":{"current":1,"total":2}}`+"\n{")
		panic(http.ErrAbortHandler) // the engine goes away in the middle
	})
	if err := r.pull(t.Context(), containers.Launch{Image: "cut"}, "cut"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}

	var p progress
	for _, m := range []string{
		`{"status":"Pulling from team/model","id":"1.2"}`, `{"status":"Pulling fs layer","id":"aa"}`, `{"status":"Pulling fs layer","id":"bb"}`, `{"status":"Already exists","id":"cc"}`,
		`{"status":"Downloading","id":"aa","progressDetail":{"current":3145728,"total":8388608}}`, `{"status":"Downloading","id":"bb","progressDetail":{"current":1048576,"total":1048576}}`,
		`{"status":"Pull complete","id":"bb"}`,
	} {
		var message jsonstream.Message
		if err := json.Unmarshal([]byte(m), &message); err != nil {
			t.Fatal(err)
		}
		p.update(message)
	}
	if got := p.String(); got != "2 of 3 layers, 4 of 9 MiB" {
		t.Errorf("%s", got)
	}
}
