package apptest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// keepAsking queries an echoing function with one number after the other, at least ten times, until stop is called. It
// fails the test if an answer is wrong.
func (g *gateway) keepAsking(function string) (stop func()) {
	ctx := bounded(g.t)
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n, failed := 0, 0; failed < 5 && (n < 10 || !done.Load()); {
			n++
			if a, err := g.tryAsk(ctx, function, n, ""); err != nil || !a.predicted() || a.number() != n {
				failed++
				g.t.Errorf("query %d of %s is answered by %v %v", n, function, a, err)
			}
		}
	}()
	stop = func() { done.Store(true); <-ended }
	g.t.Cleanup(stop)
	return stop
}

// savedState returns the store file of a gateway with some declarations.
func savedState(t *testing.T) (file []byte, export string) {
	t.Helper()
	dir := newDir(t)
	g := serve(t, "--data-dir", dir)
	g.apply(number("m", "echo"), function("f", "m", "slo: 60s"), traffic("m", `labels: {stable: "1"}`))
	for i := range 20 {
		g.must("apply", "-f", manifest(t, function("f", "m", fmt.Sprintf("slo: %ds", 20+i))))
	}
	export = g.must("export")
	g.stop()
	file, err := os.ReadFile(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	return file, export
}

// startOn starts a gateway on a store file. It returns the gateway, or reports that the gateway refused the file.
func startOn(t *testing.T, file []byte) (g *gateway, path string, refused bool) {
	t.Helper()
	dir := newDir(t)
	path = filepath.Join(dir, "state.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	g = launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", dir)
	err := poll(t.Context(), func(ctx context.Context) (bool, string) {
		select {
		case <-g.exited:
			refused = true
			return true, ""
		default:
			return g.readAddresses(ctx)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if refused {
		g.gone(1)
	}
	return g, path, refused
}

// A file that has a newer format, was truncated or overwritten, or is not a store at all, is refused with its name, what
// is wrong and what to do, and is not changed. After the change of any byte the gateway refuses the file, reports what it
// cannot read, or is not affected. It never silently serves something else.
func TestStoreFileFaults(t *testing.T) {
	t.Parallel()
	good, export := savedState(t)
	page := os.Getpagesize()
	if !bytes.Contains(good, []byte("format2")) || len(good) < 8*page {
		t.Fatalf("the file has %d bytes, format 2 found: %v", len(good), bytes.Contains(good, []byte("format2")))
	}
	edited := func(edit func(b []byte) []byte) []byte { return edit(bytes.Clone(good)) }
	for _, c := range []struct {
		what string
		file []byte
		says []string
	}{
		{"newer format", edited(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("format2"), []byte("format9")) }), []string{`format "9"`, "use the program that wrote it"}},
		{"cut off", good[:len(good)/2/page*page], []string{"damaged", "restore it from a copy"}},
		{"cut off early", good[:100], []string{"damaged", "restore it from a copy"}},
		{"overwritten", edited(func(b []byte) []byte { clear(b[2*page:]); return b }), []string{"damaged", "restore it from a copy"}},
		{"head overwritten", edited(func(b []byte) []byte { clear(b[:2*page]); return b }), []string{"damaged", "restore it from a copy"}},
		{"pages swapped", edited(func(b []byte) []byte {
			for i := 2 * page; i+2*page <= len(b); i += 2 * page {
				copy(b[i:], slicesSwapped(b[i:i+2*page]))
			}
			return b
		}), []string{"damaged", "restore it from a copy"}},
		{"another value", edited(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("39s"), []byte("38s")) }), []string{"damaged"}},
		{"another file", bytes.Repeat([]byte("this is no database\n"), 1000), []string{"damaged or not a store of this program"}},
	} {
		g, path, refused := startOn(t, c.file)
		if !refused {
			t.Errorf("%s: the gateway started", c.what)
			continue
		}
		text := g.logText()
		for _, says := range append(c.says, path, "--store") {
			if !strings.Contains(text, says) {
				t.Errorf("%s: the log is\n%s\nexpected %q", c.what, text, says)
			}
		}
		// Damage within an object is found when the object is read. By then the file was opened, which may change it.
		if now, err := os.ReadFile(path); c.what != "another value" && (err != nil || !bytes.Equal(now, c.file)) {
			t.Errorf("%s: the file has changed (%v)", c.what, err)
		}
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	refusals, told, same := 0, 0, 0
	for range 16 {
		at, bit := random.IntN(len(good)), byte(1)<<random.IntN(8)
		for good[at] == 0 { // most of the file is empty
			at = random.IntN(len(good))
		}
		g, path, refused := startOn(t, edited(func(b []byte) []byte { b[at] ^= bit; return b }))
		switch {
		case refused:
			refusals++
			if text := g.logText(); !strings.Contains(text, path) {
				t.Errorf("seed %d, bit %#x of byte %d: the log is\n%s", seed, bit, at, text)
			}
			continue
		case exported(bounded(t), g) == export:
			same++
		default:
			told++
			if s := g.itself(); len(s.Sources[0].Problems) == 0 {
				t.Errorf("seed %d, bit %#x of byte %d: the gateway silently declares\n%s\nand before it was\n%s", seed, bit, at, exported(bounded(t), g), export)
			}
		}
		g.stop()
	}
	t.Logf("of the changed bits %d were refused, %d reported, %d without effect", refusals, told, same)
}

func slicesSwapped(two []byte) []byte {
	half := len(two) / 2
	return append(bytes.Clone(two[half:]), two[:half]...)
}

// The file is overwritten while a gateway uses it. Changes are refused with what to do, serving continues, and the
// gateway ends normally.
func TestStoreFileDamagedWhileServing(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serve(t, "--data-dir", dir)
	g.apply(number("m", "echo", "cache: off"), function("f", "m", "slo: 60s"))
	stop := g.keepAsking("f")
	path := filepath.Join(dir, "state.db")
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	if _, err := file.WriteAt(make([]byte, info.Size()-2*page), 2*page); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		status, answer, err := g.applyHTTP(bounded(t), function(fmt.Sprintf("g%d", i), "m", "slo: 60s"))
		if err != nil || status != 503 || !strings.Contains(answer, path) || !strings.Contains(answer, "restore it from a copy") || !strings.Contains(answer, "nothing was changed") {
			t.Errorf("an apply is answered by %d %s %v: expected 503 and a message that the file is damaged, with what to do", status, answer, err)
		}
	}
	if a := g.ask("g0", 5, ""); a.Status != 404 {
		t.Errorf("a function that was refused answers %v", a)
	}
	g.xebec("history").wants(t, "history of a damaged file", 1, "", path)
	stop()
	if a := g.ask("f", 5, ""); a.number() != 5 {
		t.Errorf("after the damage the function answers %v", a)
	}
	g.stop()
	g, _, refused := startOn(t, make([]byte, 0))
	if !refused { // a store is never empty: its content was lost
		t.Errorf("with an empty file the log is\n%s", g.logText())
	}
}

