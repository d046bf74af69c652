package inferlog

import (
	"errors"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// sampleFile returns a file of three frames, with queries 0 to 2, 3 to 5 and 6 to 8, and the offsets of the frames
// followed by the file's length.
func sampleFile(t testing.TB) (text []byte, frames []int) {
	t.Helper()
	dir := t.TempDir()
	l := mustOpen(t, manualConfig(dir))
	s := l.Function("digits", digitsIn, digitsOut, 1)
	for id := range uint64(9) {
		s.Add(query(id))
		if id%3 == 2 {
			s.Feedback(&Feedback{ID: id, Kind: FeedbackLabel, Label: []byte("7")})
			frames = append(frames, int(max(l.Stats().KeptBytes, fileHeaderBytes)))
			mustFlush(t, l)
		}
	}
	mustClose(t, l)
	text, err := os.ReadFile(filepath.Join(dir, names(t, dir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return text, append(frames, len(text))
}

// readBytes reads a file with the given contents.
func readBytes(t testing.TB, text []byte) (ids []uint64, sum Summary, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err = Read([]string{path}, func(e *Entry) error {
		if e.Kind == KindQuery {
			ids = append(ids, e.Record.ID)
		}
		return nil
	})
	return ids, sum, err
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func flip(text []byte, at int) []byte {
	text = join(text)
	text[at] ^= 0x10
	return text
}

func TestDamage(t *testing.T) {
	text, at := sampleFile(t)
	header, first, second, third := text[:at[0]], text[at[0]:at[1]], text[at[1]:at[2]], text[at[2]:]
	garbage := []byte(strings.Repeat("XLF1 and then nothing of the kind. ", 50))
	for _, c := range []struct {
		name string
		text []byte
		want string // expected queries
		note string // expected in the notes; empty if there must be none
	}{
		{"nothing", text, "012345678", ""},
		{"a frame is missing", join(header, first, third), "012678", ""},
		{"only the header", header, "", ""},
		{"cut off in a frame", text[:len(text)-1], "012345", "cut off: "},
		{"cut off in a frame's header", text[:at[2]+10], "012345", "cut off"},
		{"a flipped bit", flip(text, at[1]+frameHeaderBytes+5), "012678", "its checksum is wrong"},
		{"a flipped bit in a frame's header", flip(text, at[1]+9), "012678", "no frame at"},
		{"a frame torn in the middle", join(header, first, second[:len(second)/2], third), "012678", "its checksum is wrong"},
		{"garbage between frames", join(header, first, garbage, second, third), "012345678", "no frame at"},
		{"garbage at the end", join(text, garbage), "012345678", "no frame at"},
		{"a frame with a wrong length", join(header, first, frameOf(t, frameZstd, []byte("abc"), 17), third), "012678", "cannot be decompressed to its 17 bytes"},
		{"a frame of other data", join(header, first, frameOf(t, frameZstd, []byte("abc"), 3), third), "012678", "malformed entries"},
		{"a zstd bomb", join(header, first, frameOf(t, frameZstd, make([]byte, 8<<20), 1<<20), third), "012678", "cannot be decompressed"},
		{"an s2 bomb", join(header, first, frameOf(t, frameS2, make([]byte, 8<<20), 1<<20), third), "012678", "cannot be decompressed"},
		{"an s2 frame with a wrong length", join(header, first, frameOf(t, frameS2, []byte("abc"), 17), third), "012678", "cannot be decompressed to its 17 bytes"},
		{"a stored frame with a wrong length", join(header, first, frameOf(t, frameStored, []byte("abc"), 17), third), "012678", "cannot be decompressed to its 17 bytes"},
		{"an unknown kind of frame", join(header, first, frameOf(t, frameStored+1, []byte("abc"), 3), third), "012678", "no frame at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, sum, err := readBytes(t, c.text)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, id := range ids {
				got += string(rune('0' + id))
			}
			notes := strings.Join(sum.Notes, "\n")
			if got != c.want || (c.note == "") != (sum.Damaged == 0) || !strings.Contains(notes, c.note) {
				t.Errorf("read %q, want %q; notes: %s", got, c.want, notes)
			}
			if sum.FileBytes != int64(len(c.text)) {
				t.Errorf("%d of %d bytes are accounted for", sum.FileBytes, len(c.text))
			}
		})
	}
}

// frameOf returns a frame with the contents raw and the given raw length in its header.
func frameOf(t testing.TB, kind byte, raw []byte, rawBytes int) []byte {
	t.Helper()
	stored := raw
	switch kind {
	case frameZstd:
		encoder, err := newEncoder()
		if err != nil {
			t.Fatal(err)
		}
		stored = encoder.EncodeAll(raw, nil)
	case frameS2:
		stored = s2.Encode(nil, raw)
	}
	frame := append(make([]byte, frameHeaderBytes), stored...)
	putFrameHeader(frame, kind, stored, rawBytes)
	return frame
}

// Frames that random damage does not touch are still read.
func TestRandomDamage(t *testing.T) {
	text, at := sampleFile(t)
	random := rand.New(rand.NewSource(1))
	for range 2000 {
		damaged := join(text)
		from := at[0] + random.Intn(len(text)-at[0])
		to := min(from+1+random.Intn(40), len(text))
		random.Read(damaged[from:to])
		ids, sum, err := readBytes(t, damaged)
		if err != nil {
			t.Fatal(err)
		}
		var want []uint64
		for f := range 3 {
			if touched := from < at[f+1] && to > at[f]; !touched || string(damaged[at[f]:at[f+1]]) == string(text[at[f]:at[f+1]]) {
				want = append(want, uint64(3*f), uint64(3*f+1), uint64(3*f+2))
			}
		}
		if len(ids) != len(want) || len(want) < 9 && sum.Damaged == 0 {
			t.Fatalf("bytes %d to %d overwritten, frames at %v: read %v, want %v: %v", from, to, at, ids, want, sum.Notes)
		}
	}
}

// Files of every format version, written when it was current: queries 0 to 8 in three frames. In format 2 the frames
// are of three kinds; format 3 has request ids.
func TestReadsCommittedFiles(t *testing.T) {
	for _, name := range []string{"version1.xlog", "version2.xlog", "version3.xlog"} {
		t.Run(name, func(t *testing.T) { readCommitted(t, filepath.Join("testdata", name)) })
	}
}

func readCommitted(t *testing.T, path string) {
	all, sum := readAll(t, path)
	if sum.Damaged > 0 || sum.Frames != 3 || sum.Queries != 9 || sum.Feedback != 3 {
		t.Fatalf("%+v", sum)
	}
	id := uint64(0)
	for _, e := range all {
		if e.Schema.Function != "digits" || e.Schema.Sample != 1 {
			t.Errorf("schema %+v", e.Schema)
		}
		if e.Kind == KindFeedback {
			if diff := compare(&Feedback{ID: id - 1, Kind: FeedbackLabel, Label: []byte("7")}, e.Feedback); diff != "" {
				t.Error(diff)
			}
			continue
		}
		want := query(id)
		if !strings.HasSuffix(path, "version3.xlog") {
			want.RequestID = nil
		}
		if diff := compare(want, e.Record); diff != "" {
			t.Error(diff)
		}
		id++
	}
}

// What is written during a read is not read. Otherwise a replay to the gateway that writes the log would never end.
func TestReadStopsAtTheInitialEnd(t *testing.T) {
	for _, what := range []string{"directory", "file"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			l := mustOpen(t, manualConfig(dir))
			defer mustClose(t, l)
			s := l.Function("digits", digitsIn, digitsOut, 1)
			const before = 5
			for id := range uint64(before) {
				s.Add(query(id))
			}
			mustFlush(t, l)
			path := dir
			if what == "file" {
				path = filepath.Join(dir, names(t, dir)[0])
			}
			tooMany := errors.New("Read returns entries that the callback caused to be written")
			n := 0
			sum, err := Read([]string{path}, func(e *Entry) error {
				if n++; n > before {
					return tooMany
				}
				for range 3 {
					s.Add(query(e.Record.ID + before))
				}
				mustFlush(t, l)
				return nil
			})
			if err != nil || sum.Queries != before || sum.Damaged != 0 {
				t.Errorf("%+v, %v: expected the first %d queries", sum, err, before)
			}
			if all, _ := readAll(t, path); len(all) != 4*before {
				t.Errorf("the second read has %d queries, want %d", len(all), 4*before)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	text, _ := sampleFile(t)
	newer := join(text)
	newer[8] = formatVersion + 1
	older := join(text)
	older[8] = 0
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"another kind of file", []byte("{\"input\": [1, 2, 3]}\n{\"input\": [1, 2, 3]}\n"), "is not an inference log"},
		{"a short file", []byte("hello"), "expected a header"},
		{"empty", nil, "within its header"},
		{"a truncated header", text[:20], "within its header"},
		{"a newer format", newer, "has format 4, this program reads formats 1 to 3"},
		{"no format", older, "has format 0, this program reads formats 1 to 3"},
		{"a damaged header", flip(text, 17), "header is damaged"},
	} {
		if _, _, err := readBytes(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Read([]string{filepath.Join(t.TempDir(), "none")}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing path: %v", err)
	}
	if _, err := Read([]string{os.DevNull}, nil); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") {
		t.Errorf("a device: %v", err)
	}
	dir := t.TempDir()
	for i, content := range [][]byte{text, nil, text[:20]} { // in a directory, what a killed gateway leaves is not an error
		if err := os.WriteFile(filepath.Join(dir, fileName(testTime, uint64(i))), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := errors.New("enough")
	sum, err := Read([]string{dir, dir}, func(*Entry) error { return nil })
	if err != nil || sum.Queries != 18 || sum.Damaged != 4 {
		t.Errorf("%+v, %v", sum, err)
	}
	if _, err := Read([]string{dir}, func(*Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the callback's error is not returned: %v", err)
	}
}
