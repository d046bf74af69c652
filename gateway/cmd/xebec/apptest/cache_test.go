package apptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// cacheMetrics returns the model's counts of hits, misses and coalesced queries (version 1).
func (g *gateway) cacheMetrics(model string) (hits, misses, coalesced float64) {
	g.t.Helper()
	m := g.metrics()
	of := func(outcome string) float64 {
		return m.samples[fmt.Sprintf(`xebec_cache_requests_total{model=%q,outcome=%q,version="1"}`, model, outcome)]
	}
	return of("hit"), of("miss"), of("coalesced")
}

// awaitEntries waits until the cache has n predictions.
func (g *gateway) awaitEntries(n float64) {
	g.t.Helper()
	g.await(fmt.Sprintf("%v predictions in the cache", n), func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		return err == nil && m.samples["xebec_cache_entries{}"] == n, fmt.Sprint(m.samples["xebec_cache_entries{}"], err)
	})
}

// The same input is evaluated once for all functions, and again under another salt. Identical queries that arrive during
// an evaluation wait for it, each until its own deadline. The metrics and describe count all of these.
func TestCache(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("m", "echo", stoppable), number("off", "echo", "cache: off"),
		function("f", "m", "slo: 60s", "default: -1"), function("g", "m", "slo: 60s"), function("off", "off", "slo: 60s")))
	wants := func(what string, hits, misses, coalesced float64) {
		t.Helper()
		if h, m, c := g.cacheMetrics("m"); h != hits || m != misses || c != coalesced {
			t.Errorf("%s the cache counts %v hits, %v misses, %v coalesced: expected %v, %v, %v", what, h, m, c, hits, misses, coalesced)
		}
		if n := g.metrics().of("model_queries_total", "m", "ok"); n != misses {
			t.Errorf("%s the model has evaluated %v queries: expected %v", what, n, misses)
		}
	}
	for range 3 {
		g.ask("f", 5, "")
		g.ask("off", 5, "")
	}
	wants("after three identical queries", 2, 1, 0)
	if n := g.metrics().of("model_queries_total", "off", "ok"); n != 3 {
		t.Errorf("a model without a cache has evaluated %v of 3 queries", n)
	}
	g.ask("g", 5, "")
	wants("after the same input to another function", 3, 1, 0)
	g.ask("f", 5, `,"salt":"today"`)
	g.ask("f", 5, `,"salt":"today"`)
	g.ask("f", 5, `,"context":"ann"`)
	wants("after the same input with a salt, and with a context that the model does not get", 5, 2, 0)
	if a := g.json("/f/predict", `{"input_batch":[5,6,6]}`); len(a.Batch) != 3 || a.Batch[0].number() != 5 || a.Batch[2].number() != 6 {
		t.Errorf("a batch is answered by %v", a)
	}
	wants("after a batch of a cached input and a new one twice", 6, 3, 1)
	if a := g.json("/v2/models/m/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[2],"data":[5,7]}]}`); a.Status != 200 || !strings.Contains(string(a.Body), `"data":[5,7]`) {
		t.Errorf("the model itself answers %v", a)
	}
	g.ask("f", 7, "")
	wants("after a request to the model itself", 8, 4, 1)

	release := stall(g, "m")
	const waiting = 5
	var wg sync.WaitGroup
	ctx := bounded(t)
	for range waiting {
		wg.Go(func() {
			if a, err := g.tryAsk(ctx, "f", 100, ""); err != nil || !a.predicted() || a.number() != 100 {
				t.Errorf("a query among several with the same input is answered by %v (%v)", a, err)
			}
		})
	}
	g.await("all identical queries but the first to wait", func(ctx context.Context) (bool, string) {
		_, misses, coalesced := g.cacheMetrics("m")
		return misses == 5 && coalesced == 1+waiting-1, fmt.Sprint(misses, coalesced)
	})
	if a := g.ask("f", 100, "", "Xebec-Slo-Ms", "50"); !a.Default || a.DefaultExplanation != api.DeadlineExceeded.Reason() {
		t.Errorf("an identical query with a deadline of 50 ms is answered by %v", a)
	}
	release()
	wg.Wait()
	wants("after five identical queries at a time, and one with an earlier deadline that does not wait", 8, 5, 5)
	if text := g.must("describe", "model", "m"); !strings.Contains(text, "on, 8 hits, 5 misses, 5 waited for an identical query") {
		t.Errorf("describe says\n%s", text)
	}
	if text := g.must("describe", "gateway"); !strings.Contains(text, "5 predictions in ") {
		t.Errorf("describe says\n%s", text)
	}
	m := g.metrics().samples
	if m["xebec_cache_entries{}"] != 5 || m["xebec_cache_bytes{}"] <= 0 || m["xebec_cache_max_bytes{}"] > 256<<20 || m["xebec_cache_max_bytes{}"] < 255<<20 {
		t.Errorf("the metrics say %v entries, %v of %v bytes", m["xebec_cache_entries{}"], m["xebec_cache_bytes{}"], m["xebec_cache_max_bytes{}"])
	}
}

