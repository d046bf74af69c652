package apptest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// Models of a pipeline. decode and classify have inputs and outputs of their own kinds; pipeline calls both.
const (
	decodeProgram = `
import numpy, xebec

def decode(text):
    try:
        return numpy.array([float(x) for x in text.split(b",")], "float32")
    except ValueError:
        return xebec.Error("not numbers: " + text.decode())

xebec.serve(lambda batch: [decode(text) for text in batch])
`
	classifyProgram = `
import xebec
xebec.serve(lambda batch: {"label": ["large" if row.sum() > 10 else "small" for row in batch], "sum": batch.sum(axis=1)})
`
	pipelineProgram = `
import xebec

def predict(batch):
    vectors = xebec.call.many("decode", batch)
    said = xebec.call.many("classify", vectors)
    return ["%s %g" % pair for pair in zip(said["label"], said["sum"])]

xebec.serve(predict)
`
	// callsProgram is a model whose query is Python, which calls.
	callsProgram = `
import json, xebec

def attempt(code):
    try:
        return str(eval(code)).encode()
    except xebec.CallError as e:
        return json.dumps([e.callee, e.code, str(e)]).encode()

xebec.serve(lambda batch: [attempt(query.decode()) for query in batch])
`
	// toldProgram answers with what it knows of the call that its query came with.
	toldProgram = `
import json, time, xebec

def predict(batch, contexts, parameters, calls):
    return [json.dumps({"id": c.request_id, "trace": c.traceparent, "state": c.tracestate, "context": context.decode(), "parameters": p,
                        "left": c.deadline and c.deadline - time.monotonic()}).encode()
            for context, p, c in zip(contexts, parameters, calls)]

xebec.serve(predict, contexts=True, parameters=True, calls=True)
`
)

// stages are the models decode and classify, with functions.
func stages(t *testing.T, dir string) string {
	decode := strings.Replace(pythonModel(t, dir, "decode", decodeProgram), "{name: output, dtype: bytes, shape: []}", "{name: vector, dtype: float32, shape: [3]}", 1)
	classify := strings.NewReplacer(
		"{name: input, dtype: bytes, shape: []}", "{name: vector, dtype: float32, shape: [3]}",
		"{name: output, dtype: bytes, shape: []}", "{name: label, dtype: string, shape: []}, {name: sum, dtype: float64, shape: []}",
	).Replace(pythonModel(t, dir, "classify", classifyProgram))
	return decode + function("decode", "decode", "slo: 60s") + classify + function("classify", "classify", "slo: 60s")
}

// A model calls two others, one after the other, whatever keeps it from the rest of the machine.
func TestAPipelineOfModels(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	all := stages(t, dir)
	const calls = "calls: [decode, classify]"
	names := []string{"started", "forked", "open"}
	for _, name := range names {
		m := pythonModel(t, dir, name, pipelineProgram, calls, uncached)
		switch name {
		case "forked":
			m += "preload: [numpy]\n"
		case "open":
			m = plain(m)
		}
		all += m + function(name, name, "slo: 60s")
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, all))
	for _, name := range names {
		g.describes(name, "Calls:", " decode, classify\n")
		if a := g.raw(name, "1,2,3.5"); !a.predicted() || a.text() != "small 6.5" {
			t.Errorf("%s: %v", name, a)
		}
		a := g.json("/"+name+"/predict", `{"input_batch":[{"b64":"MSwyLDM="},{"b64":"NCw1LDY="}]}`)
		if len(a.Batch) != 2 || a.Batch[0].text() != "small 6" || a.Batch[1].text() != "large 15" {
			t.Errorf("%s: a batch: %v", name, a)
		}
		if a := g.raw(name, "1,x,3"); a.Status != http.StatusBadRequest || a.Code != "invalid_input" || a.Cause != `call of 'decode': not numbers: 1,x,3 (invalid_input)` {
			t.Errorf("%s: an input that the callee refuses: %v", name, a)
		}
	}
}

