package obs

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/xebec-serving/xebec/api"
)

func TestBucketBounds(t *testing.T) {
	for took, bound := range map[api.Nanos]float64{
		0: 64e-6, 63_999: 64e-6, 64_000: 128e-6, 127_999: 128e-6, 128_000: 256e-6, 1_000_000: 1024e-6, -5: 64e-6,
	} {
		var e Endpoint
		e.Observe(api.OK, 1, took)
		r := e.Read()
		if r.Buckets[bound] != 1 || bound > 64e-6 && r.Buckets[bound/2] != 0 {
			t.Errorf("%d ns: buckets %v, want the first count at %g s", took, r.Buckets, bound)
		}
	}
	var e Endpoint
	e.Observe(api.OK, 1, api.Nanos(time.Hour))
	if r := e.Read(); r.Count != 1 || r.Buckets[float64(1<<25)/1e6] != 0 {
		t.Errorf("an hour: count %d, buckets %v", r.Count, r.Buckets)
	}
}

func TestStripesAddUp(t *testing.T) {
	var e Endpoint
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				e.Observe(api.Overloaded, 2, 1e6)
				e.CountMalformed(api.InvalidArgument)
			}
		}()
	}
	wg.Wait()
	r := e.Read()
	if r.Codes[api.Overloaded] != 8000 || r.Codes[api.InvalidArgument] != 8000 || r.Queries != 16000 || r.Count != 8000 {
		t.Errorf("read %+v", r)
	}
	if r.Seconds < 7.999 || r.Seconds > 8.001 {
		t.Errorf("the sum is %g s, want 8", r.Seconds)
	}
}

// TestWithinObjective: a request is a hit if it has predictions within its objective, give or take the precision of a timer. What the
// caller got wrong or gave up says nothing about the gateway.
func TestWithinObjective(t *testing.T) {
	const ms = api.Nanos(time.Millisecond)
	for _, c := range []struct {
		code         api.Code
		took, slo    api.Nanos
		hits, misses uint64
	}{
		{api.OK, 19 * ms, 20 * ms, 1, 0},
		{api.OK, 20*ms + ms/2, 20 * ms, 1, 0}, // an ensemble that answers at its deadline
		{api.OK, 22 * ms, 20 * ms, 0, 1},      // it waited for a cold start
		{api.DeadlineExceeded, 20 * ms, 20 * ms, 0, 1},
		{api.Overloaded, ms, 20 * ms, 0, 1}, // the caller gets a default or an error, at once
		{api.LowConfidence, ms, 20 * ms, 0, 1},
		{api.ModelError, ms, 20 * ms, 0, 1},
		{api.Cancelled, ms, 20 * ms, 0, 0},
		{api.InvalidArgument, ms, 20 * ms, 0, 0},
	} {
		var e Endpoint
		e.Observe(api.OK, 1, ms) // it has no objective
		before := e.Read()
		e.ObserveSLO(c.code, 3, c.took, c.slo)
		r := e.Read().Since(before)
		if r.SLOHits != c.hits || r.SLOMisses != c.misses || r.Codes[c.code] != 1 || r.Queries != 3 || r.Count != 1 {
			t.Errorf("%v after %v of %v: %d hits and %d misses, want %d and %d (%+v)", c.code, c.took, c.slo, r.SLOHits, r.SLOMisses, c.hits, c.misses, r.Codes)
		}
	}
}

func TestScrapeIsPrometheusText(t *testing.T) {
	var fn, m Endpoint
	fn.ObserveSLO(api.OK, 3, 5e6, 5e6)
	s := NewScrape(func() Snapshot {
		return Snapshot{
			Version: "v1", Started: time.Unix(1000, 0),
			Functions: []FunctionSample{{Name: "f", Model: "m", Endpoint: fn.Read()}},
			Models: []ModelSample{{Name: "m", Version: "1", Ready: 2, Endpoint: m.Read(), Ended: map[string]uint64{"ok": 3},
				QueueTime: Histogram{Count: 1, Sum: 0.1, Buckets: map[float64]uint64{0.05: 0, 0.2: 1}}}},
		}
	})
	_, families := render(t, s)
	for name, want := range map[string]string{
		"xebec_function_requests_total": `label:{name:"code"  value:"ok"}`, "xebec_replicas_ready": `gauge:{value:2}`,
		"xebec_function_slo_total": `label:{name:"outcome" value:"hit"} counter:{value:1}`,
		"xebec_queue_seconds":      `sample_count:1`, "xebec_build_info": `value:"v1"`, "go_goroutines": "gauge",
	} {
		if got := families[name]; !strings.Contains(got, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%s is %q, want %s in it", name, got, want)
		}
	}
}

