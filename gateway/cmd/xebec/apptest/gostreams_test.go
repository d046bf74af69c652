package apptest

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// goStreaming is a manifest of a model in Go that answers in streams: xebec-testworker, whose input is a list of steps.
const goStreaming = `
kind: Model
name: flow
inputs:  [{name: input, dtype: string, shape: []}]
outputs: [{name: output, dtype: string, shape: []}]
stream: true
stream_idle: 2s
run: {command: [%q, -mode, stream, -parameters, -calls, -concurrency, "8"], isolation: none}
---
kind: Function
name: flow
models: [flow]
slo: 60s
`

func serveGoStreams(t *testing.T) *gateway {
	t.Helper()
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", fmt.Sprintf(goStreaming, programs.worker))
	g := serve(t, "--config", dir)
	g.awaitReplicas("flow", 1)
	return g
}

// A worker in Go streams to every kind of client, fails and refuses in the middle, and is told when a client has left.
func TestGoStreams(t *testing.T) {
	t.Parallel()
	g := serveGoStreams(t)
	url := "http://" + g.functions + "/flow/predict"
	ask := func(input, accept string) (int, string) {
		t.Helper()
		a := askStream(t, http.DefaultClient, url, input, accept)
		return a.StatusCode, readAll(t, a)
	}
	for _, n := range []int{1, 2, 500} {
		input := fmt.Sprint("count:", n)
		if status, text := ask(input, "text/event-stream"); status != 200 || !strings.HasPrefix(text, words(n, "data: {\"output\":\"%d\"}\n\n")+"event: end\ndata: {\"end\":true,") {
			t.Errorf("%s: %d, events that end with %q", input, status, tail(text, 4))
		}
		if status, text := ask(input, "application/jsonl"); status != 200 || !strings.HasPrefix(text, words(n, "{\"output\":\"%d\"}\n")+`{"end":true,`) {
			t.Errorf("%s: %d, lines that end with %q", input, status, tail(text, 4))
		}
	}
	for _, c := range []struct {
		input  string
		status int
		has    string
	}{
		{"refuse:why", 400, "why"},
		{"error", 502, `"code":"model_error"`},
		{"count:2 refuse:why", 200, "{\"output\":\"1\"}\n{\"error\":\"Query processing error\",\"cause\":\"why\",\"code\":\"invalid_input\""},
		{"count:2 panic", 200, "{\"output\":\"1\"}\n{\"error\":\"Query processing error\""},
		{"count:2 bad", 200, "{\"output\":\"1\"}\n{\"error\":\"Query processing error\""},
		{"out:a big:3000000 out:b", 200, "x\"}\n{\"output\":\"b\"}\n{\"end\":true"},
		{"", 502, `"code":"bad_output"`},
	} {
		if status, text := ask(c.input, "application/jsonl"); status != c.status || !strings.Contains(text, c.has) || strings.Contains(text, "the marker") {
			t.Errorf("%q: %d %q, expected %d and %q", c.input, status, tail(text, 4), c.status, c.has)
		}
	}
	if a := g.json("/flow/predict", `{"input":"out:a parameters call","parameters":{"top_k":3}}`, "X-Request-Id", "it-is-me"); string(a.Output) != `["a","{\"top_k\":3}","it-is-me|||soon"]` {
		t.Errorf("parameters and call: %v", a)
	}
	if a := g.json("/v2/models/flow/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["parameters"]}],"parameters":{"top_k":4}}`); a.Status != 200 || !strings.Contains(string(a.Body), `top_k\":4`) {
		t.Errorf("parameters of the Open Inference Protocol: %v", a)
	}
	if a := g.json("/v2/models/flow/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["out:first forever"]}]}`); a.Status != 200 || !strings.Contains(string(a.Body), `"data":["first"]`) {
		t.Errorf("a caller of one output: %v", a)
	}
}

