package http

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// testSlots give out memory for inputs, and count what is held.
type testSlots struct {
	held, given atomic.Int32
	none        atomic.Bool

	mu     sync.Mutex
	soon   bool  // without one, bodies may wait
	most   int32 // at a time; 0: any number
	askers []func(some bool) bool
}

type testSlot struct {
	of *testSlots
	b  []byte
}

func (s *testSlots) reserve(n int, give func(api.Slot) bool) (api.Slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none.Load() || s.most > 0 && s.held.Load() >= s.most {
		waits := s.soon && give != nil
		if waits {
			s.askers = append(s.askers, func(some bool) bool {
				if some {
					return give(s.slot(n))
				}
				return give(nil)
			})
		}
		return nil, waits
	}
	return s.slot(n), false
}

func (s *testSlots) slot(n int) api.Slot {
	s.held.Add(1)
	s.given.Add(1)
	return &testSlot{s, make([]byte, n)}
}

// give answers the first that waits, and reports whether it did.
func (s *testSlots) give(some bool) bool {
	for {
		s.mu.Lock()
		if len(s.askers) == 0 {
			s.mu.Unlock()
			return false
		}
		first := s.askers[0]
		s.askers = s.askers[1:]
		s.mu.Unlock()
		if first(some) {
			return true
		}
		if some {
			s.held.Add(-1)
			s.given.Add(-1)
		}
	}
}

// asked waits until so many bodies have asked to wait.
func (s *testSlots) asked(t *testing.T, n int) {
	t.Helper()
	s.await(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.askers) == n
	})
}

func (s *testSlot) Bytes() []byte { return s.b }

func (s *testSlot) Free() {
	clear(s.b) // a later reader finds zeros
	s.of.held.Add(-1)
	if s.of.most > 0 {
		s.of.give(true)
	}
}

// awaitFreed waits until slots have been given and none is held. A goroutine of the server frees them.
func (s *testSlots) awaitFreed(t *testing.T) {
	t.Helper()
	s.await(t, func() bool { return s.given.Load() > 0 && s.held.Load() == 0 })
}

func (s *testSlots) await(t *testing.T, cond func() bool) {
	t.Helper()
	again, over := time.NewTicker(time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for !cond() {
		select {
		case <-again.C:
		case <-over:
			t.Fatalf("%d slots given, %d held", s.given.Load(), s.held.Load())
		}
	}
}

// serveLaid starts a server whose model has slots. Queries go to submit.
func serveLaid(t *testing.T, submit func(*scheduler.Item), change ...func(*fixture)) (*fixture, *testSlots) {
	slots := new(testSlots)
	return serve(t, querytest.Bytes, submit, append([]func(*fixture){func(f *fixture) {
		f.fn.Candidates[0].Model.Reserve = slots.reserve
		f.bodies = NewBodies(64 << 20)
	}}, change...)...), slots
}

func large(c byte) string { return strings.Repeat(string(c), 300<<10) }

const plain = "Content-Type: text/plain\r\n"

// Bodies of raw inputs are received in slots, requests that follow each other and that come at once, and each query reads its own.
func TestBodiesAreReceivedInSlots(t *testing.T) {
	f, slots := serveLaid(t, func(it *scheduler.Item) {
		data := it.Inputs[0].Data
		querytest.End(it, api.OK, fmt.Appendf(nil, "%c%d", data[0], len(data)-strings.Count(string(data), string(data[0]))))
	})
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", large('a'), plain)+request("/f/predict", large('b'), plain)+request("/f/predict", "small", plain)+request("/f/predict", large('c'), plain))
	for _, want := range []string{"YTA=", "YjA=", "czQ=", "YzA="} { // a0, b0, s4, c0
		if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%d %s, expected %s", status, body, want)
		}
	}
	slots.awaitFreed(t)
	if n := slots.given.Load(); n != 3 {
		t.Errorf("%d slots, expected one for each large body", n)
	}
	if n := f.bodies.Used(); n != 0 {
		t.Errorf("%d bytes of the budget are taken", n)
	}
}

// A slot stays until the scheduler has released the query, also after the answer.
func TestSlotIsHeldUntilReleased(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f, slots := serveLaid(t, func(it *scheduler.Item) { items <- it }, withDefault("null"))
	c, r := f.raw()
	io.WriteString(c, request("/f/predict", large('a'), plain))
	it := <-items
	it.Owner.Answered(it, api.DeadlineExceeded)
	if _, body := readAnswer(t, r); !strings.Contains(body, `"default":true`) {
		t.Fatalf("answer %s", body)
	}
	if string(it.Inputs[0].Data) != large('a') || slots.held.Load() != 1 {
		t.Fatal("the slot was freed while the scheduler held its query")
	}
	it.Owner.Released(it, api.OK)
	slots.awaitFreed(t)
}

