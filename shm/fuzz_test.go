package shm

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzOpen gives Open a file made by a peer, with any first page, any size up to 16 pages and any seals, and any
// announcement of it. A file that opens must match the announcement.
func FuzzOpen(f *testing.F) {
	f.Fuzz(func(t *testing.T, page []byte, fileBytes uint32, seals uint8, role, generation uint32, entries int, size uint64) {
		if len(page) > ControlBytes {
			page = page[:ControlBytes]
		}
		const anySeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE
		fileBytes %= 1<<16 + 1
		fd := mustMemfd(t, page, int64(fileBytes), int(seals)&anySeals)
		s, err := Open(fd, Role(role), generation, entries, size)
		if err != nil {
			return
		}
		defer mustClose(t, s)
		le := binary.LittleEndian
		b := s.Bytes()
		switch {
		case uint64(len(b)) != size || size != uint64(fileBytes):
			t.Errorf("%d bytes mapped of a file of %d, %d announced", len(b), fileBytes, size)
		case string(b[:8]) != "XEBSHM01" || le.Uint32(b[8:]) != generation || le.Uint32(b[12:]) != uint32(entries) ||
			le.Uint64(b[16:]) != size || le.Uint32(b[24:]) != role:
			t.Errorf("the control page contradicts the announcement: %x", b[:identityBytes])
		case int(seals)&sealsOf(Role(role)) != sealsOf(Role(role)):
			t.Errorf("opened with seals %#x", seals)
		case s.Role() != Role(role) || s.Generation() != generation || s.Entries() != entries || len(s.ring()) != entries:
			t.Errorf("the segment is %v, generation %d, %d entries", s.Role(), s.Generation(), s.Entries())
		}
		_ = b[SlabOffset(entries)] // there is a slab
	})
}

// FuzzPeer simulates a peer that writes anything anywhere in its own segment between the calls of this side. The script
// is a sequence of steps: one byte selects the action, the next eight are its argument.
func FuzzPeer(f *testing.F) {
	a, b := mustCreate(f, RoleA, 1, MinEntries, 16<<10), mustCreate(f, RoleB, 1, MinEntries, 16<<10)
	worker := mustOpen(f, b)
	f.Fuzz(func(t *testing.T, script []byte) {
		clear(worker.Bytes())
		a.pushed.Store(0)
		clear(a.Bytes()[identityBytes:])
		p, c := NewProducer(a, b), NewConsumer(a, b)
		tail := worker.word64(offTail)
		var popped, shown uint64
		var failed error
		for ; len(script) >= 9; script = script[9:] {
			x := binary.LittleEndian.Uint64(script[1:])
			switch script[0] % 8 {
			case 0: // any word of the segment, including the cursors
				worker.word64(int(x % (16 << 10) &^ 7)).Store(x >> 16)
			case 1:
				tail.Store(x)
			case 2:
				worker.word64(offHead).Store(x)
			case 3:
				worker.word32(offSleep).Store(uint32(x))
			case 4:
				d := descriptor(x)
				p.Push(&d)
			case 5:
				sleep := worker.word32(offSleep).Load()
				if p.ShouldRing() && (sleep&1 == 0 || p.ShouldRing()) {
					t.Fatalf("rang for sleep %d, or twice", sleep)
				}
			case 6:
				if c.PrepareSleep() && (failed != nil || tail.Load() != popped) {
					t.Fatalf("asleep with tail %d, %d taken, %v", tail.Load(), popped, failed)
				}
				c.Wake()
			case 7:
				var d Descriptor
				entry := worker.ring()[popped%MinEntries]
				ok, err := c.Pop(&d, x%20)
				switch {
				case ok && (err != nil || failed != nil || popped == max(shown, tail.Load()) || x%20 == 0 || d != entry):
					t.Fatalf("popped descriptor %d with %d shown, %d outstanding, after error %v", popped, shown, x%20, failed)
				case err != nil && !errors.Is(err, ErrCursor):
					t.Fatal(err)
				case ok:
					popped++
				}
				failed = err
			}
			shown = max(shown, tail.Load())
			if head, pushed := p.PeerHead(), p.Pushed(); head > pushed {
				t.Fatalf("head %d of %d", head, pushed)
			}
		}
	})
}
