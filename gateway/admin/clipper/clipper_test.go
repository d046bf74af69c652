package clipper

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// fake keeps what is declared, with revisions.
type fake struct {
	functions []api.FunctionStatus
	models    []api.ModelStatus
	calls     []string
}

func (f *fake) Apply(_ context.Context, set *manifest.Set, _ bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	for _, s := range seen {
		if s.Kind == api.KindFunction {
			i := slices.IndexFunc(f.functions, func(g api.FunctionStatus) bool { return g.Spec.Name == s.Name })
			if i < 0 && s.Revision != 0 || i >= 0 && f.functions[i].Revision != s.Revision {
				return nil, api.Errorf(api.Conflict, "%w", &api.StaleError{})
			}
		}
	}
	var changes []api.Change
	for _, spec := range set.Functions {
		f.functions = slices.DeleteFunc(f.functions, func(g api.FunctionStatus) bool { return g.Spec.Name == spec.Name })
		f.functions = append(f.functions, api.FunctionStatus{Spec: spec, Revision: uint64(len(f.calls) + 1)})
		changes = append(changes, api.Change{Kind: api.KindFunction, Name: spec.Name, Action: api.Updated})
	}
	for _, spec := range set.Models {
		for i := range f.models {
			f.models[i].Serving = f.models[i].Serving && f.models[i].Spec.Name != spec.Name
		}
		f.models = append(f.models, api.ModelStatus{Spec: spec, Serving: true, Replicas: []api.ReplicaStatus{{ID: 7, State: api.ReplicaReady}}})
		changes = append(changes, api.Change{Kind: api.KindModel, Name: spec.Name, Version: spec.Version, Action: api.Created})
	}
	f.calls = append(f.calls, "apply")
	return changes, nil
}

func (f *fake) Models(_ context.Context, name string) (out []api.ModelStatus, err error) {
	for _, m := range f.models {
		if name == "" || m.Spec.Name == name {
			out = append(out, m)
		}
	}
	if name != "" && out == nil {
		err = api.Errorf(api.NotFound, "no model %q", name)
	}
	return out, err
}

func (f *fake) Functions(_ context.Context, name string) (out []api.FunctionStatus, err error) {
	for _, g := range f.functions {
		if name == "" || g.Spec.Name == name {
			out = append(out, g)
		}
	}
	if name != "" && out == nil {
		err = api.Errorf(api.NotFound, "no function %q", name)
	}
	return out, err
}

func (f *fake) Delete(_ context.Context, kind api.Kind, id api.ModelID, _ ...api.ObjectRevision) ([]api.Change, error) {
	f.functions = slices.DeleteFunc(f.functions, func(g api.FunctionStatus) bool { return kind == api.KindFunction && g.Spec.Name == id.Name })
	f.models = slices.DeleteFunc(f.models, func(m api.ModelStatus) bool { return kind == api.KindModel && m.Spec.ID() == id })
	return []api.Change{{Kind: kind, Name: id.Name, Version: id.Version, Action: api.Deleted}}, nil
}

func (f *fake) Promote(_ context.Context, model, version string, _ ...api.ObjectRevision) ([]api.Change, error) {
	for i := range f.models {
		if m := &f.models[i]; m.Spec.Name == model {
			m.Serving = m.Spec.Version == version
		}
	}
	f.calls = append(f.calls, "promote "+model+"@"+version)
	return []api.Change{{Kind: api.KindTraffic, Name: model, Action: api.Updated}}, nil
}

// ask carries an operation out and returns its text, its JSON or its error.
func ask(c Control, name, body string) (text string, code api.Code) {
	i := slices.IndexFunc(Operations, func(o Operation) bool { return o.Name == name })
	a, err := Operations[i].Do(context.Background(), c, []byte(body))
	if err != nil {
		code = api.Internal
		if known, ok := errors.AsType[*api.Error](err); ok {
			code = known.Code
		}
		return err.Error(), code
	}
	if Operations[i].Changes {
		return a.Text, api.OK
	}
	out, _ := json.Marshal(a.Value)
	return string(out), api.OK
}

