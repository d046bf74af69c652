package workertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
)

// Model is the model version of every launch in this package.
var Model = api.ModelID{Name: "conformance", Version: "1"}

// Pollers are the pollers of package local. Suites run under each.
var Pollers = []local.Poller{local.NetpollPoller, local.RuntimePoller}

// Gateway is a transport that is checked for leftovers when the test ends.
type Gateway struct {
	tb        testing.TB
	Transport worker.Transport
	closed    bool
}

// NewGateway opens a transport for one test.
func NewGateway(tb testing.TB, open func() (worker.Transport, error)) *Gateway {
	tb.Helper()
	// netpoll and the runtime's poller open descriptors at first use.
	netpoll.Initialize()
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	before := leftovers(tb)
	tr, err := open()
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gateway{tb: tb, Transport: tr}
	tb.Cleanup(func() {
		g.Close()
		if after := leftovers(tb); after != before {
			tb.Errorf("left behind: %+v, before the test %+v", after, before)
		}
	})
	return g
}

// Hub is a Gateway whose transport is package local's.
type Hub struct {
	*Gateway
	Socket string
}

// NewHub starts a hub for one test. maxSegmentBytes is passed to local.Config.
func NewHub(tb testing.TB, poller local.Poller, maxSegmentBytes uint64) *Hub {
	tb.Helper()
	return NewHubWith(tb, local.Config{Poller: poller, MaxSegmentBytes: maxSegmentBytes})
}

// NewHubWith is NewHub for other settings of the hub. It sets the sockets and the clock.
func NewHubWith(tb testing.TB, cfg local.Config) *Hub {
	tb.Helper()
	dir, err := os.MkdirTemp("", "xebec") // a socket's path has at most 107 bytes, and test names make long ones
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) }) // after the hub is closed
	h := &Hub{Socket: filepath.Join(dir, "w.sock")}
	h.Gateway = NewGateway(tb, func() (worker.Transport, error) {
		cfg.Socket, cfg.Doors, cfg.Now = h.Socket, filepath.Join(dir, "d"), Now
		return local.Listen(cfg)
	})
	return h
}

// Close closes the transport. Otherwise the end of the test does.
func (g *Gateway) Close() {
	g.tb.Helper()
	if g.closed {
		return
	}
	g.closed = true
	if err := g.Transport.Close(); err != nil {
		g.tb.Errorf("close the transport: %v", err)
	}
}

var epoch = time.Now()

// Now reads a monotonic clock, as transports need it.
func Now() api.Nanos { return api.Nanos(time.Since(epoch)) }

// holding counts this process's descriptors and segments.
type holding struct{ FDs, Sockets, SegmentFDs, Mappings int }

