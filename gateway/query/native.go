package query

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// maxSLO bounds what a request may ask for: queries that wait longer are no queries but jobs.
const maxSLO = 10 * time.Minute

// isRaw reports whether a body of this type is the input itself. Everything else is taken for JSON, for curl says
// application/x-www-form-urlencoded unless told otherwise.
func isRaw(contentType []byte) bool {
	if len(contentType) == 0 || bytes.HasPrefix(contentType, jsonType) {
		return false
	}
	for _, p := range rawTypes {
		if bytes.HasPrefix(contentType, p) {
			return true
		}
	}
	return false
}

var (
	jsonType = []byte("application/json")
	rawTypes = [][]byte{[]byte("application/octet-stream"), []byte("text/plain"), []byte("image/"), []byte("audio/"), []byte("video/")}
)

// borrowBytes is the size from which a raw body is not copied: its handler stays until the scheduler has released the query,
// so that Hertz's buffer can be the query's. Below it, the copy is cheaper than the goroutine.
const borrowBytes = 32 << 10

// rawInput makes the body the only input of the only query.
func (c *call) rawInput(body []byte) error {
	specs := c.model.Signature.Inputs
	if len(specs) != 1 {
		return api.Errorf(api.InvalidArgument, "a raw body is one input, but the model takes %d: send JSON", len(specs))
	}
	spec, n := specs[0], len(body)
	vals, err := c.Next()
	if err != nil {
		return err
	}
	v := &vals[0]
	v.Dims = v.Dims[:0]
	switch {
	case spec.DType == api.Bytes && len(spec.Shape) == 0:
	case spec.DType == api.Bytes:
		return api.Errorf(api.InvalidArgument, "a raw body is one string of bytes, but the model takes %s: send JSON", spec)
	case spec.Fixed():
		if n != spec.ItemBytes() {
			return api.Errorf(api.InvalidArgument, "the raw body has %d bytes: expected %d, %s little-endian and row-major", n, spec.ItemBytes(), spec)
		}
	default:
		if v.Dims, err = rawDims(v.Dims, spec, n); err != nil {
			return err
		}
	}
	if n >= borrowBytes && !(c.fn != nil && (c.fn.Selects || len(c.fn.Shadows)+len(c.fn.Tees) > 0)) { // others than the answer's may be late with it
		c.own, c.borrowed, c.lent = v.Data[:0], true, true
		v.Data = body
		return nil
	}
	v.Data = append(v.Data[:0], body...)
	return nil
}

// rawDims finds the one dimension that is not declared.
func rawDims(dims []int64, spec api.TensorSpec, n int) ([]int64, error) {
	unit, open := int64(spec.DType.Size()), -1
	for i, d := range spec.Shape {
		if d >= 0 {
			unit *= d
		} else if open >= 0 {
			return dims, api.Errorf(api.InvalidArgument, "a raw body says nothing of the dimensions of %s: send JSON", spec)
		} else {
			open = i
		}
	}
	if unit == 0 || int64(n)%unit != 0 {
		return dims, api.Errorf(api.InvalidArgument, "the raw body has %d bytes: expected a multiple of %d for %s", n, unit, spec)
	}
	dims = append(dims, spec.Shape...)
	dims[open] = int64(n) / unit
	return dims, nil
}

// MaxContextBytes bounds a caller's context: it is a name, not a document.
const MaxContextBytes = 256

// options takes what a request says of its queries beside their inputs: the context (the header's, or else the body's), who may
// be asked, how sure and how long they are to be.
func (c *call) options(contextHeader []byte) error {
	r, fn := &c.native, c.fn
	ctx := r.Context
	if len(contextHeader) > 0 {
		ctx = contextHeader
	}
	if len(ctx) > MaxContextBytes {
		return api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d; it names a user or a session", len(ctx), MaxContextBytes)
	}
	c.keep(ctx, r.Salt)
	c.minConfidence = fn.MinConfidence
	if r.Has == 0 {
		return nil
	}
	if r.Has&tensorjson.HasMinConfidence != 0 {
		if c.minConfidence = r.MinConfidence; fn.Default == nil && c.minConfidence > 0 {
			return api.Errorf(api.InvalidArgument, "min_confidence: function %s has no default output to give instead", fn.Name)
		}
	}
	if r.Has&tensorjson.HasTTL != 0 {
		c.ttl = api.Nanos(min(r.TTLMillis*1e6, float64(maxSLO)))
	}
	if r.Has&(tensorjson.HasModels|tensorjson.HasVersion) != 0 {
		return c.restrict()
	}
	return nil
}

