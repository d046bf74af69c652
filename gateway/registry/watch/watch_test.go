package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// after scans n times.
func after(w *Watcher, n int) (r Report) {
	for range n {
		r = w.Scan()
	}
	return r
}

// TestRoot: a directory that does not exist or becomes empty.
func TestRoot(t *testing.T) {
	d := newDisk(t, filepath.Join(t.TempDir(), "models"))
	w := New(Config{Dir: d.dir})
	expect := func(when string, n int, want ...string) {
		t.Helper()
		got := d.describe(after(w, n))
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got\n%s\nexpected %q", when, got, part)
			}
		}
	}
	is := func(when string, n int, want string) {
		t.Helper()
		if got := d.describe(after(w, n)); got != want {
			t.Errorf("%s: got\n%s\nexpected\n%s", when, got, want)
		}
	}
	expect("before it exists", 2, "problem -: DIR: no such file or directory; ", "not complete")
	d.mkdir("")
	is("empty from the start", 2, "nothing\n")
	d.version("digits", "3")
	is("with a version", 2, "digits: 3\n")

	away := d.dir + ".away"
	d.check(os.Rename(d.dir, away))
	expect("removed", 3, "digits: 3\n", "no such file or directory", "not complete")
	d.check(os.WriteFile(d.dir, nil, 0o600))
	expect("a file", 3, "digits: 3\n", "is a file: expected a directory", "not complete")
	d.check(os.Remove(d.dir))
	d.mkdir("")
	expect("a mount point without its disk", 3, "digits: 3\n", "DIR: is empty, but was not before", "not complete")
	d.check(os.Remove(d.dir))
	d.check(os.Rename(away, d.dir))
	is("restored", 1, "digits: 3\n")
	is("still restored", 2, "digits: 3\n")

	d.remove("digits")
	expect("all removed", 3, "digits: 3\n", "is empty", "create a file named .empty in it")
	d.write(".empty", "")
	is("empty on purpose", 2, "nothing\n")
}

// TestModelDirectory: one model's directory that cannot be used keeps its previous contents.
func TestModelDirectory(t *testing.T) {
	d, w := newFixture(t)
	d.version("digits", "3")
	d.version("other", "1")
	after(w, 2)
	d.move("digits", ".digits")
	d.link("digits", "digits") // to itself
	if got := d.describe(after(w, 3)); !strings.HasPrefix(got, "digits: 3\nother: 1\nproblem digits: DIR/digits: too many levels of symbolic links; its previous contents are kept") || strings.Contains(got, "not complete") {
		t.Errorf("unreadable: %s", got)
	}
	d.remove("digits")
	d.mkdir("digits")
	w.models["digits"].listing.stamp.dev++ // as if the previous contents had been on another disk
	if got := d.describe(after(w, 3)); !strings.HasPrefix(got, "digits: 3\nother: 1\nproblem digits: DIR/digits: is empty, and on another file system than before") {
		t.Errorf("not mounted: %s", got)
	}
	d.remove("digits")
	d.move(".digits", "digits")
	if got := d.describe(after(w, 2)); got != "digits: 3\nother: 1\n" {
		t.Errorf("mounted: %s", got)
	}
	d.remove("digits/3")
	if got := d.describe(after(w, 2)); got != "other: 1\n" {
		t.Errorf("its only version removed: %s", got)
	}
}

// TestQuiet: only the first scan immediately accepts what has not changed for long.
func TestQuiet(t *testing.T) {
	d, w := newFixture(t)
	d.version("digits", "3")
	w.now = func() time.Time { return time.Now().Add(quietFor - time.Minute) }
	if got := d.describe(w.Scan()); got != "nothing\n" {
		t.Errorf("just written: %s", got)
	}
	w = New(Config{Dir: d.dir})
	w.now = func() time.Time { return time.Now().Add(quietFor + time.Second) }
	if got := d.describe(w.Scan()); got != "digits: 3\n" {
		t.Errorf("written long ago: %s", got)
	}
	d.version("digits", "4")
	if got := d.describe(w.Scan()); got != "digits: 3\n" {
		t.Errorf("another version, in the second scan: %s", got)
	}
	d.version("digits", "5")
	d.write("digits/5/.incomplete", "")
	w = New(Config{Dir: d.dir})
	w.now = func() time.Time { return time.Now().Add(quietFor + time.Second) }
	if got := d.describe(w.Scan()); got != "digits: 3 4\n" {
		t.Errorf("with a marker: %s", got)
	}
}

// TestMany: ten thousand versions are found, and found unchanged without reading them again.
func TestMany(t *testing.T) {
	d, w := newFixture(t)
	const models, versions = 100, 100
	for m := range models {
		name := fmt.Sprintf("m%02d", m)
		for v := range versions {
			dir := fmt.Sprintf("%s/%d", name, v)
			d.check(os.MkdirAll(d.path(dir), 0o755))
			d.check(os.WriteFile(d.path(dir+"/xebec.yaml"), []byte(manifestOf(name, fmt.Sprint(v))), 0o644))
		}
	}
	w.now = func() time.Time { return time.Now().Add(time.Minute) }
	r := w.Scan() // immediately: unchanged for a minute
	total := 0
	for _, list := range r.Models {
		total += len(list)
	}
	if total != models*versions || len(r.Problems) > 0 || !r.Complete {
		t.Fatalf("found %d versions, %d problems", total, len(r.Problems))
	}
	reads := 0
	for _, m := range w.models {
		for _, v := range m.versions {
			v.print, v.hasPrint = 0, false
		}
	}
	if _, changed := w.scan(); changed {
		t.Error("the scan reported a change, but there was none")
	}
	for _, m := range w.models {
		for _, v := range m.versions {
			if v.hasPrint {
				reads++
			}
		}
	}
	if reads > 0 {
		t.Errorf("%d unchanged versions were examined again", reads)
	}
	d.write("m42/7/xebec.yaml", manifestOf("m42", "7", "cost: 3"))
	after(w, 2)
	if got := w.last.Models["m42"][7]; got.Version != "7" || got.Cost != 3 {
		t.Errorf("a change among many: %s costs %v", got.ID(), got.Cost)
	}
}

