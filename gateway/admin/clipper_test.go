package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/api"
)

const clipperApp = `{"name": "hello", "input_type": "doubles", "default_output": "-1.0", "latency_slo_micros": 100000}`

// Clipper's routes answer in its form: texts of success, JSON to questions, 400 with a text.
func TestClipperRoutes(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		kind, want         string
	}{
		{"GET", "/admin/ping", "", nil, 200, "text/plain; charset=utf-8", "PONG"},
		{"GET", "/admin/ping/", "", nil, 200, "text/plain; charset=utf-8", "PONG"},
		{"POST", "/admin/add_app", clipperApp, []string{asJSON}, 200, "text/plain; charset=utf-8", "Successfully added application with name 'hello'"},
		{"POST", "/admin/add_app/", clipperApp, []string{asJSON}, 200, "text/plain; charset=utf-8", "Successfully added application with name 'hello'"},
		{"POST", "/admin/get_all_models", `{"verbose": false}`, []string{asJSON}, 200, "application/json", "[\"digits-svm:1\",\"digits-svm:2\"]\n"},
		{"POST", "/admin/get_linked_models/", `{"app_name": "digits"}`, []string{asJSON}, 200, "application/json", "[\"digits-svm\"]\n"},
		{"POST", "/admin/get_application", `{"name": "digits"}`, []string{asJSON}, 200, "application/json",
			`{"name":"digits","input_type":"floats","default_output":"","latency_slo_micros":100000,"linked_models":["digits-svm"]}` + "\n"},
		{"POST", "/admin/set_model_version", `{"model_name": "digits-svm", "model_version": "1"}`, []string{asJSON}, 200, "text/plain; charset=utf-8", "Successfully set model with name 'digits-svm' to version '1'"},
		{"POST", "/admin/delete_app", `{"name": "none"}`, []string{asJSON}, 400, "text/plain; charset=utf-8", "Application 'none' does not exist"},
		{"POST", "/admin/delete_app", `{"name": "digits"}`, []string{asJSON, `If-Match: "1"`}, 400, "text/plain; charset=utf-8", "the header If-Match applies to one object, but an operation of Clipper says nothing of revisions"},
		{"POST", "/admin/delete_app", `{"name": "digits"}`, []string{"Content-Type: text/plain"}, 400, "text/plain; charset=utf-8", `Content-Type "text/plain": expected application/json`},
		{"POST", "/admin/delete_app", `{"name": "digits"}`, []string{asJSON, "Origin: https://example.com"}, 403, "application/json", ""},
		{"POST", "/admin/delete_app", `{"name": "digits"}`, []string{asJSON, "Host: example.com"}, 403, "application/json", ""},
	} {
		got := ask(engine(&fakeControl{}), c.method, c.path, c.body, c.headers...)
		if body := got.Body.String(); got.Code != c.status || string(got.Header().ContentType()) != c.kind || c.want != "" && body != c.want {
			t.Errorf("%s %s: got %d %q %s\nwant %d %q %s", c.method, c.path, got.Code, got.Header().ContentType(), body, c.status, c.kind, c.want)
		}
	}
}

// The gateway's own failures keep their status.
func TestClipperFailures(t *testing.T) {
	for code, want := range map[api.Code]int{api.Unavailable: 503, api.Internal: 500, api.Unsupported: 501, api.Conflict: 400} {
		got := ask(engine(&fakeControl{err: api.Errorf(code, "reason")}), "POST", "/admin/add_app", clipperApp, asJSON)
		if got.Code != want || got.Body.String() != "reason" {
			t.Errorf("%s: got %d %s, want %d", code, got.Code, got.Body, want)
		}
	}
}

// Operations need the port's token, and those that change are audited with the caller's name.
func TestClipperIsGuardedAndAudited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	const secret = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(file, []byte("ann:"+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	core, lines := observer.New(zap.InfoLevel)
	control := &fakeControl{}
	e := engineWith(control, Options{Log: zap.New(core), Tokens: tokens})
	if got := ask(e, "POST", "/admin/add_app", clipperApp, asJSON); got.Code != 401 || control.applied != nil {
		t.Errorf("without a token: %d %s", got.Code, got.Body)
	}
	ask(e, "POST", "/admin/add_app", clipperApp, asJSON, "Authorization: Bearer "+secret)
	ask(e, "POST", "/admin/delete_app", `{"name": "none"}`, asJSON, "Authorization: Bearer "+secret)
	ask(e, "POST", "/admin/get_all_models", `{"verbose": true}`, asJSON, "Authorization: Bearer "+secret)
	audit := lines.Filter(func(l observer.LoggedEntry) bool { return strings.HasSuffix(l.LoggerName, "audit") }).All()
	if len(audit) != 2 || audit[0].ContextMap()["user"] != "ann" || audit[0].ContextMap()["action"] != "clipper add_app" || audit[1].ContextMap()["outcome"] != "not_found" {
		t.Errorf("the audit is %+v", audit)
	}
	if control.caller.Name != "ann" || control.applied == nil || control.applied.Functions[0].InputType != "doubles" || len(control.seen) != 1 {
		t.Errorf("Apply was called by %+v with %+v", control.caller, control.applied)
	}
}
