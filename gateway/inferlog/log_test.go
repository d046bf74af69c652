package inferlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func drawSpecs(t *rapid.T, what string) []api.TensorSpec {
	var all []api.TensorSpec
	for i := range rapid.IntRange(1, 3).Draw(t, what) {
		s := api.TensorSpec{Name: fmt.Sprintf("%s%d", what, i), DType: api.DType(rapid.IntRange(int(api.Bool), int(api.Bytes)).Draw(t, "dtype"))}
		for range rapid.IntRange(0, 3).Draw(t, "rank") {
			s.Shape = append(s.Shape, rapid.Int64Range(-1, 3).Draw(t, "dim"))
		}
		all = append(all, s)
	}
	return all
}

func drawValues(t *rapid.T, specs []api.TensorSpec) []api.Value {
	all := make([]api.Value, len(specs))
	for i, s := range specs {
		dims := make([]int64, len(s.Shape))
		for j, d := range s.Shape {
			if dims[j] = d; d < 0 {
				dims[j] = rapid.Int64Range(0, 3).Draw(t, "actual")
			}
		}
		v := &all[i]
		if !s.Fixed() && len(dims) > 0 {
			v.Dims = dims
		}
		n := int(api.Elements(dims))
		switch {
		case !s.DType.Variable():
			v.Data = rapid.SliceOfN(rapid.Byte(), n*s.DType.Size(), n*s.DType.Size()).Draw(t, "data")
		case len(dims) == 0:
			v.Data = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
		default:
			for range n {
				item := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "item")
				v.Data = append(append(v.Data, byte(len(item)), 0, 0, 0), item...)
			}
		}
	}
	return all
}

func drawFeedback(t *rapid.T) *Feedback {
	f := &Feedback{
		ID: rapid.Uint64().Draw(t, "id"), AtMicros: rapid.Int64().Draw(t, "at"), Kind: FeedbackKind(rapid.IntRange(1, 3).Draw(t, "kind")),
		Loss: rapid.Float64Range(0, 1).Draw(t, "loss"), Context: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "context"),
	}
	if f.Kind == FeedbackLabel {
		f.Label = []byte(rapid.SampledFrom([]string{"7", `"x"`, "[1, 2]", "{\"a\":\nnull}"}).Draw(t, "label"))
	}
	return f
}

func drawRecord(t *rapid.T, s *Schema) *Record {
	r := &Record{
		ID: rapid.Uint64().Draw(t, "id"), AtMicros: rapid.Int64().Draw(t, "at"), TookMicros: rapid.Int64Range(0, math.MaxInt64).Draw(t, "took"),
		Code: api.Code(rapid.Byte().Draw(t, "code")), Default: rapid.Bool().Draw(t, "default"),
		Confidence: rapid.SampledFrom([]float64{0, 0.25, 1, math.NaN()}).Draw(t, "confidence"), RequestID: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "request"), Context: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "context"),
		Inputs: drawValues(t, s.Inputs),
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "models") {
		r.Models = append(r.Models, api.ModelID{Name: fmt.Sprintf("m%d", i), Version: rapid.StringN(1, 5, 63).Draw(t, "version")})
	}
	if rapid.Bool().Draw(t, "answered") {
		r.Outputs = drawValues(t, s.Outputs)
	}
	return r
}

