package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// An export can be applied, in both formats.
func TestExportCanBeApplied(t *testing.T) {
	f := &fakeControl{}
	e := engine(f)
	for accept, contentType := range map[string]string{"": "application/yaml", "application/yaml": "application/yaml", "application/json": "application/json"} {
		got := ask(e, "GET", "/v1/export", "", "Accept: "+accept)
		if ct := string(got.Header().ContentType()); got.Code != 200 || ct != contentType {
			t.Fatalf("Accept %q: %d %s", accept, got.Code, ct)
		}
		set, err := manifest.Decode("export", got.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]api.FunctionSpec{function().Spec}, set.Functions); diff != "" {
			t.Errorf("Accept %q (-want +got):\n%s", accept, diff)
		}
		if again := ask(e, "POST", "/v1/apply", got.Body.String(), "Content-Type: "+contentType); again.Code != 200 || f.applied.Functions[0].Name != "digits" {
			t.Errorf("apply rejects the export: %d %s", again.Code, again.Body)
		}
	}
}

func TestExportOfNothing(t *testing.T) {
	e := engine(&fakeControl{nothing: true})
	for accept, want := range map[string]string{"": "# Nothing is declared.\n", "application/json": "[]\n"} {
		if got := ask(e, "GET", "/v1/export", "", "Accept: "+accept); got.Code != 200 || got.Body.String() != want {
			t.Errorf("Accept %q: got %d %q, want %q", accept, got.Code, got.Body, want)
		}
	}
}

// While not everything has been read lists say so, and a function is described without the models that are not known yet.
func TestWhatIsNotReadYet(t *testing.T) {
	why := "a watched directory of models has not been read yet"
	e := engineWith(&fakeControl{unread: true}, Options{Unread: func() string { return why }})
	for _, path := range []string{"/v1/models", "/v1/functions", "/v1/traffic"} {
		if got := ask(e, "GET", path, ""); got.Code != 200 || got.Header().Get("Xebec-Unread") != why {
			t.Errorf("%s: %d, header %q", path, got.Code, got.Header().Get("Xebec-Unread"))
		}
	}
	if got := ask(e, "GET", "/v1/models/digits-svm", ""); got.Code != 503 || got.Header().Get("Xebec-Unread") != why {
		t.Errorf("a model that is not known yet: %d %s, header %q", got.Code, got.Body, got.Header().Get("Xebec-Unread"))
	}
	if got := ask(e, "GET", "/v1/describe/function/digits", ""); got.Code != 200 || !strings.Contains(got.Body.String(), `"models":[]`) {
		t.Errorf("a function whose models are not known yet: %d %s", got.Code, got.Body)
	}
	why = ""
	if got := ask(e, "GET", "/v1/models", ""); got.Header().Get("Xebec-Unread") != "" {
		t.Errorf("what has been read has the header %q", got.Header().Get("Xebec-Unread"))
	}
}

