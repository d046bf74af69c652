package local_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// TestMain also runs the processes of multi-process tests: the test binary starts itself with a role in the
// environment.
func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(runRole(role))
	}
	// netpoll's pollers serve the whole process and never end.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// everyWay runs a test under each poller, with rings and with descriptors on the socket.
func everyWay(t *testing.T, f func(t *testing.T, poller local.Poller, capabilities uint32)) {
	for _, poller := range workertest.Pollers {
		t.Run(string(poller)+"/ring", func(t *testing.T) { f(t, poller, wire.CapRing) })
		t.Run(string(poller)+"/socket", func(t *testing.T) { f(t, poller, 0) })
	}
}

// stage is a hub with one raw worker, and an honest one beside it that must not be affected.
type stage struct {
	*workertest.Hub
	*workertest.Session
	w      *workertest.Raw
	honest *workertest.Session
	served chan error
}

func newStage(t *testing.T, poller local.Poller, capabilities uint32, sig api.Signature, depth int, maxSegmentBytes uint64) *stage {
	t.Helper()
	g := workertest.NewHub(t, poller, maxSegmentBytes)
	st := &stage{Hub: g, served: make(chan error, 1)}
	honest := g.Expect(workertest.Text(), 2)
	go func() { st.served <- serveEcho(g.Socket, honest.Token()) }()
	st.honest = workertest.NewSession(t, honest)
	l := g.Expect(sig, depth)
	st.w = workertest.StartRaw(t, g.Socket, l.Token(), capabilities)
	t.Cleanup(st.w.Close)
	st.Session = workertest.NewSession(t, l)
	return st
}

// serveEcho is an honest worker of the Go binding, in this process.
func serveEcho(socket, token string, options ...xebec.Option) error {
	return xebec.Serve(func(_ context.Context, b *xebec.Batch) error {
		in, out := b.Signature().Inputs[0].Name, b.Signature().Outputs[0].Name
		for i := range b.Len() {
			b.SetBytes(out, i, b.Bytes(in, i))
		}
		return nil
	}, append(options, xebec.WithLaunch(xebec.Launch{Socket: socket, Token: token, Model: workertest.Model.Name, Version: workertest.Model.Version}))...)
}

// unaffected checks that the honest worker still serves, and ends it.
func (st *stage) unaffected(t *testing.T) {
	t.Helper()
	st.honest.WantTexts(st.honest.Send(workertest.Texts("still", "here")...), "still", "here")
	st.honest.Drain()
	if err := <-st.served; err != nil && !errors.Is(err, xebec.ErrGatewayGone) {
		t.Errorf("the honest worker: %v", err)
	}
}

// take sends one batch of the texts and has the raw worker take it.
func (st *stage) take(texts ...string) (*api.Batch, wire.Request) {
	b := st.Send(workertest.Texts(texts...)...)
	return b, st.w.Next()
}

// echo is the raw worker's correct answer.
func (st *stage) echo(req wire.Request) wire.Response {
	return st.w.Outputs(req, st.w.Inputs(req))
}
