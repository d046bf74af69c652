package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func values(data ...byte) []api.Value { return []api.Value{{Data: data}} }

// TestDo: queries of a caller in this process are answered as those of a dialect, in memory that the caller may use again.
func TestDo(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) {
		if len(it.Inputs[0].Data) == 0 {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Echo(it)
	}, withDefault(`"none"`))
	qs := &Queries{Function: "f", Inputs: [][]api.Value{values('a'), values(), values('b', 'c')}}
	var answers []Answer
	for round := range 3 {
		var err error
		if answers, err = f.p.Do(t.Context(), qs, answers); err != nil || len(answers) != 3 {
			t.Fatalf("round %d: %+v, %v", round, answers, err)
		}
		for i, want := range []string{"a", "", "bc"} {
			a := &answers[i]
			if want == "" {
				if a.Code != api.ModelError || len(a.Outputs) != 0 || string(a.Default) != `"none"` || len(a.Answered) != 0 {
					t.Errorf("round %d, query %d: %+v", round, i, a)
				}
				continue
			}
			if a.Code != api.OK || string(a.Outputs[0].Data) != want || a.Default != nil || fmt.Sprint(names(a.Answered)) != "[m@1]" {
				t.Errorf("round %d, query %d: %+v", round, i, a)
			}
		}
		if answers[1].ID != answers[0].ID+1 {
			t.Errorf("the ids are %d and %d", answers[0].ID, answers[1].ID)
		}
		qs.Inputs[0], qs.Inputs[2] = values('a'), values('b', 'c')
	}
	qs = &Queries{Model: api.ModelID{Name: "m"}, Inputs: [][]api.Value{values('x')}, Within: time.Second}
	if answers, err := f.p.Do(t.Context(), qs, nil); err != nil || answers[0].Code != api.OK || string(answers[0].Outputs[0].Data) != "x" {
		t.Errorf("the model answers %+v, %v", answers, err)
	}
	if r := f.fn.Stats.Read(); r.Codes[api.ModelError] != 3 || r.Queries != 9 || r.SLOMisses != 3 {
		t.Errorf("the function's requests are counted %+v", r)
	}
	if r := f.fn.Candidates[0].Model.Stats.Read(); r.Queries != 1 || r.SLOHits+r.SLOMisses != 0 {
		t.Errorf("%d queries to the model are counted, want 1, and no objective: %+v", r.Queries, r)
	}
}

// TestDoRefuses: what does not fit reaches no lane, and the error says why.
func TestDoRefuses(t *testing.T) {
	f := serve(t, floats4, func(*scheduler.Item) { t.Error("it reached the lane") })
	in := [][]api.Value{values(make([]byte, 16)...)}
	for want, qs := range map[string]*Queries{
		`no function "g"`:               {Function: "g", Inputs: in},
		`no model "x"`:                  {Model: api.ModelID{Name: "x"}, Inputs: in},
		`no model "m@9"`:                {Model: api.ModelID{Name: "m", Version: "9"}, Inputs: in},
		"expected at least one query":   {Function: "f"},
		"query 1: input: 3 bytes":       {Function: "f", Inputs: [][]api.Value{in[0], values(1, 2, 3)}},
		"query 0: 2 values: expected 1": {Function: "f", Inputs: [][]api.Value{{in[0][0], in[0][0]}}},
		"more than 8 inputs":            {Function: "f", Inputs: [][]api.Value{in[0], in[0], in[0], in[0], in[0], in[0], in[0], in[0], in[0]}},
		"is no candidate":               {Function: "f", Inputs: in, Models: []string{"z"}},
		"has the version":               {Function: "f", Inputs: in, Version: "9"},
		"no default output":             {Function: "f", Inputs: in, MinConfidence: 0.5},
		"the context has 300 bytes":     {Function: "f", Inputs: in, Context: strings.Repeat("x", 300)},
		"ask a function":                {Model: api.ModelID{Name: "m"}, Inputs: in, Context: "ann"},
	} {
		answers, err := f.p.Do(t.Context(), qs, nil)
		var e *api.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.NotFound {
			t.Errorf("%+v, %v: want %q", answers, err, want)
		}
	}
	if n := f.fn.Stats.Read().Codes[api.InvalidArgument]; n != 8 {
		t.Errorf("%d requests are counted as malformed, want 8", n)
	}
	if n := f.p.Open(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestDoEndsWithItsContext: the caller leaves at once, its query is cancelled, and the request is reused once the lane has released it.
func TestDoEndsWithItsContext(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, floats4, func(it *scheduler.Item) { items <- it })
	cancelled := make(chan uint64, 1)
	f.fn.Candidates[0].Model.Lane.(*querytest.Lane).Cancelled = cancelled
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	qs := &Queries{Function: "f", Inputs: [][]api.Value{values(make([]byte, 16)...)}}
	go func() {
		_, err := f.p.Do(ctx, qs, nil)
		left <- err
	}()
	it := <-items
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller left with %v", err)
	}
	if id := <-cancelled; id != it.ID {
		t.Errorf("query %d was cancelled, want %d", id, it.ID)
	}
	if n := f.p.Open(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
	querytest.End(it, api.Cancelled)
	go func() { querytest.Sum(<-items) }()
	if answers, err := f.p.Do(t.Context(), qs, nil); err != nil || answers[0].Code != api.OK {
		t.Errorf("the next caller is answered %+v, %v", answers, err)
	}
}

// TestFeedbackOfACallerInThisProcess: it is refused if it does not fit, and counted like that of a dialect.
func TestFeedbackOfACallerInThisProcess(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)})
	for want, f := range map[string]Feedback{
		"label: output: 3 bytes":         {QueryID: 1, Verdict: VerdictLabel, Label: values(1, 2, 3)},
		"label: 0 values: expected 1":    {QueryID: 1, Verdict: VerdictLabel},
		"loss: expected a number from 0": {QueryID: 1, Verdict: VerdictLoss, Loss: 1.5},
		"the context has 300 bytes":      {QueryID: 1, Verdict: VerdictLoss, Context: make([]byte, 300)},
	} {
		if outcome, err := c.p.Feedback("f", f, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v: want %q", outcome, err, want)
		}
	}
	if outcome, err := c.p.Feedback("f", Feedback{Verdict: VerdictLoss}, values(1)); err == nil || !strings.Contains(err.Error(), "input: input: 1 bytes") {
		t.Errorf("%v, %v", outcome, err)
	}
	if outcome, err := c.p.Feedback("g", Feedback{}, nil); err == nil {
		t.Errorf("a function that does not exist takes feedback: %v", outcome)
	}
	if n := c.fn.Learning.Refused.Load(); n != 5 {
		t.Errorf("%d feedbacks are counted as malformed, want 5", n)
	}
	c.ask(input)
	c.feed(`{"input":[1,2,3,4],"correct":true}`, Counted)
	c.feed(`{"input":[1,2,3,4],"correct":true}`, Duplicate)
	for o := Counted; o <= Busy; o++ {
		if taken := o == Counted || o == Pending; o.String() == "" || (o.Reason() == "") != taken {
			t.Errorf("outcome %d is %q because of %q", o, o, o.Reason())
		}
	}
	if n := c.p.Open(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}
