package workertest

import (
	"bytes"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
)

// The models that a binding provides for the suite. The environment variable [EnvModel] selects one.
const (
	// Echo copies input number i to output number i, for any signature. With confidences it answers 0.5 for each query.
	Echo = "echo"
	// Markers has the signature bytes[] → bytes[] and echoes, unless an input begins with
	//
	//	error      predict raises an exception whose text contains "the marker error"
	//	panic      predict fails in the worst way that its language has short of ending the process, with "the marker panic"
	//	bad        that query's output is omitted
	//	die        the process exits with status 3
	//	big:N      the output is N times the byte 'x'
	//	wait:PATH  predict reads the file PATH, a FIFO, to its end, and then echoes
	//	context    the output is the query's context
	//	parameters the output is the query's parameters, as compact JSON
	//	call       the output is what is known of the query's call: REQUEST ID|TRACEPARENT|TRACESTATE|soon, or none at the end without a
	//	           deadline, or past if it has passed
	//	told       the output is the last feedback batch: INPUT/CONTEXT/LABEL for each query, joined by ';'
	//	refuse:T   that query is refused as invalid input, with the text T
	//	fail:T     that query ends in a model error, with the text T
	//	raise:T    predict raises the refusal with the text T
	//	ask:F:T    calls the function F for this query, with T; the output is what it answers, or CODE|TEXT of the error (with [EnvFunctions])
	//
	// With [EnvFeedback] it learns. Its accuracy is the share of true among all labels; before the first label it is an
	// error that contains "no feedback yet". The label "panic" fails as the marker does, with "the label panic", and
	// "wait:PATH" waits.
	Markers = "markers"
	// Stream has the signature bytes[] → bytes[] and answers in streams. Its input is a list of steps, separated by spaces:
	//
	//	out:T      sends the output T
	//	count:N    sends the outputs 0 to N-1
	//	big:N      sends an output of N times the byte 'x'
	//	forever    sends the output x until no more is wanted
	//	wait:PATH  reads the file PATH, a FIFO, to its end
	//	ends:PATH  opens the file PATH, a FIFO, for writing and closes it when the code of the stream ends, however it ends
	//	context, parameters, call  send what Markers answers
	//	error, panic, die, refuse:T, fail:T  end the stream as they end Markers' batch
	//	bad        sends an output that contradicts the signature
	//
	// With [EnvSteps] the binding advances all streams in one call, again and again, by one output each.
	Stream = "stream"
	// Wrong has the signature int32[] → float32[4]. The first query's input selects the mistake: 0 none (the answer is
	// zeros), 1 too few outputs, 2 their shape, 3 their type or dimensions.
	Wrong = "wrong"
)

// The suite's own environment variables for workers.
const (
	EnvModel       = "XEBEC_CONFORMANCE_MODEL"
	EnvContexts    = "XEBEC_CONFORMANCE_CONTEXTS"    // "1": request contexts
	EnvConfidences = "XEBEC_CONFORMANCE_CONFIDENCES" // "1": return confidences
	EnvFeedback    = "XEBEC_CONFORMANCE_FEEDBACK"    // "1": take feedback and report the accuracy
	EnvConcurrency = "XEBEC_CONFORMANCE_CONCURRENCY" // how many batches or streams to evaluate at once; "async2": two, on an event loop
	EnvParameters  = "XEBEC_CONFORMANCE_PARAMETERS"  // "1": request parameters
	EnvCalls       = "XEBEC_CONFORMANCE_CALLS"       // "1": request calls
	EnvFunctions   = "XEBEC_CONFORMANCE_FUNCTIONS"   // "1": call other functions
	EnvSteps       = "XEBEC_CONFORMANCE_STEPS"       // "1": the model Stream steps
)

// Worker is one binding in one mode.
type Worker struct {
	// Ring says whether its descriptors travel through package local's rings.
	Ring bool
	// InProcess says that it shares the test's process and cannot die alone. Cases of death are left out.
	InProcess bool
	// Version1 says that it speaks version 1 of the protocol only. Cases of version 2 are left out.
	Version1 bool
	// Plain says that its echo answers the first input only, and that it has neither the marker told nor the model
	// Wrong. Cases that need them are left out.
	Plain bool
	// NoSteps says that it has no call that advances several streams. Cases of steps are left out.
	NoSteps bool
	// NoLines says that its models cannot call functions. Cases of calls are left out.
	NoLines bool
	// BusyPoll is how long the worker, and the gateway's side, may spin before they sleep. The suite then runs under the one poller that spins.
	BusyPoll time.Duration
	// Start launches the worker with these environment variables.
	Start func(tb testing.TB, env []string) Process
}

