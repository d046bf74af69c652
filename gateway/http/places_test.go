package http

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// serveFull starts a server whose model has slots, all of which others have.
func serveFull(t *testing.T, wait time.Duration, submit func(*scheduler.Item)) (*fixture, *testSlots) {
	f, slots := serveLaid(t, submit, func(f *fixture) { f.bodies.placeWait = api.Nanos(wait) })
	slots.soon = true
	slots.none.Store(true)
	return f, slots
}

func lengths(it *scheduler.Item) {
	querytest.End(it, api.OK, fmt.Appendf(nil, "%c%d", it.Inputs[0].Data[0], len(it.Inputs[0].Data)))
}

// A body whose model has no place for it now waits, unread, and is received in a place when there is one.
func TestBodiesWaitForAPlace(t *testing.T) {
	f, slots := serveFull(t, time.Minute, lengths)
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", large('a'), plain))
	slots.asked(t, 1)
	if n := f.bodies.Used(); n != int64(len(large('a'))) {
		t.Errorf("a body that waits has room for %d bytes", n)
	}
	if !slots.give(true) {
		t.Error("the body does not wait")
	}
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	slots.none.Store(false)
	go io.WriteString(c, request("/f/predict", large('b'), plain))
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("the next: %d %s", status, body)
	}
	if n := slots.given.Load(); n != 2 {
		t.Errorf("%d slots were given, expected 2", n)
	}
	slots.awaitFreed(t)
	slots.await(t, func() bool { return f.bodies.Used() == 0 })
}

// If there is none after all, it has memory of its own.
func TestBodiesWaitForAPlaceInVain(t *testing.T) {
	f, slots := serveFull(t, time.Minute, lengths)
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", large('a'), plain))
	slots.asked(t, 1)
	slots.give(false)
	if status, body := readAnswer(t, r); status != 200 || slots.given.Load() != 0 {
		t.Errorf("%d %s, %d slots given", status, body, slots.given.Load())
	}
}

// It does not wait for long, and takes no place after that.
func TestBodiesDoNotWaitLongForAPlace(t *testing.T) {
	f, slots := serveFull(t, time.Millisecond, lengths)
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", large('a'), plain))
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if slots.give(true) {
		t.Error("it has taken a slot afterwards")
	}
	if n := slots.given.Load(); n != 0 {
		t.Errorf("%d slots were given", n)
	}
	slots.await(t, func() bool { return f.bodies.Used() == 0 })
}

// A client that leaves while its body waits gives its room back, and takes no place.
func TestClientsThatLeaveAPlace(t *testing.T) {
	f, slots := serveFull(t, time.Minute, lengths)
	c, _ := f.raw()
	io.WriteString(c, request("/f/predict", large('a'), plain)[:20<<10])
	slots.asked(t, 1)
	c.Close()
	slots.await(t, func() bool { return f.bodies.Used() == 0 })
	if slots.give(true) {
		t.Error("a client that has left gets a place")
	}
	f.has(0)
}

// A server that ends waits for bodies that wait for a place.
func TestShutdownWhileABodyWaitsForAPlace(t *testing.T) {
	f, slots := serveFull(t, time.Minute, lengths)
	c, r := f.raw()
	go io.WriteString(c, request("/f/predict", large('a'), plain))
	slots.asked(t, 1)
	ended := make(chan error, 1)
	go func() { ended <- f.shutdown(t.Context()) }()
	slots.await(t, f.s.draining.Load)
	slots.give(true)
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Many clients share few places: all are answered, each with its own, and nothing is left.
func TestManyBodiesShareFewPlaces(t *testing.T) {
	for _, wait := range []time.Duration{time.Minute, 3 * time.Millisecond} {
		f, slots := serveFull(t, wait, lengths)
		slots.most = 3
		slots.none.Store(false)
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				c, r := f.raw()
				for range 10 {
					letter := byte('a' + i)
					go io.WriteString(c, request("/f/predict", large(letter), plain, "Accept: application/octet-stream\r\n"))
					if status, body := readAnswer(t, r); status != 200 || body != fmt.Sprintf("%c%d", letter, len(large(letter))) {
						t.Errorf("%d %s", status, body)
					}
				}
			})
		}
		wg.Wait()
		slots.awaitFreed(t)
		slots.await(t, func() bool { return f.bodies.Used() == 0 })
	}
}

// What a body waited for in vain may be given when the next one of its connection asks: it is taken only if it has the right size, and two places
// are one too many.
func TestAPlaceThatComesLate(t *testing.T) {
	var late func(api.Slot) bool
	taken := make(chan bool, 2)
	slots := new(testSlots)
	f, _ := serveLaid(t, lengths, func(f *fixture) {
		f.bodies.placeWait = api.Nanos(time.Millisecond)
		f.fn.Candidates[0].Model.Reserve = func(n int, give func(api.Slot) bool) (api.Slot, bool) {
			if late == nil {
				late = give
				return nil, true
			}
			s := slots.slot(100 << 10)
			took := late(s)
			if !took {
				s.Free()
			}
			taken <- took
			return slots.slot(n), false
		}
	})
	c, r := f.raw()
	for _, size := range []int{100 << 10, 300 << 10, 100 << 10} {
		go io.WriteString(c, request("/f/predict", large('a')[:size], plain, "Accept: application/octet-stream\r\n"))
		if status, body := readAnswer(t, r); status != 200 || body != fmt.Sprintf("a%d", size) {
			t.Fatalf("%d bytes: %d %s", size, status, body)
		}
	}
	if larger, same := <-taken, <-taken; larger || !same {
		t.Errorf("taken for a larger body: %v, for one of its size: %v", larger, same)
	}
	slots.awaitFreed(t)
	slots.await(t, func() bool { return f.bodies.Used() == 0 })
}
