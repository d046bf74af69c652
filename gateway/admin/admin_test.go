package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/ut"
	"github.com/cloudwego/hertz/pkg/route"
	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

const document = "kind: Function\nname: digits\nmodels: [digits-svm]\nslo: 20ms\n"

// engine returns the admin API over a control, without a network.
func engine(c Control) *route.Engine { return engineWith(c, Options{}) }

func engineWith(c Control, o Options) *route.Engine {
	e := route.NewEngine(config.NewOptions(nil))
	Register(e, c, o)
	e.NoRoute(NoRoute)
	return e
}

// ask performs one request. headers are "Name: value"; the default Host is loopback.
func ask(e *route.Engine, method, path, body string, headers ...string) *ut.ResponseRecorder {
	all := []ut.Header{{Key: "Host", Value: "127.0.0.1:1338"}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			all[0].Value = value
			continue
		}
		all = append(all, ut.Header{Key: name, Value: value})
	}
	return ut.PerformRequest(e, method, path, &ut.Body{Body: bytes.NewBufferString(body), Len: len(body)}, all...)
}

const (
	asYAML = "Content-Type: application/yaml"
	asJSON = "Content-Type: application/json; charset=utf-8"
)

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		headers            []string
		want               string
	}{
		{"POST", "/v1/apply", document, []string{asYAML}, `{"changes":[{"kind":"Function","name":"digits","action":"updated"}]}`},
		{"POST", "/v1/apply?dry_run=true", document, []string{asYAML}, `{"changes":[{"kind":"Function","name":"digits","action":"updated"}],"dry_run":true}`},
		{"POST", "/v1/apply?dry_run=false", `{"kind":"Function","name":"f","models":["m"]}`, []string{asJSON}, `{"changes":[{"kind":"Function","name":"f","action":"updated"}]}`},
		{"POST", "/v1/deploy", `{"dir": "/models/digits/../digits"}`, []string{asJSON}, `{"changes":[{"kind":"Model","name":"digits-svm","version":"1","action":"unchanged"}]}`},
		{"DELETE", "/v1/models/digits-svm", "", nil, `{"changes":[{"kind":"Model","name":"digits-svm","action":"deleted"}]}`},
		{"DELETE", "/v1/models/digits-svm?version=2", "", nil, `{"changes":[{"kind":"Model","name":"digits-svm","version":"2","action":"deleted"}]}`},
		{"DELETE", "/v1/functions/digits", "", nil, `{"changes":[{"kind":"Function","name":"digits","action":"deleted"}]}`},
		{"DELETE", "/v1/traffic/digits-svm", "", nil, `{"changes":[{"kind":"Traffic","name":"digits-svm","action":"deleted"}]}`},
		{"POST", "/v1/models/digits-svm/promote", "{}", []string{asJSON}, `{"changes":[{"kind":"Traffic","name":"digits-svm","action":"updated"}]}`},
		{"POST", "/v1/models/digits-svm/rollback", `{"to": "1", "reason": "wrong sevens"}`, []string{asJSON}, `{"changes":[{"kind":"Traffic","name":"digits-svm","version":"1","action":"updated"}]}`},
		{"GET", "/v1/history", "", nil, `{"events":[{"revision":7,"time":"2026-01-02T03:04:05Z","by":"ann@laptop (127.0.0.1)","action":"promoted","kind":"Traffic","name":"digits-svm","version":"2"}]}`},
		{"GET", "/v1/history/unchanged?limit=1", "", nil, `{"events":[]}`},
		{"GET", "/v1/describe/scheduler", "", nil, `{"state":"awake","epoch_micros":10000,"epochs":12,"planned_at":"2026-01-02T03:04:05Z","plan_micros":40,"plan_p99_micros":90,"functions":[{"name":"digits","weight":1,"queries_per_second":100,"slo_micros":20000,"cost_per_second":0,"candidates":[{"model":"digits-svm@2","evaluated":1,"gain":1,"cost":0}],"refused":0},{"name":"new","weight":2,"queries_per_second":0,"slo_micros":0,"cost_per_second":0,"candidates":[],"refused":0}],` +
			`"models":[{"model":"digits-svm@2","known":false,"capacity_per_second":0,"demand_per_second":0,"planned_per_second":0,"utilisation":0,"execution":"whole","hold_micros":0,"replicas":[]}],"devices":[]}`},
		{"GET", "/v1/version", "", nil, `{"version":"v1.2.3","go_version":"go1.26"}`},
		{"GET", "/v1/functions/digits", "", nil, `{"functions":[{"spec":{"name":"digits","models":["digits-svm"],"slo":"100ms","policy":"single","weight":1},"revision":5,"ready":true,"models":["digits-svm@2"],"created":"2026-01-02T03:04:05Z","defaults":0,"rate":{"queries_per_second":0,"p50_ms":0,"p99_ms":0}}]}`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			got := ask(engine(&fakeControl{}), c.method, c.path, c.body, c.headers...)
			if got.Code != 200 || strings.TrimSpace(got.Body.String()) != c.want {
				t.Errorf("got %d %s\nwant 200 %s", got.Code, got.Body, c.want)
			}
			if ct := string(got.Header().ContentType()); ct != "application/json" {
				t.Errorf("Content-Type is %q", ct)
			}
		})
	}
}