func TestCallerName(t *testing.T) {
	for header, want := range map[string]string{"": "0.0.0.0", "Xebec-User: ann@laptop": "ann@laptop (0.0.0.0)", "Xebec-User: Ännchen @ Köln ": "Ännchen @ Köln (0.0.0.0)"} {
		f := &fakeControl{}
		ask(engine(f), "POST", "/v1/models/m/promote", "{}", asJSON, header)
		if got := f.caller.String(); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}

// Every change logs one line, even a refused one; queries and dry runs log none.
func TestAudit(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	const user = "Xebec-User: ann@laptop"
	f := &fakeControl{}
	e := engineWith(f, Options{Log: zap.New(core)})
	many := strings.Builder{}
	for i := range maxAuditNames + 2 {
		fmt.Fprintf(&many, "---\n%s", strings.Replace(document, "digits", fmt.Sprintf("f%d", i), 1))
	}
	for _, c := range []struct {
		method, path, body, header string
		err                        error
		want                       string
	}{
		{"GET", "/v1/models", "", asJSON, nil, ""},
		{"GET", "/v1/export", "", asJSON, nil, ""},
		{"POST", "/v1/apply?dry_run=true", document, asYAML, nil, ""},
		{"POST", "/v1/apply?dry_run=true", document, asYAML, errors.New("no"), ""},
		{"POST", "/v1/apply", document, asYAML, nil, "info audit changed user=ann@laptop address=0.0.0.0 action=apply what=[Function digits] outcome=ok changes=[Function digits updated]"},
		{"POST", "/v1/apply", many.String(), asYAML, nil, "… and 2 more] outcome=ok changes=[Function f0 updated"},
		{"POST", "/v1/apply", document, asYAML, api.Errorf(api.Conflict, "another change was first"), "warn audit refused or failed user=ann@laptop address=0.0.0.0 action=apply what=[Function digits] outcome=conflict error=another change was first"},
		{"POST", "/v1/apply", "kind: Widget", asYAML, nil, "action=apply what=[] outcome=invalid_argument error=manifest:1:7"},
		{"POST", "/v1/apply", document, asYAML, errors.New(strings.Repeat("ä", 300)), "error=" + strings.Repeat("ä", 250) + "…"},
		{"POST", "/v1/deploy", `{"dir": "/models/digits"}`, asJSON, nil, "action=deploy what=[/models/digits] outcome=ok changes=[Model digits-svm@1 unchanged]"},
		{"DELETE", "/v1/models/m?version=2", "", asJSON, nil, "action=delete what=[Model m@2] outcome=ok changes=[Model m@2 deleted]"},
		{"DELETE", "/v1/functions/digits", "", asJSON, nil, "action=delete what=[Function digits] outcome=ok"},
		{"DELETE", "/v1/traffic/m", "", asJSON, nil, "action=delete what=[Traffic m] outcome=ok"},
		{"GET", "/v1/learned/digits?all", "", asJSON, nil, ""},
		{"PUT", "/v1/learned/digits?dry_run", learnedBody, asJSON, nil, ""},
		{"PUT", "/v1/learned/digits", learnedBody, asJSON, nil, "info audit changed user=ann@laptop address=0.0.0.0 action=import learned what=[Function digits, what it has learned in all contexts] outcome=ok changes=[2 states replaced]"},
		{"PUT", "/v1/learned/digits", learnedBody, asJSON, api.Errorf(api.InvalidArgument, "it does not fit"), "warn audit refused or failed user=ann@laptop address=0.0.0.0 action=import learned what=[Function digits, what it has learned in all contexts] outcome=invalid_argument"},
		{"DELETE", "/v1/learned/digits?context=user%2017", "", asJSON, nil, `action=reset learned what=[Function digits, what it has learned in context "user 17"] outcome=ok changes=[1 state replaced]`},
		{"POST", "/v1/models/m/promote", `{"version": "4"}`, asJSON, nil, "action=promote what=[Model m@4] outcome=ok changes=[Traffic m@4 updated]"},
		{"POST", "/v1/models/m/rollback", `{"reason": "wrong sevens"}`, asJSON, nil, "action=rollback what=[Model m: wrong sevens] outcome=ok"},
	} {
		f.err = c.err
		ask(e, c.method, c.path, c.body, c.header, user)
		var got []string
		for _, entry := range lines.TakeAll() {
			line := fmt.Sprintf("%s %s %s", entry.Level, entry.LoggerName, entry.Message)
			fields := entry.ContextMap()
			for _, field := range entry.Context {
				line += fmt.Sprintf(" %s=%v", field.Key, fields[field.Key])
			}
			got = append(got, line)
		}
		if len(got) > 1 || (c.want == "") != (len(got) == 0) || c.want != "" && !strings.Contains(got[0], c.want) {
			t.Errorf("%s %s: got %q\nwant %q in it", c.method, c.path, got, c.want)
		}
	}
}

// A name without changes is found only if something has that name: a model of a watched directory has no history.
func TestHistoryOfOneName(t *testing.T) {
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/v1/history/digits-svm", 200, `"action":"promoted"`},
		{"/v1/history/unchanged", 200, `{"events":[]}`},
		{"/v1/history/unknown", 404, `"code":"not_found"`},
		{"/v1/history/Digits", 400, `"code":"invalid_argument"`},
		{"/v1/history/a..b", 400, `"code":"invalid_argument"`},
		{"/v1/history/-?limit=1", 400, `"code":"invalid_argument"`},
	} {
		got := ask(engine(&fakeControl{}), "GET", c.path, "")
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.want) {
			t.Errorf("%s: got %d %s, want %d with %s", c.path, got.Code, got.Body, c.status, c.want)
		}
	}
}

// A gateway that has given up what is declared says that it stops, not that nothing is declared.
func TestEnded(t *testing.T) {
	var ended error
	e := engineWith(&fakeControl{}, Options{Ended: func() error { return ended }})
	for _, path := range []string{"/v1/models", "/v1/describe/gateway"} {
		ended = nil
		if w := ask(e, "GET", path, "", "Accept: application/json"); w.Code != 200 {
			t.Errorf("%s is answered %d", path, w.Code)
		}
		ended = api.Errorf(api.ShuttingDown, "the gateway is stopping")
		if w := ask(e, "GET", path, "", "Accept: application/json"); w.Code != 503 || !strings.Contains(w.Body.String(), "the gateway is stopping") {
			t.Errorf("at the end %s is answered %d %s", path, w.Code, w.Body)
		}
	}
}
