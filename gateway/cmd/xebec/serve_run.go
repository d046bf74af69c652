package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/server"
)

// maxPendingSignals is more than a person sends while a reload runs. Signals beyond it are dropped.
const maxPendingSignals = 16

// catchHangups keeps a SIGHUP that comes before a gateway runs, which would end the process: a reload may be asked for at once after the
// start. nil if the arguments are of another command.
func catchHangups(args []string) chan os.Signal {
	if len(args) == 0 || args[0] != "serve" {
		return nil
	}
	signals := make(chan os.Signal, maxPendingSignals)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}

// runGateway runs a gateway until a signal ends it. signals may have had signals before; nil: it makes a channel.
func runGateway(ctx context.Context, cfg server.Config, signals chan os.Signal) error {
	if signals == nil {
		signals = make(chan os.Signal, maxPendingSignals)
	}
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	var err error
	if cfg.Listeners, err = activatedListeners(); err != nil {
		return err
	}
	s := server.New(cfg)
	if err := s.Start(ctx); err != nil {
		return err
	}
	m := manager{cfg.Logger}
	m.ready()
	defer m.watch(func() { s.Ready() })()
	r := running{gateway: s, lameDuck: cfg.LameDuck, signals: signals, letGo: func() { signal.Stop(signals) }, manager: m, log: cfg.Logger, now: time.Now}
	return r.run()
}

// gateway is what signals do something to.
type gateway interface {
	Reload(context.Context) ([]api.Change, error)
	Stop(lameDuck, drain context.Context) error
	Failed() <-chan error
	Superseded() <-chan struct{}
	Successor() int
}

// running is a gateway whose life signals rule. SIGTERM begins its end with the lame duck, SIGINT without. While it ends, another one
// of these ends the lame duck, and the next one the drain. SIGHUP reloads and never ends anything.
type running struct {
	gateway
	lameDuck time.Duration
	signals  <-chan os.Signal
	letGo    func() // leaves further signals to the system, which ends the process at once
	manager  manager
	log      *zap.Logger
	now      func() time.Time
	last     os.Signal // SIGTERM or SIGINT
	at       time.Time // when it came
}

// sentTwice is how soon a signal comes again that was meant once: timeout(1), for example, sends one to its child, and then to its process group.
const sentTwice = 100 * time.Millisecond //xebec:limit the same signal so soon after the first counts once

// counts reports whether a signal is another one than the last.
func (r *running) counts(sig os.Signal) bool {
	now := r.now()
	if sig == r.last && now.Sub(r.at) < sentTwice {
		return false
	}
	r.last, r.at = sig, now
	return true
}

func (r *running) run() error {
	for {
		select {
		case err := <-r.Failed():
			r.manager.stopping()
			return errors.Join(err, r.end(0))
		case <-r.Superseded():
			r.manager.succeeded(r.Successor())
			return r.end(0)
		case sig := <-r.signals:
			if sig != syscall.SIGHUP {
				r.counts(sig)
			}
			switch sig {
			case syscall.SIGHUP:
				r.reload()
			case syscall.SIGTERM:
				r.manager.stopping()
				return r.end(r.lameDuck)
			default:
				r.manager.stopping()
				return r.end(0)
			}
		}
	}
}

// end stops the gateway, sooner with each signal.
func (r *running) end(lameDuck time.Duration) error {
	quiesce, endLameDuck := context.WithTimeout(context.Background(), lameDuck)
	defer endLameDuck()
	drain, endDrain := context.WithCancel(context.Background())
	defer endDrain()
	ended := make(chan error, 1)
	go func() { ended <- r.Stop(quiesce, drain) }()
	for {
		select {
		case err := <-ended:
			return err
		case sig := <-r.signals:
			switch {
			case sig == syscall.SIGHUP:
				r.log.Info("the configuration is not applied again: the gateway is stopping")
			case !r.counts(sig):
			case quiesce.Err() == nil:
				r.log.Info("another signal: the lame duck ends", zap.Stringer("signal", sig))
				endLameDuck()
			default:
				r.log.Warn("another signal: what is not answered now is cut off; one more ends the process at once", zap.Stringer("signal", sig))
				endDrain()
				r.letGo()
			}
		}
	}
}

// reload applies the configuration again. If it is invalid, what serves goes on serving.
func (r *running) reload() {
	r.manager.reloading()
	defer r.manager.ready()
	changes, err := r.Reload(context.Background())
	if err != nil {
		r.log.Error("the configuration is not applied; what serves goes on serving", zap.Error(err))
		return
	}
	count := map[api.Action]int{}
	for _, c := range changes {
		count[c.Action]++
	}
	r.log.Info("the configuration is applied again", zap.Int("created", count[api.Created]), zap.Int("updated", count[api.Updated]), zap.Int("unchanged", count[api.Unchanged]))
}
