package inferlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
)

// childVariable selects what the test program does when it is started as a child process.
const childVariable = "INFERLOG_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "killed":
		childKilled()
	case "full":
		childFull()
	}
	goleak.VerifyTestMain(m)
}

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)

// manualConfig is a configuration with a fixed clock, whose blocks wait for Flush.
func manualConfig(dir string) Config {
	return Config{Dir: dir, Flush: time.Hour, Now: func() time.Time { return testTime }}
}

func mustOpen(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, l) })
	return l
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func mustFlush(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// line is an entry with its own memory.
type line struct {
	Kind     EntryKind
	Schema   *Schema
	Record   *Record
	Feedback *Feedback
}

func copyOf(e *Entry) line {
	l := line{Kind: e.Kind, Schema: e.Schema}
	if e.Kind == KindFeedback {
		f := e.Feedback
		f.Label, f.Context = slices.Clone(f.Label), slices.Clone(f.Context)
		l.Feedback = &f
		return l
	}
	r := e.Record
	r.RequestID, r.Context, r.Models = slices.Clone(r.RequestID), slices.Clone(r.Context), slices.Clone(r.Models)
	r.Inputs, r.Outputs = copyValues(r.Inputs), copyValues(r.Outputs)
	l.Record = &r
	return l
}

func copyValues(values []api.Value) []api.Value {
	values = slices.Clone(values)
	for i := range values {
		values[i].Data, values[i].Dims = slices.Clone(values[i].Data), slices.Clone(values[i].Dims)
	}
	return values
}

func readAll(t testing.TB, paths ...string) ([]line, Summary) {
	t.Helper()
	var all []line
	sum, err := Read(paths, func(e *Entry) error {
		all = append(all, copyOf(e))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, sum
}

// compare returns the difference between entries. Empty equals nil, and NaN equals itself.
func compare(a, b any) string {
	return cmp.Diff(a, b, cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
		cmp.Comparer(func(a, b []byte) bool { return string(a) == string(b) }),
		cmp.Comparer(func(a, b []int64) bool { return slices.Equal(a, b) }),
		cmp.Comparer(func(a, b []api.ModelID) bool { return slices.Equal(a, b) }),
		cmp.Transformer("values", func(v []api.Value) string { return fmt.Sprintf("%d %v", len(v), v) }))
}

var (
	digitsIn  = []api.TensorSpec{{Name: "image", DType: api.Float32, Shape: []int64{4}}}
	digitsOut = []api.TensorSpec{{Name: "digit", DType: api.Int64}}
)

func floats(all ...float32) []byte {
	var b []byte
	for _, f := range all {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func int64s(all ...int64) []byte {
	var b []byte
	for _, v := range all {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// query returns a record of the function "digits".
func query(id uint64) *Record {
	return &Record{
		ID: id, AtMicros: testTime.UnixMicro() + int64(id), TookMicros: 1500, Confidence: 0.75, RequestID: []byte("req-1"), Context: []byte("user-17"),
		Models: []api.ModelID{{Name: "svm", Version: "3"}},
		Inputs: []api.Value{{Data: floats(0, 1.5, -2, float32(id))}}, Outputs: []api.Value{{Data: int64s(int64(id % 10))}},
	}
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return all
}
