package apptest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// streaming is a model whose input says what its stream is like.
const streaming = `
import os, sys, time
import xebec

def predict(batch, calls):
    text = batch[0]
    if text == "refuse":
        raise xebec.Error("no such stream")
    if text == "fail":
        raise ValueError("a secret")
    if text == "call":
        yield calls[0].request_id
        return
    if text == "forever":
        with open(os.path.join(os.environ["MARKS"], "begun"), "a") as f:
            f.write("begun\n")
        try:
            i = 0
            while True:
                yield "x" * 1000
                i += 1
                time.sleep(0.001)
        finally:
            with open(os.path.join(os.environ["MARKS"], "closed"), "a") as f:
                f.write("closed\n")
    if text == "silent":
        yield "one"
        time.sleep(1000)
    n, _, end = text.partition(" ")
    for i in range(int(n)):
        yield f"w{i}"
    if end == "refuse":
        raise xebec.Error("no further")
    if end == "fail":
        raise ValueError("a secret")

xebec.serve(predict, text=True, calls=True)
`

const streamingManifest = `
kind: Model
name: words
inputs:  [{name: input, dtype: string, shape: []}]
outputs: [{name: output, dtype: string, shape: []}]
stream: true
stream_idle: 2s
run: {command: [python, model.py], isolation: none, env: {MARKS: %q}}
---
kind: Function
name: words
models: [words]
slo: 60s
---
kind: Function
name: default
models: [words]
slo: 60s
default: nothing
`

func serveStreams(t *testing.T, args ...string) (g *gateway, marks string) {
	t.Helper()
	dir := newDir(t)
	marks = newDir(t)
	writeFile(t, dir, "model.py", streaming)
	writeFile(t, dir, "xebec.yaml", fmt.Sprintf(streamingManifest, marks))
	g = launch(t, newDir(t), append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", dir, "--python", python(t)}, args...)...)
	g.await("the gateway's addresses", g.readAddresses)
	g.awaitReplicas("words", 1)
	return g, marks
}

// askStream sends a request for a stream and returns the answer, whose body the caller closes.
func askStream(t *testing.T, client *http.Client, url, input, accept string) *http.Response {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"input": input})
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func readAll(t *testing.T, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("after %q: %v", tail(string(body), 3), err)
	}
	return string(body)
}

func words(n int, one string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, one, i)
	}
	return b.String()
}

// The same stream reaches every kind of client: as events, as lines, as bytes, and as one document; over each protocol.
func TestStreams(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	plain, _ := serveStreams(t)
	secure, _ := serveStreams(t, "--cert", cert, "--key", key)
	h2c := &http.Protocols{}
	h2c.SetUnencryptedHTTP2(true)
	insecure := &tls.Config{InsecureSkipVerify: true} // the test's own certificate
	http1 := &http.Protocols{}
	http1.SetHTTP1(true)
	for name, c := range map[string]struct {
		url    string
		client *http.Client
		g      *gateway
	}{
		"HTTP/1.1":         {"http://" + plain.functions, &http.Client{Transport: &http.Transport{}}, plain},
		"HTTP/2 in clear":  {"http://" + plain.functions, &http.Client{Transport: &http.Transport{Protocols: h2c}}, plain},
		"HTTP/1.1 and TLS": {"https://" + secure.functions, &http.Client{Transport: &http.Transport{TLSClientConfig: insecure.Clone(), Protocols: http1}}, secure},
		"HTTP/2 and TLS":   {"https://" + secure.functions, &http.Client{Transport: &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}}, secure},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.client.CloseIdleConnections()
			checkForms(t, c.client, c.url+"/words/predict")
			checkEnds(t, c.client, c.url+"/words/predict")
		})
	}
	checkWhole(t, plain)
}

