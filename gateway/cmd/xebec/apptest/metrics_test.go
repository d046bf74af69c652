package apptest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Restarts and exits are counted by reason, for as long as the gateway lives: not the replica, nor the version.
func TestExitsAreCounted(t *testing.T) {
	t.Parallel()
	g := serve(t)
	declared := testModel("m", nil, "retry: false", "replicas: {min: 1, max: 1}") + function("f", "m", "slo: 60s")
	g.apply(declared)
	first := g.awaitReplicas("m", 1).Replicas[0].PID
	if n, there := g.metrics().samples[`xebec_replica_exits_total{model="m",reason="killed",version="1"}`]; n != 0 || !there {
		t.Errorf("before the first exit its counter is %v (%t): expected 0, because a counter that begins at 1 never rises", n, there)
	}
	kill(t, first)
	g.awaitExits(1, "m", "killed")
	g.awaitModel("m", "the next replica", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 && m.Replicas[0].PID != first })
	g.raw("f", "die")
	g.awaitExits(1, "m", "exited")
	g.awaitModel("m", "a third replica", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 && restarts(m) == 2 })
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	g.awaitExits(1, "m", "stopped")
	want := func(when string, stopped float64) {
		t.Helper()
		m := g.metrics()
		if m.of("replica_restarts_total", "m") != 2 || m.exits("m", "killed") != 1 || m.exits("m", "exited") != 1 || m.exits("m", "stopped") != stopped {
			t.Errorf("%s there are %v restarts, and %v, %v and %v replicas were killed, exited and were stopped: expected 2, 1, 1, %v", when,
				m.of("replica_restarts_total", "m"), m.exits("m", "killed"), m.exits("m", "exited"), m.exits("m", "stopped"), stopped)
		}
	}
	want("after the version has gone", 1)
	g.apply(declared)
	g.awaitReplicas("m", 1)
	want("after it was declared again", 1)
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	g.awaitExits(2, "m", "stopped")
	want("after it has gone again", 2)
}