// For any signatures, what is read is what was added, in the same order, however it was divided into blocks and files.
func TestRoundTrip(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		cfg := manualConfig(dir)
		cfg.BlockBytes, cfg.FileBytes, cfg.Blocks = 1024, int64(rapid.IntRange(200, 5000).Draw(t, "file")), 64
		l, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(context.Background())
		var streams []*Stream
		for i := range rapid.IntRange(1, 3).Draw(t, "functions") {
			streams = append(streams, l.Function(fmt.Sprintf("f%d", i), drawSpecs(t, "in"), drawSpecs(t, "out"), rapid.Float64Range(0, 1).Draw(t, "sample")))
		}
		var want []line
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			s := streams[rapid.IntRange(0, len(streams)-1).Draw(t, "stream")]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if err := l.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
			case 1, 2:
				f := drawFeedback(t)
				s.Feedback(f)
				want = append(want, line{Kind: KindFeedback, Schema: &s.schema, Feedback: f})
			default:
				r := drawRecord(t, &s.schema)
				s.Add(r)
				want = append(want, line{Kind: KindQuery, Schema: &s.schema, Record: r})
			}
		}
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		var got []line
		sum, err := Read([]string{dir}, func(e *Entry) error {
			got = append(got, copyOf(e))
			return nil
		})
		if err != nil || sum.Damaged > 0 {
			t.Fatal(err, sum.Notes)
		}
		if diff := compare(want, got); diff != "" {
			t.Fatalf("read entries differ from added ones:\n%s", diff)
		}
		stats := l.Stats()
		if stats.Dropped.Total() != 0 || int(stats.Records) != sum.Queries || int(stats.Feedback) != sum.Feedback || int64(stats.RawBytes) != sum.RawBytes ||
			int64(stats.WrittenBytes) != sum.FileBytes || stats.KeptBytes != sum.FileBytes || stats.Files != sum.Files {
			t.Fatalf("stats %+v, read %+v", stats, sum)
		}
	})
}

func TestSampled(t *testing.T) {
	l := mustOpen(t, manualConfig(t.TempDir()))
	stream := func(sample float64) *Stream { return l.Function("digits", digitsIn, digitsOut, sample) }
	const n = 100_000
	for _, sample := range []float64{0, 0.01, 0.5, 0.9, 1, -1, 7, math.NaN()} {
		s, more := stream(sample), l.Function("more", digitsIn, digitsOut, math.Min(sample+0.05, 1))
		count := 0
		for id := range uint64(n) {
			yes := s.Sampled(id<<20 | 5)
			if yes != s.Sampled(id<<20|5) {
				t.Fatalf("sample %v: query %d is sampled on one call and not on another", sample, id)
			}
			if yes {
				count++
				if sample >= 0 && !more.Sampled(id<<20|5) {
					t.Fatalf("query %d is in a sample of %v but not in a larger one", id, sample)
				}
			}
		}
		want := math.Max(0, math.Min(sample, 1))
		if math.IsNaN(sample) {
			want = 0
		}
		if got := float64(count) / n; math.Abs(got-want) > 0.01 || (want == 0 || want == 1) && got != want {
			t.Errorf("sample %v: a fraction of %v is sampled", sample, got)
		}
	}
	var none *Stream
	if none.Sampled(1) {
		t.Error("a nil Stream samples")
	}
	none.Add(query(1))
	none.Feedback(&Feedback{Kind: FeedbackLoss})
}

func TestFunctionIsTheSameUntilItChanges(t *testing.T) {
	l := mustOpen(t, manualConfig(t.TempDir()))
	specs := []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}
	a := l.Function("f", specs, digitsOut, 0.5)
	if l.Function("f", []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}, digitsOut, 0.5) != a {
		t.Error("the same declaration has a new stream")
	}
	specs[0].Shape[0] = 3 // the test's own slice
	if l.Function("f", []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}, digitsOut, 0.5) != a {
		t.Error("the stream refers to the caller's specs instead of a copy")
	}
	for _, other := range []*Stream{l.Function("g", digitsIn, digitsOut, 0.5), l.Function("f", specs, digitsOut, 0.5), l.Function("f", digitsIn, digitsOut, 0.5), l.Function("f", digitsIn, digitsOut, 0.6)} {
		if other == a {
			t.Error("a different function, signature or sample has the same stream")
		}
		a = other
	}
	if a := l.Function("n", digitsIn, digitsOut, math.NaN()); a != l.Function("n", digitsIn, digitsOut, math.NaN()) {
		t.Error("a NaN sample makes a new stream each time")
	}
	for i := range maxFunctions + 10 {
		l.Function(fmt.Sprint("f", i), digitsIn, digitsOut, 1)
	}
	if n := len(l.streams); n > maxFunctions {
		t.Errorf("%d functions are remembered", n)
	}
}

