package declarations

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/selection"
	"go.uber.org/zap"
)

// judge returns what each object of the set would become, models first, or why the set cannot be declared.
func (d *Declarations) judge(s *versions.State, set *manifest.Set) ([]api.Change, error) {
	all := d.declared(s)
	before := d.declared(s)
	changes, err := d.judgeModels(s, set, all)
	if err != nil {
		return nil, err
	}
	for i := range set.Traffic {
		all.traffic[set.Traffic[i].Model] = &set.Traffic[i]
	}
	replaced := map[string]bool{}
	for i := range set.Functions {
		f := &set.Functions[i]
		if replaced[f.Name] {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, errors.New("is declared twice"))
		}
		replaced[f.Name] = true
		if err := checkCandidates(f, all.models, all.traffic); err != nil {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, err)
		}
		if _, err := functions.PolicyOf(f); err != nil {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, err)
		}
		c := api.Change{Kind: api.KindFunction, Name: f.Name, Action: api.Created}
		old, ok := d.cfg.Functions.Get(f.Name)
		if !ok && slices.Contains(api.LaterReservedNames, f.Name) {
			return nil, refuse(set, api.KindFunction, i, api.InvalidArgument, api.FieldErrors{{Path: "name", Message: fmt.Sprintf("%q is reserved: expected another name", f.Name)}})
		}
		if ok && old.Source == versions.Applied {
			c.Action = api.Updated
			if reflect.DeepEqual(old.Spec, f) {
				c.Action = api.Unchanged
			}
		}
		changes = append(changes, c)
	}
	if changes, err = d.judgeTraffic(s, set, changes, all.models); err != nil { // first: it knows the labels that functions name
		return nil, err
	}
	if err := d.judgeCalls(set, before.models, all.models); err != nil {
		return nil, err
	}
	touched := map[string]bool{} // models of which the set says something
	for i := range set.Models {
		touched[set.Models[i].Name] = true
	}
	for i := range set.Traffic {
		touched[set.Traffic[i].Model] = true
	}
	return changes, d.judgeOthers(touched, replaced, before, all)
}

// judgeModels judges the models of the set, and adds them to all.
func (d *Declarations) judgeModels(s *versions.State, set *manifest.Set, all *declared) (changes []api.Change, err error) {
	changes = make([]api.Change, 0, set.Len())
	seen := make(map[api.ModelID]bool, len(set.Models))
	for i := range set.Models {
		m := &set.Models[i]
		if seen[m.ID()] {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, errors.New("is declared twice"))
		}
		seen[m.ID()] = true
		c := api.Change{Kind: api.KindModel, Name: m.Name, Version: m.Version, Action: api.Created}
		if m.Device != "" && d.cfg.Host.Devices[m.Device] == nil {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, api.FieldErrors{{Path: "device", Message: fmt.Sprintf("there is no device %q here: expected %s", m.Device, d.cfg.Host.DeviceNames())}})
		}
		if err := d.checkNetwork(m); err != nil {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, err)
		}
		v := s.Version(m.ID())
		if f := s.Family(m.Name); f != nil && f.Source != versions.Applied && len(f.Versions) > 0 {
			return nil, refuse(set, api.KindModel, i, api.Conflict, comesFrom(f, v, m))
		}
		if v != nil {
			if c.Action, c.Note, err = d.judgeAgain(s, v, m); err != nil {
				return nil, refuse(set, api.KindModel, i, api.Conflict, err)
			}
		}
		if err := checkFiles(m); err != nil {
			return nil, refuse(set, api.KindModel, i, api.InvalidArgument, err)
		}
		if err := d.cfg.Capacity.Fits(m); err != nil && c.Action != api.Unchanged {
			if d.cfg.Serving() {
				return nil, refuse(set, api.KindModel, i, api.InvalidArgument, err)
			}
			d.cfg.Log.Error("a model cannot run here, and is declared all the same: at the start what serves goes first", zap.Stringer("model", m.ID()), zap.Error(err))
		}
		all.replace(m)
		changes = append(changes, c)
	}
	return changes, nil
}

