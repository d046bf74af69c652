package query

import (
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// wall knows the time of day at a time of [Config.Now], from a look at the clock that is a second old at most, for a
// look for every query is a part of what logging a small one costs.
type wall struct {
	read       atomic.Int64 // when it was looked at, 0: never
	zeroMicros atomic.Int64 // when Config.Now was 0
}

// micros is the Unix time of at; now is Config.Now.
func (w *wall) micros(at, now api.Nanos) int64 {
	if read := w.read.Load(); read == 0 || int64(now)-read >= int64(time.Second) {
		w.zeroMicros.Store(time.Now().UnixMicro() - int64(now)/1000)
		w.read.Store(int64(now))
	}
	return w.zeroMicros.Load() + int64(at)/1000
}

// log hands a sample of the call's queries to the inference log.
func (c *call) log(took api.Nanos) {
	fn, at := c.fn, c.g.wall.micros(c.arrived, c.arrived+took)
	for _, it := range c.items {
		if !fn.Log.Sampled(it.id) {
			continue
		}
		r := &c.record
		*r = inferlog.Record{
			ID: it.id, AtMicros: at, TookMicros: int64(took) / 1000, Code: it.code, Default: it.code != api.OK && fn.Default != nil,
			Confidence: it.confidence, Context: c.context, Inputs: it.inputs, Models: r.Models[:0],
		}
		if it.code == api.OK {
			r.Outputs = it.outputs
		}
		for rest := it.arrived; rest != 0; rest &= rest - 1 {
			m, _ := c.target(rest.First())
			r.Models = append(r.Models, m.ID)
		}
		fn.Log.Add(r)
		r.Context, r.Inputs, r.Outputs = nil, nil, nil
	}
}

// log hands feedback to the inference log, where it has the query too.
func (fn *Function) log(id uint64, l *lesson) {
	if !fn.Log.Sampled(id) {
		return
	}
	f := inferlog.Feedback{ID: id, AtMicros: time.Now().UnixMicro(), Loss: l.loss, Context: l.context}
	switch l.kind {
	case labelled:
		f.Kind, f.Label = inferlog.FeedbackLabel, l.text
	case judged:
		f.Kind = inferlog.FeedbackCorrect
	default:
		f.Kind = inferlog.FeedbackLoss
	}
	fn.Log.Feedback(&f)
}

// driftEvery is how often a model's queries are looked at for drift at most: often enough for a window of some thousand to be of the
// last seconds, seldom enough to cost nothing.
const driftEvery = api.Nanos(time.Millisecond)

// watchDrift shows a sample of what is served to whoever compares it with what was validated.
func (m *member) watchDrift() {
	now, last := int64(m.item.call.g.cfg.Now()), m.model.drifted.Load()
	if now-last >= int64(driftEvery) && !m.item.call.unlisted && m.model.drifted.CompareAndSwap(last, now) {
		m.model.Drift.Load().Observe(m.Inputs, m.Result().Outputs)
	}
}
