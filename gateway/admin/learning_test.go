package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

const learnedBody = `{"version":1,"function":"digits","policy":"exp3","candidates":["a"],"all":true,"states":[` +
	`{"rows":[{"candidate":"a","count":2,"loss_sum":0.5,"own":[0.25]}]},{"context_base64":"/w==","rows":[{"candidate":"a","count":1,"loss_sum":0.5,"own":[0]}]}]}`

func learnedState() api.LearnedState {
	c := api.LearnedContext{Rows: []api.LearnedRow{{Candidate: "a", Count: 1, LossSum: 0.5, Own: []float64{0}}}}
	c.SetContext("\xff")
	return api.LearnedState{
		Version: 1, Function: "digits", Policy: api.PolicySpec{Name: "exp3"}, Candidates: []string{"a"}, All: true,
		States: []api.LearnedContext{{Rows: []api.LearnedRow{{Candidate: "a", Count: 2, LossSum: 0.5, Own: []float64{0.25}}}}, c},
	}
}

func (f *fakeControl) note(what string, values ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(what, values...))
}

func (f *fakeControl) ExportLearned(_ context.Context, function string, which api.LearnedSelection) (api.LearnedState, error) {
	f.note("export %s %+v", function, which)
	s := learnedState()
	if function == "large" {
		s.States[0].Rows[0].Candidate = strings.Repeat("a", MaxBodyBytes)
	}
	return s, f.err
}

func (f *fakeControl) ImportLearned(_ context.Context, function string, s api.LearnedState, dryRun bool) (api.LearnedChange, error) {
	f.note("import %s %+v %v", function, s, dryRun)
	return api.LearnedChange{Function: function, States: len(s.States), DryRun: dryRun}, f.err
}

func (f *fakeControl) ResetLearned(_ context.Context, function string, which api.LearnedSelection) (api.LearnedChange, error) {
	f.note("reset %s %+v", function, which)
	return api.LearnedChange{Function: function, States: 1}, f.err
}

func (f *fakeControl) LearnedHistory(_ context.Context, function string) (api.LearnedHistory, error) {
	f.note("history %s", function)
	h := api.LearnedHistory{Function: function}
	if function == "digits" {
		h.Samples = []api.LearnedSample{{Time: testTime, Reason: api.LearnedNow, Policy: "exp3", Candidates: []api.CandidateLearning{{Ref: "a", Weight: 1, Share: 1}}}}
	}
	return h, f.err
}

func TestLearned(t *testing.T) {
	f := &fakeControl{}
	e := engine(f)
	var wanted []string
	for _, c := range []struct {
		method, path, body string
		status             int
		want, asked        string
	}{
		{"GET", "/v1/learned/digits", "", 200, learnedBody, "export digits {Context: All:false}"},
		{"GET", "/v1/learned/digits?context=%FF", "", 200, learnedBody, "export digits {Context:\xff All:false}"},
		{"GET", "/v1/learned/digits?all", "", 200, learnedBody, "export digits {Context: All:true}"},
		{"GET", "/v1/learned/large", "", 413, "export the global state or single contexts", "export large {Context: All:false}"},
		{"PUT", "/v1/learned/digits", learnedBody, 200, `{"function":"digits","states":2}`, fmt.Sprintf("import digits %+v false", learnedState())},
		{"PUT", "/v1/learned/digits?dry_run", learnedBody, 200, `{"function":"digits","states":2,"dry_run":true}`, fmt.Sprintf("import digits %+v true", learnedState())},
		{"DELETE", "/v1/learned/digits?context=ann", "", 200, `{"function":"digits","states":1}`, "reset digits {Context:ann All:false}"},
		{"DELETE", "/v1/learned/digits?all=true", "", 200, `{"function":"digits","states":1}`, "reset digits {Context: All:true}"},
		{"GET", "/v1/learned/digits/history", "", 200, `{"function":"digits","samples":[{"time":"2026-01-02T03:04:05Z","reason":"now","policy":"exp3","candidates":[{"ref":"a","share":1,"weight":1,"count":0,"mean_loss":0}]}]}`, "history digits"},
		{"GET", "/v1/learned/new/history", "", 200, `{"function":"new","samples":[]}`, "history new"},
		{"GET", "/v1/learned/digits?context=", "", 400, "leave it out for the global state", ""},
		{"DELETE", "/v1/learned/digits?al", "", 400, "unknown query parameter", ""},
		{"GET", "/v1/learned/Digits!", "", 400, "function", ""},
		{"PUT", "/v1/learned/digits", `{"version":1,"weights":[]}`, 400, `unknown field \"weights\"`, ""},
		{"PUT", "/v1/learned/digits", learnedBody + "{}", 400, "more than one JSON value", ""},
	} {
		got := ask(e, c.method, c.path, c.body, asJSON)
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.want) {
			t.Errorf("%s %s: got %d %.300s\nwant %d %s", c.method, c.path, got.Code, got.Body, c.status, c.want)
		}
		if c.asked != "" {
			wanted = append(wanted, c.asked)
		}
	}
	if diff := cmp.Diff(wanted, f.asked); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