const (
	app      = `{"name": "hello", "input_type": "d", "default_output": "-1.0", "latency_slo_micros": 100000}`
	modelOne = `{"model_name": "sum", "model_version": "1", "labels": ["x"], "input_type": "doubles", "container_name": "registry.example.com/sum:1", "model_data_path": "/model/", "batch_size": -1}`
)

// The life of an application, in the order in which clipper_admin goes through it.
func TestAnApplicationsLife(t *testing.T) {
	f := &fake{}
	for _, c := range []struct{ name, body, want string }{
		{"add_app", app, "Successfully added application with name 'hello'"},
		{"get_application", `{"name": "hello"}`, `{"name":"hello","input_type":"doubles","default_output":"-1.0","latency_slo_micros":100000,"linked_models":[]}`},
		{"get_linked_models", `{"app_name": "hello"}`, `[]`},
		{"add_model", modelOne, "Successfully added model with name 'sum' and input type 'doubles'"},
		{"add_model_links", `{"app_name": "hello", "model_names": ["sum"]}`, "Successfully linked model with name 'sum' to application 'hello'"},
		{"get_linked_models", `{"app_name": "hello"}`, `["sum"]`},
		{"add_model", strings.ReplaceAll(strings.Replace(modelOne, `-1}`, `9}`, 1), `"1"`, `"2"`), "Successfully added model with name 'sum' and input type 'doubles'"},
		{"get_all_models", `{"verbose": false}`, `["sum:1","sum:2"]`},
		{"get_model", `{"model_name": "sum", "model_version": "2"}`, `{"model_name":"sum","model_version":"2","input_type":"doubles","labels":["x"],"container_name":"registry.example.com/sum:1","model_data_path":"/model/","batch_size":9,"is_current_version":true}`},
		{"set_model_version", `{"model_name": "sum", "model_version": "1"}`, "Successfully set model with name 'sum' to version '1'"},
		{"get_all_models", `{"verbose": true}`, `[{"model_name":"sum","model_version":"1","input_type":"doubles","labels":["x"],"container_name":"registry.example.com/sum:1","model_data_path":"/model/","batch_size":-1,"is_current_version":true},{"model_name":"sum","model_version":"2","input_type":"doubles","labels":["x"],"container_name":"registry.example.com/sum:1","model_data_path":"/model/","batch_size":9,"is_current_version":false}]`},
		{"get_all_containers", `{"verbose": false}`, `["sum:1:7","sum:2:7"]`},
		{"get_container", `{"model_name": "sum", "model_version": "1", "replica_id": 7}`, `{"model_id":"sum:1","model_name":"sum","model_version":"1","model_replica_id":7,"input_type":"doubles","batch_size":-1,"state":"ready"}`},
		{"get_container", `{"model_name": "sum", "model_version": "1", "replica_id": -1}`, `{}`},
		{"get_state", `{"app_name": "hello", "uid": 0}`, `{"app_name":"hello","uid":"0","policy":"single","candidates":[],"reason":"the application has no models, so nothing is learned"}`},
		{"delete_model_links", `{"app_name": "hello", "model_names": ["sum"]}`, "Success!"},
		{"delete_versioned_model", `{"model_name": "sum", "model_version": "2"}`, "Successfully deleted model with name 'sum' and version '2'"},
		{"get_all_applications", `{"verbose": true}`, `[{"name":"hello","input_type":"doubles","default_output":"-1.0","latency_slo_micros":100000,"linked_models":[]}]`},
		{"delete_app", `{"name": "hello"}`, "Successfully deleted application with name 'hello'"},
		{"get_all_applications", `{"verbose": false}`, `[]`},
		{"get_application", `{"name": "hello"}`, `{}`},
		{"get_model", `{"model_name": "none", "model_version": "2"}`, `{}`},
	} {
		if got, code := ask(f, c.name, c.body); code != api.OK || got != c.want {
			t.Errorf("%s %s\ngot  %v %s\nwant %s", c.name, c.body, code, got, c.want)
		}
	}
	if diff := cmp.Diff([]string{"apply", "apply", "apply", "apply", "promote sum@2", "promote sum@1", "apply"}, f.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	f := &fake{}
	for _, set := range [][2]string{{"add_app", app}, {"add_model", modelOne}, {"add_model", strings.NewReplacer(`"sum"`, `"texts"`, `"doubles"`, `"s"`).Replace(modelOne)}} {
		if got, code := ask(f, set[0], set[1]); code != api.OK {
			t.Fatal(got)
		}
	}
	for _, c := range []struct {
		name, body string
		code       api.Code
		want       string
	}{
		{"add_app", app, api.Conflict, "application 'hello' already exists"},
		{"add_app", `{"name": "x"`, api.InvalidArgument, `Error parsing JSON: the body is not a JSON object. Expected JSON schema: {"name": string, `},
		{"add_app", `null`, api.InvalidArgument, "the body is not a JSON object"},
		{"add_app", `{"name": "x"}`, api.InvalidArgument, `Error parsing JSON: there is no "input_type"`},
		{"add_app", `{"name": 7}`, api.InvalidArgument, `"name" is not a string`},
		{"add_app", strings.Replace(app, "hello", "Hello_1", 1), api.InvalidArgument, `name: application name "Hello_1": expected lower-case letters, digits and '-'`},
		{"add_app", strings.Replace(app, "hello", "admin", 1), api.InvalidArgument, `"admin" is reserved`},
		{"add_app", strings.Replace(app, `"d"`, `"tensor"`, 1), api.InvalidArgument, `input_type "tensor": expected bytes, integers, floats, doubles, strings`},
		{"add_app", strings.Replace(app, "100000", "0", 1), api.InvalidArgument, "latency_slo_micros: 0: expected 1 to 600000000"},
		{"add_app", strings.Replace(app, "100000", "1.5", 1), api.InvalidArgument, `"latency_slo_micros" is not an integer`},
		{"delete_app", `{"name": "none"}`, api.NotFound, "Application 'none' does not exist"},
		{"add_model", modelOne, api.Conflict, "model with name 'sum' and version '1' already exists"},
		{"add_model", strings.Replace(modelOne, "-1}", "0}", 1), api.InvalidArgument, "The batch size must be positive or DEFAULT_BATCH_SIZE, which is -1"},
		{"add_model", strings.Replace(modelOne, "registry.example.com/sum:1", "NO_CONTAINER", 1), api.InvalidArgument, "container_name is NO_CONTAINER: expected the image that serves the model"},
		{"add_model", strings.Replace(modelOne, "registry.example.com/sum:1", "", 1), api.InvalidArgument, "container_name is empty: expected the image"},
		{"add_model", strings.NewReplacer("registry.example.com/sum:1", "not an image", `"1"`, `"3"`).Replace(modelOne), api.InvalidArgument, "run.image"},
		{"add_model", strings.Replace(modelOne, `"1"`, `1`, 1), api.InvalidArgument, `"model_version" is not a string`},
		{"set_model_version", `{"model_name": "none", "model_version": "1"}`, api.NotFound, "Cannot set version for nonexistent model 'none'"},
		{"set_model_version", `{"model_name": "sum", "model_version": "9"}`, api.NotFound, "Cannot set non-existent version '9' for model with name 'sum'"},
		{"delete_versioned_model", `{"model_name": "sum", "model_version": "9"}`, api.NotFound, "model with name 'sum' and version '9' does not exist"},
		{"add_model_links", `{"app_name": "none", "model_names": ["sum"]}`, api.NotFound, "No app with name 'none' exists."},
		{"add_model_links", `{"app_name": "hello", "model_names": ["none"]}`, api.NotFound, "No model with name 'none' exists."},
		{"add_model_links", `{"app_name": "hello", "model_names": []}`, api.InvalidArgument, "Please provide the name of the model"},
		{"add_model_links", `{"app_name": "hello", "model_names": ["texts"]}`, api.InvalidArgument, "Model with name 'texts' has incompatible input_type 'strings'. Requested app to link to has input_type 'doubles'."},
		{"add_model_links", `{"app_name": "hello", "model_names": ["sum", "sum"]}`, api.InvalidArgument, "The model with name 'sum' is already linked to 'hello'"},
		{"delete_model_links", `{"app_name": "hello", "model_names": ["sum"]}`, api.NotFound, "Cannot remove nonexistent link between app hello and model"},
		{"get_linked_models", `{"app_name": "none"}`, api.NotFound, "No application with name 'none' exists."},
		{"get_all_models", `{}`, api.InvalidArgument, `there is no "verbose"`},
		{"get_state", `{"app_name": "hello", "uid": null}`, api.InvalidArgument, `"uid" is not a string`},
	} {
		if got, code := ask(f, c.name, c.body); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s %s\ngot  %v %s\nwant %v %s", c.name, c.body, code, got, c.code, c.want)
		}
	}
}

