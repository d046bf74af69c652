package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"

	"github.com/maypok86/otter/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
)

// caller is one goroutine's use of a cache.
type caller interface {
	// ask reports whether the cache had the output of input. If not, ask stores it.
	ask(input []byte) (hit bool)
}

// contender is a cache in the comparison. open makes a cache of maxBytes and returns a constructor of callers.
type contender struct {
	name string
	open func(maxBytes int64) func() caller
}

var answer = make([]byte, outputBytes)

// ours is package gateway/cache, used as in the gateway.
var ours = contender{"xebec", func(maxBytes int64) func() caller {
	m := cache.New(maxBytes).Model()
	return func() caller {
		return &ourCaller{model: m, inputs: make([]api.Value, 1), outputs: []api.Value{{Data: answer}}}
	}
}}

type ourCaller struct {
	model           *cache.Model
	inputs, outputs []api.Value
	waiter          cache.Waiter
}

// Filled and Failed notify waiters. Callers here use inputs of their own, so none waits for another.
func (*ourCaller) Filled(*cache.Waiter)           {}
func (*ourCaller) Failed(*cache.Waiter, api.Code) {}

func (c *ourCaller) ask(input []byte) bool {
	c.waiter.Owner = c
	c.inputs[0].Data = input
	switch c.model.Request(c.model.Key(nil, c.inputs), nil, c.inputs, &c.waiter) {
	case cache.Hit:
		return true
	case cache.Lead:
		c.waiter.Fill(c.outputs, math.NaN())
	case cache.Wait:
		if !c.waiter.Cancel() {
			return true
		}
	}
	return false
}

// library is otter with part of what a prediction cache needs: 128-bit keys, inputs compared for equality, entries weighed by their bytes. It
// does not coalesce misses (otter's own loader blocks the caller) and cannot drop all entries of a version.
var library = contender{"otter", func(maxBytes int64) func() caller {
	c := newOtter(maxBytes)
	hasher := cache.New(0)
	return func() caller {
		return &otterCaller{cache: c, hasher: hasher, inputs: make([]api.Value, 1), output: make([]byte, 0, outputBytes)}
	}
}}

// otterEntry is a value: input and output in one allocation.
type otterEntry struct {
	inputBytes int
	body       []byte
}

func newOtter(maxBytes int64) *otter.Cache[cache.Key, *otterEntry] {
	return otter.Must(&otter.Options[cache.Key, *otterEntry]{
		MaximumWeight: uint64(maxBytes),
		Weigher:       func(_ cache.Key, e *otterEntry) uint32 { return uint32(len(e.body) + otterOverheadBytes) },
	})
}

type otterCaller struct {
	cache  *otter.Cache[cache.Key, *otterEntry]
	hasher *cache.Cache
	inputs []api.Value
	output []byte
}

func (c *otterCaller) ask(input []byte) bool {
	c.inputs[0].Data = input
	k := c.hasher.Key(nil, c.inputs)
	if e, ok := c.cache.GetIfPresent(k); ok && bytes.Equal(e.body[:e.inputBytes], input) {
		c.output = append(c.output[:0], e.body[e.inputBytes:]...)
		return true
	}
	body := make([]byte, 0, len(input)+outputBytes)
	body = append(append(body, input...), answer...)
	c.cache.Set(k, &otterEntry{len(input), body})
	return false
}

// otterOverheadBytes is the memory of an otter entry beside its body: node, table slot, key and the value's header. It is the rounded result
// of measureOtterOverhead.
const otterOverheadBytes = 144

// measureOtterOverhead returns the heap per entry without the body's bytes, measured with n entries.
func measureOtterOverhead(n int) float64 {
	const bodyBytes = 264 - 264%8
	before := heap()
	c := newOtter(math.MaxInt64)
	bodies := 0
	for i := range n {
		body := make([]byte, bodyBytes)
		binary.LittleEndian.PutUint64(body, uint64(i))
		c.Set(cache.Key{Hi: uint64(i) * 0x9e3779b97f4a7c15, Lo: uint64(i)}, &otterEntry{bodyBytes - 8, body})
		bodies += cap(body)
	}
	c.CleanUp()
	per := float64(heap()-before-int64(bodies)) / float64(n)
	runtime.KeepAlive(c)
	return per
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// clockCaller simulates the plain CLOCK of the paper's section 4.2. It counts the memory of an entry like our cache. The comparison shows the
// effect of the probation in front of our clock.
type clockCaller struct {
	maxBytes, bytes int
	at              map[uint64]*clockEntry
	hand            *clockEntry // the oldest entry of the ring
}

type clockEntry struct {
	id         uint64
	bytes      int
	used       bool
	next, prev *clockEntry
}

var clock = contender{"plain CLOCK", func(maxBytes int64) func() caller {
	return func() caller { return &clockCaller{maxBytes: int(maxBytes), at: map[uint64]*clockEntry{}} }
}}

func (c *clockCaller) ask(input []byte) bool {
	id := binary.LittleEndian.Uint64(input)
	if e := c.at[id]; e != nil {
		e.used = true
		return true
	}
	const block, index = 128, 4
	n := (len(input) + outputBytes + 72 + block - 1) / block * (block + index)
	for c.bytes+n > c.maxBytes {
		for c.hand.used {
			c.hand.used, c.hand = false, c.hand.next
		}
		e := c.hand
		c.hand = e.next
		e.prev.next, e.next.prev = e.next, e.prev
		c.bytes -= e.bytes
		delete(c.at, e.id)
		if c.bytes == 0 {
			c.hand = nil
		}
	}
	e := &clockEntry{id: id, bytes: n}
	c.at[id], c.bytes = e, c.bytes+n
	if c.hand == nil {
		e.next, e.prev, c.hand = e, e, e
		return false
	}
	e.next, e.prev = c.hand, c.hand.prev
	e.prev.next, c.hand.prev = e, e
	return false
}
