package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/quality"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	then   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sumIn  = []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{-1}}}
	sumOut = []api.TensorSpec{{Name: "sum", DType: api.Float32}}
	pairIn = []api.TensorSpec{{Name: "text", DType: api.Bytes}, {Name: "weight", DType: api.Float64}}
)

func float32s(all ...float32) []byte {
	var b []byte
	for _, f := range all {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// sumQuery is a logged query of a function that adds numbers, with the right answer.
func sumQuery(id uint64, numbers ...float32) *inferlog.Record {
	sum := float32(0)
	for _, n := range numbers {
		sum += n
	}
	return &inferlog.Record{
		ID: id, AtMicros: then.Add(time.Duration(id) * time.Second).UnixMicro(), TookMicros: 2000, Confidence: 1, Models: []api.ModelID{{Name: "adder", Version: "1"}},
		Inputs: []api.Value{{Data: float32s(numbers...), Dims: []int64{int64(len(numbers))}}}, Outputs: []api.Value{{Data: float32s(sum)}},
	}
}

func label(id uint64, text string) *inferlog.Feedback {
	return &inferlog.Feedback{ID: id, AtMicros: then.UnixMicro(), Kind: inferlog.FeedbackLabel, Label: []byte(text)}
}

// writeLog writes a log of what fill adds, and returns its directory.
func writeLog(t *testing.T, fill func(l *inferlog.Log)) string {
	t.Helper()
	dir := t.TempDir()
	l, err := inferlog.Open(inferlog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fill(l)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := l.Stats().Dropped.Total(); d > 0 {
		t.Fatalf("%d records were dropped", d)
	}
	return dir
}

// sums is a log of ten queries to "sum". The fourth failed. The first three have labels, of which the third says that
// the answer was wrong, the sixth is "correct", and the seventh has a loss.
func sums(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("sum", sumIn, sumOut, 1)
		for id := range uint64(10) {
			r := sumQuery(id+1, float32(id), 0.5)
			if id == 3 {
				r.Outputs, r.Code = nil, api.DeadlineExceeded
			}
			r.Context = fmt.Appendf(nil, "user %d", id%2)
			s.Add(r)
		}
		s.Feedback(label(1, "0.5"))
		s.Feedback(label(2, "1.5"))
		s.Feedback(label(3, "7"))
		s.Feedback(&inferlog.Feedback{ID: 6, Kind: inferlog.FeedbackCorrect, Context: []byte("u")})
		s.Feedback(&inferlog.Feedback{ID: 7, Kind: inferlog.FeedbackLoss, Loss: 0.25})
		s.Feedback(label(99, "1"))
	})
}

// adder is a gateway with a function and a model that add numbers.
type adder struct {
	http.Handler
	change func(sum float32) float32 // may be nil

	mu       sync.Mutex
	ids      uint64
	queries  []string // path, context and input
	feedback []string
	// sums are the answers by query id.
	sums map[uint64]float32
}

func newAdder(t *testing.T) *adder {
	g := &adder{sums: map[uint64]float32{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{function}/predict", g.predict)
	mux.HandleFunc("POST /{function}/feedback", func(w http.ResponseWriter, r *http.Request) { g.takeFeedback(t, w, r) })
	mux.HandleFunc("POST /v2/models/{model}/versions/{version}/infer", func(w http.ResponseWriter, r *http.Request) { g.infer(t, w, r) })
	g.Handler = mux
	return g
}

// sendTo is a Sender without a network.
func sendTo(h http.Handler) Sender {
	return func(ctx context.Context, path string, header http.Header, body []byte) (*Response, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
		req.Header = header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		res := w.Result()
		return &Response{StatusCode: res.StatusCode, Status: fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode)), Header: res.Header, Body: w.Body.Bytes()}, nil
	}
}

// received returns the queries and the feedback that came, sorted, because several workers send them.
func (g *adder) received() (queries, feedback []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.queries)
	slices.Sort(g.feedback)
	return slices.Clone(g.queries), slices.Clone(g.feedback)
}

