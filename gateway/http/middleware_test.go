package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/coding"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func gzipped(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, body)
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

// echo answers with the input.
func echo(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) }

// TestBodiesAreDecoded: a dialect sees the body without its codings, copied or borrowed, whichever goroutine answers.
func TestBodiesAreDecoded(t *testing.T) {
	for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
		f := serve(t, querytest.Bytes, echo, func(f *fixture) { f.reply = reply })
		large := strings.Repeat("0123456789abcdef", 8<<10) // borrowed
		for _, text := range []string{"hello", large} {
			for range 2 {
				status, _, body := f.post("/f/predict", "text/plain", gzipped(t, text), "Content-Encoding", "gzip")
				var m struct{ Output struct{ B64 []byte } }
				if err := json.Unmarshal([]byte(body), &m); err != nil || status != 200 || string(m.Output.B64) != text {
					t.Errorf("%s: %d bytes are answered %d %.200s", reply, len(text), status, body)
				}
			}
		}
		twice := gzipped(t, gzipped(t, `{"input":"aGk="}`))
		if status, _, body := f.post("/f/predict", "application/json", twice, "Content-Encoding", "gzip, gzip"); status != 200 || !strings.Contains(body, `"output":{"b64":"YUdrPQ=="}`) {
			t.Errorf("two codings are answered %d %s", status, body)
		}
		c, r := f.raw() // the codings in two fields
		io.WriteString(c, request("/f/predict", twice, "Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\n"))
		if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, `"output":{"b64":"YUdrPQ=="}`) {
			t.Errorf("two fields are answered %d %s", status, body)
		}
	}
}

// TestBodiesThatAreNotDecoded: the error has the dialect's format, and the connection goes on.
func TestBodiesThatAreNotDecoded(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { t.Error("it reached the scheduler"); echo(it) })
	for _, c := range []struct {
		coding, body string
		status       int
		code         string
	}{
		{"gzip", "not gzip", 400, "invalid_argument"},
		{"compress", "x", 415, "unsupported"},
		{"gzip", gzipped(t, strings.Repeat("\x00", 5<<20)), 413, "too_large"},
		{"gzip, gzip, gzip", "x", 415, "unsupported"},
	} {
		for path, want := range map[string]string{"/f/predict": `{"error":"Query processing error","cause":"`, "/v2/models/m/infer": `{"error":"`} {
			status, header, body := f.post(path, "text/plain", c.body, "Content-Encoding", c.coding)
			if status != c.status || !strings.HasPrefix(body, want) || header.Get("X-Request-Id") == "" || path == "/f/predict" && !strings.Contains(body, c.code) {
				t.Errorf("%s with %q: %d %s, want %d %s", path, c.coding, status, body, c.status, c.code)
			}
			if offers := header.Get("Accept-Encoding"); (status == 415) != (offers == coding.Supported) {
				t.Errorf("%s with %q: Accept-Encoding %q", path, c.coding, offers)
			}
		}
	}
}

// TestDecodedBodiesHaveABudget: it is taken while a body is decoded and as long as a query has it, and given back then.
func TestDecodedBodiesHaveABudget(t *testing.T) {
	const all = 3 << 20
	b := NewBodies(all)
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it }, func(f *fixture) { f.bodies = b })
	c, r := f.raw()
	body := gzipped(t, strings.Repeat("\x00", 700<<10)) // borrowed by the query
	io.WriteString(c, request("/f/predict", body, "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n"))
	it := <-items
	if used := b.Used(); used != 700<<10+int64(len(body)) { // decoded and as it came
		t.Errorf("%d bytes are used while the query has its body", used)
	}
	if !b.Reserve(2 << 20) { // another port's bodies
		t.Fatal("the budget is gone")
	}
	status, header, text := f.post("/f/predict", "text/plain", body, "Content-Encoding", "gzip")
	if status != 503 || header.Get("Retry-After") != "1" || !strings.Contains(text, `"code":"overloaded"`) {
		t.Errorf("without room: %d %s", status, text)
	}
	b.Return(2 << 20)
	querytest.End(it, api.OK, []byte("ok"))
	if status, text := readAnswer(t, r); status != 200 {
		t.Errorf("answered %d %s", status, text)
	}
	io.WriteString(c, request("/none/predict", gzipped(t, "x"), "Content-Encoding: gzip\r\n"))
	readAnswer(t, r)
	if status, _, _ := f.post("/f/predict", "text/plain", "broken", "Content-Encoding", "gzip"); status != 400 {
		t.Errorf("a broken body: %d", status)
	}
	f.shutdown(t.Context()) // handlers have ended
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used in the end", used)
	}
}

