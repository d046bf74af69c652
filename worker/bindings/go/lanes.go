//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/xebec-serving/xebec/worker/wire"
)

// maxConcurrency is how many batches a worker can evaluate at once: the gateway's rings have 64 entries, of which it keeps some.
const maxConcurrency = 62 //xebec:limit batches or streams that a worker in Go evaluates at once

// defaultStreams is how many streams a worker evaluates at once unless WithConcurrency says otherwise.
const defaultStreams = 16 //xebec:limit streams of a worker in Go, without WithConcurrency

// lanes run the code of a model that is called for several batches at once. A lane is a goroutine with a Batch of its own. As many batches wait
// for a lane as there are lanes; further ones wait in the ring, since the loop then waits, too. A lane needs nothing of the loop to go on.
//
// Feedback and questions for the accuracy have a lane of their own, so that they wait for no prediction. A model that answers in streams has that
// lane only: each of its streams has a goroutine, or a stepper runs them all.
type lanes struct {
	predictions, others chan task
}

// task is a request with its blocks.
type task struct {
	request wire.Request
	in, out []byte
}

// startLanes is called once, before the loop runs.
func (w *worker) startLanes() {
	if !w.shared {
		return
	}
	n := w.concurrency
	if w.streaming {
		n = 0
	}
	if w.steps != nil {
		w.running.Go(func() { w.steps.run(w) })
	}
	w.lanes = lanes{predictions: make(chan task, n), others: make(chan task, 1)}
	for range n {
		w.running.Go(func() { w.runLane(w.lanes.predictions) })
	}
	w.running.Go(func() { w.runLane(w.lanes.others) })
}

// stopLanes returns when the model's code has returned everywhere.
func (w *worker) stopLanes() {
	if w.shared {
		close(w.lanes.predictions)
		close(w.lanes.others)
		w.running.Wait()
	}
}

func (w *worker) runLane(tasks <-chan task) {
	debug.SetPanicOnFault(true) // as in run
	b := &Batch{w: w}
	for t := range tasks {
		if err := w.evaluate(b, &t.request, t.in, t.out); err != nil {
			w.broken(err)
		}
		w.answered()
	}
}

// dispatch hands a request to a lane.
func (w *worker) dispatch(r *wire.Request, in, out []byte) {
	w.answers.Lock()
	w.open++
	w.answers.Unlock()
	to := w.lanes.predictions
	if r.Kind != wire.KindPredict {
		to = w.lanes.others
	}
	to <- task{*r, in, out}
}

// answered notes that a request which the loop has handed on is answered. A loop that waits for the last one to drain is woken: it has nothing more
// to read.
func (w *worker) answered() {
	w.answers.Lock()
	w.open--
	last := w.open == 0 && w.draining
	w.answers.Unlock()
	if last {
		w.conn.stopReading()
	}
}

// broken ends the loop with an error that another goroutine has met.
func (w *worker) broken(err error) {
	w.answers.Lock()
	if w.failure == nil {
		w.failure = err
	}
	w.answers.Unlock()
	w.conn.shutdown()
}

// drained reports whether the gateway has drained the worker and everything is answered.
func (w *worker) drained() bool {
	w.lockAnswers()
	defer w.unlockAnswers()
	return w.draining && w.open == 0
}

// ended returns why the loop ends after an error of the connection.
func (w *worker) ended(err error) error {
	if errors.Is(err, ErrGatewayGone) && w.drained() { // see answered
		return nil
	}
	w.lockAnswers()
	failure := w.failure
	w.unlockAnswers()
	if failure != nil {
		err = failure
	}
	return w.findRefusal(err)
}

// lockAnswers guards what lanes and streams share with the loop. A worker that has neither needs no lock.
func (w *worker) lockAnswers() {
	if w.shared {
		w.answers.Lock()
	}
}

func (w *worker) unlockAnswers() {
	if w.shared {
		w.answers.Unlock()
	}
}

// settle derives what the options say together, and checks it.
func (c *config) settle() error {
	c.streaming = c.capabilities&wire.CapStreams != 0
	if c.concurrency == 0 {
		c.concurrency = 1
		if c.streaming {
			c.concurrency = defaultStreams
		}
		if c.steps != nil {
			c.concurrency = maxConcurrency
		}
	}
	if c.concurrency < 1 || c.concurrency > maxConcurrency {
		return fmt.Errorf("xebec: the concurrency is %d, expected 1 to %d", c.concurrency, maxConcurrency)
	}
	c.shared = c.streaming || c.concurrency > 1
	return nil
}
