package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// The other process is asked through two pipes. Both sides sleep until the other one writes: the server in Go's poller, as a gateway does that also
// serves clients, and the other process in read.

const relayBytes = 8

// relay starts the other process, and returns what asks it.
func relay() (ask func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	there, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in, back, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, "-relayed")
	child.ExtraFiles = []*os.File{there, back}
	if err := child.Start(); err != nil {
		return nil, err
	}
	there.Close()
	back.Close()
	var mu sync.Mutex
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		var b [relayBytes]byte
		if _, err := out.Write(b[:]); err != nil {
			return err
		}
		_, err := in.Read(b[:]) // so few bytes come at once
		return err
	}, nil
}

// beRelayed answers until the server has ended.
func beRelayed() error {
	var b [relayBytes]byte
	for {
		n, err := syscall.Read(3, b[:])
		if n == 0 {
			return nil
		}
		if err == nil {
			_, err = syscall.Write(4, b[:n])
		}
		if err != nil {
			return fmt.Errorf("the other process: %w", err)
		}
	}
}
