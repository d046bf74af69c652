package obs

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/xebec-serving/xebec/api"
)

func TestBucketsHoldWhatTheirBoundsSay(t *testing.T) {
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
				e.Refuse(api.InvalidArgument)
			}
		}()
	}
	wg.Wait()
	r := e.Read()
	if r.Codes[api.Overloaded] != 8000 || r.Codes[api.InvalidArgument] != 8000 || r.Queries != 16000 || r.Count != 8000 {
		t.Errorf("read %+v", r)
	}
	if r.Seconds < 7.999 || r.Seconds > 8.001 {
		t.Errorf("%g s, want 8", r.Seconds)
	}
}

func TestAScrapeIsPrometheusText(t *testing.T) {
	var fn, m Endpoint
	fn.Observe(api.OK, 3, 5e6)
	s := NewScrape(func() Snapshot {
		return Snapshot{
			Version: "v1", Started: time.Unix(1000, 0),
			Functions: []FunctionSample{{Name: "f", Model: "m", Endpoint: fn.Read()}},
			Models: []ModelSample{{Name: "m", Version: "1", Ready: 2, Endpoint: m.Read(), Ended: map[string]uint64{"ok": 3},
				QueueTime: Histogram{Count: 1, Sum: 0.1, Buckets: map[float64]uint64{0.05: 0, 0.2: 1}}}},
		}
	})
	body, contentType, err := s.Render()
	if err != nil || !strings.HasPrefix(contentType, "text/plain") {
		t.Fatalf("%s, %v", contentType, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"xebec_function_requests_total": `label:{name:"code"  value:"ok"}`, "xebec_replicas_ready": `gauge:{value:2}`,
		"xebec_queue_seconds": `sample_count:1`, "xebec_build_info": `value:"v1"`, "go_goroutines": "gauge",
	} {
		f := families[name]
		if f == nil {
			t.Errorf("no family %s", name)
			continue
		}
		if got := strings.Join(strings.Fields(f.String()), " "); !strings.Contains(got, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%s is %s, want %s in it", name, got, want)
		}
	}
}
