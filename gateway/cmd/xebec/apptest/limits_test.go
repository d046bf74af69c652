package apptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// numbers is a model of four floats and its function. In these tests no query may reach its worker.
func numbers(name string) string {
	spec := strings.NewReplacer("dtype: bytes, shape: []", "dtype: float32, shape: [4]", "markers", "echo")
	return spec.Replace(testModel(name, nil)) + function(name, name, "slo: 60s")
}

// Invalid requests are refused in the dialect's own format, with a message that says what is wrong, and reach no worker.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, numbers("m")), "--max-body", "64KiB")
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	good := `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`
	for _, c := range []struct {
		what, path, contentType, body string
		status                        int
		says                          string
	}{
		{"no JSON", "/m/predict", "application/json", `{"input":[1,2,`, 400, "Json error"},
		{"empty", "/m/predict", "application/json", ``, 400, "Json error"},
		{"not UTF-8", "/m/predict", "application/json", "{\"input\":\"\xff\"}", 400, ""},
		{"trailing text", "/m/predict", "application/json", `{"input":[1,2,3,4]} x`, 400, ""},
		{"no input", "/m/predict", "application/json", `{}`, 400, "input"},
		{"wrong type", "/m/predict", "application/json", `{"input":[1,2,"three",4]}`, 400, "input[2]"},
		{"too short", "/m/predict", "application/json", `{"input":[1,2,3]}`, 400, "input"},
		{"too long", "/m/predict", "application/json", `{"input":[1,2,3,4,5]}`, 400, "input"},
		{"one of a batch", "/m/predict", "application/json", `{"input_batch":[[1,2,3,4],[1,2,"x",4]]}`, 400, "input_batch[1][2]"},
		{"input twice", "/m/predict", "application/json", `{"input":[1,2,3,4],"input":[1,2,3,4]}`, 400, "input"},
		{"deep", "/m/predict", "application/json", `{"input":` + deep + `}`, 400, ""},
		{"deep, unasked for", "/m/predict", "application/json", `{"x":` + deep + `,"input":[1,2,3,4]}`, 400, ""},
		{"raw of a wrong length", "/m/predict", "application/octet-stream", "12345", 400, "16"},
		{"unknown function", "/nobody/predict", "application/json", `{"input":[1,2,3,4]}`, 404, "nobody"},
		{"unknown route", "/m/explain", "application/json", `{}`, 404, "/m/explain"},
		{"unknown model", "/v2/models/nobody/infer", "application/json", good, 404, "nobody"},
		{"unknown version", "/v2/models/m/versions/9/infer", "application/json", good, 404, "m@9"},
		{"OIP without inputs", "/v2/models/m/infer", "application/json", `{}`, 400, "input"},
		{"OIP, no JSON", "/v2/models/m/infer", "application/json", `{"inputs":[`, 400, ""},
		{"OIP, wrong tensor", "/v2/models/m/infer", "application/json", strings.Replace(good, `"input"`, `"inptu"`, 1), 400, "inptu"},
		{"OIP, wrong type", "/v2/models/m/infer", "application/json", strings.Replace(good, "FP32", "INT8", 1), 400, "INT8"},
		{"OIP, wrong shape", "/v2/models/m/infer", "application/json", strings.Replace(good, "[1,4]", "[1,5]", 1), 400, "input"},
		{"OIP, absurd shape", "/v2/models/m/infer", "application/json", strings.Replace(good, "[1,4]", "[9223372036854775807,4]", 1), 400, ""},
		{"OIP, deep", "/v2/models/m/infer", "application/json", `{"inputs":` + deep + `}`, 400, ""},
	} {
		a, err := g.post(bounded(t), c.path, c.contentType, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if a.Status != c.status || !strings.Contains(string(a.Body), c.says) || a.Error == "" {
			t.Errorf("%s: answered by %v: expected %d and %q", c.what, a, c.status, c.says)
		}
	}
	// A body over the limit is refused by its announced length, and the connection is closed. A client that sends the
	// body too may see only the close, so this one sends no more.
	for _, contentType := range []string{"application/json", "application/octet-stream"} {
		head := fmt.Sprintf("POST /m/predict HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, 65<<10)
		if status, closed := g.exchange(head); status != 413 || !closed {
			t.Errorf("%s over the limit: status %d, closed %v: expected 413 and the end of the connection", contentType, status, closed)
		}
	}
	for _, c := range [][2]string{{"Xebec-Slo-Ms", "soon"}, {"Xebec-Slo-Ms", "-1"}, {"Xebec-Slo-Ms", "NaN"}, {"Xebec-Slo-Ms", "1e300"}} {
		if a := g.json("/m/predict", `{"input":[1,2,3,4]}`, c[0], c[1]); a.Status != 400 || !strings.Contains(a.Cause, c[0]) {
			t.Errorf("%s: %s was answered by %v: expected 400", c[0], c[1], a)
		}
	}
	nothingReached(g, "m")
	if a := g.json("/m/predict", `{"input":[1,2,3,4]}`); !a.predicted() || string(a.Output) != "[1,2,3,4]" {
		t.Errorf("a good request was answered by %v", a)
	}
}

// nothingReached checks that neither the model's queue nor its worker saw a query.
func nothingReached(g *gateway, name string) {
	g.t.Helper()
	for sample, n := range g.metrics().samples {
		if n > 0 && strings.HasPrefix(sample, "xebec_model_queries_total{") && strings.Contains(sample, fmt.Sprintf("model=%q", name)) {
			g.t.Errorf("%s is %v: expected 0, because no query was accepted", sample, n)
		}
	}
	m := g.model(name)
	if m.Replicas[0].Queries != 0 || restarts(m) != 0 {
		g.t.Errorf("the worker of %s saw %d queries: expected none", name, m.Replicas[0].Queries)
	}
}

// dial opens a connection to the function port, for requests that an HTTP client would not send.
func (g *gateway) dial() net.Conn {
	g.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(bounded(g.t), "tcp", g.functions)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	deadline, _ := bounded(g.t).Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// exchange sends raw bytes. It returns the status of the first answer (0 for none) and whether the connection was then
// closed.
func (g *gateway) exchange(text string) (status int, closed bool) {
	g.t.Helper()
	c := g.dial()
	// The gateway may close the connection before it has read everything: only the answer matters.
	_, _ = io.WriteString(c, text)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, true
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if !res.Close {
		return res.StatusCode, false
	}
	_, err = r.ReadByte()
	return res.StatusCode, err == io.EOF
}

// Requests with ambiguous framing or an endless head are refused, and their connections closed.
func TestAmbiguousAndEndlessRequests(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, numbers("m")))
	const line, host, body = "POST /m/predict HTTP/1.1\r\n", "Host: x\r\nContent-Type: application/json\r\n", `{"input":[1,2,3,4]}`
	smuggled := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for what, request := range map[string]string{
		"both":                  line + host + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(smuggled)) + smuggled,
		"both, the other way":   line + host + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n", len(smuggled)) + smuggled,
		"both, in capitals":     line + host + fmt.Sprintf("CONTENT-LENGTH: %d\r\nTRANSFER-ENCODING: chunked\r\n\r\n", len(smuggled)) + smuggled,
		"two lengths":           line + host + fmt.Sprintf("Content-Length: %d\r\nContent-Length: 3\r\n\r\n", len(body)) + body,
		"two lengths, the same": line + host + fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(body), len(body)) + body,
		"a negative length":     line + host + "Content-Length: -1\r\n\r\n" + body,
		"no HTTP":               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
	} {
		if status, closed := g.exchange(request); status/100 == 2 || !closed {
			t.Errorf("%s: status %d, closed %v: expected a refusal and the end of the connection", what, status, closed)
		}
	}
	for what, request := range map[string]string{
		"one huge header":   line + host + "X-Huge: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"a million headers": line + host + strings.Repeat("X-Many: yes\r\n", 1<<17) + "\r\n",
		"a huge path":       "POST /" + strings.Repeat("m", 1<<20) + "/predict HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}",
	} {
		if status, _ := g.exchange(request); status/100 == 2 {
			t.Errorf("%s: status %d: expected a refusal", what, status)
		}
	}
	nothingReached(g, "m")
	if a := g.json("/m/predict", body); !a.predicted() {
		t.Errorf("a good request was answered by %v", a)
	}
}

