package apptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// watchedModel writes a model that echoes a number and is validated with 400 queries from draw. It returns its directory.
func watchedModel(t *testing.T, name string, draw func() int) string {
	t.Helper()
	dir := newDir(t)
	var queries strings.Builder
	for range 400 {
		n := draw()
		fmt.Fprintf(&queries, "{\"input\": %d, \"label\": %d}\n", n, n)
	}
	writeFile(t, dir, name+"/queries.jsonl", queries.String())
	writeFile(t, dir, name+"/xebec.yaml", fmt.Sprintf(`kind: Model
name: %s
inputs:  [{name: input, dtype: int64, shape: []}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [%q, -mode, echo]}
cache: off
validate: {queries: queries.jsonl, expect: labels, min_accuracy: 1}
`, name, programs.worker))
	return dir + "/" + name
}

// Queries like those of the validation show no drift. Queries from another distribution show high drift of inputs and
// outputs, in describe and in the metrics, and only for their own model.
func TestDriftIsSeen(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	usual := func() int { return 100 + random.IntN(50) + random.IntN(50) }
	moved := func() int { return usual() + 40 }
	g := serve(t)
	g.must("deploy", watchedModel(t, "steady", usual))
	g.must("deploy", watchedModel(t, "shifting", usual))
	// A query counts, whatever batch it comes in. Below 200 nothing is shown.
	batch := func(n int) *api.DriftStatus {
		t.Helper()
		inputs := make([]string, n)
		for i := range inputs {
			inputs[i] = fmt.Sprint(usual())
		}
		if a := g.json("/steady/predict", `{"input_batch":[`+strings.Join(inputs, ",")+`]}`, "Xebec-Slo-Ms", patient); a.Status != 200 {
			t.Fatalf("a batch is answered by %v", a)
		}
		return g.model("steady").Version.Drift
	}
	if d := batch(199); d != nil {
		t.Errorf("after 199 queries the drift is %+v: expected none", d)
	}
	if _, known := g.metrics().samples[`xebec_model_drift{model="steady",of="input",version="1"}`]; known {
		t.Error("after 199 queries there is a metric of the drift")
	}
	if d := batch(101); d == nil || d.Validated != 400 || d.Served != 300 {
		t.Errorf("after 300 queries the drift is %+v", d)
	}
	if text := g.must("describe", "model", "steady"); !strings.Contains(text, "400 of 400 queries") {
		t.Errorf("describe says of the validation\n%s", text)
	}
	const enough = 600
	serveFrom := func(model string, draw func() int) *api.DriftStatus {
		t.Helper()
		g.await(fmt.Sprintf("%d queries of %s to be looked at", enough, model), func(ctx context.Context) (bool, string) {
			for range 50 {
				n := draw()
				if a, err := g.tryAsk(ctx, model, n, "", "Xebec-Slo-Ms", patient); err != nil || a.number() != n {
					t.Fatalf("%s of %d is answered by %v %v", model, n, a, err)
				}
			}
			m, err := g.modelStatus(ctx, model)
			return err == nil && m.Version.Drift != nil && m.Version.Drift.Served >= enough, fmt.Sprintf("%+v %v", m.Version.Drift, err)
		})
		return g.model(model).Version.Drift
	}
	if d := serveFrom("steady", usual); d.Input >= 0.1 || d.Output >= 0.1 {
		t.Errorf("seed %d: for the same distribution the drift is %+v: expected less than 0.1", seed, d)
	}
	d := serveFrom("shifting", moved)
	if d.Input < 0.25 || d.Output < 0.25 || len(d.Features) == 0 || d.Features[0].PSI < 0.25 || !strings.HasPrefix(d.Features[0].Name, "input") && !strings.HasPrefix(d.Features[0].Name, "output") {
		t.Errorf("seed %d: for another distribution the drift is %+v: expected more than 0.25", seed, d)
	}
	for model, word := range map[string]string{"steady": "small", "shifting": "large"} {
		if text := g.must("describe", "model", model); !strings.Contains(text, "Drift:") || !strings.Contains(text, word) {
			t.Errorf("describe says of %s\n%s\nexpected %q", model, text, word)
		}
	}
	m := g.metrics().samples
	for _, of := range []string{"input", "output"} {
		steady, known := m[fmt.Sprintf(`xebec_model_drift{model="steady",of=%q,version="1"}`, of)]
		if shifting := m[fmt.Sprintf(`xebec_model_drift{model="shifting",of=%q,version="1"}`, of)]; !known || steady >= 0.1 || shifting < 0.25 {
			t.Errorf("seed %d: the metrics say %v of the %s of one model and %v of the other", seed, steady, of, shifting)
		}
	}
}
