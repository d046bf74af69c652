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
	// controlWithin bounds how long a gateway that starts or stops may have no control socket.
	controlWithin = 3 * time.Second //xebec:limit wait of `xebec upgrade` for a gateway that starts or stops
	// finishWithin bounds the wait for the end of the process before, which answers its last requests.
	finishWithin = 10 * time.Minute //xebec:limit wait of `xebec upgrade` for the end of the upgrade before
	// controlEvery is how often the socket is tried meanwhile.
	controlEvery = 20 * time.Millisecond
)

var (
	// errNotNow says that a gateway runs, and cannot be asked to be replaced.
	errNotNow = errors.New("cannot be replaced now")
	// errNoGateway says that none runs.
	errNoGateway = errors.New("no gateway answers")
	// errNotHeard says that a gateway ended the connection before it did anything.
	errNotHeard = errors.New("the connection has ended without an answer")
)

// Upgrade asks the gateway that runs with a data directory to start a process of a program that takes over from it, and waits until
// that has happened or failed. An empty binary is the gateway's own program. With a canary the new process is tried first. progress is
// called at each step. After another upgrade it first waits for the end of the process before.
func Upgrade(ctx context.Context, dataDir, binary string, canary *Canary, progress func(UpgradeProgress)) (pid int, err error) {
	dir, err := absDataDir(dataDir)
	if err != nil {
		return 0, err
	}
	d := dialer{dir: dir, connect: takeover.DialToAsk, waits: func(serves, ends int) {
		progress(UpgradeProgress{PID: serves, Stage: takeover.StageWaiting, Reason: fmt.Sprintf("process %d answers its last requests", ends)})
	}}
	for {
		conn, err := d.dial(ctx)
		if err != nil {
			return 0, err
		}
		pid, err := askUpgrade(ctx, conn, takeover.Upgrade{Binary: binary, Canary: canary}, progress)
		if !errors.Is(err, errNotHeard) {
			return pid, err
		}
		if err := d.pause(ctx); err != nil {
			return 0, err
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

// dialer connects to the gateway that runs with a directory.
type dialer struct {
	dir     dataDir
	connect func(ctx context.Context, path string) (*takeover.Conn, error)
	waits   func(serves, ends int) // called once before it waits for the end of the process before
	told    bool
	begun   time.Time // when dial was called first
	since   time.Time // since when a gateway runs and does not answer, for a reason that is not known
}

// dial connects. While a gateway runs and has no control socket it waits, also over several calls.
func (d *dialer) dial(ctx context.Context) (*takeover.Conn, error) {
	if d.begun.IsZero() {
		d.begun = time.Now()
		d.since = d.begun
	}
	for {
		conn, err := d.connect(ctx, d.dir.control())
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, unix.EACCES):
			return nil, fmt.Errorf("this user may not reach the gateway of %s: run the command as the gateway's user%s or root: %w", d.dir.path, d.dir.owned(), err)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
			return nil, fmt.Errorf("reach the gateway of %s: %w", d.dir.path, err)
		case !d.dir.inUse():
			return nil, fmt.Errorf("%w in %s: --data-dir names the directory of the one to replace: %w", errNoGateway, d.dir.path, err)
		}
		if serves, ends := d.dir.holders(); ends != 0 {
			d.since = time.Now()
			if !d.told {
				d.told = true
				d.waits(serves, ends)
			}
		}
		if err := d.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// pause waits for the next try. The error says that there is none.
func (d *dialer) pause(ctx context.Context) error {
	if time.Since(d.since) > controlWithin || time.Since(d.begun) > finishWithin {
		return d.notNow()
	}
	next := time.NewTimer(controlEvery)
	defer next.Stop()
	select {
	case <-next.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *dialer) notNow() error {
	serves, ends := d.dir.holders()
	if ends != 0 {
		return fmt.Errorf("the gateway of %s %w: process %d has taken over, and process %d, which answers its last requests, has not ended within %s", d.dir.path, errNotNow, serves, ends, finishWithin)
	}
	return fmt.Errorf("the gateway of %s, process %d, %w: it starts or stops; try again in a moment", d.dir.path, serves, errNotNow)
}

// owned names the owner of the directory, as far as this user may know it.
func (d dataDir) owned() string {
	var st unix.Stat_t
	if unix.Stat(d.path, &st) != nil {
		return ""
	}
	return fmt.Sprintf(" (sudo -u %s)", takeover.UserName(int(st.Uid)))
}

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
