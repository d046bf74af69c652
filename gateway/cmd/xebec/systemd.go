package main

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/server"
)

// The names of sockets that systemd opens for the gateway (FileDescriptorName= in a socket unit).
const (
	functionsSocket = "functions"
	adminSocket     = "admin"
)

// activatedListeners are the ports that systemd has opened and passes to this process (LISTEN_FDS), if any.
func activatedListeners() (server.Listeners, error) { return listenersFrom(activation.Files(true)) }

// listenersFrom makes listeners of sockets by name, and closes the files.
func listenersFrom(files []*os.File) (l server.Listeners, err error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			for _, ln := range []net.Listener{l.Functions, l.Admin} {
				if ln != nil {
					ln.Close()
				}
			}
			l = server.Listeners{}
		}
	}()
	for _, f := range files {
		var port *net.Listener
		switch f.Name() {
		case functionsSocket:
			port = &l.Functions
		case adminSocket:
			port = &l.Admin
		default:
			return l, fmt.Errorf("LISTEN_FDS: a socket has the name %q: expected FileDescriptorName=%s or %s in its socket unit", f.Name(), functionsSocket, adminSocket)
		}
		if *port != nil {
			return l, fmt.Errorf("LISTEN_FDS: two sockets have the name %q: expected one ListenStream= in each socket unit", f.Name())
		}
		if *port, err = net.FileListener(f); err != nil {
			return l, fmt.Errorf("LISTEN_FDS: the socket %q cannot be listened on: expected ListenStream= in its socket unit: %w", f.Name(), err)
		}
	}
	return l, nil
}

// manager is the service manager that started this process, if it wants to be told (NOTIFY_SOCKET).
type manager struct{ log *zap.Logger }

func (m manager) ready()    { m.tell(daemon.SdNotifyReady) }
func (m manager) stopping() { m.tell(daemon.SdNotifyStopping) }

// succeeded says which process is the service from now on. That one may not say so itself: it is not the service's main process yet.
func (m manager) succeeded(pid int) { m.tell(fmt.Sprintf("MAINPID=%d", pid)) }

// reloading says when the reload began, so that a ready of before is not mistaken for its end.
func (m manager) reloading() {
	m.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

func (m manager) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("the service manager could not be told", zap.String("state", state), zap.Error(err))
	}
}

// watch tells the service manager, if it wants that (WATCHDOG_USEC), that the gateway is alive, twice in the time after which it would
// be restarted. alive returns unless the gateway hangs.
func (m manager) watch(alive func()) (stop func()) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the service manager's watchdog is not fed", zap.Error(err))
	}
	if within <= 0 {
		return func() {}
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(within / 2)
		defer tick.Stop()
		for {
			alive()
			m.tell(daemon.SdNotifyWatchdog)
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); running.Wait() }
}