func checkForms(t *testing.T, client *http.Client, url string) {
	for _, n := range []int{1, 2, 500} {
		input := fmt.Sprint(n)
		events := askStream(t, client, url, input, "text/event-stream")
		if events.StatusCode != 200 || !strings.HasPrefix(events.Header.Get("Content-Type"), "text/event-stream") || events.Header.Get("Xebec-Query-Id") == "" || events.Header.Get("X-Request-Id") == "" {
			t.Fatalf("answered by %v %v", events.Status, events.Header)
		}
		text, ok := strings.CutPrefix(readAll(t, events), words(n, "data: {\"output\":\"w%d\"}\n\n"))
		if end := "event: end\ndata: {\"end\":true,\"query_id\":" + events.Header.Get("Xebec-Query-Id") + ",\"outputs\":" + input + ",\"models\":[\"words@1\"]}\n\n"; !ok || text != end {
			t.Fatalf("the events end with %q: expected %q", tail(text, 6), end)
		}
		if text, ok := strings.CutPrefix(readAll(t, askStream(t, client, url, input, "application/jsonl")), words(n, "{\"output\":\"w%d\"}\n")); !ok || !strings.HasPrefix(text, `{"end":true,`) || !strings.HasSuffix(text, "}\n") {
			t.Fatalf("the lines end with %q", tail(text, 3))
		}
		if text := readAll(t, askStream(t, client, url, input, "application/octet-stream")); text != words(n, "w%d") {
			t.Fatalf("the bytes are %q", tail(text, 3))
		}
		var whole struct {
			Output  []string
			Default bool
		}
		if text := readAll(t, askStream(t, client, url, input, "*/*")); json.Unmarshal([]byte(text), &whole) != nil || strings.Join(whole.Output, "") != words(n, "w%d") {
			t.Fatalf("the document is %.200q", text)
		}
	}
}

// How a stream ends is said in each form.
func checkEnds(t *testing.T, client *http.Client, url string) {
	for _, c := range []struct {
		input, accept string
		status        int
		has           string
	}{
		{"refuse", "text/event-stream", 400, "no such stream"},
		{"fail", "text/event-stream", 502, `"code":"model_error"`},
		{"3 refuse", "text/event-stream", 200, "event: error\ndata: {\"error\":\"Query processing error\",\"cause\":\"no further\",\"code\":\"invalid_input\""},
		{"3 fail", "text/event-stream", 200, "event: error\ndata: {\"error\":\"Query processing error\""},
		{"3 fail", "application/jsonl", 200, "{\"output\":\"w2\"}\n{\"error\":\"Query processing error\""},
		{"3 refuse", "application/json", 400, "no further"},
		{"3 fail", "application/json", 502, `"code":"model_error"`},
		{"0", "text/event-stream", 502, `"code":"bad_output"`},
	} {
		a := askStream(t, client, url, c.input, c.accept)
		if text := readAll(t, a); a.StatusCode != c.status || !strings.Contains(text, c.has) || strings.Contains(text, "a secret") {
			t.Errorf("%s, %s: answered by %s %q: expected %d and %q", c.input, c.accept, a.Status, text, c.status, c.has)
		}
	}
	a := askStream(t, client, url, "3 fail", "application/octet-stream")
	if text, err := io.ReadAll(a.Body); a.StatusCode != 200 || err == nil {
		t.Errorf("bytes that break off: %s %q without an error", a.Status, text)
	}
	if text := readAll(t, askStream(t, client, url, "2", "text/event-stream")); !strings.Contains(text, "event: end") {
		t.Errorf("after all that: %q", text)
	}
}

// Who takes no stream gets what fits.
func checkWhole(t *testing.T, g *gateway) {
	if a := g.json("/words/predict", `{"input_batch":["1","2"]}`); a.Status != 406 || !strings.Contains(a.Cause, "one input at a time") {
		t.Errorf("a batch: %v", a)
	}
	if a := g.json("/default/predict", `{"input":"fail"}`); a.Status != 200 || !a.Default || string(a.Output) != `"nothing"` {
		t.Errorf("the default: %v", a)
	}
	if a := g.json("/words/predict", `{"input":"call"}`, "X-Request-Id", "it-is-me"); string(a.Output) != `["it-is-me"]` {
		t.Errorf("the call: %v", a)
	}
	if a := g.json("/v2/models/words/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["5"]}]}`); a.Status != 200 || !strings.Contains(string(a.Body), `"data":["w0"]`) {
		t.Errorf("the Open Inference Protocol: %v: expected the first output", a)
	}
	// HTTP/1.0 has no chunks.
	c, err := net.Dial("tcp", g.functions)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /words/predict HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: 13\r\n\r\n{\"input\":\"2\"}")
	if text, _ := io.ReadAll(c); !strings.Contains(string(text), `"output":["w0","w1"]`) || strings.Contains(string(text), "chunked") {
		t.Errorf("HTTP/1.0: %q", text)
	}
}

// More streams than the model evaluates at once wait for their turn, and no output gets lost or lies in the wrong stream.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	g, _ := serveStreams(t)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			n := 1 + i%40
			body := readAll(t, askStream(t, http.DefaultClient, "http://"+g.functions+"/words/predict", fmt.Sprint(n), "application/octet-stream"))
			if body != words(n, "w%d") {
				t.Errorf("%d outputs: %q", n, body)
			}
		})
	}
	all.Wait()
}

