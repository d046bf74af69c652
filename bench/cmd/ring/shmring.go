package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/shm"
)

// The ring alone: descriptors go through package shm, payloads lie in fixed blocks of the slots, and a byte on the socket wakes a sleeping
// reader. This is the protocol's memory order (section 3.1) without its registration, tables and checks.

const (
	ringGeneration = 1
	ringEntries    = 256
)

// blockBytes is the size of a slot's block, a multiple of 64.
func blockBytes(payload int) uint64 { return (uint64(payload) + 63) &^ 63 }

func segmentBytes(load Load, payload int) uint64 {
	n := shm.SlabOffset(ringEntries) + uint64(load.InFlight)*blockBytes(payload)
	page := uint64(os.Getpagesize())
	return (n + page - 1) / page * page
}

type ringLink struct {
	load    Load
	child   *exec.Cmd
	conn    *net.UnixConn
	a, b    *shm.Segment
	mu      sync.Mutex // guards push
	push    *shm.Producer
	pop     *shm.Consumer
	out, in [][]byte
	done    []chan struct{}
	stopped chan error
	failed  chan struct{}
}

var oneBell = []byte{1}

func openRing(load Load) (link, error) {
	a, err := shm.Create(shm.RoleA, ringGeneration, ringEntries, segmentBytes(load, load.RequestBytes))
	if err != nil {
		return nil, err
	}
	b, err := shm.Create(shm.RoleB, ringGeneration, ringEntries, segmentBytes(load, load.AnswerBytes))
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	fail := func(err error) (link, error) { return nil, errors.Join(err, a.Close(), b.Close()) }
	files := []*os.File{}
	for _, s := range []*shm.Segment{a, b} {
		fd, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		f := os.NewFile(uintptr(fd), "segment")
		defer f.Close()
		files = append(files, f)
	}
	child, conn, err := startChild("ring", load, files)
	if err != nil {
		return fail(err)
	}
	l := &ringLink{load: load, child: child, conn: conn.(*net.UnixConn), a: a, b: b, push: shm.NewProducer(a, b), pop: shm.NewConsumer(a, b),
		stopped: make(chan error, 1), failed: make(chan struct{})}
	for slot := range load.InFlight {
		l.out = append(l.out, request(load, slot))
		l.in = append(l.in, make([]byte, load.AnswerBytes))
		l.done = append(l.done, make(chan struct{}, 1))
	}
	go func() {
		l.stopped <- l.read()
		close(l.failed)
	}()
	return l, nil
}

func (l *ringLink) call(slot int) error {
	size := blockBytes(l.load.RequestBytes)
	off := shm.SlabOffset(ringEntries) + uint64(slot)*size
	copy(l.a.Bytes()[off:], l.out[slot])
	var d shm.Descriptor
	binary.LittleEndian.PutUint64(d[:], uint64(slot))
	l.mu.Lock()
	l.push.Push(&d)
	ring := l.push.ShouldRing()
	l.mu.Unlock()
	if ring {
		if _, err := l.conn.Write(oneBell); err != nil {
			return err
		}
	}
	select {
	case <-l.done[slot]:
		return nil
	case <-l.failed:
		return errors.New("the ring's reader has ended")
	}
}

// read takes answers until the socket ends, in the order of section 3.1: drain the socket, declare sleep, check the ring again, block.
func (l *ringLink) read() error {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return err
	}
	var bells [256]byte
	var d shm.Descriptor
	for {
		for {
			ok, err := l.pop.Pop(&d, ringEntries)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			slot := binary.LittleEndian.Uint64(d[:])
			if slot >= uint64(len(l.in)) {
				return fmt.Errorf("answer for slot %d of %d", slot, len(l.in))
			}
			off := shm.SlabOffset(ringEntries) + slot*blockBytes(l.load.AnswerBytes)
			copy(l.in[slot], l.b.Bytes()[off:])
			l.done[slot] <- struct{}{}
		}
		if !l.pop.PrepareSleep() {
			continue
		}
		// Block in the Go runtime's poller until a bell arrives. The read empties the socket before the next sleep is declared.
		var ended error
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Read(int(fd), bells[:])
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			if n == 0 && err == nil {
				err = io.EOF
			}
			ended = err
			return true
		})
		if err := errors.Join(err, ended); err != nil {
			return err
		}
		l.pop.Wake()
	}
}

func (l *ringLink) answer(slot int) []byte { return l.in[slot] }

func (l *ringLink) close() error {
	l.conn.Close()
	var err error
	if e := <-l.stopped; !errors.Is(e, io.EOF) && !errors.Is(e, net.ErrClosed) {
		err = e
	}
	return errors.Join(err, l.child.Wait(), l.a.Close(), l.b.Close())
}

// ringWorker answers each request with the beginning of it. It blocks in read, because it has nothing else to do.
func ringWorker(load Load) error {
	runtime.LockOSThread()
	a, err := shm.Open(childSocket+1, shm.RoleA, ringGeneration, ringEntries, segmentBytes(load, load.RequestBytes))
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := shm.Open(childSocket+2, shm.RoleB, ringGeneration, ringEntries, segmentBytes(load, load.AnswerBytes))
	if err != nil {
		return err
	}
	defer b.Close()
	push, pop := shm.NewProducer(b, a), shm.NewConsumer(b, a)
	var bells [256]byte
	var d shm.Descriptor
	for {
		ok, err := pop.Pop(&d, ringEntries)
		if err != nil {
			return err
		}
		if ok {
			slot := binary.LittleEndian.Uint64(d[:])
			from := shm.SlabOffset(ringEntries) + slot*blockBytes(load.RequestBytes)
			to := shm.SlabOffset(ringEntries) + slot*blockBytes(load.AnswerBytes)
			copy(b.Bytes()[to:to+uint64(load.AnswerBytes)], a.Bytes()[from:])
			push.Push(&d)
			if push.ShouldRing() {
				if _, err := unix.Write(childSocket, oneBell); err != nil {
					return ignoreClosed(err)
				}
			}
			continue
		}
		if !pop.PrepareSleep() {
			continue
		}
		n, err := unix.Read(childSocket, bells[:])
		if err != nil && !errors.Is(err, unix.EINTR) || n == 0 && err == nil {
			return ignoreClosed(err)
		}
		pop.Wake()
	}
}