// A call has the identity, the context and what is left of the deadline of the query that its model evaluates.
func TestWhatACallCarries(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serve(t, "--python", python(t), "--config", manifest(t,
		pythonModel(t, dir, "told", toldProgram, uncached)+function("told", "told", "slo: 300s"),
		pythonModel(t, dir, "code", callsProgram, "calls: [told]", uncached)+function("code", "code", "slo: 300s")))
	const trace, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"
	headers := []string{"X-Request-Id", "r-17", "Traceparent", trace, "Tracestate", state, "Xebec-Context", "ann", "Xebec-Slo-Ms", "60000"}
	type told struct {
		ID, Trace, State, Context string
		Parameters                map[string]int
		Left                      float64
	}
	ask := func(code string) (seen told) {
		t.Helper()
		a := g.raw("code", code, headers...)
		if !a.predicted() || json.Unmarshal([]byte(a.text()), &seen) != nil {
			t.Fatalf("%s: %v %s", code, a, a.text())
		}
		return seen
	}
	seen := ask(`xebec.call("told", b"x").decode()`)
	if seen.ID != "r-17" || seen.Trace != trace || seen.State != state || seen.Context != "ann" || seen.Left <= 0 || seen.Left > 60 {
		t.Errorf("the callee sees %+v", seen)
	}
	seen = ask(`xebec.call("told", b"x", context="bob", timeout=30, parameters={"k": 3}).decode()`)
	if seen.Context != "bob" || seen.Parameters["k"] != 3 || seen.Left > 30 {
		t.Errorf("the callee of a call with options sees %+v", seen)
	}
	if seen = ask(`xebec.call("told", b"x", timeout=200).decode()`); seen.Left > 60 {
		t.Errorf("a call has %f s, more than its query", seen.Left)
	}
}

// Errors of calls say what was called, and can be caught.
func TestErrorsOfCalls(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	fails := "import xebec\ndef predict(batch):\n    raise ValueError('private')\nxebec.serve(predict)\n"
	g := serve(t, "--python", python(t), "--config", manifest(t, stages(t, dir),
		pythonModel(t, dir, "fails", fails)+function("fails", "fails", "slo: 60s"),
		pythonModel(t, dir, "told", toldProgram, uncached),
		pythonModel(t, dir, "code", callsProgram, "calls: [decode, classify, fails, nothing, told]", uncached)+function("code", "code", "slo: 60s"),
		pythonModel(t, dir, "mute", callsProgram, uncached)+function("mute", "mute", "slo: 60s")))
	for _, c := range []struct{ function, code, want string }{
		{"code", `xebec.call("decode", b"1,2,3").tolist()`, `[1.0, 2.0, 3.0]`},
		{"code", `xebec.call("classify", [1, 2, 3])["label"]`, `small`},
		{"code", `b"left" in xebec.call("told", b"x")`, `True`}, // a model without a function
		{"code", `xebec.call("decode", b"x")`, `["decode", "invalid_input", "call of 'decode': not numbers: x (invalid_input)"]`},
		{"code", `xebec.call.many("decode", [b"1,2,3", b"x"])`, `["decode", "invalid_input", "call of 'decode': not numbers: x (input 1 of 2) (invalid_input)"]`},
		{"code", `xebec.call("fails", b"x")`, `["fails", "model_error", "call of 'fails': the model failed on this input (model_error)"]`},
		{"code", `xebec.call("nothing", b"x")`, `["nothing", "not_found", "call of 'nothing': no function or model \"nothing\" (not_found)"]`},
		{"code", `xebec.call("mute", b"x")`, `["mute", "forbidden", "call of 'mute': code calls \"mute\", which its manifest does not declare: add it to calls (forbidden)"]`},
		{"code", `xebec.call("code", b"x")`, `["code", "forbidden", "call of 'code': code calls \"code\", which its manifest does not declare: add it to calls (forbidden)"]`},
		{"code", `xebec.call("classify", [1, 2])`, `["classify", "invalid_argument", "call of 'classify': input 'vector': got an array of shape (1, 2); expected (1, 3): 1 items of float32[3] (invalid_argument)"]`},
		{"mute", `xebec.call("decode", b"1")`, `["decode", "forbidden", "call of 'decode': this model calls nothing: add calls: [decode] to its manifest, and let the gateway start it (forbidden)"]`},
	} {
		if a := g.raw(c.function, c.code); !a.predicted() || a.text() != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.code, a, a.text(), c.want)
		}
	}
	uncaught := strings.Replace(callsProgram, "except xebec.CallError", "except ZeroDivisionError", 1)
	g.apply(pythonModel(t, dir, "uncaught", uncaught, "calls: [fails, nothing]", uncached) + function("uncaught", "uncaught", "slo: 60s"))
	g.awaitReplicas("uncaught", 1)
	a := g.json("/uncaught/predict", `{"input_batch":[{"b64":"MSArIDE="},{"b64":"`+base64.StdEncoding.EncodeToString([]byte(`xebec.call("fails", b"x")`))+`"}]}`)
	if len(a.Batch) != 2 || a.Batch[0].text() != "2" || a.Batch[1].Code != "model_error" {
		t.Errorf("an error that predict does not catch: %v", a)
	}
	g.describes("uncaught", "call of 'fails': the model failed on this input")
}

