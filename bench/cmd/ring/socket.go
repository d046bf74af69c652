package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// The baseline: frames on a unix stream socket, each a u32 slot and a payload, with one write per message on either side. Reads are buffered,
// so that a busy reader takes many messages with one system call.

// readerBytes holds many small messages, and a good part of a large one.
const readerBytes = 256 << 10

type socketLink struct {
	load    Load
	child   *exec.Cmd
	conn    net.Conn
	mu      sync.Mutex // guards writes, so that messages stay whole
	out     [][]byte   // by slot: header and request
	in      [][]byte   // by slot: the answer
	done    []chan struct{}
	stopped chan error // the reader's error
	failed  chan struct{}
}

func openSocket(load Load) (link, error) {
	child, conn, err := startChild("socket", load, nil)
	if err != nil {
		return nil, err
	}
	l := &socketLink{load: load, child: child, conn: conn, stopped: make(chan error, 1), failed: make(chan struct{})}
	for slot := range load.InFlight {
		l.out = append(l.out, append(binary.LittleEndian.AppendUint32(nil, uint32(slot)), request(load, slot)...))
		l.in = append(l.in, make([]byte, load.AnswerBytes))
		l.done = append(l.done, make(chan struct{}, 1))
	}
	go func() {
		l.stopped <- l.read()
		close(l.failed)
	}()
	return l, nil
}

func (l *socketLink) read() error {
	in := bufio.NewReaderSize(l.conn, readerBytes)
	var head [4]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		slot := binary.LittleEndian.Uint32(head[:])
		if int(slot) >= len(l.in) {
			return fmt.Errorf("answer for slot %d of %d", slot, len(l.in))
		}
		if _, err := io.ReadFull(in, l.in[slot]); err != nil {
			return err
		}
		l.done[slot] <- struct{}{}
	}
}

func (l *socketLink) call(slot int) error {
	l.mu.Lock()
	_, err := l.conn.Write(l.out[slot])
	l.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-l.done[slot]:
		return nil
	case <-l.failed:
		return errors.New("the socket's reader has ended")
	}
}

func (l *socketLink) answer(slot int) []byte { return l.in[slot] }

func (l *socketLink) close() error {
	l.conn.Close()
	if err := <-l.stopped; !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		return errors.Join(err, l.child.Wait())
	}
	return l.child.Wait()
}

// socketWorker answers each request with the beginning of it, until the socket ends.
func socketWorker(load Load) error {
	conn, err := childConn()
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, readerBytes)
	message := make([]byte, 4+load.RequestBytes)
	for {
		if _, err := io.ReadFull(in, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := conn.Write(message[:4+load.AnswerBytes]); err != nil {
			return ignoreClosed(err)
		}
	}
}

// ignoreClosed drops the errors of a closed socket: the parent may close its end while an answer is on its way.
func ignoreClosed(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// childSocket is the descriptor of the socket in the child. The files passed to the child follow it.
const childSocket = 3

// startChild runs this program as a worker, with one end of a socket pair as descriptor childSocket and the files after it.
func startChild(role string, load Load, files []*os.File) (*exec.Cmd, net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, err
	}
	child, err := childCommand(role, load)
	if err == nil {
		child.ExtraFiles = append([]*os.File{theirs}, files...)
		err = child.Start()
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return child, conn, nil
}

func childConn() (net.Conn, error) {
	f := os.NewFile(childSocket, "socket")
	defer f.Close()
	return net.FileConn(f)
}