func (g *adder) add(numbers []float32) (id uint64, sum float32) {
	for _, n := range numbers {
		sum += n
	}
	if g.change != nil {
		sum = g.change(sum)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids++
	g.sums[1000+g.ids] = sum
	return 1000 + g.ids, sum
}

func (g *adder) predict(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q struct {
		Input   []float32 `json:"input"`
		Context string    `json:"context"`
	}
	q.Context = r.Header.Get(contextHeader)
	if r.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(body, &q); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":"Json error","cause":%q,"code":"invalid_argument"}`, err.Error())
			return
		}
	} else {
		for ; len(body) > 0; body = body[4:] {
			q.Input = append(q.Input, math.Float32frombits(binary.LittleEndian.Uint32(body)))
		}
	}
	id, sum := g.add(q.Input)
	g.mu.Lock()
	g.queries = append(g.queries, fmt.Sprintf("%s %s %v", r.URL.Path, q.Context, q.Input))
	g.mu.Unlock()
	switch {
	case math.IsNaN(float64(sum)):
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, `{"error":"Query processing error","cause":"the model failed on this input","code":"model_error"}`)
	case math.IsInf(float64(sum), 0):
		fmt.Fprintf(w, `{"query_id":%d,"output":0,"default":true,"default_explanation":"…"}`, id)
	default:
		fmt.Fprintf(w, `{"query_id":%d,"output":%v,"default":false}`, id, sum)
	}
}

func (g *adder) takeFeedback(t *testing.T, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var f struct {
		ID uint64 `json:"query_id"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.sums[f.ID]; !known {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"Query processing error","cause":"no such query","code":"not_found"}`)
		return
	}
	_, rest, _ := strings.Cut(string(body), ",")
	g.feedback = append(g.feedback, fmt.Sprintf("%s %v %s", r.PathValue("function"), g.sums[f.ID], rest))
	fmt.Fprintf(w, `{"query_id":%d,"status":"counted"}`, f.ID)
}

