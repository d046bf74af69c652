package apptest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A request of one client costs one read, one write and at most one bell each way, and about one look for what is ready: the gateway's
// own counts say so. A bell is saved where the other side is still awake. A connection whose next request comes before the
// poller knows that the last one was answered costs a second look.
func TestWhatARequestCosts(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil, uncached), function("f", "m", "slo: 60s")))
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(bounded(t), "POST", "http://"+g.functions+"/f/predict", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s, %v: %s", resp.Status, err, answer)
		}
	}
	ask("first") // the connection is there, and so is the replica
	before := g.metrics()
	const n = 300
	for i := range n {
		ask(fmt.Sprint(i))
	}
	after := g.metrics()
	for _, c := range []struct {
		name        string
		least, most float64
	}{
		{"xebec_http_poll_reads_total", n, n},
		{"xebec_http_poll_writes_total", n, n},
		{"xebec_http_poll_waits_total", 1, 2*n + 50}, // and a few for deadlines
		{"xebec_replica_bells_rung_total", 1, n},
		{"xebec_replica_bells_received_total", 1, n},
	} {
		then, now := before.samples[c.name+"{}"], after.samples[c.name+"{}"]
		if cost := now - then; cost < c.least || cost > c.most {
			t.Errorf("%d requests, one after the other: %s rises by %v, want %v to %v", n, c.name, cost, c.least, c.most)
		}
		t.Logf("%s: %v", c.name, now-then)
	}
}
