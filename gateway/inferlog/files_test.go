package inferlog

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

func TestFileName(t *testing.T) {
	name := fileName(time.Date(2026, 11, 22, 3, 45, 0, 123456789, time.UTC), 1)
	if want := "xebec-20261122T034500.123456-000001.xlog"; name != want {
		t.Errorf("got %s, want %s", name, want)
	}
	begun, number, ok := parseFileName(name)
	if !ok || number != 1 || begun.Nanosecond() != 123456000 {
		t.Errorf("parsed %v, %d, %v", begun, number, ok)
	}
	if _, number, ok := parseFileName(fileName(testTime, 12345678)); !ok || number != 12345678 {
		t.Errorf("a large number: %d, %v", number, ok)
	}
	for _, other := range []string{
		"", "xebec-.xlog", "xebec-20261122T034500.123456-.xlog", "xebec-20261122T034500.123456-1.xlog", "xebec-20261122T034500.123456-000001.xlog.bak",
		"xebec-20261122T034500-000001.xlog", "xebec-20261322T034500.123456-000001.xlog", "my-xebec-20261122T034500.123456-000001.xlog",
		"xebec-20261122T034500.123456-00000x.xlog", "xebec-20261122T034500.123456+000001.xlog",
	} {
		if _, _, ok := parseFileName(other); ok {
			t.Errorf("%q is accepted as a log file", other)
		}
	}
}

// A new file is started when one is full, the oldest is removed at the limit, and other files are not touched.
func TestRotation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "log")
	cfg := manualConfig(dir)
	cfg.MaxBytes, cfg.FileBytes, cfg.BlockBytes = MinMaxBytes, 1<<20, 64<<10
	l := mustOpen(t, cfg)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the new directory: %v, %v", info, err)
	}
	foreign := []string{"notes.txt", "xebec-1.xlog", fileName(testTime.Add(-time.Hour), 1) + ".bak"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, fileName(testTime.Add(-time.Hour), 2)), 0o755); err != nil { // a directory, whatever its name says
		t.Fatal(err)
	}
	s := l.Function("noise", []api.TensorSpec{{Name: "x", DType: api.Uint8, Shape: []int64{32 << 10}}}, digitsOut, 1)
	source := rand.New(rand.NewSource(1))
	noise := make([]byte, 32<<10)
	const n = 600 // 19 MiB that do not compress
	for id := range uint64(n) {
		source.Read(noise)
		s.Add(&Record{ID: id, Inputs: []api.Value{{Data: noise}}})
		mustFlush(t, l)
		files, err := listFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, f := range files {
			total += f.bytes
			if f.bytes > cfg.FileBytes {
				t.Fatalf("%s has %d bytes", f.name, f.bytes)
			}
		}
		if stats := l.Stats(); total > cfg.MaxBytes || stats.KeptBytes != total || stats.Files != len(files) {
			t.Fatalf("after %d: %d bytes in %d files, stats %+v", id, total, len(files), stats)
		}
	}
	mustClose(t, l)
	all, sum := readAll(t, dir)
	if sum.Files < 6 || sum.Damaged > 0 || len(all) < 150 || len(all) > 256 {
		t.Errorf("read %d entries, %+v", len(all), sum)
	}
	for i, e := range all { // the last entries, in order
		if want := uint64(n - len(all) + i); e.Record.ID != want {
			t.Fatalf("entry %d is query %d: expected %d", i, e.Record.ID, want)
		}
	}
	for _, name := range foreign {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "mine" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for _, f := range names(t, dir) {
		if _, _, ours := parseFileName(f); ours {
			if info, err := os.Stat(filepath.Join(dir, f)); err != nil || !info.IsDir() && info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", f, info.Mode(), err)
			}
		}
	}
}

// A restarted gateway continues after the existing files, even if its clock was set back.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	for i, now := range []time.Time{testTime, testTime.Add(-time.Hour), testTime, testTime.Add(time.Hour)} {
		cfg := manualConfig(dir)
		cfg.Now = func() time.Time { return now }
		l := mustOpen(t, cfg)
		if got := l.Stats().Files; got != i {
			t.Errorf("start %d: %d files", i, got)
		}
		l.Function("digits", digitsIn, digitsOut, 1).Add(query(uint64(i)))
		mustClose(t, l)
	}
	all, _ := readAll(t, dir)
	var ids []uint64
	for _, e := range all {
		ids = append(ids, e.Record.ID)
	}
	if want := []uint64{0, 1, 2, 3}; !slices.Equal(ids, want) {
		t.Errorf("read in the order %v, want %v: files %v", ids, want, names(t, dir))
	}
	idle := mustOpen(t, manualConfig(dir))
	mustClose(t, idle)
	if got := len(names(t, dir)); got != 4 {
		t.Errorf("a gateway that logged nothing created a file: %d files", got)
	}
}

func TestNumberOfFilesIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 5 {
		name := fileName(testTime.Add(time.Duration(i-maxFiles-10)*time.Second), uint64(i))
		if err := os.WriteFile(filepath.Join(dir, name), appendFileHeader(nil, 0), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, manualConfig(dir))
	l.Function("digits", digitsIn, digitsOut, 1).Add(query(1))
	mustClose(t, l)
	files, err := listFiles(dir)
	if err != nil || len(files) != maxFiles {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if last := files[len(files)-1]; last.number != maxFiles+5 {
		t.Errorf("the last file is %s", last.name)
	}
}

// If the directory cannot be written, only the log is affected.
func TestRemovedDirectory(t *testing.T) {
	now := testTime
	cfg := manualConfig(filepath.Join(t.TempDir(), "log"))
	cfg.Now = func() time.Time { return now }
	l := mustOpen(t, cfg)
	s := l.Function("digits", digitsIn, digitsOut, 1)
	if err := os.Remove(cfg.Dir); err != nil {
		t.Fatal(err)
	}
	s.Add(query(1))
	mustFlush(t, l)
	if stats := l.Stats(); !stats.Unavailable || stats.Dropped.Write != 1 || stats.LastError == "" {
		t.Errorf("%+v", stats)
	}
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(retryAfter)
	s.Add(query(2))
	mustFlush(t, l)
	all, _ := readAll(t, cfg.Dir)
	if len(all) != 1 || all[0].Record.ID != 2 || l.Stats().Unavailable {
		t.Errorf("%s, %+v", fmt.Sprint(all), l.Stats())
	}
}
