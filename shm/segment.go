//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sealsOf returns the seals that a segment of this role must have. SHRINK keeps the peer from cutting off memory that
// this side reads, which would be a SIGBUS. GROW keeps the size as announced. SEAL keeps the set of seals. FUTURE_WRITE
// makes the gateway's own mapping of A the only writable one for ever.
func sealsOf(role Role) int {
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if role == RoleA {
		seals |= unix.F_SEAL_FUTURE_WRITE
	}
	return seals
}

// Segment is one mapped segment. Its role, generation, entries and size are kept in private memory and never read from
// the mapping again.
type Segment struct {
	role       Role
	generation uint32
	entries    int
	bytes      []byte

	mu     sync.Mutex // guards fd and closed
	fd     int
	closed bool

	_ [64]byte // the fields above are read by all, the one below is written with every push
	// pushed is how many descriptors this side has put into this segment's ring. It is the Producer's cursor, and is
	// here because the Consumer of the same side reads it too: see Consumer.look.
	pushed atomic.Uint64
	_      [64]byte
}

// Create makes a new segment for the gateway: a memfd that is mapped read-write, has all its memory, holds its control
// page, and carries the seals of its role. entries is a power of two between MinEntries and MaxEntries. sizeBytes
// counts the whole segment, including control page and ring. It is rounded up to whole pages, and Size returns the
// result, which is the size to announce to the peer.
//
// The caller owns the segment: it calls CloseFD once the peer has the descriptor, and Close when the memory is no
// longer used.
func Create(role Role, generation uint32, entries int, sizeBytes uint64) (*Segment, error) {
	if sizeBytes <= MaxBytes {
		sizeBytes = roundUp(sizeBytes, uint64(os.Getpagesize()))
	}
	if err := checkShape(role, entries, sizeBytes); err != nil {
		return nil, fmt.Errorf("shm: create segment %v: %w", role, err)
	}
	fd, err := memfd("xebec-" + role.String())
	if err != nil {
		return nil, fmt.Errorf("shm: create segment %v: %w", role, err)
	}
	s := &Segment{role: role, generation: generation, entries: entries, fd: fd}
	if err := s.build(sizeBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: create segment %v of %d bytes: %w", role, sizeBytes, err), s.Close())
	}
	return s, nil
}

// build gives a fresh memfd its size, memory, mapping, control page and seals. The order matters: a segment that is
// sealed against future writes can no longer be mapped for writing.
func (s *Segment) build(sizeBytes uint64) error {
	if err := unix.Ftruncate(s.fd, int64(sizeBytes)); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	if err := allocate(s.fd, sizeBytes); err != nil {
		return err
	}
	if err := s.mapFile(sizeBytes, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	putIdentity(s.bytes, s.role, s.generation, s.entries, sizeBytes)
	return seal(s.fd, s.role)
}

// Open maps a segment that the gateway created and whose descriptor arrived over the socket: A read-only, B read-write.
// It requires a memfd of exactly sizeBytes with the seals of its role, and a control page with the given role,
// generation, entries and size.
//
// The caller keeps owning fd and closes it after Open, whether that succeeded or not: the mapping does not need it. The
// returned segment holds no descriptor; its FD is -1.
func Open(fd int, role Role, generation uint32, entries int, sizeBytes uint64) (*Segment, error) {
	s := &Segment{role: role, generation: generation, entries: entries, fd: -1}
	if err := s.open(fd, sizeBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: open segment %v: %w", role, err), s.Close())
	}
	return s, nil
}

func (s *Segment) open(fd int, sizeBytes uint64) error {
	if err := checkShape(s.role, s.entries, sizeBytes); err != nil {
		return err
	}
	// Seals first: until SHRINK is known to be sealed, the size may change between the check and the mapping.
	if err := checkSeals(fd, s.role); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if uint64(st.Size) != sizeBytes {
		return fmt.Errorf("the file has %d bytes: expected the announced %d", st.Size, sizeBytes)
	}
	prot := unix.PROT_READ
	if s.role == RoleB {
		prot |= unix.PROT_WRITE
	}
	if err := s.mapFrom(fd, sizeBytes, prot); err != nil {
		return err
	}
	var identity [identityBytes]byte
	copy(identity[:], s.bytes)
	return checkIdentity(&identity, s.role, s.generation, s.entries, sizeBytes)
}

// Bytes returns the whole mapping, including control page and ring; the slab is Bytes()[SlabOffset(entries):]. It is
// valid until Close. Writing to the bytes of an opened A is a fault that ends the process. What the peer can write may
// change between two reads: copy, then check the copy.
func (s *Segment) Bytes() []byte { return s.bytes }

// Size returns the size of the segment in bytes, as announced to the peer.
func (s *Segment) Size() uint64 { return uint64(len(s.bytes)) }

// Role returns which of the two segments this is.
func (s *Segment) Role() Role { return s.role }

// Generation returns the generation that the segment was created for.
func (s *Segment) Generation() uint32 { return s.generation }

// Entries returns the number of entries of the segment's ring.
func (s *Segment) Entries() int { return s.entries }

// FD returns the descriptor to hand to the peer, or -1 if the segment holds none.
func (s *Segment) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}

