package http

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// send writes a request with exactly these headers and reads the answer.
func (f *fixture) send(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	c, r := f.raw()
	defer c.Close()
	return sendOn(f.t, c, r, method, path, body, headers...)
}

func sendOn(t *testing.T, c io.Writer, r *bufio.Reader, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\n%s\r\nContent-Length: %d\r\n\r\n%s", method, path, strings.Join(headers, "\r\n"), len(body), body)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func allowedHosts(t *testing.T, hosts ...string) func(*fixture) {
	t.Helper()
	parsed, err := browser.ParseHosts(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return func(f *fixture) { f.hosts = parsed }
}

const (
	fourInputs = `{"input":[1,2,3,4]}`
	inferFour  = `{"inputs":[{"name":"input","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}`
)

// TestForeignPages: programs and proxies are served whatever Host they name. A page is served if it is of the host that it
// names, and that host is the gateway's; another page only reads what it is not shown.
func TestForeignPages(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, learns, allowedHosts(t, "*.proxy.example"))
	local, proxy := "Host: "+f.addr, "Host: app.proxy.example"
	const evil, cross = "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"
	for _, c := range []struct {
		what    string
		headers []string
		post    int // status of requests that ask, or teach
		get     int
		says    string // in a 403
	}{
		{"a program", []string{local}, 200, 200, ""},
		{"a program by another name", []string{"Host: evil.example"}, 200, 200, ""},
		{"an address line", []string{local, "Sec-Fetch-Site: none"}, 200, 200, ""},
		{"a page of the gateway's own origin", []string{local, "Origin: http://" + f.addr, "Sec-Fetch-Site: same-origin"}, 200, 200, ""},
		{"a page behind an allowed proxy", []string{proxy, "Origin: https://app.proxy.example"}, 200, 200, ""},
		{"a page of another origin", []string{local, evil, cross}, 403, 200, "https://evil.example"},
		{"a page of another port", []string{local, "Origin: http://127.0.0.1:1"}, 403, 200, "http://127.0.0.1:1"},
		{"a sandboxed page", []string{local, "Origin: null"}, 403, 200, "null"},
		{"a page of another site, without Origin", []string{local, cross}, 403, 200, "another origin"},
		{"a page of a sibling site, without Origin", []string{local, "Sec-Fetch-Site: same-site"}, 403, 200, "another origin"},
		{"a page that rebinds its name", []string{"Host: evil.example", "Origin: http://evil.example"}, 403, 403, "--allowed-hosts"},
		{"a page that rebinds its name to a port", []string{"Host: evil.example:1337", "Origin: http://evil.example:1337"}, 403, 403, "--allowed-hosts"},
		{"a page of an address that is not this one", []string{"Host: 10.0.0.5", "Origin: http://10.0.0.5"}, 403, 403, "--allowed-hosts"},
		{"a page of another origin behind the proxy", []string{proxy, evil}, 403, 200, "https://evil.example"},
		{"two origins", []string{local, "Origin: http://" + f.addr, evil}, 403, 403, "2 Origin"},
	} {
		for _, r := range []struct {
			method, path, body string
			want               int
		}{
			{"POST", "/f/predict", fourInputs, c.post}, {"POST", "/f/feedback", `{"query_id":1,"loss":1}`, c.post}, {"POST", "/f/update", `{"query_id":1,"loss":1}`, c.post},
			{"POST", "/v2/models/m/infer", inferFour, c.post}, {"GET", "/v2/models/m", "", c.get}, {"GET", "/healthz", "", c.get}, {"GET", "/readyz", "", c.get},
		} {
			resp, body := f.send(r.method, r.path, r.body, append([]string{"Content-Type: application/json"}, c.headers...)...)
			got := resp.StatusCode
			if strings.HasSuffix(r.path, "feedback") || strings.HasSuffix(r.path, "update") {
				if got == 404 && strings.Contains(body, "no such query") || got == 410 { // nothing is known of query 1
					got = 200
				}
			}
			if got != r.want {
				t.Errorf("%s: %s %s: %d %s, want %d", c.what, r.method, r.path, resp.StatusCode, body, r.want)
				continue
			}
			if got == 403 && (!strings.Contains(body, c.says) || strings.HasPrefix(r.path, "/v2/") == strings.Contains(body, `"cause":`) || resp.Header.Get("Content-Type") != "application/json") {
				t.Errorf("%s: %s %s says %s, want %q in the dialect's shape", c.what, r.method, r.path, body, c.says)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %s %s is shown to the page", c.what, r.method, r.path)
			}
		}
	}
}