// judgeAgain judges a version that is declared again. The error is api.FieldErrors.
func (d *Declarations) judgeAgain(s *versions.State, v *versions.Version, m *api.ModelSpec) (_ api.Action, note string, _ error) {
	is := *v.Spec()
	is.Digest, is.ImageDigest = v.Digest(), v.ImageDigest()
	field := is.Fixed(m)
	if field != "" && d.replaceable(s, v) {
		return api.Updated, replacedNote, nil
	}
	m.Dir = is.Dir // a manifest may be applied again from anywhere
	switch {
	case field == "digest":
		return "", "", d.otherBytes(is.Digest, m)
	case field == "image_digest":
		return "", "", otherImage(is.ImageDigest, m)
	case field != "":
		return "", "", api.FieldErrors{{Path: field, Message: "the version exists and has " + another(field) + ": a version never changes once it has served; declare a new version, or delete this one first"}}
	case !reflect.DeepEqual(*v.Spec(), *m) || v.State == registry.Rejected:
		return api.Updated, "", nil
	}
	return api.Unchanged, "", nil
}

// replacedNote is what a change says of a version that gets other files, or another of the fields that are fixed.
const replacedNote = "it had never served, and is replaced"

// another is "another run", or "other inputs".
func another(field string) string {
	if strings.HasSuffix(field, "s") {
		return "other " + field
	}
	return "another " + field
}

// checkNetwork returns why a model may not have the network that it declares. Every way in asks it: a model that was accepted before
// the rule applied, and one that did not come through the admin port, are refused as well. The error is nil or api.FieldErrors.
func (d *Declarations) checkNetwork(m *api.ModelSpec) error {
	if m.Run.Network == api.NetworkHost && d.cfg.Host.NoHostNetwork != "" {
		return api.FieldErrors{{Path: "run.network", Message: d.cfg.Host.NoHostNetwork}}
	}
	return nil
}

// checkFiles judges the paths of files that have values of the model's environment.
func checkFiles(m *api.ModelSpec) error {
	for _, name := range slices.Sorted(maps.Keys(m.Run.Env)) {
		if file := m.Run.Env[name].File; file != "" && m.Dir == "" && !filepath.IsAbs(file) {
			return api.FieldErrors{{Path: "run.env." + name + ".valueFrom.file", Message: fmt.Sprintf("%q is relative, and the model has no directory: expected an absolute path, or a model with dir", file)}}
		}
	}
	return nil
}

// judgeOthers judges what is not in the set against what would be declared with it. touched are the models of which the set says
// something. What was wrong before is not the set's fault.
func (d *Declarations) judgeOthers(touched, replaced map[string]bool, before, after *declared) error {
	for name := range touched {
		t := before.traffic[name]
		if t == nil || t != after.traffic[name] || checkTraffic(t, before.models[name]) != nil {
			continue
		}
		if err := checkTraffic(t, after.models[name]); err != nil {
			return api.Errorf(api.InvalidArgument, "traffic of %s: %w", name, err)
		}
	}
	var wrong error
	d.cfg.Functions.Each(func(name string, f functions.Declared) {
		if wrong != nil || replaced[name] || !usesAny(f.Spec, touched) || checkCandidates(f.Spec, before.models, before.traffic) != nil {
			return
		}
		if err := checkCandidates(f.Spec, after.models, after.traffic); err != nil {
			wrong = api.Errorf(api.InvalidArgument, "function %s: %w", name, err)
		}
	})
	return wrong
}

// declared is all versions and all traffic rules by model, as they are or as they would be.
type declared struct {
	models  map[string][]*api.ModelSpec
	traffic map[string]*api.TrafficSpec
}

func (d *Declarations) declared(s *versions.State) *declared {
	all := &declared{map[string][]*api.ModelSpec{}, map[string]*api.TrafficSpec{}}
	for name, f := range s.Families() {
		for _, v := range f.Versions {
			all.models[name] = append(all.models[name], v.Spec())
		}
		if f.Traffic != nil {
			all.traffic[name] = f.Traffic
		}
	}
	return all
}

// replace puts a version in the place of the one with its name, if there is one.
func (all *declared) replace(m *api.ModelSpec) {
	others := slices.DeleteFunc(slices.Clone(all.models[m.Name]), func(o *api.ModelSpec) bool { return o.Version == m.Version })
	all.models[m.Name] = append(others, m)
}

// usesAny reports whether the function names one of the models.
func usesAny(f *api.FunctionSpec, models map[string]bool) bool {
	return slices.ContainsFunc(f.Refs(), func(ref string) bool {
		name, _, _ := strings.Cut(ref, "@")
		return models[name]
	})
}

