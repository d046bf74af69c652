package admin

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

const trafficDocument = "kind: Traffic\nname: m\nserving: \"1\"\n"

// The tag that a client reads can be sent back, in the header or in the document.
func TestExpectedRevisions(t *testing.T) {
	seen := func(kind api.Kind, name, version string, revision uint64) []api.ObjectRevision {
		return []api.ObjectRevision{{Kind: kind, Name: name, Version: version, Revision: revision}}
	}
	for _, c := range []struct {
		method, path, body, contentType, match string
		want                                   []api.ObjectRevision
	}{
		{"POST", "/v1/apply", trafficDocument, asYAML, `"7"`, seen(api.KindTraffic, "m", "", 7)},
		{"POST", "/v1/apply?dry_run", trafficDocument, asYAML, `"0"`, seen(api.KindTraffic, "m", "", 0)},
		{"POST", "/v1/apply", trafficDocument, asYAML, fmt.Sprintf(`"%d"`, uint64(math.MaxUint64)), seen(api.KindTraffic, "m", "", math.MaxUint64)},
		{"POST", "/v1/apply", document, asYAML, `"7"`, seen(api.KindFunction, "digits", "", 7)},
		{"POST", "/v1/apply", document, asYAML, "", nil},
		{"POST", "/v1/apply", trafficDocument + "revision: 9\n", asYAML, "", seen(api.KindTraffic, "m", "", 9)},
		{"POST", "/v1/apply", trafficDocument + "revision: 0\n---\n" + document, asYAML, "", seen(api.KindTraffic, "m", "", 0)},
		{
			"POST", "/v1/apply", `[{"kind":"Traffic","name":"m","revision":1},{"kind":"Function","name":"f","models":["m"],"revision":2}]`, asJSON, "",
			append(seen(api.KindTraffic, "m", "", 1), seen(api.KindFunction, "f", "", 2)...),
		},
		{"POST", "/v1/models/m/promote", "{}", asJSON, `"12"`, seen(api.KindTraffic, "m", "", 12)},
		{"POST", "/v1/models/m/rollback", "{}", asJSON, `"12"`, seen(api.KindTraffic, "m", "", 12)},
		{"POST", "/v1/models/m/rollback", "{}", asJSON, "", nil},
		{"DELETE", "/v1/models/m?version=2", "", asJSON, `"12"`, seen(api.KindModel, "m", "2", 12)},
		{"DELETE", "/v1/functions/f", "", asJSON, `"12"`, seen(api.KindFunction, "f", "", 12)},
		{"DELETE", "/v1/traffic/m", "", asJSON, `"12"`, seen(api.KindTraffic, "m", "", 12)},
	} {
		f := &fakeControl{}
		headers := []string{c.contentType}
		if c.match != "" {
			headers = append(headers, "If-Match: "+c.match)
		}
		if got := ask(engine(f), c.method, c.path, c.body, headers...); got.Code != 200 {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.Code, got.Body)
		}
		if diff := cmp.Diff(c.want, f.seen); diff != "" {
			t.Errorf("%s %s %s (-want +got):\n%s", c.method, c.path, c.body, diff)
		}
	}
}

func TestObjectsHaveTags(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/traffic/digits-svm": `"7"`, "/v1/functions/digits": `"5"`, "/v1/models/single": `"6"`,
		// An answer with several objects has no tag.
		"/v1/models/digits-svm": "", "/v1/models": "", "/v1/functions": "", "/v1/traffic": "", "/v1/models/unknown": "",
	} {
		got := ask(engine(&fakeControl{}), "GET", path, "")
		if tag := string(got.Header().Peek("ETag")); tag != want {
			t.Errorf("%s has the tag %s, want %s", path, tag, want)
		}
	}
}

