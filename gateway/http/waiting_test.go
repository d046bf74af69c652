package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// A transcript of a budget of 100 bytes. Each step says which bodies it gives room, in order.
func TestTurns(t *testing.T) {
	type step struct {
		what string
		do   func(w *waitingRoom)
		woke []int
	}
	comes := func(bytes int) func(*waitingRoom) { return func(w *waitingRoom) { w.comes(bytes) } }
	goes := func(i int) func(*waitingRoom) { return func(w *waitingRoom) { w.goes(i) } }
	leaves := func(i int) func(*waitingRoom) { return func(w *waitingRoom) { w.leaves(i) } }
	w := &waitingRoom{t: t, b: NewBodies(100)}
	for _, s := range []step{
		{"0 has room", comes(60), nil},
		{"1 waits", comes(50), nil},
		{"2 would fit, and does not overtake", comes(10), nil},
		{"3 waits", comes(30), nil},
		{"0 goes: all have room", goes(0), []int{1, 2, 3}},
		{"4 waits", comes(100), nil},
		{"5 waits", comes(1), nil},
		{"1 goes: 4 is not starved by 5", goes(1), nil},
		{"2 goes", goes(2), nil},
		{"4 gives up: 5 is not held up by it", leaves(4), []int{5}},
		{"3 goes", goes(3), nil},
		{"6 has room", comes(99), nil},
		{"7 waits", comes(40), nil},
		{"8 waits", comes(40), nil},
		{"9 waits", comes(40), nil},
		{"8 gives up between others", leaves(8), nil},
		{"6 goes", goes(6), []int{7, 9}},
		{"7 gives up before it has seen that it has room", leaves(7), nil},
		{"and again, for which there is nothing", leaves(7), nil},
	} {
		w.woke = nil
		s.do(w)
		if !slices.Equal(w.woke, s.woke) {
			t.Errorf("%s: room for %v, expected %v", s.what, w.woke, s.woke)
		}
		if used := w.b.Used(); used > 100 {
			t.Fatalf("%s: %d bytes are used", s.what, used)
		}
	}
	if used := w.b.Used(); used != 41 {
		t.Errorf("%d bytes are used, expected those of 5 and 9", used)
	}
}

// What the metric shows rises with each body that waits, and falls when one has room or gives up.
func TestBodiesWaiting(t *testing.T) {
	w := &waitingRoom{t: t, b: NewBodies(100)}
	for _, s := range []struct {
		do      func()
		waiting int
	}{
		{func() { w.comes(80) }, 0}, {func() { w.comes(50) }, 1}, {func() { w.comes(70) }, 2}, {func() { w.comes(1) }, 3},
		{func() { w.leaves(2) }, 2}, {func() { w.goes(0) }, 0},
	} {
		if s.do(); w.b.Waiting() != s.waiting {
			t.Errorf("%d bodies are said to wait, expected %d", w.b.Waiting(), s.waiting)
		}
	}
}

// waitingRoom is a number of bodies, by the order in which they came.
type waitingRoom struct {
	t     *testing.T
	b     *Bodies
	turns []*turn
	sizes []int
	woke  []int
}

func (w *waitingRoom) comes(bytes int) {
	i, turn := len(w.turns), new(turn)
	w.turns, w.sizes = append(w.turns, turn), append(w.sizes, bytes)
	if w.b.reserveInTurn(bytes) {
		return
	}
	if !w.b.await(turn, bytes, func() { w.woke = append(w.woke, i) }) {
		w.t.Errorf("body %d is refused", i)
	}
}

func (w *waitingRoom) goes(i int) {
	w.b.claim(w.turns[i])
	w.b.Return(w.sizes[i])
}

func (w *waitingRoom) leaves(i int) { w.b.leave(w.turns[i]) }