// When a client leaves, the model's generator is closed and its place is free for others.
func TestClientsThatLeaveStreams(t *testing.T) {
	t.Parallel()
	g, marks := serveStreams(t)
	const clients = 16 // as many as the model's concurrency
	for round := range 3 {
		var open []*http.Response
		leave, cancel := context.WithCancel(t.Context())
		for range clients {
			r, _ := http.NewRequestWithContext(leave, "POST", "http://"+g.functions+"/words/predict", strings.NewReader(`{"input":"forever"}`))
			r.Header.Set("Accept", "text/event-stream")
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, a)
			if _, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		for _, a := range open {
			a.Body.Close()
		}
		g.awaitMarks(marks, "closed", (round+1)*clients)
	}
	// One that waits for the whole.
	leave, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		r, _ := http.NewRequestWithContext(leave, "POST", "http://"+g.functions+"/words/predict", strings.NewReader(`{"input":"forever"}`))
		_, err := http.DefaultClient.Do(r)
		gone <- err
	}()
	g.awaitMarks(marks, "begun", 3*clients+1)
	cancel()
	if err := <-gone; err == nil {
		t.Error("a request that was cancelled was answered")
	}
	g.awaitMarks(marks, "closed", 3*clients+1)
	if a := g.json("/words/predict", `{"input":"2"}`); a.Status != 200 {
		t.Errorf("after them: %v", a)
	}
}

// awaitMarks waits until a model has written so many lines.
func (g *gateway) awaitMarks(dir, name string, lines int) {
	g.t.Helper()
	g.await(fmt.Sprintf("%d to be %s", lines, name), func(context.Context) (bool, string) {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		n := bytes.Count(b, []byte("\n"))
		return n == lines, fmt.Sprintf("%d are", n)
	})
}

// A model that is silent in the middle of a stream is ended, and said to be why.
func TestSilentStream(t *testing.T) {
	t.Parallel()
	g, _ := serveStreams(t)
	a := askStream(t, http.DefaultClient, "http://"+g.functions+"/words/predict", "silent", "text/event-stream")
	if text := readAll(t, a); !strings.HasPrefix(text, "data: {\"output\":\"one\"}\n\n") || !strings.Contains(text, api.ReplicaLost.String()) {
		t.Errorf("answered by %q", text)
	}
	g.await("the reason in the log", func(context.Context) (bool, string) {
		return strings.Contains(g.logText(), "stream_idle"), tail(g.logText(), 3)
	})
	g.awaitReplicas("words", 1)
	if text := g.must("logs", "words"); !strings.Contains(text, "a stream had no further output for 2s (stream_idle)") {
		t.Errorf("logs: %s", text)
	}
}

// A worker that answers in streams although its model is not declared so is refused, with what to do.
func TestStreamsMustBeDeclared(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", streaming)
	writeFile(t, dir, "xebec.yaml", strings.ReplaceAll(strings.ReplaceAll(fmt.Sprintf(streamingManifest, dir), "stream: true\n", ""), "stream_idle: 2s\n", ""))
	g := serve(t, "--config", dir, "--python", python(t))
	g.await("the refusal", func(context.Context) (bool, string) {
		return strings.Contains(g.logText(), "add stream: true to its manifest"), tail(g.logText(), 3)
	})
}

const stepping = `
import xebec

def start(batch):
    return {"left": int(batch[0])}

def step(states):
    out = []
    for s in states:
        s["left"] -= 1
        out.append(xebec.Last(str(s["left"])) if s["left"] == 0 else str(s["left"]))
    return out

xebec.serve(start, step=step, text=True)
`

// Sequences join and leave the running batch between steps.
func TestSteps(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", stepping)
	writeFile(t, dir, "xebec.yaml", fmt.Sprintf(streamingManifest, dir))
	g := serve(t, "--config", dir, "--python", python(t))
	g.awaitReplicas("words", 1)
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			n, want := 1+i%30, ""
			for k := n - 1; k >= 0; k-- {
				want += fmt.Sprintf("{\"output\":\"%d\"}\n", k)
			}
			if text := readAll(t, askStream(t, http.DefaultClient, "http://"+g.functions+"/words/predict", fmt.Sprint(n), "application/jsonl")); !strings.HasPrefix(text, want+`{"end":true`) {
				t.Errorf("%d steps: %q", n, text)
			}
		})
	}
	all.Wait()
}

