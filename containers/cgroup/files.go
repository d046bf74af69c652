package cgroup

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxFileBytes bounds what is read of one file: the mounts of a host with many containers are some hundred KiB.
const maxFileBytes = 4 << 20

// files is the part of /proc and /sys/fs/cgroup that this package needs. Tests have one that follows the rules of
// version 2.
type files interface {
	read(path string) ([]byte, error)
	// write writes s at once to an existing file. An empty s only tests whether the file may be written.
	write(path, s string) error
	mkdir(path string) error
	rmdir(path string) error
	// list returns the names of the directories in a directory.
	list(path string) ([]string, error)
}

// host is the file system below a root, which is "/" except in tests.
type host string

func (h host) at(path string) string { return filepath.Join(string(h), path) }

func (h host) read(path string) ([]byte, error) {
	f, err := os.Open(h.at(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes))
}

func (h host) write(path, s string) error {
	f, err := os.OpenFile(h.at(path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if s == "" {
		return nil
	}
	_, err = f.WriteString(s)
	return err
}

func (h host) mkdir(path string) error { return os.Mkdir(h.at(path), 0o755) }

func (h host) rmdir(path string) error {
	if err := syscall.Rmdir(h.at(path)); err != nil {
		return &os.PathError{Op: "rmdir", Path: h.at(path), Err: err}
	}
	return nil
}

func (h host) list(path string) ([]string, error) {
	entries, err := os.ReadDir(h.at(path))
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