// Process is a launched worker.
type Process interface {
	PID() int
	// Signal sends a signal. If the worker shares the test's process, SIGTERM asks it to stop and other signals are
	// errors.
	Signal(sig syscall.Signal) error
	// Wait blocks until the worker has ended; nil means in order. It may be called repeatedly.
	Wait() error
}

// StartProcess starts cmd as a worker, with env added to its own environment. The end of the test kills it.
func StartProcess(tb testing.TB, cmd *exec.Cmd, env []string) Process {
	tb.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start the worker %v: %v", cmd.Args, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually ended already
		<-p.ended
		if tb.Failed() {
			tb.Logf("the worker %v said:\n%s", cmd.Args, p.stderr.Bytes())
		}
	})
	return p
}

type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
	err    error
}

func (p *process) PID() int                        { return p.cmd.Process.Pid }
func (p *process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }
func (p *process) Wait() error {
	<-p.ended
	return p.err
}

// ShrinkAfter is short, so that segments shrink in the pauses of any case.
const ShrinkAfter = 20 * time.Millisecond

// Run runs the suite for one binding, against package local under both pollers.
func Run(t *testing.T, w Worker) {
	for _, poller := range Pollers {
		if w.BusyPoll > 0 && poller != local.RuntimePoller {
			continue
		}
		t.Run(string(poller), func(t *testing.T) {
			runCases(t, cases, w, func(t *testing.T, maxBatchBytes uint64) (*Gateway, starter) {
				return NewHubWith(t, local.Config{Poller: poller, MaxSegmentBytes: maxBatchBytes, BusyPoll: w.BusyPoll, ShrinkAfter: ShrinkAfter}).Gateway, w.Start
			})
		})
	}
}

// Transport is an implementation of worker.Transport, with workers that connect to it.
type Transport struct {
	// Open makes a transport for a test, which closes it. The transport accepts batches of nearly maxBatchBytes and
	// refuses one whose inputs or outputs are larger; 0 means its own bound.
	Open func(tb testing.TB, maxBatchBytes uint64) (worker.Transport, error)
	// Start launches a worker that connects to tr with these environment variables.
	Start func(tb testing.TB, tr worker.Transport, env []string) Process
	// Worker says what the workers can do. Its Start is not used.
	Worker
}

// RunTransport runs the suite for one transport: the cases of bindings, and those that depend on the gateway's side
// alone.
func RunTransport(t *testing.T, tr Transport) {
	runCases(t, append(slices.Clip(cases), transportCases...), tr.Worker, func(t *testing.T, maxBatchBytes uint64) (*Gateway, starter) {
		g := NewGateway(t, func() (worker.Transport, error) { return tr.Open(t, maxBatchBytes) })
		return g, func(tb testing.TB, env []string) Process { return tr.Start(tb, g.Transport, slices.Clip(env)) }
	})
}

type starter = func(tb testing.TB, env []string) Process

func runCases(t *testing.T, cases []testCase, w Worker, open func(*testing.T, uint64) (*Gateway, starter)) {
	for _, c := range cases {
		if c.dies && w.InProcess || c.rich && w.Plain || c.version2 && w.Version1 || c.lines && w.NoLines || c.steps && w.NoSteps || !c.sleeps && w.BusyPoll > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(t, &suite{w, open}) })
	}
}

// A worker that answers in streams passes further cases, which need version 2.
func testStreams(t *testing.T, su *suite) { runCases(t, streamCases, su.Worker, su.open) }

// One that steps passes the same cases.
func testSteps(t *testing.T, su *suite) {
	runCases(t, streamCases, su.Worker, func(t *testing.T, maxBatchBytes uint64) (*Gateway, starter) {
		g, start := su.open(t, maxBatchBytes)
		return g, func(tb testing.TB, env []string) Process { return start(tb, append(env, EnvSteps+"=1")) }
	})
}

type suite struct {
	Worker
	open func(t *testing.T, maxBatchBytes uint64) (*Gateway, starter)
}

type testCase struct {
	name                               string
	dies, rich, version2, lines, steps bool
	// sleeps says that the case is about what a worker does when it has nothing to do. The others are left out for one that spins.
	sleeps bool
	run    func(*testing.T, *suite)
}

