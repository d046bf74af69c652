package shm

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSizeClasses(t *testing.T) {
	for i, want := range []uint64{64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280} {
		if got := classUnits(i) * BlockAlign; got != want {
			t.Errorf("class %d has %d bytes: expected %d", i, got, want)
		}
	}
	if got := classAbove(MaxBytes / BlockAlign); got != numClasses-1 {
		t.Errorf("the largest class is %d: expected %d", got, numClasses-1)
	}
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint64Range(1, MaxBytes/BlockAlign).Draw(t, "units")
		above, below := classAbove(u), classBelow(u)
		if classUnits(above) < u || above > 0 && classUnits(above-1) >= u {
			t.Fatalf("class %d is not the smallest that holds %d units", above, u)
		}
		if classUnits(below) > u || below+1 < numClasses && classUnits(below+1) <= u {
			t.Fatalf("class %d is not the largest within %d units", below, u)
		}
		if u > 4 && 4*(classUnits(above)-u) >= u+4 {
			t.Fatalf("%d units take a block of %d: more than a quarter is lost", u, classUnits(above))
		}
	})
}

// For any order of Alloc and Free, blocks are in the region, aligned, disjoint and large enough, InUse is right, and
// when everything is back the slab is as good as new.
func TestSlabProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Uint64Range(0, 100).Draw(t, "offset") * BlockAlign
		size := rapid.Uint64Range(64, 1<<16).Draw(t, "size")
		s := NewSlab(offset, size)
		var held []Block
		var inUse uint64
		ask := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64Range(0, size), rapid.Uint64())
		alloc := func(t *rapid.T, n uint64) {
			b, ok := s.Alloc(n)
			if !ok {
				if inUse == 0 && n <= size&^(BlockAlign-1) {
					t.Fatalf("an empty slab of %d bytes has no block of %d", size, n)
				}
				return
			}
			if b.Off%64 != 0 || b.Off < offset || b.Cap < n || b.Cap > size || b.Off-offset > size-b.Cap {
				t.Fatalf("block %+v for %d bytes in [%d, %d)", b, n, offset, offset+size)
			}
			for _, h := range held {
				if b.Off < h.Off+h.Cap && h.Off < b.Off+b.Cap {
					t.Fatalf("blocks %+v and %+v overlap", b, h)
				}
			}
			held = append(held, b)
			inUse += b.Cap
		}
		release := func(i int) {
			s.Free(held[i])
			inUse -= held[i].Cap
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc":  func(t *rapid.T) { alloc(t, ask.Draw(t, "n")) },
			"again":  func(t *rapid.T) { alloc(t, 1000) },
			"all":    func(t *rapid.T) { alloc(t, size&^(BlockAlign-1)) },
			"free":   func(t *rapid.T) { drawHeld(t, held); release(rapid.IntRange(0, len(held)-1).Draw(t, "i")) },
			"newest": func(t *rapid.T) { drawHeld(t, held); release(len(held) - 1) },
			"none": func(*rapid.T) {
				for len(held) > 0 {
					release(0)
				}
			},
			"": func(t *rapid.T) {
				if s.InUse() != inUse {
					t.Fatalf("InUse %d: expected %d", s.InUse(), inUse)
				}
			},
		})
	})
}

func drawHeld(t *rapid.T, held []Block) {
	if len(held) == 0 {
		t.Skip("nothing is held")
	}
}

func TestSlabHandsOutTheWarmestBlock(t *testing.T) {
	s := NewSlab(0, 1<<20)
	keep := mustAlloc(t, s, 1000)
	x, y := mustAlloc(t, s, 1000), mustAlloc(t, s, 1000)
	s.Free(x)
	s.Free(y)
	if got := mustAlloc(t, s, 900); got != y {
		t.Errorf("block %+v: expected the one that was freed last, %+v", got, y)
	}
	// A block of up to twice the size is taken rather than fresh memory, one of five times the size is not.
	if got := mustAlloc(t, s, 520); got != x {
		t.Errorf("block %+v: expected the warm one, %+v", got, x)
	}
	s.Free(x)
	if got := mustAlloc(t, s, 200); got == x {
		t.Errorf("200 bytes took a block of %d while there was fresh memory", x.Cap)
	}
	s.Free(keep)
}

func TestSlabFallsBackToLargerBlocks(t *testing.T) {
	s := NewSlab(0, 4096)
	large, rest := mustAlloc(t, s, 2048), mustAlloc(t, s, 2048)
	s.Free(large)
	if got := mustAlloc(t, s, 64); got != large {
		t.Errorf("block %+v: expected %+v, the only one there is", got, large)
	}
	if b, ok := s.Alloc(1); ok {
		t.Errorf("block %+v from a full slab", b)
	}
	s.Free(rest)
}

// A slab that is cut into small blocks, with all but one of them free, has no large block. When the last one is back,
// it has.
func TestSlabRestartsWhenAllIsFree(t *testing.T) {
	const size = 1 << 16
	s := NewSlab(8192, size)
	var small []Block
	for {
		b, ok := s.Alloc(64)
		if !ok {
			break
		}
		small = append(small, b)
	}
	if len(small) != size/64 {
		t.Fatalf("%d blocks of 64 bytes in %d bytes", len(small), size)
	}
	for _, b := range small[1:] {
		s.Free(b)
	}
	if b, ok := s.Alloc(size / 2); ok {
		t.Fatalf("block %+v overlaps one in use", b)
	}
	s.Free(small[0])
	if b := mustAlloc(t, s, size); b != (Block{Off: 8192, Cap: size}) {
		t.Errorf("block %+v: expected all of the slab", b)
	}
}

// TestFreshBlocksHaveTheirClass: from a slab with room a block has the size of the smallest class that holds it.
func TestFreshBlocksHaveTheirClass(t *testing.T) {
	s := NewSlab(0, 1<<20)
	for _, n := range []uint64{0, 1, 64, 65, 257, 3072, 100_000} {
		if got, want := mustAlloc(t, s, n).Cap, classUnits(classAbove(units(n)))*BlockAlign; got != want {
			t.Errorf("%d bytes took a block of %d, want %d", n, got, want)
		}
	}
}

func TestSlabPanicsOnForeignBlocks(t *testing.T) {
	for name, b := range map[string]Block{
		"never handed out": {Off: 128, Cap: 64},
		"before":           {Off: 0, Cap: 64},
		"unaligned":        {Off: 65, Cap: 64},
		"empty":            {Off: 64, Cap: 0},
		"overflow":         {Off: 64, Cap: ^uint64(63)},
		"far away":         {Off: ^uint64(63), Cap: 128},
	} {
		s := NewSlab(64, 4096)
		mustAlloc(t, s, 1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic for %+v", name, b)
				}
			}()
			s.Free(b)
		}()
	}
}

// In steady state Alloc and Free do not allocate, with and without restarts.
func TestSlabDoesNotAllocate(t *testing.T) {
	s := NewSlab(0, 1<<22)
	var held [8]Block
	cycle := func() {
		for i := range held {
			held[i] = mustAlloc(t, s, uint64(i)*700)
		}
		for _, b := range held {
			s.Free(b)
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
	mustAlloc(t, s, 1)
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations a cycle while a block is held", n)
	}
}

func mustAlloc(tb testing.TB, s *Slab, n uint64) Block {
	tb.Helper()
	b, ok := s.Alloc(n)
	if !ok {
		tb.Fatalf("no block of %d bytes with %d in use", n, s.InUse())
	}
	return b
}
