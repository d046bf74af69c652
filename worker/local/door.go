package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/worker"
)

const (
	// maxDoors bounds open doors. A door is open from launch to HELLO, typically for seconds, and few containers start
	// at a time.
	maxDoors = 256 //xebec:limit sockets for containers that are starting
	// maxSocketPath is the capacity of sockaddr_un without the final zero.
	maxSocketPath = 107
	// doorFile is the socket's name in a door's directory. It is short because the whole path has to fit maxSocketPath.
	doorFile = "s"
	// doorNameBytes is the length of a directory's name before hex encoding. Eight digits make a collision among
	// maxDoors unlikely.
	doorNameBytes = 4
)

// door is a socket for the worker of one launch. See the package documentation.
type door struct {
	ln  *net.UnixListener
	dir string
	// path is the socket's path.
	path      string
	closeOnce sync.Once
}

// expectAtDoor opens a door for an isolated worker and returns the path of its socket. The token is valid there and
// nowhere else. After an error nothing is expected.
func (h *Hub) expectAtDoor(token string, e worker.Expectation) (socket string, err error) {
	d, err := openDoor(h.cfg.Doors)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	switch {
	case h.closed:
		err = errors.New("the gateway is shutting down")
	case len(h.doors) >= maxDoors:
		err = fmt.Errorf("%d replicas are starting in containers already: try again when some have connected", maxDoors)
	default:
		h.expected[token], h.doors[token] = e, d
		h.wg.Add(1)
	}
	h.mu.Unlock()
	if err != nil {
		d.close()
		return "", err
	}
	go h.serveDoor(d)
	return d.path, nil
}

// openDoor makes a directory that only this user can enter, then a socket in it that any user may connect to. A
// container reaches the socket because the engine mounts it.
func openDoor(doors string) (*door, error) {
	if doors == "" {
		return nil, errors.New("this hub has no directory for sockets of isolated workers (Config.Doors)")
	}
	var b [doorNameBytes]byte
	rand.Read(b[:]) // never fails since Go 1.24
	d := &door{dir: filepath.Join(doors, hex.EncodeToString(b[:]))}
	d.path = filepath.Join(d.dir, doorFile)
	if len(d.path) > maxSocketPath {
		return nil, fmt.Errorf("the path %s has %d bytes, but a socket's path has at most %d: choose a shorter --data-dir", d.path, len(d.path), maxSocketPath)
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if d.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"}); err != nil {
		os.Remove(d.dir)
		return nil, err
	}
	if err := os.Chmod(d.path, 0o666); err != nil { // connecting needs write permission, and a container runs as another user
		d.close()
		return nil, err
	}
	return d, nil
}

// close stops listening and removes what openDoor made. It may be called repeatedly.
func (d *door) close() {
	d.closeOnce.Do(func() {
		_ = d.ln.Close() // removes the socket file
		os.Remove(d.dir)
	})
}

// serveDoor performs handshakes at a door, one after the other, until one has shown the token. A connection that stays
// silent delays only its own launch.
func (h *Hub) serveDoor(d *door) {
	defer h.wg.Done()
	for {
		c, err := d.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // see accept
			timer := time.NewTimer(acceptRetryDelay)
			<-timer.C
			continue
		}
		h.receive(c, d, func() {})
	}
}

// cleanDoors makes the directory of the doors and removes doors that a killed gateway has left: directories that are
// empty or hold a socket. It leaves everything else alone.
func cleanDoors(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the workers' sockets: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for workers' sockets that are left over: %w", err)
	}
	for _, entry := range entries {
		if name, err := hex.DecodeString(entry.Name()); err != nil || len(name) != doorNameBytes || !entry.IsDir() {
			continue
		}
		stale := filepath.Join(dir, entry.Name())
		if info, err := os.Lstat(filepath.Join(stale, doorFile)); err == nil && info.Mode().Type() == os.ModeSocket {
			os.Remove(filepath.Join(stale, doorFile))
		}
		os.Remove(stale) // fails if anything else is in it
	}
	return nil
}