// TestPagesOfOtherAddresses: beyond loopback an address is the gateway's own, a name is not.
func TestPagesOfOtherAddresses(t *testing.T) {
	s := &Server{}
	for host, want := range map[string]bool{"10.0.0.5:1337": true, "[2001:db8::1]:1337": true, "localhost": true, "models.example": false} {
		if got := s.knownHost(host); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	s.loopback = true
	if s.knownHost("10.0.0.5") || !s.knownHost("127.0.0.1:1337") {
		t.Error("on loopback only loopback addresses are the gateway's")
	}
}

func withCORS(c *api.CORSSpec) func(*fixture) { return func(f *fixture) { f.fn.CORS = c } }

// learns gives the function what feedback needs.
func learns(f *fixture) { f.fn.Learning, f.fn.Losses = new(obs.Learning), make([]obs.Loss, 1) }

// pageFields are the answer's fields that are for browsers.
func pageFields(h http.Header) map[string]string {
	got := map[string]string{}
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			got[name] = strings.Join(values, " | ")
		}
	}
	return got
}

// TestCORS: a page whose origin the function lists is served whatever Host it names, and is shown answers and errors,
// whichever goroutine writes them. Other functions and models are not open to it.
func TestCORS(t *testing.T) {
	const exposed = "Retry-After, X-Request-Id, Traceparent, Xebec-Query-Id, Xebec-Default, Xebec-Default-Explanation, Xebec-Confidence, Xebec-Models, Xebec-Late, Xebec-Failed, Xebec-Dropped"
	named := &api.CORSSpec{Origins: []string{"https://app.example", "http://localhost:3000"}, MaxAge: time.Minute}
	secret := &api.CORSSpec{Origins: []string{"https://app.example"}, Credentials: true, MaxAge: time.Minute}
	every := &api.CORSSpec{Origins: []string{"*"}, MaxAge: time.Minute}
	for _, c := range []struct {
		cors   *api.CORSSpec
		origin string
		want   map[string]string // nil: refused
	}{
		{named, "https://app.example", map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Vary": "Origin", "Access-Control-Expose-Headers": exposed}},
		{named, "http://localhost:3000", map[string]string{"Access-Control-Allow-Origin": "http://localhost:3000", "Vary": "Origin", "Access-Control-Expose-Headers": exposed}},
		{secret, "https://app.example", map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Credentials": "true", "Vary": "Origin", "Access-Control-Expose-Headers": exposed}},
		{every, "https://anyone.example", map[string]string{"Access-Control-Allow-Origin": "*", "Vary": "Origin", "Access-Control-Expose-Headers": exposed}},
		{every, "null", map[string]string{"Access-Control-Allow-Origin": "*", "Vary": "Origin", "Access-Control-Expose-Headers": exposed}},
		{named, "https://evil.example", nil}, {secret, "https://app.example:8443", nil}, {nil, "https://app.example", nil},
		{named, "http://app.example", nil}, {named, "http://localhost", nil}, {named, "https://localhost:3000", nil}, {named, "https://APP.example", nil},
		{named, "https://app.example.evil.example", nil}, {named, "https://evil.example#https://app.example", nil}, {named, "https://app.example/", nil},
		{named, "https://app.example:443", nil}, {named, "null", nil}, {secret, "null", nil},
	} {
		for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
			f := serve(t, querytest.Floats4, querytest.Sum, learns, withCORS(c.cors), func(f *fixture) { f.reply = reply })
			page := []string{"Origin: " + c.origin, "Sec-Fetch-Site: cross-site", "Content-Type: application/json"}
			conn, r := f.raw()
			for _, q := range []struct {
				path, body string
				status     int
			}{
				{"/f/predict", fourInputs, 200}, {"/f/predict", `{"input":"wrong"}`, 400}, {"/f/predict", `{`, 400}, {"/f/feedback", `{}`, 400}, {"/f/predict", fourInputs, 200},
			} {
				for _, host := range []string{"Host: " + f.addr, "Host: api.example"} {
					resp, body := sendOn(t, conn, r, "POST", q.path, q.body, append([]string{host}, page...)...)
					if c.want == nil {
						q.status = 403
					}
					want := c.want
					if want == nil {
						want = map[string]string{"Vary": "Origin"}
					}
					if diff := cmp.Diff(want, pageFields(resp.Header)); diff != "" || resp.StatusCode != q.status {
						t.Errorf("%+v, %s, %s %s: %d %s (-want +got):\n%s", c.cors, c.origin, host, q.path, resp.StatusCode, body, diff)
					}
				}
			}
			// The next request of the connection is a program's. Its answer has nothing for browsers.
			if resp, _ := sendOn(t, conn, r, "POST", "/f/predict", fourInputs, "Host: x", "Content-Type: application/json"); resp.StatusCode != 200 || len(pageFields(resp.Header)) > 0 {
				t.Errorf("a program gets %d with %v", resp.StatusCode, pageFields(resp.Header))
			}
			for _, path := range []string{"/g/predict", "/v2/models/m/infer"} {
				if resp, body := sendOn(t, conn, r, "POST", path, inferFour, append([]string{"Host: " + f.addr}, page...)...); resp.StatusCode != 403 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s: %d %s", path, resp.StatusCode, body)
				}
			}
		}
	}
}

