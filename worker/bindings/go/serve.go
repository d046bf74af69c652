//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/worker/wire"
)

// ErrGatewayGone says that the gateway closed the connection, or died.
var ErrGatewayGone = errors.New("xebec: the gateway closed the connection")

// RefusedError is the gateway's reason for turning the worker away.
type RefusedError struct {
	Code uint16 // as in section 2 of the protocol
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("xebec: the gateway refused this worker (code %d): %s", e.Code, e.Text)
}

// goneGrace is how long a predict may take to notice that its context has ended because the gateway is gone. A worker
// that has lost its gateway is of use to nobody, and may hold a device that the next one needs.
const goneGrace = 5 * time.Second

// exitGone is the status of a process that was ended for that.
const exitGone = 69 // EX_UNAVAILABLE of sysexits.h

// Serve connects to the gateway that started this process and answers its batches with predict until it is told to stop.
// It returns nil after an orderly end (SIGTERM, or the gateway's own wish), a *RefusedError when the gateway would not have
// the worker, and ErrGatewayGone when the gateway went away.
//
// predict is called for one batch after the other, on one goroutine that keeps to one thread. Its context ends when the
// gateway is gone and when Serve returns; a batch's time budget is in [Batch.Budget]. A process serves once at a time.
func Serve(predict func(ctx context.Context, b *Batch) error, options ...Option) error {
	cfg := config{capabilities: wire.CapRing, exit: os.Exit, grace: goneGrace}
	for _, option := range options {
		option(&cfg)
	}
	if predict == nil {
		return errors.New("xebec: predict is nil")
	}
	if cfg.signature != nil {
		if err := wire.CheckSignature(cfg.signature); err != nil {
			return fmt.Errorf("xebec: the signature cannot be declared: %w", err)
		}
	}
	if cfg.launch == nil {
		launch, err := launchFromEnv()
		if err != nil {
			return err
		}
		cfg.launch = &launch
	}
	// Before anyone can know of this worker: a SIGTERM must never find the default, which ends the process with its batches.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	conn, err := dial(cfg.launch.Socket)
	if err != nil {
		return err
	}
	w := &worker{config: cfg, predict: predict, conn: conn, kept: map[uint64]*keptOutput{}, finished: make(chan struct{})}
	w.batch.w = w
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	var others sync.WaitGroup
	others.Go(w.watchGateway)
	others.Go(func() { w.watchStop(signals) })
	err = w.run()
	conn.shutdown() // wakes watchGateway
	close(w.finished)
	w.cancel(context.Canceled)
	others.Wait()
	conn.close()
	return errors.Join(err, w.gen.close())
}

// run is the loop, on a thread of its own: models with a C library inside expect to be called from one thread.
func (w *worker) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A write to an input, which is mapped read-only, shall be a panic of predict and not the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return w.loop()
}

// watchGateway ends the context when the connection ends, also while predict is busy and nobody reads the socket.
func (w *worker) watchGateway() {
	w.conn.waitHangUp()
	w.cancel(ErrGatewayGone)
	timer := time.NewTimer(w.grace)
	defer timer.Stop()
	select {
	case <-w.finished:
	case <-timer.C:
		fmt.Fprintf(os.Stderr, "xebec: the gateway is gone and the model has not returned for %v: exiting\n", w.grace)
		w.exit(exitGone)
	}
}

// watchStop asks the gateway for leave when the process is told to stop.
func (w *worker) watchStop(signals <-chan os.Signal) {
	var stop <-chan struct{}
	if w.stop != nil {
		stop = w.stop.Done()
	}
	select {
	case <-signals:
		w.leave("SIGTERM")
	case <-stop:
		w.leave("the program asked to stop")
	case <-w.finished:
		return
	}
	<-w.finished // a second SIGTERM changes nothing: the gateway ends who takes too long
}