// CloseFD closes the descriptor and keeps the mapping. It does nothing if the segment holds no descriptor.
func (s *Segment) CloseFD() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeFD()
}

func (s *Segment) closeFD() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1 // even if close fails, because Linux has released the number by then
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("shm: close the descriptor of segment %v: %w", s.role, err)
	}
	return nil
}

// Close unmaps the segment and closes its descriptor. Further calls do nothing. The caller must ensure that the memory
// is not in use, in this package or through Bytes: see the package documentation.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.closeFD()
	if s.closed || s.bytes == nil {
		s.closed = true
		return err
	}
	s.closed = true
	if unmapErr := unix.Munmap(s.bytes); unmapErr != nil {
		err = errors.Join(err, fmt.Errorf("shm: unmap segment %v: %w", s.role, unmapErr))
	}
	s.bytes = nil
	return err
}

// word64 and word32 return a word of the control page for atomic access. A mapping is page-aligned, so the words have
// their natural alignment.
func (s *Segment) word64(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.bytes[off : off+8][0]))
}

func (s *Segment) word32(off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&s.bytes[off : off+4][0]))
}

// ring returns the entries of the ring.
func (s *Segment) ring() []Descriptor {
	first := (*Descriptor)(unsafe.Pointer(&s.bytes[ControlBytes : ControlBytes+s.entries*DescriptorBytes][0]))
	return unsafe.Slice(first, s.entries)
}

func (s *Segment) mapFile(sizeBytes uint64, prot int) error { return s.mapFrom(s.fd, sizeBytes, prot) }

// mapFrom maps the whole file with its pages present: a first touch on the data path costs several times as much as the
// copy itself.
func (s *Segment) mapFrom(fd int, sizeBytes uint64, prot int) error {
	b, err := unix.Mmap(fd, 0, int(sizeBytes), prot, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("mmap of %d bytes: %w", sizeBytes, err)
	}
	s.bytes = b
	return nil
}

// memfd makes an empty memfd that can be sealed and that child processes do not inherit. The name only shows in
// /proc/PID/maps.
func memfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags)
	if errors.Is(err, unix.EACCES) {
		// With sysctl vm.memfd_noexec=2 a host allows only memfds that cannot be executed.
		fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create (Linux 3.17 or newer, and a seccomp profile that allows it): %w", err)
	}
	return fd, nil
}

// allocate allocates the file's memory, so that a shortage is an error here and not a SIGBUS on the data path. It goes
// in steps because a signal, for example a profiler's, makes the kernel undo the current step.
func allocate(fd int, sizeBytes uint64) error {
	const stepBytes = 4 << 20 // about a millisecond: well under the period of a profiler
	for off := uint64(0); off < sizeBytes; {
		n := min(stepBytes, sizeBytes-off)
		err := unix.Fallocate(fd, 0, int64(off), int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("allocating %d bytes of memory (give the gateway more, or ask for smaller segments): %w", sizeBytes, err)
		}
		off += n
	}
	return nil
}

func seal(fd int, role Role) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealsOf(role))
	if errors.Is(err, unix.EINVAL) && role == RoleA {
		return fmt.Errorf("the kernel does not know F_SEAL_FUTURE_WRITE, without which a worker could write the gateway's "+
			"segment: Linux 5.1 or newer is needed: %w", err)
	}
	if err != nil {
		return fmt.Errorf("fcntl F_ADD_SEALS %#x: %w", sealsOf(role), err)
	}
	return nil
}

func checkSeals(fd int, role Role) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("descriptor %d is not a file that can be sealed: %w", fd, err)
	}
	if want := sealsOf(role); seals&want != want {
		return fmt.Errorf("the file has the seals %#x: expected at least %#x", seals, want)
	}
	return nil
}

func putIdentity(page []byte, role Role, generation uint32, entries int, sizeBytes uint64) {
	le := binary.LittleEndian
	le.PutUint64(page[offMagic:], magic)
	le.PutUint32(page[offGeneration:], generation)
	le.PutUint32(page[offEntries:], uint32(entries))
	le.PutUint64(page[offSize:], sizeBytes)
	le.PutUint32(page[offRole:], uint32(role))
}

// checkIdentity compares a copy of the first bytes of a control page with what the peer announced.
func checkIdentity(p *[identityBytes]byte, role Role, generation uint32, entries int, sizeBytes uint64) error {
	le := binary.LittleEndian
	for _, f := range [...]struct {
		name      string
		got, want uint64
	}{
		{"magic", le.Uint64(p[offMagic:]), magic},
		{"generation", uint64(le.Uint32(p[offGeneration:])), uint64(generation)},
		{"entries", uint64(le.Uint32(p[offEntries:])), uint64(entries)},
		{"size", le.Uint64(p[offSize:]), sizeBytes},
		{"role", uint64(le.Uint32(p[offRole:])), uint64(role)},
	} {
		if f.got != f.want {
			return fmt.Errorf("control page: %s is %#x: expected %#x", f.name, f.got, f.want)
		}
	}
	return nil
}