// render scrapes once and returns the text, and what Prometheus parses from it by family.
func render(t *testing.T, s *Scrape) (text string, families map[string]string) {
	t.Helper()
	body, contentType, err := s.Render()
	if err != nil || !strings.HasPrefix(contentType, "text/plain") {
		t.Fatalf("%s, %v", contentType, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	families = map[string]string{}
	for name, f := range parsed {
		families[name] = strings.Join(strings.Fields(f.String()), " ")
	}
	return string(body), families
}

func TestScrapeHasThePlan(t *testing.T) {
	var fn, m Endpoint
	late := Histogram{Count: 2, Sum: 0.002, Buckets: map[float64]uint64{0.001: 1, 0.004: 2}}
	s := NewScrape(func() Snapshot {
		return Snapshot{
			Epochs: 7, PlanTime: Histogram{Count: 7, Sum: 0.0007, Buckets: map[float64]uint64{0.000128: 7}},
			Functions: []FunctionSample{
				// Two candidates that are the same version, such as a name and the version that it stands for.
				{Name: "f", Endpoint: fn.Read(), Planned: []PlannedSample{{"m", "1", 0.25}, {"n", "3", 0.125}, {"m", "1", 0.5}}, Refused: 0.125, CostPerSecond: 2.5},
				{Name: "idle", Endpoint: fn.Read()},
			},
			Models:  []ModelSample{{Name: "m", Version: "1", Ready: 1, Endpoint: m.Read(), CapacityPerSecond: 1000, PlannedPerSecond: 800, DeadlineLate: late}},
			Devices: []DeviceSample{{Name: "gpu0", Busy: 0.75}},
		}
	})
	text, _ := render(t, s)
	for _, line := range []string{
		"xebec_scheduler_epochs_total 7",
		`xebec_scheduler_plan_seconds_bucket{le="0.000128"} 7`,
		"xebec_scheduler_plan_seconds_sum 0.0007",
		`xebec_function_planned_share{function="f",model="m",version="1"} 0.75`,
		`xebec_function_planned_share{function="f",model="n",version="3"} 0.125`,
		`xebec_function_refused_share{function="f"} 0.125`,
		`xebec_function_refused_share{function="idle"} 0`,
		`xebec_function_cost_per_second{function="f"} 2.5`,
		`xebec_model_capacity_queries_per_second{model="m",version="1"} 1000`,
		`xebec_model_planned_queries_per_second{model="m",version="1"} 800`,
		`xebec_deadline_late_seconds_bucket{model="m",version="1",le="0.001"} 1`,
		`xebec_deadline_late_seconds_count{model="m",version="1"} 2`,
		`xebec_device_busy_ratio{device="gpu0"} 0.75`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("line %s is missing in\n%s", line, text)
		}
	}
}

// TestScrapeOfUnusedVersions: a version that never had a replica or a query has only one row.
func TestScrapeOfUnusedVersions(t *testing.T) {
	var asked Endpoint
	asked.CountMalformed(api.NoReplica)
	text, _ := render(t, NewScrape(func() Snapshot {
		return Snapshot{Models: []ModelSample{
			{Name: "never", Version: "1", Ended: map[string]uint64{}}, {Name: "once", Version: "1", Ended: map[string]uint64{"no_replica": 1}},
			{Name: "by-name", Version: "1", Endpoint: asked.Read()},
		}}
	}))
	for name, want := range map[string]int{"never": 1, "once": 8, "by-name": 8} {
		if rows := strings.Count(text, fmt.Sprintf("model=%q", name)); (want == 1) != (rows == 1) || rows < want {
			t.Errorf("%s has %d rows, want at least %d", name, rows, want)
		}
	}
}
