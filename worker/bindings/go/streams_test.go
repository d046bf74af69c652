//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// count sends the numbers below its input.
func count(_ context.Context, b *Batch) error {
	n, err := strconv.Atoi(string(b.Bytes("text", 0)))
	if err != nil {
		b.Refuse(0, "not a number")
		return nil
	}
	for i := range n {
		b.SetBytes("answer", 0, []byte(strconv.Itoa(i)))
		if err := b.Send(); err != nil {
			return err
		}
	}
	return nil
}

// begin sends the query of a stream.
func begin(g *gatewaytest.Gateway, text string) wire.Request { return g.Predict(4096, text) }

// collect grants a stream its turns until it has ended. It returns the outputs, apart for each message, and the last response.
func collect(t *testing.T, g *gatewaytest.Gateway, r wire.Request) (messages [][]string, last wire.Response) {
	t.Helper()
	for {
		res := g.Response()
		if res.Batch != r.Batch || res.Kind != wire.KindPredict {
			t.Fatalf("request %+v\nanswered by %+v", r, res)
		}
		if (res.Status == wire.StatusMore || res.Status == wire.StatusOK && res.Flags&wire.FlagStatuses == 0) && res.Count > 0 {
			var texts []string
			for _, v := range g.Outputs(res)[0] {
				texts = append(texts, string(v.Data))
			}
			messages = append(messages, texts)
		}
		switch res.Status {
		case wire.StatusMore:
			r = g.Grant(r, 4096)
		case wire.StatusNeedMore:
			r = g.Grant(r, res.Need)
		default:
			return messages, res
		}
	}
}

func joined(messages [][]string) (all []string) {
	for _, m := range messages {
		all = append(all, m...)
	}
	return all
}

func wantNumbers(t *testing.T, got []string, n int) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%d outputs, expected %d", len(got), n)
	}
	for i, text := range got {
		if text != strconv.Itoa(i) {
			t.Errorf("output %d is %q", i, text)
		}
	}
}

func TestStream(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, count, append(options, WithStreams())...))
		if g.Hello.Capabilities&wire.CapStreams == 0 || g.Hello.Concurrency != defaultStreams {
			t.Errorf("HELLO %+v", g.Hello)
		}
		for _, n := range []int{1, 2, 100} {
			messages, last := collect(t, g, begin(g, fmt.Sprint(n)))
			if wantNumbers(t, joined(messages), n); last.Status != wire.StatusOK || len(messages[0]) != 1 {
				t.Errorf("%d outputs: the first message has %d, the last is %+v", n, len(messages[0]), last)
			}
			for _, m := range messages {
				if len(m) > maxAhead+1 {
					t.Errorf("%d outputs in one message", len(m))
				}
			}
		}
		g.Drain()
	})
}

// predict runs ahead of its reader within a bound, and no further.
func TestStreamsRunAheadWithinABound(t *testing.T) {
	for name, c := range map[string]struct{ size, ahead int }{"outputs": {1, maxAhead}, "bytes": {30 << 10, 3}} {
		t.Run(name, func(t *testing.T) {
			made := make(chan int, 1000)
			predict := func(_ context.Context, b *Batch) error {
				for i := range 100 {
					b.SetBytes("answer", 0, make([]byte, c.size))
					made <- i
					if err := b.Send(); err != nil {
						return err
					}
				}
				return nil
			}
			g := gatewaytest.New(t, text, answers)
			g.Run(serving(g, predict, WithStreams()))
			g.Welcome()
			g.Segments(4 << 20)
			g.Ready()
			r := g.Predict(64<<10, "")
			if res := g.Response(); res.Status != wire.StatusMore || res.Count != 1 {
				t.Fatalf("the first response is %+v", res)
			}
			for range 1 + c.ahead {
				<-made
			}
			// It is in Send, or about to be. With the turn it sends all but perhaps the last, and runs ahead as far again.
			g.Grant(r, 256<<10)
			res := g.Response()
			if n := int(res.Count); n != c.ahead && n != c.ahead-1 {
				t.Errorf("%d outputs after a pause, expected %d", n, c.ahead)
			}
			for range res.Count {
				<-made
			}
			g.Answer(g.Discard(r), wire.StatusOK)
			if n := len(made); n != 0 {
				t.Errorf("%d outputs beyond the bound", n)
			}
			g.Drain()
		})
	}
}

