package shm

import "fmt"

// The layout of a segment, as in the table of section 3 of api/spec/worker.md.
const (
	// ControlBytes is the size of the control page. The ring begins after it.
	ControlBytes = 4096
	// DescriptorBytes is the size of one entry of a ring: a cache line.
	DescriptorBytes = 64
	// MinEntries and MaxEntries bound a ring's entries, a power of two. The ring bounds a replica's outstanding
	// requests: below 16 a pipeline of small batches runs dry, and above 4,096 a queue only hides that the model is
	// late.
	MinEntries = 16
	MaxEntries = 4096
	// MaxBytes bounds one segment. Its memory is allocated at creation and charged to the gateway, so a wrong size must
	// be an error and not exhaust the machine. 4 GiB holds any batch that a model can take in one call.
	MaxBytes = 4 << 30
	// BlockAlign is the alignment of every block in a slab: a cache line, and enough for any element type.
	BlockAlign = 64

	magic = 0x31304d4853424558 // the bytes "XEBSHM01"

	offMagic      = 0
	offGeneration = 8
	offEntries    = 12
	offSize       = 16
	offRole       = 24
	identityBytes = 28 // the size of the fields above, which the gateway writes once

	// The words that change are 128 bytes apart. Processors fetch lines in pairs, and a cursor in the pair of another
	// one would be invalidated whenever that one moves.
	offTail  = 128
	offHead  = 256
	offSleep = 384

	// layoutPage is the unit that the slab's offset is rounded up to. It is part of the layout and independent of the
	// machine's page size.
	layoutPage = 4096
)

// Descriptor is one entry of a ring. The caller defines its content.
type Descriptor [DescriptorBytes]byte

// Role says which of the two segments of a generation a segment is.
type Role uint32

const (
	// RoleA is the segment that the gateway writes and the worker can only read.
	RoleA Role = 1
	// RoleB is the segment that the worker writes.
	RoleB Role = 2
)

// String returns the letter used in the specification.
func (r Role) String() string {
	switch r {
	case RoleA:
		return "A"
	case RoleB:
		return "B"
	}
	return fmt.Sprintf("role %d", uint32(r))
}

// SlabOffset returns the offset in bytes of the slab of a segment with the given number of ring entries. The slab
// reaches from there to the end of the segment.
func SlabOffset(entries int) uint64 {
	return roundUp(ControlBytes+DescriptorBytes*uint64(entries), layoutPage)
}

// roundUp rounds n up to a multiple of unit, a power of two.
func roundUp(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }

// checkShape checks the role, the number of entries and the size of a segment.
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
