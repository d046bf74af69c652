package workertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A query that the model refuses fails alone, with the model's words.
func testRefused(t *testing.T, su *suite) {
	for _, confident := range []bool{false, true} {
		var env []string
		if confident {
			env = append(env, EnvConfidences+"=1")
		}
		r := su.start(t, Text(), 2, 0, append(env, model(Markers))...)
		long := strings.Repeat("é", 3000)
		b := r.Send(Texts("fine", "refuse:not a\x1b picture", "also fine", "fail:no disk", "refuse:"+long)...)
		if res := r.Wait(b); res.Code != api.OK || res.Detail != "no disk" {
			t.Errorf("%v %q: expected OK, and what the model said of the query that failed", res.Code, res.Detail)
		}
		for i, want := range []struct {
			status         api.Code
			output, detail string
		}{{api.OK, "fine", ""}, {api.InvalidInput, "", "not a\uFFFD picture"}, {api.OK, "also fine", ""}, {api.ModelError, "", "no disk"}, {api.InvalidInput, "", long[:1024]}} {
			q := b.Queries[i]
			if q.Status != want.status || q.Detail != want.detail {
				t.Errorf("query %d: %v %s, expected %v %s", i, q.Status, brief(q.Detail), want.status, brief(want.detail))
			}
			if q.Status == api.OK && string(q.Outputs[0].Data) != want.output {
				t.Errorf("query %d: %q, expected %q", i, q.Outputs[0].Data, want.output)
			}
			if sure := q.Confidence == 0.5; q.Status == api.OK && sure != confident {
				t.Errorf("query %d: confidence %v", i, q.Confidence)
			}
		}
		if text := r.Replica.Stats().LastError; text != "no disk" {
			t.Errorf("LastError %q, expected that of the query that failed: a refusal is the caller's mistake", text)
		}
		large := r.Send(Texts("refuse:no room needed", "big:900000")...) // in a larger grant
		r.WantOK(large)
		if a, b := large.Queries[0], large.Queries[1]; a.Status != api.InvalidInput || a.Detail != "no room needed" || b.Status != api.OK || len(b.Outputs[0].Data) != 900000 {
			t.Errorf("a refusal beside a large output: %v %q and %v with %d bytes", a.Status, a.Detail, b.Status, len(b.Outputs[0].Data))
		}
		alone := r.Send(Texts("raise:too short")...)
		r.WantOK(alone)
		if q := alone.Queries[0]; q.Status != api.InvalidInput || q.Detail != "too short" {
			t.Errorf("a refusal that was raised: %v %q", q.Status, q.Detail)
		}
		r.WantCode(r.Send(Texts("raise:too short", "fine")...), api.ModelError, "too short")
		next := r.Send(Texts("next")...)
		r.WantTexts(next, "next")
		if q := next.Queries[0]; q.Status != api.OK {
			t.Errorf("the next query: %v", q.Status)
		}
		r.stop()
	}
}

// A string that is not UTF-8 is a wrong output, also beside a query that is refused.
func testText(t *testing.T, su *suite) {
	sig := api.Signature{Inputs: []api.TensorSpec{Spec("in", api.Bytes)}, Outputs: []api.TensorSpec{Spec("out", api.String)}}
	r := su.start(t, sig, 2, 0, model(Markers))
	r.WantTexts(r.Send(Texts("größer", "")...), "größer", "")
	r.WantCode(r.Send(Texts("fine", "\xff")...), api.BadOutput, "UTF-8")
	r.WantCode(r.Send(Texts("refuse:no", "\xff")...), api.BadOutput, "UTF-8")
	r.WantTexts(r.Send(Texts("next")...), "next")
	r.stop()
}

