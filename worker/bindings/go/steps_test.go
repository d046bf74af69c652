//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// counter counts down from its input, "N" or "N WORD". The word says what is odd about it.
type counter struct {
	left int
	word string
}

func startCounter(_ context.Context, b *Batch) (*counter, error) {
	number, word, _ := strings.Cut(string(b.Bytes("text", 0)), " ")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		b.Refuse(0, "no number")
	case word == "error":
		return nil, errors.New("no start")
	case word == "panic":
		panic("at the start")
	case word == "first":
		b.SetBytes("answer", 0, []byte("first"))
	}
	return &counter{n, word}, nil
}

func stepCounters(_ context.Context, running []*Sequence[*counter]) error {
	for i, q := range running {
		c := q.State
		if c.left--; c.left == 0 {
			q.End()
		}
		switch {
		case c.word == "seven":
			q.Refuse(0, "not seven")
		case c.word == "fails":
			q.Fail(0, "broken")
		case c.word == "step error" && c.left == 1:
			return errors.New("the step")
		case c.word == "step panic" && c.left == 1:
			panic("in the step")
		case c.word == "wrong" && c.left == 1:
			Output[float32](q.Batch, "answer")
		case c.word == "sends":
			_ = q.Send() // panics
		case c.word == "even" && c.left%2 != 0, c.word == "silent end" && c.left == 0: // none this time
		default:
			q.SetBytes("answer", 0, fmt.Appendf(nil, "%d of %d", c.left, len(running)))
		}
		running[i] = nil // it is the model's
	}
	return nil
}

// stepsServing runs ServeSteps for a gateway of this test.
func stepsServing[S any](g *gatewaytest.Gateway, start func(context.Context, *Batch) (S, error), step func(context.Context, []*Sequence[S]) error, options ...Option) func() error {
	launch := Launch{Socket: g.Socket, Token: gatewaytest.Token, Model: gatewaytest.Model, Version: gatewaytest.Version}
	return func() error { return ServeSteps(start, step, append([]Option{WithLaunch(launch)}, options...)...) }
}

func TestSteps(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(stepsServing(g, startCounter, stepCounters, options...))
		if g.Hello.Capabilities&wire.CapStreams == 0 || g.Hello.Concurrency != maxConcurrency {
			t.Errorf("HELLO %+v", g.Hello)
		}
		for input, want := range map[string][]string{
			"1":            {"0 of 1"},
			"3":            {"2 of 1", "1 of 1", "0 of 1"},
			"5 even":       {"4 of 1", "2 of 1", "0 of 1"},
			"3 silent end": {"2 of 1", "1 of 1"},
			"2 first":      {"first", "1 of 1", "0 of 1"},
		} {
			messages, last := collect(t, g, begin(g, input))
			if got := joined(messages); !slices.Equal(got, want) || last.Status != wire.StatusOK {
				t.Errorf("%s: %q and %+v, expected %q", input, got, last, want)
			}
		}
		g.Drain()
	})
}

// What ends a sequence, and how.
func TestStepsThatFail(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Start(stepsServing(g, startCounter, stepCounters))
	for input, want := range map[string]struct {
		outputs int
		status  wire.Status
		text    string
	}{
		"x":            {0, wire.StatusOK, "no number"},
		"3 seven":      {0, wire.StatusOK, "not seven"},
		"3 fails":      {0, wire.StatusOK, "broken"},
		"3 error":      {0, wire.StatusModelError, "no start"},
		"3 panic":      {0, wire.StatusModelError, "panic: at the start"},
		"3 step error": {1, wire.StatusModelError, "the step"},
		"3 step panic": {1, wire.StatusModelError, "panic: in the step"},
		"3 wrong":      {1, wire.StatusModelError, "cannot be viewed as float32"},
		"3 sends":      {0, wire.StatusModelError, "Send needs Serve"},
	} {
		messages, last := collect(t, g, begin(g, input))
		said := string(g.Block(last))
		if last.Flags&wire.FlagStatuses != 0 {
			said = string(g.Outputs(last)[2][0].Data)
		}
		if got := len(joined(messages)); got != want.outputs || last.Status != want.status || !strings.Contains(said, want.text) {
			t.Errorf("%s: %d outputs and %+v %.200q, expected %+v", input, got, last, said, want)
		}
	}
	if messages, _ := collect(t, g, begin(g, "2")); len(joined(messages)) != 2 {
		t.Errorf("the next one: %q", messages)
	}
	g.Drain()
}