// What ends before it is a query gives its slot back: a client that leaves, a request that is refused, a function that fails.
func TestSlotsOfRequestsThatEnd(t *testing.T) {
	f, slots := serveLaid(t, func(it *scheduler.Item) { querytest.End(it, api.OK, []byte("ok")) })
	c, _ := f.raw()
	io.WriteString(c, request("/f/predict", large('a'), plain)[:200<<10])
	slots.await(t, func() bool { return slots.given.Load() > 0 })
	c.Close()
	slots.awaitFreed(t)

	c, r := f.raw()
	io.WriteString(c, request("/f/predict", large('a'), plain, "Xebec-Slo-Ms: never\r\n"))
	if status, body := readAnswer(t, r); status != 400 {
		t.Errorf("%d %s", status, body)
	}
	slots.awaitFreed(t)
}

// A client that is slow to send its body is moved to memory of its own, and served.
func TestSlowBodiesLeaveTheirSlots(t *testing.T) {
	f, slots := serveLaid(t, func(it *scheduler.Item) {
		querytest.End(it, api.OK, fmt.Append(nil, string(it.Inputs[0].Data) == large('a')))
	})
	c, r := f.raw()
	whole := request("/f/predict", large('a'), plain)
	io.WriteString(c, whole[:100<<10])
	slots.awaitFreed(t)
	io.WriteString(c, whole[100<<10:])
	if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, "dHJ1ZQ==") {
		t.Errorf("%d %s", status, body)
	}
}

// Bodies that are no raw input of one model have no slot.
func TestBodiesThatHaveNoSlot(t *testing.T) {
	f, slots := serveLaid(t, func(it *scheduler.Item) { querytest.End(it, api.OK, []byte("ok")) })
	c, r := f.raw()
	text := `{"input":"` + large('x') + `"}`
	for _, req := range []string{
		request("/f/predict", text, "Content-Type: application/json\r\n"),
		request("/f/predict", large('x'), plain, "Content-Encoding: br\r\n"),
		request("/g/predict", large('x'), plain),
		request("/f/feedback", text, plain),
		"PUT" + strings.TrimPrefix(request("/f/predict", large('x'), plain), "POST"),
	} {
		go io.WriteString(c, req)
		if status, _ := readAnswer(t, r); status == 200 {
			continue
		}
		c.Close() // some refusals end the connection
		c, r = f.raw()
	}
	slots.none.Store(true)
	go io.WriteString(c, request("/f/predict", large('x'), plain))
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("without room in the segment: %d %s", status, body)
	}
	if n := slots.given.Load(); n != 0 {
		t.Errorf("%d slots were given", n)
	}
}

// A body that has waited for room is received in a slot, too.
func TestBodiesThatHaveWaitedAreReceivedInSlots(t *testing.T) {
	items := make(chan *scheduler.Item, 2)
	f, slots := serveLaid(t, func(it *scheduler.Item) { items <- it }, func(f *fixture) {
		f.bodies = NewBodies(400 << 10)
		f.bodies.turns.wait = time.Minute
	})
	first, a := f.raw()
	io.WriteString(first, request("/f/predict", large('a'), plain))
	it := <-items
	second, b := f.raw()
	go io.WriteString(second, request("/f/predict", large('b'), plain))
	slots.await(t, func() bool { return f.bodies.turns.waiting.Load() == 1 })
	querytest.End(it, api.OK, []byte("a"))
	if status, body := readAnswer(t, a); status != 200 {
		t.Errorf("the first: %d %s", status, body)
	}
	it = <-items
	if string(it.Inputs[0].Data) != large('b') || slots.given.Load() != 2 {
		t.Errorf("%d slots given, %d bytes received", slots.given.Load(), len(it.Inputs[0].Data))
	}
	querytest.End(it, api.OK, []byte("b"))
	if status, body := readAnswer(t, b); status != 200 {
		t.Errorf("the second: %d %s", status, body)
	}
	slots.awaitFreed(t)
}

// A very large body is received in a slot, and its handler does not run on the poller: other clients are served while it takes its time.
func TestVeryLargeBodiesInSlotsHoldUpNoPoller(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	f, slots := serveLaid(t, func(it *scheduler.Item) {
		if len(it.Inputs[0].Data) > quickLaidBytes {
			began <- struct{}{}
			<-goOn
		}
		querytest.End(it, api.OK, []byte("ok"))
	})
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", strings.Repeat("v", quickLaidBytes+1), plain))
	<-began
	for range 4 { // more than there are pollers in most tests
		other, answers := f.raw()
		io.WriteString(other, request("/f/predict", "small", plain))
		if status, body := readAnswer(t, answers); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	close(goOn)
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("the very large one: %d %s", status, body)
	}
	slots.awaitFreed(t)
	if n := slots.given.Load(); n != 1 {
		t.Errorf("%d slots, expected 1", n)
	}
}