func TestDroppedRecords(t *testing.T) {
	cfg := manualConfig(t.TempDir())
	cfg.BlockBytes = 64 << 10
	l := mustOpen(t, cfg)
	s := l.Function("text", []api.TensorSpec{{Name: "x", DType: api.Bytes}}, digitsOut, 1)
	ok := Record{Inputs: []api.Value{{Data: []byte("x")}}, Outputs: []api.Value{{Data: int64s(1)}}}
	for _, change := range []func(r *Record){
		func(r *Record) { r.Inputs = nil },
		func(r *Record) { r.Outputs = append(r.Outputs, r.Outputs[0]) },
		func(r *Record) { r.Models = make([]api.ModelID, maxModels+1) },
	} {
		r := ok
		change(&r)
		s.Add(&r)
	}
	s.Feedback(&Feedback{Kind: 9})
	huge := ok
	huge.Inputs = []api.Value{{Data: make([]byte, MaxRecordBytes)}}
	s.Add(&huge)
	s.Feedback(&Feedback{Kind: FeedbackLabel, Label: make([]byte, MaxRecordBytes)})
	large := ok
	large.Inputs = []api.Value{{Data: []byte(strings.Repeat("x", MaxRecordBytes-500))}}
	s.Add(&ok)
	s.Add(&large) // has its own frame
	s.Add(&ok)
	mustClose(t, l)
	s.Add(&ok)
	if got, want := l.Stats().Dropped, (Dropped{SchemaMismatch: 4, TooLarge: 2, Closed: 1}); got != want {
		t.Errorf("dropped %+v, want %+v", got, want)
	}
	all, sum := readAll(t, l.cfg.Dir)
	if len(all) != 3 || sum.Frames != 3 || len(all[1].Record.Inputs[0].Data) != MaxRecordBytes-500 {
		t.Errorf("%d entries in %d frames", len(all), sum.Frames)
	}
}

// gate is a file whose writes wait until the test permits them.
type gate struct {
	file
	entered chan struct{}
	open    chan struct{}
}

func (g gate) Write(b []byte) (int, error) {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.open
	return g.file.Write(b)
}