// keep copies context and salt: the body is Hertz's again before they are needed last.
func (c *call) keep(context, salt []byte) {
	if len(context)+len(salt) == 0 { // as a call for which nothing is kept
		c.context, c.salt, c.contextSalt = nil, nil, nil
		return
	}
	n, m := len(context), len(context)+len(salt)
	c.text = append(append(append(c.text[:0], context...), salt...), byte(n), byte(n>>8))
	c.context, c.salt, c.contextSalt = c.text[:n:n], c.text[n:m:m], c.text
}

// restrict reads which candidates a request allows.
func (c *call) restrict() error {
	fn, r := c.fn, &c.native
	only := selection.All(len(fn.Candidates))
	if r.Has&tensorjson.HasModels != 0 {
		only = 0
		for _, name := range r.Models {
			found := false
			for i := range fn.Candidates {
				if c.names(i, name) {
					only, found = only.With(i), true
				}
			}
			if !found {
				return api.Errorf(api.InvalidArgument, "models: %q is no candidate of function %s: expected some of %s", name, fn.Name, fn.candidateNames())
			}
		}
	}
	if r.Has&tensorjson.HasVersion != 0 {
		for i := range fn.Candidates {
			switch of := &fn.Candidates[i]; {
			case string(r.Version) == of.Model.ID.Version:
				c.force(i, false)
			case of.Route != nil && string(r.Version) == of.Route.Model.ID.Version:
				c.force(i, true)
			default:
				only = only.Without(i)
			}
		}
		if only == 0 {
			return api.Errorf(api.InvalidArgument, "version: no candidate of function %s has the version %q: expected one of %s", fn.Name, r.Version, fn.candidateNames())
		}
	}
	c.only = only
	if !fn.Selects && !only.Has(c.candidate) {
		a, _ := c.allowed()
		if a == 0 {
			a = only
		}
		c.candidate = a.First()
		c.model, c.queue = c.target(c.candidate)
	}
	return nil
}

// names reports whether a request that says "name" or "name@version" means the candidate, and if so keeps which version.
func (c *call) names(i int, name []byte) bool {
	of := &c.fn.Candidates[i]
	switch {
	case string(name) == of.Model.ID.Name:
		return true
	case string(name) == of.Model.ID.String():
		c.force(i, false)
		return true
	case of.Route != nil && string(name) == of.Route.Model.ID.String():
		c.force(i, true)
		return true
	}
	return false
}

// force makes the request ask one of the candidate's versions, whatever the rule says.
func (c *call) force(i int, other bool) {
	if c.forced = c.forced.With(i); other {
		c.forcedOther = c.forcedOther.With(i)
	}
}

func (fn *Function) candidateNames() string {
	var b []byte
	for i := range fn.Candidates {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, fn.Candidates[i].Model.ID.String()...)
	}
	return string(b)
}

// renderNative writes Clipper's answer, extended by confidence and models.
func renderNative(c *call) {
	out := c.out[:0]
	c.status, c.code = 200, api.OK
	batch := c.native.Batch && len(c.items) > 0
	if batch {
		out = append(out, `{"batch_predictions":[`...)
	}
	failed := 0
	for i, it := range c.items {
		if i > 0 {
			out = append(out, ',')
		}
		if it.code != api.OK && c.fn.Default == nil {
			failed++
		}
		out = c.appendPrediction(out, it, batch)
	}
	if batch {
		out = append(out, `]}`...)
	}
	c.code = c.worst()
	if failed == len(c.items) { // a batch in which something succeeded is an answer
		c.status = c.code.HTTPStatus()
		c.retryAfter = c.status == 503
	}
	c.out = out
}

