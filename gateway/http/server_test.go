package http

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/catalog"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/dialect/openai"
	"github.com/xebec-serving/xebec/gateway/dialect/tfserving"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func TestMain(m *testing.M) {
	// netpoll's pollers and Hertz's clock live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"))
}

// fixture is a server over a path with one function, "f".
type fixture struct {
	t    *testing.T
	p    *query.Path
	s    *Server
	lane *querytest.Lane
	addr string
	fn   *query.Function

	connections int // the limit, 0 for the default
	reply       ReplyMode
	bodies      *Bodies
	limits      func(*Limits)
	hosts       browser.Hosts
	tls         *tls.Config
	panicked    func(Panic)
	dialects    []dialect.Dialect // beside those of a gateway
	now         func() api.Nanos  // the path's clock
	lastWord    time.Duration     // 0: next to none
	lingers     time.Duration     // 0: as usual
	once        sync.Once
}

// shutdown stops the server, once.
func (f *fixture) shutdown(ctx context.Context) (err error) {
	f.once.Do(func() { err = f.s.Shutdown(ctx) })
	return err
}

// dialects are those of a gateway.
func dialects() []dialect.Dialect {
	return []dialect.Dialect{native.Dialect{}, oip.Dialect{Version: "test", Ready: ready, Repository: emptyRepository{}}, tfserving.Dialect{}, openai.Dialect{}, catalog.Dialect{Since: time.Unix(7, 0)}}
}

func ready() (bool, string) { return true, "" }

// emptyRepository has no models.
type emptyRepository struct{}

func (emptyRepository) Models(context.Context, string) ([]api.ModelStatus, error) { return nil, nil }
func (emptyRepository) Statistics(string) []api.ModelStatistics                   { return nil }
func (emptyRepository) SetLoaded(context.Context, string, string, bool) error     { return nil }

// serve starts a server with function "f" over model "m@1", whose queries go to submit.
func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item), change ...func(*fixture)) *fixture {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	f := &fixture{t: t, lane: &querytest.Lane{Submit: submit}, addr: ln.Addr().String(), now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }}
	m := query.NewModel(api.ModelID{Name: "m", Version: "1"}, sig, f.lane, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	f.fn = &query.Function{Name: "f", SLO: time.Minute, Candidates: []query.Candidate{{Model: m, Queue: 1}}, Stats: new(obs.Endpoint)}
	for _, c := range change {
		c(f)
	}
	f.p = query.New(query.Config{Now: f.now, MaxBatch: 8})
	f.p.Publish(&query.Table{Functions: map[string]*query.Function{"f": f.fn}, Models: map[string]*query.Model{"m": m}, Versions: map[api.ModelID]*query.Model{m.ID: m}})
	limits := DefaultLimits()
	limits.BodyBytes = 4 << 20
	if f.connections > 0 {
		limits.Connections = f.connections
	}
	if f.limits != nil {
		f.limits(&limits)
	}
	if f.s, err = New(Config{Path: f.p, Listener: ln, Limits: limits, Dialects: append(dialects(), f.dialects...), Ready: ready, Reply: f.reply, Panicked: f.panicked, Bodies: f.bodies, AllowedHosts: f.hosts, TLS: f.tls}); err != nil {
		t.Fatal(err)
	}
	f.s.edge.lingers = f.lingers
	f.s.lastWord = max(f.lastWord, time.Millisecond)
	go f.s.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := f.shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return f
}

func withDefault(v string) func(*fixture) { return func(f *fixture) { f.fn.Default = []byte(v) } }

func (f *fixture) post(path, contentType, body string, header ...string) (int, http.Header, string) {
	f.t.Helper()
	req, err := http.NewRequest("POST", "http://"+f.addr+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: false}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(out)
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return m
}

// TestPredict: an answer has a body, a content type and a date, whichever goroutine writes it.
func TestPredict(t *testing.T) {
	for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
		testPredict(t, serve(t, querytest.Floats4, querytest.Sum, func(f *fixture) { f.reply = reply }))
	}
}