// A header that cannot be honoured is refused before anything changes.
func TestRefusedMatches(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		message                  string
	}{
		{"not quoted", "DELETE", "/v1/functions/f", "", []string{"If-Match: 7"}, `the header If-Match "7": expected one revision in quotes`},
		{"half quoted", "DELETE", "/v1/functions/f", "", []string{`If-Match: "7`}, "expected one revision in quotes"},
		{"one quote", "DELETE", "/v1/functions/f", "", []string{`If-Match: "`}, "expected one revision in quotes"},
		{"nothing in quotes", "DELETE", "/v1/functions/f", "", []string{`If-Match: ""`}, "expected one revision in quotes"},
		{"empty", "DELETE", "/v1/functions/f", "", []string{"If-Match: "}, "the header If-Match is empty"},
		{"any", "DELETE", "/v1/functions/f", "", []string{"If-Match: *"}, "expected one revision in quotes"},
		{"weak", "DELETE", "/v1/functions/f", "", []string{`If-Match: W/"7"`}, "a weak tag matches nothing; did a proxy"},
		{"a list", "DELETE", "/v1/functions/f", "", []string{`If-Match: "7", "8"`}, "expected one revision in quotes"},
		{"twice", "DELETE", "/v1/functions/f", "", []string{`If-Match: "7"`, `If-Match: "8"`}, "occurs 2 times"},
		{"negative", "DELETE", "/v1/functions/f", "", []string{`If-Match: "-1"`}, "expected one revision in quotes"},
		{"signed", "DELETE", "/v1/functions/f", "", []string{`If-Match: "+1"`}, "expected one revision in quotes"},
		{"leading zeros", "DELETE", "/v1/functions/f", "", []string{`If-Match: "07"`}, "expected one revision in quotes"},
		{"other digits", "DELETE", "/v1/functions/f", "", []string{`If-Match: "٧"`}, "expected one revision in quotes"},
		{"beyond 64 bits", "DELETE", "/v1/functions/f", "", []string{`If-Match: "18446744073709551616"`}, "expected one revision in quotes"},
		{"long", "DELETE", "/v1/functions/f", "", []string{`If-Match: "` + strings.Repeat("7", 3000) + `"`}, "expected one revision in quotes"},
		{"must not exist", "DELETE", "/v1/functions/f", "", []string{"If-None-Match: *"}, `send If-Match: "0"`},
		{"all versions", "DELETE", "/v1/models/m", "", []string{`If-Match: "7"`}, "name one with ?version="},
		{"a directory", "POST", "/v1/deploy", `{"dir": "/x"}`, []string{asJSON, `If-Match: "7"`}, "a model directory declares a model and a function"},
		{"two objects", "POST", "/v1/apply", trafficDocument + "---\n" + document, []string{asYAML, `If-Match: "7"`}, "this declares 2: give each document its own field revision"},
		{"both", "POST", "/v1/apply", trafficDocument + "revision: 7\n", []string{asYAML, `If-Match: "7"`}, "expected one of them"},
		{"promote", "POST", "/v1/models/m/promote", "{}", []string{asJSON, "If-Match: x"}, "expected one revision in quotes"},
		{"rollback", "POST", "/v1/models/m/rollback", "{}", []string{asJSON, "If-Match: x"}, "expected one revision in quotes"},
		{"delete traffic", "DELETE", "/v1/traffic/m", "", []string{"If-Match: x"}, "expected one revision in quotes"},
		{"delete a version", "DELETE", "/v1/models/m?version=1", "", []string{"If-Match: x"}, "expected one revision in quotes"},
		{"text in the document", "POST", "/v1/apply", trafficDocument + "revision: \"7\"\n", []string{asYAML}, `revision: "7" is a string: expected a whole number`},
		{"negative in the document", "POST", "/v1/apply", trafficDocument + "revision: -7\n", []string{asYAML}, "expected at least 0"},
		{"null in the document", "POST", "/v1/apply", trafficDocument + "revision: null\n", []string{asYAML}, "revision: is null"},
		{"a list in the document", "POST", "/v1/apply", trafficDocument + "revision: [7]\n", []string{asYAML}, "expected a whole number"},
		{"beyond 64 bits in the document", "POST", "/v1/apply", trafficDocument + "revision: 18446744073709551616\n", []string{asYAML}, "revision: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeControl{}
			got := ask(engine(f), c.method, c.path, c.body, c.headers...)
			var body api.ErrorBody
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil || got.Code != 400 || !strings.Contains(body.Error.Message, c.message) {
				t.Errorf("got %d %s (%v), want 400 with %q", got.Code, got.Body, err, c.message)
			}
			if f.applied != nil || f.dir != "" || f.deleted != nil || f.moved != nil {
				t.Error("Control was called despite the refusal")
			}
		})
	}
}

// A conflict includes the current state, also for programs.
func TestStaleObjects(t *testing.T) {
	was := api.StaleObject{Kind: api.KindTraffic, Name: "m", Revision: 12, Action: "updated", By: "ann (127.0.0.1)", Time: testTime}
	f := &fakeControl{err: fmt.Errorf("apply: %w", api.Errorf(api.Conflict, "%w", &api.StaleError{Message: "traffic m is at revision 12", Objects: []api.StaleObject{was}}))}
	got := ask(engine(f), "POST", "/v1/apply", trafficDocument, asYAML, `If-Match: "11"`)
	const want = `{"error":{"code":"conflict","message":"apply: traffic m is at revision 12","stale":[{"kind":"Traffic","name":"m","revision":12,"action":"updated","by":"ann (127.0.0.1)","time":"2026-01-02T03:04:05Z"}]}}`
	if got.Code != 409 || strings.TrimSpace(got.Body.String()) != want {
		t.Errorf("got %d %s\nwant 409 %s", got.Code, got.Body, want)
	}
}

// A tag parses to its revision, or is rejected.
func FuzzParseTag(f *testing.F) {
	for _, given := range []string{`"0"`, `"12"`, `W/"12"`, `"`, `""`, `"18446744073709551615"`, `"18446744073709551616"`, `"01"`, `12`, `*`, `"1","2"`, "\"\x00\"", `"1_0"`} {
		f.Add(given)
	}
	f.Fuzz(func(t *testing.T, given string) {
		revision, err := parseTag(given)
		if err == nil && given != fmt.Sprintf(`"%d"`, revision) {
			t.Errorf("%q was parsed as %d", given, revision)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("an input of %d bytes gives an error of %d bytes", len(given), len(err.Error()))
		}
	})
}