// infer reads requests and writes answers with the gateway's own codec.
func (g *adder) infer(t *testing.T, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	jsonBytes, err := strconv.Atoi(r.Header.Get(inferHeader))
	if err != nil {
		t.Error(err)
	}
	if r.PathValue("version") != "2" {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"no such version"}`)
		return
	}
	sig := api.Signature{Inputs: sumIn, Outputs: sumOut}
	var req oip.Request
	in := oneQuery{{}}
	if err := req.Parse(body, jsonBytes, &sig, in, 1); err != nil {
		t.Errorf("%s: %v", body[:jsonBytes], err)
	}
	var numbers []float32
	for data := in[0].Data; len(data) > 0; data = data[4:] {
		numbers = append(numbers, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	_, sum := g.add(numbers)
	out := api.Value{Data: float32s(sum)}
	answer, n, err := oip.AppendResponse(nil, "adder", "2", nil, &req, &sig, 1, func(int, int) *api.Value { return &out })
	if err != nil {
		t.Error(err)
	}
	w.Header().Set(inferHeader, strconv.Itoa(n))
	_, _ = w.Write(answer) // a client that has gone fails its own test
}

// comparing are options that compare, as fast as possible.
func comparing(change func(*Options)) Options {
	o := Options{Concurrency: 16, Compare: true, Tolerance: 1e-6}
	if change != nil {
		change(&o)
	}
	return o
}

func mustRun(t *testing.T, g *adder, log string, change func(*Options)) *Result {
	t.Helper()
	r := New(comparing(change), sendTo(g))
	res, err := r.Run(t.Context(), []string{log})
	if err != nil {
		t.Fatal(err)
	}
	if n, different, failed := r.Progress(); n != res.Queries || different != res.Different || failed != res.Failed {
		t.Errorf("the progress at the end is %d, %d, %d: %+v", n, different, failed, res.Report)
	}
	return res
}

func TestToTheFunction(t *testing.T) {
	g := newAdder(t)
	g.change = func(sum float32) float32 {
		switch sum {
		case 1.5: // labelled; now an error
			return float32(math.NaN())
		case 2.5: // labelled 7
			return 7
		case 4.5:
			return float32(math.Inf(1))
		case 8.5:
			return sum + 1e-6 // within the tolerance
		}
		return sum
	}
	r := mustRun(t, g, sums(t), func(o *Options) { o.Feedback = true })
	if r.Queries != 10 || r.Same != 6 || r.Different != 1 || r.Lost != 2 || r.Gained != 1 || r.Neither != 0 || r.Failed != 1 || r.Defaults != 1 {
		t.Errorf("%+v", r)
	}
	if want := 3.0 / 9; math.Abs(r.Difference-want) > 1e-9 {
		t.Errorf("the difference is %v, want %v", r.Difference, want)
	}
	if a := r.Accuracy; a == nil || a.Labels != 4 || a.Then != 0.75 || a.Now != 0.75 { // 1, 2 and 6 were right; 1, 3 and 6 are
		t.Errorf("accuracy %+v", a)
	}
	if len(r.Failures) != 1 || *r.Failures[0] != (Failure{Code: "model_error", Count: 1, Example: "the model failed on this input"}) {
		t.Errorf("failures %+v", r.Failures)
	}
	if len(r.Examples) != 1 || r.Examples[0] != (Example{QueryID: 3, Then: "2.5", Now: "7"}) {
		t.Errorf("examples %+v", r.Examples)
	}
	if r.Latency.Then.P50 < 1.8 || r.Latency.Then.P50 > 2.2 || r.Latency.Now.P99 < 0 {
		t.Errorf("latency %+v", r.Latency)
	}
	queries, feedback := g.received()
	want := []string{`sum 0.5 "label":0.5}`, `sum 5.5 "correct":true,"context":"u"}`, `sum 6.5 "loss":0.25}`, `sum 7 "label":7}`}
	if !slices.Equal(feedback, want) || r.Feedback["counted"] != 4 || r.Feedback["no answer to be about"] != 1 || r.Unjoined != 1 {
		t.Errorf("feedback %q, report %+v, %d unjoined", feedback, r.Feedback, r.Unjoined)
	}
	if len(queries) != 10 || queries[0] != "/sum/predict user 0 [0 0.5]" || queries[9] != "/sum/predict user 1 [9 0.5]" {
		t.Errorf("queries %q", queries)
	}
	if r.Log.Queries != 10 || r.Forgotten != 0 || r.Late != 0 || r.Damaged != 0 {
		t.Errorf("%+v", r)
	}
}

func TestToAnotherFunctionAndModel(t *testing.T) {
	g := newAdder(t)
	log := sums(t)
	toTotal := func(o *Options) { o.To, o.Limit, o.Function = "total", 3, "sum" }
	if r := mustRun(t, g, log, toTotal); r.Queries != 3 || r.Same != 3 || r.Difference != 0 {
		t.Errorf("%+v", r)
	}
	if queries, _ := g.received(); !strings.HasPrefix(queries[0], "/total/predict ") {
		t.Errorf("queries %q", queries)
	}
	toModel := func(version string) func(*Options) {
		return func(o *Options) { o.Model = api.ModelID{Name: "adder", Version: version} }
	}
	if r := mustRun(t, g, log, toModel("2")); r.Queries != 10 || r.Same != 9 || r.Gained != 1 || r.Accuracy.Labels != 4 {
		t.Errorf("%+v", r)
	}
	if r := mustRun(t, g, log, toModel("3")); r.Failed != 10 || r.Failures[0].Code != "404 Not Found" || r.Failures[0].Example != "no such version" {
		t.Errorf("a version that does not exist: %+v", r.Failures[0])
	}
	two := writeLog(t, func(l *inferlog.Log) {
		l.Function("a", sumIn, sumOut, 1).Add(sumQuery(1, 1))
		l.Function("b", sumIn, sumOut, 1).Add(sumQuery(2, 1))
	})
	_, err := New(comparing(func(o *Options) { o.To = "a" }), sendTo(g)).Run(t.Context(), []string{two})
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || ambiguous.Functions != [2]string{"a", "b"} {
		t.Errorf("queries of two functions to one: %v", err)
	}
	if r := mustRun(t, g, two, nil); r.Queries != 2 || r.Same != 2 {
		t.Errorf("queries of two functions, each to its own: %+v", r)
	}
}

func TestWithoutComparing(t *testing.T) {
	r := mustRun(t, newAdder(t), sums(t), func(o *Options) { o.Compare = false })
	if r.Queries != 10 || r.Compared() != 0 || r.Gained+r.Neither != 0 || r.Accuracy != nil {
		t.Errorf("not compared: %+v", r)
	}
}

// Numbers that JSON does not have go as raw bodies if possible.
func TestNonFiniteNumbers(t *testing.T) {
	g := newAdder(t)
	g.change = func(float32) float32 { return 1 }
	log := writeLog(t, func(l *inferlog.Log) {
		r := sumQuery(1, float32(math.Inf(1)), 2)
		r.Outputs[0].Data = float32s(1)
		l.Function("sum", sumIn, sumOut, 1).Add(r)
		l.Function("pair", pairIn, sumOut, 1).Add(&inferlog.Record{ID: 2, Inputs: []api.Value{{Data: []byte("x")}, {Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN()))}}})
	})
	r := mustRun(t, g, log, nil)
	if queries, _ := g.received(); r.Queries != 1 || r.Unsent != 1 || r.Same != 1 || len(queries) != 1 || queries[0] != "/sum/predict  [+Inf 2]" {
		t.Errorf("%+v, queries %q", r, queries)
	}
}

// longLog has 5,000 queries.
func longLog(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("sum", sumIn, sumOut, 1)
		for id := range uint64(5000) {
			s.Add(sumQuery(id, 1))
		}
	})
}

func TestGivingUp(t *testing.T) {
	log := longLog(t)
	unreachable := errors.New("connection refused")
	sends := atomic.Int64{}
	_, err := New(comparing(nil), func(context.Context, string, http.Header, []byte) (*Response, error) {
		sends.Add(1)
		return nil, unreachable
	}).Run(t.Context(), []string{log})
	if !errors.Is(err, unreachable) || sends.Load() > 100 {
		t.Errorf("no gateway, after %d queries: %v", sends.Load(), err)
	}
	sends.Store(0)
	refusing := func(status int, body string) Sender {
		return sendTo(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			sends.Add(1)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
	}
	_, err = New(comparing(nil), refusing(http.StatusNotFound, `{"error":"Query processing error","cause":"no function \"sum\"","code":"not_found"}`)).Run(t.Context(), []string{log})
	if err == nil || !strings.Contains(err.Error(), `no function "sum" (not_found)`) || sends.Load() > 100 {
		t.Errorf("no function, after %d queries: %v", sends.Load(), err)
	}
	_, err = New(comparing(nil), refusing(http.StatusNotFound, "<html>not a gateway</html>")).Run(t.Context(), []string{log})
	var unexpected *UnexpectedAnswerError
	if !errors.As(err, &unexpected) || unexpected.Status != "404 Not Found" {
		t.Errorf("another server: %v", err)
	}
}

// A replay that is interrupted returns what it counted.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := newAdder(t)
	g.change = func(sum float32) float32 {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.ids == 200 {
			cancel()
		}
		return sum
	}
	r, err := New(comparing(nil), sendTo(g)).Run(ctx, []string{longLog(t)})
	if !errors.Is(err, context.Canceled) || r.Queries < 100 || r.Queries > 300 || r.Same != r.Queries {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestFilter(t *testing.T) {
	log := sums(t)
	at := func(second int) time.Time { return then.Add(time.Duration(second) * time.Second) }
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 10}, {Filter{Function: "sum"}, 10}, {Filter{Limit: 3}, 3}, {Filter{Since: at(8)}, 3}, {Filter{Until: at(8)}, 7}, {Filter{Since: at(2), Until: at(8), Limit: 4}, 4},
	} {
		p, err := Print(t.Context(), io.Discard, []string{log}, c.f)
		if err != nil || p.Queries != c.want {
			t.Errorf("%+v selects %d queries, %v; want %d", c.f, p.Queries, err, c.want)
		}
	}
	for _, c := range []struct {
		log  string
		f    Filter
		want string
	}{
		{log, Filter{Function: "other"}, "no query of the log is selected: it has 10, of function sum, from 2026-01-02T03:04:06Z to 2026-01-02T03:04:15Z"},
		{log, Filter{Until: then}, "no query of the log is selected"},
		{t.TempDir(), Filter{}, "there are no files of an inference log"},
		{writeLog(t, func(l *inferlog.Log) { l.Function("sum", sumIn, sumOut, 1).Feedback(label(1, "1")) }), Filter{}, "the log has no queries"},
	} {
		_, err := New(Options{Filter: c.f}, sendTo(newAdder(t))).Run(t.Context(), []string{c.log})
		var empty *EmptyError
		if !errors.As(err, &empty) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.f, err, c.want)
		}
	}
}

func TestPrint(t *testing.T) {
	log := []string{sums(t)}
	var out strings.Builder
	if _, err := Print(t.Context(), &out, log, Filter{}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := `{"time":"2026-01-02T03:04:06.000000Z","function":"sum","query_id":1,"context":"user 0","input":[0,0.5],"output":0.5,"default":false,"models":["adder@1"],"confidence":1,"code":"ok","latency_ms":2}`; len(lines) != 16 || lines[0] != want {
		t.Errorf("%d lines\ngot  %s\nwant %s", len(lines), lines[0], want)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	out.Reset()
	if _, err := Print(t.Context(), &out, log, Filter{Limit: 2}); err != nil || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("two queries and the feedback on them: %v, got\n%s", err, out.String())
	}
}

func TestPrintCases(t *testing.T) {
	var out bytes.Buffer
	p, err := PrintCases(t.Context(), &out, []string{sums(t)}, Filter{})
	if err != nil || out.String() != "{\"input\":[0,0.5],\"label\":0.5}\n{\"input\":[1,0.5],\"label\":1.5}\n{\"input\":[2,0.5],\"label\":7}\n{\"input\":[5,0.5],\"label\":5.5}\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
	if p.Queries != 10 || p.Cases != 4 || p.Inexact != 0 || p.Forgotten != 0 {
		t.Errorf("%+v", p)
	}
	// Validation reads what is printed.
	file := filepath.Join(t.TempDir(), "holdout.jsonl")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cases, err := quality.ReadCases(file, api.Signature{Inputs: sumIn, Outputs: sumOut}, 0, 0)
	if err != nil || len(cases) != 4 || string(cases[3].Label[0].Data) != string(float32s(5.5)) || string(cases[3].Inputs[0].Data) != string(float32s(5, 0.5)) {
		t.Errorf("%+v, %v", cases, err)
	}
}

// Damage is counted, and the rest is replayed.
func TestDamagedLog(t *testing.T) {
	log := sums(t)
	files, err := filepath.Glob(filepath.Join(log, "*.xlog"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("XLF1 cut off"); err != nil {
		t.Fatal(err)
	}
	if r := mustRun(t, newAdder(t), log, nil); r.Queries != 10 || r.Damaged != 1 || len(r.Log.Notes) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestPace(t *testing.T) {
	at := []int64{5e6, 6e6, 5.5e6, 9e6} // microseconds; the third was logged late
	far := New(Options{Pace: Pace{Original: true, Speed: 1e-9}}, nil)
	if far.due(math.MinInt64) != 0 || far.due(math.MaxInt64) < 90*365*24*time.Hour {
		t.Error("times that no log has are due at once")
	}
	for _, c := range []struct {
		p    Pace
		want []time.Duration
	}{
		{Pace{PerSecond: 4}, []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond}},
		{Pace{Original: true, Speed: 1}, []time.Duration{0, time.Second, 500 * time.Millisecond, 4 * time.Second}},
		{Pace{Original: true, Speed: 2}, []time.Duration{0, 500 * time.Millisecond, 250 * time.Millisecond, 2 * time.Second}},
		{Pace{}, []time.Duration{0, 0, 0, 0}},
	} {
		r := New(Options{Pace: c.p}, nil)
		for i, micros := range at {
			if got := r.due(micros); got != c.want[i] {
				t.Errorf("%+v: query %d is due at %s, want %s", c.p, i, got, c.want[i])
			}
		}
	}
}

// A query that is due in a quarter of an hour is not sent before, and the wait for it can be interrupted.
func TestKeepsThePace(t *testing.T) {
	for _, pace := range []Pace{{PerSecond: 0.001}, {Original: true, Speed: 0.001}} {
		ctx, cancel := context.WithCancel(t.Context())
		g := newAdder(t)
		var sent atomic.Int64
		g.change = func(sum float32) float32 {
			sent.Add(1)
			cancel()
			return sum
		}
		if _, err := New(comparing(func(o *Options) { o.Pace = pace }), sendTo(g)).Run(ctx, []string{sums(t)}); !errors.Is(err, context.Canceled) || sent.Load() != 1 {
			t.Errorf("%+v: %v, %d queries were sent", pace, err, sent.Load())
		}
	}
}

func TestFeedbackStatus(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		err  error
		want string
	}{
		{200, `{"status":"counted"}`, nil, "counted"}, {202, `{"status":"waiting"}`, nil, "waiting"}, {410, `{"cause":"too late"}`, nil, "refused"},
		{200, `<html>`, nil, "refused"}, {200, `{}`, nil, "not understood"}, {200, `{"status":1}`, nil, "not understood"}, {0, "", io.EOF, "refused"},
	} {
		if got := feedbackStatus(&Response{StatusCode: c.code, Body: []byte(c.body)}, c.err); got != c.want {
			t.Errorf("%d %s, %v: %q, want %q", c.code, c.body, c.err, got, c.want)
		}
	}
}
