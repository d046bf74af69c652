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

// serve starts an image like the gateway and waits until its worker is ready.
func serve(t *testing.T, image, modelDir string, sig api.Signature) (*workertest.Session, containers.Instance, *collected) {
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
	r, err := docker.New(docker.Config{Host: host, Owner: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	launch := workertest.Expect(t, hub, worker.Expectation{Signature: sig, Depth: 2, Isolated: true})
	out := &collected{}
	in, err := r.Start(t.Context(), containers.Launch{Replica: 1, Model: workertest.Model, Dir: modelDir, Image: image + ":" + tag, Env: launch.Env, Stdout: out, Stderr: out,
		Limits: containers.Limits{MemoryBytes: 512 << 20}})
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
	dir, err := os.MkdirTemp("/tmp", "xebec-model")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	const model = `
import numpy as np, xebec, xebec._ring
from xebec._link import ring_module
weights = np.loadtxt("weights.txt", dtype=np.float32)
print("ring:", ring_module() is not None)
xebec.serve(lambda batch: batch @ weights)
`
	for name, text := range map[string]string{"model.py": model, "weights.txt": "1 2 3\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("x", api.Float32, 3)}, Outputs: []api.TensorSpec{workertest.Spec("y", api.Float32)}}
	s, in, out := serve(t, "xebec-python", dir, sig)
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

// A compiled model that is alone in its image.
func TestEcho(t *testing.T) {
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("input", api.Bytes)}, Outputs: []api.TensorSpec{workertest.Spec("output", api.Bytes)}}
	s, in, _ := serve(t, "xebec-echo", "", sig)
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
			if want := int64(0o444 | (h.Mode & 0o100 / 0o100 * 0o111)); own && h.Typeflag != tar.TypeSymlink && h.Mode&want != want {
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