// answerOf sends a request and decodes nothing.
func (f *fixture) answerOf(method, path, body string, fields ...string) (*http.Response, []byte) {
	f.t.Helper()
	req, err := http.NewRequest(method, "http://"+f.addr+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, out
}

// TestAnswersAreCompressed: large ones, if the client asks, whichever goroutine writes them.
func TestAnswersAreCompressed(t *testing.T) {
	large, small := strings.Repeat("xebec ", 100_000), "xebec"
	for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
		f := serve(t, querytest.Bytes, echo, func(f *fixture) { f.reply = reply })
		for _, c := range []struct {
			text, accept, coding, vary string
		}{
			{large, "gzip, deflate, br, zstd", "zstd", "Accept-Encoding"}, {large, "gzip", "gzip", "Accept-Encoding"}, {large, "zstd;q=0.1, gzip;q=0.2", "gzip", "Accept-Encoding"},
			{large, "br", "", "Accept-Encoding"}, {large, "gzip;q=0", "", "Accept-Encoding"}, {large, "", "", "Accept-Encoding"}, {small, "gzip", "", ""},
		} {
			fields := []string{"Content-Type", "text/plain"}
			if c.accept != "" {
				fields = append(fields, "Accept-Encoding", c.accept)
			}
			resp, body := f.answerOf("POST", "/f/predict", c.text, fields...)
			if got := resp.Header.Get("Content-Encoding"); got != c.coding || resp.Header.Get("Vary") != c.vary || resp.ContentLength != int64(len(body)) {
				t.Errorf("%s, %q: Content-Encoding %q, Vary %q, length %d of %d", reply, c.accept, got, resp.Header.Get("Vary"), resp.ContentLength, len(body))
			}
			var m struct{ Output struct{ B64 []byte } }
			if err := json.Unmarshal(decoded(t, c.coding, body), &m); err != nil || string(m.Output.B64) != c.text {
				t.Errorf("%s, %q: the answer does not come back: %v", reply, c.accept, err)
			}
		}
		resp, _ := f.answerOf("POST", "/f/predict", large, "Content-Type", "text/plain", "Accept-Encoding", "gzip", "Accept-Encoding", "zstd")
		if got := resp.Header.Get("Content-Encoding"); got != "zstd" {
			t.Errorf("two Accept-Encoding fields: %q", got)
		}
	}
}

func decoded(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var out []byte
	var err error
	switch coding {
	case "gzip":
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			out, err = io.ReadAll(r)
		}
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil); err == nil {
			defer d.Close()
			out, err = d.DecodeAll(body, nil)
		}
	default:
		return body
	}
	if err != nil {
		t.Fatalf("%s: %v", coding, err)
	}
	return out
}

// TestCompressedAnswersKeepTheirOrder: pipelined requests are answered in order although a goroutine compresses.
func TestCompressedAnswersKeepTheirOrder(t *testing.T) {
	f := serve(t, querytest.Bytes, echo)
	c, r := f.raw()
	var all strings.Builder
	for i := range 20 {
		text := fmt.Sprint(i)
		if i%2 == 0 {
			text = strings.Repeat(text+" ", 5000)
		}
		all.WriteString(request("/f/predict", text, "Content-Type: text/plain\r\nAccept-Encoding: gzip\r\n"))
	}
	go io.WriteString(c, all.String())
	for i := range 20 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		var m struct{ Output struct{ B64 []byte } }
		if err := json.Unmarshal(decoded(t, resp.Header.Get("Content-Encoding"), body), &m); err != nil || !strings.HasPrefix(string(m.Output.B64), fmt.Sprint(i)) {
			t.Fatalf("answer %d is %.20q: %v", i, m.Output.B64, err)
		}
	}
}

