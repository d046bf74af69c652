package state

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// fileLockTimeout is how long opening waits for a gateway that is about to exit and still holds the file.
	fileLockTimeout = time.Second //xebec:limit wait for another gateway to release the file
)

// policyBucket has a bucket for each function with a record for each policy and context.
var policyBucket = []byte("policy")

// fileStore is a Backend in a bbolt file. doc.go describes it.
type fileStore struct {
	path    string
	db      *bolt.DB
	file    *os.File // of db
	writer  [16]byte
	damaged atomic.Pointer[error] // set once bbolt has panicked over the file's content
	used    atomic.Int64          // bytes that the file has at least: it never shrinks
	limits  objectLimits

	// objectsLock makes a commit and its entries in deleted one step for readers.
	objectsLock sync.RWMutex
	deleted     tombstones

	leases struct {
		sync.Mutex
		held map[Key]uint64 // the fences
	}
}

// OpenFile opens the store in the file at path and creates the file if there is none; its folder must exist. One process at a time may
// hold the file. A file of an older format is converted to the current one. A file that is damaged, has a newer format or was made by
// another program is refused and left unchanged.
func OpenFile(path string) (Backend, error) { return openFile(path, (*fileStore).create) }

// openExisting is OpenFile for a file that must be there.
func openExisting(path string) (Backend, error) {
	return openFile(path, func(f *fileStore) error {
		_, err := os.Stat(f.path)
		return err
	})
}

// openFile opens a file, after ensure has made sure that it is there.
func openFile(path string, ensure func(*fileStore) error) (Backend, error) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f := &fileStore{path: path, limits: defaultLimits}
	rand.Read(f.writer[:])
	if err := f.guard(func() error { return f.open(ensure) }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *fileStore) open(ensure func(*fileStore) error) error {
	options := &bolt.Options{
		Timeout:      fileLockTimeout,
		FreelistType: bolt.FreelistMapType,
		// The file has the list of free pages. Without it bbolt would collect them at the start in a goroutine of its own, and
		// a panic there, over a damaged file, could not be recovered.
		NoFreelistSync: false,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			first := f.file == nil // bbolt opens a file again to copy it
			if first {
				flag &^= os.O_CREATE // ensure does that
			}
			file, err := os.OpenFile(name, flag, mode)
			if first {
				f.file = file
			}
			return file, err
		},
	}
	if err := ensure(f); err != nil {
		return err
	}
	db, err := bolt.Open(f.path, 0o600, options)
	if err != nil {
		return err
	}
	f.db = db
	return db.Update(func(tx *bolt.Tx) error {
		info, err := f.file.Stat()
		if err != nil {
			return err
		}
		// Notice a truncated file here rather than when the first missing page is read.
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: it has %d bytes of %d", bolterrors.ErrInvalid, info.Size(), tx.Size())
		}
		f.used.Store(tx.Size())
		if err := checkPages(f.file, db.Info().PageSize); err != nil {
			return err
		}
		if err := convertFile(tx, formats); err != nil {
			return err
		}
		head, err := readHead(tx)
		if err != nil {
			return err
		}
		f.deleted.start(head.revision)
		return nil
	})
}

// unfinishedSuffix names a store that is being made.
const unfinishedSuffix = ".new"

// create makes the file if there is none. A store is made under another name and linked to its path when it is complete, so a file
// without content at the path is one that has lost it, and not one that this program was about to write.
func (f *fileStore) create() error {
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.Mode().IsRegular() && info.Size() == 0:
		return damagedError{errors.New("it is empty, and a store never is")}
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	unfinished := f.path + unfinishedSuffix
	db, err := bolt.Open(unfinished, 0o600, &bolt.Options{Timeout: fileLockTimeout})
	if err != nil && !errors.Is(err, bolterrors.ErrTimeout) && os.Remove(unfinished) == nil { // left by a program that was killed
		db, err = bolt.Open(unfinished, 0o600, &bolt.Options{Timeout: fileLockTimeout})
	}
	if err != nil {
		return errors.Join(err, removeIfThere(unfinished))
	}
	defer func() { _ = db.Close() }() // after the file has left its first name: who waits for its lock finds the store at its path
	if err := os.Link(unfinished, f.path); err != nil {
		if _, there := os.Stat(f.path); there != nil { // a file system without links, or another program has just linked its own
			return os.Rename(unfinished, f.path)
		}
	}
	if err := removeIfThere(unfinished); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.path))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// copyTo writes the file as it is between two changes to another path, where it replaces what is there.
func (f *fileStore) copyTo(path string) error {
	return f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error { return tx.CopyFile(path, 0o600) })
	})
}

