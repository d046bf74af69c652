package main

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

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/quality"
)

var (
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

// sumQuery is a query of a function that adds numbers; the answer was right.
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

// writeLog makes a log of what fill adds to the streams that it asks for.
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

// sums is a log of ten queries to "sum", of which the fourth failed, with labels for the first three (the third says that it was wrong), a
// "correct" for the sixth and a loss for the seventh.
func sums(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("sum", sumIn, sumOut, 1)
		for id := range uint64(10) {
			r := sumQuery(id+1, float32(id), 0.5)
			if id == 3 {
				r.Outputs, r.Code = nil, api.DeadlineExceeded
			}
			r.Context = []byte(fmt.Sprintf("user %d", id%2))
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

// adder is a gateway with a function and a model that add numbers, of which wrong makes some come out otherwise.
type adder struct {
	*httptest.Server
	wrong func(sum float32) float32 // may be nil

	mu       sync.Mutex
	ids      uint64
	asked    []string // method, path, context and body
	feedback []string
	// sums are the answers by id.
	sums map[uint64]float32
}

func newAdder(t *testing.T) *adder {
	g := &adder{sums: map[uint64]float32{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{function}/predict", g.predict)
	mux.HandleFunc("POST /{function}/feedback", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var f struct {
			ID uint64 `json:"query_id"`
		}
		if err := json.Unmarshal(body, &f); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		_, known := g.sums[f.ID]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"Query processing error","cause":"no such query","code":"not_found"}`)
			return
		}
		_, rest, _ := strings.Cut(string(body), ",")
		g.feedback = append(g.feedback, fmt.Sprintf("%s %v %s", r.PathValue("function"), g.sums[f.ID], rest))
		fmt.Fprintf(w, `{"query_id":%d,"status":"counted"}`, f.ID)
	})
	mux.HandleFunc("POST /v2/models/{model}/versions/{version}/infer", func(w http.ResponseWriter, r *http.Request) { g.infer(t, w, r) })
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

// took returns what was asked and told, sorted: several workers send.
func (g *adder) took() (asked, feedback []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.asked)
	slices.Sort(g.feedback)
	return slices.Clone(g.asked), slices.Clone(g.feedback)
}

func (g *adder) add(numbers []float32) (id uint64, sum float32) {
	for _, n := range numbers {
		sum += n
	}
	if g.wrong != nil {
		sum = g.wrong(sum)
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
	g.asked = append(g.asked, fmt.Sprintf("%s %s %v", r.URL.Path, q.Context, q.Input))
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

// infer answers as the gateway does: the requests are read, and the answers written, by its own codec.
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
	answer, n, err := oip.AppendResponse(nil, "adder", "2", &req, &sig, 1, func(int, int) *api.Value { return &out })
	if err != nil {
		t.Error(err)
	}
	w.Header().Set(inferHeader, strconv.Itoa(n))
	_, _ = w.Write(answer) // a client that has gone fails its own test
}

// oneQuery is where the codec puts one query.
type oneQuery []api.Value

func (q oneQuery) Next() ([]api.Value, error) { return q, nil }

// runReplay runs the command alone.
func runReplay(ctx context.Context, server string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }, now: func() time.Time { return then.Add(time.Hour) }, http: newHTTPClient(), server: server}
	defer c.http.CloseIdleConnections()
	cmd := c.replayCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

func mustReplay(t *testing.T, server string, args ...string) (report replayReport, stderr string) {
	t.Helper()
	out, stderr, err := runReplay(t.Context(), server, append(args, "-o", "json", "--rate", "max")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return report, stderr
}

func TestReplayToTheFunction(t *testing.T) {
	g := newAdder(t)
	g.wrong = func(sum float32) float32 {
		switch sum {
		case 1.5: // labelled: an error now
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
	r, stderr := mustReplay(t, g.URL, sums(t), "--feedback")
	if r.Queries != 10 || r.Same != 6 || r.Different != 1 || r.Lost != 2 || r.Gained != 1 || r.Neither != 0 || r.Failed != 1 || r.Defaults != 1 {
		t.Errorf("%+v", r)
	}
	if want := 3.0 / 9; math.Abs(r.Difference-want) > 1e-9 {
		t.Errorf("difference %v, want %v", r.Difference, want)
	}
	if a := r.Accuracy; a == nil || a.Labels != 4 || a.Then != 0.75 || a.Now != 0.75 { // 1, 2 and 6 were right; 1, 3 and 6 are
		t.Errorf("accuracy %+v", a)
	}
	if len(r.Failures) != 1 || r.Failures[0].Code != "model_error" || r.Failures[0].Count != 1 || r.Failures[0].Example != "the model failed on this input" {
		t.Errorf("failures %+v", r.Failures)
	}
	if len(r.Examples) != 1 || r.Examples[0] != (replayExample{QueryID: 3, Then: "2.5", Now: "7"}) {
		t.Errorf("examples %+v", r.Examples)
	}
	if r.Latency.Then.P50 < 1.8 || r.Latency.Then.P50 > 2.2 || r.Latency.Now.P99 <= 0 {
		t.Errorf("latency %+v", r.Latency)
	}
	asked, feedback := g.took()
	want := []string{`sum 0.5 "label":0.5}`, `sum 5.5 "correct":true,"context":"u"}`, `sum 6.5 "loss":0.25}`, `sum 7 "label":7}`}
	if !slices.Equal(feedback, want) || r.Feedback["counted"] != 4 || r.Feedback["no answer to be about"] != 1 || r.Unjoined != 1 {
		t.Errorf("feedback %q, report %+v, %d without a query", feedback, r.Feedback, r.Unjoined)
	}
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
	if len(asked) != 10 || asked[0] != "/sum/predict user 0 [0 0.5]" || asked[9] != "/sum/predict user 1 [9 0.5]" {
		t.Errorf("asked %q", asked)
	}
}

func TestReplayToAnotherFunctionAndModel(t *testing.T) {
	g := newAdder(t)
	log := sums(t)
	if r, _ := mustReplay(t, g.URL, log, "--to", "total", "--limit", "3", "--function", "sum"); r.Queries != 3 || r.Same != 3 || r.Difference != 0 {
		t.Errorf("%+v", r)
	}
	if asked, _ := g.took(); !strings.HasPrefix(asked[0], "/total/predict ") {
		t.Errorf("asked %q", asked)
	}
	if r, _ := mustReplay(t, g.URL, log, "--model", "adder@2"); r.Queries != 10 || r.Same != 9 || r.Gained != 1 || r.Accuracy.Labels != 4 {
		t.Errorf("%+v", r)
	}
	_, _, err := runReplay(t.Context(), g.URL, log, "--model", "adder@3", "--rate", "max")
	if err == nil || !strings.Contains(err.Error(), "none of 10 queries was answered") {
		t.Errorf("a version that is not there: %v", err)
	}
	two := writeLog(t, func(l *inferlog.Log) {
		l.Function("a", sumIn, sumOut, 1).Add(sumQuery(1, 1))
		l.Function("b", sumIn, sumOut, 1).Add(sumQuery(2, 1))
	})
	_, _, err = runReplay(t.Context(), g.URL, two, "--to", "a")
	var usage usageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "functions a and b") {
		t.Errorf("queries of two functions to one: %v", err)
	}
	if r, _ := mustReplay(t, g.URL, two); r.Queries != 2 || r.Same != 2 {
		t.Errorf("queries of two functions to each its own: %+v", r)
	}
}

func TestReplayPassesJudgement(t *testing.T) {
	g := newAdder(t)
	g.wrong = func(sum float32) float32 {
		if sum > 8 {
			return -1
		}
		return sum
	}
	log := sums(t) // 2 of 9 differ
	out, _, err := runReplay(t.Context(), g.URL, log, "--max-difference", "0.2", "--rate", "max")
	if err == nil || !strings.Contains(err.Error(), "22.22% of the answers differ from the log's: --max-difference allows 20%") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"queries", "different", "22.22% of those that had an output", "accuracy", "of 4 labels", "p99", "query 9: -1, and 8.5 in the log"} {
		if !strings.Contains(out, want) {
			t.Errorf("the report has no %q:\n%s", want, out)
		}
	}
	if _, _, err := runReplay(t.Context(), g.URL, log, "--max-difference", "0.25", "--rate", "max"); err != nil {
		t.Error(err)
	}
	if r, _ := mustReplay(t, g.URL, log, "--compare=false"); r.Queries != 10 || r.Same+r.Different+r.Lost+r.Gained+r.Neither != 0 || r.Accuracy != nil {
		t.Errorf("not compared: %+v", r)
	}
	none := writeLog(t, func(l *inferlog.Log) {
		r := sumQuery(1, 2)
		r.Outputs, r.Default = nil, true
		l.Function("sum", sumIn, sumOut, 1).Add(r)
	})
	if _, _, err := runReplay(t.Context(), g.URL, none, "--max-difference", "1"); err == nil || !strings.Contains(err.Error(), "no query of the log has an output") {
		t.Errorf("nothing to compare: %v", err)
	}
}

// Numbers that JSON lacks go as raw bodies where that is possible.
func TestReplayOfNonFiniteNumbers(t *testing.T) {
	g := newAdder(t)
	g.wrong = func(float32) float32 { return 1 }
	log := writeLog(t, func(l *inferlog.Log) {
		r := sumQuery(1, float32(math.Inf(1)), 2)
		r.Outputs[0].Data = float32s(1)
		l.Function("sum", sumIn, sumOut, 1).Add(r)
		l.Function("pair", pairIn, sumOut, 1).Add(&inferlog.Record{ID: 2, Inputs: []api.Value{{Data: []byte("x")}, {Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN()))}}})
	})
	r, _ := mustReplay(t, g.URL, log)
	if asked, _ := g.took(); r.Queries != 1 || r.Unsent != 1 || r.Same != 1 || len(asked) != 1 || asked[0] != "/sum/predict  [+Inf 2]" {
		t.Errorf("%+v, asked %q", r, asked)
	}
}

func TestReplayGivesUp(t *testing.T) {
	log := writeLog(t, func(l *inferlog.Log) {
		s := l.Function("sum", sumIn, sumOut, 1)
		for id := range uint64(5000) {
			s.Add(sumQuery(id, 1))
		}
	})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, _, err := runReplay(t.Context(), gone.URL, log, "--rate", "max")
	if err == nil || !strings.Contains(err.Error(), "no gateway answers at") {
		t.Errorf("no gateway: %v", err)
	}
	var asked atomic.Int64
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"Query processing error","cause":"no function \"sum\"","code":"not_found"}`)
	}))
	defer refusing.Close()
	_, _, err = runReplay(t.Context(), refusing.URL, log, "--rate", "max")
	if err == nil || !strings.Contains(err.Error(), `no function "sum" (not_found)`) || asked.Load() > 100 {
		t.Errorf("no function, asked %d times: %v", asked.Load(), err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if _, _, err = runReplay(t.Context(), other.URL, log, "--rate", "max"); err == nil || !strings.Contains(err.Error(), "is --server right?") {
		t.Errorf("something else: %v", err)
	}
	// Interrupted, it says what it knows.
	ctx, cancel := context.WithCancel(t.Context())
	g := newAdder(t)
	g.wrong = func(sum float32) float32 {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.ids == 200 {
			cancel()
		}
		return sum
	}
	out, _, err := runReplay(ctx, g.URL, log, "--rate", "max")
	if !errors.Is(err, context.Canceled) || !strings.Contains(out, "same output") {
		t.Errorf("interrupted: %v\n%s", err, out)
	}
}

func TestReplayRefuses(t *testing.T) {
	log, empty := sums(t), t.TempDir()
	text := filepath.Join(empty, "queries.jsonl")
	if err := os.WriteFile(text, []byte(strings.Repeat("{\"input\": 1}\n", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  string
		want  string
		usage bool
	}{
		{"", "where is the inference log?", true},
		{"LOG --to a --model b", "--to and --model do not go together", true},
		{"LOG --print --to a", "nothing is sent", true},
		{"LOG --print --feedback", "nothing is sent", true},
		{"LOG --cases", "give both", true},
		{"LOG --model b --feedback", "feedback is for functions", true},
		{"LOG --to A", "lower-case letters", true},
		{"LOG --model b@@", "--model:", true},
		{"LOG --rate fast", "expected a number of queries a second, original, or max", true},
		{"LOG --rate 0", "expected a number of queries a second", true},
		{"LOG --speed 2", "--speed goes with --rate original", true},
		{"LOG --rate original --speed 0", "expected more than 0", true},
		{"LOG --limit -1", "expected 0 (all) or more", true},
		{"LOG --concurrency 0", "expected 1 to 1024", true},
		{"LOG --tolerance -1", "expected 0 or more", true},
		{"LOG --max-difference 2", "expected 0 to 1", true},
		{"LOG --max-difference 0 --compare=false", "leaves out", true},
		{"LOG --since yesterday", "expected a time such as", true},
		{"LOG --since 1h --until 2h", "is not before", true},
		{"LOG -o xml", "expected table, json, yaml", true},
		{"LOG/none", "no such file", false},
		{"EMPTY", "there are no files of an inference log", false},
		{"EMPTY/queries.jsonl", "is not an inference log", false},
		{"LOG --function other", "it has 10, of function sum, from 2026-01-02T03:04:06Z to 2026-01-02T03:04:15Z", false},
		{"LOG --until 2026-01-01 --print", "see --function, --since and --until", false},
		{"LOG --print --cases --since 2026-01-02T03:04:13Z", "none of 3 queries has a label", false},
	} {
		args := strings.Fields(strings.NewReplacer("LOG", log, "EMPTY", empty).Replace(c.args))
		_, _, err := runReplay(t.Context(), "127.0.0.1:1", args...)
		var usage usageError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &usage) != c.usage {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
	if _, _, err := runReplay(t.Context(), "127.0.0.1:1", writeLog(t, func(*inferlog.Log) {})); err == nil {
		t.Error("a log of nothing is replayed")
	}
}

func TestReplayPrints(t *testing.T) {
	log := sums(t)
	out, stderr, err := runReplay(t.Context(), "", log, "--print")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 16 || stderr != "" {
		t.Fatalf("%v, %d lines, %s", err, len(lines), stderr)
	}
	if want := `{"time":"2026-01-02T03:04:06.000000Z","function":"sum","query_id":1,"context":"user 0","input":[0,0.5],"output":0.5,"default":false,"models":["adder@1"],"confidence":1,"code":"ok","latency_ms":2}`; lines[0] != want {
		t.Errorf("got  %s\nwant %s", lines[0], want)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	out, _, err = runReplay(t.Context(), "", log, "--print", "--limit", "2")
	if n := strings.Count(out, "\n"); err != nil || n != 4 { // with their feedback
		t.Errorf("%v, %d lines:\n%s", err, n, out)
	}
	out, stderr, err = runReplay(t.Context(), "", log, "--print", "--cases")
	if err != nil || out != "{\"input\":[0,0.5],\"label\":0.5}\n{\"input\":[1,0.5],\"label\":1.5}\n{\"input\":[2,0.5],\"label\":7}\n{\"input\":[5,0.5],\"label\":5.5}\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if stderr != "4 of 10 queries have a label\n" {
		t.Errorf("stderr: %s", stderr)
	}
	// What is printed is what validation takes.
	file := filepath.Join(t.TempDir(), "holdout.jsonl")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	cases, err := quality.ReadCases(file, api.Signature{Inputs: sumIn, Outputs: sumOut}, 0, 0)
	if err != nil || len(cases) != 4 || string(cases[3].Label[0].Data) != string(float32s(5.5)) || string(cases[3].Inputs[0].Data) != string(float32s(5, 0.5)) {
		t.Errorf("%+v, %v", cases, err)
	}
}

// Damage is said, and the rest is replayed.
func TestReplayOfADamagedLog(t *testing.T) {
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
	r, stderr := mustReplay(t, newAdder(t).URL, log)
	if r.Queries != 10 || r.Damaged != 1 || !strings.Contains(stderr, "left out of the log, for they could not be read: 1 parts, the first: ") {
		t.Errorf("%+v, %s", r, stderr)
	}
}

func TestPace(t *testing.T) {
	at := []int64{5e6, 6e6, 5.5e6, 9e6} // microseconds; the third was logged late
	far := pace{original: true, speed: 1e-9}
	if far.due(math.MinInt64) != 0 || far.due(math.MaxInt64) < 90*365*24*time.Hour {
		t.Error("times that no log has are due at once")
	}
	for _, c := range []struct {
		p    pace
		want []time.Duration
	}{
		{pace{perSecond: 4}, []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond}},
		{pace{original: true, speed: 1}, []time.Duration{0, time.Second, 500 * time.Millisecond, 4 * time.Second}},
		{pace{original: true, speed: 2}, []time.Duration{0, 500 * time.Millisecond, 250 * time.Millisecond, 2 * time.Second}},
		{pace{}, []time.Duration{0, 0, 0, 0}},
	} {
		for i, micros := range at {
			if got := c.p.due(micros); got != c.want[i] {
				t.Errorf("%+v: query %d is due at %s, want %s", c.p, i, got, c.want[i])
			}
		}
	}
}

// A query that is due in a quarter of an hour is not sent before, and whoever waits for it can be interrupted.
func TestReplayKeepsItsRate(t *testing.T) {
	for _, args := range [][]string{{"--rate", "0.001"}, {"--rate", "original", "--speed", "0.001"}} {
		ctx, cancel := context.WithCancel(t.Context())
		g := newAdder(t)
		var asked atomic.Int64
		g.wrong = func(sum float32) float32 {
			asked.Add(1)
			cancel()
			return sum
		}
		if _, _, err := runReplay(ctx, g.URL, append(args, sums(t))...); !errors.Is(err, context.Canceled) || asked.Load() != 1 {
			t.Errorf("%v: %v, %d queries were sent", args, err, asked.Load())
		}
	}
}

func TestSameOutput(t *testing.T) {
	one := func(d api.DType, shape ...int64) []api.TensorSpec {
		return []api.TensorSpec{{Name: "y", DType: d, Shape: shape}}
	}
	two := []api.TensorSpec{{Name: "a", DType: api.Float64}, {Name: "b", DType: api.Int64}}
	for _, c := range []struct {
		specs []api.TensorSpec
		a, b  string
		want  bool
	}{
		{one(api.Float32), "1", "1.0000001", true},
		{one(api.Float32), "1", "1.0001", false},
		{one(api.Float32), "1000000", "1000000.5", true}, // as a part
		{one(api.Float32), "0", "1e-7", true},            // absolutely
		{one(api.Float32), "null", "null", true},
		{one(api.Float32), "null", "0", false},
		{one(api.Float32, 2), "[1,2]", "[1, 2.0]", true},
		{one(api.Float32, 2), "[1,2]", "[1]", false},
		{one(api.Float32, 2), "[1,2]", "1", false},
		{one(api.Float32, 2), "1", "[1,2]", false},
		{one(api.Int64), "1000000", "1000001", false},
		{one(api.Int64), "9007199254740993", "9007199254740992", false},
		{one(api.Int64), "7", "7.0", true},
		{one(api.Int64), "7", `"7"`, false},
		{one(api.Bytes), `"YQ=="`, `"YQ\u003d="`, true},
		{one(api.Bytes), `"YQ=="`, `"Yg=="`, false},
		{one(api.Bool), "true", "false", false},
		{one(api.Bool), "true", "{}", false},
		{one(api.Bool), "true", "tru", false},
		{two, `{"a":1,"b":2}`, `{"b":2,"a":1.0000001}`, true},
		{two, `{"a":1,"b":2}`, `{"a":1,"b":2.0000001}`, false},
		{two, `{"a":1,"b":2}`, `{"a":1}`, false},
		{two, `{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{two, `{"a":1,"b":2}`, `[1,2]`, false},
	} {
		if got := sameOutput(c.specs, []byte(c.a), []byte(c.b), defaultTolerance); got != c.want {
			t.Errorf("%v: %s and %s: %v", c.specs, c.a, c.b, got)
		}
	}
}

// What is sent to a model is what the gateway's own codec reads, and its answers are understood.
func TestInferRoundTrip(t *testing.T) {
	s := &inferlog.Schema{
		Function: "f",
		Inputs:   []api.TensorSpec{{Name: "text", DType: api.Bytes}, {Name: "m", DType: api.Int16, Shape: []int64{2, -1}}, {Name: "words", DType: api.Bytes, Shape: []int64{-1}}},
		Outputs:  []api.TensorSpec{{Name: "text", DType: api.Bytes}, {Name: "p", DType: api.Float64, Shape: []int64{-1}}},
	}
	in := []api.Value{{Data: []byte("\x00\xff")}, {Data: []byte("abcdefgh"), Dims: []int64{2, 2}}, {Data: []byte("\x01\x00\x00\x00x\x00\x00\x00\x00"), Dims: []int64{2}}}
	body, jsonBytes := appendInfer(nil, s, in)
	sig := api.Signature{Inputs: s.Inputs, Outputs: s.Outputs}
	var req oip.Request
	got := oneQuery{{}, {}, {}}
	if err := req.Parse(body, jsonBytes, &sig, got, 1); err != nil {
		t.Fatalf("%s: %v", body[:jsonBytes], err)
	}
	for i := range in {
		if string(in[i].Data) != string(got[i].Data) || !slices.Equal(in[i].Dims, got[i].Dims) {
			t.Errorf("input %d: sent %v, read %v", i, in[i], got[i])
		}
	}
	out := []api.Value{{Data: []byte("hi")}, {Data: make([]byte, 16), Dims: []int64{2}}}
	answer, n, err := oip.AppendResponse(nil, "m", "1", &req, &sig, 1, func(_, k int) *api.Value { return &out[k] })
	if err != nil {
		t.Fatal(err)
	}
	text, err := inferOutput(answer, n, s)
	if err != nil || string(text) != `{"text":"aGk=","p":[0,0]}` {
		t.Errorf("%s, %v", text, err)
	}
	rapid.Check(t, func(t *rapid.T) { // a server that answers anything
		b := slices.Clone(answer)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] = rapid.Byte().Draw(t, "byte")
		if text, err := inferOutput(b, rapid.IntRange(-1, len(b)+1).Draw(t, "json"), s); err == nil && !json.Valid(text) {
			t.Fatalf("%q", text)
		}
	})
}

func TestLatencies(t *testing.T) {
	for v := int64(0); v < 1<<40; v = v*9/8 + 1 {
		var l latencies
		l.add(v)
		if got := l.quantile(0.5) * 1e3; math.Abs(got-float64(v)) > 0.0625*float64(v) {
			t.Errorf("%d µs are taken for %v", v, got)
		}
	}
	var l latencies
	if l.quantile(0.99) != 0 {
		t.Error("no times have a quantile")
	}
	for i := range int64(1000) {
		l.add(i * 1000)
	}
	if p := l.quantile(0.99); math.Abs(p-990) > 62 {
		t.Errorf("p99 of 0 to 999 ms is %v", p)
	}
	l.add(-5)
	l.add(math.MaxInt64)
}

// What is remembered is bounded by number and by size, and the newest stays.
func TestWindow(t *testing.T) {
	var w window
	for id := range uint64(maxRemembered + 100) {
		w.put(&remembered{id: id})
	}
	if len(w.byID) != maxRemembered || w.forgotten != 100 || w.byID[99] != nil || w.byID[100] == nil {
		t.Errorf("%d remembered, %d forgotten", len(w.byID), w.forgotten)
	}
	for id := range uint64(maxRemembered * 3) {
		w.put(&remembered{id: 1e9 + id})
	}
	if len(w.byID) != maxRemembered || len(w.queue) > 2*maxRemembered+2 {
		t.Errorf("%d remembered, a queue of %d", len(w.byID), len(w.queue))
	}
	big := remembered{id: 7, then: make([]byte, maxRememberedBytes)}
	w.put(&big)
	if len(w.byID) != 1 || w.byID[7] != &big {
		t.Errorf("%d remembered", len(w.byID))
	}
	w.put(&remembered{id: 8})
	w.grow(w.byID[8], 1000)
	if len(w.byID) != 1 || w.bytes != 256+1000 {
		t.Errorf("%d remembered, %d bytes", len(w.byID), w.bytes)
	}
}

// A query that is in the log twice is remembered once, and forgotten with the right one.
func TestWindowWithOneIDTwice(t *testing.T) {
	var w window
	first, second := &remembered{id: 1}, &remembered{id: 1}
	w.put(first)
	w.put(second)
	for id := range uint64(maxRemembered - 1) {
		w.put(&remembered{id: 10 + id})
	}
	if w.byID[1] != second {
		t.Error("the second one was forgotten with the first")
	}
}
