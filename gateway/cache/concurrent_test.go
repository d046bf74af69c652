package cache

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a goroutine's query. Its owner's calls arrive on a channel.
type client struct {
	Waiter
	ends  chan bool // filled or failed; capacity two, so that a second call is detected and does not block
	calls atomic.Int32
}

func (c *client) Filled(*Waiter)           { c.calls.Add(1); c.ends <- true }
func (c *client) Failed(*Waiter, api.Code) { c.calls.Add(1); c.ends <- false }

// TestEveryWaiterEnds: goroutines request few inputs of few models from a cache that is too small for them. Leaders
// fill or fail from other goroutines, waiters cancel at the same time, and models are dropped. Every query ends exactly
// once, with the prediction for its input.
func TestEveryWaiterEnds(t *testing.T) {
	const (
		goroutines = 16
		rounds     = 1500
		inputs     = 12
	)
	c := newCache(80<<10, 1, 1)
	var models [3]atomic.Pointer[Model]
	for i := range models {
		models[i].Store(c.Model())
	}
	var outcomes [Wait + 1]atomic.Int64
	var cancelled, failed atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			q := &client{ends: make(chan bool, 2)}
			q.Owner = q
			for range rounds {
				before := q.calls.Load()
				i := rng.IntN(len(models))
				if rng.IntN(200) == 0 {
					models[i].Swap(c.Model()).Drop()
				}
				m := models[i].Load()
				in := []api.Value{{Data: make([]byte, 8+1000*rng.IntN(4))}}
				number := rng.Uint64N(inputs)
				binary.LittleEndian.PutUint64(in[0].Data, number)
				k := m.Key(nil, in)
				o := m.Request(k, nil, in, &q.Waiter)
				outcomes[o].Add(1)
				want := int32(0)
				switch o {
				case Hit:
					checkOutput(t, q.Outputs, number)
				case Lead:
					end := func() {
						for range rng.IntN(4) { // so that other queries arrive meanwhile
							runtime.Gosched()
						}
						if number%5 == 4 {
							q.Fail(api.ModelError)
							failed.Add(1)
						} else {
							out := make([]byte, 8+60*int(number%3))
							binary.LittleEndian.PutUint64(out, number)
							q.Fill([]api.Value{{Data: out}}, 1)
						}
						q.ends <- true
					}
					go end()
					<-q.ends
				case Wait:
					if rng.IntN(3) == 0 && q.Cancel() {
						cancelled.Add(1)
						break
					}
					want = 1
					if <-q.ends {
						checkOutput(t, q.Outputs, number)
					}
				}
				if got := q.calls.Load() - before; got != want {
					t.Errorf("%v: called %d times, want %d", o, got, want)
				}
			}
		})
	}
	all.Wait()
	c.check(t)
	if st := c.Stats(); st.Pending != 0 || st.Evicted == 0 {
		t.Errorf("at the end: %+v", st)
	}
	var total int64
	for o := Bypass; o <= Wait; o++ {
		n := outcomes[o].Load()
		total += n
		if o != Bypass && n == 0 {
			t.Errorf("no request had the outcome %v", o)
		}
	}
	if total != goroutines*rounds || failed.Load() == 0 {
		t.Errorf("%d outcomes, %d failures", total, failed.Load())
	}
	t.Logf("bypass %d, hit %d, lead %d, wait %d; cancelled %d, failed %d",
		outcomes[Bypass].Load(), outcomes[Hit].Load(), outcomes[Lead].Load(), outcomes[Wait].Load(), cancelled.Load(), failed.Load())
}

func checkOutput(t *testing.T, outputs []api.Value, number uint64) {
	if len(outputs) != 1 || binary.LittleEndian.Uint64(outputs[0].Data) != number || len(outputs[0].Data) != 8+60*int(number%3) {
		t.Errorf("for input %d: got %v", number, outputs)
	}
}

// TestCancelAgainstFill: of a concurrent Cancel and Fill, exactly one wins.
func TestCancelAgainstFill(t *testing.T) {
	m := newCache(64<<10, 1, 1).Model()
	in := one("in")
	k := m.Key(nil, in)
	won := [2]int{}
	leader, q := &client{}, &client{ends: make(chan bool, 2)}
	q.Owner = q
	for round := range 4000 {
		if o := m.Request(k, nil, in, &leader.Waiter); o != Lead {
			t.Fatalf("got %v", o)
		}
		if o := m.Request(k, nil, in, &q.Waiter); o != Wait {
			t.Fatalf("got %v", o)
		}
		before := q.calls.Load()
		var both sync.WaitGroup
		var cancelled bool
		cancel := func() { cancelled = q.Cancel() }
		fail := func() { leader.Fail(api.Cancelled) }
		switch round % 4 {
		case 0:
			cancel()
			fail()
		case 1:
			fail()
			cancel()
		case 2:
			both.Go(cancel)
			both.Go(fail)
		case 3:
			both.Go(fail)
			both.Go(cancel)
		}
		both.Wait()
		calls := q.calls.Load() - before
		if cancelled == (calls == 1) || calls > 1 {
			t.Fatalf("cancelled: %t, owner called %d times", cancelled, calls)
		}
		won[calls]++
		if calls == 1 {
			<-q.ends
		}
	}
	if won[0] == 0 || won[1] == 0 {
		t.Errorf("cancelled %d times, called %d times", won[0], won[1])
	}
}
