package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/network/standard"

	"github.com/xebec-serving/xebec/api"
)

// serve runs the admin API on its own port until the test ends, and returns its address.
func serve(t *testing.T, c Control) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := server.New(server.WithListener(ln), server.WithTransport(standard.NewTransporter), server.WithSenseClientDisconnection(true), server.WithExitWaitTime(0), server.WithMaxRequestBodySize(MaxBodyBytes))
	Register(h, c, Options{})
	done := make(chan error, 1)
	go func() { done <- h.Run() }()
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func fetch(t *testing.T, ctx context.Context, url, accept string) *http.Response {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestLogs(t *testing.T) {
	f := &fakeControl{}
	base := serve(t, f)
	for _, c := range []struct{ path, accept, contentType, want string }{
		{"/v1/models/digits-svm/logs", "", "text/plain; charset=utf-8", "2026-01-02T03:04:05Z 1/1: line\n2026-01-02T03:04:05Z 1/2: line\n"},
		{"/v1/models/digits-svm/logs?lines=1&version=1", "application/x-ndjson", "application/x-ndjson", `{"time":"2026-01-02T03:04:05Z","version":"1","replica":1,"stream":"stdout","text":"line"}` + "\n"},
		{"/v1/models/digits-svm/logs?lines=0", "", "text/plain; charset=utf-8", ""},
	} {
		res := fetch(t, t.Context(), base+c.path, c.accept)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || string(body) != c.want || res.Header.Get("Content-Type") != c.contentType {
			t.Errorf("%s: got %d %q %q, %v\nwant %q %q", c.path, res.StatusCode, res.Header.Get("Content-Type"), body, err, c.contentType, c.want)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := (api.LogQuery{Model: "digits-svm", Lines: 0}); f.query != want {
		t.Errorf("Logs was called with %+v, want %+v", f.query, want)
	}
}

func TestLogsThatFail(t *testing.T) {
	base := serve(t, &fakeControl{logsErr: errors.New("the log is gone")})
	for accept, want := range map[string]string{
		"":                     "error: the log is gone\n",
		"application/x-ndjson": `{"error":{"code":"internal","message":"the log is gone"}}` + "\n",
	} {
		res := fetch(t, t.Context(), base+"/v1/models/digits-svm/logs", accept)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.HasSuffix(string(body), want) {
			t.Errorf("got %q, %v; want it to end in %q", body, err, want)
		}
	}
}

// An inspection streams what the command writes. If the command fails, the last line says how.
func TestInspect(t *testing.T) {
	for _, c := range []struct {
		f    *fakeControl
		code int
		want string
	}{
		{&fakeControl{}, 200, `{"time":"2026-01-02T03:04:05Z","replica":7,"stream":"stderr","text":"loading"}` + "\n" + `{"time":"2026-01-02T03:04:05Z","replica":7,"stream":"stdout","text":"{}"}` + "\n"},
		{&fakeControl{logsErr: errors.New("exited with code 1")}, 200, `"text":"loading"}` + "\n" + `{"error":{"code":"internal","message":"exited with code 1"}}` + "\n"},
		{&fakeControl{err: api.Errorf(api.Overloaded, "already 4 models are inspected")}, 503, `already 4 models are inspected`},
	} {
		base := serve(t, c.f)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/inspect", strings.NewReader(`{"dir": "/models/x", "command": ["python", "model.py"]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/x-ndjson")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("got %d %q, %v\nwant %d %q", res.StatusCode, body, err, c.code, c.want)
		}
		c.f.mu.Lock()
		if c.f.dir != "/models/x" || !slices.Equal(c.f.command, []string{"python", "model.py"}) {
			t.Errorf("Inspect was called with %q, %q", c.f.dir, c.f.command)
		}
		c.f.mu.Unlock()
	}
}

// A line reaches a follower before the next one is written, and Logs ends when the follower disconnects.
func TestFollow(t *testing.T) {
	f := &fakeControl{lines: make(chan api.LogLine)}
	ended := make(chan error, 1)
	base := serve(t, endOfLogs{f, ended})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	res := fetch(t, ctx, base+"/v1/models/digits-svm/logs?follow=true&lines=1", "application/x-ndjson")
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for i, text := range []string{"line", "first", "second"} {
		if i > 0 {
			f.lines <- api.LogLine{Time: testTime, Version: "1", Replica: 1, Stream: "stdout", Text: text}
		}
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		var line api.LogLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Text != text {
			t.Errorf("got %q, %v; want %q", lines.Bytes(), err, text)
		}
	}
	leave()
	if err := <-ended; err != nil {
		t.Errorf("Logs ended with %v, want nil because its context has ended", err)
	}
}

// endOfLogs reports how each call of Logs ended.
type endOfLogs struct {
	*fakeControl
	ended chan error
}

func (e endOfLogs) Logs(ctx context.Context, q api.LogQuery, emit func(api.LogLine) error) error {
	err := e.fakeControl.Logs(ctx, q, emit)
	e.ended <- err
	return err
}

func TestFollowersAreBounded(t *testing.T) {
	f := &fakeControl{lines: make(chan api.LogLine)}
	base := serve(t, f)
	var open []*http.Response
	for range MaxFollowers {
		// The first line has arrived, so the follower is counted.
		open = append(open, fetch(t, t.Context(), base+"/v1/models/digits-svm/logs?follow&lines=1", ""))
	}
	res := fetch(t, t.Context(), base+"/v1/models/digits-svm/logs?follow", "")
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != 503 || !strings.Contains(string(body), "already 32 connections follow logs") {
		t.Errorf("got %d %s, %v", res.StatusCode, body, err)
	}
	close(f.lines)
	for _, res := range open {
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		res.Body.Close()
	}
	res = fetch(t, t.Context(), base+"/v1/models/digits-svm/logs?follow", "")
	if res.StatusCode != 200 {
		t.Errorf("got %d after the others were closed, want 200", res.StatusCode)
	}
	res.Body.Close()
}
