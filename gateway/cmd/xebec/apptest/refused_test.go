package apptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A model refuses single queries of its batches: their callers get 400 and the model's words, in each dialect, and no other query fails. A
// function's default does not hide it, and the model counts as healthy.
func TestRefusedQueries(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "doubles", `
import xebec

def predict(batch):
    return [2 * text if text.isdigit() else xebec.Error(f"not a number: {text}") for text in batch]

xebec.serve(predict, text=True)
`, "batching: {policy: fixed, max: 16, hold: 20ms}")
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "doubles", "slo: 60s"), function("careful", "doubles", "slo: 60s", theDefault)))
	g.awaitReplicas("doubles", 1)
	var wg sync.WaitGroup
	ctx := bounded(t)
	for i := range 160 {
		wg.Go(func() {
			text, want := fmt.Sprint(i), fmt.Sprint(i, i)
			want = strings.ReplaceAll(want, " ", "")
			path := []string{"/f/predict", "/careful/predict"}[i%2]
			if i%16 == 5 {
				text = "word" + text
			}
			a, err := g.post(ctx, path, "text/plain", []byte(text))
			switch {
			case err != nil:
				t.Errorf("%s: %v", text, err)
			case i%16 == 5:
				if a.Status != 400 || a.Code != "invalid_input" || !strings.Contains(string(a.Body), "not a number: "+text) {
					t.Errorf("%s: %v, expected 400 with the model's words", text, a)
				}
			case !a.predicted() || a.text() != want:
				t.Errorf("%s: %v, expected %s", text, a, want)
			}
		})
	}
	wg.Wait()
	// One request with several queries has an outcome for each. The Open Inference Protocol has one for all.
	a, err := g.post(ctx, "/f/predict", "application/json", []byte(`{"input_batch":["1","one","2"]}`))
	if err != nil || a.Status != 200 || len(a.Batch) != 3 || a.Batch[0].text() != "11" || a.Batch[1].Code != "invalid_input" || a.Batch[2].text() != "22" {
		t.Errorf("a batch with one wrong input: %v %v", a, err)
	}
	a, err = g.post(ctx, "/v2/models/doubles/infer", "application/json", []byte(`{"inputs":[{"name":"input","datatype":"BYTES","shape":[2],"data":["1","one"]}]}`))
	if err != nil || a.Status != 400 || !strings.Contains(string(a.Body), "not a number: one") {
		t.Errorf("Open Inference Protocol: %v %v, expected 400 with the model's words", a, err)
	}
	if r := g.model("doubles").Replicas[0]; r.Restarts != 0 || r.LastError != "" {
		t.Errorf("the replica after refusals: %+v, expected no error", r)
	}
}

// What a model says of a query that it failed at goes to operators, as the text of an exception does: its caller gets only the code.
func TestFailedQueriesAreShown(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "fails", `
import xebec

xebec.serve(lambda batch: [xebec.Error(f"no rule for {text}", code="model_error") for text in batch], text=True)
`)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "fails", "slo: 60s")))
	g.awaitReplicas("fails", 1)
	if a := g.raw("f", "xyz"); a.Status != 502 || a.Code != "model_error" || strings.Contains(string(a.Body), "no rule") {
		t.Errorf("%v: expected 502 without the model's words", a)
	}
	if r := g.model("fails").Replicas[0]; !strings.Contains(r.LastError, "model_error: no rule for xyz") {
		t.Errorf("the replica's last error is %q", r.LastError)
	}
	if log := g.logText(); !strings.Contains(log, "no rule for xyz") {
		t.Errorf("the log has not what the model said:\n%s", log)
	}
}

// badQueriesOfOIP sends 160 requests at once in the Open Inference Protocol, 10 of them bad: exactly those fail.
func (g *gateway) badQueriesOfOIP(ctx context.Context, model string) {
	var wg sync.WaitGroup
	for i := range 160 {
		wg.Go(func() {
			text, bad, want := fmt.Sprint(2000+i), i%16 == 5, 200
			if bad {
				text, want = "word"+text, 502
			}
			a, err := g.post(ctx, "/v2/models/"+model+"/infer", "application/json",
				[]byte(`{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["`+text+`"]}]}`))
			if err != nil || a.Status != want || !bad && !strings.Contains(string(a.Body), `"`+text+`"`) {
				g.t.Errorf("%s: Open Inference Protocol: %s: %v %v, expected %d", model, text, a, err, want)
			}
		})
	}
	wg.Wait()
}

