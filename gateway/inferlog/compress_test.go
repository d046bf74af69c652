package inferlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

func TestCompressionBudget(t *testing.T) {
	const (
		block   = 250_000 // when nothing is left of it, that saves 75 µs of writing
		savings = int(maxCredit / (5 * time.Millisecond))
	)
	var b compressionBudget
	now := testTime
	ask := func(later time.Duration, want byte) {
		t.Helper()
		now = now.Add(later)
		if got := b.choose(now); got != want {
			t.Fatalf("the block's kind is %d, expected %d; %+v", got, want, b)
		}
	}
	b.begin(now, 2) // 10 ms a second of zstd, 40 of s2
	for range savings {
		ask(0, frameZstd) // what was saved up pays for it
		b.compressed(frameZstd, 5*time.Millisecond, block, 0)
	}
	for range 1000 {
		ask(0, frameS2) // what is saved does
		b.compressed(frameS2, 75*time.Microsecond, block, 0)
	}
	for range savings {
		ask(0, frameS2)
		b.compressed(frameS2, 5075*time.Microsecond, block, 0)
	}
	ask(0, frameStored)
	ask(time.Millisecond, frameZstd) // 10 µs are there: enough to begin
	b.compressed(frameZstd, time.Millisecond, block, 0)
	ask(98*time.Millisecond, frameS2) // 990 µs were owed
	ask(-time.Hour, frameS2)
	b.s2.credit = 0
	ask(0, frameStored)
	ask(time.Second, frameZstd)
	ask(24*time.Hour, frameZstd)
	if b.zstd.credit != maxCredit || b.s2.credit != maxCredit {
		t.Errorf("credits are %s and %s, expected %s", b.zstd.credit, b.s2.credit, maxCredit)
	}

	b.begin(now, 2) // and data that does not get smaller
	for _, skipped := range []int{1, 3, 7, 15, 31, 32, 32} {
		ask(0, frameZstd)
		b.compressed(frameZstd, 0, block, block-block/minSavingShare)
		for range skipped {
			ask(0, frameStored)
		}
	}
	ask(0, frameZstd)
	b.compressed(frameZstd, 0, block, block/2)
	ask(0, frameZstd)

	if b.begin(now, 1000); b.zstd.share+b.s2.share != 1 {
		t.Errorf("shares are %v and %v, expected a sum of 1: one goroutine compresses", b.zstd.share, b.s2.share)
	}
}

// kinds counts the frames of a directory's files by their kind.
func kinds(t *testing.T, dir string) map[byte]int {
	t.Helper()
	count := map[byte]int{}
	for _, name := range names(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for at := fileHeaderBytes; at < len(text); {
			h, ok := parseFrameHeader(text[at : at+frameHeaderBytes])
			if !ok {
				t.Fatalf("%s: no frame at byte %d", name, at)
			}
			count[h.kind]++
			at += frameHeaderBytes + h.storedBytes
		}
	}
	return count
}

// The better compression is used while there is time for it, then the faster one, then none; all is read.
func TestCompressesAsTimeAllows(t *testing.T) {
	var looks atomic.Int64 // at the clock, each of which takes 10 ms: as much as a thousand blocks
	cfg := manualConfig(t.TempDir())
	cfg.Now = func() time.Time { return testTime.Add(time.Duration(looks.Add(1)) * 10 * time.Millisecond) }
	l := mustOpen(t, cfg)
	s := l.Function("zeros", []api.TensorSpec{{Name: "x", DType: api.Uint8, Shape: []int64{10_000}}}, digitsOut, 1)
	const n = 100
	for id := range uint64(n) {
		s.Add(&Record{ID: id, Inputs: []api.Value{{Data: make([]byte, 10_000)}}})
		mustFlush(t, l)
	}
	mustClose(t, l)
	if got := kinds(t, cfg.Dir); got[frameZstd] < 2 || got[frameS2] < 2 || got[frameStored] < n/2 {
		t.Errorf("frames by kind: %v", got)
	}
	all, sum := readAll(t, cfg.Dir)
	if len(all) != n || sum.Damaged > 0 || sum.Frames != n || uint64(sum.RawBytes) != l.Stats().RawBytes {
		t.Fatalf("read %d of %d entries in %d frames: %v", len(all), n, sum.Frames, sum.Notes)
	}
	for i, e := range all {
		if e.Record.ID != uint64(i) || !bytes.Equal(e.Record.Inputs[0].Data, make([]byte, 10_000)) {
			t.Fatalf("entry %d is query %d, or its input differs", i, e.Record.ID)
		}
	}
}

// Random numbers take no more room than they have, and little of the time that compression has.
func TestNoiseIsStored(t *testing.T) {
	cfg := manualConfig(t.TempDir())
	cfg.BlockBytes = 16 << 10
	l := mustOpen(t, cfg)
	schema, records := benchRecords(3 << 10)
	s := l.Function(schema.Function, schema.Inputs, schema.Outputs, 1)
	for _, r := range records {
		s.Add(r)
		mustFlush(t, l)
	}
	if l.w.budget.skip != maxSkipped {
		t.Errorf("after %d blocks of noise one of %d is compressed, expected one of %d", len(records), l.w.budget.skip+1, maxSkipped+1)
	}
	mustClose(t, l)
	if got := kinds(t, cfg.Dir); got[frameStored] != len(records) || l.Stats().WrittenBytes > l.Stats().RawBytes+uint64(frameHeaderBytes*len(records)+fileHeaderBytes) {
		t.Errorf("frames by kind: %v; %+v", got, l.Stats())
	}
	all, sum := readAll(t, cfg.Dir)
	if len(all) != len(records) || sum.Damaged > 0 {
		t.Fatalf("read %d of %d entries: %v", len(all), len(records), sum.Notes)
	}
	for i := range all {
		if diff := compare(records[i].Inputs, all[i].Record.Inputs); diff != "" {
			t.Fatal(fmt.Sprint("query ", i, ": ", diff))
		}
	}
}
