//go:build !race

package cache

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// noopOwner is an owner that ignores its calls.
type noopOwner struct{ Waiter }

func (*noopOwner) Filled(*Waiter)           {}
func (*noopOwner) Failed(*Waiter, api.Code) {}

// TestAllocNothingInSteadyState: hits, misses with fill and eviction, coalesced queries, failures and look-ups for
// feedback allocate nothing once the cache is full.
func TestAllocNothingInSteadyState(t *testing.T) {
	c := newCache(256<<10, 1, 1)
	m := c.Model()
	salt := []byte("salt")
	in := []api.Value{{Data: make([]byte, 3000), Dims: []int64{30, 25}}, {Data: make([]byte, 100)}}
	out := []api.Value{{Data: make([]byte, 500), Dims: []int64{125}}}
	var a, b noopOwner
	a.Owner, b.Owner = &a, &b
	n := uint64(0)
	next := func() Key {
		n++
		binary.LittleEndian.PutUint64(in[0].Data, n)
		in[0].Data = in[0].Data[:1000+n*131%2000] // sizes vary, and so do the chains
		return m.Key(salt, in)
	}
	lead := func(k Key) {
		if o := m.Request(k, salt, in, &a.Waiter); o != Lead {
			t.Fatalf("got %v", o)
		}
	}
	for range 1000 {
		lead(next())
		a.Fill(out, 1)
	}
	m.Request(m.Key(salt, in), salt, in, &b.Waiter) // a hit: its buffers now have their size
	large := one(strings.Repeat("x", 100_000))
	before := c.Stats()
	if before.Evicted < 500 {
		t.Fatalf("the cache is not full: %+v", before)
	}
	for _, v := range []struct {
		name string
		do   func()
	}{
		{"hit", func() {
			if o := m.Request(m.Key(salt, in), salt, in, &b.Waiter); o != Hit {
				t.Fatalf("got %v", o)
			}
		}},
		{"fetch", func() {
			if !m.Fetch(m.Key(salt, in), salt, in, &b.Waiter) {
				t.Fatal("Fetch found nothing")
			}
		}},
		{"miss, fill and eviction", func() {
			lead(next())
			a.Fill(out, 1)
		}},
		{"failure", func() {
			lead(next())
			a.Fail(api.ModelError)
		}},
		{"wait", func() {
			k := next()
			lead(k)
			if o := m.Request(k, salt, in, &b.Waiter); o != Wait {
				t.Fatalf("got %v", o)
			}
			a.Fill(out, 1)
		}},
		{"cancel", func() {
			k := next()
			lead(k)
			m.Request(k, salt, in, &b.Waiter)
			if !b.Cancel() {
				t.Fatal("not cancelled")
			}
			a.Fail(api.ModelError)
		}},
		{"bypass", func() {
			if o := m.Request(Key{}, nil, large, &a.Waiter); o != Bypass {
				t.Fatalf("got %v", o)
			}
		}},
	} {
		if got := testing.AllocsPerRun(500, v.do); got != 0 {
			t.Errorf("%s: %v allocations", v.name, got)
		}
	}
	if after := c.Stats(); after.Evicted <= before.Evicted || after.HeldBytes != before.HeldBytes {
		t.Errorf("the cache changed from %+v to %+v", before, after)
	}
}
