package local

import (
	"testing"

	"pgregory.net/rapid"
)

// Slots never overlap, lie in their space at aligned places, and a space without slots has room for the largest.
func TestSlotSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slotSpace{begin: 4096, end: 4096 + 64*100}
		held := map[uint64]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			size := 64 * uint64(rapid.IntRange(1, 40).Draw(t, "units"))
			if rapid.Bool().Draw(t, "free") && len(held) > 0 {
				offs := make([]uint64, 0, len(held))
				for _, x := range s.spans {
					offs = append(offs, x.off)
				}
				off := rapid.SampledFrom(offs).Draw(t, "which")
				s.free(off)
				delete(held, off)
				continue
			}
			off, ok := s.alloc(size)
			if !ok {
				if room := s.end - s.begin - s.used(); len(held) == 0 || len(held) == 1 && room >= 2*size+64*100 {
					t.Fatalf("no room for %d bytes in %+v", size, s)
				}
				continue
			}
			if off%64 != 0 || off < s.begin || off+size > s.end {
				t.Fatalf("a slot of %d bytes at %d", size, off)
			}
			for other, n := range held {
				if off < other+n && other < off+size {
					t.Fatalf("%d bytes at %d overlap %d at %d", size, off, n, other)
				}
			}
			held[off] = size
		}
		var used uint64
		for _, n := range held {
			used += n
		}
		if s.used() != used || len(s.spans) != len(held) {
			t.Fatalf("%d bytes in %d slots, expected %d in %d", s.used(), len(s.spans), used, len(held))
		}
	})
}

// Slots have at most what the hub may give them, a quarter of the largest segment, and whole units.
func TestSlotBytes(t *testing.T) {
	for _, c := range []struct{ slots, segment, want uint64 }{{64 << 20, 1 << 30, 64 << 20}, {64 << 20, 8 << 20, 2 << 20}, {1000, 1 << 30, 960}, {1, 1 << 30, 0}} {
		h := &Hub{cfg: Config{SlotBytes: c.slots, MaxSegmentBytes: c.segment}}
		if got := h.slotBytes(); got != c.want {
			t.Errorf("%d bytes of slots in segments of %d: %d, want %d", c.slots, c.segment, got, c.want)
		}
	}
}

// The lowest place that fits is taken, so that neighbours stay neighbours.
func TestSlotSpaceTakesTheLowest(t *testing.T) {
	s := slotSpace{begin: 64, end: 64 * 11}
	for i := range uint64(5) {
		if off, ok := s.alloc(128); !ok || off != 64+128*i {
			t.Fatalf("slot %d at %d, %t", i, off, ok)
		}
	}
	if _, ok := s.alloc(64); ok {
		t.Error("a full space has room")
	}
	s.free(64 + 128)
	s.free(64 + 3*128)
	if off, ok := s.alloc(192); ok {
		t.Errorf("192 bytes at %d, where no gap has them", off)
	}
	if off, ok := s.alloc(64); !ok || off != 64+128 {
		t.Errorf("64 bytes at %d, %t, expected the first gap", off, ok)
	}
	full := slotSpace{begin: 64, end: 1 << 30}
	for range maxSlots {
		full.alloc(64)
	}
	if _, ok := full.alloc(64); ok {
		t.Errorf("more than %d slots", maxSlots)
	}
}
