package local_test

import (
	"errors"
	"testing"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A batch to a worker that sleeps costs a bell, and its answer costs one back if the hub sleeps. What is counted stays when the worker has
// ended.
func TestBellsAreCounted(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		hub := g.Transport.(*local.Hub)
		l := g.Expect(workertest.Text(), 2)
		served := make(chan error, 1)
		go func() { served <- serveEcho(g.Socket, l.Token()) }()
		s := workertest.NewSession(t, l)
		batches := uint64(0)
		for b := hub.Bells(); b.Rung == 0 || b.Received == 0; b = hub.Bells() { // sooner or later both sleep when there is nothing to do
			s.WantTexts(s.Send(workertest.Texts("x")...), "x")
			batches++
		}
		s.Drain()
		if err := <-served; err != nil && !errors.Is(err, xebec.ErrGatewayGone) {
			t.Error(err)
		}
		ended := hub.Bells()
		if ended.Rung == 0 || ended.Rung > batches || ended.Received == 0 || ended.Received > batches+1 { // and one may have found nothing
			t.Errorf("%+v for %d batches", ended, batches)
		}
	})
}
