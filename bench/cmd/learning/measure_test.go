package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

func TestQuickIsATenth(t *testing.T) {
	whole, quick := config{}, config{quick: true}
	if whole.scaled(3000) != 3000 || quick.scaled(3000) != 300 || whole.lasting(600) != 600 || quick.lasting(600) != 60 {
		t.Error("got", whole.scaled(3000), quick.scaled(3000), whole.lasting(600), quick.lasting(600))
	}
}

// files writes an experiment like the trainer, in the folder that load reads.
func files(t *testing.T, queries int) string {
	t.Helper()
	models := t.TempDir()
	dir := filepath.Join(models, "data", "learning")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	numbers := func(of func(i int) int64) (out []byte) {
		for i := range queries {
			out = binary.LittleEndian.AppendUint64(out, uint64(of(i)))
		}
		return out
	}
	write("part.json", fmt.Appendf(nil, `{"pixels": 2, "queries": %d, "models": [{"name": "good", "what": "a model", "error": 0}, {"name": "bad", "what": "another", "error": 1}]}`, queries))
	write("part.u8", []byte{1, 2, 3, 4, 5, 6})
	write("part.labels.i64", numbers(func(i int) int64 { return int64(i) }))
	write("part.good.i64", numbers(func(i int) int64 { return int64(i) }))
	write("part.bad.i64", numbers(func(i int) int64 { return int64(i) - 1 }))
	return models
}

func TestLoad(t *testing.T) {
	e, err := load(files(t, 3), "part")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{{1, 2}, {3, 4}, {5, 6}}, e.rows); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(e.answers["bad"], []int64{-1, 0, 1}) || !slices.Equal(e.labels, []int64{0, 1, 2}) || !slices.Equal(e.names(), []string{"good", "bad"}) {
		t.Errorf("got %+v", e)
	}
	if got := e.wrong(e.answers["good"]); errorRate(got) != 0 || len(got) != 3 {
		t.Errorf("the good model is wrong: %v", got)
	}
	if e.agreeing(1, 1) != 1 || e.agreeing(1, 7) != 0 {
		t.Error("of query 1, one model says 1, and none 7")
	}
	if err := e.check(1, &prediction{Output: 7}); err == nil || err.Error() != "query 1: output 7, which no model gives" {
		t.Errorf("an answer of no model: %v", err)
	}
	if err := errors.Join(e.check(1, &prediction{Output: 1}), e.check(1, &prediction{Output: noAnswer, Default: true})); err != nil {
		t.Error(err)
	}
}

