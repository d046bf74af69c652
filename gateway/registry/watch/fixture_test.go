package watch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is implemented by tests and rapid's tests.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// disk changes files below a directory. Every change is visible in times, although the kernel's may not advance for
// milliseconds.
type disk struct {
	fataler
	dir   string
	clock time.Time
}

func newDisk(t fataler, dir string) *disk {
	return &disk{t, dir, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (d *disk) path(p string) string { return filepath.Join(d.dir, filepath.FromSlash(p)) }

func (d *disk) check(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// touch gives a path and its parent directory times that they have not had.
func (d *disk) touch(p string) {
	d.Helper()
	for _, path := range []string{d.path(p), filepath.Dir(d.path(p))} {
		d.clock = d.clock.Add(time.Second)
		if _, err := os.Stat(path); err == nil {
			d.check(os.Chtimes(path, d.clock, d.clock))
		}
	}
}

func (d *disk) mkdir(p string) {
	d.Helper()
	d.check(os.MkdirAll(d.path(p), 0o755))
	d.touch(p)
}

func (d *disk) write(p, text string) {
	d.Helper()
	d.check(os.WriteFile(d.path(p), []byte(text), 0o644))
	d.touch(p)
}

func (d *disk) remove(p string) {
	d.Helper()
	d.check(os.RemoveAll(d.path(p)))
	d.touch(p)
}

func (d *disk) move(from, to string) {
	d.Helper()
	d.check(os.Rename(d.path(from), d.path(to)))
	d.touch(from)
	d.touch(to)
}

// link makes a symbolic link. It replaces an existing one by a rename, like ln -sfn.
func (d *disk) link(target, p string) {
	d.Helper()
	d.check(os.Symlink(target, d.path(".link")))
	d.check(os.Rename(d.path(".link"), d.path(p)))
	d.clock = d.clock.Add(time.Second)
	d.check(os.Chtimes(filepath.Dir(d.path(p)), d.clock, d.clock))
}

// manifestOf returns a manifest with additional lines.
func manifestOf(name, version string, more ...string) string {
	text := fmt.Sprintf("name: %s\n", name)
	if version != "" {
		text += fmt.Sprintf("version: %q\n", version)
	}
	text += "inputs: [{name: input, dtype: float32, shape: [64]}]\noutputs: [{name: output, dtype: int64, shape: []}]\nrun: {command: [python, model.py]}\n"
	for _, line := range more {
		text += line + "\n"
	}
	return text
}

// version copies a complete version's directory: under a temporary name, then renamed.
func (d *disk) version(name, version string, more ...string) {
	d.Helper()
	copying := name + "/." + version
	d.mkdir(copying)
	d.write(copying+"/model.py", "model")
	d.write(copying+"/xebec.yaml", manifestOf(name, version, more...))
	d.move(copying, name+"/"+version)
}

// describe formats a report for transcripts.
func (d *disk) describe(r Report) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Models)) {
		fmt.Fprintf(&b, "%s:", name)
		for i := range r.Models[name] {
			m := &r.Models[name][i]
			fmt.Fprintf(&b, " %s", m.Version)
			if m.Batching.Max != 4096 {
				fmt.Fprintf(&b, "(max %d)", m.Batching.Max)
			}
			if m.Name != name || m.Dir != d.path(name+"/"+m.Version) {
				fmt.Fprintf(&b, "(%s in %s)", m.ID(), m.Dir)
			}
		}
		b.WriteString("\n")
	}
	for i := range r.Functions {
		f := &r.Functions[i]
		fmt.Fprintf(&b, "function %s: %s within %s\n", f.Name, strings.Join(f.Models, ", "), f.SLO)
	}
	for _, p := range r.Problems {
		of := "-"
		if p.Name != "" {
			of = p.Name
		}
		if p.Version != "" {
			of += "@" + p.Version
		}
		fmt.Fprintf(&b, "problem %s: %s\n", of, strings.ReplaceAll(p.Message, d.dir, "DIR"))
	}
	if !r.Complete {
		b.WriteString("not complete\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func newFixture(t *testing.T) (*disk, *Watcher) {
	d := newDisk(t, t.TempDir())
	return d, New(Config{Dir: d.dir})
}
