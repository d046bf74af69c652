package inferlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	filePrefix = "xebec-"
	fileSuffix = ".xlog"
	fileTime   = "20060102T150405.000000"
	// maxFiles bounds the number of files, however small they are: each start of a gateway creates one.
	maxFiles = 1024
)

// fileName returns a name such as "xebec-20261122T034500.123456-000001.xlog".
func fileName(begun time.Time, number uint64) string {
	return fmt.Sprintf("%s%s-%06d%s", filePrefix, begun.UTC().Format(fileTime), number, fileSuffix)
}

// parseFileName parses a name that fileName made. Any other file does not belong to the log and is left alone.
func parseFileName(name string) (begun time.Time, number uint64, ok bool) {
	middle, found := strings.CutPrefix(name, filePrefix)
	if middle, ok = strings.CutSuffix(middle, fileSuffix); !found || !ok || len(middle) < len(fileTime)+2 {
		return begun, 0, false
	}
	begun, err := time.Parse(fileTime, middle[:len(fileTime)])
	if err != nil || middle[len(fileTime)] != '-' {
		return begun, 0, false
	}
	number, err = strconv.ParseUint(middle[len(fileTime)+1:], 10, 64)
	return begun, number, err == nil && fileName(begun, number) == name
}

// logFile is a file of the log in its directory.
type logFile struct {
	name   string
	bytes  int64
	begun  time.Time
	number uint64
}

// listFiles returns the log's files, oldest first.
func listFiles(dir string) ([]logFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []logFile
	for _, e := range entries {
		begun, number, ok := parseFileName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, logFile{e.Name(), info.Size(), begun, number})
	}
	slices.SortFunc(all, func(a, b logFile) int {
		if c := a.begun.Compare(b.begun); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return all, nil
}

// lockDir creates the directory and locks it against other gateways. The lock ends with the process, even if it is
// killed.
func lockDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the inference log's directory: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the inference log's directory: %w", err)
	}
	info, err := dir.Stat()
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", path)
	}
	if err == nil {
		err = lock(dir)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// isDir reports whether the open directory is the one at the path.
func isDir(dir *os.File, path string) bool {
	have, err := dir.Stat()
	if err != nil {
		return false
	}
	at, err := os.Stat(path)
	return err == nil && os.SameFile(have, at)
}

func lock(dir *os.File) error {
	for {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOTSUP): // the latter two: a file system without locks
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("another gateway writes its inference log to %s: give each gateway its own directory", dir.Name())
		default:
			return fmt.Errorf("cannot lock the inference log's directory %s: %w", dir.Name(), err)
		}
	}
}

// file is the part of an *os.File that the writer needs.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
}

// createFile creates a file with mode 0600, which must not exist.
func createFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// makeRoom removes the oldest files until the rest plus room bytes is within the limits. It returns the remaining
// files.
func makeRoom(dir string, files []logFile, maxBytes, room int64) ([]logFile, error) {
	total := room
	for _, f := range files {
		total += f.bytes
	}
	for len(files) > 0 && (total > maxBytes || len(files) >= maxFiles) {
		if err := os.Remove(filepath.Join(dir, files[0].name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return files, err
		}
		total -= files[0].bytes
		files = files[1:]
	}
	return files, nil
}
