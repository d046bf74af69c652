package process

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

// claimTries bounds the search for a block of users that no other Runtime has.
const claimTries = 256

// users returns the user before the first of this Runtime's replicas.
func (r *Runtime) users() int {
	r.claiming.Do(func() { r.uids, r.claim = claimUIDs(anyBlock) })
	return r.uids
}

// anyBlock chooses a block of users by chance.
func anyBlock() int {
	var b [8]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return int(binary.LittleEndian.Uint64(b[:]) % uidBlocks)
}

// claimUIDs chooses a block of users that no other gateway has given to its replicas, and returns its first. The claim is
// a socket with an abstract address, which the kernel gives to one process and takes back when that ends; the caller
// closes it. Gateways in other network namespaces do not see it: there chance alone keeps blocks apart, as it does where
// no claim can be made. Then the claim is -1.
func claimUIDs(choose func() int) (first, claim int) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return firstUID + choose()*blockUIDs, -1
	}
	for range claimTries {
		first = firstUID + choose()*blockUIDs
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@xebec-users-" + strconv.Itoa(first)})
		if err != unix.EADDRINUSE {
			break
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return first, -1
	}
	return first, fd
}
