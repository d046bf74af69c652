package query

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// netpoll's pollers and Hertz's clock live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"))
}

// lane is a model's queue in tests: what becomes of a query is the test's to say.
type lane struct {
	submit    func(it *scheduler.Item)
	cancelled chan uint64
}

func (l *lane) SubmitAll(items []*scheduler.Item) {
	for _, it := range append([]*scheduler.Item(nil), items...) {
		l.submit(it)
	}
}

func (l *lane) Cancel(it *scheduler.Item) {
	if l.cancelled != nil {
		l.cancelled <- it.ID
	}
}

// end finishes a query as the scheduler would.
func end(it *scheduler.Item, code api.Code, outputs ...[]byte) {
	it.Outputs = it.Outputs[:0]
	for _, data := range outputs {
		it.Outputs = append(it.Outputs, api.Value{Data: data})
	}
	it.Confidence = math.NaN()
	owner := it.Owner
	owner.Answered(it, code)
	owner.Released(it, code)
}

func int64Bytes(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

type fixture struct {
	t    *testing.T
	g    *Path
	h    *HTTP
	lane *lane
	addr string
	fn   *Function

	connections int // the limit, 0 for the default
	once        sync.Once
}

// shutdown stops the gateway, once.
func (f *fixture) shutdown(ctx context.Context) (err error) {
	f.once.Do(func() {
		err = f.h.Shutdown(ctx)
		f.g.Close()
	})
	return err
}

var floats4 = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{4}}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Int64}},
}

var bytesEcho = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "input", DType: api.Bytes}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Bytes}},
}

// serve starts a gateway with one function, "f", over one model, "m@1", whose queries go to submit.
func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item), change ...func(*fixture)) *fixture {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	f := &fixture{t: t, lane: &lane{submit: submit}, addr: ln.Addr().String()}
	f.g = New(Config{Version: "test", Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8, Ready: func() (bool, string) { return true, "" }})
	m := NewModel(api.ModelID{Name: "m", Version: "1"}, sig, f.lane, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	f.fn = &Function{Name: "f", SLO: time.Minute, Candidates: []Candidate{{Model: m, Queue: 1}}, Stats: new(obs.Endpoint)}
	for _, c := range change {
		c(f)
	}
	f.g.Publish(&Table{Functions: map[string]*Function{"f": f.fn}, Models: map[string]*Model{"m": m}, Versions: map[api.ModelID]*Model{m.ID: m}})
	limits := DefaultLimits()
	limits.BodyBytes = 4 << 20
	if f.connections > 0 {
		limits.Connections = f.connections
	}
	f.h = NewHTTP(f.g, ln, limits)
	go f.h.Serve()
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

// sum answers with the sum of the four inputs.
func sum(it *scheduler.Item) {
	total := float32(0)
	for i := range 4 {
		total += math.Float32frombits(binary.LittleEndian.Uint32(it.Inputs[0].Data[4*i:]))
	}
	end(it, api.OK, int64Bytes(int64(total)))
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return m
}

func TestPredictAnswersOneInput(t *testing.T) {
	f := serve(t, floats4, sum)
	status, header, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4.5]}`)
	m := decode(t, body)
	if status != 200 || m["output"] != 10.0 || m["default"] != false || m["confidence"] != 1.0 || fmt.Sprint(m["models"]) != "[m@1]" || m["query_id"] == nil {
		t.Errorf("answer %d %s", status, body)
	}
	if header.Get("Content-Type") != "application/json" || header.Get("Date") == "" {
		t.Errorf("headers %v", header)
	}
}

func TestPredictAnswersABatchInOrderAlsoABatchOfOne(t *testing.T) {
	f := serve(t, floats4, sum)
	_, _, body := f.post("/f/predict", "application/json", `{"input_batch":[[1,0,0,0],[2,0,0,0],[3,0,0,0]]}`)
	var got struct {
		Batch []struct{ Output int } `json:"batch_predictions"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || fmt.Sprint(got.Batch) != "[{1} {2} {3}]" {
		t.Errorf("answer %s: %v", body, err)
	}
	if _, _, body = f.post("/f/predict", "application/json", `{"input_batch":[[7,0,0,0]]}`); !strings.HasPrefix(body, `{"batch_predictions":[{`) {
		t.Errorf("a batch of one is answered %s", body)
	}
	// The next single request must not be answered as a batch.
	if _, _, body = f.post("/f/predict", "application/octet-stream", string(make([]byte, 16))); !strings.HasPrefix(body, `{"query_id"`) {
		t.Errorf("a raw body after a batch is answered %s", body)
	}
}

