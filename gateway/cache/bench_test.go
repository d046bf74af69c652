package cache

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// noOwner owns waiters that never wait.
type noOwner struct{}

func (noOwner) Filled(*Waiter)           {}
func (noOwner) Failed(*Waiter, api.Code) {}

var inputSizes = []int{8, 256, 3136, 100_000}

func BenchmarkKey(b *testing.B) {
	for _, n := range inputSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := New(0)
			in := []api.Value{{Data: make([]byte, n)}}
			b.SetBytes(int64(n))
			for b.Loop() {
				c.Key(nil, in)
			}
		})
	}
}

func BenchmarkHit(b *testing.B) {
	for _, n := range inputSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := New(64 << 20).Model()
			w := Waiter{Owner: noOwner{}}
			in, out := []api.Value{{Data: make([]byte, n)}}, []api.Value{{Data: make([]byte, 8)}}
			const objects = 100
			for i := range uint64(objects) {
				binary.LittleEndian.PutUint64(in[0].Data, i)
				if m.Request(m.Key(nil, in), nil, in, &w) == Lead {
					w.Fill(out, 1)
				}
			}
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				binary.LittleEndian.PutUint64(in[0].Data, i%objects)
				if o := m.Request(m.Key(nil, in), nil, in, &w); o != Hit {
					b.Fatal(o)
				}
			}
		})
	}
}

func BenchmarkMissAndFill(b *testing.B) {
	for _, n := range inputSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := New(16 << 20).Model()
			w := Waiter{Owner: noOwner{}}
			in, out := []api.Value{{Data: make([]byte, n)}}, []api.Value{{Data: make([]byte, 8)}}
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				binary.LittleEndian.PutUint64(in[0].Data, i)
				if o := m.Request(m.Key(nil, in), nil, in, &w); o != Lead {
					b.Fatal(o)
				}
				w.Fill(out, 1)
			}
		})
	}
}

// BenchmarkParallel runs nine hits for each miss, on all cores.
func BenchmarkParallel(b *testing.B) {
	m := New(16 << 20).Model()
	var fresh atomic.Uint64
	fresh.Store(1 << 32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		w := Waiter{Owner: noOwner{}}
		in, out := []api.Value{{Data: make([]byte, 256)}}, []api.Value{{Data: make([]byte, 8)}}
		for i := uint64(0); pb.Next(); i++ {
			object := i % 1000
			if i%10 == 0 {
				object = fresh.Add(1)
			}
			binary.LittleEndian.PutUint64(in[0].Data, object)
			switch m.Request(m.Key(nil, in), nil, in, &w) {
			case Lead:
				w.Fill(out, 1)
			case Wait:
				w.Cancel()
			}
		}
	})
}