// The cache drops a model version's predictions when the version is deleted: declared again under the same name, with
// another worker, it is evaluated. Failures are not cached.
func TestCacheForgetsWhatIsDeleted(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("m", "echo"), function("f", "m", "slo: 60s"), testModel("odd", nil, "retry: false"), function("odd", "odd", "slo: 60s")))
	for range 2 {
		if a := g.ask("f", 7, ""); a.number() != 7 {
			t.Fatalf("7 is answered by %v", a)
		}
	}
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	g.apply(number("m", "noop"), function("f", "m", "slo: 60s"))
	if a := g.ask("f", 7, ""); !a.predicted() || a.number() != 0 {
		t.Errorf("after the model was declared again 7 is answered by %v: expected 0", a)
	}
	g.apply(version(number("m", "echo"), "2"))
	g.await("the next version to answer", func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, "f", 7, "")
		return err == nil && a.number() == 7 && fmt.Sprint(a.Models) == "[m@2]", a.String()
	})
	g.must("delete", "model", "m@2")
	g.await("the old version to answer", func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, "f", 7, "")
		return err == nil && a.number() == 0 && fmt.Sprint(a.Models) == "[m@1]", a.String()
	})
	for n := 1; n <= 2; n++ {
		if a := g.raw("odd", "error"); a.Code != "model_error" {
			t.Errorf("a failing query is answered by %v", a)
		}
		if got := g.metrics().of("model_queries_total", "odd", "model_error"); got != float64(n) {
			t.Errorf("of %d failing queries %v were evaluated", n, got)
		}
	}
}

// With --cache 0 every query is evaluated, and describe says that the cache is off. A small cache keeps within its bound.
func TestCacheOffAndSmall(t *testing.T) {
	t.Parallel()
	config := manifest(t, testModel("m", nil), function("f", "m", "slo: 60s"))
	off := serve(t, "--cache", "0", "--config", config)
	for range 3 {
		off.raw("f", "hello")
	}
	if h, m, c := off.cacheMetrics("m"); h+m+c != 0 || off.metrics().of("model_queries_total", "m", "ok") != 3 {
		t.Errorf("without a cache there are %v hits, %v misses, %v coalesced", h, m, c)
	}
	off.xebec("describe", "gateway").wants(t, "describe the gateway", 0, "Cache:", "")
	off.xebec("describe", "model", "m").wants(t, "describe a model", 0, "off, though declared on", "")

	const bound = 4 << 20
	small := serve(t, "--cache", "4MiB", "--config", config)
	for i := range 100 {
		if a := small.raw("f", fmt.Sprintf("big:%d", 100_000+i)); len(a.text()) != 100_000+i {
			t.Fatalf("query %d is answered by %d bytes", i, len(a.text()))
		}
	}
	m := small.metrics().samples
	if m["xebec_cache_bytes{}"] > bound || m["xebec_cache_bytes{}"] == 0 || m["xebec_cache_evicted_total{}"] == 0 {
		t.Errorf("a cache of %d bytes has %v, and has evicted %v", bound, m["xebec_cache_bytes{}"], m["xebec_cache_evicted_total{}"])
	}
	for _, wrong := range []string{"-1", "lots", "2048TiB"} {
		g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cache", wrong)
		g.gone(2)
		if !strings.Contains(g.logText(), "--cache") {
			t.Errorf("--cache %s: the gateway's log is\n%s", wrong, g.logText())
		}
	}
}