// An async model has several calls under way.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const fan = `
import asyncio, xebec

async def predict(batch):
    parts = await asyncio.gather(*(xebec.acall("meets", text) for text in batch[0].split()), xebec.acall.many("meets", [b"x", b"y"]))
    many = parts.pop()
    return [b" ".join(parts + many)]

xebec.serve(predict)
`
	// meets answers none before three have come.
	const meets = `
import asyncio, xebec
come = 0
enough = None

async def predict(batch):
    global come, enough
    enough = enough or asyncio.Event()
    come += len(batch)
    if come >= 5:
        enough.set()
    await enough.wait()
    return [text.upper() for text in batch]

xebec.serve(predict)
`
	g := serve(t, "--python", python(t), "--config", manifest(t,
		pythonModel(t, dir, "meets", meets, uncached, "batching: {policy: none}")+function("meets", "meets", "slo: 60s"),
		pythonModel(t, dir, "fan", fan, uncached, "calls: [meets]")+function("fan", "fan", "slo: 60s")))
	if a := g.raw("fan", "a b c"); !a.predicted() || a.text() != "A B C X Y" {
		t.Errorf("%v", a)
	}
}

// A call wakes a model that sleeps.
func TestACallWakesAModel(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serve(t, "--python", python(t), "--config", manifest(t,
		pythonModel(t, dir, "sleeps", "import xebec\nxebec.serve(lambda batch: batch)\n", uncached, "replicas: {min: 0, max: 1}")+function("sleeps", "sleeps", "slo: 60s"),
		pythonModel(t, dir, "code", callsProgram, "calls: [sleeps]", uncached)+function("code", "code", "slo: 60s")))
	if a := g.raw("code", `xebec.call("sleeps", b"awake")`); !a.predicted() || a.text() != "b'awake'" {
		t.Errorf("%v", a)
	}
}

// A query whose model calls one that is too slow to wake is answered as one that asks the sleeping model itself: 503, come again. So is the query
// of a model that calls such a model.
func TestACallOfAModelThatStarts(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	gate := filepath.Join(dir, "gate")
	g := serve(t, "--python", python(t), "--config", manifest(t,
		gated(testModel("sleeps", nil, uncached, "replicas: {min: 0, max: 1}"), gate)+function("sleeps", "sleeps", "slo: 60s"),
		pythonModel(t, dir, "inner", callsProgram, "calls: [sleeps]", uncached)+function("inner", "inner", "slo: 60s"),
		pythonModel(t, dir, "outer", callsProgram, "calls: [inner]", uncached)+function("outer", "outer", "slo: 60s")))
	for _, name := range []string{"inner", "outer"} {
		g.awaitReplicas(name, 1)
	}
	queries := map[string]string{"inner": `xebec.call("sleeps", b"x")`, "outer": `xebec.call("inner", b"xebec.call('sleeps', b'x')")`}
	for name, code := range queries {
		if a := g.raw(name, code, "Xebec-Slo-Ms", "2000"); a.Status != http.StatusServiceUnavailable || a.Code != "no_replica" || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %v, Retry-After %q", name, a, a.Header.Get("Retry-After"))
		}
	}
	if a := g.raw("inner", `__import__("time").sleep(2.5)`, "Xebec-Slo-Ms", "2000"); a.Code != "deadline_exceeded" {
		t.Errorf("a model that is slow itself: %v", a)
	}
	open(t, gate)
	g.awaitReplicas("sleeps", 1)
	for name, code := range queries {
		if a := g.raw(name, code); !a.predicted() || !strings.Contains(a.text(), "x") {
			t.Errorf("%s, when the model is awake: %v", name, a)
		}
	}
}

// Declarations that would let models wait for each other are refused, and name the models.
func TestCyclesOfCalls(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	m := func(name, calls string) string {
		return pythonModel(t, dir, name, callsProgram, "calls: ["+calls+"]", uncached)
	}
	g := serve(t, "--python", python(t))
	g.apply(m("a", "b"), function("a", "a"), m("c", "later"))
	for _, c := range []struct{ text, want string }{
		{m("b", "a"), "a calls b calls a"},
		{m("self", "self"), "self calls self"},
		{m("b", "c") + function("later", "a"), "a calls b calls c calls later (which asks a)"},
	} {
		g.xebec("apply", "-f", manifest(t, c.text)).wants(t, c.want, 1, "", c.want)
	}
	g.apply(m("b", ""), function("b", "b"))
}

// A hostile model says anything on its lines. It gets no other route, no more lines than there are, and takes nothing from others.
func TestHostileCaller(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const hostile = `
import os, socket, xebec
from xebec import _calls