func (c *call) appendPrediction(out []byte, it *item, batch bool) []byte {
	switch {
	case it.code == api.OK:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.id, 10)
		out = append(out, `,"output":`...)
		out = c.appendOutputs(out, it)
		out = append(out, `,"default":false,"confidence":`...)
		out = appendConfidence(out, it.confidence)
		return append(c.appendMembers(out, it), '}')
	case c.fn.Default != nil:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.id, 10)
		out = append(out, `,"output":`...)
		out = append(out, c.fn.Default...)
		out = append(out, `,"default":true,"default_explanation":"`...)
		if it.code == api.LowConfidence {
			out = append(out, "confidence "...)
			out = strconv.AppendFloat(out, it.confidence, 'f', 2, 64)
			out = append(out, " below "...)
			out = strconv.AppendFloat(out, c.minConfidence, 'f', 2, 64)
			out = append(out, `","confidence":`...)
			out = appendConfidence(out, it.confidence)
		} else {
			out = append(out, it.code.Reason()...)
			out = append(out, `","confidence":0`...)
		}
		return append(c.appendMembers(out, it), '}')
	case batch:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.id, 10)
		out = append(out, ',')
		return append(appendCode(out, it.code), '}')
	default:
		return append(appendCode(append(out, '{'), it.code), '}')
	}
}

func appendConfidence(out []byte, conf float64) []byte {
	if conf >= 0 && conf <= 1 {
		return strconv.AppendFloat(out, conf, 'g', -1, 64)
	}
	return append(out, '1') // one model, and it agrees with itself
}

// appendMembers names the models that took part; those that did not in time, or failed; and those that the plan had no room for.
func (c *call) appendMembers(out []byte, it *item) []byte {
	if !c.fn.Selects { // the usual case, and one model
		out = append(out, `,"models":[`...)
		if it.arrived != 0 {
			out = append(out, c.model.label...)
		}
		return append(out, ']')
	}
	out = c.appendModels(out, `,"models":[`, it.arrived)
	if rest := it.asked &^ it.arrived; rest != 0 {
		late := selection.Set(0)
		for _, m := range it.all() {
			if !m.shadow && (m.code == api.DeadlineExceeded || m.code == api.Overloaded || m.code == api.NoReplica) {
				late = late.With(m.candidate)
			}
		}
		if late &= rest; late != 0 {
			out = c.appendModels(out, `,"late":[`, late)
		}
		if rest &^= late; rest != 0 {
			out = c.appendModels(out, `,"failed":[`, rest)
		}
	}
	if it.dropped != 0 {
		out = c.appendModels(out, `,"dropped":[`, it.dropped)
	}
	return out
}

func (c *call) appendModels(out []byte, begin string, set selection.Set) []byte {
	out = append(out, begin...)
	for rest := set; rest != 0; rest &= rest - 1 {
		if rest != set {
			out = append(out, ',')
		}
		m, _ := c.target(rest.First())
		out = append(out, m.label...)
	}
	return append(out, ']')
}

// appendCode explains a query that ended without an output.
func appendCode(out []byte, code api.Code) []byte {
	out = append(out, `"error":"Query processing error","cause":"`...)
	out = append(out, code.Reason()...)
	out = append(out, `","code":"`...)
	out = append(out, code.String()...)
	return append(out, '"')
}

// appendOutputs renders one output as itself, several as an object.
func (c *call) appendOutputs(out []byte, it *item) []byte {
	specs := c.model.Signature.Outputs
	if len(specs) == 1 {
		return tensorjson.AppendValue(out, specs[0], it.outputs[0])
	}
	out = append(out, '{')
	for s := range specs {
		if s > 0 {
			out = append(out, ',')
		}
		out = tensorjson.AppendString(out, specs[s].Name)
		out = append(out, ':')
		out = tensorjson.AppendValue(out, specs[s], it.outputs[s])
	}
	return append(out, '}')
}

// The two kinds of error that Clipper knows.
const (
	jsonError  = "Json error"
	queryError = "Query processing error"
)

// appendError is Clipper's error shape, with our code.
func appendError(dst []byte, kind string, e *api.Error) []byte {
	dst = append(dst, `{"error":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","cause":`...)
	dst = tensorjson.AppendString(dst, e.Message)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, e.Code.String()...)
	return append(dst, `"}`...)
}

func asError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.Internal, Message: "internal error", Err: err}
}

func appendReadiness(dst []byte, ready bool, why string) []byte {
	dst = append(dst, `{"ready":`...)
	dst = strconv.AppendBool(dst, ready)
	if why != "" {
		dst = append(dst, `,"reason":`...)
		dst = tensorjson.AppendString(dst, why)
	}
	return append(dst, '}')
}
