package query

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Queries are the argument of Do: one or several queries to one function or one model.
type Queries struct {
	// Function is the function to ask. If it is empty Model is asked: a version or label of it or, if Version is empty
	// too, the version that its traffic rules choose.
	Function string
	Model    api.ModelID
	// Inputs has for each query one value for each input of the signature.
	Inputs [][]api.Value
	// Within replaces the latency objective; 0: the function's, or DirectDeadline for a model.
	Within time.Duration

	// The remaining fields are for functions only. Context and Salt are as for SetContext, Models and Version as for
	// Restrict and RestrictVersion, TTL as for SetTTL. MinConfidence replaces the function's, unless it is 0.
	Context, Salt string
	Models        []string
	Version       string
	MinConfidence float64
	TTL           time.Duration
}

// Answer is the result of one query, with memory of its own.
type Answer struct {
	ID   uint64
	Code api.Code
	// Outputs are valid if Code is OK. Confidence is NaN if no confidence was computed.
	Outputs    []api.Value
	Confidence float64
	// Default is the JSON of the function's default output, if Code is not OK and the function has one.
	Default []byte
	// The models that were asked, by their results, as in Parts.
	Answered, Late, Failed, Dropped []api.ModelID
}

// Do answers queries of a caller in this process, on the same path as those of any dialect. It waits for the answers or
// the end of ctx. An error means that there are no answers: the queries are malformed, what they ask does not exist, or
// ctx has ended. The caller keeps the inputs. Do stores the answers in dst and reuses the memory of its elements, if it
// is large enough.
func (p *Path) Do(ctx context.Context, qs *Queries, dst []Answer) ([]Answer, error) {
	w := p.waits.Get().(*wait)
	w.Open()
	if err := w.prepare(qs); err != nil {
		w.Refuse()
		return nil, err
	}
	if err := w.do(ctx); err != nil {
		return nil, err
	}
	dst = w.appendAnswers(dst[:0])
	w.Release()
	return dst, nil
}

// Feedback takes feedback of a caller in this process, on the same path as that of any dialect. If input is not nil it
// identifies the prediction, instead of f.QueryID.
func (p *Path) Feedback(function string, f Feedback, input []api.Value) (Outcome, error) {
	w := p.waits.Get().(*wait)
	w.Open()
	err := w.AskFeedback(function)
	if err == nil {
		err = w.prepareFeedback(&f, input)
	}
	if err != nil {
		w.Refuse()
		return 0, err
	}
	defer w.Drop()
	return w.Learn(&f), nil
}

// asksAtOnce is the number of queries of one Ask in a model's queue at a time: enough for the model's batches, and few
// enough that other queries do not wait long behind them.
const asksAtOnce = 64 //xebec:limit warm-up and validation queries in a model's queue at a time

// Ask makes one model version evaluate queries for the gateway itself, even if the version is Closed. The queries bypass
// caches and traffic rules and are not counted. inputs has the values of each query as in the signature; the caller keeps
// them. Each query may take up to within. If ctx ends, or the model loses its replicas, Ask returns the answers so far
// and the reason.
func (p *Path) Ask(ctx context.Context, m *Model, inputs [][]api.Value, within time.Duration) ([]Answer, error) {
	return p.ask(ctx, m, inputs, within, false)
}

// WarmUp is Ask for the first queries of replicas, and for replicas of low priority: the scheduler learns nothing from how long they
// take.
func (p *Path) WarmUp(ctx context.Context, m *Model, inputs [][]api.Value, within time.Duration) ([]Answer, error) {
	return p.ask(ctx, m, inputs, within, true)
}