// TestHead: HEAD is answered as GET, without the body.
func TestHead(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	c, r := f.raw()
	for _, path := range []string{"/healthz", "/readyz", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m", "/v2/models/m/ready", "/v2/models/m/versions/1", "/v2/models/none"} {
		var heads []string
		for _, method := range []string{"GET", "HEAD"} {
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: one\r\n\r\n", method, path)
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || method == "HEAD" && len(body) > 0 {
				t.Errorf("%s %s has a body of %d bytes: %v", method, path, len(body), err)
			}
			resp.Header.Del("Date")
			heads = append(heads, fmt.Sprint(resp.Status, resp.Header, resp.ContentLength))
		}
		if heads[0] != heads[1] {
			t.Errorf("%s:\nGET  %s\nHEAD %s", path, heads[0], heads[1])
		}
	}
}

// TestMethods: OPTIONS and 405 say which methods a path has.
func TestMethods(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	for _, c := range []struct {
		method, path string
		status       int
		allow, body  string
	}{
		{"OPTIONS", "/f/predict", 204, "OPTIONS, POST", ""},
		{"OPTIONS", "/v2/models/m", 204, "GET, HEAD, OPTIONS", ""},
		{"OPTIONS", "/v2/models/m/versions/1/infer", 204, "OPTIONS, POST", ""},
		{"OPTIONS", "/nothing/nothing", 404, "", `{"error":"Query processing error"`},
		{"OPTIONS", "/f", 204, "GET, HEAD, OPTIONS", ""},
		{"POST", "/f", 405, "GET, HEAD, OPTIONS", `{"error":"Query processing error","cause":"POST is not a method of /f: expected GET, HEAD, OPTIONS; functions are called by POST /{function}/predict"`},
		{"POST", "/healthz", 405, "GET, HEAD, OPTIONS", `{"error":"Query processing error","cause":"POST is not a method of /healthz: expected GET, HEAD, OPTIONS","code":"unsupported","request_id":"`},
		{"GET", "/f/predict", 405, "OPTIONS, POST", `{"error":"Query processing error","cause":"GET is not a method of /f/predict: expected OPTIONS, POST","code":"unsupported","request_id":"`},
		{"HEAD", "/f/predict", 405, "OPTIONS, POST", ""},
		{"DELETE", "/v2/models/m/infer", 405, "OPTIONS, POST", `{"error":"DELETE is not a method of /v2/models/m/infer: expected OPTIONS, POST","code":"unsupported"}`},
		{"BREW", "/healthz", 405, "GET, HEAD, OPTIONS", `{"error":"Query processing error"`},
	} {
		resp, body := f.answerOf(c.method, c.path, "")
		if resp.StatusCode != c.status || resp.Header.Get("Allow") != c.allow || !strings.HasPrefix(string(body), c.body) || c.body == "" && len(body) > 0 {
			t.Errorf("%s %s: %d, Allow %q, %s: want %d, %q, %s", c.method, c.path, resp.StatusCode, resp.Header.Get("Allow"), body, c.status, c.allow, c.body)
		}
	}
}

// TestOptionsOfTheServer: the target * means the server, not a path (RFC 9110, section 9.3.7).
func TestOptionsOfTheServer(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	c, r := f.raw()
	io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 204 || resp.Header.Get("Allow") != "GET, HEAD, OPTIONS, POST" {
		t.Errorf("answered %+v: %v", resp, err)
	}
}

var madeID = regexp.MustCompile(`^[0-9a-f]{16}-[0-9a-f]{12}$`)