// A stream ends when predict has returned, whose context ends when no further output is wanted.
func TestUnwantedStreams(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		causes, blocked := make(chan error, 10), make(chan struct{})
		predict := func(ctx context.Context, b *Batch) error {
			send := func() error {
				b.SetBytes("answer", 0, []byte("x"))
				return b.Send()
			}
			if string(b.Bytes("text", 0)) == "wait" {
				_ = send() // the output goes out, and the CANCEL may be there before Send returns
				<-ctx.Done()
				<-blocked
				causes <- send() // has no effect
				return errors.New("not heard")
			}
			for {
				if err := send(); err != nil {
					causes <- err
					return err
				}
			}
		}
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, predict, append(options, WithStreams(), WithConcurrency(2))...))
		for range 3 { // in the gateway's turn, in Send
			r := begin(g, "")
			g.Answer(r, wire.StatusMore)
			if res := g.Answer(g.Discard(r), wire.StatusOK); res.Count != 0 || res.OutLen != 0 {
				t.Errorf("DISCARD was answered by %+v", res)
			}
			if err := <-causes; err != ErrUnwanted {
				t.Errorf("Send returned %v", err)
			}
		}
		r := begin(g, "wait") // in the worker's turn, in the model's own code
		g.Answer(r, wire.StatusMore)
		granted := g.Grant(r, 4096)
		cancel := wire.Cancel{Batch: r.Batch}
		g.Send(cancel.Append(nil))
		g.Send(cancel.Append(nil))
		other := begin(g, "") // the first one still counts, and the second has room
		g.Answer(other, wire.StatusMore)
		close(blocked)
		res := g.Response()
		if res.Batch != r.Batch || res.Status != wire.StatusOK || res.Count != 0 || res.OutOff != granted.OutOff {
			t.Errorf("CANCEL was answered by %+v", res)
		}
		if err := <-causes; err != ErrUnwanted {
			t.Errorf("Send returned %v", err)
		}
		g.Send(cancel.Append(nil)) // it is not outstanding any more
		g.Answer(g.Discard(other), wire.StatusOK)
		<-causes
		g.Drain()
	})
}

func TestEndsOfStreams(t *testing.T) {
	predict := func(_ context.Context, b *Batch) error {
		how, later := strings.CutSuffix(string(b.Bytes("text", 0)), " later")
		if later {
			b.SetBytes("answer", 0, []byte("first"))
			if err := b.Send(); err != nil {
				return err
			}
		}
		switch how {
		case "refuse":
			b.SetBytes("answer", 0, []byte("not used"))
			b.Refuse(0, "not a number")
		case "fail":
			b.Fail(0, "no disk")
		case "error":
			return errors.New("the error")
		case "panic":
			panic("the panic")
		case "bad":
			return b.Send()
		case "shape":
			b.SetBytes("answer", 0, nil, 3)
		case "unsent":
			b.SetBytes("answer", 0, []byte("unsent"))
		}
		return nil
	}
	bothWays(t, func(t *testing.T, options ...Option) {
		for _, confident := range []bool{false, true} {
			g := gatewaytest.New(t, text, answers)
			all := append(options, WithStreams())
			if confident {
				all = append(all, WithConfidences())
			}
			g.Start(serving(g, predict, all...))
			for _, c := range []struct {
				how     string
				status  wire.Status
				outputs int
				says    string
			}{
				{"refuse", wire.StatusOK, 0, "\x01 not a number"},
				{"fail", wire.StatusOK, 0, "\x02 no disk"},
				{"error", wire.StatusModelError, 0, "the error"},
				{"panic", wire.StatusModelError, 0, "the panic"},
				{"bad", wire.StatusBadOutput, 0, "was not written"},
				{"shape", wire.StatusBadOutput, 0, "shape [3]"},
				{"unsent", wire.StatusOK, 1, ""},
				{"", wire.StatusOK, 0, ""},
			} {
				for _, later := range []string{"", " later"} {
					want := c.outputs + len(later)/len(" later")
					messages, last := collect(t, g, begin(g, c.how+later))
					if got := joined(messages); len(got) != want || last.Status != c.status {
						t.Errorf("%q: the outputs are %q and the end is %+v", c.how+later, got, last)
					}
					says := ""
					switch {
					case last.Flags&wire.FlagStatuses != 0:
						sections := g.Outputs(last)
						says = fmt.Sprintf("%c %s", sections[len(sections)-2][0].Data[0], sections[len(sections)-1][0].Data)
						if last.Count != 1 {
							t.Errorf("%q: a status with %+v", c.how+later, last)
						}
					case last.Status != wire.StatusOK:
						says = string(g.Block(last))
					}
					if !strings.Contains(says, c.says) {
						t.Errorf("%q ends with %q, expected %q", c.how+later, says, c.says)
					}
				}
			}
			g.Drain()
		}
	})
}

