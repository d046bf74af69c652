package shm

import "fmt"

// The layout of a segment, as in the table of section 3 of api/spec/worker.md.
const (
	// ControlBytes is the size of the control page, which is where the ring begins.
	ControlBytes = 4096
	// DescriptorBytes is the size of one entry of a ring: a cache line.
	DescriptorBytes = 64
	// MinEntries and MaxEntries bound a ring's entries, a power of two. The ring is the bound on a replica's outstanding
	// requests: below 16 a pipeline of small batches runs dry, and above 4,096 a queue only hides that the model is late.
	MinEntries = 16
	MaxEntries = 4096
	// MaxBytes bounds one segment. Its memory is all allocated at birth and is charged to the gateway, so that a wrong
	// size must be an error and not the end of the machine. 4 GiB holds any batch that a model can take in one call.
	MaxBytes = 4 << 30
	// BlockAlign is the alignment of every block in a slab: a cache line, and enough for any element type.
	BlockAlign = 64

	magic = 0x31304d4853424558 // the bytes "XEBSHM01"

	offMagic      = 0
	offGeneration = 8
	offEntries    = 12
	offSize       = 16
	offRole       = 24
	identityBytes = 28 // the fields above: written once, by the gateway

	// The words that change are 128 bytes apart: processors fetch lines in pairs, and a cursor that shares its pair with
	// another one is torn away whenever that one moves.
	offTail  = 128
	offHead  = 256
	offSleep = 384

	// layoutPage is the unit that the slab's offset is rounded to. It is part of the layout and does not depend on the
	// page size of the machine.
	layoutPage = 4096
)

// Descriptor is one entry of a ring. Its meaning is the caller's.
type Descriptor [DescriptorBytes]byte

// Role says which of the two segments of a generation a segment is.
type Role uint32

const (
	// RoleA is the segment that the gateway writes and the worker can only read.
	RoleA Role = 1
	// RoleB is the segment that the worker writes.
	RoleB Role = 2
)

// String returns the letter that the specification uses.
func (r Role) String() string {
	switch r {
	case RoleA:
		return "A"
	case RoleB:
		return "B"
	}
	return fmt.Sprintf("role %d", uint32(r))
}

// SlabOffset returns the offset in bytes at which the slab of a segment with so many ring entries begins. The slab
// reaches from there to the end of the segment.
func SlabOffset(entries int) uint64 {
	return roundUp(ControlBytes+DescriptorBytes*uint64(entries), layoutPage)
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// checkShape says whether a segment can have this role, this many entries and this size.
func checkShape(role Role, entries int, sizeBytes uint64) error {
	if role != RoleA && role != RoleB {
		return fmt.Errorf("%v: expected %d (A) or %d (B)", role, RoleA, RoleB)
	}
	if entries < MinEntries || entries > MaxEntries || entries&(entries-1) != 0 {
		return fmt.Errorf("%d ring entries: expected a power of two between %d and %d", entries, MinEntries, MaxEntries)
	}
	if smallest := SlabOffset(entries) + layoutPage; sizeBytes < smallest || sizeBytes > MaxBytes {
		return fmt.Errorf("size of %d bytes: with %d ring entries expected between %d and %d", sizeBytes, entries, smallest, uint64(MaxBytes))
	}
	return nil
}