// Each query has its own parameters, {} without any, also if they are large.
func testParameters(t *testing.T, su *suite) {
	for _, contexts := range []string{"0", "1"} {
		r := su.start(t, Text(), 2, 0, model(Markers), EnvParameters+"=1", EnvContexts+"="+contexts)
		long := `{"long":"` + strings.Repeat("x", 3<<20) + `"}`
		for range 3 {
			b := r.NewBatch(Texts("parameters", "plain", "parameters", "parameters", "context")...)
			b.Queries[0].Parameters, b.Queries[1].Parameters = []byte(`{"top_k":3,"a":[null,"ü"]}`), []byte(`{"b":1}`)
			b.Queries[3].Parameters, b.Queries[4].Context = []byte(long), []byte("user-17")
			if contexts == "0" {
				b.Queries = b.Queries[:4]
			}
			if err := r.TrySend(b); err != nil {
				t.Fatal(err)
			}
			r.WantTexts(b, []string{`{"top_k":3,"a":[null,"ü"]}`, "plain", "{}", long, "user-17"}[:len(b.Queries)]...)
		}
		r.stop()
	}
}

// Each query says what is known of its own call.
func testCalls(t *testing.T, su *suite) {
	for _, parameters := range []string{"0", "1"} {
		r := su.start(t, Text(), 2, 0, model(Markers), EnvCalls+"=1", EnvParameters+"="+parameters)
		b := r.NewBatch(Texts("call", "call", "plain")...)
		b.Queries[0].Deadline = Now() + api.Nanos(time.Hour)
		b.Queries[0].Call = &api.Identity{RequestID: []byte("id-1"), TraceParent: []byte("00-a-b-01"), TraceState: []byte("x=y")}
		if err := r.TrySend(b); err != nil {
			t.Fatal(err)
		}
		r.WantTexts(b, "id-1|00-a-b-01|x=y|soon", "|||none", "plain")
		r.stop()
	}
}

// A worker that is drained answers every batch that it has, in whatever order.
func testDrainWithConcurrency(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers), EnvConcurrency+"=2")
	first, second := newGate(t), newGate(t)
	batches := []*api.Batch{r.Send(Texts(first.marker())...), r.Send(Texts(second.marker())...), r.Send(Texts("behind")...)}
	first.reached()
	second.reached()
	r.Replica.Drain()
	second.open()
	first.open()
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	for i, b := range batches {
		if res, ok := r.Events.Result(b.ID); !ok || res.Code != api.OK {
			t.Errorf("batch %d: %+v, %v", i, res, ok)
		}
	}
	if err := r.process.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
}

// With a concurrency of two a batch is answered while another one waits, and no batch is evaluated twice.
func testConcurrency(t *testing.T, su *suite) {
	for _, concurrency := range []string{"2", "async2"} {
		r := su.start(t, Text(), 2, 0, model(Markers), EnvConcurrency+"="+concurrency)
		if got := r.Replica.Info().Concurrency; got != 2 {
			t.Fatalf("%s: the replica has a concurrency of %d, expected 2", concurrency, got)
		}
		first, second := newGate(t), newGate(t)
		slow := r.Send(Texts(first.marker())...)
		first.reached()
		for i := range 3 {
			r.WantTexts(r.Send(Texts(fmt.Sprint("quick ", i))...), fmt.Sprint("quick ", i))
		}
		other := r.Send(Texts(second.marker())...)
		second.reached()
		behind := r.Send(Texts("behind")...) // both places are taken
		first.open()
		r.WantTexts(slow, first.marker())
		r.WantTexts(behind, "behind")
		if _, done := r.Events.Result(other.ID); done {
			t.Error("a batch that waits was reported done")
		}
		second.open()
		r.WantTexts(other, second.marker())
		// Answers that need more room, of several batches at a time.
		one, two := r.Send(Texts("big:3000000")...), r.Send(Texts("big:2000000")...)
		r.WantTexts(two, strings.Repeat("x", 2000000))
		r.WantTexts(one, strings.Repeat("x", 3000000))
		r.wantServed(8, 8)
		r.stop()
	}
}
