package workertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/local"
)

// gate is a FIFO that a worker's predict waits at.
type gate struct {
	t    *testing.T
	path string
	end  *os.File
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, path: filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(g.path, 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gate) marker() string { return "wait:" + g.path }

// reached blocks until predict is at the gate.
func (g *gate) reached() {
	g.t.Helper()
	end, err := os.OpenFile(g.path, os.O_WRONLY, 0) // blocks until the FIFO has a reader
	if err != nil {
		g.t.Fatal(err)
	}
	g.end = end
}

func (g *gate) open() { g.end.Close() }

// remove takes the gate away, whether or not predict is at it: predict goes on, or fails because there is no gate.
func (g *gate) remove() {
	g.t.Helper()
	end, err := os.OpenFile(g.path, os.O_RDWR, 0) // does not block, and lets a reader's open return
	if err != nil {
		g.t.Fatal(err)
	}
	os.Remove(g.path)
	end.Close()
}

// An answer that does not fit its grant gets a larger one, in these segments or in larger ones.
func testMoreRoom(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers))
	for _, n := range []int{200_000, 10, 900_000, 5_000_000, 1} {
		large, small := r.Send(Texts(fmt.Sprint("big:", n), "x")...), r.Send(Texts("behind")...)
		r.WantTexts(large, strings.Repeat("x", n), "x")
		r.WantTexts(small, "behind")
	}
	r.stop()
}

// A batch that no segment can hold is TooLarge, in both directions, and other batches are not affected.
func testTooLarge(t *testing.T, su *suite) {
	const max = 2 << 20
	r := su.start(t, Text(), 2, max, model(Markers))
	for range 2 {
		large, small := r.Send(Texts(fmt.Sprint("big:", max))...), r.Send(Texts("behind")...)
		r.WantCode(large, api.TooLarge, "larger than")
		r.WantTexts(small, "behind")
	}
	var refused *api.Error
	if err := r.TrySend(r.NewBatch(Texts(strings.Repeat("i", max))...)); !errors.As(err, &refused) || refused.Code != api.TooLarge {
		t.Errorf("a batch that fits no segment: %v, expected TooLarge", err)
	}
	r.WantTexts(r.Send(Texts("next")...), "next")
	r.stop()
}

// Two answers of which only one fits a segment at a time are sent one after the other. Neither is too large.
func testTwoThatJustFit(t *testing.T, su *suite) {
	const max, n = 2 << 20, 1_900_000
	r := su.start(t, Text(), 3, max, model(Markers))
	for range 3 {
		first, second := r.Send(Texts(fmt.Sprint("big:", n))...), r.Send(Texts(fmt.Sprint("big:", n))...)
		third := r.Send(Texts(strings.Repeat("i", 1_500_000))...)
		r.WantTexts(first, strings.Repeat("x", n))
		r.WantTexts(second, strings.Repeat("x", n))
		r.WantOK(third)
	}
	r.stop()
}

// Segments grow several times under traffic, for inputs and for outputs, with batches outstanding.
func testGrowth(t *testing.T, su *suite) {
	const depth = 3
	r := su.start(t, Text(), depth, 0, model(Markers))
	type sent struct {
		b    *api.Batch
		want string
	}
	var flying []sent
	settle := func(keep int) {
		for len(flying) > keep {
			r.WantTexts(flying[0].b, flying[0].want, "tail")
			flying = flying[1:]
		}
	}
	for round := range 40 {
		n := 1000 << (round / 3)
		text, want := strings.Repeat("i", n), strings.Repeat("i", n)
		if round%2 == 1 {
			text, want = fmt.Sprint("big:", n), strings.Repeat("x", n)
		}
		settle(depth - 1)
		flying = append(flying, sent{r.Send(Texts(text, "tail")...), want})
		settle(round % depth)
	}
	settle(0)
	r.stop()
}

// Segments become small again when the worker has nothing to do, and grow again; what it still holds a view of stays valid.
func testShrinking(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers))
	if _, ok := r.gateway.Transport.(*local.Hub); !ok {
		r.stop()
		return // another transport has no segments
	}
	size := func() uint64 { return r.Replica.Stats().SegmentBytes }
	first := size()
	large := strings.Repeat("i", 6<<20)
	for range 3 {
		r.WantTexts(r.Send(Texts(large)...), large)
		for deadline := time.Now().Add(patience); size() > first; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("the segments have %d bytes, and had %d at first", size(), first)
			}
		}
		r.WantTexts(r.Send(Texts("small")...), "small")
	}
	r.stop()
}

// The replica takes as many batches as its depth, and no more. They are answered in order.
func testPipeline(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers))
	first, second := r.Send(Texts(g.marker())...), r.Send(Texts("behind")...)
	g.reached()
	var refused *api.Error
	if err := r.TrySend(r.NewBatch(Texts("one too many")...)); !errors.As(err, &refused) || refused.Code != api.Unavailable {
		t.Errorf("a third batch: %v, expected Unavailable", err)
	}
	if res, ok := r.Events.Result(second.ID); ok {
		t.Errorf("the second batch is done before the first: %+v", res)
	}
	g.open()
	r.WantTexts(second, "behind")
	if _, ok := r.Events.Result(first.ID); !ok {
		t.Error("the second batch is done before the first")
	}
	r.WantTexts(first, g.marker())
	r.stop()
}

// SIGTERM makes a worker send LEAVING. When it is drained it ends in order.
func testStop(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers))
	r.WantTexts(r.Send(Texts("x")...), "x")
	r.terminate()
	r.WantTexts(r.Send(Texts("not drained yet")...), "not drained yet")
	r.stop()
}

func (r *running) terminate() {
	r.TB.Helper()
	if err := r.process.Signal(syscall.SIGTERM); err != nil {
		r.TB.Fatalf("%v", err)
	}
	if reason := r.Events.WaitLeaving(r.TB); reason == "" {
		r.TB.Errorf("LEAVING without a reason")
	}
}

// SIGTERM during a batch: the worker answers what it holds before it ends.
func testStopWhileBusy(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers))
	first, second := r.Send(Texts(g.marker())...), r.Send(Texts("behind")...)
	g.reached()
	if err := r.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.open()
	r.Events.WaitLeaving(t)
	r.Replica.Drain() // while batches are outstanding, which were sent before it
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	r.TB = t
	for b, want := range map[*api.Batch]string{first: g.marker(), second: "behind"} {
		if res, ok := r.Events.Result(b.ID); !ok || res.Code != api.OK || string(b.Queries[0].Outputs[0].Data) != want {
			t.Errorf("batch %d: %+v, %v", b.ID, res, ok)
		}
	}
	if err := r.process.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
}

// A worker is killed in a batch: that one had begun, the one behind it had not.
func testKilled(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers))
	r.WantTexts(r.Send(Texts("x")...), "x")
	first, second := r.Send(Texts(g.marker())...), r.Send(Texts("behind")...)
	g.reached()
	if err := r.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	g.open()
	if left := r.Left(); len(left) != 2 || !left[first.ID] || left[second.ID] {
		t.Errorf("left %v: expected batch %d begun and batch %d not", left, first.ID, second.ID)
	}
	if err := r.process.Wait(); err == nil {
		t.Error("the worker exited with 0, expected SIGKILL")
	}
}