// Clients that send half a request, or do not read their answers, block no other client and are disconnected in the end.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, numbers("m"), testModel("big", nil), function("big", "big", "slo: 60s")))
	const half = "POST /m/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"input\":[1,"
	var slow []net.Conn
	for i := range 100 {
		c := g.dial()
		if _, err := io.WriteString(c, half[:len(half)-i%90]); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	// An answer of 60 MiB does not fit into the socket buffer of a client that does not read.
	deaf := g.dial()
	const input = "big:45000000"
	if _, err := fmt.Fprintf(deaf, "POST /big/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(input), input); err != nil {
		t.Fatal(err)
	}
	g.awaitModel("big", "the query to be evaluated", func(m api.ModelStatus) bool { return m.Queries["ok"] == 1 })
	nothingReached(g, "m")
	for range 50 {
		if a := g.json("/m/predict", `{"input":[1,2,3,4]}`); !a.predicted() {
			t.Fatalf("beside slow clients a request was answered by %v", a)
		}
	}
	for i, c := range slow {
		// Whatever the answer is, the connection must end.
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Fatalf("slow client %d is still connected", i)
		}
	}
	g.await("the gateway to disconnect the client that does not read", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/gateway")
		var s api.GatewayStatus
		if err := json.Unmarshal([]byte(body), &s); status != 200 || err != nil {
			return false, body
		}
		return s.Inflight == 0, body
	})
	n, err := io.Copy(io.Discard, deaf)
	if isTimeout(err) || n >= 60_000_000 {
		t.Errorf("the client that did not read got %d bytes (%v): expected to be disconnected before the answer's end", n, err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// Queries of clients that have left are removed from the queue without evaluation, and counted.
func TestClientsThatLeaveAreForgotten(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "batching: {policy: none}", "timeout: 10m", "cache: off"), function("f", "m", "slo: 60s")))
	release := occupy(g, "f", "m")
	const clients = 20
	leave, cancel := context.WithCancel(bounded(t))
	gone := make(chan error, clients)
	for range clients {
		go func() {
			_, err := g.post(leave, "/f/predict", "text/plain", []byte("nobody waits for this"))
			gone <- err
		}()
	}
	g.awaitMetric(clients, "queue_length", "m")
	cancel()
	for range clients {
		if err := <-gone; err == nil {
			t.Error("a client that left got an answer")
		}
	}
	g.awaitMetric(0, "queue_length", "m")
	g.awaitMetric(clients, "model_queries_total", "m", "cancelled")
	release()
	if m := g.model("m"); m.Replicas[0].Queries != 2 {
		t.Errorf("the worker evaluated %d queries: expected the 2 whose clients waited", m.Replicas[0].Queries)
	}
	g.await("the requests counted as cancelled", func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		n := m.samples[`xebec_function_requests_total{code="cancelled",function="f"}`]
		return n == clients, fmt.Sprint(n)
	})
}