func (p *Path) ask(ctx context.Context, m *Model, inputs [][]api.Value, within time.Duration, trial bool) ([]Answer, error) {
	answers := make([]Answer, 0, len(inputs))
	for len(inputs) > 0 {
		if err := ctx.Err(); err != nil {
			return answers, err
		}
		n := min(len(inputs), asksAtOnce, p.cfg.MaxBatch)
		w := p.waits.Get().(*wait)
		w.Open()
		w.Delivered() // Drain need not wait for it
		w.model, w.queue, w.unlisted, w.trial, w.arrived = m, m.Direct, true, trial, p.cfg.Now()
		w.Within(within * time.Duration(n))
		for _, values := range inputs[:n] {
			if err := w.next(values); err != nil {
				w.Drop()
				return answers, err
			}
		}
		w.Retain()
		w.Submit()
		if !w.answered() {
			select {
			case <-w.done:
			case <-ctx.Done():
				w.Cancel()
				<-w.done
			}
		}
		answers = w.appendAnswers(answers)
		w.Release()
		if inputs = inputs[n:]; m.Ready.Load() == 0 && answers[len(answers)-1].Code != api.OK {
			return answers, fmt.Errorf("%s has lost its replicas after %d of its queries", m.ID, len(answers))
		}
	}
	return answers, nil
}

// wait is a request whose caller waits for it.
type wait struct {
	Request
	done  chan struct{} // capacity 1
	state atomic.Uint32
}

// The states of wait.state. Many requests are delivered before their callers wait, those that hit the cache for one, and a channel costs as
// much as all other synchronisation of a request.
const (
	waitOpen      uint32 = iota
	waitSleeping         // the caller waits for done
	waitDelivered        // without its caller waiting
)

// answered reports whether the request was delivered. Otherwise the caller must receive from done or leave.
func (w *wait) answered() bool { return !w.state.CompareAndSwap(waitOpen, waitSleeping) }

func newWait(p *Path) *wait {
	w := &wait{done: make(chan struct{}, 1)}
	w.Init(p, w)
	return w
}

// Settled leaves the results for the caller.
func (w *wait) Settled() api.Code { return w.Code() }

// Deliver wakes the caller.
func (w *wait) Deliver() {
	if !w.state.CompareAndSwap(waitOpen, waitDelivered) {
		w.done <- struct{}{}
	}
}

// Released returns the request to its pool.
func (w *wait) Released() {
	if w.state.Swap(waitOpen) == waitSleeping {
		select {
		case <-w.done: // its caller has left
		default:
		}
	}
	w.path.waits.Put(w)
}

// do submits the request and waits for it. If it returns nil the caller must release the request.
func (w *wait) do(ctx context.Context) error {
	w.Retain()
	w.Submit()
	if w.answered() {
		w.Delivered()
		return nil
	}
	select {
	case <-w.done:
		w.Delivered()
		return nil
	case <-ctx.Done():
		w.Cancel()
		w.Delivered()
		w.Release()
		return ctx.Err()
	}
}

// prepare copies the queries into the request.
func (w *wait) prepare(qs *Queries) error {
	if err := w.address(qs); err != nil {
		return err
	}
	if len(qs.Inputs) == 0 {
		return api.Errorf(api.InvalidArgument, "expected at least one query, found none")
	}
	for i, values := range qs.Inputs {
		if err := checkValues(w.model.Signature.Inputs, values); err != nil {
			return api.Errorf(api.InvalidArgument, "query %d: %w", i, err)
		}
		if err := w.next(values); err != nil {
			return err
		}
	}
	return nil
}

// address finds the function or model, and sets the request's options.
func (w *wait) address(qs *Queries) error {
	var err error
	if qs.Function == "" {
		err = w.AskModel(qs.Model.Name, qs.Model.Version)
	} else {
		err = w.AskFunction(qs.Function)
	}
	if err != nil {
		return err
	}
	if qs.Within > 0 {
		w.Within(qs.Within)
	}
	if qs.Function == "" {
		if len(qs.Context)+len(qs.Salt)+len(qs.Models)+len(qs.Version) > 0 || qs.MinConfidence != 0 || qs.TTL != 0 {
			return api.Errorf(api.InvalidArgument, "queries to a model have inputs and a time limit only: ask a function")
		}
		return nil
	}
	if len(qs.Context)+len(qs.Salt) > 0 {
		if err := w.SetContext([]byte(qs.Context), []byte(qs.Salt)); err != nil {
			return err
		}
	}
	if qs.MinConfidence > 0 {
		if err := w.SetMinConfidence(qs.MinConfidence); err != nil {
			return err
		}
	}
	w.SetTTL(api.Nanos(max(qs.TTL, 0)))
	if len(qs.Models) > 0 {
		names := make([][]byte, len(qs.Models))
		for i, name := range qs.Models {
			names[i] = []byte(name)
		}
		if err := w.Restrict(names); err != nil {
			return err
		}
	}
	if qs.Version != "" {
		return w.RestrictVersion([]byte(qs.Version))
	}
	return nil
}