func TestControlArguments(t *testing.T) {
	f := &fakeControl{}
	e := engine(f)
	ask(e, "POST", "/v1/apply?dry_run&base=/models/here/", "kind: Model\nname: m\ninputs: [{name: x, dtype: bool, shape: []}]\noutputs: [{name: y, dtype: bool, shape: []}]\nrun: {command: [x]}\n", asYAML)
	if f.applied == nil || !f.dryRun || f.applied.Models[0].Dir != "/models/here" || f.applied.Models[0].Version != "1" {
		t.Errorf("Apply was called with %+v, dry run %v", f.applied, f.dryRun)
	}
	ask(e, "POST", "/v1/deploy", `{"dir": "/models/digits/../svm"}`, asJSON)
	if f.dir != "/models/svm" {
		t.Errorf("Deploy was called with %q", f.dir)
	}
	ask(e, "DELETE", "/v1/models/digits-svm?version=2", "")
	ask(e, "DELETE", "/v1/functions/digits", "")
	if diff := cmp.Diff([]string{"Model digits-svm@2", "Function digits@"}, f.deleted); diff != "" {
		t.Errorf("delete (-want +got):\n%s", diff)
	}
	ask(e, "DELETE", "/v1/traffic/digits-svm", "")
	ask(e, "POST", "/v1/models/digits-svm/promote", `{"version": "2"}`, asJSON)
	ask(e, "POST", "/v1/models/digits-svm/promote", `{}`, asJSON)
	ask(e, "POST", "/v1/models/digits-svm/rollback", `{"reason": " wrong sevens "}`, asJSON)
	ask(e, "GET", "/v1/history", "")
	ask(e, "GET", "/v1/history/digits-svm?limit=1000", "")
	if diff := cmp.Diff("Traffic digits-svm@", f.deleted[2]); diff != "" {
		t.Errorf("delete (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"promote digits-svm@2", "promote digits-svm@", "rollback digits-svm@ wrong sevens"}, f.moved); diff != "" {
		t.Errorf("promote and rollback (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{" 50", "digits-svm 1000"}, f.asked); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestDescriptions(t *testing.T) {
	e := engine(&fakeControl{})
	decode := func(path string, into any) {
		t.Helper()
		got := ask(e, "GET", path, "")
		if got.Code != 200 {
			t.Fatalf("%s: %d %s", path, got.Code, got.Body)
		}
		if err := json.Unmarshal(got.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	var list api.ModelList
	decode("/v1/models", &list)
	if diff := cmp.Diff([]api.ModelStatus{model("1"), model("2")}, list.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	var one api.ModelList
	decode("/v1/models/digits-svm", &one)
	if len(one.Models) != 2 {
		t.Errorf("got %d versions, want 2", len(one.Models))
	}
	var functions api.FunctionList
	decode("/v1/functions", &functions)
	if len(functions.Functions) != 2 {
		t.Errorf("got %d functions, want 2", len(functions.Functions))
	}
	var m api.ModelDescription
	decode("/v1/describe/model/digits-svm", &m)
	if len(m.Models) != 2 || len(m.Functions) != 1 || m.Functions[0].Spec.Name != "digits" || m.Traffic == nil || m.Traffic.Serving != "2" {
		t.Errorf("got %+v", m)
	}
	var f api.FunctionDescription
	decode("/v1/describe/function/digits", &f)
	if len(f.Models) != 1 || f.Models[0].Spec.Version != "2" || f.Function.Spec.Name != "digits" {
		t.Errorf("got %+v", f)
	}
	for _, path := range []string{"/v1/traffic", "/v1/traffic/digits-svm"} {
		var list api.TrafficList
		decode(path, &list)
		if diff := cmp.Diff([]api.TrafficStatus{traffic()}, list.Traffic); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	var g api.GatewayStatus
	decode("/v1/describe/gateway", &g)
	if g.PID != 7 {
		t.Errorf("got %+v", g)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		code, message            string
	}{
		{"no route", "GET", "/v1/nothing", "", nil, 404, "not_found", `GET "/v1/nothing" is not part of the admin API`},
		{"a function on the wrong port", "POST", "/digits/predict", "{}", []string{asJSON}, 404, "not_found", "functions are called on the function port"},
		{"a parameter of the scheduler", "GET", "/v1/describe/scheduler?function=digits", "", nil, 400, "invalid_argument", `unknown query parameter "function": expected none`},
		{"unknown model", "GET", "/v1/models/unknown", "", nil, 404, "not_found", `no model "unknown"`},
		{"unknown function", "GET", "/v1/describe/function/unknown", "", nil, 404, "not_found", `no function "unknown"`},
		{"bad name", "GET", "/v1/models/No", "", nil, 400, "invalid_argument", `model name "No": expected lower-case letters`},
		{"bad version", "DELETE", "/v1/models/m?version=", "", nil, 400, "invalid_argument", `version "" has 0 bytes`},
		{"version of a function", "DELETE", "/v1/functions/f?version=1", "", nil, 400, "invalid_argument", `unknown query parameter "version": expected none`},
		{"misspelt parameter", "POST", "/v1/apply?dryrun=true", document, []string{asYAML}, 400, "invalid_argument", `unknown query parameter "dryrun": expected dry_run, base`},
		{"parameter twice", "POST", "/v1/apply?dry_run=false&dry_run=true", document, []string{asYAML}, 400, "invalid_argument", `duplicate query parameter "dry_run"`},
		{"bad boolean", "POST", "/v1/apply?dry_run=maybe", document, []string{asYAML}, 400, "invalid_argument", `dry_run="maybe": expected true or false`},
		{"relative base", "POST", "/v1/apply?base=here", document, []string{asYAML}, 400, "invalid_argument", `base "here": expected the absolute path`},
		{"bad manifest", "POST", "/v1/apply", "kind: Widget", []string{asYAML}, 400, "invalid_argument", `manifest:1:7: kind: "Widget": expected Model, Function or Traffic`},
		{"no content type", "POST", "/v1/apply", document, nil, 400, "invalid_argument", `Content-Type "": expected application/yaml`},
		{"text", "POST", "/v1/apply", document, []string{"Content-Type: text/plain"}, 400, "invalid_argument", `Content-Type "text/plain": expected application/yaml`},
		{"a form", "POST", "/v1/deploy", "dir=/x", []string{"Content-Type: application/x-www-form-urlencoded"}, 400, "invalid_argument", `expected application/json`},
		{"large", "POST", "/v1/apply", strings.Repeat("#", MaxBodyBytes+1), []string{asYAML}, 413, "too_large", "the body has 12582913 bytes: expected at most 12582912"},
		{"not JSON", "POST", "/v1/deploy", "{", []string{asJSON}, 400, "invalid_argument", `the body is not {"dir": "/absolute/path"}`},
		{"unknown member", "POST", "/v1/deploy", `{"dir": "/x", "version": 1}`, []string{asJSON}, 400, "invalid_argument", `unknown field "version"`},
		{"two values", "POST", "/v1/deploy", `{"dir": "/x"} {}`, []string{asJSON}, 400, "invalid_argument", `more than one JSON value`},
		{"relative directory", "POST", "/v1/deploy", `{"dir": "x"}`, []string{asJSON}, 400, "invalid_argument", `dir "x": expected the absolute path of a directory`},
		{"no directory", "POST", "/v1/deploy", `{}`, []string{asJSON}, 400, "invalid_argument", `dir is empty`},
		{"nothing to run", "POST", "/v1/inspect", `{"dir": "/x"}`, []string{asJSON}, 400, "invalid_argument", `run.command: is empty: expected the program`},
		{"inspecting a relative directory", "POST", "/v1/inspect", `{"dir": "x", "command": ["python"]}`, []string{asJSON}, 400, "invalid_argument", `dir "x": expected the absolute path of a directory`},
		{"an empty program", "POST", "/v1/inspect", `{"dir": "/x", "command": [""]}`, []string{asJSON}, 400, "invalid_argument", `run.command[0]: is empty: expected a program`},
		{"too many lines", "GET", "/v1/models/m/logs?lines=9999", "", nil, 400, "invalid_argument", `lines="9999": expected 0 to 1000`},
		{"traffic of unknown", "GET", "/v1/traffic/unknown", "", nil, 404, "not_found", `no model "unknown"`},
		{"promote without a type", "POST", "/v1/models/m/promote", "{}", nil, 400, "invalid_argument", "expected application/json"},
		{"promote without a body", "POST", "/v1/models/m/promote", "", []string{asJSON}, 400, "invalid_argument", `the body is not {} or {"version": "4"}`},
		{"promote to nothing", "POST", "/v1/models/m/promote", `{"version": ""}`, []string{asJSON}, 400, "invalid_argument", `version: version "" has 0 bytes`},
		{"promote misspelt", "POST", "/v1/models/m/promote", `{"to": "3"}`, []string{asJSON}, 400, "invalid_argument", `unknown field "to"`},
		{"a bad version", "POST", "/v1/models/m/rollback", `{"to": "a b"}`, []string{asJSON}, 400, "invalid_argument", `to: version "a b"`},
		{"a reason of two lines", "POST", "/v1/models/m/rollback", `{"reason": "a\nb"}`, []string{asJSON}, 400, "invalid_argument", `reason "a\nb": expected one line of at most 1024 bytes`},
		{"no history", "GET", "/v1/history?limit=0", "", nil, 400, "invalid_argument", `limit="0": expected 1 to 1000`},
		{"too much history", "GET", "/v1/history/m?limit=1001", "", nil, 400, "invalid_argument", `limit="1001": expected 1 to 1000`},
		{"a part of the export", "GET", "/v1/export?name=m", "", nil, 400, "invalid_argument", `unknown query parameter "name": expected secrets`},
		{"a user with a bell", "GET", "/v1/models", "", []string{"Xebec-User: a\ab"}, 400, "invalid_argument", "the header Xebec-User"},
		{"a long user", "GET", "/v1/models", "", []string{"Xebec-User: " + strings.Repeat("x", 129)}, 400, "invalid_argument", "expected at most 128 bytes of printable text"},
		{"a user with a bidirectional override", "GET", "/v1/models", "", []string{"Xebec-User: a\u202eb"}, 400, "invalid_argument", "the header Xebec-User"},
		{"two users", "GET", "/v1/models", "", []string{"Xebec-User: a", "Xebec-User: b"}, 400, "invalid_argument", "the header Xebec-User occurs 2 times"},
		{"foreign host", "GET", "/v1/models", "", []string{"Host: evil.example:1338"}, 403, "forbidden", "the Host header is not a loopback name or address"},
		{"no host", "GET", "/v1/models", "", []string{"Host: "}, 403, "forbidden", "the Host header"},
		{"foreign origin", "DELETE", "/v1/models/digits-svm", "", []string{"Origin: http://evil.example"}, 403, "forbidden", "a page of another origin"},
		{"null origin", "DELETE", "/v1/models/digits-svm", "", []string{"Origin: null"}, 403, "forbidden", "a page of another origin"},
		{"cross-site", "GET", "/v1/models/digits-svm/logs", "", []string{"Sec-Fetch-Site: cross-site"}, 403, "forbidden", "a page of another site"},
		{"same site is another origin", "GET", "/v1/models", "", []string{"Sec-Fetch-Site: same-site"}, 403, "forbidden", "a page of another site"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeControl{}
			got := ask(engine(f), c.method, c.path, c.body, c.headers...)
			var body api.ErrorBody
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v in %q", err, got.Body)
			}
			if got.Code != c.status || body.Error.Code != c.code || !strings.Contains(body.Error.Message, c.message) {
				t.Errorf("got %d %+v\nwant %d %s with %q", got.Code, body.Error, c.status, c.code, c.message)
			}
			if f.applied != nil || f.dir != "" || f.deleted != nil || f.moved != nil || f.asked != nil {
				t.Error("Control was called despite the refusal")
			}
		})
	}
}

func TestErrorsOfControl(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		want   api.ErrorInfo
	}{
		{api.Errorf(api.Conflict, "function digits needs it"), 409, api.ErrorInfo{Code: "conflict", Message: "function digits needs it"}},
		{fmt.Errorf("apply: %w", api.Errorf(api.Unavailable, "stopping")), 503, api.ErrorInfo{Code: "unavailable", Message: "apply: stopping"}},
		{
			api.Errorf(api.InvalidArgument, "%w", manifest.Errors{{File: "manifest", Line: 3, Column: 4, Kind: api.KindFunction, Name: "f", Path: "policy.eta", Message: "2: expected 0 to 1"}}), 400,
			api.ErrorInfo{Code: "invalid_argument", Message: "manifest:3:4: function f: policy.eta: 2: expected 0 to 1", Problems: []api.Problem{{Kind: api.KindFunction, Name: "f", Path: "policy.eta", Message: "2: expected 0 to 1"}}},
		},
		{errors.New("disk full"), 500, api.ErrorInfo{Code: "internal", Message: "disk full"}},
	} {
		e := engine(&fakeControl{err: c.err})
		for _, r := range []struct{ method, path, body, header string }{
			{"POST", "/v1/apply", document, asYAML}, {"POST", "/v1/deploy", `{"dir": "/x"}`, asJSON}, {"GET", "/v1/models", "", asJSON},
			{"GET", "/v1/functions/digits", "", asJSON}, {"DELETE", "/v1/models/digits-svm", "", asJSON}, {"DELETE", "/v1/functions/digits", "", asJSON},
			{"GET", "/v1/describe/model/digits-svm", "", asJSON}, {"GET", "/v1/describe/function/digits", "", asJSON}, {"GET", "/v1/describe/gateway", "", asJSON},
			{"GET", "/v1/describe/scheduler", "", asJSON},
			{"GET", "/v1/models/digits-svm/logs", "", asJSON}, {"GET", "/v1/version", "", asJSON},
			{"GET", "/v1/traffic", "", asJSON}, {"DELETE", "/v1/traffic/m", "", asJSON}, {"POST", "/v1/models/m/promote", "{}", asJSON}, {"POST", "/v1/models/m/rollback", "{}", asJSON},
			{"GET", "/v1/history", "", asJSON}, {"GET", "/v1/export", "", asJSON},
		} {
			got := ask(e, r.method, r.path, r.body, r.header)
			var body api.ErrorBody
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil || got.Code != c.status || !reflect.DeepEqual(body.Error, c.want) {
				t.Errorf("%s %s: got %d %s, want %d %+v", r.method, r.path, got.Code, got.Body, c.status, c.want)
			}
		}
	}
}

func TestRejectedOrigins(t *testing.T) {
	for _, c := range []struct {
		host, origin, site string
		ok                 bool
	}{
		{"localhost", "", "", true}, {"LOCALHOST:1338", "", "", true}, {"127.0.0.1:1338", "", "", true}, {"127.9.9.9", "", "", true},
		{"[::1]:1338", "", "", true}, {"[::1]", "", "", true},
		{"localhost:1338", "http://localhost:1338", "same-origin", true}, {"localhost:1338", "", "none", true},
		{"localhost:1338", "http://localhost:3000", "", false}, {"localhost:1338", "http://localhost", "", false},
		{"localhost.evil.example", "", "", false}, {"0.0.0.0:1338", "", "", false}, {"192.168.0.1:1338", "", "", false}, {"", "", "", false},
		{"127.0.0.1.evil.example:1338", "", "", false}, {"localhost:1338", "file://", "", false}, {"localhost:1338", "%", "", false},
	} {
		if why := rejectReason(c.host, c.origin, c.site, false); (why == "") != c.ok {
			t.Errorf("Host %q, Origin %q, Sec-Fetch-Site %q: %q", c.host, c.origin, c.site, why)
		}
		// With any host permitted, every Host is accepted, but pages of other origins are still refused.
		if why := rejectReason(c.host, c.origin, c.site, true); (why == "") != (c.ok || c.origin == "" && c.site == "") {
			t.Errorf("any Host, %q, Origin %q, Sec-Fetch-Site %q: %q", c.host, c.origin, c.site, why)
		}
	}
}