// An async predict has several batches in evaluation at once: each of eight queries waits until all eight are there.
func TestConcurrencyInAReplica(t *testing.T) {
	t.Parallel()
	m := pythonModel(t, newDir(t), "meets", `
import asyncio
import xebec

here = []

async def predict(batch):
    here.extend(batch)
    while len(here) < 8:
        await asyncio.sleep(0.001)
    return batch

xebec.serve(predict, concurrency=8)
`, "batching: {policy: none}", uncached)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "meets", "slo: 60s")))
	g.awaitReplicas("meets", 1)
	var wg sync.WaitGroup
	ctx := bounded(t)
	for i := range 8 {
		wg.Go(func() {
			text := fmt.Sprint("query ", i)
			if a, err := g.post(ctx, "/f/predict", "text/plain", []byte(text)); err != nil || a.text() != text {
				t.Errorf("%s: %v %v", text, a, err)
			}
		})
	}
	wg.Wait()
}

// An exception of predict for one query fails the whole batch, and the gateway evaluates each of its queries again, alone: only those that
// fail again fail. A model with retry: false is not asked twice.
func TestBadQueriesFailAlone(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	raises := func(name string, extra ...string) string {
		return pythonModel(t, dir, name, `
import xebec

def predict(batch):
    return [str(int(text)) for text in batch]  # ValueError for a word

xebec.serve(predict, text=True)
`, append(extra, uncached)...) + function("f-"+name, name, "slo: 60s")
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, raises("aimd"), raises("fixed", "batching: {policy: fixed, max: 16, hold: 20ms}"),
		raises("once", "batching: {policy: fixed, max: 16, hold: 20ms}", "retry: false")))
	ctx := bounded(t)
	for _, name := range []string{"aimd", "fixed", "once"} {
		g.awaitReplicas(name, 1)
		var wg sync.WaitGroup
		var mates atomic.Int64
		for i := range 160 {
			wg.Go(func() {
				text, bad := fmt.Sprint(i), i%16 == 5
				if bad {
					text = "word" + text
				}
				a, err := g.post(ctx, "/f-"+name+"/predict", "text/plain", []byte(text))
				switch {
				case err != nil:
					t.Errorf("%s: %s: %v", name, text, err)
				case bad && a.Code != "model_error":
					t.Errorf("%s: %s: %v, expected a model error", name, text, a)
				case bad || a.text() == text:
				case name == "once" && a.Code == "model_error":
					mates.Add(1)
				default:
					t.Errorf("%s: %s: %v, expected a prediction", name, text, a)
				}
			})
		}
		wg.Wait()
		if name == "once" {
			t.Logf("without retries, %d good queries failed with the 10 bad ones", mates.Load())
		}
	}
	for _, name := range []string{"aimd", "fixed"} {
		g.badQueriesOfOIP(ctx, name)
		// A request with several queries has an outcome for each. The Open Inference Protocol has one for all.
		texts := make([]string, 64)
		for i := range texts {
			if texts[i] = fmt.Sprint(1000 + i); i%16 == 5 {
				texts[i] = "word" + texts[i]
			}
		}
		a, err := g.post(ctx, "/f-"+name+"/predict", "application/json", []byte(`{"input_batch":["`+strings.Join(texts, `","`)+`"]}`))
		if err != nil || a.Status != 200 || len(a.Batch) != len(texts) {
			t.Errorf("%s: a batch of %d: %v %v, expected 200 with an outcome for each", name, len(texts), a, err)
			continue
		}
		for i, p := range a.Batch {
			if bad := i%16 == 5; bad && p.Code != "model_error" || !bad && p.text() != texts[i] {
				t.Errorf("%s: %s in a batch: %+v, expected a prediction, or a model error: %v", name, texts[i], p, bad)
			}
		}
		a, err = g.post(ctx, "/v2/models/"+name+"/infer", "application/json", []byte(`{"inputs":[{"name":"input","datatype":"BYTES","shape":[3],"data":["1","one","2"]}]}`))
		if err != nil || a.Status != 502 {
			t.Errorf("%s: Open Inference Protocol, one wrong of three: %v %v, expected 502 for all", name, a, err)
		}
	}
	for name, again := range map[string]bool{"fixed": true, "once": false} {
		if n := g.metrics().samples[fmt.Sprintf(`xebec_isolated_total{model=%q,version="1"}`, name)]; n > 0 != again {
			t.Errorf("%s: %v queries were evaluated again, expected some: %v", name, n, again)
		}
	}
}

// A version that refuses extreme inputs passes its validation, as one that raises does.
func TestRefusedExtremesPassValidation(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "numbers.jsonl", `{"input":1.5,"label":1.5}`+"\n")
	m := strings.ReplaceAll(pythonModel(t, dir, "finite", `
import math
import xebec
xebec.serve(lambda batch: [x if math.isfinite(x) else xebec.Error("not a finite number") for x in batch.tolist()])
`, "validate: {queries: numbers.jsonl, min_accuracy: 1}"), "dtype: bytes", "dtype: float32")
	g := serve(t, "--python", python(t), "--config", manifest(t, m))
	if v := g.awaitServing("finite@1").Version.Validation; v == nil || !v.Passed || v.Refused == 0 || v.Matched != 1 {
		t.Errorf("validation %+v, expected that it passed, with inputs that were refused", v)
	}
}