// One model is linked unless the function's policy takes several; the default has the form of the outputs.
func TestLinks(t *testing.T) {
	f := &fake{}
	ask(f, "add_app", app)
	ask(f, "add_model", modelOne)
	ask(f, "add_model", strings.Replace(modelOne, `"sum"`, `"mean"`, 1))
	const both = `{"app_name": "hello", "model_names": ["sum", "mean"]}`
	if got, code := ask(f, "add_model_links", both); code != api.InvalidArgument || !strings.Contains(got, "at most one model, and 'hello' would have 2") {
		t.Errorf("two links: %v %s", code, got)
	}
	f.functions[0].Spec.Policy.Name = api.PolicyPrefer
	if got, code := ask(f, "add_model_links", both); code != api.OK {
		t.Errorf("two links of a function that takes several: %v %s", code, got)
	}
	if spec := f.functions[0].Spec; string(spec.Default) != `"-1.0"` || !slices.Equal(spec.Models, []string{"sum", "mean"}) {
		t.Errorf("the function is %+v", spec)
	}
	f.functions[0].Policy = &api.PolicyStatus{Learns: true, Candidates: []api.CandidateLearning{{Ref: "sum", Share: 1}}, Contexts: []api.ContextStatus{{Context: "5", Candidates: []api.CandidateLearning{{Ref: "mean", Share: 1}}}}}
	for uid, want := range map[string]string{"5": `"ref":"mean"`, `"ann"`: "over all users"} {
		if got, _ := ask(f, "get_state", `{"app_name": "hello", "uid": `+uid+`}`); !strings.Contains(got, want) {
			t.Errorf("state of %s: %s", uid, got)
		}
	}
}