// TestMetricsAreClean: Prometheus's own linter finds nothing in a scrape of a gateway that uses most of what there is. (Every other
// scrape of these tests is linted too.) Where promtool is installed, it agrees.
func TestMetricsAreClean(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serveIn(t, dir, "--data-dir", dir+"/data", "--inference-log", dir+"/log", "--device", "gpu0", "--node-cpu", "4", "--node-memory", "8GiB", "--config", manifest(t,
		number("right", "echo"), number("wrong", "noop", "cache: on"), version(number("right", "noop"), "2"),
		"\n---\nkind: Traffic\nname: right\nserving: \"1\"\nsplit: {version: \"2\", percent: 50}\n",
		number("asleep", "echo", "device: gpu0", "replicas: {min: 0, max: 1}"), testModel("text", nil, "retry: false"),
		function("all", "right, wrong", "slo: 60s", "policy: exp4", "log: {sample: 1}"), function("one", "right", "slo: 60s", "shadow: {wrong: 1}"),
		function("asleep", "asleep", "slo: 60s", "cold_start: 60s"), function("safe", "text", "slo: 60s", theDefault)))
	for range 8 {
		for _, f := range []string{"all", "one", "asleep"} {
			if a := g.json("/"+f+"/predict", `{"input":7}`); !a.predicted() {
				t.Errorf("%s answers %v", f, a)
			}
		}
		g.json("/all/feedback", `{"input":7,"label":7}`)
		g.json("/v2/models/right/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[7]}]}`)
	}
	g.raw("safe", "die")
	g.awaitExits(1, "text", "exited")
	g.await("a scrape with all families, and the feedback counted", func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx) // it is linted
		var missing []string
		for family, kind := range map[string]string{
			"feedback_loss": "summary", "traffic_loss": "summary", "traffic_queries_total": "counter", "shadow_predictions_total": "counter", "cold_start_seconds": "histogram",
			"inference_log_records_total": "counter", "policy_store_away": "gauge", "device_busy_ratio": "gauge", "function_planned_share": "gauge",
			"cache_requests_total": "counter", "replica_exits_total": "counter", "replica_restarts_total": "counter", "function_slo_total": "counter",
		} {
			if got := m.families["xebec_"+family]; got != kind {
				missing = append(missing, fmt.Sprintf("xebec_%s is a %q: expected a %s", family, got, kind))
			}
		}
		counted := m.samples[`xebec_feedback_loss_count{candidate="right",function="all"}`]
		return err == nil && len(missing) == 0 && counted == 8, fmt.Sprintln(err, missing, "feedback counted:", counted)
	})
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		return // the linter behind it has already said what it would say
	}
	_, body := g.fetch(bounded(t), "http://"+g.admin+"/metrics")
	cmd := exec.CommandContext(bounded(t), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// The metrics are in Prometheus's text format, have every family that dashboards use, and count correctly. Names that
// clients invent do not add samples.
func TestMetrics(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	const queries = 20
	for i := range queries {
		g.raw("f", fmt.Sprint(i))
	}
	g.raw("f", "error")
	batch := g.json("/f/predict", `{"input_batch":["a","b","c"]}`)
	if len(batch.Batch) != 3 || batch.Batch[2].text() != "c" {
		t.Errorf("a batch was answered by %v", batch)
	}
	g.json("/v2/models/m/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[2],"data":["x","y"]}]}`)

	m := g.metrics()
	for family, kind := range map[string]string{
		"build_info": "gauge", "start_time_seconds": "gauge",
		"function_requests_total": "counter", "function_queries_total": "counter", "function_latency_seconds": "histogram",
		"model_requests_total": "counter", "model_latency_seconds": "histogram", "model_queries_total": "counter",
		"queue_seconds": "histogram", "batch_size": "histogram", "worker_seconds": "histogram",
		"batches_total": "counter", "retries_total": "counter", "replica_exits_total": "counter", "function_slo_total": "counter", "replica_restarts_total": "counter",
		"replicas_ready": "gauge", "queue_length": "gauge", "in_flight": "gauge",
	} {
		if got := m.families["xebec_"+family]; got != kind {
			t.Errorf("xebec_%s is a %q: expected a %s", family, got, kind)
		}
	}
	for _, family := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if m.families[family] == "" {
			t.Errorf("there is no %s", family)
		}
	}
	for sample, want := range map[string]float64{
		`xebec_function_requests_total{code="ok",function="f"}`:               queries + 1,
		`xebec_function_requests_total{code="model_error",function="f"}`:      1,
		`xebec_function_slo_total{function="f",outcome="hit"}`:                queries + 1,
		`xebec_function_slo_total{function="f",outcome="miss"}`:               1,
		`xebec_function_queries_total{function="f"}`:                          queries + 4,
		`xebec_function_latency_seconds_count{function="f"}`:                  queries + 2,
		`xebec_model_requests_total{code="ok",model="m",version="1"}`:         1,
		`xebec_model_queries_total{code="ok",model="m",version="1"}`:          queries + 5,
		`xebec_model_queries_total{code="model_error",model="m",version="1"}`: 1,
		`xebec_replicas_ready{model="m",version="1"}`:                         1,
		`xebec_in_flight{model="m",version="1"}`:                              0,
		`xebec_queue_length{model="m",version="1"}`:                           0,
	} {
		if got, there := m.samples[sample]; got != want || !there {
			t.Errorf("%s is %v: expected %v", sample, got, want)
		}
	}
	// The requests are sequential, so each query is a batch of its own, except for the two requests with several queries.
	if n := m.of("batches_total", "m"); n < queries+3 || n > queries+6 {
		t.Errorf("%v batches: expected %d to %d", n, queries+3, queries+6)
	}

	count := func(m metrics) (n int) {
		for sample := range m.samples {
			if strings.HasPrefix(sample, "xebec_") {
				n++
			}
		}
		return n
	}
	before := count(m)
	for i := range 300 {
		g.json(fmt.Sprintf("/made-up-%d/predict", i), `{"input":1}`)
		g.json(fmt.Sprintf("/v2/models/made-up-%d/infer", i), `{}`)
		g.json("/f/predict", `{"input":1}`, "Xebec-Context", fmt.Sprintf("made-up-%d", i))
	}
	m = g.metrics()
	for sample := range m.samples {
		if strings.Contains(sample, "made-up") {
			t.Errorf("a client's invented name is in %s", sample)
		}
	}
	if after := count(m); after > before+1 { // the code invalid_argument is new, once
		t.Errorf("invalid requests grew the samples from %d to %d", before, after)
	}
}