// Whatever comes, goes and gives up: the budget is never exceeded, those that wait get room in the order in which they came, and none
// waits where the first of them has room.
func TestTurnsBySeed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.IntRange(1, 50).Draw(r, "limit")
		w := &waitingRoom{t: t, b: NewBodies(int64(limit))}
		seen := 0
		for range rapid.IntRange(0, 80).Draw(r, "steps") {
			var waiting, inside []int
			for i, turn := range w.turns {
				switch {
				case turn.state == turnQueue:
					waiting = append(waiting, i)
				case turn.bytes >= 0:
					inside = append(inside, i)
				}
			}
			switch op := rapid.IntRange(0, 3).Draw(r, "operation"); {
			case op == 0 && len(inside) > 0:
				i := rapid.SampledFrom(inside).Draw(r, "goes")
				w.goes(i)
				w.turns[i].bytes = -1
			case op == 1 && len(waiting) > 0:
				i := rapid.SampledFrom(waiting).Draw(r, "leaves")
				w.leaves(i)
				w.turns[i].bytes = -1
			default:
				w.comes(rapid.IntRange(1, limit).Draw(r, "bytes"))
			}
			used := 0
			for i, turn := range w.turns {
				if turn.bytes >= 0 && turn.state != turnQueue {
					used += w.sizes[i]
				}
			}
			if used != int(w.b.Used()) || used > limit {
				r.Fatalf("%d bytes are used of %d: expected %d", w.b.Used(), limit, used)
			}
			if !slices.IsSorted(w.woke) {
				r.Fatalf("room in the order %v", w.woke)
			}
			for i, turn := range w.turns {
				if turn.state == turnQueue {
					if used+w.sizes[i] <= limit {
						r.Fatalf("body %d of %d bytes waits, %d of %d are used", i, w.sizes[i], used, limit)
					}
					break
				}
			}
			seen = max(seen, len(waiting))
		}
	})
}

func TestTurnsAreBounded(t *testing.T) {
	b := NewBodies(1)
	b.Reserve(1)
	turns := make([]turn, roomTurns+1)
	woke := 0
	for i := range turns {
		if ok := b.await(&turns[i], 1, func() { woke++ }); ok != (i < roomTurns) {
			t.Fatalf("%d wait, another one: %v", i, ok)
		}
	}
	for i := range turns[:roomTurns] {
		b.Return(1)
		if woke != i+1 || !b.claim(&turns[i]) {
			t.Fatalf("%d have room, expected that of turn %d", woke, i)
		}
	}
}

// Room that is given back while a body begins to wait is not missed, with many goroutines.
func TestTurnsOfManyGoroutines(t *testing.T) {
	const limit = 3
	b := NewBodies(limit)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				bytes := 1 + (n+i)%limit
				woke := make(chan struct{}, 1)
				var mine turn
				if b.reserveInTurn(bytes) {
					b.Return(bytes)
					continue
				}
				if !b.await(&mine, bytes, func() { woke <- struct{}{} }) {
					t.Error("it is refused")
					return
				}
				if n%5 == 0 && b.leave(&mine) {
					continue
				}
				<-woke
				b.claim(&mine)
				if used := b.Used(); used > limit {
					t.Errorf("%d bytes are used", used)
				}
				b.Return(bytes)
			}
		})
	}
	all.Wait()
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

const rawBody = "Content-Type: application/octet-stream\r\n"

// fills has bodies of so many bytes in all, of which a test takes all at first, and in which the time to wait never ends.
func fills(bytes int) func(*fixture) {
	return func(f *fixture) {
		f.bodies = NewBodies(int64(bytes))
		f.bodies.turns.wait = time.Hour
		f.bodies.Reserve(bytes)
	}
}

// waits waits until so many bodies wait.
func (f *fixture) waits(n int) {
	f.t.Helper()
	f.wait(func(int) bool { return int(f.bodies.turns.waiting.Load()) == n })
}

// A body without room waits unread, and is answered after room was given back: in whatever state its connection is.
func TestBodiesWaitForRoom(t *testing.T) {
	const room = 1 << 20
	long := strings.Repeat("x", 300_000)
	cut := func(text string, n int) []string { return []string{text[:n], text[n:]} }
	whole := request("/f/predict", long, rawBody)
	smaller := request("/f/predict", long[:200_000], rawBody)
	const expects = rawBody + "Expect: 100-continue\r\n"
	tests := map[string]struct {
		parts  []string // the first is sent before there is room, the others after
		before string   // is sent when there still is room, and answered
		goesOn bool     // 100 (Continue) comes before the rest
	}{
		"the head alone":                 {parts: cut(whole, len(whole)-len(long))},
		"a part":                         {parts: cut(whole, 1000)},
		"more than is read at a time":    {parts: cut(whole, 200_000)},
		"all of it":                      {parts: []string{whole}},
		"a small one, in part":           {parts: cut(request("/f/predict", "hello", rawBody), 100)},
		"100 (Continue)":                 {parts: cut(request("/f/predict", long, expects), len(whole)-len(long)+len(expects)-len(rawBody)), goesOn: true},
		"after a body":                   {before: smaller, parts: cut(whole, 1000)},
		"in part with the body before":   {before: smaller + whole[:1000], parts: []string{"", whole[1000:]}},
		"as a whole with the one before": {before: smaller + whole, parts: []string{""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			taken := make(chan int, 1) // bytes that stand for other bodies
			var f *fixture
			var first sync.Once
			f = serve(t, querytest.Bytes, func(it *scheduler.Item) {
				first.Do(func() { // all but what this body has
					n := int(f.bodies.room())
					f.bodies.Reserve(n)
					taken <- n
				})
				querytest.End(it, api.OK, []byte("ok"))
			}, fills(room))
			c, r := f.raw()
			if test.before == "" {
				first.Do(func() { taken <- room })
			} else {
				f.bodies.Return(room)
				io.WriteString(c, test.before)
				if status, body := readAnswer(t, r); status != 200 {
					t.Fatalf("the body before is answered %d %s", status, body)
				}
			}
			io.WriteString(c, test.parts[0])
			f.waits(1)
			f.bodies.Return(<-taken)
			if test.goesOn {
				for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
					if line, err := r.ReadString('\n'); err != nil || line != want {
						t.Fatalf("%q, %v, expected %q", line, err, want)
					}
				}
			}
			for _, part := range test.parts[1:] {
				io.WriteString(c, part)
			}
			if status, body := readAnswer(t, r); status != 200 {
				t.Errorf("answered %d %s", status, body)
			}
			c.Close()
			f.wait(func(n int) bool { return n == 0 })
			if used := f.bodies.Used(); used != 0 {
				t.Errorf("%d bytes are left", used)
			}
		})
	}
}