var cases = []testCase{
	{name: "registration", run: testRegistration},
	{name: "fixed", rich: true, run: testFixed},
	{name: "ragged", rich: true, run: testRagged},
	{name: "bytes", rich: true, run: testBytes},
	{name: "golden", rich: true, run: testGolden},
	{name: "texts", run: testTexts},
	{name: "padding", run: testPadding},
	{name: "contexts", run: testContexts},
	{name: "not asked for", run: testNotAskedFor},
	{name: "confidences", run: testConfidences},
	{name: "capabilities", run: testCapabilities},
	{name: "feedback", run: testFeedback},
	{name: "feedback values", rich: true, run: testFeedbackValues},
	{name: "feedback among predictions", run: testFeedbackAmongPredictions},
	{name: "stop in feedback", rich: true, run: testStopInFeedback},
	{name: "killed in feedback", dies: true, rich: true, run: testKilledInFeedback},
	{name: "exceptions", run: testExceptions},
	{name: "refused queries", version2: true, run: testRefused},
	{name: "strings", version2: true, run: testText},
	{name: "parameters", version2: true, run: testParameters},
	{name: "calls", version2: true, run: testCalls},
	{name: "concurrency", sleeps: true, version2: true, run: testConcurrency},
	{name: "drain with concurrency", sleeps: true, version2: true, run: testDrainWithConcurrency},
	{name: "calls of functions", version2: true, lines: true, run: testLines},
	{name: "streams", version2: true, run: testStreams},
	{name: "steps", version2: true, steps: true, run: testSteps},
	{name: "streams declared and not used", run: testStreamNotUsed},
	{name: "wrong outputs", rich: true, run: testWrongOutputs},
	{name: "more room", run: testMoreRoom},
	{name: "too large", run: testTooLarge},
	{name: "two that just fit", run: testTwoThatJustFit},
	{name: "growth", sleeps: true, run: testGrowth},
	{name: "shrinking", version2: true, run: testShrinking},
	{name: "received in place", run: testReceivedInPlace},
	{name: "spinning", sleeps: true, version2: true, run: testSpinning},
	{name: "pipeline", sleeps: true, rich: true, run: testPipeline},
	{name: "stop", sleeps: true, run: testStop},
	{name: "stop while busy", sleeps: true, rich: true, run: testStopWhileBusy},
	{name: "gateway gone", sleeps: true, run: testGatewayGone},
	{name: "killed in a batch", dies: true, rich: true, run: testKilled},
	{name: "dies in a batch", dies: true, run: testDies},
}

// running is a worker that is ready.
type running struct {
	*Session
	gateway *Gateway
	process Process
}

// start launches a worker and waits until it is ready.
func (su *suite) start(t *testing.T, sig api.Signature, depth int, maxBatchBytes uint64, env ...string) *running {
	t.Helper()
	g, start := su.open(t, maxBatchBytes)
	l := Expect(t, g.Transport, worker.Expectation{Signature: sig, Depth: depth, BusyPoll: su.BusyPoll})
	p := start(t, append(l.Env, env...))
	return &running{NewSession(t, l), g, p}
}

func model(name string) string { return EnvModel + "=" + name }

// stop ends an idle worker in order.
func (r *running) stop() {
	r.TB.Helper()
	r.Drain()
	if err := r.process.Wait(); err != nil {
		r.TB.Errorf("the drained worker: %v", err)
	}
}

func testRegistration(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers))
	info := r.Replica.Info()
	if info.ID != 1 {
		t.Errorf("replica %d, expected the announced number 1", info.ID)
	}
	if got, want := info.PID, r.process.PID(); got != want {
		t.Errorf("process %d, expected %d", got, want)
	}
	if ringed, ok := r.Replica.(interface{ Ring() bool }); ok && ringed.Ring() != su.Ring {
		t.Errorf("rings: %v, expected %v: was the binding built without them?", ringed.Ring(), su.Ring)
	}
	if name, version, ok := strings.Cut(info.Binding, "/"); !ok || !strings.HasPrefix(name, "xebec-") || version == "" {
		t.Errorf("binding %q, expected xebec-LANGUAGE/VERSION", info.Binding)
	}
	if r.Withdraw() {
		t.Error("the launch could be withdrawn after its worker had connected")
	}
	r.WantTexts(r.Send(Texts("a", "b")...), "a", "b")
	r.WantTexts(r.Send(Texts("c")...), "c")
	r.wantServed(2, 3)
	r.stop()
}

// wantServed compares what the replica has answered.
func (r *running) wantServed(batches, queries uint64) {
	r.TB.Helper()
	if st := r.Replica.Stats(); st.Batches != batches || st.Queries != queries {
		r.TB.Errorf("%d batches and %d queries served, expected %d and %d", st.Batches, st.Queries, batches, queries)
	}
}

func testContexts(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers), EnvContexts+"=1")
	for range 3 {
		b := r.NewBatch(Texts("context", "plain", "context")...)
		b.Queries[0].Context = []byte("user-17")
		b.Queries[1].Context = []byte("not asked for")
		if err := r.TrySend(b); err != nil {
			t.Fatal(err)
		}
		r.WantTexts(b, "user-17", "plain", "")
	}
	r.stop()
}