func TestRawBodyIsTheInput(t *testing.T) {
	f := serve(t, floats4, sum)
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(41))
	raw = append(raw, make([]byte, 12)...)
	if _, _, body := f.post("/f/predict", "application/octet-stream", string(raw)); decode(t, body)["output"] != 41.0 {
		t.Errorf("answer %s", body)
	}
	status, _, body := f.post("/f/predict", "application/octet-stream", "short")
	if status != 400 || !strings.Contains(body, "5 bytes: expected 16") {
		t.Errorf("a short body is answered %d %s", status, body)
	}
}

func TestErrorsSayWhatWasWrong(t *testing.T) {
	f := serve(t, floats4, sum)
	for _, c := range []struct {
		name, path, body string
		status           int
		want             []string
	}{
		{"not JSON", "/f/predict", `{"input":`, 400, []string{`"error":"Json error"`, `"code":"invalid_argument"`}},
		{"wrong length", "/f/predict", `{"input":[1,2]}`, 400, []string{`"error":"Query processing error"`, "4", "2"}},
		{"wrong type", "/f/predict", `{"input":["a",2,3,4]}`, 400, []string{"input[0]"}},
		{"no input", "/f/predict", `{}`, 400, []string{"input_batch"}},
		{"too many", "/f/predict", `{"input_batch":[` + strings.TrimSuffix(strings.Repeat("[1,2,3,4],", 9), ",") + `]}`, 400, []string{"more than 8 inputs"}},
		{"unknown function", "/g/predict", `{"input":[1,2,3,4]}`, 404, []string{"no function", `\"g\"`}},
		{"unknown route", "/f/predicts", `{}`, 404, []string{"no route"}},
		{"unknown model", "/v2/models/x/infer", `{}`, 404, []string{`{"error":"no model`}},
		{"unknown version", "/v2/models/m/versions/9/infer", `{}`, 404, []string{`m@9`}},
		{"malformed infer", "/v2/models/m/infer", `{"inputs":3}`, 400, []string{`{"error":"`}},
	} {
		status, _, body := f.post(c.path, "application/json", c.body)
		if status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, status, c.status, body)
		}
		decode(t, body)
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s lacks %s", c.name, body, want)
			}
		}
	}
	if status, _, body := f.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`, "Xebec-Slo-Ms", "-3"); status != 400 || !strings.Contains(body, "Xebec-Slo-Ms") {
		t.Errorf("a negative SLO is answered %d %s", status, body)
	}
}

func TestFailuresBecomeTheDefaultOrAStatus(t *testing.T) {
	var code atomic.Int32
	submit := func(it *scheduler.Item) { end(it, api.Code(code.Load())) }
	plain := serve(t, floats4, submit)
	def := serve(t, floats4, submit, withDefault("-1"))
	for c, want := range map[api.Code]int{api.DeadlineExceeded: 504, api.Overloaded: 503, api.NoReplica: 503, api.ModelError: 502, api.BadOutput: 502, api.ReplicaLost: 502} {
		code.Store(int32(c))
		status, header, body := plain.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`)
		if status != want || !strings.Contains(body, c.String()) {
			t.Errorf("%s without a default: %d %s", c, status, body)
		}
		if (status == 503) != (header.Get("Retry-After") != "") {
			t.Errorf("%s: status %d with Retry-After %q", c, status, header.Get("Retry-After"))
		}
		status, _, body = def.post("/f/predict", "application/json", `{"input":[1,2,3,4]}`)
		m := decode(t, body)
		if status != 200 || m["output"] != -1.0 || m["default"] != true || m["default_explanation"] != c.Reason() || m["confidence"] != 0.0 {
			t.Errorf("%s with a default: %d %s", c, status, body)
		}
	}
}