// smallDisk returns a directory on a disk of its own. full fills the disk, and room makes room again. Mounting a disk
// needs root; for other users a limit on the gateway's file size has the same effect.
func smallDisk(t *testing.T, size int) (dir string, full, room func(g *gateway), says string) {
	t.Helper()
	dir = newDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		filler := filepath.Join(dir, "filler")
		full = func(*gateway) {
			t.Helper()
			if err := os.WriteFile(filler, make([]byte, size), 0o600); err == nil {
				t.Fatal("the disk is not full")
			}
		}
		room = func(*gateway) {
			t.Helper()
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
		return dir, full, room, "the disk is full: free some space"
	}
	limit := func(most uint64) func(g *gateway) {
		return func(g *gateway) {
			t.Helper()
			if err := unix.Prlimit(g.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, limit(16 << 10), limit(unix.RLIM_INFINITY), "the file has reached the limit on file sizes"
}

// On a full disk changes are refused with what to do, small or large. No part of them is made, and no query fails. When
// there is room changes are accepted again, and after a restart every acknowledged change is there.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir, full, room, says := smallDisk(t, 1<<20)
	args := []string{"--data-dir", dir}
	g := serve(t, args...)
	g.apply(number("m", "echo", "cache: off"), function("f", "m", "slo: 60s"))
	stop := g.keepAsking("f")
	full(g)
	// The file has some free pages, so a few small changes may still succeed.
	var refused string
	taken := []string{"f"}
	for i := range 200 {
		name := fmt.Sprintf("g%d", i)
		status, answer, err := g.applyHTTP(bounded(t), function(name, "m", "slo: 60s"))
		if err == nil && status == 200 {
			taken = append(taken, name)
			continue
		}
		if refused = name; err != nil || status != 503 || !strings.Contains(answer, says) || !strings.Contains(answer, "nothing was changed") || !strings.Contains(answer, "state.db") {
			t.Errorf("with a full disk an apply is answered by %d %s %v: expected 503 and %q", status, answer, err, says)
		}
		break
	}
	if refused == "" {
		t.Fatal("all changes were accepted on a full disk")
	}
	if a := g.ask(refused, 5, ""); a.Status != 404 {
		t.Errorf("a refused function answers %v", a)
	}
	large := number("large", "echo", "") + "\n---\n" + strings.Replace(number("large2", "echo"), "run: {", "run: {env: {A: "+strings.Repeat("x", 30_000)+"}, ", 1)
	g.xebec("apply", "-f", manifest(t, large)).wants(t, "a large apply", 1, "", says)
	g.xebec("get", "model", "large").wants(t, "part of a large apply", 1, "", "no model")
	room(g)
	g.must("apply", "-f", manifest(t, function(refused, "m", "slo: 60s")))
	if a := g.ask(refused, 5, ""); a.number() != 5 {
		t.Errorf("after there is room %s answers %v", refused, a)
	}
	stop()
	all := g.must("export")
	g.stop()
	g = serve(t, args...)
	if now := g.must("export"); now != all {
		t.Errorf("before the restart the export was\n%s\nand after it\n%s", all, now)
	}
	for _, name := range taken {
		if a := g.ask(name, 6, ""); a.number() != 6 {
			t.Errorf("after the restart %s answers %v", name, a)
		}
	}
}

// A data directory that cannot be written is refused at the start, with its name and the reason.
func TestReadOnlyDataDir(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, filepath.Join(dir, "below")} {
		g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", at)
		g.gone(1)
		if text := g.logText(); !strings.Contains(text, at) || !strings.Contains(text, "--data-dir") || !strings.Contains(text, "read-only") && !strings.Contains(text, "permission denied") {
			t.Errorf("with --data-dir %s the log is\n%s", at, text)
		}
	}
}
