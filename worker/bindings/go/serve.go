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

	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/worker/wire"
)

// ErrGatewayGone says that the gateway closed the connection or died.
var ErrGatewayGone = errors.New("xebec: the gateway closed the connection")

// RefusedError is the gateway's reason for refusing the worker.
type RefusedError struct {
	Code uint16 // a code of section 2 of the protocol
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("xebec: the gateway refused this worker (code %d): %s", e.Code, e.Text)
}

// goneGrace is how long predict may take to return after its context has ended because the gateway is gone. A worker
// without a gateway is useless and may hold a device that its replacement needs.
const goneGrace = 5 * time.Second

// exitGone is the exit status of a process that did not return within goneGrace.
const exitGone = 69 // EX_UNAVAILABLE of sysexits.h

// Serve connects to the gateway that started this process and answers its batches with predict until it is told to
// stop. It returns nil after an orderly end (SIGTERM, or the gateway's DRAIN), a *RefusedError if the gateway refuses
// the worker, and ErrGatewayGone if the gateway is gone.
//
// predict is called for one batch at a time, on one goroutine that is locked to its thread, unless [WithConcurrency] or
// [WithStreams] is given. Its context ends when the gateway is gone, when Serve returns, and when no further output of a
// stream is wanted. [Batch.Budget] is a batch's time budget. A process serves once at a time.
func Serve(predict func(ctx context.Context, b *Batch) error, options ...Option) error {
	if predict == nil {
		return errors.New("xebec: predict is nil")
	}
	return serve(predict, options)
}

// serve is Serve, and ServeSteps without predict.
func serve(predict func(ctx context.Context, b *Batch) error, options []Option) error {
	cfg := config{capabilities: wire.CapRing, exit: os.Exit, grace: goneGrace}
	for _, option := range options {
		option(&cfg)
	}
	if cfg.signature != nil {
		if err := wire.CheckSignature(cfg.signature); err != nil {
			return fmt.Errorf("xebec: the signature cannot be declared: %w", err)
		}
	}
	if err := cfg.settle(); err != nil {
		return err
	}
	if cfg.launch == nil {
		launch, err := launchFromEnv()
		if err != nil {
			return err
		}
		cfg.launch = &launch
	}
	// Before the gateway can know this worker: the default action of SIGTERM would end the process with its batches.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	conn, err := dial(cfg.launch.Socket)
	if err != nil {
		return err
	}
	w := &worker{config: cfg, predict: predict, conn: conn, busy: busypoll.New(cfg.launch.BusyPoll), began: time.Now(), kept: map[uint64]*keptOutput{}, streams: map[uint64]*stream{}, finished: make(chan struct{})}
	w.batch.w = w
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	var others sync.WaitGroup
	others.Go(w.watchGateway)
	others.Go(func() { w.watchStop(signals) })
	w.startLanes()
	err = w.run()
	conn.shutdown() // wakes watchGateway, which ends the context of what still runs
	w.stopLanes()
	close(w.finished)
	w.cancel(context.Canceled)
	others.Wait()
	if w.calling != nil {
		w.calling.close()
	}
	conn.close()
	return errors.Join(err, w.gen.close())
}

// run runs the loop on a thread of its own: models that wrap a C library expect to be called from one thread.
func (w *worker) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A write to an input, which is mapped read-only, panics in predict instead of ending the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return w.loop()
}

// watchGateway ends the context when the connection ends, also while predict runs and the socket is not read.
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

// watchStop requests to leave when the process is told to stop.
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
	<-w.finished // a second SIGTERM changes nothing: the gateway kills a worker that takes too long
}
