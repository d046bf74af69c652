package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The files of a data directory. Two processes have it while one takes over from the other; the second one has names of its own.
const (
	stateFile       = "state.db"
	copyFile        = "takeover.db" // of the store, for a process that takes over
	lockFile        = "gateway.lock"
	controlFile     = "control.sock" // of the command line and of a process that takes over
	modelsDir       = "snapshots"    // the files of versions, by their digests
	fetchedDir      = "fetched"      // versions that stores have, by their names
	environmentsDir = "environments" // of models' Python
	ownerFile       = "gateway.id"   // the name that this gateway's containers are labelled with
	maxPathUnix     = 107            // what fits sun_path with its final zero
)

var (
	socketFiles = [2]string{"worker.sock", "worker2.sock"}
	socketsDirs = [2]string{"doors", "doors2"} // of replicas in containers
)

// lockWithin is how long a start waits for a gateway that is about to end.
const lockWithin = time.Second //xebec:limit wait for another gateway to leave the data directory

// dataDir is where a gateway keeps its files. Its zero value is nowhere.
type dataDir struct {
	path string
	set  int      // which names of sockets it uses
	lock *os.File // held while the gateway runs, or one that takes over from it
}

// openDataDir makes the directory and locks it. An empty path is none.
func openDataDir(path string) (dataDir, error) {
	if path == "" {
		return dataDir{}, nil
	}
	d, err := findDataDir(path)
	if err != nil {
		return dataDir{}, err
	}
	if d.lock, err = os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return dataDir{}, d.notWritten("lock it", err)
	}
	if err := d.lockNow(); err != nil {
		return dataDir{}, errors.Join(err, d.lock.Close())
	}
	for _, left := range []string{copyFile, socketFiles[1], socketsDirs[1]} { // by a process that was killed
		_ = os.RemoveAll(filepath.Join(d.path, left)) // what is left is in the way of nothing but a takeover, which says so
	}
	return d, nil
}

// inheritDataDir is the directory of a process that takes over, with the lock of the one before it.
func inheritDataDir(path string, lock *os.File, set int) (dataDir, error) {
	d, err := absDataDir(path)
	d.lock, d.set = lock, set
	return d, err
}

// absDataDir is a directory that is another gateway's, and so should be there.
func absDataDir(path string) (dataDir, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return dataDir{}, fmt.Errorf("--data-dir %s: %w", path, err)
	}
	return dataDir{path: dir}, nil
}

// findDataDir makes the directory.
func findDataDir(path string) (dataDir, error) {
	d, err := absDataDir(path)
	if err != nil {
		return dataDir{}, err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		if noSpace(err) {
			return dataDir{}, d.notWritten("make it", err)
		}
		return dataDir{}, fmt.Errorf("--data-dir %s: %w: name a directory that can be made, or none to keep nothing", d.path, err)
	}
	return d, nil
}

// noSpace reports whether a disk or a quota is full. A file system without room for one more file says the same.
func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// notWritten is the error for a file of the directory that could not be made, read or written; err names the file.
func (d dataDir) notWritten(what string, err error) error {
	do := "name a directory that can be written to"
	switch {
	case errors.Is(err, fs.ErrPermission):
		do = fmt.Sprintf("this gateway runs as user %d: start it as the user who owns the directory with all that is in it, or give it both: chown -R %[1]d %s", os.Geteuid(), d.path)
	case noSpace(err):
		do = "the disk is full: free some space or some files (df -h and df -i show both), or name a directory on another disk"
	}
	return fmt.Errorf("--data-dir %s: %s: %w: %s", d.path, what, err, do)
}

// warnOpen logs what others on this machine can reach and should not: the store has the values of models' environment variables in
// clear, and in a directory that others write to it can be replaced. Reading the directory's names harms nothing.
func (d dataDir) warnOpen(log *zap.Logger) {
	if d.path == "" {
		return
	}
	for _, c := range []struct {
		path   string
		denied fs.FileMode
		what   string
		right  string
	}{
		{d.path, 0o022, "others can replace files in the data directory", "chmod 700 "},
		{d.store(), 0o077, "others can reach the store, which has the values of models' environment variables", "chmod 600 "},
	} {
		info, err := os.Stat(c.path)
		if err != nil || info.Mode().Perm()&c.denied == 0 {
			continue // a store that is not there yet is made with 0600
		}
		log.Warn(c.what, zap.String("path", c.path), zap.String("mode", fmt.Sprintf("%04o", info.Mode().Perm())), zap.String("do", c.right+c.path))
	}
}

