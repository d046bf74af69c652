package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// copier is the sink that makes a copy of a tree.
type copier struct {
	root string
	left int64    // bytes that it may still write
	dirs []string // paths, outer ones first
	buf  []byte
}

var errTooLarge = errors.New("the directory is larger than the limit of snapshots")

func (c *copier) at(name string) string { return path.Join(c.root, name) }

func (c *copier) directory(name string) error {
	c.dirs = append(c.dirs, c.at(name))
	return os.Mkdir(c.at(name), 0o700)
}

func (c *copier) link(name, target string) error { return os.Symlink(target, c.at(name)) }

// file copies a file, by sharing its blocks where the file system can, and flushes it.
func (c *copier) file(name string, source *os.File, size int64, executable bool) (_ *os.File, err error) {
	mode := os.FileMode(0o444)
	if executable {
		mode = 0o555
	}
	to, err := os.OpenFile(c.at(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			to.Close()
		}
	}()
	if size > c.left {
		return nil, errTooLarge
	}
	if unix.IoctlFileClone(int(to.Fd()), int(source.Fd())) != nil { // another file system, or one that cannot
		n, err := io.CopyBuffer(to, io.LimitReader(source, c.left+1), c.buf)
		if err != nil {
			return nil, err
		}
		size = n
	}
	if c.left -= size; c.left < 0 {
		return nil, errTooLarge
	}
	if err := to.Chmod(mode); err != nil {
		return nil, err
	}
	if err := to.Sync(); err != nil {
		return nil, err
	}
	_, err = to.Seek(0, io.SeekStart)
	return to, err
}

// finish makes the directories durable and read-only, inner ones first.
func (c *copier) finish() error {
	for i := len(c.dirs) - 1; i >= 0; i-- {
		if err := syncDir(c.dirs[i]); err != nil {
			return err
		}
		if err := os.Chmod(c.dirs[i], 0o555); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// removeAll removes a directory whose directories may be read-only.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	// The permissions are wanted by a user that is not root. Directories are opened to be listed, outer ones first.
	var open func(dir string, depth int) error
	open = func(dir string, depth int) error {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil || depth > MaxDepth+2 {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				if err := open(path.Join(dir, e.Name()), depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := open(dir, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}
