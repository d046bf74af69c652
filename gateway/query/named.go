package query

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Named is what the clients of standard protocols call a model: a function, or a model that no function hides.
type Named struct {
	// Name is how clients address it without a version: the name of a function or of a model, or name@version.
	Name string
	// Function is nil if the name is a model's.
	Function *Function
	// Model has the signature: the addressed version, or the function's first candidate.
	Model *Model
}

// Available reports whether a query would be evaluated, perhaps after a replica has started.
func (n Named) Available() bool {
	if n.Function == nil {
		return n.Model.Available()
	}
	for i := range n.Function.Candidates {
		if c := &n.Function.Candidates[i]; c.Model.Available() || c.Route != nil && c.Route.Model.Available() {
			return true
		}
	}
	return false
}

// Named finds what a standard client addresses by a name and, if it is not empty, a version or label:
//
//   - name is the function of this name, or else the model's serving version;
//   - name with a version is that version of the model, and so is name@version.
func (p *Path) Named(name, version string) (Named, error) {
	t := p.table.Load()
	fn, model, version, err := p.named(t, name, version)
	if err != nil {
		return Named{}, err
	}
	if fn != nil {
		return Named{name, fn, fn.Candidates[0].Model}, nil
	}
	m, err := p.model(t, model, version)
	return Named{name, nil, m}, err
}

// named splits what a standard client addresses: fn, or the model's version.
func (p *Path) named(t *Table, name, wanted string) (fn *Function, model, version string, err error) {
	model, version, pinned := strings.Cut(name, "@")
	switch {
	case pinned && wanted != "" && wanted != version:
		return nil, "", "", api.Errorf(api.InvalidArgument, "%.130q has a version of its own: expected it without the version %.63q", name, wanted)
	case pinned && version == "":
		return nil, "", "", api.Errorf(api.InvalidArgument, "%.130q: expected a version behind the @", name)
	case !pinned:
		version = wanted
	}
	if fn = t.Functions[name]; fn != nil && version == "" {
		return fn, "", "", nil
	}
	switch {
	case t.Models[model] != nil:
		return nil, model, version, nil
	case t.Functions[model] != nil:
		return nil, "", "", api.Errorf(api.NotFound, "%q is a function, which has no version %.63q: ask for it without a version, or for one of its models: %s", model, version, t.Functions[model].candidateNames())
	}
	return nil, "", "", p.unknown("function or model", model, ": `xebec get functions` and `xebec get models` list those that exist")
}

// AskNamed addresses what [Path.Named] finds. A model's traffic rules choose the version if none is given.
func (r *Request) AskNamed(name, version string) error {
	fn, model, version, err := r.path.named(r.path.table.Load(), name, version)
	switch {
	case err != nil:
		return err
	case fn != nil:
		r.askFunction(fn)
		return nil
	}
	return r.AskModel(model, version)
}

// Names are all functions and models by name. A model whose name is also a function's has the name of its serving version.
func (p *Path) Names() []Named {
	t := p.table.Load()
	list := make([]Named, 0, len(t.Functions)+len(t.Models))
	for name, fn := range t.Functions {
		list = append(list, Named{name, fn, fn.Candidates[0].Model})
	}
	for name, m := range t.Models {
		if t.Functions[name] != nil {
			name = m.Ref()
		}
		list = append(list, Named{name, nil, m})
	}
	slices.SortFunc(list, func(a, b Named) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Requests counts the requests that addressed the function or version: their queries, and how many of them succeeded and failed, in which time.
// Those that were malformed are not counted.
func (n Named) Requests() (queries uint64, succeeded, failed api.Durations) {
	stats := n.Model.Stats
	if n.Function != nil {
		stats = n.Function.Stats
	}
	r := stats.Read()
	succeeded = api.Durations{Count: r.Codes[api.OK], Nanos: uint64((r.Seconds - r.FailedSeconds) * 1e9)}
	return r.Queries, succeeded, api.Durations{Count: r.Count - min(r.Count, r.Codes[api.OK]), Nanos: uint64(r.FailedSeconds * 1e9)}
}
