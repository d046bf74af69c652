package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// copyTree copies a file, or a directory with all that is in it. Links become what they lead to, because caches of models
// are made of them; anything but files and directories is refused.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		return copyFile(from, to)
	case !info.IsDir():
		return fmt.Errorf("%s: is neither a file nor a directory", from)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && slices.Contains([]string{".git", ".cache", "__pycache__"}, e.Name()) {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 { // to a directory it could lead in a circle
			if target, err := os.Stat(filepath.Join(from, e.Name())); err == nil && target.IsDir() {
				return fmt.Errorf("%s: is a link to a directory: expected files", filepath.Join(from, e.Name()))
			}
		}
		if err := copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies the contents, without a second copy on the disk where the file system can share them.
func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	_, err = io.Copy(target, source)
	return err
}

// sameTree reports whether two directories have the same files with the same contents.
func sameTree(a, b string) (bool, error) {
	left, err := filesOf(a)
	if err != nil {
		return false, err
	}
	right, err := filesOf(b)
	if err != nil || !slices.Equal(left, right) {
		return false, err
	}
	for _, name := range left {
		if same, err := sameFile(filepath.Join(a, name), filepath.Join(b, name)); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// filesOf lists the files below a directory, but for what Python leaves there.
func filesOf(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "__pycache__":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	return names, err
}

func sameFile(a, b string) (bool, error) {
	left, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer left.Close()
	right, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer right.Close()
	const chunk = 1 << 20
	one, other := make([]byte, chunk), make([]byte, chunk)
	for {
		n, errLeft := io.ReadFull(left, one)
		m, errRight := io.ReadFull(right, other)
		if !bytes.Equal(one[:n], other[:m]) {
			return false, nil
		}
		for _, err := range []error{errLeft, errRight} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if errLeft != nil || errRight != nil {
			return true, nil
		}
	}
}