func TestDefaultOutputs(t *testing.T) {
	for _, c := range []struct {
		text  string
		dtype api.DType
		want  string
	}{
		{"-1.0", api.Float64, "-1.0"}, {"-1.0", api.String, `"-1.0"`}, {"none", api.String, `"none"`}, {"", api.String, `""`}, {"null", api.String, `"null"`},
		{"[1, 2]", api.Int32, "[1,2]"}, {"none", api.Bytes, `{"b64":"bm9uZQ=="}`},
	} {
		raw := defaultFor(asJSON(c.text), c.dtype)
		if string(raw) != c.want {
			t.Errorf("%q for %s is %s, want %s", c.text, c.dtype, raw, c.want)
		}
		if back := asText(raw); back != strings.ReplaceAll(c.text, ", ", ",") {
			t.Errorf("%s is shown as %q, want %q", raw, back, c.text)
		}
	}
}

// FuzzOperations: no body makes an operation panic, or succeed with a declaration that is not valid.
func FuzzOperations(f *testing.F) {
	for i, o := range Operations {
		for _, seed := range []string{app, modelOne, `{"app_name": "hello", "model_names": ["sum"], "uid": -1}`, `{"verbose": true}`, `{"name": "hello", "model_name": "sum", "model_version": "1", "replica_id": 7}`, `[]`, o.schema} {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		c := &fake{}
		ask(c, "add_app", app)
		ask(c, "add_model", modelOne)
		o := &Operations[uint(i)%uint(len(Operations))]
		a, err := o.Do(context.Background(), c, body)
		if err != nil && err.Error() == "" || err == nil && o.Changes == (a.Text == "") {
			t.Errorf("%s %q: %+v, %v", o.Name, body, a, err)
		}
		for _, g := range c.functions {
			if err := g.Spec.Validate(); err != nil {
				t.Errorf("%s %q declares %v", o.Name, body, err)
			}
		}
		for _, m := range c.models {
			if err := m.Spec.Validate(); err != nil {
				t.Errorf("%s %q declares %v", o.Name, body, err)
			}
		}
	})
}