// TestBounds: directories that are too large are examined in part, with a problem.
func TestBounds(t *testing.T) {
	d, w := newFixture(t)
	w.maxVersions = 3
	for v := range 5 {
		d.version("digits", fmt.Sprint(v))
	}
	want := "digits: 0 1 2\nproblem -: DIR: has 2 version directories more than the limit of 3: remove old ones\n"
	if got := d.describe(after(w, 2)); got != want {
		t.Errorf("got %s", got)
	}
	d.remove("digits/1")
	if got := d.describe(after(w, 4)); got != "digits: 0 2 3\nproblem -: DIR: has 1 version directories more than the limit of 3: remove old ones\n" {
		t.Errorf("after one was removed: %s", got)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	d, w := newFixture(t)
	for i := range MaxProblems + 44 {
		d.check(os.MkdirAll(d.path(fmt.Sprintf("digits/%d", i)), 0o755))
	}
	d.check(os.WriteFile(d.path("digits/7/xebec.yaml"), []byte("name: "+strings.Repeat("ä", maxProblemBytes)), 0o644))
	r := after(w, 2)
	if len(r.Problems) != MaxProblems+1 || r.Problems[MaxProblems].Message != d.dir+": has 44 more problems" {
		t.Errorf("%d problems, the last one is %s", len(r.Problems), r.Problems[len(r.Problems)-1])
	}
	for _, p := range r.Problems {
		if len(p.Message) > maxProblemBytes+len("…") {
			t.Errorf("a problem has %d bytes", len(p.Message))
		}
	}
}

// TestTree: what of a version's directory is compared.
func TestTree(t *testing.T) {
	d, w := newFixture(t)
	deep := "digits/3" + strings.Repeat("/d", MaxTreeDepth-1)
	d.mkdir(deep)
	d.write("digits/3/xebec.yaml", manifestOf("digits", "3"))
	w.Scan()
	d.write(deep+"/weights", "in the deepest folder that is compared")
	if got := d.describe(w.Scan()); got != "nothing\n" {
		t.Errorf("a change at depth %d: %s", MaxTreeDepth, got)
	}
	if got := d.describe(w.Scan()); got != "digits: 3\n" {
		t.Errorf("unchanged: %s", got)
	}

	d.mkdir(".4/d")
	for i := range MaxTreeEntries + 10 {
		d.check(os.WriteFile(d.path(fmt.Sprintf(".4/d/%d", i)), nil, 0o600))
	}
	d.write(".4/xebec.yaml", manifestOf("digits", "4"))
	d.move(".4", "digits/4")
	v := &version{path: d.path("digits/4")}
	tree, err := w.fingerprint(v, stamp{}, stamp{})
	if err != nil || !tree.truncated || tree.remaining != -1 {
		t.Errorf("a large directory: %+v, %v", tree, err)
	}
	if got := d.describe(after(w, 2)); got != "digits: 3 4\n" {
		t.Errorf("a large version: %s", got)
	}
}

// TestRun: Run reports at once, then only changes, logs problems that appear and disappear, and stops.
func TestRun(t *testing.T) {
	d, _ := newFixture(t)
	core, logs := observer.New(zap.InfoLevel)
	w := New(Config{Dir: d.dir, Every: time.Millisecond, Log: zap.New(core)})
	ctx, stop := context.WithCancel(t.Context())
	reports := make(chan string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(r Report) {
			select {
			case reports <- d.describe(r):
			case <-ctx.Done():
			}
		})
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-reports:
			if got != want {
				t.Errorf("got %s, expected %s", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no report, expected %s", want)
		}
	}
	next("nothing\n")
	d.version("digits", "3")
	next("digits: 3\n")
	d.mkdir("digits/-")
	wrong := "problem digits: DIR/digits/-: version \"-\": expected letters, digits, '.', '_' and '-', starting with a letter or digit; rename the directory, or start its name with a dot to hide it\n"
	next("digits: 3\n" + wrong)
	d.remove("digits/-")
	next("digits: 3\n")
	stop()
	<-done
	var said []string
	for _, e := range logs.All() {
		said = append(said, e.Level.String()+" "+e.Message)
	}
	if got := strings.Join(said, ", "); got != "warn watched models: problem, info watched models: problem resolved" {
		t.Errorf("logged %s", got)
	}
}

func BenchmarkScanUnchanged10k(b *testing.B) {
	d := newDisk(b, b.TempDir())
	for m := range 1000 {
		name := fmt.Sprintf("m%03d", m)
		for v := range 10 {
			dir := fmt.Sprintf("%s/%d", name, v)
			d.check(os.MkdirAll(d.path(dir), 0o755))
			d.check(os.WriteFile(d.path(dir+"/xebec.yaml"), []byte(manifestOf(name, fmt.Sprint(v))), 0o644))
		}
	}
	w := New(Config{Dir: d.dir})
	w.now = func() time.Time { return time.Now().Add(time.Minute) }
	start := time.Now()
	w.Scan()
	first := time.Since(start)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		w.Scan()
	}
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
}