// next begins the next query with a copy of the values.
func (w *wait) next(values []api.Value) error {
	inputs, err := w.Next()
	if err != nil {
		return err
	}
	for i := range inputs {
		copyValue(&inputs[i], &values[i])
	}
	return nil
}

func (w *wait) prepareFeedback(f *Feedback, input []api.Value) error {
	if len(f.Context) > MaxContextBytes {
		return api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d", len(f.Context), MaxContextBytes)
	}
	sig := &w.model.Signature
	if f.Verdict == VerdictLabel {
		outputs := sig.Outputs
		if at := w.fn.Label; at > 0 {
			outputs = outputs[at-1 : at]
		}
		if err := checkValues(outputs, f.Label); err != nil {
			return api.Errorf(api.InvalidArgument, "label: %w", err)
		}
	} else if !(f.Loss >= 0 && f.Loss <= 1) {
		return api.Errorf(api.InvalidArgument, "loss: expected a number from 0 to 1, found %v", f.Loss)
	}
	f.Of = nil
	if input == nil {
		return nil
	}
	if err := checkValues(sig.Inputs, input); err != nil {
		return api.Errorf(api.InvalidArgument, "input: %w", err)
	}
	if err := w.next(input); err != nil {
		return err
	}
	f.Of = w.Query(0)
	return nil
}

// appendAnswers copies the results and reuses the memory behind dst.
func (w *wait) appendAnswers(dst []Answer) []Answer {
	for _, q := range w.queries {
		n := len(dst)
		if n < cap(dst) {
			dst = dst[:n+1]
		} else {
			dst = append(dst, Answer{})
		}
		a := &dst[n]
		a.ID, a.Code, a.Confidence, a.Default = q.ID, q.Code, q.Confidence, nil
		if w.fn != nil && q.Code != api.OK {
			a.Default = w.fn.Default
		}
		a.Outputs = copyValues(a.Outputs, q)
		parts := q.Parts()
		a.Answered = w.appendIDs(a.Answered[:0], parts.Answered)
		a.Late = w.appendIDs(a.Late[:0], parts.Late)
		a.Failed = w.appendIDs(a.Failed[:0], parts.Failed)
		a.Dropped = w.appendIDs(a.Dropped[:0], parts.Dropped)
	}
	return dst
}

func (w *wait) appendIDs(dst []api.ModelID, set selection.Set) []api.ModelID {
	for rest := set; rest != 0; rest &= rest - 1 {
		dst = append(dst, w.Candidate(rest.First()).ID)
	}
	return dst
}

// copyValues copies the outputs of a query, if it has any.
func copyValues(dst []api.Value, q *Query) []api.Value {
	if q.Code != api.OK {
		return dst[:0]
	}
	for len(dst) < len(q.Outputs) && len(dst) < cap(dst) {
		dst = dst[:len(dst)+1]
	}
	for len(dst) < len(q.Outputs) {
		dst = append(dst, api.Value{})
	}
	dst = dst[:len(q.Outputs)]
	for i := range dst {
		copyValue(&dst[i], &q.Outputs[i])
	}
	return dst
}

// copyValue copies a value and reuses the memory of dst.
func copyValue(dst, src *api.Value) {
	dst.Data, dst.Dims = append(dst.Data[:0], src.Data...), append(dst.Dims[:0], src.Dims...)
}

// checkValues returns an error if values do not match specs, so that no malformed input reaches a worker.
func checkValues(specs []api.TensorSpec, values []api.Value) error {
	if len(values) != len(specs) {
		return fmt.Errorf("%d values: expected %d", len(values), len(specs))
	}
	for i := range specs {
		if err := specs[i].Check(&values[i]); err != nil {
			return fmt.Errorf("%s: %w", specs[i].Name, err)
		}
	}
	return nil
}