// A client that leaves gives up its turn, whether or not it has sent all, and so does one whose time is over, which gets 503.
func TestBodiesThatGiveUp(t *testing.T) {
	const room = 1 << 20
	f := serve(t, querytest.Bytes, echoed, fills(room))
	ask := request("/f/predict", strings.Repeat("x", 100_000), rawBody)
	var clients []net.Conn
	for i := range 4 {
		c, _ := f.raw()
		io.WriteString(c, ask[:200+i*1000])
		clients = append(clients, c)
	}
	f.waits(4)
	for i, c := range clients {
		c.Close()
		f.waits(3 - i)
	}
	f.wait(func(n int) bool { return n == 0 })
	f.bodies.Return(room)
	f = serve(t, querytest.Bytes, echoed, fills(room), func(f *fixture) { f.bodies.turns.wait = time.Millisecond })
	for _, part := range []string{ask[:200], ask} {
		c, r := f.raw()
		io.WriteString(c, part)
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := textOf(t, answer); answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" || !answer.Close || !strings.Contains(text, "--body-memory") {
			t.Errorf("%d %v %s", answer.StatusCode, answer.Header, text)
		}
		answer.Body.Close()
	}
	if used, refused := f.bodies.Used(), f.s.cfg.Refusals.Read()["body_memory"]; used != room || refused != 2 {
		t.Errorf("%d bytes are used, %d refusals were counted: expected %d and 2", used, refused, room)
	}
	f.bodies.Return(room)
}

// A server that ends while bodies wait ends them.
func TestShutdownWhileBodiesWait(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed, fills(1000))
	c, r := f.raw()
	io.WriteString(c, request("/f/predict", strings.Repeat("x", 1000), rawBody)[:200])
	f.waits(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = f.shutdown(ctx) // the time is too short on purpose
	if rest, err := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("answered %q, %v", rest, err)
	}
	f.wait(func(n int) bool { return n == 0 })
	if used, waiting := f.bodies.Used(), f.bodies.turns.waiting.Load(); used != 1000 || waiting != 0 {
		t.Errorf("%d bytes are used, %d bodies wait", used, waiting)
	}
}

// Clients whose uploads stall hold all of the room. Honest ones wait, or come again when they are told to, and get their answers in the end.
func TestHonestBodiesBesideStalledOnes(t *testing.T) {
	const room, size = 1 << 20, 100_000
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { querytest.End(it, api.OK, []byte("ok")) }, func(f *fixture) {
		f.bodies = NewBodies(room)
		f.limits = func(l *Limits) { l.RateGrace = 100 * time.Millisecond }
	})
	ask := request("/f/predict", strings.Repeat("x", size), rawBody)
	stalled := request("/f/predict", strings.Repeat("x", 300_000), rawBody)[:1000]
	for range 40 { // for four seconds, if nothing else were there
		c, _ := f.raw()
		io.WriteString(c, stalled)
	}
	f.wait(func(int) bool { return f.bodies.Used() > room-300_000 })
	var honest sync.WaitGroup
	var exceeded atomic.Int64
	for range 16 {
		honest.Go(func() {
			for {
				status, err := f.upload(ask)
				if used := f.bodies.Used(); used > room {
					exceeded.Store(used)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if status == 200 {
					return
				}
				if status != 503 && status != 408 { // 408: this machine is so slow that an honest body stalls, too
					t.Errorf("answered %d", status)
					return
				}
			}
		})
	}
	honest.Wait()
	if used := exceeded.Load(); used > 0 {
		t.Errorf("%d bytes were used of %d", used, room)
	}
	f.wait(func(n int) bool { return n == 0 })
	if used, waiting := f.bodies.Used(), f.bodies.turns.waiting.Load(); used != 0 || waiting != 0 {
		t.Errorf("%d bytes are used, %d bodies wait", used, waiting)
	}
}