// An output that contradicts the signature ends its sequence alone; an error of step ends those that it was called with, and no other.
func TestAStepEndsWhatItWasCalledWith(t *testing.T) {
	g := gatewaytest.New(t, text, []api.TensorSpec{{Name: "answer", DType: api.String}})
	stepped, release := make(chan int), make(chan struct{})
	step := func(ctx context.Context, running []*Sequence[string]) error {
		stepped <- len(running)
		<-release
		for _, q := range running {
			switch q.State {
			case "bad":
				q.SetBytes("answer", 0, []byte("\xff"))
			case "error":
				return errors.New("the step")
			default:
				q.SetBytes("answer", 0, []byte(q.State))
				q.End()
			}
		}
		return nil
	}
	start := func(_ context.Context, b *Batch) (string, error) { return string(b.Bytes("text", 0)), nil }
	g.Start(stepsServing(g, start, step))
	first := begin(g, "one")
	if n := <-stepped; n != 1 {
		t.Errorf("%d sequences in the first step", n)
	}
	want := map[uint64]wire.Status{first.Batch: wire.StatusOK, begin(g, "bad").Batch: wire.StatusBadOutput, begin(g, "two").Batch: wire.StatusOK}
	release <- struct{}{}
	for left := 2; left > 0; release <- struct{}{} { // the two have joined together, or one after the other
		left -= <-stepped
	}
	for range want {
		if res := g.Response(); res.Status != want[res.Batch] {
			t.Errorf("batch %d ended in %v", res.Batch, res.Status)
		}
	}
	g.Predict(4096, "error")
	<-stepped
	other := begin(g, "three") // waits for the step after the one that fails
	release <- struct{}{}
	if res := g.Response(); res.Status != wire.StatusModelError || string(g.Block(res)) != "the step" {
		t.Errorf("%+v", res)
	}
	<-stepped
	release <- struct{}{}
	g.WantTexts(other, "three")
	g.Drain()
}

// Sequences join and leave a running batch, which is as large as HELLO says.
func TestSequencesJoinAndLeave(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		const sequences = 12
		together := 0
		started := 0
		start := func(_ context.Context, b *Batch) (int, error) {
			started++
			n, err := strconv.Atoi(string(b.Bytes("text", 0)))
			return n, err
		}
		step := func(_ context.Context, running []*Sequence[int]) error {
			if together = max(together, len(running)); started < sequences {
				return nil // they wait for each other
			}
			for _, q := range running {
				q.State--
				q.SetBytes("answer", 0, strconv.AppendInt(nil, int64(q.State), 10))
				if q.State == 0 {
					q.End()
				}
			}
			return nil
		}
		g := gatewaytest.New(t, text, answers)
		g.Start(stepsServing(g, start, step, append(options, WithConcurrency(sequences))...))
		if g.Hello.Concurrency != sequences {
			t.Errorf("HELLO %+v", g.Hello)
		}
		left := map[uint64]wire.Request{}
		counts := map[uint64]int{}
		for range sequences {
			r := begin(g, "20")
			left[r.Batch] = r
		}
		for len(left) > 0 {
			res := g.Response()
			for _, v := range g.Outputs(res)[0] {
				if counts[res.Batch]++; string(v.Data) != fmt.Sprint(20-counts[res.Batch]) {
					t.Errorf("output %d of batch %d is %q", counts[res.Batch], res.Batch, v.Data)
				}
			}
			if res.Status == wire.StatusMore {
				g.Grant(left[res.Batch], 4096)
				continue
			}
			delete(left, res.Batch)
			if res.Status != wire.StatusOK || counts[res.Batch] != 20 {
				t.Errorf("%+v after %d outputs", res, counts[res.Batch])
			}
		}
		g.Drain()
		if together != sequences {
			t.Errorf("%d sequences at most in a step", together)
		}
	})
}