func TestDropsWhileTheWriterIsStuck(t *testing.T) {
	g := gate{entered: make(chan struct{}, 1), open: make(chan struct{})}
	cfg := manualConfig(t.TempDir())
	cfg.BlockBytes, cfg.Blocks = 1024, 3
	l, err := open(cfg, func(path string) (file, error) {
		f, err := createFile(path)
		return gate{f, g.entered, g.open}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := l.Function("digits", digitsIn, digitsOut, 1)
	const n = 1000
	for id := range uint64(n) {
		s.Add(query(id))
		if id == 50 { // more than one block: the writer has something to write
			<-g.entered
		}
	}
	dropped := l.Stats().Dropped
	if dropped.Busy == 0 || dropped != (Dropped{Busy: dropped.Busy}) {
		t.Errorf("dropped %+v", dropped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
	if err := l.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), cfg.Dir) {
		t.Errorf("Close: %v", err)
	}
	close(g.open)
	mustClose(t, l)
	all, _ := readAll(t, cfg.Dir)
	if got := uint64(len(all)); got != n-dropped.Busy || got != l.Stats().Records {
		t.Errorf("%d of %d records are logged, %d dropped, stats %+v", got, n, dropped.Busy, l.Stats())
	}
	for i := range all {
		if all[i].Record.ID != uint64(i) { // the first ones: the last had no room
			t.Fatalf("entry %d is query %d", i, all[i].Record.ID)
		}
	}
}

// failing is a file that fails after a partial write while broken returns true.
type failing struct {
	file
	broken *bool
}

var errBroken = errors.New("no space left on device")

func (f failing) Write(b []byte) (int, error) {
	if !*f.broken {
		return f.file.Write(b)
	}
	n, _ := f.file.Write(b[:len(b)/2])
	return n, errBroken
}

func TestTemporaryDiskFailure(t *testing.T) {
	now, broken := testTime, false
	core, logged := observer.New(zapcore.InfoLevel)
	cfg := manualConfig(t.TempDir())
	cfg.Now, cfg.Log = func() time.Time { return now }, zap.New(core)
	l, err := open(cfg, func(path string) (file, error) {
		f, err := createFile(path)
		return failing{f, &broken}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	s := l.Function("digits", digitsIn, digitsOut, 1)
	add := func(id uint64) { // the writer is idle until a flush, so the test may access now and broken
		s.Add(query(id))
		mustFlush(t, l)
	}
	add(1)
	broken = true
	add(2)
	add(3) // within the pause after the failure
	now = now.Add(retryAfter)
	add(4) // retried in a new file
	stats := l.Stats()
	if !stats.Unavailable || !strings.Contains(stats.LastError, errBroken.Error()) || stats.Dropped != (Dropped{Write: 3}) {
		t.Errorf("%+v", stats)
	}
	if got := names(t, cfg.Dir); len(got) != 1 || stats.Files != 1 {
		t.Errorf("files %v, stats %+v: expected only the file with entries", got, stats)
	}
	broken = false
	now = now.Add(retryAfter)
	add(5)
	add(6)
	if stats = l.Stats(); stats.Unavailable || stats.Records != 3 || stats.LastError == "" || stats.Files != 2 {
		t.Errorf("%+v", stats)
	}
	all, sum := readAll(t, cfg.Dir)
	if sum.Damaged != 0 || len(all) != 3 || all[0].Record.ID != 1 || all[1].Record.ID != 5 || all[2].Record.ID != 6 {
		t.Errorf("%d entries, %v", len(all), sum.Notes)
	}
	if logged.Len() != 2 || logged.All()[0].Level != zap.WarnLevel {
		t.Errorf("%d log lines: %v", logged.Len(), logged.All())
	}
}

func TestManyGoroutines(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Flush: time.Millisecond, BlockBytes: 4096, Blocks: 4}
	l := mustOpen(t, cfg)
	const workers, each = 8, 500
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			for i := range uint64(each) {
				s := l.Function(fmt.Sprint("f", i%3), digitsIn, digitsOut, 1)
				s.Add(query(w*each + i))
				s.Feedback(&Feedback{ID: w*each + i, Kind: FeedbackCorrect})
				if i%100 == 0 {
					l.Stats()
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	stats := l.Stats()
	seen := map[uint64]int{}
	sum, err := Read([]string{cfg.Dir}, func(e *Entry) error {
		if e.Kind == KindQuery {
			seen[e.Record.ID]++
			if want := query(e.Record.ID); string(want.Inputs[0].Data) != string(e.Record.Inputs[0].Data) {
				return fmt.Errorf("query %d has another query's input", e.Record.ID)
			}
		}
		return nil
	})
	if err != nil || sum.Damaged > 0 {
		t.Fatal(err, sum.Notes)
	}
	if total := stats.Records + stats.Feedback + stats.Dropped.Busy; total != 2*workers*each || stats.Records != uint64(len(seen)) || uint64(sum.Feedback) != stats.Feedback {
		t.Errorf("stats %+v, read %+v, %d ids", stats, sum, len(seen))
	}
	if stats.Records == 0 {
		t.Error("nothing was logged")
	}
}

// Added records are written without a call of Flush.
func TestFlushesPeriodically(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Flush: time.Millisecond}
	l := mustOpen(t, cfg)
	l.Function("digits", digitsIn, digitsOut, 1).Add(query(1))
	for l.Stats().Records == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("nothing was written")
		case <-l.stopped:
			t.Fatal("the writer has stopped")
		case <-time.After(time.Millisecond):
		}
	}
	if all, _ := readAll(t, cfg.Dir); len(all) != 1 {
		t.Errorf("%d entries", len(all))
	}
}

func TestOpenRefuses(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no directory"},
		{Config{Dir: plain}, "cannot create"},
		{Config{Dir: filepath.Join(plain, "below")}, "cannot create"},
		{Config{Dir: dir, MaxBytes: 1 << 20}, "expected 8388608 or more"},
		{Config{Dir: dir, MaxBytes: -1}, "expected 8388608 or more"},
		{Config{Dir: dir, FileBytes: -1}, "negative"},
		{Config{Dir: dir, Flush: -1}, "negative"},
		{Config{Dir: dir, BlockBytes: 10}, "expected 1024 to"},
		{Config{Dir: dir, BlockBytes: 2 << 20}, "expected 1024 to"},
		{Config{Dir: dir, Blocks: 1}, "expected 2 to"},
	} {
		l, err := Open(c.cfg)
		if err == nil {
			mustClose(t, l)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.cfg, err, c.want)
		}
	}
	l := mustOpen(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("two gateways opened the same directory: %v", err)
	}
	lock, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", l.Dir().Fd())) // another process inherits the descriptor; here it need only be one
	if err != nil {
		t.Fatal(err)
	}
	next := mustOpen(t, Config{Dir: dir, Locked: lock})
	mustClose(t, next)
	mustClose(t, l)
	again, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, again)
}