// TestRequestIDs: each answer has the client's X-Request-Id, or one that was made, and so have the native dialect's errors.
func TestRequestIDs(t *testing.T) {
	for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
		f := serve(t, querytest.Floats4, querytest.Sum, func(f *fixture) { f.reply = reply })
		const ok, wrong = `{"input":[1,2,3,4]}`, `{"input":[1]}`
		seen := map[string]bool{}
		for _, c := range []struct {
			given []string
			want  string // empty: one that was made
		}{
			{nil, ""}, {[]string{"mine-1"}, "mine-1"}, {[]string{`a"b\c`}, `a"b\c`}, {[]string{strings.Repeat("x", 128)}, strings.Repeat("x", 128)},
			{[]string{strings.Repeat("x", 129)}, ""}, {[]string{"a b"}, ""}, {[]string{"é"}, ""}, {[]string{"one", "two"}, ""}, {[]string{""}, ""},
		} {
			var fields []string
			for _, v := range c.given {
				fields = append(fields, "X-Request-Id", v)
			}
			for _, q := range []struct {
				method, path, body string
				status             int
			}{{"POST", "/f/predict", ok, 200}, {"POST", "/f/predict", wrong, 400}, {"POST", "/none/predict", ok, 404}, {"GET", "/f/predict", "", 405}, {"GET", "/none", "", 404}, {"GET", "/healthz", "", 200}} {
				resp, body := f.answerOf(q.method, q.path, q.body, fields...)
				id := resp.Header.Get("X-Request-Id")
				if resp.StatusCode != q.status || c.want != "" && id != c.want || c.want == "" && (!madeID.MatchString(id) || seen[id]) {
					t.Errorf("%s: %q to %s: %d with X-Request-Id %q, seen before: %v", reply, c.given, q.path, resp.StatusCode, id, seen[id])
				}
				seen[id] = true
				if m := decode(t, string(body)); q.status >= 400 && m["request_id"] != id {
					t.Errorf("%s: %q to %s: the error is %s, want request_id %q", reply, c.given, q.path, body, id)
				}
			}
		}
	}
}

// TestErrorsOfQueriesNameTheRequest: also an error that the goroutine of the last query renders.
func TestErrorsOfQueriesNameTheRequest(t *testing.T) {
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { querytest.End(it, api.ModelError) })
	_, _, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`, "X-Request-Id", "r7")
	if want := `{"error":"Query processing error","cause":"the model failed on this input","code":"model_error","request_id":"r7"}`; body != want {
		t.Errorf("answered %s, want %s", body, want)
	}
}

// TestTraceContexts: a valid trace context comes back, on answers of both kinds.
func TestTraceContexts(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	const parent, state = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=00f067aa0ba902b7"
	for _, c := range []struct {
		fields        []string
		parent, state string
	}{
		{nil, "", ""},
		{[]string{"traceparent", parent}, parent, ""},
		{[]string{"traceparent", parent, "tracestate", state}, parent, state},
		{[]string{"traceparent", parent, "tracestate", "a=1", "tracestate", "b=2"}, parent, "a=1,b=2"},
		{[]string{"tracestate", state}, "", ""},
		{[]string{"traceparent", "00-nonsense", "tracestate", state}, "", ""},
		{[]string{"traceparent", parent, "traceparent", parent}, "", ""},
		{[]string{"traceparent", parent, "tracestate", "a=" + strings.Repeat("x", 600)}, parent, ""},
	} {
		for _, path := range []string{"/f/predict", "/none/predict"} {
			resp, _ := f.answerOf("POST", path, `{"input":[1,2,3,4]}`, c.fields...)
			if got, list := resp.Header.Get("Traceparent"), resp.Header.Get("Tracestate"); got != c.parent || list != c.state {
				t.Errorf("%s with %q: %q, %q, want %q, %q", path, c.fields, got, list, c.parent, c.state)
			}
		}
	}
}

// TestNoPlainTextOfTheFramework: what Hertz itself would refuse in plain text has the dialect's format.
func TestNoPlainTextOfTheFramework(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	for _, head := range []string{"POST /f/predict HTTP/1.1\r\n", "GET /\x01 HTTP/1.1\r\nHost: x\r\n", "POST f/predict HTTP/1.1\r\nHost: x\r\n"} {
		c, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, head+"Connection: close\r\nContent-Length: 0\r\n\r\n")
		answer, _ := io.ReadAll(c)
		c.Close()
		if text := string(answer); strings.Contains(text, "text/plain") {
			t.Errorf("%q: %s", head, text)
		}
	}
}
