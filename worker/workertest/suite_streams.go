package workertest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// The cases of models that answer in streams: section 4.1 of the protocol.
var streamCases = []testCase{
	{name: "order", run: testStreamOrder},
	{name: "credits", run: testStreamCredits},
	{name: "single outputs", run: testStreamSingle},
	{name: "unwanted between turns", run: testStreamDiscarded},
	{name: "unwanted in predict", run: testStreamCancelled},
	{name: "unwanted before the first output", run: testStreamWithdrawn},
	{name: "unwanted while predict sends", run: testStreamCancelledWhileSending},
	{name: "ends", run: testStreamEnds},
	{name: "text", run: testStreamText},
	{name: "sections", run: testStreamSections},
	{name: "many", run: testStreamsMany},
	{name: "larger segments", run: testStreamGrowth},
	{name: "too large", run: testStreamTooLarge},
	{name: "drain", run: testStreamDrain},
	{name: "stop", run: testStreamStop},
	{name: "gateway gone", run: testStreamGatewayGone},
	{name: "dies", dies: true, run: testStreamDies},
	{name: "silent", run: testStreamSilent},
	{name: "not declared", run: testStreamNotDeclared},
}

// stream launches a worker of the model Stream.
func (su *suite) stream(t *testing.T, maxBatchBytes uint64, env ...string) *running {
	t.Helper()
	return su.declared(t, maxBatchBytes, 0, append(env, model(Stream))...)
}

// declared launches a worker whose model is declared to answer in streams.
func (su *suite) declared(t *testing.T, maxBatchBytes uint64, idle time.Duration, env ...string) *running {
	t.Helper()
	g, start := su.open(t, maxBatchBytes)
	l := Expect(t, g.Transport, worker.Expectation{Signature: Text(), Depth: 2, Streams: true, StreamIdle: idle})
	p := start(t, append(l.Env, env...))
	return &running{NewSession(t, l), g, p}
}

// end is a FIFO that the model opens when its code for a stream ends.
type end struct {
	t    *testing.T
	path string
}

