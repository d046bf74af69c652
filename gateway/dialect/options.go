package dialect

import (
	"bytes"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Options are what a call may ask beside its inputs, by the same names and within the same bounds in every dialect:
//
//	name            header                 of a request that addresses
//	slo_ms          Xebec-Slo-Ms           anything: its deadline in milliseconds
//	context         Xebec-Context          anything: the user or session
//	salt                                   anything: keeps equal inputs apart in caches
//	ttl_ms                                 anything: how long the answer is worth having for the cache
//	min_confidence  Xebec-Min-Confidence   a function with a default output
//	models          Xebec-Models           a function: the candidates that may answer, separated by commas
//
// A dialect offers the members of its own request to [Options.Member], [Options.Text], [Options.Number] or [Options.Bool], and calls Headers and Apply. A header
// takes precedence over a member. The last two options are a model's own parameters in a request that addresses a model. One Options is reused by one
// goroutine at a time.
type Options struct {
	// Parameters is a JSON object of what is for the model, which Pass extends; empty: nothing is.
	Parameters []byte

	function      bool
	has           option
	slo           time.Duration
	minConfidence float64
	ttlMillis     float64
	context       []byte
	salt          []byte
	models        []byte // separated by commas
	names         [][]byte
}

type option uint8

const (
	hasSLO option = 1 << iota
	hasContext
	hasSalt
	hasTTL
	hasMinConfidence
	hasModels
)

// optionNames are the names of the options, in the order of their bits.
var optionNames = [...]string{"slo_ms", "context", "salt", "ttl_ms", "min_confidence", "models"}

// Begin begins the options of a request that addresses a function, or a model.
func (o *Options) Begin(function bool) {
	if o.Parameters = o.Parameters[:0]; cap(o.Parameters) > 4*query.MaxParametersBytes {
		o.Parameters = nil
	}
	o.function, o.has, o.slo, o.minConfidence, o.ttlMillis = function, 0, 0, 0, 0
	o.context, o.salt, o.models = o.context[:0], o.salt[:0], o.models[:0]
}

// find returns the option of that name, or 0 if the name is not one of the request's options.
func (o *Options) find(name []byte) (which option, known string) {
	for i, known := range optionNames {
		if which := option(1) << i; known == string(name) && (which < hasMinConfidence || o.function) {
			return which, known
		}
	}
	return 0, ""
}

// once notes that an option is there.
func (o *Options) once(which option, name string) error {
	if o.has&which != 0 {
		return api.Errorf(api.InvalidArgument, "%s is there twice", name)
	}
	o.has |= which
	return nil
}

// Member reads the value of a JSON member, if its name is an option. Null is an option that is not there.
func (o *Options) Member(name []byte, r *tensorjson.Reader) (taken bool, err error) {
	which, known := o.find(name)
	if which == 0 {
		return false, nil
	}
	r.Push(known)
	if !r.Null() {
		if err = o.once(which, known); err == nil {
			err = o.member(which, known, r)
		}
	}
	r.Pop()
	return true, err
}

func (o *Options) member(which option, name string, r *tensorjson.Reader) error {
	switch which {
	case hasSLO, hasTTL, hasMinConfidence:
		f, err := r.Float64()
		if err != nil {
			return err
		}
		return o.number(which, name, f)
	case hasContext, hasSalt:
		v, err := r.StringOrInteger()
		if err != nil {
			return err
		}
		return o.text(which, v)
	}
	if r.Peek() != '[' {
		v, err := r.String()
		if err != nil {
			return err
		}
		return o.text(which, v)
	}
	return r.Elements(func(i int) error {
		v, err := r.String()
		if err != nil {
			return err
		}
		if i > 0 {
			v = append(append(o.models, ','), v...)
		}
		return o.text(which, v)
	})
}

// maxShown is how much of a value a message shows.
const maxShown = 63

// Text takes a text, if its name is an option. Numbers may be texts.
func (o *Options) Text(name, v []byte) (taken bool, err error) {
	which, known := o.find(name)
	if which == 0 {
		return false, nil
	}
	if err := o.once(which, known); err != nil {
		return true, err
	}
	switch which {
	case hasContext, hasSalt, hasModels:
		return true, o.text(which, v)
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return true, api.Errorf(api.InvalidArgument, "%s: %q: expected a number", known, v[:min(len(v), maxShown)])
	}
	return true, o.number(which, known, f)
}

// Number takes a number, if its name is an option.
func (o *Options) Number(name []byte, f float64) (taken bool, err error) {
	which, known := o.find(name)
	if which == 0 {
		return false, nil
	}
	if err := o.once(which, known); err != nil {
		return true, err
	}
	switch which {
	case hasContext, hasSalt, hasModels:
		return true, o.text(which, strconv.AppendFloat(nil, f, 'f', -1, 64))
	}
	return true, o.number(which, known, f)
}

// Bool refuses a truth value, if its name is an option: no option is one.
func (o *Options) Bool(name []byte, v bool) error {
	which, known := o.find(name)
	if which == 0 {
		return nil
	}
	what := "a number"
	switch which {
	case hasContext, hasSalt, hasModels:
		what = "a text"
	}
	return api.Errorf(api.InvalidArgument, "%s: %v: expected %s", known, v, what)
}

func (o *Options) text(which option, v []byte) error {
	if len(v) > query.MaxParametersBytes {
		return api.Errorf(api.InvalidArgument, "an option of %d bytes: expected at most %d", len(v), query.MaxParametersBytes)
	}
	switch which {
	case hasContext:
		o.context = append(o.context[:0], v...)
	case hasSalt:
		o.salt = append(o.salt[:0], v...)
	case hasModels:
		o.models = append(o.models[:0], v...)
	}
	return nil
}

func (o *Options) number(which option, name string, f float64) error {
	bad := func(expected string) error {
		return api.Errorf(api.InvalidArgument, "%s: %v: expected %s", name, f, expected)
	}
	switch which {
	case hasSLO:
		if !(f > 0) || f > query.MaxSLO.Seconds()*1000 {
			return bad("milliseconds above 0 and up to " + strconv.FormatFloat(query.MaxSLO.Seconds()*1000, 'f', -1, 64))
		}
		o.slo = max(time.Duration(f*1e6), 1)
	case hasTTL:
		if !(f >= 0) {
			return bad("milliseconds, 0 or more")
		}
		o.ttlMillis = f
	case hasMinConfidence:
		if !(f >= 0 && f <= 1) {
			return bad("a number from 0 to 1")
		}
		o.minConfidence = f
	}
	return nil
}

// Pass adds a member to Parameters. value is JSON.
func (o *Options) Pass(name, value []byte) {
	if len(o.Parameters) == 0 {
		o.Parameters = append(o.Parameters, '{')
	} else {
		o.Parameters[len(o.Parameters)-1] = ','
	}
	o.Parameters = append(tensorjson.AppendString(o.Parameters, name), ':')
	o.Parameters = append(append(o.Parameters, value...), '}')
}

// Headers reads the options that are header fields of an [Exchange], or of whatever else has fields by their canonical names.
func (o *Options) Headers(x interface{ Header(name string) []byte }) error {
	slo, err := SLO(x)
	if err != nil {
		return err
	}
	if slo > 0 {
		o.slo, o.has = slo, o.has|hasSLO
	}
	if v := x.Header("Xebec-Context"); len(v) > 0 {
		o.has |= hasContext
		o.context = append(o.context[:0], v...)
	}
	if !o.function {
		return nil
	}
	if v := x.Header("Xebec-Min-Confidence"); len(v) > 0 {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return api.Errorf(api.InvalidArgument, "header Xebec-Min-Confidence: %.40q: expected a number from 0 to 1", v)
		}
		o.minConfidence, o.has = f, o.has|hasMinConfidence
	}
	if v := x.Header("Xebec-Models"); len(v) > 0 {
		o.has |= hasModels
		o.models = append(o.models[:0], v...)
	}
	return nil
}

