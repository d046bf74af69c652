package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// The files of a data directory.
const (
	stateFile   = "state.db"
	socketFile  = "worker.sock"
	socketsDir  = "doors"      // of replicas in containers
	ownerFile   = "gateway.id" // the name that this gateway's containers are labelled with
	maxPathUnix = 107          // what fits sun_path with its final zero
)

// dataDir is where a gateway keeps its files; empty: nowhere.
type dataDir string

// openDataDir makes the directory. An empty path is none.
func openDataDir(path string) (dataDir, error) {
	if path == "" {
		return "", nil
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--data-dir %s: %w", path, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--data-dir %s: %w: name a directory that can be made, or none to keep nothing", dir, err)
	}
	return dataDir(dir), nil
}

// sockets counts the gateways of this process, whose abstract sockets must differ.
var sockets atomic.Uint64

// socket is the name of the socket that workers connect to.
func (d dataDir) socket() (string, error) {
	if d == "" {
		return fmt.Sprintf("@xebec-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), sockets.Add(1)), nil
	}
	socket := filepath.Join(string(d), socketFile)
	if len(socket) > maxPathUnix {
		return "", fmt.Errorf("--data-dir %s: the socket in it has a path of %d bytes, but the system takes %d: choose a shorter directory", string(d), len(socket), maxPathUnix)
	}
	return socket, nil
}

// store is where declarations are kept unless configured; empty: nowhere.
func (d dataDir) store() string {
	if d == "" {
		return ""
	}
	return filepath.Join(string(d), stateFile)
}

// replicaSockets is the directory of the sockets that containers connect to, and what removes it.
func (d dataDir) replicaSockets() (dir string, remove func(), err error) {
	if d != "" {
		dir = filepath.Join(string(d), socketsDir)
		return dir, func() {}, os.MkdirAll(dir, 0o700)
	}
	if dir, err = os.MkdirTemp("", "xebec-doors-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// maxOwnerBytes is what a label may reasonably have; a longer file was written by another program.
const maxOwnerBytes = 256 //xebec:limit name that labels a gateway's containers

// owner is the name of this gateway's containers: the same after a restart, where there is a directory to keep it in.
func (d dataDir) owner() (string, error) {
	fresh := rand.Text()
	if d == "" {
		return fresh, nil
	}
	file := filepath.Join(string(d), ownerFile)
	switch known, err := os.ReadFile(file); {
	case err == nil && len(known) > 0 && len(known) <= maxOwnerBytes:
		return string(bytes.TrimSpace(known)), nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("--data-dir %s: read the name of this gateway's containers: %w", string(d), err)
	}
	if err := os.WriteFile(file, []byte(fresh+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("--data-dir %s: keep the name of this gateway's containers: %w: name a directory that can be written to", string(d), err)
	}
	return fresh, nil
}
