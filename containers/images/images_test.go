// The images built by build.sh serve models: this is what `run: {image: …}` starts.
package images_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/docker"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// The engine, and the tag of build.sh's images on it. .ci/test.sh sets both.
const (
	envEngine = "XEBEC_TEST_DOCKER"
	envTag    = "XEBEC_TEST_IMAGES"
)

func TestMain(m *testing.M) {
	// netpoll's pollers serve the whole process and never end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// collected is a container's output.
type collected struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *collected) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

func (c *collected) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// rig is a hub and a runtime, as in a gateway.
type rig struct {
	t   *testing.T
	tag string
	hub *local.Hub
	r   *docker.Runtime
}

func newRig(t *testing.T) *rig {
	t.Helper()
	host, tag := os.Getenv(envEngine), os.Getenv(envTag)
	if tag == "" {
		t.Skipf("%s names no images: containers/images/build.sh builds them, .ci/test.sh runs this with them", envTag)
	}
	dir, err := os.MkdirTemp("/tmp", "xebec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	hub, err := local.Listen(local.Config{Socket: filepath.Join(dir, "w"), Doors: filepath.Join(dir, "d"), Now: workertest.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Close() })
	r, err := docker.New(docker.Config{Host: host, Owner: t.Name(), Sockets: filepath.Join(dir, "d", "w")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{t, tag, hub, r}
}

// start starts an image like the gateway and waits until its worker is ready.
func (g *rig) start(image, modelDir string, sig api.Signature, change func(*containers.Launch)) (*workertest.Session, containers.Instance, *collected) {
	t := g.t
	t.Helper()
	launch := workertest.Expect(t, g.hub, worker.Expectation{Signature: sig, Depth: 2, Isolated: true})
	out := &collected{}
	l := containers.Launch{Replica: 1, Model: workertest.Model, Dir: modelDir, Image: image + ":" + g.tag, Env: launch.Env, Stdout: out, Stderr: out,
		Limits: containers.Limits{MemoryBytes: 512 << 20}}
	if change != nil {
		change(&l)
	}
	in, err := g.r.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the container's output:\n%s", out)
		}
	})
	return workertest.NewSession(t, launch), in, out
}

// end drains the replica, which then exits with 0.
func end(t *testing.T, s *workertest.Session, in containers.Instance) {
	t.Helper()
	s.Drain()
	select {
	case <-in.Exited():
	case <-time.After(time.Minute):
		t.Fatal("the container has not ended")
	}
	if exit := in.Exit(); exit.Code != 0 {
		t.Errorf("%v", exit)
	}
}

// A model directory with a model.py that computes with numpy and reads a file beside it.
func TestPython(t *testing.T) {
	const model = `
import numpy as np, xebec, xebec._ring
from xebec._link import ring_module
weights = np.loadtxt("weights.txt", dtype=np.float32)
print("ring:", ring_module() is not None)
xebec.serve(lambda batch: batch @ weights)
`
	dir := modelDir(t, map[string]string{"model.py": model, "weights.txt": "1 2 3\n"})
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("x", api.Float32, 3)}, Outputs: []api.TensorSpec{workertest.Spec("y", api.Float32)}}
	s, in, out := newRig(t).start("xebec-python", dir, sig, nil)
	b := s.Send([]api.Value{{Data: floats(1, 1, 1)}}, []api.Value{{Data: floats(0.5, 0, 2)}})
	s.WantOK(b)
	for i, want := range []float32{6, 6.5} {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(b.Queries[i].Outputs[0].Data)); got != want {
			t.Errorf("query %d: %v, expected %v", i, got, want)
		}
	}
	end(t, s, in)
	if !strings.Contains(out.String(), "ring: True") {
		t.Errorf("the binding has no extension: %s", out)
	}
}

// modelDir makes a model's directory that every user may read.
func modelDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "xebec-model")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// awaitWaiting waits until so many containers wait with imported modules.
func (g *rig) awaitWaiting(n int) (pids []int) {
	g.t.Helper()
	deadline, tick := time.After(2*time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		if pids = g.r.Zygotes(); len(pids) == n {
			return pids
		}
		select {
		case <-tick.C:
		case <-deadline:
			g.t.Fatalf("%d containers wait, expected %d", len(pids), n)
		}
	}
}