// HasContext reports whether the request has a context.
func (o *Options) HasContext() bool { return len(o.context) > 0 }

// SetContext sets the context, as [Options.Text] does.
func (o *Options) SetContext(v []byte) {
	o.context, o.has = append(o.context[:0], v...), o.has|hasContext
}

// HasSLO reports whether the request sets its deadline.
func (o *Options) HasSLO() bool { return o.has&hasSLO != 0 }

// Apply sets the options of r, which copies them. Call it after AskNamed and before Submit.
func (o *Options) Apply(r *query.Request) error {
	if o.has == 0 && len(o.Parameters) == 0 {
		return nil
	}
	if o.has&hasSLO != 0 {
		r.Within(o.slo)
	}
	if len(o.Parameters) > 0 {
		if err := r.SetParameters(o.Parameters); err != nil {
			return err
		}
	}
	if err := r.SetContext(o.context, o.salt); err != nil {
		return err
	}
	if o.has&hasTTL != 0 {
		r.SetTTL(api.Nanos(min(o.ttlMillis*1e6, float64(query.MaxSLO))))
	}
	if o.has&hasMinConfidence != 0 {
		if err := r.SetMinConfidence(o.minConfidence); err != nil {
			return err
		}
	}
	if o.has&hasModels == 0 {
		return nil
	}
	o.names = o.names[:0]
	for rest := o.models; rest != nil; {
		name, others, more := bytes.Cut(rest, []byte{','})
		if rest = nil; more {
			rest = others
		}
		if len(o.names) == tensorjson.MaxModels {
			return api.Errorf(api.InvalidArgument, "models: expected at most %d", tensorjson.MaxModels)
		}
		o.names = append(o.names, bytes.TrimSpace(name))
	}
	return r.Restrict(o.names)
}
