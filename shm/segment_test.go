package shm

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The control page matches section 3 of the specification byte for byte.
func TestCreateWritesTheControlPage(t *testing.T) {
	for _, role := range []Role{RoleA, RoleB} {
		const entries, size = 64, 64 << 10
		s := mustCreate(t, role, 0x01020304, entries, size)
		page := s.Bytes()
		le := binary.LittleEndian
		if got := string(page[:8]); got != "XEBSHM01" {
			t.Errorf("%v: magic %q", role, got)
		}
		if got := le.Uint32(page[8:]); got != 0x01020304 {
			t.Errorf("%v: generation %#x", role, got)
		}
		if got := le.Uint32(page[12:]); got != entries {
			t.Errorf("%v: entries %d", role, got)
		}
		if got := le.Uint64(page[16:]); got != size {
			t.Errorf("%v: size %d", role, got)
		}
		if got := le.Uint32(page[24:]); got != uint32(role) {
			t.Errorf("%v: role %d", role, got)
		}
		for i, b := range page[28:] {
			if b != 0 {
				t.Fatalf("%v: byte %d is %d: expected 0", role, 28+i, b)
			}
		}
	}
}

func TestCreateRoundsUpToPages(t *testing.T) {
	page := uint64(os.Getpagesize())
	s := mustCreate(t, RoleB, 1, MinEntries, 10*page+1)
	if s.Size() != 11*page || uint64(len(s.Bytes())) != 11*page {
		t.Errorf("size %d, %d bytes mapped: expected %d", s.Size(), len(s.Bytes()), 11*page)
	}
	mustOpen(t, s)
}

func TestSlabOffset(t *testing.T) {
	for entries, want := range map[int]uint64{16: 8192, 32: 8192, 64: 8192, 128: 12288, 4096: 4096 + 4096*64} {
		if got := SlabOffset(entries); got != want {
			t.Errorf("SlabOffset(%d) = %d: expected %d", entries, got, want)
		}
	}
}

func TestCreateRefusesInvalidShapes(t *testing.T) {
	for _, c := range []struct {
		name    string
		role    Role
		entries int
		size    uint64
		want    string
	}{
		{"role", 3, 64, 1 << 20, "role 3"},
		{"too few entries", RoleA, 8, 1 << 20, "8 ring entries"},
		{"too many entries", RoleA, 8192, 1 << 30, "8192 ring entries"},
		{"entries no power of two", RoleA, 48, 1 << 20, "48 ring entries"},
		{"no room for a slab", RoleB, 64, 8192, "between 12288"},
		{"too large", RoleB, 64, MaxBytes + 1, "size of 4294967297"},
		{"largest number", RoleB, 64, ^uint64(0), "size of"},
	} {
		s, err := Create(c.role, 1, c.entries, c.size)
		if err == nil {
			mustClose(t, s)
			t.Errorf("%s: no error", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected it to name %q", c.name, err, c.want)
		}
	}
}

func TestDescriptorIsNotInheritedAndClosesOnce(t *testing.T) {
	s := mustCreate(t, RoleA, 1, MinEntries, 64<<10)
	flags, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: expected FD_CLOEXEC", flags, err)
	}
	for range 2 {
		if err := s.CloseFD(); err != nil {
			t.Error(err)
		}
		if s.FD() != -1 {
			t.Errorf("descriptor %d after CloseFD", s.FD())
		}
	}
	s.Bytes()[SlabOffset(MinEntries)] = 1 // the mapping stays
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.Bytes() != nil {
		t.Error("bytes after Close")
	}
}

func TestOpenLeavesTheDescriptorToTheCaller(t *testing.T) {
	s := mustCreate(t, RoleB, 1, MinEntries, 64<<10)
	o := mustOpen(t, s)
	if o.FD() != -1 {
		t.Errorf("an opened segment holds descriptor %d", o.FD())
	}
	mustClose(t, o)
	if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0); err != nil {
		t.Errorf("the caller's descriptor after Close of the opened segment: %v", err)
	}
}

func TestSealsWithinTheProcess(t *testing.T) {
	for _, role := range []Role{RoleA, RoleB} {
		s := mustCreate(t, role, 1, MinEntries, 64<<10)
		seals, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GET_SEALS, 0)
		if err != nil || seals&sealsOf(role) != sealsOf(role) {
			t.Errorf("%v: seals %#x, %v: expected %#x", role, seals, err, sealsOf(role))
		}
	}
}

// A kernel that does not know a seal returns EINVAL, as for a file that cannot be sealed.
func TestSealNamesTheNeededKernel(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	err = seal(int(w.Fd()), RoleA) // the writing end: for the other one the kernel returns EPERM
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "F_SEAL_FUTURE_WRITE") || !strings.Contains(err.Error(), "Linux 5.1") {
		t.Errorf("%v: expected it to name the seal and the kernel that has it", err)
	}
}

// What Open checks before it maps, and its error messages.
func TestOpenRefuses(t *testing.T) {
	const size = 64 << 10
	allSeals := sealsOf(RoleA)
	for _, c := range []struct {
		name     string
		fileSize int64
		seals    int
		change   func(page []byte)
		want     string
	}{
		{"not SHRINK", size, allSeals &^ unix.F_SEAL_SHRINK, nil, "seals"},
		{"not FUTURE_WRITE", size, allSeals &^ unix.F_SEAL_FUTURE_WRITE, nil, "seals"},
		{"no seals", size, 0, nil, "seals"},
		{"file too small", size - 4096, allSeals, nil, "the file has 61440 bytes"},
		{"file too large", size + 4096, allSeals, nil, "the file has 69632 bytes"},
		{"empty file", 0, allSeals, nil, "the file has 0 bytes"},
		{"magic", size, allSeals, func(p []byte) { p[0] = 'Y' }, "magic"},
		{"generation", size, allSeals, func(p []byte) { p[offGeneration]++ }, "generation"},
		{"entries", size, allSeals, func(p []byte) { p[offEntries]++ }, "entries"},
		{"size", size, allSeals, func(p []byte) { p[offSize+7]++ }, "size"},
		{"role", size, allSeals, func(p []byte) { p[offRole] = byte(RoleB) }, "role"},
	} {
		page := make([]byte, ControlBytes)
		putIdentity(page, RoleA, 9, MinEntries, size)
		if c.change != nil {
			c.change(page)
		}
		fd := mustMemfd(t, page, c.fileSize, c.seals)
		s, err := Open(fd, RoleA, 9, MinEntries, size)
		if err == nil {
			mustClose(t, s)
			t.Errorf("%s: no error", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected it to name %q", c.name, err, c.want)
		}
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, fd := range map[string]int{"a file": int(f.Fd()), "a pipe": int(r.Fd()), "nothing": -1} {
		if _, err := Open(fd, RoleB, 1, MinEntries, 64<<10); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Open(int(f.Fd()), RoleB, 1, MinEntries, 64<<10); !errors.Is(err, unix.EINVAL) && !strings.Contains(err.Error(), "seal") {
		t.Errorf("a file on disk: %v: expected it to say that the file cannot be sealed", err)
	}
}

// mustMemfd makes a memfd with these first bytes, this size and these seals.
func mustMemfd(tb testing.TB, first []byte, size int64, seals int) int {
	tb.Helper()
	fd, err := memfd("xebec-test")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		tb.Fatal(err)
	}
	if n := min(int64(len(first)), size); n > 0 {
		if _, err := unix.Pwrite(fd, first[:n], 0); err != nil {
			tb.Fatal(err)
		}
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			tb.Fatal(err)
		}
	}
	return fd
}
