package oip

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// serveFunctions is serve with the functions "f", "d", which has a default, and "m", all over the model m@1.
func serveFunctions(t *testing.T, submit func(it *scheduler.Item)) *fixture {
	f := serve(t, submit)
	functions := map[string]*query.Function{}
	for _, name := range []string{"f", "d", "m"} {
		functions[name] = &query.Function{Name: name, SLO: time.Minute, Candidates: []query.Candidate{{Model: f.model}}, Stats: new(obs.Endpoint)}
	}
	functions["d"].Default = []byte("-1")
	f.path.Publish(&query.Table{
		Functions: functions, Models: map[string]*query.Model{"m": f.model}, Versions: map[api.ModelID]*query.Model{f.model.ID: f.model},
	})
	return f
}

// withoutID replaces the query id of an answer, which is different in every run.
func withoutID(t *testing.T, body []byte) string {
	t.Helper()
	var parsed struct {
		Parameters struct{ Query_id json.Number }
	}
	if err := json.Unmarshal(body, &parsed); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return strings.Replace(string(body), `"query_id":`+string(parsed.Parameters.Query_id), `"query_id":ID`, 1)
}

func TestFunctions(t *testing.T) {
	var options string
	f := serveFunctions(t, func(it *scheduler.Item) {
		options = fmt.Sprintf("%s %s %v", it.Context, it.Parameters, time.Duration(it.Deadline-it.Arrived))
		if it.Inputs[0].Data[3] == 0 { // the first element is 0
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	const fails = `{"name":"input","datatype":"FP32","shape":[3,4],"data":[1,1,1,1,0,1,1,1,2,2,2,2]}`
	const output = `"outputs":[{"name":"output","datatype":"INT64","shape":`
	for _, c := range []struct {
		path, body string
		header     []string
		status     int
		want       string
		options    string
	}{
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `]}`, nil, 200,
			`{"model_name":"f","parameters":{"query_id":ID,"default":false,"confidence":1,"models":"m@1"},` + output + `[2],"data":[4,8]}]}`, "  1m0s"},
		{"/v2/models/m/infer", `{"id":"7","inputs":[` + twoRows + `]}`, nil, 200,
			`{"model_name":"m","id":"7","parameters":{"query_id":ID,"default":false,"confidence":1,"models":"m@1"},` + output + `[2],"data":[4,8]}]}`, ""},
		{"/v2/models/m@1/infer", `{"inputs":[` + twoRows + `]}`, nil, 200, `{"model_name":"m","model_version":"1",` + output + `[2],"data":[4,8]}]}`, "  30s"},
		{"/v2/models/m/versions/1/infer", `{"inputs":[` + twoRows + `]}`, nil, 200, `{"model_name":"m","model_version":"1",` + output + `[2],"data":[4,8]}]}`, ""},
		{"/v2/models/d/infer", `{"inputs":[` + fails + `]}`, nil, 200,
			`{"model_name":"d","parameters":{"query_id":ID,"default":true,"defaults":"1","default_explanation":"the model failed on this input","confidence":0,"confidences":"1,0,1","models":"m@1"},` +
				output + `[3],"data":[4,-1,8]}]}`, ""},
		{"/v2/models/f/infer", `{"inputs":[` + fails + `]}`, nil, 502, `{"error":"the model failed on this input","code":"model_error"}`, ""},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"context":"ann","slo_ms":20,"t":[1, 2],"models":"m","priority":3}}`, nil, 200, "", `ann {"t":[1, 2],"priority":3} 20ms`},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"timeout":2000,"sequence_id":7}}`, nil, 200, "", `7 {"sequence_id":7} 2ms`},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"timeout":2000,"sequence_id":7}}`, []string{"Xebec-Context", "bob", "Xebec-Slo-Ms", "9"}, 200, "", `bob {"sequence_id":7} 9ms`},
		{"/v2/models/m@1/infer", `{"inputs":[` + twoRows + `],"parameters":{"models":"x"}}`, nil, 200, "", ` {"models":"x"} 30s`},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"models":"x"}}`, nil, 400, `{"error":"models: \"x\" is no candidate of function f: expected some of m@1","code":"invalid_argument"}`, ""},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"min_confidence":0.5}}`, nil, 400,
			`{"error":"min_confidence: function f has no default output to give instead","code":"invalid_argument"}`, ""},
		{"/v2/models/f/infer", `{"inputs":[` + twoRows + `],"parameters":{"priority":-1}}`, nil, 400, `{"error":"parameters.priority: expected 0 or more, found -1 (byte 117)","code":"invalid_argument"}`, ""},
		{"/v2/models/f/versions/1/infer", `{}`, nil, 404,
			`{"error":"\"f\" is a function, which has no version \"1\": ask for it without a version, or for one of its models: m@1","code":"not_found"}`, ""},
	} {
		a := f.do("POST", c.path, c.body, c.header...)
		if got := withoutID(t, a.Body); a.Status != c.status || c.want != "" && got != c.want {
			t.Errorf("%s %s is answered\n%d %s, want\n%d %s", c.path, c.body, a.Status, got, c.status, c.want)
		}
		if c.options != "" && options != c.options {
			t.Errorf("%s %s is evaluated with %s, want %s", c.path, c.body, options, c.options)
		}
	}
	for path, want := range map[string]string{
		"/v2/models/f":       `{"name":"f","versions":[],"platform":"xebec","inputs":[{"name":"input","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"output","datatype":"INT64","shape":[-1]}]}`,
		"/v2/models/f/ready": `{"name":"f","ready":true}`,
		"/v2/models/m@1":     `{"name":"m@1","versions":["1"],"platform":"xebec","inputs":[{"name":"input","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"output","datatype":"INT64","shape":[-1]}]}`,
	} {
		if a := f.do("GET", path, ""); a.Status != 200 || string(a.Body) != want {
			t.Errorf("GET %s: %d %s, want %s", path, a.Status, a.Body, want)
		}
	}
	f.model.Ready.Store(0)
	if a := f.do("GET", "/v2/models/f/ready", ""); a.Status != 503 ||
		string(a.Body) != `{"name":"f","ready":false,"error":"no model of the function f has a replica that is ready","code":"unavailable"}` {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
}