// What a worker has not asked for does not reach it, and does no harm.
func testNotAskedFor(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers))
	b := r.NewBatch(Texts("one", "two")...)
	for _, q := range b.Queries {
		q.Context, q.Parameters, q.Deadline = []byte("user-17"), []byte(`{"top_k":3}`), Now()+api.Nanos(time.Hour)
		q.Call = &api.Identity{RequestID: []byte("id")}
	}
	if err := r.TrySend(b); err != nil {
		t.Fatal(err)
	}
	r.WantTexts(b, "one", "two")
	r.stop()
}

func testConfidences(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Echo), EnvConfidences+"=1")
	for range 3 {
		b := r.Send(Texts("one", "two")...)
		r.WantTexts(b, "one", "two")
		for i, q := range b.Queries {
			if q.Confidence != 0.5 {
				t.Errorf("confidence of query %d: %v, expected 0.5", i, q.Confidence)
			}
		}
	}
	r.stop()
}

func testExceptions(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers))
	for _, marker := range []string{"error", "panic"} {
		failed, behind := r.Send(Texts("fine", marker)...), r.Send(Texts("behind")...)
		r.WantCode(failed, api.ModelError, "the marker "+marker)
		r.WantTexts(behind, "behind")
		if text := r.Replica.Stats().LastError; !strings.Contains(text, "the marker "+marker) {
			t.Errorf("LastError %q", text)
		}
	}
	r.WantCode(r.Send(Texts("fine", "bad")...), api.BadOutput, "")
	r.WantTexts(r.Send(Texts("next")...), "next")
	r.stop()
}

// A worker that spins is awake when the next batch comes soon, so the gateway rings no bell. It still notices when it is to end.
func testSpinning(t *testing.T, su *suite) {
	spinning := *su
	spinning.BusyPoll = 50 * time.Millisecond
	r := spinning.start(t, Text(), 1, 0, model(Markers))
	rung := func() uint64 {
		if hub, ok := r.gateway.Transport.(*local.Hub); ok && su.Ring {
			return hub.Bells().Rung
		}
		return 0
	}
	// A worker that does not spin sleeps in each pause, one that does in none: sooner or later, also on a machine that is busy with other things.
	const pause = api.Nanos(100 * time.Microsecond)
	for sent, quiet, before := 0, 0, rung(); quiet < 100; sent++ {
		for until := Now() + pause; Now() < until; {
			runtime.Gosched()
		}
		if sent == 5_000 {
			t.Fatalf("after %d batches, one after the other, the gateway still rings %d times", sent, before)
		}
		r.WantTexts(r.Send(Texts("x")...), "x")
		if now := rung(); now != before {
			quiet, before = 0, now
		} else {
			quiet++
		}
	}
	r.stop()
}

func testWrongOutputs(t *testing.T, su *suite) {
	sig := api.Signature{Inputs: []api.TensorSpec{Spec("code", api.Int32)}, Outputs: []api.TensorSpec{Spec("out", api.Float32, 4)}}
	r := su.start(t, sig, 1, 0, model(Wrong))
	for code := range byte(4) {
		query := []api.Value{{Data: []byte{code, 0, 0, 0}}}
		res := r.Wait(r.Send(query, query))
		if code == 0 && res.Code != api.OK || code != 0 && (res.Code != api.BadOutput || res.Detail == "") {
			t.Errorf("code %d: %+v, expected OK for 0 and BadOutput with a text for others", code, res)
		}
		fine := r.Send([]api.Value{{Data: make([]byte, 4)}})
		r.WantOK(fine)
		if got := fine.Queries[0].Outputs[0].Data; !bytes.Equal(got, make([]byte, 16)) {
			t.Errorf("after code %d: %x", code, got)
		}
	}
	r.stop()
}

func testGatewayGone(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers))
	r.WantTexts(r.Send(Texts("x")...), "x")
	r.gateway.Close()
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	if err := r.process.Wait(); err == nil {
		t.Error("a worker that lost its gateway ended without an error")
	}
}

func testDies(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers))
	r.WantTexts(r.Send(Texts("x")...), "x")
	b := r.Send(Texts("die")...)
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	if left := r.Left(); len(left) != 1 || !left[b.ID] {
		t.Errorf("left %v, expected batch %d, begun", left, b.ID)
	}
	var exit interface{ ExitCode() int } // implemented by *exec.ExitError
	if err := r.process.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%v, expected exit status 3", err)
	}
}
