package local_test

import (
	"errors"
	"testing"
	"time"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A hub that spins is awake when an answer comes soon, so the worker rings no bell, and counts the spins. It still notices what comes on the
// socket, and that the worker ends.
func TestSpinningHubNeedsNoBell(t *testing.T) {
	g := workertest.NewHubWith(t, local.Config{Poller: local.RuntimePoller, BusyPoll: 50 * time.Millisecond})
	hub := g.Transport.(*local.Hub)
	l := g.Expect(workertest.Text(), 2)
	served := make(chan error, 1)
	go func() { served <- serveEcho(g.Socket, l.Token()) }()
	s := workertest.NewSession(t, l)
	const run = local.MaxSpins / 2 // after MaxSpins the hub may sleep, to look at the socket
	// Sooner or later, also on a machine that is busy with other things.
	quiet, found := 0, uint64(0)
	for sent := 0; quiet < run || found < run; sent++ {
		if sent == 20_000 {
			t.Fatalf("of %d batches, one after the other, %d needed no bell, and %d spins have found an answer: expected %d", sent, quiet, found, run)
		}
		before := hub.Bells().Received
		s.WantTexts(s.Send(workertest.Texts("x")...), "x")
		if hub.Bells().Received == before {
			quiet++
		}
		found, _ = hub.Spins()
	}
	s.Drain()
	if err := <-served; err != nil && !errors.Is(err, xebec.ErrGatewayGone) {
		t.Error(err)
	}
}