// lockNow locks the directory against other gateways. The lock ends with the process, even if it is killed.
func (d dataDir) lockNow() error {
	late := time.NewTimer(lockWithin)
	defer late.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return d.noteHolders(0)
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP): // a file system without locks
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("--data-dir %s: lock it: %w", d.path, err)
		}
		select {
		case <-again.C:
		case <-late.C:
			holder, _ := d.holders()
			return fmt.Errorf("--data-dir %s is in use by another gateway, process %d: choose another directory, or take over from that one with `xebec upgrade`", d.path, holder)
		}
	}
}

// noteHolders writes into the lock which processes have it: this one, and until it has ended the one that it has taken over from. 0: none.
func (d dataDir) noteHolders(before int) error {
	second := ""
	if before != 0 {
		second = strconv.Itoa(before)
	}
	// Always of one length, so that one write replaces it, also on a full disk.
	if _, err := d.lock.WriteAt(fmt.Appendf(nil, "%-10d\n%-10s\n", os.Getpid(), second), 0); err != nil {
		return d.notWritten("write the process into its lock", err)
	}
	return nil
}

// holders reads what noteHolders has written: the process that serves, and the one that it has taken over from; 0: there is none, or it
// cannot be read.
func (d dataDir) holders() (serves, before int) {
	f, err := os.Open(d.file(lockFile))
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	_, _ = fmt.Fscan(io.LimitReader(f, maxHoldersBytes), &serves, &before) // without the second it fails, and has read the first
	return serves, before
}

// maxHoldersBytes is more than two numbers of processes have.
const maxHoldersBytes = 32

// sockets counts the gateways of this process, whose abstract sockets must differ.
var sockets atomic.Uint64

// socket is the name of the socket that workers connect to.
func (d dataDir) socket() (string, error) {
	if d.path == "" {
		return fmt.Sprintf("@xebec-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), sockets.Add(1)), nil
	}
	longest := filepath.Join(d.path, socketFiles[1])
	if len(longest) > maxPathUnix {
		return "", fmt.Errorf("--data-dir %s: the socket in it has a path of %d bytes, but the system takes %d: choose a shorter directory", d.path, len(longest), maxPathUnix)
	}
	return filepath.Join(d.path, socketFiles[d.set]), nil
}

// control is the socket at which the gateway can be asked to be replaced; empty: it cannot.
func (d dataDir) control() string { return d.file(controlFile) }

// store is where declarations are kept unless configured; empty: nowhere.
func (d dataDir) store() string { return d.file(stateFile) }

// environments is where Python environments lie; without a directory of its own the gateway shares those of its user.
func (d dataDir) environments() string {
	if d.path != "" {
		return d.file(environmentsDir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "" // a model that needs one says so
	}
	return filepath.Join(cache, "xebec", environmentsDir)
}

func (d dataDir) file(name string) string {
	if d.path == "" {
		return ""
	}
	return filepath.Join(d.path, name)
}

// replicaSockets is the directory of the sockets that containers connect to, and what removes it.
func (d dataDir) replicaSockets() (dir string, remove func(), err error) {
	if d.path != "" {
		dir = filepath.Join(d.path, socketsDirs[d.set])
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", nil, d.notWritten("make a directory for the sockets of replicas", err)
		}
		return dir, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "xebec-doors-"); err != nil {
		return "", nil, fmt.Errorf("make a directory for the sockets of replicas: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// maxOwnerBytes is what a label may reasonably have; a longer file was written by another program.
const maxOwnerBytes = 256 //xebec:limit name that labels a gateway's containers

// owner is the name of this gateway's containers: the same after a restart, where there is a directory to keep it in.
func (d dataDir) owner() (string, error) {
	fresh := rand.Text()
	if d.path == "" {
		return fresh, nil
	}
	file := filepath.Join(d.path, ownerFile)
	switch known, err := os.ReadFile(file); {
	case err == nil && len(known) > 0 && len(known) <= maxOwnerBytes:
		return string(bytes.TrimSpace(known)), nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", d.notWritten("read the name of this gateway's containers", err)
	}
	if err := os.WriteFile(file, []byte(fresh+"\n"), 0o600); err != nil {
		return "", d.notWritten("keep the name of this gateway's containers", err)
	}
	return fresh, nil
}
