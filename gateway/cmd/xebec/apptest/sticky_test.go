package apptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// sessions answers each query with its replica's process and how many queries of the same context the replica has had.
const sessions = `
import os
import xebec

seen = {}

def predict(batch, contexts):
    answers = []
    for context in contexts:
        seen[context] = seen.get(context, 0) + 1
        answers.append(f"{os.getpid()} {seen[context]}")
    return answers

xebec.serve(predict, text=True, contexts=True)
`

// Queries of one context go to one replica, whether an app says it by header, in the body or as sequence_id. When replicas are
// stopped, only the contexts that they had begin anew elsewhere.
func TestStickyContexts(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	dir := newDir(t)
	writeFile(t, dir, "model.py", sessions)
	g.apply(fmt.Sprintf(`
kind: Model
name: sessions
inputs:  [{name: input, dtype: string, shape: []}]
outputs: [{name: output, dtype: string, shape: []}]
affinity: context
replicas: {min: 3, max: 3}
dir: %s
run: {command: [python, model.py], isolation: none}
`, dir), function("sessions", "sessions", "slo: 60s"))
	g.awaitReplicas("sessions", 3)
	const contexts = 24
	replicas := make([]string, contexts)
	ask := func(i, want int) error {
		name, path, body, headers := fmt.Sprintf("user-%d", i), "/sessions/predict", `{"input":"x"}`, []string(nil)
		switch want % 3 {
		case 0:
			headers = []string{"Xebec-Context", name}
		case 1:
			body = fmt.Sprintf(`{"input":"x","context":%q}`, name)
		case 2:
			path = "/v2/models/sessions/infer"
			body = fmt.Sprintf(`{"inputs":[{"name":"input","shape":[1],"datatype":"BYTES","data":["x"]}],"parameters":{"sequence_id":%q}}`, name)
		}
		a, err := g.post(bounded(t), path, "application/json", []byte(body), headers...)
		if err != nil {
			return err
		}
		text := string(a.Body)
		if i := strings.Index(text, `"data":["`); i >= 0 {
			text = text[i+len(`"data":["`):]
		} else if i := strings.Index(text, `"output":"`); i >= 0 {
			text = text[i+len(`"output":"`):]
		}
		var pid string
		var n int
		if _, err := fmt.Sscanf(text, "%s %d", &pid, &n); a.Status != 200 || err != nil {
			return fmt.Errorf("query %d of %s: %s (%w)", want, name, a, err)
		}
		if replicas[i] == "" {
			replicas[i] = pid
		}
		if pid != replicas[i] || n != want {
			return fmt.Errorf("query %d of %s is number %d of replica %s: expected replica %s", want, name, n, pid, replicas[i])
		}
		return nil
	}
	var all sync.WaitGroup
	for i := range contexts {
		all.Go(func() {
			for want := 1; want <= 9; want++ {
				if err := ask(i, want); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	had := map[string]int{}
	for _, pid := range replicas {
		had[pid]++
	}
	if len(had) != 3 {
		t.Fatalf("%d contexts are spread over replicas so: %v", contexts, had)
	}
	g.must("scale", "sessions", "--min", "1", "--max", "1")
	var left string
	g.await("one replica to be left", func(context.Context) (bool, string) {
		running := g.workersOf("sessions@1")
		if len(running) == 1 {
			left = fmt.Sprint(running[0].pid)
		}
		return len(running) == 1, fmt.Sprint(running)
	})
	g.awaitModel("sessions", "one replica", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 })
	for i := range contexts {
		want := 1
		if replicas[i] == left {
			want = 10
		} else {
			replicas[i] = left
		}
		if err := ask(i, want); err != nil {
			t.Error(err)
		}
	}
}