func (f *fileStore) Shared() bool { return false }
func (f *fileStore) Name() string { return f.path }

// Close releases the file. Calls in progress finish first.
func (f *fileStore) Close() error {
	switch {
	case f.damaged.Load() != nil && f.file != nil:
		// After a panic bbolt may never release its own locks, and closing would wait for them. Its memory map stays until the process
		// exits.
		err := syscall.Flock(int(f.file.Fd()), syscall.LOCK_UN)
		return errors.Join(err, f.file.Close())
	case f.db != nil:
		return f.db.Close()
	}
	return nil
}

// fileKey is the key of a record in its function's bucket: length of the policy's name, the name, the context.
func fileKey(k Key) []byte {
	key := binary.AppendUvarint(make([]byte, 0, 2+len(k.Policy)+len(k.Context)), uint64(len(k.Policy)))
	return append(append(key, k.Policy...), k.Context...)
}

func (f *fileStore) Merge(ctx context.Context, updates []Update) ([][]Total, error) {
	return f.mergeAs(ctx, f.writer, updates)
}

// mergeAs is Merge for a writer, whose sequence numbers are its own.
func (f *fileStore) mergeAs(ctx context.Context, writer [16]byte, updates []Update) ([][]Total, error) {
	var results [][]Total
	var refused refusals
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	err := f.guard(func() error {
		return f.updateHeld(func(tx *bolt.Tx) error {
			results, refused = make([][]Total, len(updates)), nil
			for i := range updates {
				totals, reason, err := f.mergeOne(tx, writer, &updates[i])
				if err != nil {
					return err
				}
				if reason != "" {
					refused.add(i, updates[i].Key, reason)
				}
				results[i] = totals
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return results, refused.err()
}

// mergeOne applies one update. It returns the state's totals, or the reason why the update is refused.
func (f *fileStore) mergeOne(tx *bolt.Tx, writer [16]byte, u *Update) ([]Total, string, error) {
	if err := u.check(); err != nil {
		return nil, err.Error(), nil
	}
	function, err := tx.Bucket(policyBucket).CreateBucketIfNotExists([]byte(u.Key.Function))
	if err != nil {
		return nil, "", err
	}
	key := fileKey(u.Key)
	r, err := decodeRecord(key, function.Get(key))
	if err != nil {
		return nil, damagedRecord(err), nil
	}
	changed, reason := r.apply(writer, u)
	if reason != "" {
		return nil, reason, nil
	}
	if changed {
		if err := function.Put(key, appendRecord(nil, key, &r)); err != nil {
			return nil, "", err
		}
	}
	return r.fields, "", nil
}

func damagedRecord(err error) string {
	return fmt.Sprintf("its record in the file is damaged (%v): delete the function's learned state, or restore the file from a copy", err)
}

func (f *fileStore) Load(ctx context.Context, keys []Key) ([][]Total, error) {
	var results [][]Total
	var refused refusals
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	err := f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error {
			results, refused = make([][]Total, len(keys)), nil
			policies := tx.Bucket(policyBucket)
			for i, k := range keys {
				if err := k.check(); err != nil {
					refused.add(i, k, err.Error())
					continue
				}
				results[i] = []Total{}
				function := policies.Bucket([]byte(k.Function))
				if function == nil {
					continue
				}
				key := fileKey(k)
				r, err := decodeRecord(key, function.Get(key))
				if err != nil {
					refused.add(i, k, damagedRecord(err))
					results[i] = nil
				} else {
					results[i] = r.fields
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return results, refused.err()
}

func (f *fileStore) Forget(ctx context.Context, function string) error {
	if function == "" {
		return errors.New("no function given: expected the function whose state is to be deleted")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	f.leases.Lock()
	maps.DeleteFunc(f.leases.held, func(k Key, _ uint64) bool { return k.Function == function })
	f.leases.Unlock()
	return f.guard(func() error {
		return f.updateHeld(func(tx *bolt.Tx) error {
			err := tx.Bucket(policyBucket).DeleteBucket([]byte(function))
			if err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
			return dropNotes(tx, SeriesOf(function))
		})
	})
}

// CheckPath returns an error if the path no longer refers to the open file, or the file has lost its end. What is written then would be
// missing after a restart.
func (f *fileStore) CheckPath() error {
	if found := f.damaged.Load(); found != nil {
		return *found
	}
	const then = "; until then nothing is written. Serving continues, and xebec export --show-secrets prints what is declared"
	named, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return lostError{fmt.Sprintf("%s was removed or moved away while this gateway has it open: move it back, or restart the gateway with an empty store and apply an export%s", f.path, then)}
	}
	if err != nil {
		return err
	}
	held, err := f.file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(named, held) {
		return lostError{fmt.Sprintf("%s was replaced by another file while this gateway has the old one open: restart the gateway to use the new one, or move the old one back%s", f.path, then)}
	}
	if used := f.used.Load(); held.Size() < used {
		return lostError{fmt.Sprintf("%s was truncated to %d of %d bytes while this gateway has it open: restore it from a copy, and restart the gateway%s", f.path, held.Size(), used, then)}
	}
	return nil
}

// A lostError says that the open file is no longer at its path. Its text is complete and needs no explanation.
type lostError struct{ text string }

func (e lostError) Error() string { return e.text }

// update is bbolt's Update, refused if the file is not at its path when the change begins.
func (f *fileStore) update(change func(tx *bolt.Tx) error) error {
	return f.db.Update(func(tx *bolt.Tx) error {
		if err := f.CheckPath(); err != nil {
			return err
		}
		f.used.Store(tx.Size())
		return change(tx)
	})
}

// updateHeld is update that also fails if the file is not at its path after the change.
func (f *fileStore) updateHeld(change func(tx *bolt.Tx) error) error {
	if err := f.update(change); err != nil {
		return err
	}
	return f.CheckPath()
}

// guard runs op, which uses the file, and explains its error. bbolt panics over invalid pages, and the memory map faults if the file was
// truncated; guard turns both into errors. After one of these the file is not used again, because bbolt may still hold its locks.
func (f *fileStore) guard(op func() error) (err error) {
	if found := f.damaged.Load(); found != nil {
		return *found
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = f.damage(f.faultOf(p))
			f.damaged.Store(&err)
		}
	}()
	return f.explain(op())
}

// faultOf describes a panic over the file's content. What Go says of a fault in the memory map reads like a mistake in this program.
func (f *fileStore) faultOf(panicked any) error {
	var lost lostError
	if f.file != nil && errors.As(f.CheckPath(), &lost) {
		return lost
	}
	if _, fault := panicked.(runtime.Error); fault {
		return errors.New("it names pages that it does not have, or the disk cannot read them")
	}
	return fmt.Errorf("%v", panicked)
}

func (f *fileStore) damage(cause error) error {
	return fmt.Errorf("%s is damaged or not a store of this program: restore it from a copy, or move it away to start with an empty store (everything declared and learned is lost then): %w", f.path, cause)
}

// explain adds to an error where it comes from and what to do about it, and wraps it.
func (f *fileStore) explain(err error) error {
	var damaged damagedError
	var lost lostError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lost):
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is held by %s, and only one gateway at a time may hold it: stop that one, or use another file or a Redis server: %w", f.path, lockHolder(f.path), err)
	case errors.As(err, &damaged),
		errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch),
		strings.Contains(err.Error(), "file size too small"): // bbolt has no error value for it
		return f.damage(err)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return fmt.Errorf("%s: the store is closed: %w", f.path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be created: its folder does not exist: %w", f.path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: this gateway runs as user %d: start it as the file's owner, or give it the file: chown %[2]d: %w", f.path, os.Geteuid(), err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), strings.Contains(err.Error(), syscall.ENOSPC.Error()): // bbolt does not wrap it when it copies
		return fmt.Errorf("%s: the disk is full: free some space: %w", f.path, err)
	case errors.Is(err, syscall.EFBIG), strings.Contains(err.Error(), syscall.EFBIG.Error()): // bbolt does not wrap it
		return fmt.Errorf("%s: the file has reached the limit on file sizes: raise the limit (ulimit -f): %w", f.path, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s is a folder: expected the path of a file: %w", f.path, err)
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

// lockHolder describes the process that holds the file, as far as the kernel tells.
func lockHolder(path string) string {
	const unknown = "another process"
	info, err := os.Stat(path)
	if err != nil {
		return unknown
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return unknown
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return unknown
	}
	defer locks.Close()
	pid := findLock(locks, stat.Ino)
	if pid <= 0 {
		return unknown
	}
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
}

// findLock returns the process that holds an exclusive flock on the inode according to the table in /proc/locks. It returns 0 if there is none
// or this process cannot see it. Lines look like
//
//	1: FLOCK  ADVISORY  WRITE 4242 fd:01:1835061 0 EOF
//
// and a "->" after the number marks a waiting process. Devices are not compared because layered file systems show a different one here
// than in stat.
func findLock(locks io.Reader, inode uint64) int {
	suffix := ":" + strconv.FormatUint(inode, 10)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[3] != "WRITE" || !strings.HasSuffix(fields[5], suffix) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
