package calls_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/calls"
	gatewayhttp "github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/worker/wire"
)

// replica is a caller: model "caller", which may call "f", "m" and "gone", and evaluates batch 7.
type replica struct{ origin atomic.Pointer[api.Origin] }

func (*replica) Model() string          { return "caller" }
func (*replica) May(callee string) bool { return slices.Contains([]string{"f", "m", "gone"}, callee) }

func (*replica) CalleeStarts(uint64, int, int64) {}

func (r *replica) Origin(batch uint64, i int, o *api.Origin) bool {
	o.Reset()
	known := r.origin.Load()
	if batch != 7 || i > 0 || known == nil {
		return false
	}
	o.Deadline, o.Context = known.Deadline, append(o.Context, known.Context...)
	o.Call.Set(&known.Call)
	return true
}

// fixture is a line to a path with function "f" over model "m@1".
type fixture struct {
	t      *testing.T
	p      *query.Path
	fn     *query.Function
	model  *query.Model
	from   *replica
	line   net.Conn
	reader *bufio.Reader
	closed chan struct{}
}

func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item)) *fixture {
	t.Helper()
	start := time.Now()
	f := &fixture{t: t, from: &replica{}, closed: make(chan struct{})}
	f.p = query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	f.model = query.NewModel(api.ModelID{Name: "m", Version: "1"}, sig, &querytest.Lane{Submit: submit}, 0, new(obs.Endpoint))
	f.model.Ready.Store(1)
	f.fn = &query.Function{Name: "f", SLO: time.Minute, Candidates: []query.Candidate{{Model: f.model, Queue: 1}}, Stats: new(obs.Endpoint)}
	f.publish()
	limits := gatewayhttp.DefaultLimits()
	limits.BodyBytes = 1 << 20
	s, err := gatewayhttp.New(gatewayhttp.Config{Path: f.p, Limits: limits, Dialects: []dialect.Dialect{calls.Dialect{}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	ours, theirs := pair(t)
	if err := s.AddLine(theirs, f.from, func() { close(f.closed) }); err != nil {
		t.Fatal(err)
	}
	f.line, f.reader = ours, bufio.NewReader(ours)
	t.Cleanup(func() {
		_ = f.line.Close()
		<-f.closed
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-ended); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) publish() {
	f.p.Publish(&query.Table{Functions: map[string]*query.Function{"f": f.fn}, Models: map[string]*query.Model{"m": f.model}, Versions: map[api.ModelID]*query.Model{f.model.ID: f.model}})
}

func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]net.Conn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "line")
		if conns[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	return conns[0], conns[1]
}

// do sends a request on the line.
func (f *fixture) do(method, path, body string, header ...string) (int, http.Header, string) {
	f.t.Helper()
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i+1 < len(header); i += 2 {
		text += header[i] + ": " + header[i+1] + "\r\n"
	}
	_ = f.line.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(f.line, text+"\r\n"+body); err != nil {
		f.t.Fatal(err)
	}
	res, err := http.ReadResponse(f.reader, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(got)
}

func (f *fixture) digest(callee string) string {
	f.t.Helper()
	status, _, body := f.do("GET", "/call/"+callee, "")
	var said struct{ Digest string }
	if err := json.Unmarshal([]byte(body), &said); status != 200 || err != nil || said.Digest == "" {
		f.t.Fatalf("the signature of %s: %d %s", callee, status, body)
	}
	return said.Digest
}

// call calls with the values of the only input.
func (f *fixture) call(callee string, inputs [][]byte, header ...string) (int, http.Header, string) {
	f.t.Helper()
	b := block(f.t, f.model.Signature.Inputs, inputs)
	return f.do("POST", "/call/"+callee, b, append([]string{"Xebec-Signature", f.digest(callee), "Xebec-Queries", strconv.Itoa(len(inputs)), "Xebec-For", "7.0"}, header...)...)
}

type column [][]byte

func (c column) Len() int               { return len(c) }
func (c column) At(i, _ int) *api.Value { return &api.Value{Data: c[i]} }

func block(t *testing.T, specs []api.TensorSpec, values [][]byte) string {
	t.Helper()
	sc := wire.NewSchema(specs)
	b := make([]byte, sc.Size(column(values)))
	if _, err := sc.Write(b, column(values)); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// outputs reads an answer.
func (f *fixture) outputs(body string, n int) (all []string) {
	f.t.Helper()
	var r wire.Reader
	if err := wire.NewSchema(f.model.Signature.Outputs).Open(&r, []byte(body), n); err != nil {
		f.t.Fatalf("%v: %q", err, body)
	}
	for i := range n {
		data, _, err := r.Item(i, 0, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return all
}

func TestCall(t *testing.T) {
	f := serve(t, querytest.Bytes, querytest.Echo)
	for _, callee := range []string{"f", "m"} {
		status, header, body := f.call(callee, [][]byte{[]byte("a"), {}, []byte("long")})
		if status != 200 || header.Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("%s: %d %v %q", callee, status, header, body)
		}
		if got := f.outputs(body, 3); !slices.Equal(got, []string{"a", "", "long"}) {
			t.Errorf("%s: %q", callee, got)
		}
	}
	large := bytes.Repeat([]byte("x"), 300_000)
	if status, _, body := f.call("f", [][]byte{large}); status != 200 || f.outputs(body, 1)[0] != string(large) {
		t.Errorf("a large input: %d", status)
	}
}

// A call has what is known of the query, and no more than that of the caller's own words.
func TestWhatACallCarries(t *testing.T) {
	type query struct {
		id, trace, chain, context, parameters string
		deadline                              api.Nanos
	}
	seen := make(chan query, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) {
		seen <- query{string(it.Call.RequestID), string(it.Call.TraceParent), string(it.Call.Chain), string(it.Context), string(it.Parameters), it.Deadline}
		querytest.Echo(it)
	})
	f.from.origin.Store(&api.Origin{Deadline: 123, Context: []byte("ann"), Call: api.Identity{RequestID: []byte("r-1"), TraceParent: []byte("t"), Chain: []byte("a b")}})
	status, header, _ := f.call("f", [][]byte{nil}, "X-Request-Id", "own")
	if got, want := <-seen, (query{"r-1", "t", "a b caller", "ann", "", 123}); status != 200 || got != want || header.Get("X-Request-Id") != "r-1" {
		t.Errorf("%d, the query has %+v, want %+v", status, got, want)
	}
	f.call("f", [][]byte{nil}, "Xebec-Context", "bob", "Xebec-Parameters", `{"k":1}`)
	if got := <-seen; got.context != "bob" || got.parameters != `{"k":1}` {
		t.Errorf("with options the query has %+v", got)
	}
	b := block(t, querytest.Bytes.Inputs, [][]byte{nil})
	f.do("POST", "/call/f", b, "Xebec-Signature", f.digest("f"), "Xebec-Queries", "1", "Xebec-For", "8", "X-Request-Id", "own")
	if got := <-seen; got.id != "own" || got.chain != "caller" || got.context != "" || got.deadline == 123 {
		t.Errorf("for a batch that it does not evaluate: %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	f := serve(t, querytest.Bytes, querytest.Echo)
	good := block(t, querytest.Bytes.Inputs, [][]byte{[]byte("x")})
	digest := f.digest("f")
	for _, c := range []struct {
		what, path, body string
		queries, of      string // header fields
		status           int
		words            string
	}{
		{"an undeclared callee", "/call/other", good, "1", digest, 403, `caller calls \"other\", which its manifest does not declare: add it to calls`},
		{"a callee that is gone", "/call/gone", good, "1", digest, 404, `no function or model \"gone\"`},
		{"another signature", "/call/f", good, "1", "1234", 409, "may have changed"},
		{"no signature", "/call/f", good, "1", "", 409, "may have changed"},
		{"no number", "/call/f", good, "", digest, 400, "Xebec-Queries"},
		{"no queries", "/call/f", good, "0", digest, 400, "Xebec-Queries"},
		{"too many queries", "/call/f", good, "9", digest, 400, "at most 8"},
		{"more queries than the block has", "/call/f", good, "2", digest, 400, "the block: "},
		{"nonsense", "/call/f", "nonsense", "1", digest, 400, "the block: "},
		{"no block", "/call/f", "", "1", digest, 400, "the block: "},
		{"no such route", "/f/predict", good, "1", digest, 404, "no route"},
	} {
		status, _, body := f.do("POST", c.path, c.body, "Xebec-Queries", c.queries, "Xebec-Signature", c.of)
		if status != c.status || !strings.Contains(body, c.words) || !strings.Contains(body, `"code":`) {
			t.Errorf("%s: %d %s", c.what, status, body)
		}
	}
	for _, header := range [][2]string{{"Xebec-For", "x"}, {"Xebec-For", "7.-1"}, {"Xebec-For", "7.99999999999"}, {"Xebec-Parameters", "[]"}, {"Xebec-Parameters", "{}x"}, {"Xebec-Slo-Ms", "-1"}} {
		if status, _, body := f.do("POST", "/call/f", good, "Xebec-Queries", "1", "Xebec-Signature", digest, header[0], header[1]); status != 400 || !strings.Contains(body, header[0]) {
			t.Errorf("%s: %d %s", header, status, body)
		}
	}
	f.from.origin.Store(&api.Origin{Call: api.Identity{Chain: []byte("m x")}})
	if status, _, body := f.call("f", [][]byte{nil}); status != 508 || !strings.Contains(body, `"code":"cycle"`) || !strings.Contains(body, "m calls x calls caller calls function f, which asks m") {
		t.Errorf("a cycle: %d %s", status, body)
	}
}

// A call for several inputs has an error if one of them has, unless the function has a default.
func TestErrorsAndDefaults(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) {
		code := api.OK
		switch string(it.Inputs[0].Data) {
		case "late":
			code = api.DeadlineExceeded
		case "wrong":
			code, it.Detail = api.InvalidInput, "not a picture"
		}
		querytest.End(it, code, it.Inputs[0].Data)
	})
	if status, _, body := f.call("f", [][]byte{[]byte("a"), []byte("late")}); status != 504 || !strings.Contains(body, `latency SLO (input 1 of 2)","code":"deadline_exceeded"`) {
		t.Errorf("%d %s", status, body)
	}
	fn := *f.fn
	fn.Default = []byte(`{"b64":"ZGVmYXVsdA=="}`)
	f.fn = &fn
	f.publish()
	if status, _, body := f.call("f", [][]byte{[]byte("a"), []byte("late"), []byte("late")}); status != 200 || !slices.Equal(f.outputs(body, 3), []string{"a", "default", "default"}) {
		t.Errorf("with a default: %d %q", status, body)
	}
	if status, _, body := f.call("f", [][]byte{[]byte("late"), []byte("wrong")}); status != 400 || !strings.Contains(body, `not a picture (input 1 of 2)`) {
		t.Errorf("a wrong input: %d %s", status, body)
	}
}

// A client's connection is no line.
func TestNoCallsOfClients(t *testing.T) {
	p := query.New(query.Config{Now: func() api.Nanos { return 1 }, MaxBatch: 8})
	a, err := dialect.NewLocal(p, calls.Dialect{}).Do(t.Context(), &dialect.Message{Method: "POST", Path: "/call/f"})
	if err != nil || a.Status != 403 || !strings.Contains(string(a.Body), "only models make calls here") {
		t.Errorf("%+v %v", a, err)
	}
}