// Parameters reach a model that asks for them, from both dialects, and tell equal inputs apart in the cache.
func TestParameters(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", `
import json, xebec

calls = 0

def predict(batch, parameters):
    global calls
    calls += len(batch)
    return [json.dumps([x, p, calls]) for x, p in zip(batch, parameters)]

xebec.serve(predict, text=True, parameters=True)
`)
	writeFile(t, dir, "xebec.yaml", `
name: told
inputs:  [{name: input, dtype: string, shape: []}]
outputs: [{name: output, dtype: string, shape: []}]
run: {command: [python, model.py]}
---
kind: Function
name: told
models: [told]
slo: 60s
`)
	g := serve(t, "--config", dir, "--python", python(t))
	g.awaitReplicas("told", 1)
	for _, c := range []struct{ parameters, want string }{
		{``, `["x", {}, 1]`},
		{`,"parameters":{"top_k":3}`, `["x", {"top_k": 3}, 2]`},
		{`,"parameters":{"top_k":4}`, `["x", {"top_k": 4}, 3]`},
		{`,"parameters":{"top_k":3}`, `["x", {"top_k": 3}, 2]`}, // from the cache
		{`,"parameters":null`, `["x", {}, 1]`},
	} {
		var text string
		if a := g.json("/told/predict", `{"input":"x"`+c.parameters+`}`); a.Status != 200 || json.Unmarshal(a.Output, &text) != nil || text != c.want {
			t.Errorf("%s: answered by %v, expected %s", c.parameters, a, c.want)
		}
	}
	for _, bad := range []string{`5`, `{"a":`, `{"long":"` + strings.Repeat("x", 5000) + `"}`} {
		if a := g.json("/told/predict", `{"input":"x","parameters":`+bad+`}`); a.Status != 400 {
			t.Errorf("%.20s: answered by %v", bad, a)
		}
	}
	infer := `{"parameters":{"binary_data_output":false,"deep":{"er":[1]}},"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["y"]}]}`
	if a := g.json("/v2/models/told/infer", infer); a.Status != 200 || !strings.Contains(string(a.Body), `\"deep\": {\"er\": [1]}`) {
		t.Errorf("the Open Inference Protocol: %v", a)
	}
}

// The generate extension of the Open Inference Protocol: each output is an event, and what goes wrong later is one too.
func TestGenerateStreams(t *testing.T) {
	t.Parallel()
	g, marks := serveStreams(t)
	ask := func(path, body string) (status int, kind, text string) {
		t.Helper()
		answer, err := http.Post("http://"+g.functions+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		all, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header.Get("Content-Type"), string(all)
	}
	const version = `"model_name":"words","model_version":"1","id":"7"`
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v2/models/words@1/generate_stream", `{"id":"7","input":"3"}`, 200,
			"data: {" + version + `,"output":"w0"}` + "\n\ndata: {" + version + `,"output":"w1"}` + "\n\ndata: {" + version + `,"output":"w2"}` + "\n\n"},
		{"/v2/models/words/versions/1/generate_stream/", `{"id":"7","input":"1 refuse"}`, 200,
			"data: {" + version + `,"output":"w0"}` + "\n\ndata: " + `{"error":"no further","code":"invalid_input"}` + "\n\n"},
		{"/v2/models/words@1/generate_stream", `{"id":"7","input":"refuse"}`, 400, `{"error":"no such stream","code":"invalid_input"}`},
		{"/v2/models/words@1/generate", `{"input":"3"}`, 400, `{"error":"words@1 answers in streams: send the request to …/generate_stream","code":"invalid_argument"}`},
		{"/v2/models/words@1/generate_stream", `{"text":"3"}`, 400, `{"error":"body: the member \"input\" (string[]) is missing (byte 12)","code":"invalid_argument"}`},
	} {
		status, kind, text := ask(c.path, c.body)
		if status != c.status || text != c.want || (kind == "text/event-stream; charset=utf-8") != (status == 200) {
			t.Errorf("%s %s is answered %d in %s\n%q, want\n%d %q", c.path, c.body, status, kind, text, c.status, c.want)
		}
	}
	status, kind, text := ask("/v2/models/default/generate_stream", `{"input":"fail"}`)
	if status != 200 || kind != "text/event-stream; charset=utf-8" || !strings.HasPrefix(text, "data: {") || !strings.HasSuffix(text, `"output":"nothing"}`+"\n\n") || !strings.Contains(text, `"default":true`) {
		t.Errorf("a function's default is answered %d in %s: %q", status, kind, text)
	}
	// A client that leaves ends the stream of its model.
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.functions+"/v2/models/words/generate_stream", strings.NewReader(`{"input":"forever"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
		t.Error(err)
	}
	leave()
	answer.Body.Close()
	g.await("the end of the stream that its client has left", func(context.Context) (bool, string) {
		_, err := os.Stat(filepath.Join(marks, "closed"))
		return err == nil, fmt.Sprint(err)
	})
}
