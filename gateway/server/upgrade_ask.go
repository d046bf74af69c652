package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

// UpgradeProgress is a step of an upgrade.
type UpgradeProgress = takeover.Progress

const (
	// controlWithin bounds how long a gateway that runs may have no control socket. It opens one when it has started, and after a
	// takeover when the process before it has ended, usually within half a second.
	controlWithin = 3 * time.Second //xebec:limit wait of `xebec upgrade` for a gateway that has just taken over or starts
	// controlEvery is how often the socket is tried meanwhile.
	controlEvery = 20 * time.Millisecond
)

var (
	// errNotNow says that a gateway runs, and cannot be asked to be replaced.
	errNotNow = errors.New("cannot be replaced now: it starts or stops, or it has just taken over and the process before it answers its last requests, for --drain-timeout at most: try again in a moment")
	// errNotHeard says that a gateway ended the connection before it did anything.
	errNotHeard = errors.New("the connection has ended without an answer")
)

// Upgrade asks the gateway that runs with a data directory to start a process of a program that takes over from it, and waits until
// that has happened or failed. An empty binary is the gateway's own program. With a canary the new process is tried first. progress is
// called at each step. Shortly after another upgrade it waits for the old process's end, for a few seconds.
func Upgrade(ctx context.Context, dataDir, binary string, canary *Canary, progress func(UpgradeProgress)) (pid int, err error) {
	dir, err := findDataDir(dataDir)
	if err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, controlWithin)
	defer cancel()
	for {
		conn, err := dir.dial(within)
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, errNotNow):
			return 0, err
		case err != nil:
			return 0, fmt.Errorf("no gateway answers in %s: --data-dir names the directory of the one to replace: %w", dir.path, err)
		}
		pid, err := askUpgrade(ctx, conn, takeover.Upgrade{Binary: binary, Canary: canary}, progress)
		if !errors.Is(err, errNotHeard) {
			return pid, err
		}
		if !again(within) { // the last dial has shown that there is a gateway
			return 0, dir.notNow()
		}
	}
}

// askUpgrade asks one process of a gateway to start another one, and closes the connection.
func askUpgrade(ctx context.Context, conn *takeover.Conn, u takeover.Upgrade, progress func(UpgradeProgress)) (pid int, err error) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, conn.EndReceive)()
	if err := conn.Send(takeover.KindUpgrade, u); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return 0, errNotHeard
	} else if err != nil {
		return 0, err
	}
	for heard := false; ; heard = true {
		f, files, err := conn.Receive()
		for _, file := range files {
			file.Close()
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, fmt.Errorf("%w: the upgrade is called off, unless the new process serves already", context.Cause(ctx))
		case err != nil && !heard:
			return 0, errNotHeard
		case err != nil:
			return 0, fmt.Errorf("the gateway, process %d, has ended the connection; its log says what became of the upgrade: %w", conn.PID(), err)
		case f.Kind == takeover.KindProgress:
			var step UpgradeProgress
			if err := f.Decode(&step); err != nil {
				return 0, err
			}
			progress(step)
			continue
		}
		var r takeover.Result
		if err := f.Decode(&r); err != nil {
			return 0, err
		}
		if r.Error != "" {
			return 0, errors.New(r.Error)
		}
		return r.PID, nil
	}
}

// dial connects to the gateway that runs with the directory. While one runs and has no control socket, it waits until ctx ends.
func (d dataDir) dial(ctx context.Context) (*takeover.Conn, error) {
	for {
		conn, err := takeover.Dial(ctx, d.control())
		if err == nil {
			return conn, nil
		}
		absent := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
		if ctx.Err() == nil && !absent || !d.inUse() {
			return nil, err
		}
		if !again(ctx) {
			return nil, d.notNow()
		}
	}
}

// again waits for the next try; false: there is none.
func again(ctx context.Context) bool {
	pause := time.NewTimer(controlEvery)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d dataDir) notNow() error { return fmt.Errorf("the gateway of %s %w", d.path, errNotNow) }

// inUse reports whether a gateway has the directory: it, or the one that it takes over from, holds the lock. Where the file system has
// no locks it cannot be known.
func (d dataDir) inUse() bool {
	lock, err := os.OpenFile(filepath.Join(d.path, lockFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer lock.Close() // with the lock, if it was free
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return err != nil && !errors.Is(err, unix.ENOLCK) && !errors.Is(err, unix.ENOTSUP)
}