def said(text, n=1):
    line = _calls._lines.take(True)
    line.settimeout(30)
    try:
        line.sendall(text)
        return line.recv(65536).decode("latin-1")
    finally:
        _calls._lines.give(line, False)

def lines():
    ask = _calls._lines._ask
    got = []
    for _ in range(200):
        ask.sendall(b"\1")
        answer, fds, _, _ = socket.recv_fds(ask, 1, 1)
        got += fds
    for fd in got:
        os.close(fd)
    return len(got)

def attempt(code):
    try:
        return str(eval(code)).encode()
    except Exception as e:
        return repr(e).encode()

xebec.serve(lambda batch: [attempt(query.decode()) for query in batch])
`
	g := serve(t, "--python", python(t), "--config", manifest(t,
		pythonModel(t, dir, "victim", "import xebec\nxebec.serve(lambda batch: batch)\n", uncached)+function("victim", "victim", "slo: 60s"),
		pythonModel(t, dir, "hostile", hostile, "calls: [victim]", uncached)+function("hostile", "hostile", "slo: 60s")))
	const host = `Host: x\r\nContent-Length: 2\r\n`
	for _, c := range []struct{ code, want string }{
		{`said(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")`, "HTTP/1.1 404"},
		{`said(b"POST /victim/predict HTTP/1.1\r\n` + host + `\r\n{}")`, "HTTP/1.1 404"},
		{`said(b"POST /v1/apply HTTP/1.1\r\n` + host + `\r\n{}")`, "HTTP/1.1 404"},
		{`said(b"POST /call/hostile HTTP/1.1\r\n` + host + `\r\n{}")`, "HTTP/1.1 403"},
		{`said(b"POST /call/victim HTTP/1.1\r\n` + host + `\r\n{}")`, "HTTP/1.1 409"},
		{`said(b"POST /call/victim HTTP/1.1\r\n` + host + `Xebec-For: 1.2.3\r\n\r\n{}")`, "HTTP/1.1 400"},
		{`said(b"\0\r\n\r\n")`, "HTTP/1.1 400"},
		{`said(b"x" * 200000)`, "HTTP/1.1 4"},
		{`xebec.call("victim", b"x")`, "b'x'"},
		{`lines() <= 64`, "True"},
		{`_calls._lines._ask.sendall(b"nonsense") or _calls._lines._ask.recv(1)`, "b''"},
	} {
		if a := g.raw("hostile", c.code); !a.predicted() || !strings.HasPrefix(a.text(), c.want) {
			t.Errorf("%s: %v %.200s\nwant %s", c.code, a, a.text(), c.want)
		}
		if a := g.raw("victim", "fine"); !a.predicted() || a.text() != "fine" {
			t.Errorf("after %s: %v", c.code, a)
		}
	}
}