func TestABatchInWhichSomethingSucceededIsAnAnswer(t *testing.T) {
	n := 0
	f := serve(t, floats4, func(it *scheduler.Item) {
		if n++; n == 2 {
			end(it, api.ModelError)
			return
		}
		sum(it)
	})
	status, _, body := f.post("/f/predict", "application/json", `{"input_batch":[[1,0,0,0],[2,0,0,0]]}`)
	if status != 200 || !strings.Contains(body, `"output":1`) || !strings.Contains(body, `"code":"model_error"`) {
		t.Errorf("answer %d %s", status, body)
	}
	decode(t, body)
}

// raw opens a connection to speak HTTP by hand.
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
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it })
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
		end(it, api.OK, []byte(want))
		_, body := readAnswer(t, r)
		var m struct{ Output []byte }
		if err := json.Unmarshal([]byte(body), &m); err != nil || string(m.Output) != want {
			t.Fatalf("answer %s, want the echo of %q", body, want)
		}
	}
	if status, _ := readAnswer(t, r); status != 404 {
		t.Errorf("the third answer is %d, want 404 after the other two", status)
	}
}

func TestAClientThatDoesNotReadHoldsUpNobody(t *testing.T) {
	big := bytes.Repeat([]byte{7}, 3<<20)
	items := make(chan *scheduler.Item, 64)
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it })
	slow, slowReader := f.raw()
	io.WriteString(slow, strings.Repeat(request("/f/predict", "big", "Content-Type: text/plain\r\n"), 4))
	other, otherReader := f.raw()
	pending := 3
	end(<-items, api.OK, big) // 4 MiB of base64 do not fit the socket: end must return all the same
	io.WriteString(other, request("/f/predict", "small", "Content-Type: text/plain\r\n"))
	for {
		it := <-items
		if string(it.Inputs[0].Data) == "small" {
			end(it, api.OK, []byte("small"))
			break
		}
		end(it, api.OK, big)
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
			end(<-items, api.OK, big)
		}
	}()
	defer answered.Wait()
	for i := range 4 { // now the slow one reads, and gets everything
		_, body := readAnswer(t, slowReader)
		var m struct{ Output []byte }
		if err := json.Unmarshal([]byte(body), &m); err != nil || !bytes.Equal(m.Output, big) {
			t.Fatalf("answer %d has %d bytes: %v", i, len(body), err)
		}
	}
}

func TestALargeRawBodyIsTheQuerysUntilItIsReleased(t *testing.T) {
	items := make(chan *scheduler.Item, 8)
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it }, withDefault("null"))
	c, r := f.raw()
	first, second := strings.Repeat("a", 2*borrowBytes), strings.Repeat("b", 2*borrowBytes)
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
	end(next, api.OK, []byte("ok"))
	if _, body := readAnswer(t, r); !strings.Contains(body, "b2s=") {
		t.Fatalf("answer %s", body)
	}
}

func TestAClientThatGoesAwayCancelsItsQueries(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it }, func(f *fixture) { f.lane.cancelled = make(chan uint64, 1) })
	c, _ := f.raw()
	io.WriteString(c, request("/f/predict", "x", "Content-Type: text/plain\r\n"))
	it := <-items
	c.Close()
	if id := <-f.lane.cancelled; id != it.ID {
		t.Errorf("query %d was cancelled, want %d", id, it.ID)
	}
	end(it, api.Cancelled) // and the answer to nobody does no harm
}

