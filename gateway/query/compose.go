package query

import (
	"bytes"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

// MaxChains bounds what is known of the models that wait for a request. Chains are as long as pipelines, and a batch seldom has more than one.
const MaxChains = 4 << 10 //xebec:limit names of the models that wait for a call of a model, in bytes

// Continue makes the request a call of a model that evaluates a query, of which o is what is known: it ends at that query's deadline at the
// latest. o's chains get the model's name. An error means that the request would ask a model that waits for it, as api.Cycle. Call it after
// AskFunction or AskModel, and Identify with o's identity.
func (r *Request) Continue(model string, o *api.Origin) error {
	chains := extendChains(o.Call.Chain, model)
	if len(chains) > MaxChains {
		return api.Errorf(api.Cycle, "models that call one another wait for this call in too many ways: the names of their chains have %d bytes, and at most %d are expected", len(chains), MaxChains)
	}
	for chain := range bytes.SplitSeq(chains, []byte{','}) {
		if err := r.checkChain(chain); err != nil {
			return err
		}
	}
	o.Call.Chain, r.until = chains, o.Deadline
	return nil
}

// starting is how long the start takes that a call of a request's model waits for; 0: none does.
type starting struct{ nanos atomic.Int64 }

// CalleeStarts is [api.Identity.Starting].
func (s *starting) CalleeStarts(nanos int64) { s.nanos.Store(max(nanos, 1)) }

// tellCause tells the query that the request is a call for, if there is one, that the member waits for the first replica of its model. If that
// query's deadline passes meanwhile, its model was not too slow.
func (m *member) tellCause() {
	if m.Call == nil || m.Call.Cause.Replica == nil || !m.cold || !m.query.cold || m.shadow {
		return
	}
	c := &m.Call.Cause
	c.Replica.CalleeStarts(c.Batch, c.Query, m.model.StartNanos.Load())
}

// extendChains appends the model to each chain.
func extendChains(chains []byte, model string) []byte {
	var extended []byte
	for chain := range bytes.SplitSeq(chains, []byte{','}) {
		if len(extended) > 0 {
			extended = append(extended, ',')
		}
		if len(chain) > 0 {
			extended = append(append(extended, chain...), ' ')
		}
		extended = append(extended, model...)
	}
	return extended
}

// checkChain reports whether a model of the chain would be asked.
func (r *Request) checkChain(chain []byte) error {
	if r.fn == nil {
		return cycle(chain, "", r.model.ID.Name)
	}
	for i := range r.fn.Candidates {
		if err := cycle(chain, r.fn.Name, r.fn.Candidates[i].Model.ID.Name); err != nil {
			return err
		}
	}
	for i := range r.fn.Shadows {
		if err := cycle(chain, r.fn.Name, r.fn.Shadows[i].Candidate.Model.ID.Name); err != nil {
			return err
		}
	}
	return nil
}

// cycle is the error of a chain that has the model which would be asked, through the function if it is not empty.
func cycle(chain []byte, function, model string) error {
	at := -1
	names := bytes.Split(chain, []byte{' '})
	for i, name := range names {
		if string(name) == model {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	path := bytes.Join(names[at:], []byte(" calls "))
	if function != "" && function != model {
		return api.Errorf(api.Cycle, "%s calls function %s, which asks %s: a model cannot wait for itself", path, function, model)
	}
	return api.Errorf(api.Cycle, "%s calls %s: a model cannot wait for itself", path, model)
}