// A container imports the modules of preload and waits. It becomes the next replica, with its own arguments, environment and limits, and
// its exit; then another one waits. A launch that finds none starts as ever. When the model is not announced any more, none waits.
func TestWarm(t *testing.T) {
	const model = `
import sys
there = "numpy" in sys.modules
import os, xebec
print("preloaded:", there, "argv:", sys.argv, "cwd:", os.getcwd(), "first:", sys.path[0], "main:", __name__, "key:", os.environ["KEY"], "early:", os.environ["EARLY"])
def predict(batch):
    if batch[0] == b"hog":
        b"x" * (1 << 30)
    return [os.environ["KEY"].encode() + b" %d" % os.getpid() for _ in batch]
xebec.serve(predict)
`
	g := newRig(t)
	dir := modelDir(t, map[string]string{"model.py": model})
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("input", api.Bytes)}, Outputs: []api.TensorSpec{workertest.Spec("output", api.Bytes)}}
	preload := func(key string) func(l *containers.Launch) {
		return func(l *containers.Launch) {
			l.Preload, l.Secret = []string{"numpy"}, []string{"KEY"}
			l.Env = append(l.Env, "EARLY=bird")
			if key != "" {
				l.Env = append(l.Env, "KEY="+key)
			}
		}
	}
	announced := containers.Launch{Model: workertest.Model, Dir: dir, Image: "xebec-python:" + g.tag, Limits: containers.Limits{MemoryBytes: 512 << 20}}
	preload("")(&announced)
	g.r.Preload([]containers.Launch{announced})
	first := g.awaitWaiting(1)[0]

	s, in, out := g.start("xebec-python", dir, sig, preload("one"))
	if n := len(g.r.Zygotes()); n != 0 {
		t.Errorf("%d containers wait while a replica runs", n)
	}
	s.WantTexts(s.Send(workertest.Texts("x")...), "one "+pidInside(t, first))
	want := "preloaded: True argv: ['model.py'] cwd: /model first: /model main: __main__ key: one early: bird"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the replica printed %q, expected %q", out, want)
	}
	// Another replica of the model beside it finds no container.
	other, otherIn, otherOut := g.start("xebec-python", dir, sig, preload("two"))
	if !strings.Contains(otherOut.String(), "preloaded: False") || strings.Contains(otherOut.String(), "does not start from") {
		t.Errorf("the replica beside it printed %q", otherOut)
	}
	end(t, other, otherIn)
	end(t, s, in)

	// The limits are the replica's: it ends for memory like any other.
	g.awaitWaiting(1)
	s, in, _ = g.start("xebec-python", dir, sig, preload("three"))
	s.Send(workertest.Texts("hog")...)
	select {
	case <-in.Exited():
	case <-time.After(2 * time.Minute):
		t.Fatal("the replica has not ended")
	}
	if exit := in.Exit(); exit.Cause != containers.OutOfMemory {
		t.Errorf("a replica beyond its limit: %+v", exit)
	}
	s.End()
	g.awaitWaiting(1)
	g.r.Preload(nil)
	g.awaitWaiting(0)
}

// pidInside is a process's id in its container.
func pidInside(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(ids)
			return all[len(all)-1]
		}
	}
	t.Fatalf("%s", status)
	return ""
}

// What cannot wait is said in the log of the replica, which starts as ever.
func TestWarmFails(t *testing.T) {
	g := newRig(t)
	dir := modelDir(t, map[string]string{"model.py": "import xebec\nxebec.serve(lambda batch: batch)\n"})
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("input", api.Bytes)}, Outputs: []api.TensorSpec{workertest.Spec("output", api.Bytes)}}
	preload := func(l *containers.Launch) { l.Preload = []string{"no_such_module"} }
	announced := containers.Launch{Model: workertest.Model, Dir: dir, Image: "xebec-python:" + g.tag, Limits: containers.Limits{MemoryBytes: 512 << 20}}
	preload(&announced)
	g.r.Preload([]containers.Launch{announced})
	s, in, out := g.start("xebec-python", dir, sig, preload)
	s.WantTexts(s.Send(workertest.Texts("x")...), "x")
	if text := out.String(); !strings.Contains(text, "does not start from a container that waits") || !strings.Contains(text, "No module named 'no_such_module'") {
		t.Errorf("the replica's log is %q", text)
	}
	end(t, s, in)
}

// A compiled model that is alone in its image.
func TestEcho(t *testing.T) {
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("input", api.Bytes)}, Outputs: []api.TensorSpec{workertest.Spec("output", api.Bytes)}}
	s, in, _ := newRig(t).start("xebec-echo", "", sig, nil)
	s.WantTexts(s.Send(workertest.Texts("alone", "in its image")...), "ALONE", "IN ITS IMAGE")
	end(t, s, in)
}

// Every user may enter the root of each layer and read what the build has copied. On storage drivers that make a container's root of
// its layers' (vfs, btrfs, zfs) a root for root alone keeps a replica, which is another user, out of everything.
func TestEveryUserMayRead(t *testing.T) {
	tag := os.Getenv(envTag)
	if tag == "" {
		t.Skipf("%s names no images: containers/images/build.sh builds them, .ci/test.sh runs this with them", envTag)
	}
	engine, err := client.New(client.WithHost(os.Getenv(envEngine)))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	saved, err := engine.ImageSave(t.Context(), []string{"xebec-python:" + tag, "xebec-echo:" + tag})
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	copied := 0
	for files := tar.NewReader(saved); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for layer := tar.NewReader(files); ; {
			h, err := layer.Next()
			if err != nil { // its end, or it is no layer but a description
				break
			}
			name := path.Join("/", h.Name)
			own := name == "/" || name == "/echo" || strings.HasPrefix(name, "/usr/local/lib/xebec")
			if want := 0o444 | (h.Mode & 0o100 / 0o100 * 0o111); own && h.Typeflag != tar.TypeSymlink && h.Mode&want != want {
				t.Errorf("%s of layer %s has the mode %#o: expected that every user may read it", name, file.Name, h.Mode)
			}
			if own && name != "/" {
				copied++
			}
		}
	}
	if copied < 10 {
		t.Errorf("the layers have %d files of ours", copied)
	}
}

func floats(values ...float32) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
