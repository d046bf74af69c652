package tfserving

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// world is the dialect over the versions "NAME@1" of some models, each with a function "f-NAME".
type world struct {
	t     *testing.T
	local *dialect.Local
	model map[string]*query.Model
	asked string // options of the last query
}

// mirror answers with the inputs. The test's models have outputs like their inputs.
func mirror(it *scheduler.Item) {
	out := make([]api.Value, len(it.Inputs))
	for i, v := range it.Inputs {
		out[i] = api.Value{Data: append([]byte(nil), v.Data...), Dims: append([]int64(nil), v.Dims...)}
	}
	it.SetResult(out, 0.75)
	it.Owner.Answered(it, api.OK)
	it.Owner.Released(it, api.OK)
}

func tensors(specs ...api.TensorSpec) api.Signature {
	return api.Signature{Inputs: specs, Outputs: specs}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, model: map[string]*query.Model{}}
	start := time.Now()
	p := query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	table := &query.Table{Functions: map[string]*query.Function{}, Models: map[string]*query.Model{}, Versions: map[api.ModelID]*query.Model{}}
	for name, sig := range map[string]api.Signature{
		"vector": tensors(api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{2}}),
		"scalar": tensors(api.TensorSpec{Name: "x", DType: api.Float64}),
		"ragged": tensors(api.TensorSpec{Name: "x", DType: api.Int64, Shape: []int64{-1}}),
		"two":    tensors(api.TensorSpec{Name: "a", DType: api.Int32}, api.TensorSpec{Name: "b", DType: api.Float32, Shape: []int64{2}}),
		"text":   tensors(api.TensorSpec{Name: "s", DType: api.String}),
		"bytes":  tensors(api.TensorSpec{Name: "image_bytes", DType: api.Bytes}),
		"loose":  tensors(api.TensorSpec{Name: "raw", DType: api.Bytes}),
		"scored": {
			Inputs:  []api.TensorSpec{{Name: "classes", DType: api.String, Shape: []int64{2}}, {Name: "scores", DType: api.Float32, Shape: []int64{2}}},
			Outputs: []api.TensorSpec{{Name: "classes", DType: api.String, Shape: []int64{2}}, {Name: "scores", DType: api.Float32, Shape: []int64{2}}},
		},
	} {
		m := query.NewModel(api.ModelID{Name: name, Version: "1"}, sig, &querytest.Lane{Submit: func(it *scheduler.Item) {
			w.asked = fmt.Sprintf("%s %s %v", it.Context, it.Parameters, time.Duration(it.Deadline-it.Arrived))
			mirror(it)
		}}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		w.model[name] = m
		table.Models[name], table.Versions[m.ID], table.Versions[api.ModelID{Name: name, Version: "stable"}] = m, m, m
		table.Functions["f-"+name] = &query.Function{Name: "f-" + name, SLO: time.Minute, Candidates: []query.Candidate{{Model: m}}, Stats: new(obs.Endpoint)}
	}
	p.Publish(table)
	w.local = dialect.NewLocal(p, Dialect{})
	t.Cleanup(func() {
		if n := p.Open(); n != 0 {
			t.Errorf("%d requests are open", n)
		}
	})
	return w
}