// What a gateway could not read is refused here: it would have to end the worker.
func TestStringsThatAreNotUTF8(t *testing.T) {
	words := []api.TensorSpec{{Name: "answer", DType: api.String}}
	g := gatewaytest.New(t, text, words)
	g.Start(serving(g, func(_ context.Context, b *Batch) error {
		b.SetBytes("answer", 0, []byte("fine"))
		if err := b.Send(); err != nil {
			return err
		}
		b.SetBytes("answer", 0, []byte("\xff"))
		return b.Send()
	}, WithStreams()))
	messages, last := collect(t, g, begin(g, ""))
	if len(messages) != 1 || last.Status != wire.StatusBadOutput || !strings.Contains(string(g.Block(last)), "UTF-8") {
		t.Errorf("%q, then %+v: %s", messages, last, g.Block(last))
	}
	g.Drain()

	g = gatewaytest.New(t, text, words)
	g.Start(serving(g, func(_ context.Context, b *Batch) error {
		b.Refuse(0, "refused")
		b.SetBytes("answer", 1, []byte("\xff"))
		return nil
	}))
	g.WantText(g.Predict(4096, "one", "two"), wire.StatusBadOutput, "UTF-8")
	g.Drain()
}

// Outputs that need more room get it, in the segments that follow, if the gateway likes.
func TestStreamsNeedMore(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		predict := func(_ context.Context, b *Batch) error {
			for i := range 4 {
				b.SetBytes("answer", 0, make([]byte, 3000*(i+1)))
				if err := b.Send(); err != nil {
					return err
				}
			}
			return nil
		}
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, predict, append(options, WithStreams())...))
		messages, last := collect(t, g, begin(g, ""))
		for i, output := range joined(messages) {
			if len(output) != 3000*(i+1) {
				t.Errorf("output %d has %d bytes", i, len(output))
			}
		}
		if last.Status != wire.StatusOK || len(joined(messages)) != 4 {
			t.Errorf("%d outputs, then %+v", len(joined(messages)), last)
		}
		r := g.Predict(0, "")
		res := g.Answer(r, wire.StatusNeedMore)
		g.Segments(1 << 20)
		g.Ready()
		r = g.Grant(r, res.Need)
		g.Answer(r, wire.StatusMore)
		g.Segments(1 << 20) // in the gateway's turn
		g.Ready()
		r = g.Grant(r, 64)
		g.Answer(r, wire.StatusNeedMore)
		g.Answer(g.Discard(r), wire.StatusOK)
		g.Drain()
	})
}

func TestManyStreams(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, count, append(options, WithStreams(), WithConcurrency(gatewaytest.Entries))...))
		for range 20 {
			g.Segments(4 << 20)
			g.Ready()
			left := map[uint64][]string{}
			requests := map[uint64]wire.Request{}
			for range gatewaytest.Entries {
				r := begin(g, "40")
				requests[r.Batch] = r
			}
			for len(requests) > 0 {
				res := g.Response()
				if res.Count > 0 {
					for _, v := range g.Outputs(res)[0] {
						left[res.Batch] = append(left[res.Batch], string(v.Data))
					}
				}
				if res.Status == wire.StatusMore {
					g.Grant(requests[res.Batch], 1024)
					continue
				}
				wantNumbers(t, left[res.Batch], 40)
				delete(requests, res.Batch)
			}
		}
		g.Drain()
	})
}

func TestDrainWithOpenStreams(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, count, append(options, WithStreams())...))
		first, second := begin(g, "100"), begin(g, "")
		for range 2 {
			if res := g.Response(); res.Batch == first.Batch && res.Status != wire.StatusMore {
				t.Errorf("response %+v", res)
			}
		}
		_ = second // was refused
		g.Send(wire.AppendDrain(nil))
		g.Grant(first, 4096)
		messages, last := collect(t, g, first)
		if n := len(joined(messages)); n != 99 || last.Status != wire.StatusOK {
			t.Errorf("%d outputs after DRAIN, then %+v", n, last)
		}
		g.WantEnd(nil)
	})
}

func TestGatewayGoneInStreams(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		causes := make(chan error, 1)
		g := gatewaytest.New(t, text, answers)
		g.Start(serving(g, func(ctx context.Context, b *Batch) error {
			err := count(ctx, b)
			causes <- err
			return err
		}, append(options, WithStreams())...))
		g.Answer(begin(g, "1000"), wire.StatusMore)
		g.HangUp()
		g.WantEnd(ErrGatewayGone)
		if err := <-causes; err != ErrGatewayGone {
			t.Errorf("Send returned %v", err)
		}
	})
}

