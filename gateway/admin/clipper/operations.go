package clipper

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// Control is the part of the admin API's Control that the operations need.
type Control interface {
	Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error)
	Models(ctx context.Context, name string) ([]api.ModelStatus, error)
	Functions(ctx context.Context, name string) ([]api.FunctionStatus, error)
	Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error)
	Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error)
}

// Operation is one operation: POST /admin/{Name}.
type Operation struct {
	Name string
	// Changes says that the operation changes what is declared.
	Changes bool
	do      func(ctx context.Context, c Control, r *request) (Answer, error)
	schema  string
}

// Answer is the outcome of an operation: a text of success with the changes, or a value for JSON.
type Answer struct {
	Text    string
	Value   any
	Changes []api.Change
	// Subject names what would change, also where it was refused.
	Subject string
}

// Operations are all of them.
var Operations = []Operation{
	{"add_app", true, addApp, `{"name": string, "input_type": string, "default_output": string, "latency_slo_micros": int}`},
	{"delete_app", true, deleteApp, `{"name": string}`},
	{"add_model", true, addModel, `{"model_name": string, "model_version": string, "labels": [string], "input_type": string, "container_name": string, "model_data_path": string, "batch_size": int}`},
	{"set_model_version", true, setModelVersion, modelSchema},
	{"delete_versioned_model", true, deleteModel, modelSchema},
	{"add_model_links", true, addLinks, linksSchema},
	{"delete_model_links", true, deleteLinks, linksSchema},
	{"get_linked_models", false, linkedModels, `{"app_name": string}`},
	{"get_all_applications", false, allApplications, verboseSchema},
	{"get_all_models", false, allModels, verboseSchema},
	{"get_all_containers", false, allContainers, verboseSchema},
	{"get_application", false, application, `{"name": string}`},
	{"get_model", false, model, modelSchema},
	{"get_container", false, container, `{"model_name": string, "model_version": string, "replica_id": int}`},
	{"get_state", false, state, `{"app_name": string, "uid": int}`},
}

const (
	modelSchema   = `{"model_name": string, "model_version": string}`
	linksSchema   = `{"app_name": string, "model_names": [string]}`
	verboseSchema = `{"verbose": bool}`
)

// Do parses a body and carries the operation out. Errors are [api.Error].
func (o *Operation) Do(ctx context.Context, c Control, body []byte) (Answer, error) {
	return o.do(ctx, c, parse(body, o.schema))
}

func addApp(ctx context.Context, c Control, r *request) (Answer, error) {
	name, input, output, micros := r.name("name", "application"), r.inputType(), r.text("default_output"), r.micros()
	if r.err != nil {
		return Answer{}, r.err
	}
	spec := api.FunctionSpec{Name: name, InputType: input, SLO: time.Duration(micros) * time.Microsecond, Default: asJSON(output)}
	a := Answer{Text: fmt.Sprintf("Successfully added application with name '%s'", name), Subject: "Function " + name}
	err := a.applyFunction(ctx, c, spec, 0)
	if _, exists := errors.AsType[*api.StaleError](err); exists {
		err = api.Errorf(api.Conflict, "application '%s' already exists", name)
	}
	return a, err
}

// applyFunction declares a function, which the caller has seen at a revision.
func (a *Answer) applyFunction(ctx context.Context, c Control, spec api.FunctionSpec, revision uint64) (err error) {
	spec = spec.WithDefaults()
	if err = spec.Validate(); err != nil {
		return api.Errorf(api.InvalidArgument, "application '%s': %w", spec.Name, err)
	}
	set := &manifest.Set{Functions: []api.FunctionSpec{spec}}
	a.Changes, err = c.Apply(ctx, set, false, api.ObjectRevision{Kind: api.KindFunction, Name: spec.Name, Revision: revision})
	return err
}

func hasCode(err error, code api.Code) bool {
	known, ok := errors.AsType[*api.Error](err)
	return ok && known.Code == code
}