func TestLoadRefusesWhatDoesNotFit(t *testing.T) {
	if _, err := load(files(t, 4), "part"); err == nil || !strings.Contains(err.Error(), "expected 4 rows of 2") {
		t.Errorf("too few pixels: %v", err)
	}
	models := files(t, 3)
	if err := os.Truncate(filepath.Join(models, "data", "learning", "part.good.i64"), 16); err != nil {
		t.Fatal(err)
	}
	if _, err := load(models, "part"); err == nil || !strings.Contains(err.Error(), "good.i64 has 16 bytes") {
		t.Errorf("too few answers: %v", err)
	}
	if _, err := load(models, "missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
}

// The gateway can read the manifest.
func TestManifest(t *testing.T) {
	e, err := load(files(t, 3), "part")
	if err != nil {
		t.Fatal(err)
	}
	var m manifestText
	cfg := config{models: "/somewhere/with a space"}
	m.model(cfg, e, "good", false, "DEGRADED_WHILE=/a/switch")
	m.model(cfg, e, "bad", true)
	m.function("choice", e.names(), "{name: exp4, eta: 0.1}", "20ms")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "part.yaml"), []byte(m.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Load(dir)
	if err != nil {
		t.Fatalf("%v in\n%s", err, m.String())
	}
	if len(set.Models) != 2 || len(set.Functions) != 1 {
		t.Fatalf("got %+v", set)
	}
	good := set.Models[0]
	if good.Run.Command[1] != "model.py" || good.Run.Env["DEGRADED_WHILE"].Value != "/a/switch" || good.Run.Env["LEARNED"].Value != "part.good.joblib" {
		t.Errorf("got %+v", good.Run)
	}
	if good.Cache == set.Models[1].Cache {
		t.Errorf("both caches are %q", good.Cache)
	}
	if f := set.Functions[0]; f.Policy.Name != "exp4" || f.Policy.Params["eta"] != 0.1 || len(f.Models) != 2 {
		t.Errorf("got %+v", f)
	}
}

// Everything that a model reads is where its manifest is: an isolated replica sees no other part of a temporary directory.
func TestModelsReadOnlyTheirFolder(t *testing.T) {
	models := files(t, 3)
	e, err := load(models, "part")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(filepath.Base(path)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"learned.py", "model.py", "part.bad.joblib", "part.good.joblib"}
	for _, name := range want[:2] {
		write(filepath.Join(models, "learning", name))
	}
	for _, name := range want[2:] {
		write(filepath.Join(e.dir, name))
	}
	var m manifestText
	for _, name := range e.names() {
		m.model(config{models: models}, e, name, false)
	}
	folder := t.TempDir()
	if err := m.copyFiles(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := os.Remove(filepath.Join(e.dir, "part.bad.joblib")); err != nil {
		t.Fatal(err)
	}
	if err := m.copyFiles(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// serve gives every request the same answer and keeps the last request's header.
func serve(t *testing.T, status int, body string) (*client, *http.Header) {
	t.Helper()
	var last http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.Header.Clone()
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	c := newClient(strings.TrimPrefix(s.URL, "http://"), 1)
	t.Cleanup(c.close)
	return c, &last
}

func TestPredict(t *testing.T) {
	c, fields := serve(t, 200, `{"query_id":18446744073709551615,"output":7,"default":false,"confidence":0.6,"models":["a@1","b@2"],"late":["c@1"]}`)
	got, err := c.predict(t.Context(), "f", []byte{1}, "user-1")
	if err != nil {
		t.Fatal(err)
	}
	want := prediction{QueryID: 1<<64 - 1, Output: 7, Confidence: 0.6, Models: []string{"a", "b"}, Late: []string{"c@1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.missing(4) != 2 || fields.Get("Xebec-Context") != "user-1" || fields.Get("Content-Type") != loadgen.Binary {
		t.Errorf("missing %d of 4; sent %v", got.missing(4), *fields)
	}
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	for _, x := range []struct {
		status     int
		body, want string
	}{{503, `{"error":"overloaded"}`, "/f/predict: status 503: {\"error\":\"overloaded\"}"}, {200, "<html>", "answer of /f/predict: "}} {
		c, _ := serve(t, x.status, x.body)
		if _, err := c.predict(t.Context(), "f", nil, ""); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%d %s: %v", x.status, x.body, err)
		}
	}
}

func TestFeedbackMustCount(t *testing.T) {
	c, _ := serve(t, 200, `{"status":"counted"}`)
	if err := c.feedback(t.Context(), "f", 5, 3); err != nil {
		t.Error(err)
	}
	c, _ = serve(t, 200, `{"status":"duplicate"}`)
	if err := c.feedback(t.Context(), "f", 5, 3); err == nil || err.Error() != `feedback of query 5 to f: "duplicate", expected "counted"` {
		t.Errorf("got %v", err)
	}
}

func TestSequenceIsTheSameEachTime(t *testing.T) {
	a, b, c := sequence(500, 30, 1), sequence(500, 30, 1), sequence(500, 30, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) || slices.Min(a) != 0 || slices.Max(a) != 29 {
		t.Errorf("got %v…, %v…, %v…", a[:8], b[:8], c[:8])
	}
}

func TestSummarize(t *testing.T) {
	all := []asked{
		{latencyNanos: 2e6, right: true, got: prediction{Models: []string{"a", "b", "c", "d"}}},
		{latencyNanos: 4e6, right: true, got: prediction{Models: []string{"a", "b", "c"}, Late: []string{"d"}}},
		{latencyNanos: 20e6, got: prediction{Models: []string{"a", "b"}, Late: []string{"c"}, Dropped: []string{"d"}}},
		{latencyNanos: 20e6, got: prediction{Default: true, Late: []string{"a", "b", "c", "d"}}},
	}
	got, err := summarize(all, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := &StragglerPoint{Members: 4, Queries: 4, Latency: Latency{11.5, 4, 20}, Missing: 7.0 / 16, MissingP99: 1, NotAsked: 1.0 / 16, Accuracy: 0.5, Defaults: 0.25}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := summarize(append(all, asked{err: errors.New("cut off")}), 4); err == nil || err.Error() != "1 of 5 queries failed, the first: cut off" {
		t.Errorf("got %v", err)
	}
	if _, err := summarize(nil, 4); err == nil {
		t.Error("a point without queries")
	}
}

func TestParseCounted(t *testing.T) {
	const text = `# TYPE xebec_feedback_total counter
xebec_feedback_total{function="ensemble",result="counted"} 120
xebec_feedback_total{function="ensemble",result="refused"} 7
xebec_feedback_total{function="ensemble",result="late"} 1
xebec_feedback_total{function="other",result="counted"} 9
xebec_feedback_totals{function="ensemble",result="counted"} 5
`
	if got, err := parseCounted(text, "ensemble"); err != nil || got != 120 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseCounted(text, "absent"); err == nil {
		t.Error("a missing metric was read")
	}
	if _, err := parseCounted(strings.Replace(text, "120", "many", 1), "ensemble"); err == nil {
		t.Error("an invalid number was read")
	}
}

func TestAppendFeedback(t *testing.T) {
	got := appendFeedback(appendFeedback(nil, 0, appendPixels(nil, []byte{0, 255}), 6), 1, appendPixels(nil, []byte{16, 7}), -1)
	if string(got) != `{"input":[0,255],"label":6},{"input":[16,7],"label":-1}` {
		t.Errorf("got %s", got)
	}
}

// batches is a gateway that answers queries and feedback in batches and records the requests.
type batches struct {
	queries struct {
		Inputs [][]int `json:"input_batch"`
	}
	feedback struct {
		Observations []struct {
			Input []int
			Label int64
		} `json:"feedback_batch"`
	}
	members string
}

func (b *batches) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	into, one, field := any(&b.feedback), `{"status":"pending"}`, "feedback_results"
	if strings.HasSuffix(r.URL.Path, "/predict") {
		into, one, field = &b.queries, `{"query_id":1,"output":3,"models":[`+b.members+`]}`, "batch_predictions"
	}
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	fmt.Fprintf(w, `{"%s":[%s]}`, field, strings.Repeat(one+",", feedbackBatch-1)+one)
}

// Feedback is for the queried inputs, and no input was queried before.
func TestObserve(t *testing.T) {
	b := &batches{members: `"a@1","b@1"`}
	s := httptest.NewServer(b)
	defer s.Close()
	c := newClient(strings.TrimPrefix(s.URL, "http://"), 1)
	defer c.close()
	x := &teaching{e: &experiment{about: about{Models: make([]Trained, 2)}}, images: 3}
	for i := range 3 {
		x.e.rows, x.e.labels = append(x.e.rows, make([]byte, 10)), append(x.e.labels, int64(i))
		x.e.rows[i][9] = byte(i)
	}
	seen := map[string]bool{}
	for range 5 {
		if err := x.observe(t.Context(), c, 0); err != nil {
			t.Fatal(err)
		}
		for i, o := range b.feedback.Observations {
			if !slices.Equal(o.Input, b.queries.Inputs[i]) || int64(o.Input[9]) != o.Label || seen[fmt.Sprint(o.Input)] {
				t.Fatalf("asked %v, then feedback %+v", b.queries.Inputs[i], o)
			}
			seen[fmt.Sprint(o.Input)] = true
		}
	}
	if len(seen) != 5*feedbackBatch {
		t.Errorf("%d observations", len(seen))
	}
	b.members = `"a@1"`
	if err := x.observe(t.Context(), c, 0); err == nil || !strings.Contains(err.Error(), "only [a@1] took part") {
		t.Errorf("a model is missing: %v", err)
	}
}

func TestMarkedImagesDiffer(t *testing.T) {
	image := make([]byte, 12)
	image[9] = 200
	seen := map[string]bool{}
	for i := range uint64(5000) {
		m := marked(image, i)
		if seen[string(m)] || m[9] != 200 || slices.Max(m[:8]) > 15 {
			t.Fatalf("image %d is %v", i, m)
		}
		seen[string(m)] = true
	}
	if slices.Max(image[:8]) != 0 {
		t.Error("the image itself was marked")
	}
}

func TestTeach(t *testing.T) {
	for _, x := range []struct{ answer, want string }{
		{`{"feedback_results":[{"status":"counted"},{"status":"pending"}]}`, ""},
		{`{"feedback_results":[{"status":"counted"},{"status":"busy"}]}`, ""},
		{`{"feedback_results":[{"status":"counted"},{"status":"unknown"}]}`, `feedback to ensemble: "unknown", expected "counted", "pending" or "busy"`},
		{`{"feedback_results":[]}`, "the answer to a batch of feedback is empty"},
	} {
		c, _ := serve(t, 200, x.answer)
		said := ""
		if err := new(teaching).teach(t.Context(), c, nil); err != nil {
			said = err.Error()
		}
		if said != x.want {
			t.Errorf("%s: got %q, want %q", x.answer, said, x.want)
		}
	}
}
