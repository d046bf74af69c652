package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Two gateways never have the same block of users, whatever chance says, until one has ended.
func TestUsersAreClaimed(t *testing.T) {
	var chosen []int
	choose := func() int {
		next := chosen[0]
		chosen = chosen[1:]
		return next
	}
	claim := func(blocks ...int) (first, fd int) {
		chosen = slices.Clone(blocks)
		return claimUIDs(choose)
	}
	const block = uidBlocks // beyond those that gateways choose
	first, fd := claim(block)
	if first != firstUID+block*blockUIDs || fd < 0 {
		t.Fatalf("the first claim: %#x, %d", first, fd)
	}
	second, fd2 := claim(block, block, block+1)
	if second != first+blockUIDs || fd2 < 0 {
		t.Errorf("the second claim: %#x, %d", second, fd2)
	}
	_ = unix.Close(fd)
	third, fd3 := claim(block, block+2)
	if third != first || fd3 < 0 {
		t.Errorf("after the first has ended: %#x, %d", third, fd3)
	}
	_ = unix.Close(fd2)
	_ = unix.Close(fd3)
	always := func() int { return block }
	_, fd = claimUIDs(always)
	if taken, fd2 := claimUIDs(always); taken != first || fd2 != -1 {
		t.Errorf("without a free block: %#x, %d", taken, fd2)
	}
	_ = unix.Close(fd)
}

// A launch never gets the user of a replica that lives, also when the numbers of users begin again.
func TestUsersAreNotSharedAfterAWrap(t *testing.T) {
	const users = blockUIDs - 1
	k := &link{instances: map[uint64]*instance{3: {}, 4: {}, users + 5: {}}, launches: users + 2}
	in := &instance{}
	if err := k.register(in); err != nil || in.id != users+6 {
		t.Errorf("launch %d, error %v: expected %d", in.id, err, users+6)
	}
	k.launches = 2*users + 4
	if err := k.register(in); err != nil || in.id != 2*users+7 {
		t.Errorf("launch %d, error %v: expected %d", in.id, err, 2*users+7)
	}
}

// A replica gets a user of its own only if that reaches all that it needs. Below what is hidden, and what is private, it sees
// directories that were made for it.
func TestBarred(t *testing.T) {
	root, err := os.MkdirTemp("/tmp", "xebec-test-") // which other users may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for _, dir := range []struct {
		name string
		mode os.FileMode
	}{{".", 0o755}, {"home", 0o700}, {"home/data", 0o700}, {"var", 0o755}, {"var/data", 0o700}, {"var/data/doors", 0o700}} {
		path := filepath.Join(root, dir.name)
		if err := os.MkdirAll(path, dir.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, dir.mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"home/data/s", "var/data/doors/s"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made := []string{filepath.Join(root, "home/data"), filepath.Join(root, "var/data")}
	other := uint32(os.Getuid() + firstUID)
	for path, at := range map[string]string{"": "", "var": "", "home": "home", "home/data/s": "home", "var/data/doors/s": "", "var/data": "var/data"} {
		if at != "" {
			at = filepath.Join(root, at)
		}
		if got, err := barred(other, filepath.Join(root, path), made); err != nil || got != at {
			t.Errorf("%q is barred at %q, error %v: expected %q", path, got, err, at)
		}
	}
	if _, err := barred(other, filepath.Join(root, "var/data/none"), made); err == nil {
		t.Error("no error for a path that is not there")
	}
}
