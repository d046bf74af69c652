package process

import (
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
