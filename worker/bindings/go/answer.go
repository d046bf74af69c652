//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// handle answers one request with exactly one response. It returns an error if the gateway broke the protocol or is
// gone.
func (w *worker) handle(r *wire.Request) error {
	if w.busy.Waiting() {
		w.busy.Arrived(w.now())
	}
	if r.Generation != w.gen.number {
		return fmt.Errorf("xebec: the gateway sent batch %d for generation %d, but generation %d is mapped", r.Batch, r.Generation, w.gen.number)
	}
	in, out, err := w.blocks(r)
	if err != nil {
		return err
	}
	switch r.Kind {
	case wire.KindGrant, wire.KindDiscard:
		return w.goOn(r, out)
	}
	if r.Batch <= w.last {
		return fmt.Errorf("xebec: the gateway sent batch %d after batch %d", r.Batch, w.last)
	}
	w.last = r.Batch
	switch {
	case !w.shared:
		return w.evaluate(&w.batch, r, in, out)
	case w.streaming && r.Kind == wire.KindPredict:
		return w.beginStream(r, in, out)
	}
	w.dispatch(r, in, out)
	return nil
}

// goOn handles what follows a response: GRANT and DISCARD.
func (w *worker) goOn(r *wire.Request, out []byte) error {
	s := w.findStream(r.Batch)
	switch {
	case s == nil:
		return w.release(r, out)
	case r.Kind == wire.KindGrant:
		return s.grant(r, out)
	}
	return s.discard(r)
}

// evaluate calls the model's code for one request and answers it. b is used by one goroutine at a time.
func (w *worker) evaluate(b *Batch, r *wire.Request, in, out []byte) error {
	res := wire.Response{Batch: r.Batch, Generation: r.Generation, Kind: r.Kind, Count: r.Count, OutOff: r.OutOff}
	switch r.Kind {
	case wire.KindFeedback:
		return w.feedbackBatch(b, r, &res, in, out)
	case wire.KindAccuracy:
		return w.accuracyBatch(b, &res, out)
	}
	return w.predictBatch(b, r, &res, in, out)
}

// blocks returns the request's blocks, after checking that they lie within the slabs: a mistake of the gateway must not
// make the worker read or write anything else.
func (w *worker) blocks(r *wire.Request) (in, out []byte, err error) {
	a, b := w.gen.a.Bytes(), w.gen.b.Bytes()
	if r.InOff > uint64(len(a)) || r.InLen > uint64(len(a))-r.InOff {
		return nil, nil, fmt.Errorf("xebec: the gateway's batch %d has an input block outside of the segment", r.Batch)
	}
	if r.OutCap > 0 && (r.OutOff < w.gen.slabB || r.OutOff > uint64(len(b)) || r.OutCap > uint64(len(b))-r.OutOff) {
		return nil, nil, fmt.Errorf("xebec: the gateway's batch %d has an output block outside of the slab", r.Batch)
	}
	in = a[r.InOff : r.InOff+r.InLen : r.InOff+r.InLen]
	if r.OutCap > 0 {
		out = b[r.OutOff : r.OutOff+r.OutCap : r.OutOff+r.OutCap]
	}
	return in, out, nil
}

func (w *worker) predictBatch(b *Batch, r *wire.Request, res *wire.Response, in, out []byte) error {
	if err := b.begin(w.inputs, r, in); err != nil {
		return err
	}
	if err := b.out.Begin(w.outputs, out, b.n); err != nil {
		return fmt.Errorf("xebec: batch %d: %w", r.Batch, err)
	}
	b.predicting = true
	if w.capabilities&wire.CapConfidences != 0 {
		res.Flags = wire.FlagConfidences
		b.fillConfidences()
	}
	err := w.call(w.ctx, w.predict, b)
	res.WorkNanos = uint64(time.Since(b.began))
	if text, ok := refuses(err); ok && b.n == 1 {
		b.Refuse(0, text)
		err = nil
	}
	fault := b.end()
	if err != nil {
		return w.fail(res, wire.StatusModelError, err, out)
	}
	if len(b.refused) > 0 {
		return w.finishRefused(res, b, fault, out)
	}
	return w.finish(res, b, fault, out)
}

func (w *worker) feedbackBatch(b *Batch, r *wire.Request, res *wire.Response, in, out []byte) error {
	if w.feedback == nil {
		res.Status = wire.StatusUnsupported
		return w.respond(res)
	}
	if err := b.begin(w.labelled, r, in); err != nil {
		return err
	}
	b.labels = w.labelled.Sections()
	err := w.call(w.ctx, w.feedback, b)
	res.WorkNanos = uint64(time.Since(b.began))
	_ = b.end() // feedback has no outputs to check
	if err != nil {
		return w.fail(res, wire.StatusModelError, err, out)
	}
	return w.respond(res)
}

// accuracySchema describes the block that answers ACCURACY: one f64.
var accuracySchema = wire.NewSchema([]api.TensorSpec{{DType: api.Float64}})

