package query

import (
	"bytes"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// outside is a version that a request asks in a candidate's place although neither the function nor a rule has it now.
type outside struct {
	candidate int
	model     *Model
}

// outsideOf is the version asked in a candidate's place; nil: there is none.
func outsideOf(versions []outside, candidate int) *Model {
	for i := range versions {
		if versions[i].candidate == candidate {
			return versions[i].model
		}
	}
	return nil
}

// askOutside makes the request ask the version "name@version" in the place of the first candidate of that model that has none yet. It
// reports false if no candidate is of that model.
func (r *Request) askOutside(named []byte) (found bool, err error) {
	name, version, versioned := bytes.Cut(named, []byte("@"))
	place := -1
	for i := range r.fn.Candidates {
		if c := &r.fn.Candidates[i]; versioned && c.Model.ID.Name == string(name) {
			if found = true; !r.outside.Has(i) && place < 0 {
				place = i
			}
		}
	}
	if !found {
		return false, nil
	}
	t := r.path.table.Load()
	m := t.Versions[api.ModelID{Name: string(name), Version: string(version)}]
	switch {
	case m == nil:
		return false, api.Errorf(api.InvalidArgument, "models: there is no version %.140q: expected one of %s", named, t.loaded(string(name)))
	case m.Closed.Load():
		return false, api.Errorf(api.InvalidArgument, "models: %s; loaded are %s", m.whyClosed(), t.loaded(string(name)))
	}
	for i := range r.versions {
		if r.versions[i].model == m { // it was named before
			r.only = r.only.With(r.versions[i].candidate)
			return true, nil
		}
	}
	if place < 0 {
		return false, api.Errorf(api.InvalidArgument, "models: %.140q: a query asks at most one version in the place of each candidate of model %.140q (%s)", named, name, r.fn.candidateNames())
	}
	if like := r.fn.Candidates[place].Model; like.Streams != m.Streams || !sameSpecs(like.Signature.Inputs, m.Signature.Inputs) || !sameSpecs(like.Signature.Outputs, m.Signature.Outputs) {
		return false, api.Errorf(api.InvalidArgument, "models: %s has other inputs or outputs than function %s, which has those of %s: address the model itself", m.ref, r.fn.Name, like.ref)
	}
	r.versions = append(r.versions, outside{place, m})
	r.outside, r.forced, r.only = r.outside.With(place), r.forced.With(place), r.only.With(place)
	return true, nil
}

// loaded are the loaded versions of a model, as "name@version" with commas.
func (t *Table) loaded(name string) string {
	var list []string
	for _, version := range t.versions(name) {
		if m := t.Versions[api.ModelID{Name: name, Version: version}]; !m.Closed.Load() {
			list = append(list, m.ref)
		}
	}
	if len(list) == 0 {
		return "none, as no version of it is loaded"
	}
	return strings.Join(list, ", ")
}
