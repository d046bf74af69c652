package apptest

import (
	"fmt"
	"strings"
	"testing"
)

const shouting = `
import xebec

def predict(batch, parameters):
    for prompt, options in zip(batch, parameters):
        for word in str(prompt).split()[: options.get("max_tokens", 9)]:
            yield [word.upper() + " "]

xebec.serve(predict, parameters=True)
`

const measuring = `
import numpy as np
import xebec

def predict(batch):
    return np.array([[len(str(text)), 0.5] for text in batch], dtype=np.float32)

xebec.serve(predict)
`

// A generator and an embedding answer in OpenAI's shape, whole and in events.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	generator, embedding := newDir(t), newDir(t)
	writeFile(t, generator, "model.py", shouting)
	writeFile(t, embedding, "model.py", measuring)
	g.apply(fmt.Sprintf(`
kind: Model
name: shout
inputs:  [{name: prompt, dtype: string, shape: []}]
outputs: [{name: text, dtype: string, shape: []}]
task: generate
stream: true
dir: %s
run: {command: [python, model.py]}
---
kind: Model
name: length
inputs:  [{name: text, dtype: string, shape: []}]
outputs: [{name: vector, dtype: float32, shape: [2]}]
task: embed
dir: %s
run: {command: [python, model.py]}
`, generator, embedding), function("say", "shout", "slo: 60s"))
	g.awaitReplicas("shout", 1)
	g.awaitReplicas("length", 1)
	ask := func(path, body string, want ...string) answer {
		t.Helper()
		a, err := g.post(bounded(t), "/v1/"+path, "application/json", []byte(body), "Xebec-Slo-Ms", patient)
		for _, part := range want {
			if a.Status != 200 || !strings.Contains(string(a.Body), part) {
				t.Errorf("%s %s: %d %s (%v), want %s", path, body, a.Status, a.Body, err, part)
			}
		}
		return a
	}
	ask("embeddings", `{"model":"length","input":["a","bcd"]}`, `"embedding":[1,0.5]`, `"embedding":[3,0.5]`)
	ask("completions", `{"model":"say","prompt":"hello big world","max_tokens":2}`, `"text":"HELLO BIG "`, `"completion_tokens":2`)
	a := ask("completions", `{"model":"shout","prompt":"hello world","stream":true,"stream_options":{"include_usage":true}}`,
		`"text":"HELLO "`, `"text":"WORLD "`, `"finish_reason":"stop"`, `"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}`)
	if events := strings.Split(strings.TrimSpace(string(a.Body)), "\n\n"); len(events) != 5 || events[4] != "data: [DONE]" || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("events of type %q:\n%s", a.Header.Get("Content-Type"), a.Body)
	}
	if a, _ := g.post(bounded(t), "/v1/embeddings", "application/json", []byte(`{"model":"shout","input":"a"}`)); a.Status != 400 || !strings.Contains(string(a.Body), "needs task: embed") {
		t.Errorf("embeddings of a generator: %s", a)
	}
}