// More streams than the worker evaluates at once, and clients that leave: each stream ends, and its place is free for others.
func TestManyGoStreams(t *testing.T) {
	t.Parallel()
	g := serveGoStreams(t)
	url := "http://" + g.functions + "/flow/predict"
	marks := newDir(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			body := readAll(t, askStream(t, http.DefaultClient, url, fmt.Sprint("count:", 1+i), "application/octet-stream"))
			if body != words(1+i, "%d") {
				t.Errorf("%d outputs: %q", 1+i, body)
			}
		})
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			last := []string{"forever", "hang"}[i%2]
			r, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(fmt.Sprintf(`{"input":"ends:%s out:first out:second %s"}`, filepath.Join(marks, fmt.Sprint(i)), last)))
			r.Header.Set("Accept", "text/event-stream")
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Errorf("a stream of a client that will leave: %v", err)
				return
			}
			defer a.Body.Close()
			if _, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil {
				t.Errorf("a stream of a client that will leave: %v", err)
			}
		})
	}
	all.Wait()
	g.await("40 streams to end", func(context.Context) (bool, string) {
		ended, err := os.ReadDir(marks)
		return len(ended) == 40, fmt.Sprintf("%d have ended, %v", len(ended), err)
	})
	if a := g.json("/flow/predict", `{"input":"count:2"}`); string(a.Output) != `["0","1"]` {
		t.Errorf("after them: %v", a)
	}
}

// A worker that does not react for stream_idle is ended, and another one takes its place.
func TestSilentGoStream(t *testing.T) {
	t.Parallel()
	g := serveGoStreams(t)
	a := askStream(t, http.DefaultClient, "http://"+g.functions+"/flow/predict", "out:one hang", "text/event-stream")
	if text := readAll(t, a); !strings.HasPrefix(text, "data: {\"output\":\"one\"}\n\nevent: error\n") { // replica_lost, or what the worker says when its connection ends
		t.Errorf("answered by %q", text)
	}
	g.awaitReplicas("flow", 1)
}

// The example of the Go binding, as its page says: built into its directory and deployed.
func TestGoWordsExample(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	manifest, err := os.ReadFile(filepath.Join(programs.repo, "worker/bindings/go/examples/words/xebec.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "xebec.yaml", string(manifest))
	if err := compile(filepath.Join(dir, "words"), "./worker/bindings/go/examples/words", nil); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "--config", dir)
	g.awaitReplicas("words-go", 1)
	for body, want := range map[string]string{
		`{"input":"to be or not"}`:                             `["to","be","or","not"]`,
		`{"input":"to be or not","parameters":{"limit":2}}`:    `["to","be"]`,
		`{"input":"to be or not","parameters":{"limit":1000}}`: `["to","be","or","not"]`,
	} {
		if a := g.json("/words-go/predict", body, "Xebec-Slo-Ms", patient); a.Status != 200 || string(a.Output) != want {
			t.Errorf("%s: %v, expected %s", body, a, want)
		}
	}
	if a := g.json("/words-go/predict", `{"input":"to be","parameters":{"limit":"two"}}`, "Xebec-Slo-Ms", patient); a.Status != 400 || !strings.Contains(a.Cause, "expected a number of words") {
		t.Errorf("a parameter that is none: %v", a)
	}
	a := askStream(t, http.DefaultClient, "http://"+g.functions+"/words-go/predict", "to be", "text/event-stream")
	if text := readAll(t, a); !strings.HasPrefix(text, "data: {\"output\":\"to\"}\n\ndata: {\"output\":\"be\"}\n\nevent: end\n") {
		t.Errorf("the events are %q", text)
	}
}

// Sequences of a model in Go join and leave the running batch between steps: the example of the Go binding.
func TestGoSteps(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	manifest, err := os.ReadFile(filepath.Join(programs.repo, "worker/bindings/go/examples/countdown/xebec.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "xebec.yaml", string(manifest)+"---\nkind: Function\nname: countdown-go\nmodels: [countdown-go]\nslo: 60s\n")
	if err := compile(filepath.Join(dir, "countdown"), "./worker/bindings/go/examples/countdown", nil); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "--config", dir)
	g.awaitReplicas("countdown-go", 1)
	url := "http://" + g.functions + "/countdown-go/predict"
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			n, want := 1+i%30, ""
			for k := n - 1; k >= 0; k-- {
				want += fmt.Sprintf("{\"output\":\"%d\"}\n", k)
			}
			if text := readAll(t, askStream(t, http.DefaultClient, url, fmt.Sprint(n), "application/jsonl")); !strings.HasPrefix(text, want+`{"end":true`) {
				t.Errorf("%d steps: %q", n, text)
			}
		})
	}
	all.Wait()
	if a := g.json("/countdown-go/predict", `{"input":"none"}`); a.Status != 400 || a.Cause != "expected a number from 1" {
		t.Errorf("an input that start refuses: %v", a)
	}
	if a := g.json("/countdown-go/predict", `{"input":"3"}`); string(a.Output) != `["2","1","0"]` {
		t.Errorf("one document: %v", a)
	}
}