func TestConnectionsThatEndAreAnsweredFirst(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it })
	for _, head := range []string{"POST /f/predict HTTP/1.0\r\n", "POST /f/predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"} {
		c, r := f.raw()
		io.WriteString(c, head+"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi")
		end(<-items, api.OK, []byte("hi"))
		if status, body := readAnswer(t, r); status != 200 || !strings.Contains(body, "aGk=") {
			t.Errorf("%q is answered %d %s", head, status, body)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%q: the connection stays open: %v", head, err)
		}
	}
}

func TestAmbiguousFramingIsRefused(t *testing.T) {
	f := serve(t, bytesEcho, func(it *scheduler.Item) { t.Error("it reached the scheduler") })
	for _, head := range []string{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\ncontent-length: 5\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"} {
		c, r := f.raw()
		io.WriteString(c, "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"+head+"\r\n5\r\nhello\r\n0\r\n\r\n")
		if status, body := readAnswer(t, r); status != 400 || !strings.Contains(body, "send one of them, once") {
			t.Errorf("%q is answered %d %s", head, status, body)
		}
	}
}

func TestChunkedBodiesAndOversizedOnes(t *testing.T) {
	f := serve(t, bytesEcho, func(it *scheduler.Item) { end(it, api.OK, it.Inputs[0].Data) })
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
	f := serve(t, bytesEcho, func(it *scheduler.Item) { items <- it })
	c, r := f.raw()
	io.WriteString(c, request("/f/predict", "x", "Content-Type: text/plain\r\n"))
	it := <-items
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := f.h.drain(short); err == nil || !strings.Contains(err.Error(), "1 requests were not answered") {
		t.Errorf("drain says %v while a request is open", err)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { defer wg.Done(); end(it, api.OK, []byte("x")) }()
	if err := f.h.drain(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if status, _ := readAnswer(t, r); status != 200 {
		t.Errorf("the request is answered %d", status)
	}
}

func TestOpenInferenceProtocol(t *testing.T) {
	f := serve(t, floats4, sum)
	_, _, body := f.post("/v2/models/m/infer", "application/json",
		`{"id":"7","inputs":[{"name":"input","datatype":"FP32","shape":[2,4],"data":[[1,1,1,1],[2,2,2,2]]}]}`)
	m := decode(t, body)
	outputs, _ := m["outputs"].([]any)
	if m["model_name"] != "m" || m["model_version"] != "1" || m["id"] != "7" || len(outputs) != 1 {
		t.Fatalf("answer %s", body)
	}
	out := outputs[0].(map[string]any)
	if out["name"] != "output" || out["datatype"] != "INT64" || fmt.Sprint(out["shape"]) != "[2]" || fmt.Sprint(out["data"]) != "[4 8]" {
		t.Errorf("output %v", out)
	}
	for path, want := range map[string]string{
		"/v2": `"name":"xebec"`, "/v2/health/live": "live", "/v2/health/ready": "ready", "/v2/models/m": `"shape":[-1,4]`,
		"/v2/models/m/versions/1": `"versions":["1"]`, "/healthz": "live", "/readyz": `"ready":true`,
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
}

func TestOpenInferenceProtocolBinary(t *testing.T) {
	f := serve(t, floats4, sum)
	head := `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}}],"outputs":[{"name":"output","parameters":{"binary_data":true}}]}`
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(5))
	raw = append(raw, make([]byte, 12)...)
	_, header, body := f.post("/v2/models/m/infer", "application/octet-stream", head+string(raw), "Inference-Header-Content-Length", fmt.Sprint(len(head)))
	var n int
	if _, err := fmt.Sscan(header.Get("Inference-Header-Content-Length"), &n); err != nil || n > len(body) {
		t.Fatalf("header %v, body %q", header, body)
	}
	decode(t, body[:n])
	if got := body[n:]; got != string(int64Bytes(5)) {
		t.Errorf("binary output %x", got)
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
					sum(it)
				case <-stop:
					return
				}
			}
		}()
	}
	f := serve(t, floats4, func(it *scheduler.Item) { work <- it })
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