// upload sends a request on a connection of its own, and returns the status of its answer.
func (f *fixture) upload(ask string) (int, error) {
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	go io.WriteString(c, ask) // a refusal may come first
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// What a call has copied of its request's body takes room until the call is answered, or its client has left; a body that waits gets the room then.
func TestACallTakesRoomUntilItIsAnswered(t *testing.T) {
	held := make(chan *scheduler.Item, 2)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { held <- it }, func(f *fixture) {
		f.bodies = NewBodies(60_000)
		f.bodies.turns.wait = time.Hour
	})
	b := f.s.cfg.Bodies
	ask := func(bytes int) string {
		return request("/f/predict", `{"input": "`+strings.Repeat("x", bytes)+`"}`, "Content-Type: application/json\r\n")
	}
	first, answers := f.raw()
	io.WriteString(first, ask(40_000))
	one := <-held
	if used := b.Used(); used < 40_000 {
		t.Errorf("%d bytes are reserved while a call of 40,000 waits for its answer", used)
	}
	second, others := f.raw()
	go io.WriteString(second, ask(30_000))
	f.waits(1)
	echoed(one)
	if status, _ := readAnswer(t, answers); status != 200 {
		t.Errorf("status %d", status)
	}
	echoed(<-held)
	if status, _ := readAnswer(t, others); status != 200 {
		t.Errorf("status %d of the one that waited", status)
	}
	io.WriteString(first, ask(40_000))
	two := <-held
	first.Close()
	echoed(two)
	second.Close()
	f.wait(func(n int) bool { return n == 0 })
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are reserved at the end", used)
	}
}

// A body that came compressed takes the room of what it was decoded to.
func TestADecodedCallTakesRoomUntilItIsAnswered(t *testing.T) {
	held := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { held <- it }, func(f *fixture) { f.bodies = NewBodies(8 << 20) })
	c, answers := f.raw()
	io.WriteString(c, request("/f/predict", gzipped(t, `{"input": "`+strings.Repeat("x", 40_000)+`"}`), "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"))
	it := <-held
	f.wait(func(int) bool { return f.bodies.Used() < 1<<20 }) // the handler has returned, and given back what decoding might have needed
	if used := f.bodies.Used(); used < 40_000 {
		t.Errorf("%d bytes are reserved while a call of 40,000 waits for its answer", used)
	}
	echoed(it)
	if status, _ := readAnswer(t, answers); status != 200 {
		t.Errorf("status %d", status)
	}
	f.wait(func(int) bool { return f.bodies.Used() == 0 })
}

// A chunked body does not overtake those that wait, unless it is small. One that has begun goes on.
func TestChunkedBodiesDoNotOvertake(t *testing.T) {
	const room = 1 << 20
	f := serve(t, querytest.Bytes, echoed, func(f *fixture) {
		f.bodies = NewBodies(room)
		f.bodies.turns.wait = time.Hour
	})
	head := "POST /f/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" + rawBody + "\r\n"
	chunk := func(bytes int) string { return fmt.Sprintf("%x\r\n%s\r\n", bytes, strings.Repeat("x", bytes)) }
	const end = "0\r\n\r\n"
	begun, answers := f.raw()
	io.WriteString(begun, head+chunk(quickBytes+1))
	f.wait(func(int) bool { return f.bodies.Used() > quickBytes })

	const left = 200_000
	taken := room - left - int(f.bodies.Used())
	f.bodies.Reserve(taken)
	waits, last := f.raw()
	go io.WriteString(waits, request("/f/predict", strings.Repeat("x", 300_000), rawBody))
	f.waits(1)
	for _, test := range []struct{ bytes, status int }{{quickBytes, 200}, {quickBytes + 1, 503}} {
		c, r := f.raw()
		go io.WriteString(c, head+chunk(10_000)+chunk(test.bytes-10_000)+end)
		if status, _ := readAnswer(t, r); status != test.status {
			t.Errorf("a chunked body of %d bytes while another one waits: %d, expected %d", test.bytes, status, test.status)
		}
		c.Close()
	}
	io.WriteString(begun, chunk(quickBytes)+end)
	if status, _ := readAnswer(t, answers); status != 200 {
		t.Errorf("a body that had begun: %d", status)
	}
	f.bodies.Return(taken)
	if status, _ := readAnswer(t, last); status != 200 {
		t.Errorf("the body that waited: %d", status)
	}
}
