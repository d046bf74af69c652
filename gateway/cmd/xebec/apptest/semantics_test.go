package apptest

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHTTPSemantics drives both ports as a client in Go does that knows RFC 9110: methods, content codings, and the names of requests.
func TestHTTPSemantics(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	ports := map[string]string{"function": g.functions, "admin": g.admin}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	ask := func(method, url, body string, fields ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(bounded(t), method, "http://"+url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Add(fields[i], fields[i+1])
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}

	t.Run("methods", func(t *testing.T) {
		for _, c := range []struct{ port, path, allow string }{
			{"function", "/healthz", "GET, HEAD, OPTIONS"}, {"function", "/f/predict", "OPTIONS, POST"}, {"function", "/v2/models/m", "GET, HEAD, OPTIONS"},
			{"admin", "/healthz", "GET, HEAD, OPTIONS"}, {"admin", "/metrics", "GET, HEAD, OPTIONS"}, {"admin", "/v1/models/m", "DELETE, GET, HEAD, OPTIONS"}, {"admin", "/v1/apply", "OPTIONS, POST"},
		} {
			url := ports[c.port] + c.path
			if resp, body := ask("OPTIONS", url, ""); resp.StatusCode != 204 || resp.Header.Get("Allow") != c.allow || body != "" {
				t.Errorf("OPTIONS %s: %s, Allow %q, %s", c.path, resp.Status, resp.Header.Get("Allow"), body)
			}
			if resp, body := ask("PATCH", url, ""); resp.StatusCode != 405 || resp.Header.Get("Allow") != c.allow || !strings.Contains(body, "PATCH is not a method of "+c.path) || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("PATCH %s: %s, Allow %q, %s", c.path, resp.Status, resp.Header.Get("Allow"), body)
			}
			if !strings.Contains(c.allow, "GET") {
				continue
			}
			get, text := ask("GET", url, "")
			head, body := ask("HEAD", url, "")
			if head.StatusCode != get.StatusCode || body != "" || head.Header.Get("Content-Type") != get.Header.Get("Content-Type") || c.path != "/metrics" && c.path != "/v1/models/m" && head.ContentLength != int64(len(text)) {
				t.Errorf("HEAD %s: %s, length %d, %v; GET: %s, length %d", c.path, head.Status, head.ContentLength, head.Header, get.Status, len(text))
			}
		}
		if resp, body := ask("HEAD", g.admin+"/v1/models/m/logs?follow=true", ""); resp.StatusCode != 200 || body != "" {
			t.Errorf("HEAD of followed logs: %s %s", resp.Status, body)
		}
		for port, address := range ports {
			if resp, body := ask("GET", address+"/nothing/here/at/all", ""); resp.StatusCode != 404 || !strings.Contains(body, `"code":"not_found"`) {
				t.Errorf("%s port: an unknown path is %s %s", port, resp.Status, body)
			}
		}
	})

	t.Run("names of requests", func(t *testing.T) {
		const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		for port, address := range ports {
			resp, body := ask("GET", address+"/nothing", "", "X-Request-Id", "mine-1", "traceparent", parent, "tracestate", "a=1")
			if h := resp.Header; h.Get("X-Request-Id") != "mine-1" || h.Get("Traceparent") != parent || h.Get("Tracestate") != "a=1" || !strings.Contains(body, `"request_id":"mine-1"`) {
				t.Errorf("%s port: %v %s", port, h, body)
			}
			resp, body = ask("GET", address+"/nothing", "", "X-Request-Id", "not valid", "traceparent", "nonsense")
			if id := resp.Header.Get("X-Request-Id"); id == "" || id == "not valid" || resp.Header.Get("Traceparent") != "" || !strings.Contains(body, `"request_id":"`+id+`"`) {
				t.Errorf("%s port: %v %s", port, resp.Header, body)
			}
		}
		if resp, _ := ask("DELETE", g.admin+"/v1/functions/none", "", "X-Request-Id", "mine-2", "traceparent", parent); resp.StatusCode != 404 {
			t.Errorf("deleting what is not there: %s", resp.Status)
		}
		named := regexp.MustCompile(`"action": "delete".*"request_id": "mine-2", "traceparent": "` + parent + `"`)
		g.await("the log to name the request", func(context.Context) (bool, string) { return named.MatchString(g.logText()), tail(g.logText(), 5) })
	})

	t.Run("answers", func(t *testing.T) {
		for _, coding := range []string{"gzip", "zstd"} {
			for _, url := range []string{g.admin + "/metrics", g.admin + "/v1/models"} {
				resp, body := ask("GET", url, "", "Accept-Encoding", coding)
				if resp.Header.Get("Content-Encoding") != coding || resp.Header.Get("Vary") != "Accept-Encoding" || strings.Contains(body, "xebec") {
					t.Errorf("%s of %s: %v", coding, url, resp.Header)
				}
			}
		}
		if resp, _ := ask("POST", g.admin+"/v1/apply", "not gzip", "Content-Type", "application/yaml", "Content-Encoding", "gzip"); resp.StatusCode != 400 {
			t.Errorf("a broken body on the admin port: %s", resp.Status)
		}
		if resp, _ := ask("POST", g.admin+"/v1/apply", "x", "Content-Type", "application/yaml", "Content-Encoding", "compress"); resp.StatusCode != 415 || resp.Header.Get("Accept-Encoding") == "" {
			t.Errorf("an unknown coding on the admin port: %s %v", resp.Status, resp.Header)
		}
	})

	t.Run("clients", func(t *testing.T) {
		script, err := filepath.Abs("testdata/codings.py")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(bounded(t), python(t), script, g.functions, g.admin).CombinedOutput(); err != nil {
			t.Errorf("the Python clients: %v\n%s", err, out)
		}
	})
}