func TestGatewayBreaksTheRulesOfStreams(t *testing.T) {
	for want, do := range map[string]func(g *gatewaytest.Gateway, r wire.Request){
		"whose turn is the worker's": func(g *gatewaytest.Gateway, r wire.Request) { g.Grant(r, 4096); g.Grant(r, 4096) },
		"DISCARD for batch 1, whose": func(g *gatewaytest.Gateway, r wire.Request) { g.Grant(r, 4096); g.Discard(r) },
		"expected 1 for a stream":    func(g *gatewaytest.Gateway, r wire.Request) { g.Predict(4096, "a", "b") },
		"while 1 streams are open":   func(g *gatewaytest.Gateway, r wire.Request) { begin(g, "one too many") },
	} {
		t.Run(want, func(t *testing.T) {
			g := gatewaytest.New(t, text, answers)
			g.Start(serving(g, func(ctx context.Context, b *Batch) error {
				b.SetBytes("answer", 0, nil)
				if err := b.Send(); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}, WithStreams(), WithConcurrency(1)))
			r := begin(g, "")
			g.Answer(r, wire.StatusMore)
			do(g, r)
			g.Wait(func(err error) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Serve returned %v, expected %q", err, want)
				}
			})
		})
	}
}

func TestVersionsAndModes(t *testing.T) {
	g := gatewaytest.New(t, text, answers)
	g.Major = 1
	g.Run(serving(g, count, WithStreams()))
	g.Welcome()
	g.Wait(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "version 2 of the worker protocol") {
			t.Errorf("Serve returned %v", err)
		}
	})
	g = gatewaytest.New(t, text, answers)
	g.Run(serving(g, count))
	m := wire.Welcome{Major: 2, Mode: wire.ModeStreams, Model: "m", Version: "1", Signature: g.Sig}
	g.Send(m.Append(nil))
	g.Wait(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "chose streams") {
			t.Errorf("Serve returned %v", err)
		}
	})
	g = gatewaytest.New(t, text, answers)
	g.Start(serving(g, func(ctx context.Context, b *Batch) error { return b.Send() }))
	g.WantText(g.Predict(256, "x"), wire.StatusModelError, "WithStreams()")
	cancel := wire.Cancel{Batch: 1}
	g.Send(cancel.Append(nil))
	g.Wait(func(err error) {
		if err == nil || !strings.Contains(err.Error(), "sent CANCEL, which") {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// call is an item of the section of calls.
func call(micros uint64, texts ...string) []byte {
	raw := i64(int64(micros))
	for _, text := range texts {
		raw = append(raw, byte(len(text)), byte(len(text)>>8))
		raw = append(raw, text...)
	}
	return raw
}

func TestParametersAndCalls(t *testing.T) {
	began := time.Now()
	predict := func(_ context.Context, b *Batch) error {
		for i := range b.Len() {
			c := b.Call(i)
			soon := c.Deadline.After(began.Add(time.Minute)) && c.Deadline.Before(time.Now().Add(time.Minute))
			b.SetBytes("answer", i, fmt.Appendf(nil, "%s %s %s|%s|%s %v %v", b.Parameters(i), b.Context(i), c.RequestID, c.TraceParent, c.TraceState, soon, c.Deadline.IsZero()))
		}
		return nil
	}
	bothWays(t, func(t *testing.T, options ...Option) {
		options = append(options, WithParameters(), WithCalls())
		for _, contexts := range []bool{false, true} {
			columns := gatewaytest.Columns{gatewaytest.Texts("a", "b")}
			more := []api.TensorSpec{wire.BytesSection, wire.BytesSection}
			user := ""
			if contexts {
				options, more, user = append(options, WithContexts()), append(more, wire.BytesSection), "user"
				columns = append(columns, gatewaytest.Texts(user, ""))
			}
			columns = append(columns, gatewaytest.Texts(`{"top_k":3}`, "{}"), gatewaytest.Values(call(60_000_000, "id", "00-1", "x=y"), call(0, "", "", "")))
			g := gatewaytest.New(t, text, answers)
			g.Start(serving(g, predict, options...))
			g.WantTexts(g.Request(wire.KindPredict, columns, 4096, more...), `{"top_k":3} `+user+` id|00-1|x=y true false`, `{}  || false true`)
			for _, bad := range [][]byte{{}, call(1), call(1, "a", "b", "c")[:14]} {
				columns[len(columns)-1][0].Data = bad
				g.WantText(g.Request(wire.KindPredict, columns, 4096, more...), wire.StatusModelError, "its call")
			}
			g.Drain()
		}
		g := gatewaytest.New(t, text, answers)
		g.Major = 1
		g.Start(serving(g, predict, WithParameters(), WithCalls(), WithConcurrency(2)))
		g.WantTexts(g.Predict(256, "a"), `{}  || false true`)
		g.Drain()
	})
}