// TestCORSOfBodiesThatAreNotDecoded: a page is judged before its body is decoded, and is shown why a body was not.
func TestCORSOfBodiesThatAreNotDecoded(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, withCORS(&api.CORSSpec{Origins: []string{"https://app.example"}}))
	for origin, want := range map[string]int{"https://app.example": 415, "https://evil.example": 403} {
		resp, body := f.send("POST", "/f/predict", "x", "Host: x", "Content-Encoding: unknown", "Origin: "+origin)
		shown := resp.Header.Get("Access-Control-Allow-Origin") == origin
		if resp.StatusCode != want || shown != (want == 415) || resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %s %v, want %d", origin, resp.StatusCode, body, resp.Header, want)
		}
	}
}

// TestCORSOfAnAnswerThatIsPending: the fields of a page's answer are its own, even if a program's request is already read.
func TestCORSOfAnAnswerThatIsPending(t *testing.T) {
	items := make(chan *scheduler.Item, 2)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it }, withCORS(&api.CORSSpec{Origins: []string{"https://app.example"}}))
	c, r := f.raw()
	const raw = "Content-Type: application/octet-stream\r\n"
	io.WriteString(c, request("/f/predict", "page", raw, "Origin: https://app.example\r\n")+request("/f/predict", "program", raw))
	for _, want := range []string{"https://app.example", ""} {
		querytest.End(<-items, api.OK, []byte("x"))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPreflight(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, withCORS(&api.CORSSpec{Origins: []string{"https://app.example"}, Credentials: true, Headers: []string{"X-Tenant"}, MaxAge: 90 * time.Second}))
	allowed := map[string]string{
		"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": "POST",
		"Access-Control-Allow-Headers": "Content-Type, Content-Encoding, Xebec-Context, Xebec-Slo-Ms, X-Request-Id, Traceparent, Tracestate, X-Tenant",
		"Access-Control-Max-Age":       "90", "Vary": "Origin",
	}
	const asks = "Access-Control-Request-Method: POST"
	for _, c := range []struct {
		path    string
		headers []string
		status  int
		want    map[string]string
	}{
		{"/f/predict", []string{"Origin: https://app.example", asks, "Access-Control-Request-Headers: content-type,x-tenant"}, 204, allowed},
		{"/f/feedback", []string{"Origin: https://app.example", asks, "Sec-Fetch-Site: cross-site"}, 204, allowed},
		{"/f/update?x=1", []string{"Origin: https://app.example", asks}, 204, allowed},
		{"/f/predict", []string{"Origin: https://evil.example", asks}, 403, map[string]string{"Vary": "Origin"}},
		{"/g/predict", []string{"Origin: https://app.example", asks}, 403, map[string]string{"Vary": "Origin"}},
	} {
		resp, body := f.send("OPTIONS", c.path, "", append([]string{"Host: api.example"}, c.headers...)...)
		if diff := cmp.Diff(c.want, pageFields(resp.Header)); diff != "" || resp.StatusCode != c.status || (c.status == 204) != (body == "") {
			t.Errorf("%s %q: %d %s (-want +got):\n%s", c.path, c.headers, resp.StatusCode, body, diff)
		}
	}
	// Models have no pages: the preflight is answered like any OPTIONS, and allows nothing.
	for _, path := range []string{"/v2/models/m/infer", "/f/predict/x", "/healthz"} {
		if resp, _ := f.send("OPTIONS", path, "", "Host: "+f.addr, "Origin: https://app.example", asks); len(pageFields(resp.Header)) > 0 {
			t.Errorf("%s allows %v", path, pageFields(resp.Header))
		}
	}
}

// BenchmarkGuard is what a program's request costs before it is decoded: its header is read for names, codings and pages.
func BenchmarkGuard(b *testing.B) {
	s, x, c := &Server{}, new(exchange), app.NewContext(0)
	c.Request.SetRequestURI("/f/predict")
	for name, value := range map[string]string{"Host": "x", "User-Agent": "test", "Accept": "*/*", "Accept-Encoding": "gzip", "Content-Type": "application/json", "X-Request-Id": "1"} {
		c.Request.Header.Set(name, value)
	}
	b.ReportAllocs()
	for b.Loop() {
		x.about.read(&c.Request.Header)
		s.guard(c, x)
	}
}
