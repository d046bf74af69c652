package query

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Options of a request to a function. Call these after AskFunction and before Submit.

// MaxContextBytes bounds a caller's context, which is a name and not a document.
const MaxContextBytes = 256 //xebec:limit a caller's context

// SetContext sets the request's user or session, and the salt that distinguishes equal inputs for the cache. Both are
// copied.
func (r *Request) SetContext(context, salt []byte) error {
	if len(context) > MaxContextBytes {
		return api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d; it names a user or a session", len(context), MaxContextBytes)
	}
	r.keepContext(context, salt)
	return nil
}

// SetStream lets s take the outputs of the request's only query after the first one, if its model answers in streams. Call it before Submit. Functions
// that ask several models have first outputs only.
func (r *Request) SetStream(s api.Stream) { r.stream = s }

// MaxParametersBytes bounds the parameters of a request, which say how to answer and not what.
const MaxParametersBytes = 4 << 10 //xebec:limit `parameters` of a request, as JSON

// SetParameters passes a JSON object to models that ask for parameters. It is copied; its bytes tell otherwise equal queries apart in caches. Call it
// before SetContext.
func (r *Request) SetParameters(object []byte) error {
	if len(object) > MaxParametersBytes {
		return api.Errorf(api.InvalidArgument, "parameters: %d bytes: expected at most %d", len(object), MaxParametersBytes)
	}
	r.parameters = append(r.parameters[:0], object...)
	return nil
}

// Identify says which request of a client this is. id must not change until the request is released. Call it before Submit.
func (r *Request) Identify(id *api.Identity) { r.call, id.Starting = id, &r.starting }

func (r *Request) keepContext(context, salt []byte) {
	if len(context)+len(salt)+len(r.parameters) == 0 { // the same as a request that sets neither
		r.context, r.salt, r.contextSalt = nil, nil, nil
		return
	}
	n := len(context)
	r.text = append(r.text[:0], context...)
	if k := len(r.parameters); k > 0 {
		r.text = append(append(r.text, byte(k), byte(k>>8)), r.parameters...)
	}
	r.text = append(r.text, salt...)
	m := len(r.text)
	r.text = append(r.text, byte(n), byte(n>>8))
	r.context, r.salt, r.contextSalt = r.text[:n:n], r.text[n:m:m], r.text
}

// SetMinConfidence replaces the function's MinConfidence.
func (r *Request) SetMinConfidence(confidence float64) error {
	if r.fn == nil {
		return api.Errorf(api.InvalidArgument, "min_confidence: %s is a model: expected a function, which may have a default output to give instead", r.model.ID)
	}
	if confidence > 0 && r.fn.Default == nil {
		return api.Errorf(api.InvalidArgument, "min_confidence: function %s has no default output to give instead", r.fn.Name)
	}
	r.minConfidence = confidence
	return nil
}

// SetTTL sets until when, from arrival, the queries are worth evaluating for the cache, if that is later than their
// deadline.
func (r *Request) SetTTL(d api.Nanos) { r.ttl = min(d, api.Nanos(MaxSLO)) }

// Restrict allows only these candidates, each given as name or name@version. The version may be any loaded one of a candidate's model, or a label: the
// request then asks it in the candidate's place, whatever the function's declaration and traffic rules say. Feedback on its predictions
// counts for the version and teaches the policy nothing.
func (r *Request) Restrict(models [][]byte) error {
	fn := r.fn
	if fn == nil {
		return api.Errorf(api.InvalidArgument, "models: %s is a model itself: expected a function", r.model.ID)
	}
	for _, name := range models {
		found := false
		for i := range fn.Candidates {
			if r.named(i, name) {
				r.only, found = r.only.With(i), true
			}
		}
		if !found {
			var err error
			if found, err = r.askOutside(name); err != nil {
				return err
			}
		}
		if !found {
			return api.Errorf(api.InvalidArgument, "models: %q is no candidate of function %s: expected some of %s", name, fn.Name, fn.candidateNames())
		}
	}
	return nil
}

// RestrictVersion allows only candidates that have this version, and makes the request ask that version. Call it after
// Restrict.
func (r *Request) RestrictVersion(version []byte) error {
	fn, only := r.fn, r.only
	if only == 0 {
		only = selection.All(len(fn.Candidates))
	}
	for i := range fn.Candidates {
		switch c := &fn.Candidates[i]; {
		case string(version) == c.Model.ID.Version:
			r.force(i, false)
		case c.Route != nil && string(version) == c.Route.Model.ID.Version:
			r.force(i, true)
		default:
			only = only.Without(i)
		}
	}
	if only == 0 {
		return api.Errorf(api.InvalidArgument, "version: no candidate of function %s has the version %q: expected one of %s", fn.Name, version, fn.candidateNames())
	}
	r.only = only
	return nil
}

// named reports whether "name" or "name@version" names candidate i. If it names a version, the request asks that version.
func (r *Request) named(i int, name []byte) bool {
	c := &r.fn.Candidates[i]
	switch {
	case string(name) == c.Model.ID.Name:
		return true
	case string(name) == c.Model.ref:
		r.force(i, false)
		return true
	case c.Route != nil && string(name) == c.Route.Model.ref:
		r.force(i, true)
		return true
	}
	return false
}

// force makes the request ask one of the candidate's versions, whatever its rule says.
func (r *Request) force(i int, other bool) {
	if r.forced = r.forced.With(i); other {
		r.forcedOther = r.forcedOther.With(i)
	}
}

// pickAllowed chooses another candidate for the request if the candidate that the plan has picked is not allowed.
func (r *Request) pickAllowed() {
	if r.only == 0 || r.fn.Selects || r.only.Has(r.candidate) {
		return
	}
	allowed, _ := r.allowed()
	if allowed == 0 {
		allowed = r.only
	}
	r.candidate = allowed.First()
	r.model, r.queue = r.target(r.candidate)
}
