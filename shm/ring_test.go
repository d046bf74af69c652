package shm

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func descriptor(n uint64) (d Descriptor) {
	for i := range DescriptorBytes / 8 {
		binary.LittleEndian.PutUint64(d[i*8:], n*0x9e3779b97f4a7c15+uint64(i))
	}
	return d
}

// With two honest sides a ring is a queue, and the doorbell rings once for each sleep in which something was pushed.
func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segs := rapidPair(t)
		p, c := NewProducer(segs.b, segs.a), NewConsumer(segs.a, segs.b)
		entries := uint64(segs.a.Entries())
		var pushed, popped uint64
		asleep, rungThisSleep := false, false
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if pushed-popped == entries {
					t.Skip("full")
				}
				d := descriptor(pushed)
				p.Push(&d)
				pushed++
			},
			"pop": func(t *rapid.T) {
				var d Descriptor
				ok, err := c.Pop(&d, pushed-popped)
				if err != nil || ok != (pushed > popped) {
					t.Fatalf("Pop: %v, %v with %d in the ring", ok, err, pushed-popped)
				}
				if ok && d != descriptor(popped) {
					t.Fatalf("descriptor %d has the wrong content", popped)
				}
				if ok {
					popped++
				}
			},
			"ring?": func(t *rapid.T) {
				want := asleep && !rungThisSleep
				if got := p.ShouldRing(); got != want {
					t.Fatalf("ShouldRing: %v: expected %v", got, want)
				}
				rungThisSleep = rungThisSleep || want
			},
			"look": func(t *rapid.T) { // of a spinner, which changes nothing
				if got, want := c.Ready(), pushed > popped; got != want {
					t.Fatalf("Ready: %v with %d in the ring", got, pushed-popped)
				}
			},
			"sleep": func(t *rapid.T) {
				if asleep {
					t.Skip("already asleep")
				}
				if got, want := c.PrepareSleep(), pushed == popped; got != want {
					t.Fatalf("PrepareSleep: %v with %d in the ring", got, pushed-popped)
				}
				asleep, rungThisSleep = pushed == popped, false
			},
			"wake": func(*rapid.T) {
				c.Wake()
				asleep = false
			},
			"": func(t *rapid.T) {
				if p.Pushed() != pushed || p.PeerHead() != popped {
					t.Fatalf("Pushed %d, PeerHead %d: expected %d, %d", p.Pushed(), p.PeerHead(), pushed, popped)
				}
				if odd := segs.a.word32(offSleep).Load()&1 == 1; odd != asleep {
					t.Fatalf("sleep is odd: %v, asleep: %v", odd, asleep)
				}
			},
		})
	})
}

// A hostile peer writes anything to its own segment. Nothing may fault, nothing may be taken beyond what can be
// outstanding or was shown, a tail that moves backwards is a permanent error, and a side that was shown something does
// not go to sleep.
func TestHostileCursors(t *testing.T) {
	word := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64(), rapid.SampledFrom([]uint64{1 << 32, 1 << 63, ^uint64(0)}))
	rapid.Check(t, func(t *rapid.T) {
		segs := rapidPair(t)
		p, c := NewProducer(segs.a, segs.b), NewConsumer(segs.a, segs.b)
		entries := uint64(segs.a.Entries())
		tail, head, sleep := segs.workerB.word64(offTail), segs.workerB.word64(offHead), segs.workerB.word32(offSleep)
		var popped, shown, rung uint64 // shown: the largest tail that was ever written
		broken := false
		t.Repeat(map[string]func(*rapid.T){
			"tail":  func(t *rapid.T) { tail.Store(word.Draw(t, "tail")); shown = max(shown, tail.Load()) },
			"step":  func(*rapid.T) { tail.Add(1); shown = max(shown, tail.Load()) },
			"head":  func(t *rapid.T) { head.Store(word.Draw(t, "head")) },
			"sleep": func(t *rapid.T) { sleep.Store(rapid.Uint32().Draw(t, "sleep")) },
			"entry": func(t *rapid.T) {
				i := rapid.IntRange(0, int(entries)-1).Draw(t, "i")
				segs.workerB.ring()[i] = descriptor(word.Draw(t, "content"))
			},
			"push": func(*rapid.T) { d := descriptor(p.Pushed()); p.Push(&d) },
			"pop": func(t *rapid.T) {
				outstanding := rapid.Uint64Range(0, 2*entries).Draw(t, "outstanding")
				before := descriptor(99)
				d := before
				ok, err := c.Pop(&d, outstanding)
				switch {
				case err != nil && (ok || !errors.Is(err, ErrCursor) || d != before):
					t.Fatalf("Pop: %v, %v, d written: %v", ok, err, d != before)
				case err == nil && broken:
					t.Fatal("Pop went on after ErrCursor")
				case ok && (outstanding == 0 || popped >= shown):
					t.Fatalf("popped descriptor %d with %d shown, %d outstanding", popped, shown, outstanding)
				case !ok && err == nil && tail.Load() > popped:
					t.Fatalf("nothing to pop with %d of %d taken", popped, tail.Load())
				}
				broken = broken || err != nil
				if ok {
					popped++
				}
			},
			"prepare": func(t *rapid.T) {
				if c.PrepareSleep() && (broken || tail.Load() != popped) {
					t.Fatalf("asleep with tail %d, %d taken", tail.Load(), popped)
				}
				c.Wake()
			},
			"ring?": func(t *rapid.T) {
				s := sleep.Load()
				if got, want := p.ShouldRing(), s&1 == 1 && uint64(s) != rung; got != want {
					t.Fatalf("ShouldRing: %v with sleep %d, last rung for %d", got, s, rung)
				} else if got {
					rung = uint64(s)
				}
			},
			"": func(t *rapid.T) {
				if p.PeerHead() != min(head.Load(), p.Pushed()) {
					t.Fatalf("PeerHead %d with head %d, pushed %d", p.PeerHead(), head.Load(), p.Pushed())
				}
			},
		})
	})
}