func (w *worker) accuracyBatch(b *Batch, res *wire.Response, out []byte) error {
	if w.accuracy == nil {
		res.Status = wire.StatusUnsupported
		return w.respond(res)
	}
	var accuracy float64
	start := time.Now()
	err := w.call(w.ctx, func(ctx context.Context, _ *Batch) (err error) {
		accuracy, err = w.accuracy(ctx)
		return err
	}, nil)
	res.WorkNanos = uint64(time.Since(start))
	if err != nil {
		return w.fail(res, wire.StatusModelError, err, out)
	}
	if err := b.out.Begin(accuracySchema, out, 1); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b.out.Fixed(0), math.Float64bits(accuracy))
	return w.finish(res, b, nil, out)
}

// finish answers with the outputs that b has built, in place or kept for a GRANT.
func (w *worker) finish(res *wire.Response, b *Batch, fault error, out []byte) error {
	n, kept, err := b.out.Finish()
	if fault != nil {
		err = fault // the first wrong output says more than a missing one
	}
	if err != nil {
		res.Flags = 0
		return w.fail(res, wire.StatusBadOutput, err, out)
	}
	if kept == nil {
		res.OutLen = n
		return w.respond(res)
	}
	return w.keep(res, kept)
}

// keep answers NEED_MORE and keeps the block for the GRANT.
func (w *worker) keep(res *wire.Response, block []byte) error {
	w.lockAnswers()
	w.kept[res.Batch] = &keptOutput{block: block, response: *res}
	w.unlockAnswers()
	res.Status, res.Flags, res.Need = wire.StatusNeedMore, 0, uint64(len(block))
	return w.respond(res)
}

// finishRefused answers with the outputs that b has built and a status for each query. Such batches are rare, so the block is laid out
// again.
func (w *worker) finishRefused(res *wire.Response, b *Batch, fault error, out []byte) error {
	if w.refusing == nil {
		return w.fail(res, wire.StatusModelError, errors.New("xebec: the model has refused queries, which needs version 2 of the protocol"), out)
	}
	if fault != nil {
		return w.fail(res, wire.StatusBadOutput, fault, out)
	}
	block, err := w.layOutRefused(b, out, int(res.Count))
	if err != nil {
		return w.fail(res, wire.StatusBadOutput, err, out)
	}
	res.Flags |= wire.FlagStatuses
	if len(block) > len(out) {
		return w.keep(res, block)
	}
	res.OutLen = uint64(copy(out, block))
	return w.respond(res)
}

// layOutRefused completes the outputs that b has built in out, or in memory of its own, and returns a block of them with a status for each query.
func (w *worker) layOutRefused(b *Batch, out []byte, count int) ([]byte, error) {
	for i := range b.refused {
		b.fillPlaceholders(i)
	}
	n, built, err := b.out.Finish()
	if err != nil {
		return nil, err
	}
	if built == nil {
		built = bytes.Clone(out[:n]) // the block is the gateway's, and a private copy is read as it was checked
	}
	v := refusedValues{refused: b.refused, count: count, outputs: w.outputs.Sections()}
	if err := w.check(&v.built, built, count); err != nil {
		return nil, err
	}
	block := make([]byte, w.refusing.Size(&v))
	_, err = w.refusing.Write(block, &v)
	return block, err
}

// refusedValues presents a block that was built, and the statuses of its queries.
type refusedValues struct {
	built          wire.Reader
	refused        map[int]refusal
	count, outputs int
	value          api.Value
	status         [2]byte
}

func (v *refusedValues) Len() int { return v.count }

func (v *refusedValues) At(i, s int) *api.Value {
	why := v.refused[i]
	switch s - v.outputs {
	case 0:
		binary.LittleEndian.PutUint16(v.status[:], uint16(why.status))
		v.value = api.Value{Data: v.status[:]}
	case 1:
		v.value = api.Value{Data: []byte(why.text)}
	default:
		data, dims, err := v.built.Item(i, s, nil)
		if err != nil {
			panic(err) // the block was built here, and checked
		}
		v.value = api.Value{Data: data, Dims: dims}
	}
	return &v.value
}

// release answers a GRANT with the kept outputs, or drops them for a DISCARD.
func (w *worker) release(r *wire.Request, out []byte) error {
	w.lockAnswers()
	kept := w.kept[r.Batch]
	delete(w.kept, r.Batch)
	w.unlockAnswers()
	if kept == nil {
		return fmt.Errorf("xebec: the gateway sent %v for batch %d, which did not answer NEED_MORE", r.Kind, r.Batch)
	}
	res := kept.response
	res.Generation, res.OutOff = r.Generation, r.OutOff
	if r.Kind == wire.KindDiscard {
		res.Flags = 0
		return w.respond(&res)
	}
	if len(out) < len(kept.block) {
		return fmt.Errorf("xebec: the gateway granted batch %d %d bytes, but it needs %d", r.Batch, len(out), len(kept.block))
	}
	res.OutLen = uint64(copy(out, kept.block))
	return w.respond(&res)
}

// fail answers with an error text instead of outputs.
func (w *worker) fail(res *wire.Response, status wire.Status, why error, out []byte) error {
	text := wire.CutText(strings.ToValidUTF8(why.Error(), "�"), len(out))
	res.Status, res.Flags = status, 0
	res.OutLen = uint64(copy(out, text))
	return w.respond(res)
}

// call runs the model's code. A panic in it is an error of its batch.
func (w *worker) call(ctx context.Context, f func(context.Context, *Batch) error, b *Batch) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case misuse:
			err = errors.New(string(p))
		default:
			err = fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
		}
	}()
	return f(ctx, b)
}
