package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// identity identifies an inode.
type identity struct{ dev, ino uint64 }

// stamp is the metadata that shows a change of an inode without reading it. The zero stamp means that it does not
// exist.
type stamp struct {
	identity
	size                  int64
	mtimeNanos, ctimeNano int64
	mode                  uint32
	err                   syscall.Errno
}

func (s stamp) isDir() bool { return s.mode&syscall.S_IFMT == syscall.S_IFDIR }

// stat follows links. os.Stat would allocate 20,000 results a second for 10,000 versions.
func stat(path string) (stamp, error) {
	var st syscall.Stat_t
	for {
		switch err := syscall.Stat(path, &st); err {
		case nil:
			return stampOf(&st), nil
		case syscall.EINTR:
		default:
			var errno syscall.Errno
			errors.As(err, &errno)
			return stamp{err: errno}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

func stampOf(st *syscall.Stat_t) stamp {
	return stamp{identity{st.Dev, st.Ino}, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode, 0}
}

// recent reports whether s may have changed after it was read without showing it, because it had changed shortly
// before. Only the inode's change time counts: the modification time can be set.
func recent(readNanos int64, s stamp) bool { return readNanos-s.ctimeNano < int64(racyFor) }

// reason returns an error without the name of the system call and the path, which the message already has.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// entry is a name in a directory.
type entry struct {
	name      string
	dir, link bool
}

// listing is the contents of a directory.
type listing struct {
	stamp     stamp
	readNanos int64
	total     int     // names of any kind
	entries   []entry // those to examine: directories before links, then by name
	problems  []Problem
}

// list updates a listing if it is out of date.
func (w *Watcher) list(l *listing, path string, s stamp, check func(path string, e entry) (bool, Problem)) error {
	if l.readNanos != 0 && l.stamp == s && !recent(l.readNanos, s) {
		return nil
	}
	fresh := listing{stamp: s, readNanos: w.nowNanos}
	err := readDir(path, 0, func(found []fs.DirEntry) error {
		if fresh.total += len(found); fresh.total > maxListing {
			return fmt.Errorf("has more than %d entries: expected a directory of models", maxListing)
		}
		for _, d := range found {
			e := entry{d.Name(), d.IsDir(), d.Type() == fs.ModeSymlink}
			keep, problem := check(path, e)
			if keep {
				fresh.entries = append(fresh.entries, e)
			} else if problem.Message != "" {
				fresh.problems = append(fresh.problems, problem)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Directories come before links to them.
	slices.SortFunc(fresh.entries, func(a, b entry) int {
		if a.link != b.link {
			if b.link {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	slices.SortFunc(fresh.problems, func(a, b Problem) int { return strings.Compare(a.Message, b.Message) })
	w.dirty = w.dirty || !slices.Equal(fresh.problems, l.problems)
	*l = fresh
	return nil
}

// readDir reads a directory in parts, so that millions of entries do not need memory at once.
func readDir(path string, flags int, part func([]fs.DirEntry) error) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK|flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		found, err := f.ReadDir(1024)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := part(found); err != nil {
			return err
		}
	}
}

// tree summarises a version's directory at one time.
type tree struct {
	print       uint64 // hash of all paths, sizes and times
	newestNanos int64  // the last change of anything in it, by the file system's clock
	remaining   int    // remaining entries that may be compared
	truncated   bool   // not everything was compared
}

var errTruncated = errors.New("more entries than the limit")

// fingerprint summarises a version's directory.
func (w *Watcher) fingerprint(v *version, dir, file stamp) (tree, error) {
	t := tree{remaining: MaxTreeEntries}
	w.mix(&t, "", dir)
	w.mix(&t, manifestTarget, file)
	if err := w.walk(&t, v.path, "", 0); err != nil && err != errTruncated {
		return t, err
	}
	return t, nil
}

// manifestTarget is the name for the target of xebec.yaml, if it is a link.
const manifestTarget = "\x00"

// walk adds the contents of a directory. The sum does not depend on the order in which the file system lists them.
func (w *Watcher) walk(t *tree, path, below string, depth int) error {
	flags := 0
	if depth > 0 {
		flags = syscall.O_NOFOLLOW
	}
	return readDir(path, flags, func(found []fs.DirEntry) error {
		for _, e := range found {
			if t.remaining--; t.remaining < 0 {
				t.truncated = true
				return errTruncated
			}
			name := below + e.Name()
			s := stamp{err: syscall.ENOENT}
			if info, err := e.Info(); err == nil { // of the link itself
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					s = stampOf(st)
				}
			}
			w.mix(t, name, s)
			switch {
			case !e.IsDir():
			case depth+1 == MaxTreeDepth:
				t.truncated = true
			default:
				// A folder that cannot be read is the model's responsibility; the failure is part of what is compared.
				if err := w.walk(t, filepath.Join(path, e.Name()), name+"/", depth+1); err == errTruncated {
					return err
				} else if err != nil {
					w.mix(t, name+"\x00", stamp{err: syscall.EIO})
				}
			}
		}
		return nil
	})
}

func (w *Watcher) mix(t *tree, name string, s stamp) {
	b := append(w.buf[:0], name...)
	b = append(b, 0)
	for _, n := range [...]uint64{s.dev, s.ino, uint64(s.size), uint64(s.mtimeNanos), uint64(s.ctimeNano), uint64(s.mode), uint64(s.err)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	w.buf = b
	t.print += maphash.Bytes(w.seed, b)
	t.newestNanos = max(t.newestNanos, s.ctimeNano)
}