// The two rules for a tail, one by one.
func TestErrCursor(t *testing.T) {
	var d Descriptor
	for _, c := range []struct {
		name        string
		tails       []uint64 // written one after the other, with a Pop after each
		outstanding uint64
	}{
		{"backwards", []uint64{1, 0}, 16},
		{"more than outstanding", []uint64{3}, 2},
		{"more than the ring holds", []uint64{17}, 1000},
		{"nothing outstanding", []uint64{1}, 0},
		{"far too much", []uint64{^uint64(0)}, 16},
	} {
		segs := newPair(t, 16, 4096)
		con := NewConsumer(segs.a, segs.b)
		var err error
		for _, tail := range c.tails {
			segs.workerB.word64(offTail).Store(tail)
			_, err = con.Pop(&d, c.outstanding)
		}
		if !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v: expected ErrCursor", c.name, err)
		}
		if con.PrepareSleep() {
			t.Errorf("%s: the consumer slept on the error", c.name)
		}
		if _, again := con.Pop(&d, 16); !errors.Is(again, ErrCursor) {
			t.Errorf("%s: then %v: expected ErrCursor for good", c.name, again)
		}
	}
}

// A peer that shows a descriptor whenever this side wants to sleep, and takes it back whenever this side checks, must
// not keep it busy for ever.
func TestFlickeringTailIsCaught(t *testing.T) {
	segs := newPair(t, 16, 4096)
	c := NewConsumer(segs.a, segs.b)
	tail := segs.workerB.word64(offTail)
	tail.Store(1)
	if c.PrepareSleep() {
		t.Fatal("slept on a descriptor")
	}
	tail.Store(0)
	var d Descriptor
	if ok, err := c.Pop(&d, 1); !ok || err != nil {
		t.Fatalf("Pop of what was shown: %v, %v", ok, err)
	}
	if ok, err := c.Pop(&d, 1); ok || !errors.Is(err, ErrCursor) {
		t.Fatalf("Pop of what was taken back: %v, %v", ok, err)
	}
}

func TestNotAPair(t *testing.T) {
	a, b := mustCreate(t, RoleA, 1, 16, 64<<10), mustCreate(t, RoleB, 2, 16, 64<<10)
	for name, f := range map[string]func(){
		"same role":        func() { NewProducer(a, a) },
		"other generation": func() { NewConsumer(a, b) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// rapidPair is newPair for one run of a property, with the smallest ring, which wraps soonest.
func rapidPair(t *rapid.T) *pair {
	size := SlabOffset(MinEntries) + 4096
	a, errA := Create(RoleA, 1, MinEntries, size)
	b, errB := Create(RoleB, 1, MinEntries, size)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	workerA, errA := Open(a.FD(), RoleA, 1, MinEntries, a.Size())
	workerB, errB := Open(b.FD(), RoleB, 1, MinEntries, b.Size())
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range []*Segment{a, b, workerA, workerB} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return &pair{a: a, b: b, workerA: workerA, workerB: workerB}
}
