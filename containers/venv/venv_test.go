package venv

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/process"
)

// patience bounds every wait of these tests. It only elapses if something is broken.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	process.MaybeReaper()
	goleak.VerifyTestMain(m)
}

// output is what a launch writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// counting counts the launches of each program.
type counting struct {
	containers.Runtime
	mu   sync.Mutex
	runs map[string]int
}

func (c *counting) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	c.mu.Lock()
	c.runs[strings.Join(l.Command[1:min(3, len(l.Command))], " ")]++
	c.mu.Unlock()
	return c.Runtime.Start(ctx, l)
}

// newRuntime returns a runtime whose environments and whose models' directories are hidden from replicas.
func newRuntime(t *testing.T, data string) (*Runtime, *counting) {
	t.Helper()
	inner, err := process.New(process.Config{Hidden: []string{data}, NoHostNetwork: "models have none"})
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Runtime: inner, runs: map[string]int{}}
	binding := fstest.MapFS{"__init__.py": {Data: []byte("name = 'the binding'\n")}}
	r := New(Config{Dir: filepath.Join(data, "environments"), Binding: binding, Environ: append(os.Environ(), "PIP_NO_INDEX=1", "UV_NO_INDEX=1", "SECRET=x")}, c)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, c
}

// wheel makes a wheel of a package with one module.
func wheel(t *testing.T, dir, name, source string) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for member, text := range map[string]string{
		name + ".py": source, info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":  "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD": name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n",
	} {
		f, err := w.Create(member)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, name+"-1.0-py3-none-any.whl"), b.String())
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// data is a gateway's directory, where no other user looks.
func data(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "xebec-venv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// run starts Python in a model's directory, and returns what it writes.
func run(t *testing.T, r *Runtime, dir, program string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := &output{}
	inst, err := r.Start(ctx, containers.Launch{
		Model: api.ModelID{Name: "m", Version: "1"}, Dir: dir, Command: []string{"python3", "-c", program}, Environment: true, Stdout: out, Stderr: out,
	})
	if err != nil {
		return out.String(), err
	}
	select {
	case <-inst.Exited():
	case <-ctx.Done():
		t.Fatal(ctx.Err(), out)
	}
	return out.String(), nil
}

// An environment has what the directory asks for and the binding, and not the packages of the gateway. It is built once, for several
// launches at once and for later gateways; other requirements are another environment.
func TestEnvironment(t *testing.T) {
	models, store := data(t), data(t)
	dir := filepath.Join(models, "m")
	wheel(t, dir, "greeting", "word = 'hello'\n")
	write(t, filepath.Join(dir, "requirements.txt"), "# what it needs\n-r more/others.txt\n")
	write(t, filepath.Join(dir, "more", "others.txt"), "./greeting-1.0-py3-none-any.whl\n")
	r, runs := newRuntime(t, store)
	const program = "import greeting, xebec, os; print(greeting.word, xebec.name, 'SECRET' in os.environ)"
	var several sync.WaitGroup
	for range 3 {
		several.Go(func() {
			out, err := run(t, r, dir, program)
			if err != nil || !strings.HasSuffix(out, "hello the binding False\n") || !strings.Contains(out, containers.EnvironmentPrefix) {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	several.Wait()
	built := runs.runs["-m venv"] + runs.runs["venv --allow-existing"]
	if built != 1 {
		t.Errorf("%d environments were made for three launches: %v", built, runs.runs)
	}

	later, runs := newRuntime(t, store)
	if out, err := run(t, later, dir, program); err != nil || out != "hello the binding False\n" || len(runs.runs) != 1 {
		t.Errorf("a later gateway: got %q, %v, and ran %v: expected no build", out, err, runs.runs)
	}
	wheel(t, dir, "greeting", "word = 'good day'\n")
	if out, err := run(t, later, dir, program); err != nil || !strings.HasSuffix(out, "good day the binding False\n") {
		t.Errorf("another wheel: got %q, %v", out, err)
	}

	// What a build that was killed has left is not used.
	found, err := filepath.Glob(filepath.Join(store, "environments", "*", markName))
	if err != nil || len(found) != 2 {
		t.Fatalf("there are %d environments, %v: expected two", len(found), err)
	}
	for _, mark := range found {
		if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(filepath.Dir(mark), "venv", "lib")); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(t, later, dir, program); err != nil || !strings.HasSuffix(out, "good day the binding False\n") {
		t.Errorf("after a build that was killed: got %q, %v", out, err)
	}
}

// A build that fails says so with what the installer said, and is not made again at once.
func TestBuildThatFails(t *testing.T) {
	models := data(t)
	write(t, filepath.Join(models, "pyproject.toml"), "[project]\nname = \"m\"\ndependencies = [\"no-such-package>=2\"]\n")
	r, runs := newRuntime(t, data(t))
	for range 2 {
		_, err := run(t, r, models, "")
		var permanent containers.Permanent
		if err == nil || !strings.Contains(err.Error(), "no-such-package") || !strings.Contains(err.Error(), "install the requirements") || !errors.As(err, &permanent) {
			t.Errorf("got %v: expected what the installer says", err)
		}
	}
	if built := runs.runs["-m venv"] + runs.runs["venv --allow-existing"]; built != 1 {
		t.Errorf("%d builds: expected one", built)
	}
	if left, err := filepath.Glob(filepath.Join(r.cfg.Dir, "*", "*")); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// blocking is a runtime whose launches run until they are signalled.
type blocking struct{ started chan struct{} }

func (b *blocking) Close() error { return nil }

func (b *blocking) Start(context.Context, containers.Launch) (containers.Instance, error) {
	gone := make(chan struct{})
	b.started <- struct{}{}
	return &process0{gone: gone, end: sync.OnceFunc(func() { close(gone) })}, nil
}

type process0 struct {
	gone chan struct{}
	end  func()
}

func (p *process0) PID() int                { return 0 }
func (p *process0) Exited() <-chan struct{} { return p.gone }
func (p *process0) Exit() containers.Exit   { return containers.Exit{Code: -1, Signal: 9} }
func (p *process0) Signal(bool) error       { p.end(); return nil }

// A build ends when no launch waits for it, and leaves nothing.
func TestBuildThatIsNotWanted(t *testing.T) {
	dir := data(t)
	write(t, filepath.Join(dir, "requirements.txt"), "numpy\n")
	inner := &blocking{started: make(chan struct{}, 1)}
	r := New(Config{Dir: filepath.Join(dir, "environments"), Binding: fstest.MapFS{}, Environ: os.Environ()}, inner)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.Start(ctx, containers.Launch{Dir: dir, Command: []string{"python3"}, Environment: true})
		ended <- err
	}()
	<-inner.started
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "environments", "*", "*")); err != nil || len(left) != 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// What a model's directory may not ask for is refused before anything is built.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"-e .", "an environment is made once"},
		{"--editable=./src", "an environment is made once"},
		{"-r ../secrets.txt", "expected a file in the model's directory"},
		{"-rhttps://example.com/x.txt", "expected a file in the model's directory"},
		{"-r missing.txt", "cannot be read"},
		{"-c linked.txt", "cannot be read"},
		{"./source", "or a wheel"},
		{"../x-1-py3-none-any.whl", "or a wheel"},
		{"file:///etc/passwd", "or a wheel"},
		{strings.Repeat("#", maxTextBytes+1), "has more than"},
	} {
		dir := data(t)
		write(t, filepath.Join(dir, "requirements.txt"), c.text)
		if err := os.Symlink("/etc/hostname", filepath.Join(dir, "linked.txt")); err != nil {
			t.Fatal(err)
		}
		if _, err := readRequirements(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: got %v: expected %q", c.text, err, c.want)
		}
	}
	dir := data(t)
	write(t, filepath.Join(dir, "pyproject.toml"), "[project]\ndependencies = [\"-r x\"]\n")
	if _, err := readRequirements(dir); err == nil || !strings.Contains(err.Error(), "expected a requirement") {
		t.Errorf("an option in pyproject.toml: got %v", err)
	}
	for i, text := range []string{"", "[project]\nname = \"m\"\n", "[tool.ruff]\n"} {
		dir := data(t)
		if i > 0 {
			write(t, filepath.Join(dir, "pyproject.toml"), text)
		}
		if want, err := readRequirements(dir); want != nil || err != nil {
			t.Errorf("%q: got %v, %v: expected nothing", text, want, err)
		}
	}
}

// An environment that outgrows its bounds is given up.
func TestBounds(t *testing.T) {
	b := &builder{dir: data(t)}
	write(t, filepath.Join(b.dir, "venv", "small"), "x")
	if err := b.within(); err != nil {
		t.Error(err)
	}
	large := filepath.Join(b.dir, "venv", "large")
	write(t, large, "")
	if err := os.Truncate(large, maxBytes+1); err != nil { // a hole
		t.Fatal(err)
	}
	if err := b.within(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d GiB", int64(maxBytes)>>30)) {
		t.Errorf("got %v", err)
	}
}
