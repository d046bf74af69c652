//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// gated waits for a message before it answers texts that begin with "wait".
func gated(begun chan<- string, release <-chan struct{}) func(context.Context, *Batch) error {
	return func(ctx context.Context, b *Batch) error {
		if data := string(b.Bytes("text", 0)); strings.HasPrefix(data, "wait") {
			begun <- data
			select {
			case <-release:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return upper(ctx, b)
	}
}

func TestConcurrency(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		begun, release := make(chan string, 10), make(chan struct{})
		learn := func(context.Context, *Batch) error { return nil }
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, gated(begun, release), append(options, WithConcurrency(2), WithFeedback(learn))...))
		if g.Hello.Concurrency != 2 {
			t.Errorf("HELLO %+v", g.Hello)
		}
		slow := g.Predict(256, "wait 1")
		<-begun
		for i := range 10 {
			g.WantTexts(g.Predict(256, fmt.Sprint("quick ", i)), fmt.Sprint("QUICK ", i))
		}
		g.WantText(g.Predict(256, "error"), wire.StatusModelError, "the word")
		g.WantText(g.Predict(4096, "write to an input"), wire.StatusModelError, "panic: runtime error")
		other := g.Predict(256, "wait 2")
		<-begun
		var behind []wire.Request // more than wait for a lane
		for i := range 8 {
			behind = append(behind, g.Predict(256, fmt.Sprint("behind ", i)))
		}
		release <- struct{}{}
		release <- struct{}{}
		answered := map[uint64]bool{}
		for range 2 + len(behind) {
			res := g.Response()
			if answered[res.Batch] || res.Status != wire.StatusOK {
				t.Errorf("response %+v", res)
			}
			answered[res.Batch] = true
		}
		if !answered[slow.Batch] || !answered[other.Batch] {
			t.Errorf("answered: %v", answered)
		}
		// Feedback waits for no prediction.
		g.Predict(256, "wait 3")
		g.Predict(256, "wait 4")
		<-begun
		<-begun
		g.Answer(g.Request(wire.KindFeedback, gatewaytest.Columns{gatewaytest.Texts("a"), gatewaytest.Texts("1")}, 0, wire.BytesSection), wire.StatusOK)
		close(release)
		g.Response()
		g.Response()
		// Answers that need more room, and new segments.
		r := g.Predict(64, "too long")
		res := g.Answer(r, wire.StatusNeedMore)
		g.Segments(1 << 20)
		g.Ready()
		g.WantTexts(g.Grant(r, res.Need), "TOO LONG")
		g.Drain()
	})
}

// A worker that is drained answers what it has, on all lanes.
func TestDrainWithConcurrency(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		begun, release := make(chan string, 10), make(chan struct{})
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, gated(begun, release), append(options, WithConcurrency(3))...))
		for i := range 5 {
			g.Predict(256, fmt.Sprint("wait ", i))
		}
		for range 3 {
			<-begun
		}
		g.Send(wire.AppendDrain(nil))
		close(release)
		for range 5 {
			if res := g.Response(); res.Status != wire.StatusOK {
				t.Errorf("response %+v", res)
			}
		}
		g.WantEnd(nil)
	})
}

func TestGatewayGoneWithConcurrency(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		begun := make(chan string, 10)
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, gated(begun, nil), append(options, WithConcurrency(2))...))
		g.Predict(256, "wait 1")
		g.Predict(256, "wait 2")
		<-begun
		<-begun
		g.HangUp()
		g.WantEnd(ErrGatewayGone)
	})
}

// An error that a lane meets ends Serve.
func TestGatewayBreaksTheProtocolWithConcurrency(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Start(serving(g, upper, WithConcurrency(2)))
	r := wire.Request{Batch: 1, Generation: g.Number, Kind: wire.KindPredict, Count: 1, InOff: g.OffA, InLen: 8, OutOff: g.OffB, OutCap: 64}
	g.Put(&r)
	g.Wait(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "cannot be read") || errors.Is(err, ErrGatewayGone) {
			t.Errorf("Serve returned %v", err)
		}
	})
}

func TestConcurrencyOutOfBounds(t *testing.T) {
	for _, n := range []int{-1, 0, maxConcurrency + 1} {
		if err := Serve(upper, WithConcurrency(n)); err == nil || !strings.Contains(err.Error(), "expected 1 to 62") {
			t.Errorf("%d: %v", n, err)
		}
	}
}
