package admin

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/api"
)

// The values of environment variables are in an answer only if the caller asks for them, which is audited. Masked declarations cannot
// be applied.
func TestSecretsAreMasked(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	f := &fakeControl{env: map[string]api.EnvValue{"KEY": {Value: "s3cret"}, "TOKEN": {File: "/run/token"}}}
	e := engineWith(f, Options{Log: zap.New(core)})
	for path, what := range map[string]string{
		"/v1/models": "models", "/v1/models/digits-svm": "Model digits-svm", "/v1/describe/model/digits-svm": "Model digits-svm",
		"/v1/describe/function/digits": "Function digits", "/v1/export": "all declarations",
	} {
		for _, accept := range []string{"application/yaml", "application/json"} {
			for _, query := range []string{"", "?secrets=false"} {
				got := ask(e, "GET", path+query, "", "Accept: "+accept)
				if text := got.Body.String(); got.Code != 200 || strings.Contains(text, "s3cret") || !strings.Contains(text, "masked") || !strings.Contains(text, "/run/token") {
					t.Errorf("%s%s: %d %s", path, query, got.Code, text)
				}
			}
			if n := lines.TakeAll(); len(n) != 0 {
				t.Errorf("%s: without secrets the log has %v", path, n)
			}
			got := ask(e, "GET", path+"?secrets=true", "", "Accept: "+accept, "Xebec-User: ann")
			if text := got.Body.String(); got.Code != 200 || !strings.Contains(text, "s3cret") || strings.Contains(text, "masked") {
				t.Errorf("%s with secrets: %d %s", path, got.Code, text)
			}
			audit := lines.TakeAll()
			if len(audit) != 1 || audit[0].Message != "secrets are read" || audit[0].ContextMap()["user"] != "ann" || audit[0].ContextMap()["what"] != what {
				t.Errorf("%s: the log has %+v", path, audit)
			}
		}
		if got := ask(e, "GET", path+"?secrets=please", ""); got.Code != 400 {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	for _, kind := range []string{"yaml", "json"} {
		masked := ask(e, "GET", "/v1/export", "", "Accept: application/"+kind).Body.String()
		got := ask(e, "POST", "/v1/apply", masked, "Content-Type: application/"+kind)
		if want := "run.env.KEY: the value is masked"; got.Code != 400 || !strings.Contains(got.Body.String(), want) || f.applied != nil {
			t.Errorf("apply of a masked export: %d %s", got.Code, got.Body)
		}
	}
}

// No route shows a value by default: one that is added later must mask, too.
func TestNoRouteShowsSecrets(t *testing.T) {
	f := &fakeControl{env: map[string]api.EnvValue{"KEY": {Value: "s3cret"}, "TOKEN": {File: "/run/token"}}}
	e := engine(f)
	asked := 0
	for _, r := range e.Routes() {
		if r.Method != "GET" || strings.HasPrefix(r.Path, "/v1/profile") || strings.HasSuffix(r.Path, "/logs") {
			continue
		}
		for _, name := range []string{"digits-svm", "digits"} {
			asked++
			if got := ask(e, "GET", strings.Replace(r.Path, ":name", name, 1), ""); strings.Contains(got.Body.String(), "s3cret") {
				t.Errorf("%s %s shows a value: %s", r.Path, name, fmt.Sprintf("%.300s", got.Body))
			}
		}
	}
	if asked < 10 {
		t.Errorf("%d requests", asked)
	}
}