// A client that leaves before the first output frees its place at once: the model's only place is then another query's.
func TestClientsThatLeaveBeforeTheFirstOutput(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", strings.Replace(fmt.Sprintf(goStreaming, programs.worker), `"8"`, `"1"`, 1))
	g := serve(t, "--config", dir)
	g.awaitReplicas("flow", 1)
	for _, accept := range []string{"text/event-stream", "application/json"} {
		leave, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			r, _ := http.NewRequestWithContext(leave, "POST", "http://"+g.functions+"/flow/predict", strings.NewReader(`{"input":"hang"}`))
			r.Header.Set("Accept", accept)
			a, err := http.DefaultClient.Do(r)
			if err == nil {
				a.Body.Close()
			}
			gone <- err
		}()
		g.await("the query to be in flight", func(context.Context) (bool, string) {
			n := g.metrics().samples[`xebec_in_flight{model="flow",version="1"}`]
			return n == 1, fmt.Sprint(n)
		})
		cancel()
		if err := <-gone; err == nil {
			t.Error("a request that was cancelled was answered")
		}
		if a := g.json("/flow/predict", `{"input":"out:a"}`); string(a.Output) != `["a"]` {
			t.Errorf("after a client that wanted %s: %v", accept, a)
		}
	}
	if st := g.model("flow").Streams; st == nil || st.Outputs != 2 || st.Ended != (api.StreamEnds{Finished: 2}) {
		t.Errorf("streams %+v: expected two that finished", st)
	}
}

// Replicas follow the streams that are open, however soon their first outputs come, and how streams end is counted.
func TestReplicasFollowStreams(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "xebec.yaml", strings.Replace(strings.Replace(fmt.Sprintf(goStreaming, programs.worker), `"8"`, `"2"`, 1), "stream: true", "stream: true\nreplicas: {min: 1, max: 4}", 1))
	g := serve(t, "--config", dir)
	g.awaitReplicas("flow", 1)
	leave, cancel := context.WithCancel(t.Context())
	const streams = 6
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			r, _ := http.NewRequestWithContext(leave, "POST", "http://"+g.functions+"/flow/predict", strings.NewReader(`{"input":"out:a forever"}`))
			r.Header.Set("Accept", "application/jsonl")
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			if line, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil || line != "{\"output\":\"a\"}\n" {
				t.Errorf("the first output is %q (%v)", line, err)
			}
			<-leave.Done()
		})
	}
	g.awaitModel("flow", "streams on three replicas", func(m api.ModelStatus) bool {
		return m.ReadyReplicas() >= 3 && m.Streams != nil && m.Streams.Open == streams
	})
	if n := g.metrics().samples[`xebec_streams_open{model="flow",version="1"}`]; n != streams {
		t.Errorf("xebec_streams_open is %v, expected %d", n, streams)
	}
	cancel()
	all.Wait()
	g.awaitModel("flow", "the streams to have ended", func(m api.ModelStatus) bool {
		return m.Streams.Open == 0 && m.Streams.Ended == api.StreamEnds{Left: streams} && m.Streams.Outputs >= streams
	})
	if text := g.must("describe", "model", "flow"); !strings.Contains(text, "0 finished, 6 left by their callers") {
		t.Errorf("describe: %s", text)
	}
}
