package query

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func TestRecent(t *testing.T) {
	trials := 0
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) {
		if it.Trial {
			trials++
		}
		if string(it.Inputs[0].Data) == "bad" {
			querytest.End(it, api.InvalidInput)
			return
		}
		querytest.Echo(it)
	})
	m := f.fn.Candidates[0].Model
	predict := func(text string) {
		t.Helper()
		if _, err := f.p.Do(t.Context(), &Queries{Function: "f", Inputs: [][]api.Value{values([]byte(text)...)}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	predict("before")
	r := Collect(m)
	predict("one")
	predict("bad") // only what was answered is kept
	predict("two")
	if _, err := f.p.Ask(t.Context(), m, [][]api.Value{values('x')}, 1e9); err != nil { // no caller has sent it
		t.Fatal(err)
	}
	got := r.Stop()
	if len(got) != 2 || string(got[0][0].Data) != "one" || string(got[1][0].Data) != "two" || m.Recent.Load() != nil {
		t.Errorf("collected %v, expected one and two, and the collection to have ended", got)
	}
	if again := r.Stop(); again != nil {
		t.Errorf("stopped again: %v", again)
	}

	r = Collect(m)
	for range recentMost {
		predict("x")
	}
	if m.Recent.Load() != nil {
		t.Errorf("%d queries do not end the collection", recentMost)
	}
	if got := r.Stop(); len(got) != recentMost {
		t.Errorf("collected %d queries, expected %d", len(got), recentMost)
	}

	r = Collect(m)
	predict(string(make([]byte, recentBytes)))
	if got := r.Stop(); len(got) != 0 || m.Recent.Load() != nil {
		t.Errorf("collected %d queries that do not fit", len(got))
	}
	if (*Recent)(nil).Stop() != nil {
		t.Error("nothing has queries")
	}

	if trials != 0 {
		t.Errorf("%d of these queries were trials", trials)
	}
	if answers, err := f.p.WarmUp(t.Context(), m, [][]api.Value{values('x')}, 1e9); err != nil || trials != 1 || answers[0].Code != api.OK {
		t.Errorf("a warm-up of one query: %+v, %v, %d trials", answers, err, trials)
	}
}