// A flush waits for a block that is still being filled, and writes later blocks after it.
func TestFlushWaitsForUnfilledEntries(t *testing.T) {
	cfg := manualConfig(t.TempDir())
	l := mustOpen(t, cfg)
	s := l.Function("digits", digitsIn, digitsOut, 1)
	slow := query(1)
	b, room := s.reserve(entryQuery, slow.size(s.id))
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan error)
	go func() { flushed <- l.Flush(ctx) }()
	for sealed := 0; sealed == 0; { // the writer's next block is the one being filled
		l.mu.Lock()
		sealed = len(l.sealed)
		l.mu.Unlock()
		runtime.Gosched()
	}
	s.Add(query(2))
	cancel()
	if err := <-flushed; !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
	if stats := l.Stats(); stats.Records != 0 || stats.Dropped.Total() != 0 {
		t.Errorf("before it is filled: %+v", stats)
	}
	appendRecord(room, s.id, slow)
	l.filled(b)
	mustClose(t, l)
	all, sum := readAll(t, cfg.Dir)
	if len(all) != 2 || sum.Frames != 2 || all[0].Record.ID != 1 || all[1].Record.ID != 2 {
		t.Errorf("%d entries in %d frames, %v", len(all), sum.Frames, sum.Notes)
	}
}

// Room is reserved before an entry is encoded: its size must be exact.
func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Schema{Inputs: drawSpecs(t, "in"), Outputs: drawSpecs(t, "out")}
		stream := rapid.Uint64().Draw(t, "stream")
		r, f := drawRecord(t, s), drawFeedback(t)
		r.TookMicros = rapid.Int64().Draw(t, "any")
		if got, want := r.size(stream), len(appendRecord(nil, stream, r)); got != want {
			t.Errorf("the size of a query of %d bytes is computed as %d: %+v", want, got, r)
		}
		if got, want := f.size(stream), len(appendFeedback(nil, stream, f)); got != want {
			t.Errorf("the size of a feedback of %d bytes is computed as %d: %+v", want, got, f)
		}
	})
	for _, v := range []uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1 << 63, math.MaxUint64} {
		if got, want := uvarintSize(v), len(binary.AppendUvarint(nil, v)); got != want {
			t.Errorf("the varint %d has %d bytes, expected %d", v, got, want)
		}
	}
}

// After Reopen another program may move the files that there are: what comes later is in another one.
func TestReopenGoesOnInANewFile(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, manualConfig(dir))
	s := l.Function("digits", digitsIn, digitsOut, 1)
	for id := range uint64(2) {
		if err := l.Reopen(t.Context()); err != nil { // the first time there is no file
			t.Fatal(err)
		}
		s.Add(query(id))
		mustFlush(t, l)
		files, err := listFiles(dir)
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v: want 1", len(files), err)
		}
		if err := l.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, files[0].name)); err != nil {
			t.Fatal(err)
		}
	}
}
