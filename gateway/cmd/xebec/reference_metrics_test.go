package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// metricPage shows what a scrape of everything there is has: names, types, labels and help as Prometheus gets them.
func metricPage(t *testing.T) string {
	body, _, err := obs.NewScrape(everyMetric).Render()
	if err != nil {
		t.Fatal(err)
	}
	type family struct{ help, kind, labels string }
	families := map[string]*family{}
	var names []string
	labels := regexp.MustCompile(`(\w+)="`)
	for line := range strings.Lines(string(body)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case len(words) < 2:
		case words[0] == "#" && words[1] == "HELP" && strings.HasPrefix(words[2], "xebec_"):
			families[words[2]] = &family{help: strings.ReplaceAll(words[3], `\"`, `"`)}
			names = append(names, words[2])
		case words[0] == "#" && words[1] == "TYPE" && families[words[2]] != nil:
			families[words[2]].kind = words[3]
		default:
			name, _, _ := strings.Cut(words[0], "{")
			f := families[name]
			for _, part := range []string{"_bucket", "_count"} { // of a histogram or a summary
				if f == nil {
					f = families[strings.TrimSuffix(name, part)]
				}
			}
			if f != nil && f.labels == "" {
				var all []string
				for _, m := range labels.FindAllStringSubmatch(line, -1) {
					if m[1] != "le" {
						all = append(all, m[1])
					}
				}
				f.labels = strings.Join(all, ", ")
			}
		}
	}
	for _, name := range declaredMetrics(t) {
		if families[name] == nil {
			t.Errorf("the metric %s is declared in gateway/internal/obs, but a scrape of everyMetric does not have it: add it there", name)
		}
	}
	b := newPage("Metrics", "`GET /metrics` on the admin port, in Prometheus's text format. The usual `go_` and `process_` families are there too. [Monitoring](../monitoring.md) says\n"+
		"which ones to watch. Histograms, and the families of objectives, feedback, ensembles and shadows, appear with their first event; `xebec_policy_share` appears where a\n"+
		"function has several candidates, the families of the store where there is one.")
	addTable(b, "metric", "type", "labels", "meaning")
	slices.Sort(names)
	for _, name := range names {
		f := families[name]
		addRow(b, code(name), f.kind, f.labels, linkNames(f.help))
	}
	return b.String()
}

// TestMetricNames: Prometheus's linter, which promtool check metrics runs, finds nothing in any metric that there is.
func TestMetricNames(t *testing.T) {
	body, _, err := obs.NewScrape(everyMetric).Render()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// declaredMetrics are the names in the sources of obs.
func declaredMetrics(t *testing.T) (names []string) {
	files, err := filepath.Glob(root + "/gateway/internal/obs/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`desc\("([a-z0-9_]+)"`).FindAllSubmatch(text, -1) {
			names = append(names, "xebec_"+string(m[1]))
		}
	}
	if len(names) == 0 {
		t.Fatal(`no metric found in gateway/internal/obs: this test looks for desc("name"`)
	}
	return names
}

// everyMetric is a snapshot in which every metric has a value.
func everyMetric() obs.Snapshot {
	h := obs.Histogram{Count: 1, Sum: 1, Buckets: map[float64]uint64{1: 1}}
	var endpoint obs.Endpoint
	endpoint.ObserveSLO(api.OK, 1, 1, 1)
	learning := &obs.Learning{}
	learning.Counted.Add(1)
	learning.Late.Add(1)
	learning.Dropped.Add(1)
	learning.ShadowsSame.Add(1)
	candidates := []obs.CandidateSample{{Ref: "m", Share: 0.5, Losses: 1, LossSum: 1}, {Ref: "n", Share: 0.5}}
	return obs.Snapshot{
		AcceptErrors: map[string]uint64{"admin": 1}, EdgeRefused: map[string]map[string]uint64{"functions": {"framing": 1}},
		Version: "0", Started: time.Unix(1, 0), Epochs: 1, PlanTime: h, Devices: []obs.DeviceSample{{Name: "gpu0"}},
		Functions: []obs.FunctionSample{{
			Name: "f", Endpoint: endpoint.Read(), Planned: []obs.PlannedSample{{Model: "m", Version: "1", Part: 1}}, Learning: learning, Candidates: candidates,
		}},
		Models: []obs.ModelSample{{
			Name: "m", Version: "1", Ready: 1, Endpoint: endpoint.Read(), QueueTime: h, BatchSize: h, WorkerTime: h, DeadlineLate: h,
			Ended: map[string]uint64{"ok": 1}, Cache: map[string]uint64{"hit": 1}, Streams: &api.StreamStatus{},
		}},
		Replicas: []obs.ReplicaSample{{Name: "m", Version: "1", Exits: map[string]uint64{"stopped": 1}}},
		State:    obs.StateSample{HasStore: true},
		Capacity: obs.CapacitySample{
			Models:     []obs.ModelCapacitySample{{Name: "m", Version: "1"}},
			ColdStarts: []obs.ColdStartSample{{Name: "m", Version: "1", Waits: h}},
		},
		Lifecycle: obs.LifecycleSample{
			Phases: map[string]int{"available": 1}, Outcomes: map[string]uint64{"validated": 1}, Arms: []obs.ArmSample{{Model: "m", Version: "1", Rule: "shadow", Same: 1}},
			Drift: []obs.DriftSample{{Model: "m", Version: "1"}}, Log: &obs.InferenceLogSample{},
		},
	}
}