func newEnd(t *testing.T) end {
	t.Helper()
	e := end{t, filepath.Join(t.TempDir(), "end")}
	if err := syscall.Mkfifo(e.path, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e end) step() string { return " ends:" + e.path + " " }

// reached blocks until the code has ended.
func (e end) reached() {
	e.t.Helper()
	if _, err := os.ReadFile(e.path); err != nil { // blocks until the FIFO has a writer
		e.t.Fatal(err)
	}
}

func numbers(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// Outputs come in order. The first one is the answer of the query, the others follow when the reader asks for them.
func testStreamOrder(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	if !r.Replica.Info().Capabilities.Streams {
		t.Errorf("%+v, expected streams", r.Replica.Info().Capabilities)
	}
	for _, n := range []int{1, 2, 3, 500} {
		reader := NewReader(t, false)
		b := r.SendStream(reader, fmt.Sprint("count:", n))
		if n > 1 { // the worker may say at once that the only output was the last
			reader.Source().Resume()
		} else {
			r.resumeUntilDone(b, reader)
		}
		r.WantOK(b)
		reader.Want(b, numbers(n)...)
	}
	r.wantServed(4, 4)
	r.stop()
}

// resumeUntilDone resumes a stream that may end with its first message.
func (r *running) resumeUntilDone(b *api.Batch, reader *Reader) {
	r.TB.Helper()
	r.Events.wait(r.TB, "the end of a stream, or its first output", func() bool {
		_, done := r.Events.done[b.ID]
		return done || r.Events.first[b.ID]
	})
	if _, done := r.Events.Result(b.ID); !done {
		reader.Source().Resume()
	}
}

// A worker sends one message for each time that its reader asks, and reads on for others meanwhile.
func testStreamCredits(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	slow := NewReader(t, true)
	b := r.SendStream(slow, "count:1000")
	from := slow.Source()
	other := func() {
		t.Helper()
		reader := NewReader(t, false)
		b := r.SendStream(reader, "count:300")
		reader.Source().Resume()
		r.WantOK(b)
		reader.Want(b, numbers(300)...)
	}
	other()
	if took := slow.Took(); len(took) > 0 {
		t.Errorf("%d outputs for a reader that has not asked", len(took))
	}
	from.Resume()
	first := len(slow.Message(1))
	other()
	if took := len(slow.Took()); took != first || took > 256 {
		t.Errorf("%d outputs for a reader that is full since it took %d", took, first)
	}
	for seen := first; seen < 999; seen = len(slow.Took()) {
		from.Resume()
		slow.Wait(seen + 1)
	}
	r.resumeAtEnd(b, from)
	slow.Want(b, numbers(1000)...)
	r.stop()
}

// resumeAtEnd waits for the end of a stream of which all outputs were taken. The last message may have said so.
func (r *running) resumeAtEnd(b *api.Batch, from api.Source) {
	r.TB.Helper()
	from.Resume() // has no effect if it has ended
	r.WantOK(b)
}

// A caller that takes no stream gets the first output, and the code of the stream ends.
func testStreamSingle(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	e := newEnd(t)
	b := r.SendStream(nil, e.step()+"out:first forever")
	e.reached() // before the worker may say that the stream has ended
	r.WantTexts(b, "first")
	r.WantTexts(r.SendStream(nil, "out:only"), "only")
	r.stop()
}

// A stream can be ended in the gateway's turn, while its code is ahead of the reader.
func testStreamDiscarded(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	for range 20 {
		e, reader := newEnd(t), NewReader(t, true)
		b := r.SendStream(reader, e.step()+"out:first forever")
		from := reader.Source()
		from.Cancel()
		from.Cancel()
		e.reached()
		r.WantOK(b)
		from.Resume() // too late, and without effect
		from.Cancel()
	}
	r.wantServed(20, 20)
	r.stop()
}

// A stream can be ended in the worker's turn, while its code does something else. What it sends afterwards is dropped.
func testStreamCancelled(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	for range 5 {
		g, e, reader := newGate(t), newEnd(t), NewReader(t, false)
		b := r.SendStream(reader, "out:first"+e.step()+g.marker()+" out:second forever")
		from := reader.Source()
		from.Resume()
		g.reached()
		from.Cancel()
		g.open()
		e.reached()
		r.WantOK(b)
	}
	r.stop()
}

// A stream whose caller leaves before the first output ends before it, and is no failure: while its code runs, and before it was sent.
func testStreamWithdrawn(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	for range 5 {
		g, reader := newGate(t), NewReader(t, false)
		b := r.SendStream(reader, g.marker()+" out:first forever")
		g.reached()
		reader.Withdrawal().Cancel()
		reader.Withdrawal().Cancel()
		g.open()
		if res := r.Wait(b); res.Code != api.Cancelled && res.Code != api.OK { // the first output may cross the CANCEL
			t.Errorf("a stream that was withdrawn ended with %v %q", res.Code, res.Detail)
		}
	}
	gone := NewReader(t, false)
	gone.Leave()
	if res := r.Wait(r.SendStream(gone, "out:first forever")); res.Code != api.Cancelled && res.Code != api.OK {
		t.Errorf("a stream whose caller had left ended with %v %q", res.Code, res.Detail)
	}
	r.WantTexts(r.SendStream(nil, "out:only"), "only")
	r.stop()
}

// The same, at any moment of a stream that sends without a pause.
func testStreamCancelledWhileSending(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	for i := range 30 {
		e, reader := newEnd(t), NewReader(t, false)
		b := r.SendStream(reader, e.step()+"forever")
		from := reader.Source()
		from.Resume()
		reader.Wait(5 * i)
		from.Cancel()
		e.reached()
		r.WantOK(b)
	}
	r.stop()
}

// A stream may fail before its first output and after it, and be refused; others are not affected.
func testStreamEnds(t *testing.T, su *suite) {
	for _, confident := range []string{"0", "1"} {
		r := su.stream(t, 0, EnvConfidences+"="+confident)
		for _, c := range []struct {
			step   string
			code   api.Code
			status api.Code
			text   string
		}{
			{"error", api.ModelError, api.OK, "the marker error"},
			{"panic", api.ModelError, api.OK, "the marker panic"},
			{"bad", api.BadOutput, api.OK, ""},
			{"refuse:why", api.OK, api.InvalidInput, "why"},
			{"fail:why", api.OK, api.ModelError, "why"},
			{"", api.OK, api.OK, ""},
		} {
			for _, before := range []int{0, 1, 40} {
				reader := NewReader(t, false)
				b := r.SendStream(reader, fmt.Sprintf("count:%d %s", before, c.step))
				if before > 0 {
					reader.Source().Resume()
				}
				if c.step == "" && before == 0 {
					c.code, c.text = api.BadOutput, "without an output"
				}
				res := r.Wait(b)
				text := res.Detail
				if q := b.Queries[0]; c.status != api.OK {
					if text = q.Detail; q.Status != c.status {
						t.Errorf("%q after %d outputs: %v, expected %v", c.step, before, q.Status, c.status)
					}
				}
				if res.Code != c.code || !strings.Contains(text, c.text) {
					t.Errorf("%q after %d outputs: %v %q, expected %v with %q", c.step, before, res.Code, text, c.code, c.text)
				}
				if before > 0 {
					reader.Want(b, numbers(before)...)
				}
				c.code = map[bool]api.Code{true: api.OK, false: c.code}[c.step == ""]
				c.text = map[bool]string{true: "", false: c.text}[c.step == ""]
			}
		}
		r.stop()
	}
}

// A string that is not UTF-8 ends its stream, and nothing else: the binding finds it, since the gateway would have to end the worker for it.
func testStreamText(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	sig := api.Signature{Inputs: []api.TensorSpec{Spec("in", api.Bytes)}, Outputs: []api.TensorSpec{Spec("out", api.String)}}
	l := Expect(t, g.Transport, worker.Expectation{Signature: sig, Depth: 2, Streams: true})
	p := start(t, append(l.Env, model(Stream)))
	r := &running{NewSession(t, l), g, p}
	for _, first := range []string{"", "out:größer "} {
		reader := NewReader(t, false)
		b := r.SendStream(reader, first+"out:\xff out:more")
		if first != "" {
			reader.Source().Resume()
		}
		r.WantCode(b, api.BadOutput, "UTF-8")
		if took := reader.Took(); len(took) > 0 {
			t.Errorf("the stream goes on with %q", took)
		}
	}
	r.WantTexts(r.SendStream(nil, "out:größer"), "größer")
	r.stop()
}

// Contexts, parameters, calls and confidences go with streams as with batches.
func testStreamSections(t *testing.T, su *suite) {
	r := su.stream(t, 0, EnvContexts+"=1", EnvParameters+"=1", EnvCalls+"=1", EnvConfidences+"=1")
	reader := NewReader(t, false)
	b := r.NewBatch(Texts("out:first context parameters call")...)
	q := b.Queries[0]
	q.Stream, q.Context, q.Parameters = reader, []byte("user-17"), []byte(`{"top_k":3}`)
	q.Call = &api.Identity{RequestID: []byte("id"), TraceParent: []byte("00-1"), TraceState: []byte("x=y")}
	q.Deadline = Now() + api.Nanos(time.Hour)
	if err := r.TrySend(b); err != nil {
		t.Fatal(err)
	}
	reader.Source().Resume()
	r.WantOK(b)
	reader.Want(b, "first", "user-17", `{"top_k":3}`, "id|00-1|x=y|soon")
	for i, sure := range append([]float64{q.Confidence}, reader.sure...) {
		if sure != 0.5 {
			t.Errorf("confidence of output %d: %v, expected 0.5", i, sure)
		}
	}
	r.stop()
	r = su.stream(t, 0)
	reader = NewReader(t, false)
	b = r.SendStream(reader, "out:a out:b")
	reader.Source().Resume()
	r.WantOK(b)
	if sure := append(reader.sure, b.Queries[0].Confidence); len(sure) != 2 || !math.IsNaN(sure[0]) || !math.IsNaN(sure[1]) {
		t.Errorf("confidences %v, expected none", sure)
	}
	r.stop()
}

// As many streams run at once as the worker says, and each has its own outputs.
func testStreamsMany(t *testing.T, su *suite) {
	for _, concurrency := range []string{"8", "async8"} {
		r := su.stream(t, 0, EnvConcurrency+"="+concurrency)
		if got := r.Replica.Info().Concurrency; got != 8 {
			t.Fatalf("%s: the replica has a concurrency of %d, expected 8", concurrency, got)
		}
		for range 5 {
			var readers [8]*Reader
			var batches [8]*api.Batch
			for i := range readers {
				readers[i] = NewReader(t, i%2 == 0)
				batches[i] = r.SendStream(readers[i], fmt.Sprintf("count:%d", 50+i))
				readers[i].Source()
			}
			var refused *api.Error
			if err := r.TrySend(r.NewBatch(Texts("out:x")...)); !errors.As(err, &refused) || refused.Code != api.Unavailable {
				t.Errorf("one stream too many: %v, expected Unavailable", err)
			}
			for i, reader := range readers {
				for seen := 0; seen < 49+i; seen = len(reader.Took()) {
					reader.Source().Resume()
					reader.Wait(seen + 1)
				}
				r.resumeAtEnd(batches[i], reader.Source())
				reader.Want(batches[i], numbers(50+i)...)
			}
		}
		r.stop()
	}
}

// Segments grow while streams are open: in the gateway's turn, and for an output that waits for its room.
func testStreamGrowth(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	slow := NewReader(t, true)
	b := r.SendStream(slow, "count:100")
	from := slow.Source()
	for _, n := range []int{300_000, 3_000_000, 12_000_000} {
		reader := NewReader(t, false)
		b := r.SendStream(reader, fmt.Sprintf("out:first big:%d out:between big:%d", n, n+1))
		reader.Source().Resume()
		r.WantOK(b)
		reader.Want(b, "first", strings.Repeat("x", n), "between", strings.Repeat("x", n+1))
		large := NewReader(t, false)
		b = r.SendStream(large, fmt.Sprintf("big:%d out:last", n+2))
		large.Source().Resume()
		r.WantOK(b)
		large.Want(b, strings.Repeat("x", n+2), "last")
		seen := len(slow.Took())
		from.Resume()
		slow.Wait(seen + 1)
	}
	for seen := len(slow.Took()); seen < 99; seen = len(slow.Took()) {
		from.Resume()
		slow.Wait(seen + 1)
	}
	r.resumeAtEnd(b, from)
	slow.Want(b, numbers(100)...)
	r.stop()
}

// An output that no segment can hold ends its stream, as the first one or later.
func testStreamTooLarge(t *testing.T, su *suite) {
	const max = 2 << 20
	r := su.stream(t, max)
	for _, first := range []string{"", "out:first "} {
		e, reader := newEnd(t), NewReader(t, false)
		b := r.SendStream(reader, e.step()+first+fmt.Sprint("big:", max)+" forever")
		if first != "" {
			reader.Source().Resume()
		}
		e.reached()
		r.WantCode(b, api.TooLarge, "larger than")
	}
	r.WantTexts(r.SendStream(nil, "out:next"), "next")
	r.stop()
}

// A worker that is drained goes on with the streams that are open.
func testStreamDrain(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	reader := NewReader(t, false)
	b := r.SendStream(reader, "count:300")
	from := reader.Source()
	r.Replica.Drain()
	from.Resume()
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	if res, ok := r.Events.Result(b.ID); !ok || res.Code != api.OK {
		t.Errorf("the stream ended in %+v, %v", res, ok)
	}
	reader.Want(b, numbers(300)...)
	if err := r.process.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
}

// SIGTERM while streams are open: the worker asks for no more, and goes on with them.
func testStreamStop(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	reader := NewReader(t, false)
	b := r.SendStream(reader, "count:300")
	from := reader.Source()
	r.terminate()
	from.Resume()
	r.WantOK(b)
	reader.Want(b, numbers(300)...)
	r.stop()
}

func testStreamGatewayGone(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	reader := NewReader(t, true)
	b := r.SendStream(reader, "out:first forever")
	reader.Source()
	r.gateway.Close()
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	if left := r.Left(); !left[b.ID] {
		t.Errorf("left %v, expected batch %d, begun", left, b.ID)
	}
	if err := r.process.Wait(); err == nil {
		t.Error("a worker that lost its gateway ended without an error")
	}
}

func testStreamDies(t *testing.T, su *suite) {
	r := su.stream(t, 0)
	reader := NewReader(t, false)
	b := r.SendStream(reader, "out:first die")
	reader.Source().Resume()
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	if left := r.Left(); !left[b.ID] {
		t.Errorf("left %v, expected batch %d, begun", left, b.ID)
	}
	var exit interface{ ExitCode() int }
	if err := r.process.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%v, expected exit status 3", err)
	}
}

// A worker that does not answer in its turn is ended.
func testStreamSilent(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.declared(t, 0, time.Millisecond, model(Stream))
	reader := NewReader(t, false)
	r.SendStream(reader, "out:first "+g.marker()+" out:second")
	reader.Source().Resume()
	if end := r.End(); end.Violation || !strings.Contains(end.Reason, "stream_idle") {
		t.Errorf("%+v, expected an end that names stream_idle", end)
	}
	g.remove()
	if err := r.process.Wait(); err == nil {
		t.Error("a worker that was killed for its silence ended without an error")
	}
}

// A worker that answers in streams is refused if its model is not declared so.
func testStreamNotDeclared(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	l := g.Expect(Text(), 1)
	p := start(t, append(l.Env, model(Stream)))
	if end := l.Events.WaitGone(t); end.Violation || !strings.Contains(end.Reason, "stream: true") {
		t.Errorf("%+v, expected an end that names stream: true", end)
	}
	if err := p.Wait(); err == nil {
		t.Error("a worker that was refused ended without an error")
	}
}

// A worker that does not answer in streams serves a model that is declared so.
func testStreamNotUsed(t *testing.T, su *suite) {
	r := su.declared(t, 0, 0, model(Markers))
	reader := NewReader(t, false)
	b := r.SendStream(reader, "one")
	r.WantTexts(b, "one")
	reader.Want(b, "one")
	r.WantTexts(r.Send(Texts("a", "b")...), "a", "b")
	r.stop()
}