func testPredict(t *testing.T, f *fixture) {
	t.Helper()
	status, header, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4.5]}`)
	m := decode(t, body)
	if status != 200 || m["output"] != 10.0 || m["default"] != false || m["confidence"] != 1.0 || fmt.Sprint(m["models"]) != "[m@1]" || m["query_id"] == nil {
		t.Errorf("answer %d %s", status, body)
	}
	if header.Get("Content-Type") != "application/json" || header.Get("Date") == "" {
		t.Errorf("headers %v", header)
	}
}

// raw opens a connection, for a test that writes its requests itself.
func (f *fixture) raw() (net.Conn, *bufio.Reader) {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c, bufio.NewReader(c)
}

func request(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, strings.Join(header, ""), len(body), body)
}

func readAnswer(t *testing.T, r *bufio.Reader) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestPipelinedRequestsAreAnsweredInOrderWithTheirOwnInputs(t *testing.T) {
	items := make(chan *scheduler.Item, 8)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it })
	c, r := f.raw()
	const raw = "Content-Type: application/octet-stream\r\n"
	io.WriteString(c, request("/f/predict", "first", raw)+request("/f/predict", "second", raw)+request("/g/predict", "third", raw))
	for _, want := range []string{"first", "second"} {
		it := <-items
		// Another connection's request reuses Hertz's buffers while this one is in the scheduler.
		c2, _ := f.raw()
		io.WriteString(c2, request("/g/predict", "XXXXXXXXXXXXXX", raw))
		if got := string(it.Inputs[0].Data); got != want {
			t.Fatalf("the scheduler has %q, want %q", got, want)
		}
		querytest.End(it, api.OK, []byte(want))
		_, body := readAnswer(t, r)
		var m struct{ Output struct{ B64 []byte } }
		if err := json.Unmarshal([]byte(body), &m); err != nil || string(m.Output.B64) != want {
			t.Fatalf("answer %s, want the echo of %q", body, want)
		}
	}
	if status, _ := readAnswer(t, r); status != 404 {
		t.Errorf("the third answer is %d, want 404 after the other two", status)
	}
}

func TestSlowReaderDelaysNoOtherClient(t *testing.T) {
	big := bytes.Repeat([]byte{7}, 3<<20)
	items := make(chan *scheduler.Item, 64)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it })
	slow, slowReader := f.raw()
	io.WriteString(slow, strings.Repeat(request("/f/predict", "big", "Content-Type: text/plain\r\n"), 4))
	other, otherReader := f.raw()
	pending := 3
	querytest.End(<-items, api.OK, big) // 4 MiB of base64 do not fit the socket: end must return all the same
	io.WriteString(other, request("/f/predict", "small", "Content-Type: text/plain\r\n"))
	for {
		it := <-items
		if string(it.Inputs[0].Data) == "small" {
			querytest.End(it, api.OK, []byte("small"))
			break
		}
		querytest.End(it, api.OK, big)
		pending--
	}
	if status, body := readAnswer(t, otherReader); status != 200 || !strings.Contains(body, "c21hbGw=") {
		t.Fatalf("the other client got %d %s", status, body)
	}
	var answered sync.WaitGroup
	answered.Add(1)
	go func() {
		defer answered.Done()
		for range pending {
			querytest.End(<-items, api.OK, big)
		}
	}()
	defer answered.Wait()
	for i := range 4 { // now the slow one reads, and gets everything
		_, body := readAnswer(t, slowReader)
		var m struct{ Output struct{ B64 []byte } }
		if err := json.Unmarshal([]byte(body), &m); err != nil || !bytes.Equal(m.Output.B64, big) {
			t.Fatalf("answer %d has %d bytes: %v", i, len(body), err)
		}
	}
}

func TestLargeRawBodyIsBorrowedUntilReleased(t *testing.T) {
	items := make(chan *scheduler.Item, 8)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it }, withDefault("null"))
	c, r := f.raw()
	first, second := strings.Repeat("a", 64<<10), strings.Repeat("b", 64<<10)
	io.WriteString(c, request("/f/predict", first, "Content-Type: text/plain\r\n")+request("/f/predict", second, "Content-Type: text/plain\r\n"))
	late := <-items
	late.Owner.Answered(late, api.DeadlineExceeded) // the caller has its default, the batch goes on
	if _, body := readAnswer(t, r); !strings.Contains(body, `"default":true`) {
		t.Fatalf("answer %s", body)
	}
	if string(late.Inputs[0].Data) != first {
		t.Fatal("the body was reused while the scheduler held it")
	}
	late.Owner.Released(late, api.OK)
	next := <-items
	if string(next.Inputs[0].Data) != second {
		t.Fatal("the second body is not the second one's")
	}
	querytest.End(next, api.OK, []byte("ok"))
	if _, body := readAnswer(t, r); !strings.Contains(body, "b2s=") {
		t.Fatalf("answer %s", body)
	}
}

func TestDisconnectCancelsQueries(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it }, func(f *fixture) { f.lane.Cancelled = make(chan uint64, 1) })
	c, _ := f.raw()
	io.WriteString(c, request("/f/predict", "x", "Content-Type: text/plain\r\n"))
	it := <-items
	c.Close()
	if id := <-f.lane.Cancelled; id != it.ID {
		t.Errorf("query %d was cancelled, want %d", id, it.ID)
	}
	querytest.End(it, api.Cancelled) // the answer has no client any more, which does no harm
}

func TestClosingConnectionsAreAnsweredFirst(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it })
	for _, head := range []string{"POST /f/predict HTTP/1.0\r\n", "POST /f/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"} {
		c, r := f.raw()
		io.WriteString(c, head+"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi")
		querytest.End(<-items, api.OK, []byte("hi"))
		if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, "aGk=") {
			t.Errorf("%q is answered %d %s", head, status, body)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%q: the connection stays open: %v", head, err)
		}
	}
}

func TestAmbiguousFramingIsRefused(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { t.Error("it reached the scheduler") })
	for _, head := range []string{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\ncontent-length: 5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"} {
		c, r := f.raw()
		io.WriteString(c, "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"+head+"\r\n5\r\nhello\r\n0\r\n\r\n")
		if status, body := readAnswer(t, r); status != 400 || !strings.Contains(body, ": send one") {
			t.Errorf("%q is answered %d %s", head, status, body)
		}
	}
}

func TestChunkedBodiesAndOversizedOnes(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) })
	c, r := f.raw()
	io.WriteString(c, "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
	if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, "aGVsbG8=") {
		t.Errorf("a chunked body is answered %d %s", status, body)
	}
	c, r = f.raw()
	io.WriteString(c, fmt.Sprintf("POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 5<<20))
	if status, _ := readAnswer(t, r); status != 413 {
		t.Errorf("a body over the limit is answered %d, want 413", status)
	}
}

func TestShutdownWaitsForAcceptedRequests(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it })
	c, r := f.raw()
	io.WriteString(c, request("/f/predict", "x", "Content-Type: text/plain\r\n"))
	it := <-items
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := f.p.Drain(short); err == nil || !strings.Contains(err.Error(), "1 requests were not answered") {
		t.Errorf("drain says %v while a request is open", err)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { defer wg.Done(); querytest.End(it, api.OK, []byte("x")) }()
	if err := f.p.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if status, _ := readAnswer(t, r); status != 200 {
		t.Errorf("the request is answered %d", status)
	}
}

// TestRoutesOfBothDialects: each dialect answers at its own routes, with its header fields.
func TestRoutesOfBothDialects(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	for path, want := range map[string]string{
		"/v2": `"name":"xebec"`, "/v2/health/live": "live", "/v2/health/ready": "ready", "/v2/models/m": `"shape":[-1,4]`, "/v2/models/m/ready": "",
		"/v2/models/m/versions/1": `"versions":["1"]`, "/healthz": "live", "/readyz": `"ready":true`, "/": `"status":"alive"`, "": "/docs",
	} {
		resp, err := http.Get("http://" + f.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(got), want) {
			t.Errorf("GET %s: %d %s", path, resp.StatusCode, got)
		}
	}
	const infer = `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,1,1,1]}],"outputs":[{"name":"output","parameters":{"binary_data":true}}]}`
	for _, connection := range []string{"keep-alive", "close"} { // written by the goroutine that ends the query, and by the handler
		status, header, body := f.post("/v2/models/m/infer", "application/json", infer, "Connection", connection)
		var n int
		if _, err := fmt.Sscan(header.Get("Inference-Header-Content-Length"), &n); err != nil || status != 200 || n > len(body) || body[n:] != string(querytest.Int64(4)) {
			t.Errorf("%s: answered %d, header %v, body %q", connection, status, header, body)
		}
		if header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: content type %q", connection, header.Get("Content-Type"))
		}
	}
}

// TestErrorsOfTheEdge: a request that no route takes is answered in the shape of the nearest dialect.
func TestErrorsOfTheEdge(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/f/predicts", 404, `{"error":"Query processing error","cause":"no route /f/predicts`},
		{"/v1/models/m/predict", 404, `{"error":"no route /v1/models/m/predict: expected /v1/models, `},
		{"/v2/models/m/infers", 404, `{"error":"no route /v2/models/m/infers`},
		{"/v2x/y", 404, `{"error":"no route /v2x/y: expected /v2, /v2/health/`},
		{"/v2/repository/models/m", 404, `{"error":"no route /v2/repository/models/m: expected /v2/repository/index or `},
		{"/v1/images/generations", 404, `{"error":{"message":"no route /v1/images/generations: of OpenAI's API there are GET /v1/models, and POST /v1/embeddings, /v1/completions and /v1/chat/completions","type":"invalid_request_error","param":null,"code":"not_found"}}`},
		{"/v1/responses/resp_1/cancel", 404, `{"error":{"message":"no route /v1/responses/resp_1/cancel: of OpenAI's API there are `},
		{"/v1/chat/completions/c/messages", 404, `{"error":{"message":"no route /v1/chat/completions/c/messages: of OpenAI's API there are `},
		{"/v1/batches", 404, `{"error":{"message":"no route /v1/batches: of OpenAI's API there are `},
		{"/chat/completions", 404, `{"error":{"message":"no route /chat/completions: expected /v1/chat/completions: the base URL of OpenAI's clients ends in /v1","type":"invalid_request_error","param":null,"code":"not_found"}}`},
		{"/chat/complete", 404, `{"error":"Query processing error","cause":"no route /chat/complete: functions are`},
		{"/v1/other", 404, `{"error":"Query processing error","cause":"no route /v1/other: functions are`},
		{"/f/predicts", 404, `{"error":"Query processing error","cause":"no route /f/predicts: functions are called by POST /{function}/predict"`},
		{"/v2/models/m/stats", 405, `{"error":"POST is not a method of /v2/models/m/stats: `},
		{"/healthz", 405, `{"error":"Query processing error","cause":"POST is not a method of /healthz: expected GET, HEAD, OPTIONS","code":"unsupported","request_id":"`},
		{"/v2", 405, `{"error":"POST is not a method of /v2: expected GET, HEAD, OPTIONS","code":"unsupported"}`},
	} {
		status, header, body := f.post(c.path, "application/json", `{}`)
		if status != c.status || !strings.HasPrefix(body, c.want) || header.Get("Content-Type") != "application/json" {
			t.Errorf("POST %s: %d %s, want %d %s", c.path, status, body, c.status, c.want)
		}
	}
}

