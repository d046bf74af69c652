package apptest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// visit sends a request with these headers, "Name: value", and returns the answer with its body.
func (g *gateway) visit(method, url, body string, headers ...string) (*http.Response, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(bounded(g.t), method, url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(text)
}

// A page cannot teach, ask or read, on either port, unless the function lists its origin. Programs, proxies and scrapers
// notice nothing. Both ports serve the description.
func TestWebPages(t *testing.T) {
	t.Parallel()
	g := serve(t, "--allowed-hosts", "*.proxy.example", "--config", manifest(t, number("m", "echo"),
		function("closed", "m", "slo: 60s"), function("open", "m", "slo: 60s", "cors: {origins: [https://app.example]}")))
	functions, admin := "http://"+g.functions, "http://"+g.admin
	const (
		json, evil, cross, app = "Content-Type: application/json", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Origin: https://app.example"
		input, teaches         = `{"input": 7}`, `{"query_id": 1, "loss": 1}`
		asks                   = "Access-Control-Request-Method: POST"
	)
	for _, c := range []struct {
		what, method, url, body string
		headers                 []string
		status                  int
		allows                  string // Access-Control-Allow-Origin
	}{
		{"a program", "POST", functions + "/closed/predict", input, []string{json}, 200, ""},
		{"a proxy", "POST", functions + "/closed/predict", input, []string{json, "Host: any.example"}, 200, ""},
		{"a page", "POST", functions + "/closed/predict", input, []string{json, evil, cross}, 403, ""},
		{"a page teaches", "POST", functions + "/closed/feedback", teaches, []string{json, evil, cross}, 403, ""},
		{"a page updates", "POST", functions + "/closed/update", teaches, []string{json, cross}, 403, ""},
		{"a page rebinds", "POST", functions + "/closed/predict", input, []string{json, "Host: evil.example", "Origin: http://evil.example"}, 403, ""},
		{"a page behind the proxy", "POST", functions + "/closed/predict", input, []string{json, "Host: a.proxy.example", "Origin: https://a.proxy.example"}, 200, ""},
		{"the listed page asks", "OPTIONS", functions + "/open/predict", "", []string{app, asks, cross}, 204, "https://app.example"},
		{"the listed page", "POST", functions + "/open/predict", input, []string{json, app, cross}, 200, "https://app.example"},
		{"the listed page is wrong", "POST", functions + "/open/predict", `{"input": "x"}`, []string{json, app, cross}, 400, "https://app.example"},
		{"another page asks", "OPTIONS", functions + "/open/predict", "", []string{evil, asks, cross}, 403, ""},
		{"the listed page at a closed function", "POST", functions + "/closed/predict", input, []string{json, app, cross}, 403, ""},
		{"the description", "GET", functions + "/openapi.yaml", "", nil, 200, ""},
		{"the description", "GET", admin + "/openapi.yaml", "", nil, 200, ""},
		{"the page of functions", "GET", functions + "/docs", "", []string{"Sec-Fetch-Site: none"}, 200, ""},
		{"the page of functions", "GET", admin + "/docs", "", []string{"Sec-Fetch-Site: none"}, 200, ""},
		{"the page of functions, rebound", "GET", admin + "/docs", "", []string{"Host: evil.example"}, 403, ""},
		{"the page lists", "GET", functions + "/docs/functions", "", []string{"Sec-Fetch-Site: same-origin"}, 200, ""},
		{"the page describes", "GET", functions + "/closed", "", []string{"Sec-Fetch-Site: same-origin"}, 200, ""},
		{"the page calls", "POST", functions + "/closed/predict", input, []string{json, "Sec-Fetch-Site: same-origin", "Origin: " + functions}, 200, ""},
		{"the app's page describes", "GET", functions + "/open", "", []string{app, cross}, 200, "https://app.example"},
		{"another page describes", "GET", functions + "/open", "", []string{evil, cross}, 200, ""},
		{"a scraper", "GET", admin + "/metrics", "", nil, 200, ""},
		{"a page rebinds", "GET", admin + "/metrics", "", []string{"Host: evil.example"}, 403, ""},
		{"a page rebinds", "GET", admin + "/healthz", "", []string{"Host: evil.example"}, 403, ""},
		{"a page rebinds", "GET", admin + "/readyz", "", []string{"Host: evil.example"}, 403, ""},
		{"a page rebinds", "GET", admin + "/v1/models", "", []string{"Host: evil.example"}, 403, ""},
	} {
		resp, body := g.visit(c.method, c.url, c.body, c.headers...)
		if allows := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != c.status || allows != c.allows {
			t.Errorf("%s: %s %s %q: %d %.200s, allows %q; want %d, %q", c.what, c.method, c.url, c.headers, resp.StatusCode, body, allows, c.status, c.allows)
		}
	}
	if resp, body := g.visit("GET", admin+"/v1/history/never", ""); resp.StatusCode != 404 {
		t.Errorf("the history of nothing is %d %s", resp.StatusCode, body)
	}
	// Declared again without cors, the function is closed to the page.
	g.must("apply", "-f", manifest(t, function("open", "m", "slo: 60s")))
	if resp, body := g.visit("POST", functions+"/open/predict", input, json, app, cross); resp.StatusCode != 403 {
		t.Errorf("after cors was taken away: %d %s", resp.StatusCode, body)
	}
}
