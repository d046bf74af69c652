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
	// maxDoors bounds the doors that are open at once. A door is open from a launch to its worker's HELLO, seconds as a rule,
	// and containers start few at a time.
	maxDoors = 256
	// maxSocketPath is what sockaddr_un holds before its final zero.
	maxSocketPath = 107
	// doorFile is the socket in a door's directory: short, for the path as a whole has to fit.
	doorFile = "s"
	// doorNameBytes makes a directory's name: eight digits, enough not to meet another of maxDoors.
	doorNameBytes = 4
)

// door is a socket for the worker of one launch. See the package essay.
type door struct {
	ln  *net.UnixListener
	dir string
	// path is the socket's.
	path      string
	closeOnce sync.Once
}

// expectAtDoor expects a worker that runs elsewhere in the name space, such as in a container, at a socket that is for this launch
// alone, and returns its path. The token is good there and nowhere else. The socket goes when its worker has said HELLO, or when the
// token is withdrawn, or with Close. An error says what to do; nothing is expected then.
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

// openDoor makes the directory first, which only this user can enter, and so nobody else reaches the socket in it, whatever its
// mode: a container sees it because the engine mounts it there.
func openDoor(doors string) (*door, error) {
	if doors == "" {
		return nil, errors.New("this hub has no directory for them (Config.Doors)")
	}
	var b [doorNameBytes]byte
	rand.Read(b[:]) // never fails since Go 1.24
	d := &door{dir: filepath.Join(doors, hex.EncodeToString(b[:]))}
	d.path = filepath.Join(d.dir, doorFile)
	if len(d.path) > maxSocketPath {
		return nil, fmt.Errorf("the path %s has %d bytes, and the kernel takes %d for a socket: choose a shorter --data-dir", d.path, len(d.path), maxSocketPath)
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if d.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"}); err != nil {
		os.Remove(d.dir)
		return nil, err
	}
	if err := os.Chmod(d.path, 0o666); err != nil { // to connect takes the right to write, and a container runs as another user
		d.close()
		return nil, err
	}
	return d, nil
}

// close stops listening and removes what openDoor made. It may be called more than once.
func (d *door) close() {
	d.closeOnce.Do(func() {
		_ = d.ln.Close() // removes the socket
		os.Remove(d.dir)
	})
}

// answer greets whoever comes to a door, one after the other, until one has shown the token. Whoever keeps the others waiting
// keeps only its own launch from starting: the gateway's main socket does not notice.
func (h *Hub) serveDoor(d *door) {
	defer h.wg.Done()
	for {
		c, err := d.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // as in accept
			timer := time.NewTimer(acceptRetryDelay)
			<-timer.C
			continue
		}
		h.receive(c, d, func() {})
	}
}

// cleanDoors makes the directory of the doors and removes what a gateway that died has left in it: directories that hold a socket
// or nothing. Whatever else lies there stays.
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
		os.Remove(stale) // fails where something else is in it
	}
	return nil
}