// TestUnavailableHasRetryAfter: status 503 comes with Retry-After, whichever goroutine writes it.
func TestUnavailableHasRetryAfter(t *testing.T) {
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { querytest.End(it, api.Overloaded) })
	for _, connection := range []string{"keep-alive", "close"} {
		status, header, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`, "Connection", connection)
		if status != 503 || header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s with Retry-After %q", connection, status, body, header.Get("Retry-After"))
		}
	}
}

// TestConflictingRoutes: a server with two dialects that have the same route is refused.
func TestConflictingRoutes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for want, list := range map[string][]dialect.Dialect{
		"POST /{function}/predict is there twice": {native.Dialect{}, native.Dialect{}},
		"expected one or more":                    nil,
	} {
		_, err := New(Config{Path: query.New(query.Config{}), Listener: ln, Limits: DefaultLimits(), Dialects: list, Ready: ready})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d dialects: %v, want %q", len(list), err, want)
		}
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	work, stop := make(chan *scheduler.Item, 1024), make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case it := <-work:
					querytest.Sum(it)
				case <-stop:
					return
				}
			}
		}()
	}
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { work <- it })
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			c, r := f.raw()
			for j := range 50 {
				v := i*100 + j
				io.WriteString(c, request("/f/predict", fmt.Sprintf(`{"input":[%d,0,0,0]}`, v)))
				if _, body := readAnswer(t, r); !strings.Contains(body, fmt.Sprintf(`"output":%d,`, v)) {
					t.Errorf("asked for %d, got %s", v, body)
					return
				}
			}
		}()
	}
	clients.Wait()
	close(stop)
	wg.Wait()
}