func (w *world) do(method, path, body string, header ...string) *dialect.Answer {
	w.t.Helper()
	m := &dialect.Message{Method: method, Path: path, Header: map[string]string{}, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		m.Header[header[i]] = header[i+1]
	}
	a, err := w.local.Do(w.t.Context(), m)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func TestPredict(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ path, body, want string }{
		{"vector:predict", `{"instances":[[1,2],[3,4]]}`, `{"predictions":[[1,2],[3,4]]}`},
		{"vector:predict", `{"instances":[{"x":[1,2]}],"signature_name":"serving_default"}`, `{"predictions":[[1,2]]}`},
		{"vector/versions/1:predict", `{"inputs":[[1,2],[3,4]],"signature_name":""}`, `{"outputs":[[1,2],[3,4]]}`},
		{"vector/labels/stable:predict", `{"inputs":{"x":[1,2]}}`, `{"outputs":[1,2]}`},
		{"vector@1:predict", `{"inputs":[1,2]}`, `{"outputs":[1,2]}`},
		{"vector:predict", `{"instances":[[NaN,-Infinity],[Infinity,1e38]]}`, `{"predictions":[[NaN,-Infinity],[Infinity,1e+38]]}`},
		{"scalar:predict", `{"instances":[1.5,2]}`, `{"predictions":[1.5,2]}`},
		{"scalar:predict", `{"inputs":1.5}`, `{"outputs":1.5}`},
		{"scalar:predict", `{"inputs":[1.5]}`, `{"outputs":[1.5]}`},
		{"ragged:predict", `{"instances":[[1],[2,3],[]]}`, `{"predictions":[[1],[2,3],[]]}`},
		{"two:predict", `{"instances":[{"b":[1,2],"a":7},{"a":8,"b":[3,4]}]}`, `{"predictions":[{"a":7,"b":[1,2]},{"a":8,"b":[3,4]}]}`},
		{"two:predict", `{"inputs":{"a":[7,8],"b":[[1,2],[3,4]]}}`, `{"outputs":{"a":[7,8],"b":[[1,2],[3,4]]}}`},
		{"two:predict", `{"inputs":{"b":[1,2],"a":7}}`, `{"outputs":{"a":7,"b":[1,2]}}`},
		{"text:predict", `{"instances":["ä",{"b64":"w6Q="},{"s":"x"}]}`, `{"predictions":["ä","ä","x"]}`},
		{"bytes:predict", `{"instances":[{"b64":"/w=="},{"image_bytes":{"b64":"YQ=="}},"b"]}`, `{"predictions":[{"b64":"/w=="},{"b64":"YQ=="},{"b64":"Yg=="}]}`},
		{"loose:predict", `{"instances":[{"b64":"/w=="},{"b64":"YQ=="}]}`, `{"predictions":[{"b64":"/w=="},"a"]}`},
		{"f-vector:predict", `{"instances":[[1,2]],"other":{"x":[null]}}`, `{"predictions":[[1,2]]}`},
		{"scored:classify", `{"examples":[{"classes":["a","b"],"scores":[0.25,NaN]}]}`, `{"result":[[["a",0.25],["b",NaN]]]}`},
		{"scored:classify", `{"context":{"classes":["a","b"]},"examples":[{"scores":[1,0]},{"scores":[0,1]}]}`, `{"result":[[["a",1],["b",0]],[["a",0],["b",1]]]}`},
		{"vector:classify", `{"examples":[{"x":[0.5,0.25]}]}`, `{"result":[[["0",0.5],["1",0.25]]]}`},
		{"text:classify", `{"examples":[{"s":"cat"},{"s":["dog"]}]}`, `{"result":[[["cat",0.75]],[["dog",0.75]]]}`},
		{"scalar:regress", `{"examples":[{"x":1.5},{"x":[2]}]}`, `{"result":[1.5,2]}`},
	} {
		a := w.do("POST", "/v1/models/"+c.path, c.body)
		if a.Status != 200 || string(a.Body) != c.want || a.ContentType != dialect.JSON {
			t.Errorf("%s %s is answered\n%d %s, want\n%s", c.path, c.body, a.Status, a.Body, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		path, body string
		status     int
		want       string // a part of the message
	}{
		{"none:predict", `{}`, 404, "Servable not found for request: Latest(none): "},
		{"vector/versions/9:predict", `{}`, 404, "Servable not found for request: Specific(vector, 9): "},
		{"vector", `{}`, 400, "expected a verb"},
		{"vector:explain", `{}`, 501, "explain is not supported"},
		{"vector:fly", `{}`, 404, "expected :predict, :classify or :regress"},
		{"vector:predict", `{}`, 400, `expected a member "instances" (rows) or "inputs" (columns)`},
		{"vector:predict", `{"instances":[[1,2]],"inputs":[1,2]}`, 400, "found both"},
		{"vector:predict", `{"instances":[[1,2]],"inputs":[[1,2]]}`, 400, "found both"},
		{"vector:predict", `{"inputs":[[1,2]],"instances":[[1,2]]}`, 400, "found both"},
		{"vector:predict", `{"instances":[[1,2]],"instances":[[1,2]]}`, 400, `the member "instances" is there twice`},
		{"vector:predict", `{"instances":[]}`, 400, "expected one query or more"},
		{"vector:predict", `{"inputs":[]}`, 400, "expected 2"},
		{"scalar:predict", `{"inputs":[]}`, 400, "expected one query or more"},
		{"vector:predict", `{"instances":[[1,2]],"signature_name":"other"}`, 400, `"other" not found in signature def`},
		{"vector:predict", `{"instances":[[1,2,3]]}`, 400, "instances[0]"},
		{"vector:predict", `{"instances":[{"y":[1,2]}]}`, 400, `unknown input "y"`},
		{"two:predict", `{"instances":[7]}`, 400, `expected an object of the inputs`},
		{"two:predict", `{"inputs":[7]}`, 400, `expected an object of the inputs`},
		{"two:predict", `{"inputs":{"a":[7]}}`, 400, `the input "b"`},
		{"two:predict", `{"inputs":{"a":[7],"b":[1,2]}}`, 400, "some inputs have a batch dimension"},
		{"two:predict", `{"inputs":{"a":[7],"b":[[1,2],[3,4]]}}`, 400, "expected 1 queries"},
		{"two:predict", `{"inputs":{"a":[7,8],"b":[[1,2]]}}`, 400, "1 queries: expected 2"},
		{"scalar:predict", `{"instances":[1,2,3,4,5,6,7,8,9]}`, 400, "more than 8 inputs"},
		{"text:predict", `{"instances":[{"b64":"/w=="}]}`, 400, "bytes that are not UTF-8"},
		{"vector:predict", `{"instances":[[1,2]]} x`, 400, "byte 22"},
		{"vector:predict", `{"instances":[[1,2]],"parameters":{"slo_ms":-1}}`, 400, "slo_ms"},
		{"vector:regress", `{"examples":[]}`, 400, "is one number for each query"},
		{"scalar:regress", `{"examples":[{"x":[1,2]}]}`, 400, "expected one value"},
		{"scalar:regress", `{"examples":[{}]}`, 400, `the feature "x"`},
		{"scalar:regress", `{"examples":[{"x":1}],"context":{"x":2}}`, 400, "is there twice"},
		{"scalar:regress", `{"context":{"x":"` + strings.Repeat("x", maxContext) + `"},"examples":[{}]}`, 400, "expected at most 65536"},
		{"scalar:classify", `{"examples":[{"x":1}]}`, 400, "has scores or a class"},
	} {
		a := w.do("POST", "/v1/models/"+c.path, c.body)
		if a.Status != c.status || !strings.HasPrefix(string(a.Body), `{"error":"`) || !strings.Contains(strings.ReplaceAll(string(a.Body), `\"`, `"`), c.want) {
			t.Errorf("%s %.80s is answered %d %s, want %d and %q", c.path, c.body, a.Status, a.Body, c.status, c.want)
		}
	}
}

// TestOptions: a call's options come in parameters or header fields, and what a function says is in header fields.
func TestOptions(t *testing.T) {
	w := newWorld(t)
	a := w.do("POST", "/v1/models/f-vector:predict", `{"instances":[[1,2]],"parameters":{"context":"ann","slo_ms":20,"k":[1]}}`)
	if want := `ann {"k":[1]} 20ms`; a.Status != 200 || w.asked != want {
		t.Errorf("answered %d %s, evaluated with %q, want %q", a.Status, a.Body, w.asked, want)
	}
	fields := map[string]string{}
	for _, f := range a.Fields {
		fields[f.Name] = string(f.Value)
	}
	if fields["Xebec-Query-Id"] == "" || fields["Xebec-Default"] != "false" || fields["Xebec-Confidence"] != "0.75" || fields["Xebec-Models"] != "vector@1" {
		t.Errorf("fields %v", fields)
	}
	if a = w.do("POST", "/v1/models/vector:predict", `{"instances":[[1,2]]}`, "Xebec-Slo-Ms", "9"); w.asked != "  9ms" || len(a.Fields) != 0 {
		t.Errorf("evaluated with %q, fields %v", w.asked, a.Fields)
	}
}

func TestDocuments(t *testing.T) {
	w := newWorld(t)
	get := func(path string, status int, want string) {
		t.Helper()
		if a := w.do("GET", "/v1/models/"+path, ""); a.Status != status || string(a.Body) != want {
			t.Errorf("GET %s: %d %s, want %d %s", path, a.Status, a.Body, status, want)
		}
	}
	const metadata = `"metadata":{"signature_def":{"signature_def":{"serving_default":{"inputs":{` + tensor + `},"outputs":{` + tensor + `},"method_name":"tensorflow/serving/predict"}}}}}`
	get("vector/metadata", 200, `{"model_spec":{"name":"vector","signature_name":"","version":"1"},`+metadata)
	get("vector/versions/1/metadata", 200, `{"model_spec":{"name":"vector","signature_name":"","version":"1"},`+metadata)
	get("f-vector/metadata", 200, `{"model_spec":{"name":"f-vector","signature_name":"","version":""},`+metadata)
	get("vector/versions/1", 200, `{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}`)
	w.model["vector"].Ready.Store(0)
	get("vector/labels/stable", 200, `{"model_version_status":[{"version":"1","state":"LOADING","status":{"error_code":"OK","error_message":""}}]}`)
	if a := w.do("GET", "/v1/models/vector/versions/9", ""); a.Status != 404 {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
}

const tensor = `"x":{"dtype":"DT_FLOAT","tensor_shape":{"dim":[{"size":"-1","name":""},{"size":"2","name":""}],"unknown_rank":false},"name":"x:0"}`

// TestParseAllocatesNothing in steady state.
func TestParseAllocatesNothing(t *testing.T) {
	var q Request
	specs := []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{4}}}
	s := &rows{specs: 1}
	for _, body := range []string{`{"instances":[[1,2,3,4],[0.5,0,0,1]]}`, `{"inputs":{"x":[[1,2,3,4],[0.5,0,0,1]]}}`} {
		body := []byte(body)
		run := func() {
			s.n = 0
			if err := q.Parse(body, false, specs, s); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(100, run); n > 0 {
			t.Errorf("%s: %v allocations", body, n)
		}
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(s.list[1][0].Data)); got != 0.5 {
		t.Errorf("got %v", got)
	}
}

// rows is a sink.
type rows struct {
	specs, n int
	list     [][]api.Value
}

func (s *rows) Next() ([]api.Value, error) {
	if s.n == 64 {
		return nil, api.Errorf(api.InvalidArgument, "more than 64 inputs")
	}
	if s.n == len(s.list) {
		s.list = append(s.list, make([]api.Value, s.specs))
	}
	s.n++
	return s.list[s.n-1], nil
}