// functionOf returns an application; missing is the text of the error if there is none.
func functionOf(ctx context.Context, c Control, name, missing string) (*api.FunctionStatus, error) {
	all, err := c.Functions(ctx, name)
	if hasCode(err, api.NotFound) || err == nil && len(all) != 1 {
		return nil, api.Errorf(api.NotFound, missing, name)
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

func deleteApp(ctx context.Context, c Control, r *request) (Answer, error) {
	name := r.name("name", "application")
	a := Answer{Text: fmt.Sprintf("Successfully deleted application with name '%s'", name), Subject: "Function " + name}
	if r.err != nil {
		return a, r.err
	}
	f, err := functionOf(ctx, c, name, "Application '%s' does not exist")
	if err != nil {
		return a, err
	}
	a.Changes, err = c.Delete(ctx, api.KindFunction, api.ModelID{Name: name}, api.ObjectRevision{Kind: api.KindFunction, Name: name, Revision: f.Revision})
	return a, err
}

// containerless is what clipper_admin names as the image of a model that it registers without one, because something else starts its containers.
const containerless = "NO_CONTAINER"

func addModel(ctx context.Context, c Control, r *request) (Answer, error) {
	id, labels, input, image, path, batch := r.model(), r.texts("labels"), r.inputType(), r.text("container_name"), r.text("model_data_path"), r.batchSize()
	a := Answer{Text: fmt.Sprintf("Successfully added model with name '%s' and input type '%s'", id.Name, input), Subject: "Model " + id.String()}
	if r.err != nil {
		return a, r.err
	}
	if image == "" || image == containerless {
		return a, api.Errorf(api.InvalidArgument, "container_name is %s: expected the image that serves the model. A model that runs as a process is declared by `xebec deploy`", cmp.Or(image, "empty"))
	}
	versions, err := c.Models(ctx, id.Name)
	if err != nil && !hasCode(err, api.NotFound) {
		return a, err
	}
	spec := specOf(id, labels, input, image, path, batch).WithDefaults()
	if err = spec.Validate(); err != nil {
		return a, api.Errorf(api.InvalidArgument, "model '%s' version '%s': %w", id.Name, id.Version, err)
	}
	seen := api.ObjectRevision{Kind: api.KindModel, Name: id.Name, Version: id.Version}
	if slices.ContainsFunc(versions, func(m api.ModelStatus) bool { return m.Spec.Version == id.Version }) {
		return a, api.Errorf(api.Conflict, "model with name '%s' and version '%s' already exists", id.Name, id.Version)
	}
	if a.Changes, err = c.Apply(ctx, &manifest.Set{Models: []api.ModelSpec{spec}}, false, seen); err != nil || len(versions) == 0 {
		return a, err
	}
	moved, err := c.Promote(ctx, id.Name, id.Version) // the version that is added last is the current one
	a.Changes = append(a.Changes, moved...)
	return a, err
}

// The environment of Clipper's containers.
const (
	envName, envVersion, envPath, envInput = "MODEL_NAME", "MODEL_VERSION", "MODEL_PATH", "INPUT_TYPE"
	// envLabels keeps the labels, which Clipper only stores: a JSON array.
	envLabels = "MODEL_LABELS"
)

var dtypes = map[string]api.DType{"bytes": api.Bytes, "integers": api.Int32, "floats": api.Float32, "doubles": api.Float64, "strings": api.String}

// specOf declares a model as Clipper knows it: one input, a vector of any length or one string, and one string as its output.
func specOf(id api.ModelID, labels []string, input, image, path string, batch int) api.ModelSpec {
	in := api.TensorSpec{Name: "input", DType: dtypes[input], Shape: []int64{-1}}
	if in.DType.Variable() {
		in.Shape = []int64{}
	}
	spec := api.ModelSpec{
		Name: id.Name, Version: id.Version,
		Inputs: []api.TensorSpec{in}, Outputs: []api.TensorSpec{{Name: "output", DType: api.String, Shape: []int64{}}},
		Run: api.RunSpec{Image: image, Env: map[string]api.EnvValue{
			envName: {Value: id.Name}, envVersion: {Value: id.Version}, envPath: {Value: path}, envInput: {Value: input},
		}},
	}
	if len(labels) > 0 {
		text, _ := json.Marshal(labels) // only strings: cannot fail
		spec.Run.Env[envLabels] = api.EnvValue{Value: string(text)}
	}
	if batch > 0 {
		spec.Batching = api.BatchingSpec{Policy: api.BatchFixed, Max: batch}
	}
	return spec
}

func setModelVersion(ctx context.Context, c Control, r *request) (Answer, error) {
	id := r.model()
	a := Answer{Text: fmt.Sprintf("Successfully set model with name '%s' to version '%s'", id.Name, id.Version), Subject: "Model " + id.String()}
	if r.err != nil {
		return a, r.err
	}
	versions, err := c.Models(ctx, id.Name)
	switch {
	case hasCode(err, api.NotFound):
		return a, api.Errorf(api.NotFound, "Cannot set version for nonexistent model '%s'", id.Name)
	case err != nil:
		return a, err
	case find(versions, id) == nil:
		return a, api.Errorf(api.NotFound, "Cannot set non-existent version '%s' for model with name '%s'", id.Version, id.Name)
	}
	a.Changes, err = c.Promote(ctx, id.Name, id.Version)
	return a, err
}

func deleteModel(ctx context.Context, c Control, r *request) (Answer, error) {
	id := r.model()
	a := Answer{Text: fmt.Sprintf("Successfully deleted model with name '%s' and version '%s'", id.Name, id.Version), Subject: "Model " + id.String()}
	if r.err != nil {
		return a, r.err
	}
	versions, err := c.Models(ctx, id.Name)
	if hasCode(err, api.NotFound) || err == nil && find(versions, id) == nil {
		return a, api.Errorf(api.NotFound, "model with name '%s' and version '%s' does not exist", id.Name, id.Version)
	}
	if err == nil {
		a.Changes, err = c.Delete(ctx, api.KindModel, id)
	}
	return a, err
}

func find(versions []api.ModelStatus, id api.ModelID) *api.ModelStatus {
	if i := slices.IndexFunc(versions, func(m api.ModelStatus) bool { return m.Spec.ID() == id }); i >= 0 {
		return &versions[i]
	}
	return nil
}

func addLinks(ctx context.Context, c Control, r *request) (Answer, error) {
	app, names := r.name("app_name", "application"), r.texts("model_names")
	a := Answer{Subject: "Function " + app}
	if r.err != nil {
		return a, r.err
	}
	f, err := functionOf(ctx, c, app, "No app with name '%s' exists.")
	if err != nil {
		return a, err
	}
	if len(names) == 0 {
		return a, api.Errorf(api.InvalidArgument, "Please provide the name of the model that you want to link to the application '%s'", app)
	}
	spec := f.Spec
	spec.Models = slices.Clone(spec.Models)
	for _, name := range names {
		m, err := linkable(ctx, c, &spec, name)
		if err != nil {
			return a, err
		}
		spec.Models = append(spec.Models, name)
		if spec.Default != nil && len(m.Outputs) == 1 {
			spec.Default = defaultFor(spec.Default, m.Outputs[0].DType)
		}
	}
	if len(spec.Models) > 1 && spec.Policy.Name == api.PolicySingle {
		return a, api.Errorf(api.InvalidArgument, "Applications must be linked with at most one model, and '%s' would have %d: give the function a policy that takes several by `xebec apply`", app, len(spec.Models))
	}
	a.Text = fmt.Sprintf("Successfully linked model with name '%s' to application '%s'", names[0], app)
	return a, a.applyFunction(ctx, c, spec, f.Revision)
}

// linkable returns the serving version of a model that a function can have as its next one.
func linkable(ctx context.Context, c Control, f *api.FunctionSpec, name string) (*api.ModelSpec, error) {
	if err := api.CheckName("model", name); err != nil {
		return nil, api.Errorf(api.InvalidArgument, "model_names: %w", err)
	}
	if slices.Contains(f.Models, name) {
		return nil, api.Errorf(api.InvalidArgument, "The model with name '%s' is already linked to '%s'", name, f.Name)
	}
	versions, err := c.Models(ctx, name)
	if hasCode(err, api.NotFound) || err == nil && len(versions) == 0 {
		return nil, api.Errorf(api.NotFound, "No model with name '%s' exists.", name)
	}
	if err != nil {
		return nil, err
	}
	m := current(versions)
	if takes := api.InputTypeOf(m.Inputs); f.InputType != "" && takes != f.InputType {
		return nil, api.Errorf(api.InvalidArgument, "Model with name '%s' has incompatible input_type '%s'. Requested app to link to has input_type '%s'.", name, takes, f.InputType)
	}
	return m, nil
}

// current is the version that serves, or while none does the newest one.
func current(versions []api.ModelStatus) *api.ModelSpec {
	newest := &versions[0].Spec
	for i := range versions {
		m := &versions[i]
		if m.Serving {
			return &m.Spec
		}
		if api.CompareVersions(m.Spec.Version, newest.Version) > 0 {
			newest = &m.Spec
		}
	}
	return newest
}

func deleteLinks(ctx context.Context, c Control, r *request) (Answer, error) {
	app, names := r.name("app_name", "application"), r.texts("model_names")
	a := Answer{Text: "Success!", Subject: "Function " + app}
	if r.err != nil {
		return a, r.err
	}
	f, err := functionOf(ctx, c, app, "No app with name '%s' exists.")
	if err != nil {
		return a, err
	}
	spec := f.Spec
	spec.Models = slices.Clone(spec.Models)
	for _, name := range names {
		at := slices.Index(spec.Models, name)
		if at < 0 {
			return a, api.Errorf(api.NotFound, "Cannot remove nonexistent link between app %s and model %.63q", app, name)
		}
		spec.Models = slices.Delete(spec.Models, at, at+1)
	}
	return a, a.applyFunction(ctx, c, spec, f.Revision)
}

// asJSON is a default output as a function has it: the text is JSON if it can be read as JSON, as in Clipper's answers, else a string.
func asJSON(text string) json.RawMessage {
	if raw, err := api.CanonicalJSON([]byte(text)); err == nil && string(raw) != "null" {
		return raw
	}
	raw, _ := json.Marshal(text) // a string: cannot fail
	return raw
}

// asText is the text that asJSON or defaultFor was given.
func asText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var data struct {
		B64 *[]byte `json:"b64"`
	}
	if json.Unmarshal(raw, &data) == nil && data.B64 != nil {
		return string(*data.B64)
	}
	return string(raw)
}

// defaultFor is a default in the form that an output of this type has. What does not fit is left for the declaration to refuse.
func defaultFor(raw json.RawMessage, dtype api.DType) json.RawMessage {
	switch dtype {
	case api.String:
		text, _ := json.Marshal(asText(raw))
		return text
	case api.Bytes:
		return json.RawMessage(`{"b64":"` + base64.StdEncoding.EncodeToString([]byte(asText(raw))) + `"}`)
	}
	return raw
}