// refuse says what is wrong with object i of the set, and where it was written.
func refuse(set *manifest.Set, kind api.Kind, i int, code api.Code, err error) error {
	return api.Errorf(code, "%w", set.Refuse(kind, i, err))
}

// checkCandidates judges a function against all versions that its models may mean. The error is nil or api.FieldErrors.
func checkCandidates(f *api.FunctionSpec, models map[string][]*api.ModelSpec, traffic map[string]*api.TrafficSpec) error {
	var errs api.FieldErrors
	refs := f.Refs()
	candidates := make([][]*api.ModelSpec, len(refs))
	for i, ref := range refs {
		at := fmt.Sprintf("models[%d]", i)
		if i >= len(f.Models) {
			at = "shadow." + ref
		}
		id, err := api.ParseModelRef(ref)
		if err != nil {
			return api.FieldErrors{{Path: at, Message: err.Error()}}
		}
		version := versionOf(id, models[id.Name], traffic[id.Name])
		for _, m := range models[id.Name] {
			if version != "" && version != m.Version {
				continue
			}
			candidates[i] = append(candidates[i], m)
			var found api.FieldErrors
			if i < len(f.Models) && errors.As(f.CheckModel(m), &found) {
				errs = append(errs, found...)
			}
		}
		if candidates[i] == nil {
			errs = append(errs, api.FieldError{Path: at, Message: fmt.Sprintf("there is no model %s: declare it in the same manifest or before", ref)})
		}
	}
	var found api.FieldErrors
	if errors.As(f.CheckCandidates(candidates), &found) {
		errs = append(errs, found...)
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// versionOf is the version that a reference names, by its name or by a label; empty where it names none.
func versionOf(id api.ModelID, models []*api.ModelSpec, traffic *api.TrafficSpec) string {
	if id.Version == "" || traffic == nil {
		return id.Version
	}
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Version
	}
	if v, ok := registry.Resolve(traffic, names, id.Version); ok {
		return v
	}
	return id.Version
}

// judgeTraffic judges the traffic rules of the set. models has all versions, as they would be.
func (d *Declarations) judgeTraffic(s *versions.State, set *manifest.Set, changes []api.Change, models map[string][]*api.ModelSpec) ([]api.Change, error) {
	seen := map[string]bool{}
	for i := range set.Traffic {
		t := &set.Traffic[i]
		if seen[t.Model] {
			return nil, refuse(set, api.KindTraffic, i, api.InvalidArgument, fmt.Errorf("is declared twice"))
		}
		seen[t.Model] = true
		if err := checkTraffic(t, models[t.Model]); err != nil {
			return nil, refuse(set, api.KindTraffic, i, api.InvalidArgument, err)
		}
		f := s.Family(t.Model)
		if err := d.checkLabels(f, t); err != nil && !mentions(set, t.Model) {
			return nil, refuse(set, api.KindTraffic, i, api.Conflict, err)
		}
		c := api.Change{Kind: api.KindTraffic, Name: t.Model, Action: api.Created}
		if f != nil && f.Traffic != nil {
			c.Action = api.Updated
			if jsonEqual(f.Traffic, t) {
				c.Action = api.Unchanged
			}
		}
		changes = append(changes, c)
	}
	for i := range set.Models { // a new version must not take a label's name
		m := &set.Models[i]
		if f := s.Family(m.Name); f != nil && f.Traffic != nil && !seen[m.Name] {
			if _, taken := f.Traffic.Labels[m.Version]; taken {
				return nil, refuse(set, api.KindModel, i, api.Conflict, api.FieldErrors{{Path: "version", Message: fmt.Sprintf("%q is a label of another version of the model: choose another name for the version, or remove the label", m.Version)}})
			}
		}
	}
	return changes, nil
}

// checkLabels returns which function would lose a label of the family that it names. t is what the rules will be; nil: none.
func (d *Declarations) checkLabels(f *versions.Family, t *api.TrafficSpec) error {
	if f == nil || f.Traffic == nil {
		return nil
	}
	for _, label := range slices.Sorted(maps.Keys(f.Traffic.Labels)) {
		if t != nil {
			if _, stays := t.Labels[label]; stays {
				continue
			}
		}
		if name := d.labelUser(f.Name, label); name != "" {
			return api.Errorf(api.Conflict, "function %s names %s@%s: change the function first, or keep the label %q", name, f.Name, label, label)
		}
	}
	return nil
}

// labelUser is the first function, by name, that names the label; empty: none does.
func (d *Declarations) labelUser(model, label string) (name string) {
	d.cfg.Functions.Each(func(n string, f functions.Declared) {
		if name == "" && slices.Contains(f.Spec.Refs(), model+"@"+label) {
			name = n
		}
	})
	return name
}

// mentions reports whether a function of the set names a version or a label of the model: it is judged together with the labels.
func mentions(set *manifest.Set, model string) bool {
	for i := range set.Functions {
		for _, ref := range set.Functions[i].Refs() {
			if strings.HasPrefix(ref, model+"@") {
				return true
			}
		}
	}
	return false
}

func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// checkTraffic judges rules against the versions of their model. The error is nil or api.FieldErrors.
func checkTraffic(t *api.TrafficSpec, models []*api.ModelSpec) error {
	if len(models) == 0 {
		return api.FieldErrors{{Path: "name", Message: fmt.Sprintf("there is no model %q: declare it in the same manifest or before", t.Model)}}
	}
	byVersion := make(map[string]*api.ModelSpec, len(models))
	var names []string
	for _, m := range models {
		byVersion[m.Version] = m
		names = append(names, m.Version)
	}
	sort.Slice(names, func(i, j int) bool { return api.CompareVersions(names[i], names[j]) < 0 })
	var errs api.FieldErrors
	find := func(path, version string) *api.ModelSpec {
		m := byVersion[version]
		if m == nil && version != "" {
			errs = append(errs, api.FieldError{Path: path, Message: fmt.Sprintf("%s has no version %q: expected one of %s", t.Model, version, strings.Join(names, ", "))})
		}
		return m
	}
	find("serving", t.Serving)
	for i, v := range t.Versions.Specific {
		find(fmt.Sprintf("versions.specific[%d]", i), v)
	}
	for _, label := range slices.Sorted(maps.Keys(t.Labels)) {
		v := t.Labels[label]
		find("labels."+label, v)
		if byVersion[label] != nil {
			errs = append(errs, api.FieldError{Path: "labels." + label, Message: "is the name of a version of the model: choose another label"})
		}
	}
	others := map[string]*api.ModelSpec{}
	if t.Split != nil {
		others["split.version"] = find("split.version", t.Split.Version)
	}
	if t.Shadow != nil {
		others["shadow.version"] = find("shadow.version", t.Shadow.Version)
	}
	if t.Rollout != nil {
		others["rollout.version"] = find("rollout.version", t.Rollout.Version)
		refs := []string{t.Model + "@old", t.Model + "@" + t.Rollout.Version}
		if _, err := selection.New(t.Rollout.Policy.Name, t.Rollout.Policy.Params, refs); err != nil {
			errs = append(errs, api.FieldError{Path: "rollout.policy", Message: err.Error()})
		}
	}
	for path, other := range others {
		for _, m := range models {
			if other != nil && m != other && !m.SameSignature(other) && (t.Serving == "" || t.Serving == m.Version) {
				errs = append(errs, api.FieldError{Path: path, Message: fmt.Sprintf("version %s has another signature than version %s, which may serve: answers of the two cannot stand for each other", other.Version, m.Version)})
				break
			}
		}
	}
	if t.Rollback != nil {
		find("rollback.to", t.Rollback.To)
	}
	if len(errs) == 0 {
		return nil
	}
	sort.SliceStable(errs, func(i, j int) bool { return errs[i].Path < errs[j].Path })
	return errs
}

// namedBy says where traffic rules name a version; empty: nowhere.
func namedBy(t *api.TrafficSpec, version string) string {
	switch {
	case t.Serving == version:
		return "serving"
	case t.Split != nil && t.Split.Version == version:
		return "split"
	case t.Shadow != nil && t.Shadow.Version == version:
		return "shadow"
	case t.Rollout != nil && t.Rollout.Version == version:
		return "rollout"
	case t.Rollback != nil && t.Rollback.To == version:
		return "rollback"
	}
	for _, label := range slices.Sorted(maps.Keys(t.Labels)) {
		if t.Labels[label] == version {
			return "label " + label
		}
	}
	for _, v := range t.Versions.Specific {
		if v == version {
			return "versions"
		}
	}
	return ""
}