func leftovers(tb TB) (h holding) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	h.FDs = len(fds)
	for _, fd := range fds {
		target, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		switch {
		case strings.HasPrefix(target, "socket:"):
			h.Sockets++
		case strings.HasPrefix(target, "/memfd:xebec"):
			h.SegmentFDs++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	h.Mappings = strings.Count(string(maps), "/memfd:xebec")
	return h
}

// Launch is an announced launch and its events.
type Launch struct {
	Env       []string
	Withdraw  func() bool
	Signature api.Signature
	Events    *Recorder
}

// Expect announces one launch.
func (g *Gateway) Expect(sig api.Signature, depth int) *Launch {
	g.tb.Helper()
	return Expect(g.tb, g.Transport, worker.Expectation{Signature: sig, Depth: depth})
}

// Expect announces one launch of [Model] to a transport. e sets the signature, depth, timeout, isolation and busy polling.
func Expect(tb TB, tr worker.Transport, e worker.Expectation) *Launch {
	tb.Helper()
	l := &Launch{Signature: e.Signature, Events: newRecorder()}
	e.Replica, e.Model, e.BatchHint, e.Events = 1, Model, 8, l.Events
	var err error
	if l.Env, l.Withdraw, err = tr.Expect(e); err != nil {
		tb.Fatalf("expect a worker: %v", err)
	}
	return l
}

// Getenv returns the value of a variable in the worker's environment.
func (l *Launch) Getenv(name string) (value string) {
	for _, entry := range l.Env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// Token is the launch's one-time token if the transport is package local's.
func (l *Launch) Token() string { return l.Getenv("XEBEC_TOKEN") }

// Session is one replica with a record of its batches. It is used by one goroutine.
type Session struct {
	TB TB
	*Launch
	Replica worker.Replica
	sent    map[uint64]*api.Batch
	last    uint64
	told    []*LearnerCall
}

// NewSession waits until the launched worker is ready.
func NewSession(tb TB, l *Launch) *Session {
	tb.Helper()
	return &Session{TB: tb, Launch: l, Replica: l.Events.WaitReady(tb), sent: map[uint64]*api.Batch{}}
}

// NewBatch makes a batch of these queries, each with a value per input.
func (s *Session) NewBatch(queries ...[]api.Value) *api.Batch {
	s.last++
	b := &api.Batch{ID: s.last}
	for _, inputs := range queries {
		b.Queries = append(b.Queries, &api.Query{Inputs: inputs, Deadline: api.Never})
	}
	return b
}

// TrySend sends a batch and records it.
func (s *Session) TrySend(b *api.Batch) error {
	err := s.Replica.Send(b)
	if err == nil {
		s.sent[b.ID] = b
	}
	return err
}

// Send sends a batch. The test fails if the replica refuses it.
func (s *Session) Send(queries ...[]api.Value) *api.Batch {
	s.TB.Helper()
	b := s.NewBatch(queries...)
	if err := s.TrySend(b); err != nil {
		s.TB.Fatalf("send batch %d: %v", b.ID, err)
	}
	return b
}

// Wait blocks until a batch is done.
func (s *Session) Wait(b *api.Batch) api.BatchResult {
	s.TB.Helper()
	return s.Events.WaitDone(s.TB, b.ID)
}

// WantOK waits for a batch, which must end in OK.
func (s *Session) WantOK(b *api.Batch) {
	s.TB.Helper()
	if res := s.Wait(b); res.Code != api.OK || res.Detail != "" {
		s.TB.Fatalf("batch %d: %v %q, expected OK", b.ID, res.Code, res.Detail)
	}
}

// WantCode waits for a batch, which must end in code with a text that contains part.
func (s *Session) WantCode(b *api.Batch, code api.Code, part string) {
	s.TB.Helper()
	if res := s.Wait(b); res.Code != code || !strings.Contains(res.Detail, part) {
		s.TB.Fatalf("batch %d: %v %q, expected %v with %q", b.ID, res.Code, res.Detail, code, part)
	}
}

// End waits until the replica is gone and checks the record: every batch that was taken is done or was outstanding.
func (s *Session) End() worker.End {
	s.TB.Helper()
	end := s.Events.WaitGone(s.TB)
	s.Events.check(s.TB)
	for id := range s.Events.done {
		if s.sent[id] == nil {
			s.TB.Errorf("batch %d was reported done but never sent", id)
		}
	}
	for _, t := range s.told {
		if t.Wait(); t.times.Load() != 1 {
			s.TB.Errorf("a call of the Learner ended %d times, expected once", t.times.Load())
		}
	}
	if code := s.Feedback(s.NewBatch(make([]api.Value, len(s.Signature.Inputs))), "1").Wait(); code == api.OK {
		s.TB.Errorf("the replica took feedback after Gone")
	}
	if err := s.Replica.Send(s.NewBatch(make([]api.Value, len(s.Signature.Inputs)))); err == nil {
		s.TB.Errorf("the replica took a batch after Gone")
	}
	return end
}

// Left returns the batches that were taken and not done, and whether the worker had begun each. Call it after End.
func (s *Session) Left() map[uint64]bool {
	left, end := map[uint64]bool{}, s.Events.WaitGone(s.TB)
	for id := range s.sent {
		if _, done := s.Events.Result(id); !done {
			left[id] = end.Begun == nil || end.Begun(id)
		}
	}
	return left
}

// WantViolation waits for the end, which must be a protocol violation whose reason contains part.
func (s *Session) WantViolation(part string) {
	s.TB.Helper()
	if end := s.End(); !end.Violation || !strings.Contains(end.Reason, part) {
		s.TB.Errorf("%+v: expected a violation with %q", end, part)
	}
}

// Drain ends an idle worker in order.
func (s *Session) Drain() {
	s.TB.Helper()
	s.Replica.Drain()
	if end := s.End(); end.Violation {
		s.TB.Errorf("drained: %+v", end)
	}
	if left := s.Left(); len(left) != 0 {
		s.TB.Errorf("batches outstanding after Drain: %v", left)
	}
}

// Spec makes the spec of a tensor: Spec("x", api.Float32, -1, 3).
func Spec(name string, d api.DType, shape ...int64) api.TensorSpec {
	return api.TensorSpec{Name: name, DType: d, Shape: shape}
}

// Text is the signature bytes[] → bytes[].
func Text() api.Signature {
	return api.Signature{Inputs: []api.TensorSpec{Spec("in", api.Bytes)}, Outputs: []api.TensorSpec{Spec("out", api.Bytes)}}
}

// Texts makes one query per text.
func Texts(texts ...string) (queries [][]api.Value) {
	for _, text := range texts {
		queries = append(queries, []api.Value{{Data: []byte(text)}})
	}
	return queries
}

// WantTexts compares the first output of each query.
func (s *Session) WantTexts(b *api.Batch, texts ...string) {
	s.TB.Helper()
	s.WantOK(b)
	for i, want := range texts {
		if got := string(b.Queries[i].Outputs[0].Data); got != want {
			s.TB.Errorf("batch %d, query %d: %s, expected %s", b.ID, i, brief(got), brief(want))
		}
	}
}

func brief(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q… (%d bytes)", s[:60], len(s))
	}
	return fmt.Sprintf("%q", s)
}
