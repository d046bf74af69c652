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
		block   = 250_000 // compressed to nothing, it saves 75 µs of writing
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
	b.begin(now, 2) // 5 ms of zstd a second, 20 of s2
	for range savings {
		ask(0, frameZstd) // saved-up credit pays for it
		b.compressed(frameZstd, 5*time.Millisecond, block, 0)
	}
	for range 1000 {
		ask(0, frameS2) // the saved writing pays for it
		b.compressed(frameS2, 75*time.Microsecond, block, 0)
	}
	for range savings {
		ask(0, frameS2)
		b.compressed(frameS2, 5075*time.Microsecond, block, 0)
	}
	ask(0, frameStored)
	ask(time.Millisecond, frameZstd) // a credit of 5 µs is enough to start
	b.compressed(frameZstd, time.Millisecond, block, 0)
	ask(198*time.Millisecond, frameS2) // 995 µs were overdrawn
	ask(-time.Hour, frameS2)
	b.s2.credit = 0
	ask(0, frameStored)
	ask(time.Second, frameZstd)
	ask(24*time.Hour, frameZstd)
	if b.zstd.credit != maxCredit || b.s2.credit != maxCredit {
		t.Errorf("credits are %s and %s, expected %s", b.zstd.credit, b.s2.credit, maxCredit)
	}

	b.begin(now, 2) // data that does not shrink
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

// kinds counts the frames in a directory's files by kind.
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

// zstd is used while its budget lasts, then s2, then neither; all entries can be read.
func TestCompressesAsTimeAllows(t *testing.T) {
	var looks atomic.Int64 // number of clock readings, each of which advances it by 10 ms, the cost of a thousand blocks
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

// Random data is stored without expansion, and takes little of the compression budget.
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
