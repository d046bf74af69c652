package query

import (
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/drift"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// wall converts a time of Config.Now to the time of day. It reads the clock at most once a second: reading it for every
// query would be a noticeable part of the cost of logging a small one.
type wall struct {
	read       atomic.Int64 // when it last read the clock, 0: never
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

// log passes a sample of the request's queries to the inference log.
func (r *Request) log(took api.Nanos) {
	fn, at := r.fn, r.path.wall.micros(r.arrived, r.arrived+took)
	for _, q := range r.queries {
		if !fn.Log.Sampled(q.ID) {
			continue
		}
		rec := &r.record
		*rec = inferlog.Record{
			ID: q.ID, AtMicros: at, TookMicros: int64(took) / 1000, Code: q.Code, Default: q.Code != api.OK && fn.Default != nil,
			Confidence: q.Confidence, Context: r.context, Inputs: q.Inputs, Models: rec.Models[:0],
		}
		if r.call != nil {
			rec.RequestID = r.call.RequestID
		}
		if q.Code == api.OK {
			rec.Outputs = q.Outputs
		}
		for rest := q.arrived; rest != 0; rest &= rest - 1 {
			rec.Models = append(rec.Models, r.Candidate(rest.First()).ID)
		}
		fn.Log.Add(rec)
		rec.RequestID, rec.Context, rec.Inputs, rec.Outputs = nil, nil, nil, nil
	}
}

// logFeedback passes feedback to the inference log, if the log has the query.
func (fn *Function) logFeedback(id uint64, f *Feedback) {
	if !fn.Log.Sampled(id) {
		return
	}
	entry := inferlog.Feedback{ID: id, AtMicros: time.Now().UnixMicro(), Loss: f.Loss, Context: f.Context}
	switch f.Verdict {
	case VerdictLabel:
		entry.Kind, entry.Label = inferlog.FeedbackLabel, f.LabelText
	case VerdictCorrect:
		entry.Kind = inferlog.FeedbackCorrect
	default:
		entry.Kind = inferlog.FeedbackLoss
	}
	fn.Log.Feedback(&entry)
}

// watchDrift passes a served query to the model's Drift.
func (m *member) watchDrift(w *drift.Watch) {
	if r := m.query.request; !r.unlisted {
		w.Observe(r.path.cfg.Now(), m.Inputs, m.Result().Outputs)
	}
}
