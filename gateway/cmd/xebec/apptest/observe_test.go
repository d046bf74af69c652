package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/xebec-serving/xebec/api"
)

// modelStatus reads a model that has one version from the admin API.
func (g *gateway) modelStatus(ctx context.Context, name string) (api.ModelStatus, error) {
	status, body := g.fetch(ctx, "http://"+g.admin+"/v1/models/"+name)
	var list api.ModelList
	if status != 200 {
		return api.ModelStatus{}, fmt.Errorf("%d %s", status, body)
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return api.ModelStatus{}, err
	}
	if len(list.Models) != 1 {
		return api.ModelStatus{}, fmt.Errorf("%d versions of %s: expected one", len(list.Models), name)
	}
	return list.Models[0], nil
}

// model returns the present status of a model.
func (g *gateway) model(name string) api.ModelStatus {
	g.t.Helper()
	m, err := g.modelStatus(bounded(g.t), name)
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// awaitModel waits until a model meets a condition.
func (g *gateway) awaitModel(name, what string, condition func(api.ModelStatus) bool) api.ModelStatus {
	g.t.Helper()
	var last api.ModelStatus
	g.await(fmt.Sprintf("model %s: %s", name, what), func(ctx context.Context) (bool, string) {
		m, err := g.modelStatus(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		last = m
		return condition(m), fmt.Sprintf("%+v", m)
	})
	return last
}

// awaitReplicas waits until n replicas are ready.
func (g *gateway) awaitReplicas(name string, n int) api.ModelStatus {
	g.t.Helper()
	return g.awaitModel(name, fmt.Sprintf("%d replicas ready", n), func(m api.ModelStatus) bool { return m.ReadyReplicas() == n })
}

func restarts(m api.ModelStatus) int {
	n := 0
	for _, r := range m.Replicas {
		n += r.Restarts
	}
	return n
}

// lastExits joins the exits of the replicas' processes as describe shows them.
func lastExits(m api.ModelStatus) string {
	var all []string
	for _, r := range m.Replicas {
		all = append(all, r.LastExit)
	}
	return strings.Join(all, "\n")
}

// metrics has the samples of one scrape by `name{label="value",…}`, with labels sorted by name. A histogram is
// represented by its _count, a summary by its _count and its _sum.
type metrics struct {
	samples  map[string]float64
	families map[string]string // name → type
}

func (g *gateway) metrics() metrics {
	g.t.Helper()
	m, err := g.scrape(bounded(g.t))
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

func (g *gateway) scrape(ctx context.Context) (metrics, error) {
	m := metrics{map[string]float64{}, map[string]string{}}
	status, body := g.fetch(ctx, "http://"+g.admin+"/metrics")
	if status != 200 {
		return m, fmt.Errorf("metrics: %d %s", status, body)
	}
	if problems, err := promlint.New(strings.NewReader(body)).Lint(); err != nil || len(problems) > 0 {
		return m, fmt.Errorf("metrics are not as Prometheus wants them: %+v, %w", problems, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return m, fmt.Errorf("metrics do not parse: %w", err)
	}
	for name, family := range families {
		m.families[name] = strings.ToLower(family.GetType().String())
		for _, sample := range family.GetMetric() {
			var labels []string
			for _, l := range sample.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			sort.Strings(labels)
			at := "{" + strings.Join(labels, ",") + "}"
			var value float64
			switch {
			case sample.GetHistogram() != nil:
				at, value = "_count"+at, float64(sample.GetHistogram().GetSampleCount())
			case sample.GetSummary() != nil:
				m.samples[name+"_sum"+at] = sample.GetSummary().GetSampleSum()
				at, value = "_count"+at, float64(sample.GetSummary().GetSampleCount())
			case sample.GetCounter() != nil:
				value = sample.GetCounter().GetValue()
			case sample.GetGauge() != nil:
				value = sample.GetGauge().GetValue()
			default:
				value = sample.GetUntyped().GetValue()
			}
			m.samples[name+at] = value
		}
	}
	return m, nil
}

// of returns the sample of a model (version 1), with a code or without.
func (m metrics) of(name, model string, code ...string) float64 {
	if len(code) > 0 {
		return m.samples[fmt.Sprintf(`xebec_%s{code=%q,model=%q,version="1"}`, name, code[0], model)]
	}
	return m.samples[fmt.Sprintf(`xebec_%s{model=%q,version="1"}`, name, model)]
}

// exits is how many replicas of a model (version 1) ended for the reason.
func (m metrics) exits(model, reason string) float64 {
	return m.samples[fmt.Sprintf(`xebec_replica_exits_total{model=%q,reason=%q,version="1"}`, model, reason)]
}

// awaitExits waits until so many replicas of a model ended for the reason.
func (g *gateway) awaitExits(want float64, model, reason string) {
	g.t.Helper()
	g.await(fmt.Sprintf("%v replicas of %s to have ended: %s", want, model, reason), func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		return m.exits(model, reason) == want, fmt.Sprint(m.exits(model, reason))
	})
}

// awaitMetric waits until a model's sample has a value.
func (g *gateway) awaitMetric(want float64, name, model string, code ...string) {
	g.t.Helper()
	g.await(fmt.Sprintf("%s of %s %v to be %v", name, model, code, want), func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		return m.of(name, model, code...) == want, fmt.Sprint(m.of(name, model, code...))
	})
}

// process is a process of this machine.
type process struct {
	pid  int
	name string
}

// processesOf finds every living process of the gateway with this TMPDIR: the gateway, its reaper, workers, and their
// children. A zombie has no environment, so it is not found.
func processesOf(dir string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []process{{0, err.Error()}}
	}
	var found []process
	marker := []byte("TMPDIR=" + dir + "\x00")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), append([]byte{0}, marker...)) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // for messages only
		found = append(found, process{pid, strings.ReplaceAll(string(cmdline), "\x00", " ")})
	}
	return found
}

// testModel is a manifest of a model served by xebec-testworker in mode markers, bytes in and bytes out. extra are
// additional lines of the model.
func testModel(name string, flags []string, extra ...string) string {
	command, err := json.Marshal(append([]string{programs.worker, "-mode", "markers"}, flags...))
	if err != nil {
		panic(err) // cannot fail: they are strings
	}
	return fmt.Sprintf(`
---
kind: Model
name: %s
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %s}
%s
`, name, command, strings.Join(extra, "\n"))
}

// function is a manifest of a function. extra are additional lines.
func function(name, model string, extra ...string) string {
	return fmt.Sprintf("\n---\nkind: Function\nname: %s\nmodels: [%s]\n%s\n", name, model, strings.Join(extra, "\n"))
}

// theDefault is a default output in a function's manifest; defaultText is its decoded form.
const (
	theDefault  = `default: {b64: ZGVmYXVsdA==}`
	defaultText = "default"
)

// manifest writes a file for --config.
func manifest(t *testing.T, parts ...string) string {
	t.Helper()
	file, err := os.CreateTemp(newDir(t), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Join(parts, "")); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// writeFile writes a file below a directory.
func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// versionServes is the condition that this version answers the function.
func versionServes(g *gateway, function, version string) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		a, err := g.post(ctx, "/"+function+"/predict", "text/plain", []byte("who?"), "Xebec-Slo-Ms", patient)
		if err != nil {
			return false, err.Error()
		}
		return len(a.Models) == 1 && a.Models[0] == version, a.String()
	}
}

// decode reads JSON that the gateway has written.
func decode[T any](text string) (v T, err error) {
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}