// A sequence whose reader is slow is left out, and no other. One that is not wanted leaves, and its context ends.
func TestSequencesThatWaitAndLeave(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		over := make(chan error, 10)
		start := func(ctx context.Context, b *Batch) (*counter, error) {
			context.AfterFunc(ctx, func() { over <- context.Cause(ctx) })
			return startCounter(ctx, b)
		}
		g := gatewaytest.New(t, text, answers)
		g.Start(stepsServing(g, start, stepCounters, options...))
		slow := begin(g, "1000")
		if res := g.Response(); res.Status != wire.StatusMore {
			t.Fatalf("%+v", res)
		}
		for range 3 {
			if messages, _ := collect(t, g, begin(g, "50")); len(joined(messages)) != 50 {
				t.Errorf("%d outputs beside a slow reader", len(joined(messages)))
			}
			if why := <-over; why != context.Canceled {
				t.Errorf("a sequence that has ended: %v", why)
			}
		}
		g.Grant(slow, 4096)
		if res := g.Response(); res.Status != wire.StatusMore || res.Count > maxAhead {
			t.Errorf("%+v, expected at most %d outputs", res, maxAhead)
		}
		g.Discard(slow)
		if res := g.Response(); res.Batch != slow.Batch || res.Status != wire.StatusOK || res.Count != 0 {
			t.Errorf("%+v", res)
		}
		if why := <-over; !errors.Is(why, ErrUnwanted) {
			t.Errorf("a sequence that is not wanted: %v", why)
		}
		g.Drain()
	})
}

// CANCEL comes in the worker's turn: while a sequence has no output, and before it has begun.
func TestSequencesThatAreCancelled(t *testing.T) {
	stepped, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	step := func(context.Context, []*Sequence[*counter]) error {
		first.Do(func() {
			close(stepped)
			<-release
		})
		return nil // never an output
	}
	g := gatewaytest.New(t, text, answers)
	g.Start(stepsServing(g, startCounter, step))
	want := map[uint64]bool{begin(g, "1").Batch: true}
	<-stepped
	want[begin(g, "2").Batch] = true
	for batch := range want {
		m := wire.Cancel{Batch: batch}
		g.Send(m.Append(nil))
	}
	close(release)
	for range 2 {
		if res := g.Response(); !want[res.Batch] || res.Status != wire.StatusOK || res.Count != 0 {
			t.Errorf("%+v", res)
		} else {
			delete(want, res.Batch)
		}
	}
	g.Drain()
}

// A worker that is drained steps until its sequences have ended. One whose gateway is gone does not.
func TestTheEndOfSteps(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Start(stepsServing(g, startCounter, stepCounters))
	r := begin(g, "100")
	if res := g.Response(); res.Status != wire.StatusMore {
		t.Fatalf("%+v", res)
	}
	g.Send(wire.AppendDrain(nil))
	if messages, _ := collect(t, g, g.Grant(r, 4096)); len(joined(messages)) != 99 {
		t.Errorf("%d outputs after DRAIN", len(joined(messages)))
	}
	g.WantEnd(nil)

	g = gatewaytest.New(t, text, answers)
	g.Start(stepsServing(g, startCounter, stepCounters))
	begin(g, "100000")
	g.Response()
	g.HangUp()
	g.WantEnd(ErrGatewayGone)
}

func TestConfidencesOfSteps(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	step := func(ctx context.Context, running []*Sequence[*counter]) error {
		for _, q := range running {
			if q.State.left == 2 {
				q.Confidences()[0] = 0.5
			}
		}
		return stepCounters(ctx, running)
	}
	g.Start(stepsServing(g, startCounter, step, WithConfidences()))
	r := begin(g, "2")
	var sure []float64
	for {
		res := g.Response()
		if res.Count > 0 {
			for _, v := range g.Outputs(res)[1] {
				x, err := api.NumbersOf[float64](v)
				if err != nil {
					t.Fatal(err)
				}
				sure = append(sure, x[0])
			}
		}
		if res.Status == wire.StatusOK {
			break
		}
		g.Grant(r, 4096)
	}
	if len(sure) != 2 || sure[0] != 0.5 || !math.IsNaN(sure[1]) {
		t.Errorf("confidences %v", sure)
	}
	g.Drain()
}

func TestStepsNeedStartAndStep(t *testing.T) {
	if err := ServeSteps(startCounter, nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("without step: %v", err)
	}
	if err := ServeSteps(nil, stepCounters); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("without start: %v", err)
	}
}
