package native

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// fixture is the dialect over a path with one function, "f".
type fixture struct {
	t     *testing.T
	p     *query.Path
	local *dialect.Local
	fn    *query.Function
}

// serve makes function "f" over model "m@1", whose queries go to submit.
func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item), change ...func(*fixture)) *fixture {
	t.Helper()
	start := time.Now()
	f := &fixture{t: t, p: query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})}
	f.fn = &query.Function{
		Name: "f", SLO: time.Minute, Candidates: []query.Candidate{{Model: model("m", sig, submit), Queue: 1}},
		Stats: new(obs.Endpoint), Learning: new(obs.Learning), Losses: make([]obs.Loss, 3),
	}
	for _, c := range change {
		c(f)
	}
	f.p.Publish(&query.Table{Functions: map[string]*query.Function{"f": f.fn}})
	f.local = dialect.NewLocal(f.p, Dialect{})
	t.Cleanup(func() {
		if n := f.p.Open(); n != 0 {
			t.Errorf("%d requests are open", n)
		}
	})
	return f
}

func model(name string, sig api.Signature, submit func(it *scheduler.Item)) *query.Model {
	m := query.NewModel(api.ModelID{Name: name, Version: "1"}, sig, &querytest.Lane{Submit: submit}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	return m
}

func withDefault(v string) func(*fixture) { return func(f *fixture) { f.fn.Default = []byte(v) } }

// ensemble makes the function one of exp4 over a, b and c, which say so.
func ensemble(a, b, c func(it *scheduler.Item)) func(*fixture) {
	return func(f *fixture) {
		p, err := selection.New("exp4", nil, []string{"a", "b", "c"})
		if err != nil {
			f.t.Fatal(err)
		}
		sig := f.fn.Candidates[0].Model.Signature
		f.fn.Candidates = []query.Candidate{{Model: model("a", sig, a)}, {Model: model("b", sig, b)}, {Model: model("c", sig, c)}}
		f.fn.Selects, f.fn.Mode, f.fn.Selector = true, p.Mode(), learned.New(learned.Config{}).Declare("f", p, []string{"a", "b", "c"})
	}
}

func says(v int64) func(*scheduler.Item) {
	return func(it *scheduler.Item) { querytest.End(it, api.OK, querytest.Int64(v)) }
}

func fails(code api.Code) func(*scheduler.Item) {
	return func(it *scheduler.Item) { querytest.End(it, code) }
}

// post sends a message with header fields, given as name, value, ….
func (f *fixture) post(path, body string, header ...string) (*dialect.Answer, string) {
	f.t.Helper()
	m := &dialect.Message{Method: "POST", Path: path, Header: map[string]string{}, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		m.Header[header[i]] = header[i+1]
	}
	a, err := f.local.Do(f.t.Context(), m)
	if err != nil {
		f.t.Fatal(err)
	}
	if a.ContentType != octetStream && !strings.HasPrefix(a.ContentType, "image/") && (!json.Valid(a.Body) || a.ContentType != dialect.JSON) {
		f.t.Errorf("%s is answered in %q with %s", body, a.ContentType, a.Body)
	}
	return a, string(a.Body)
}

// want posts and expects a status and a text, in which ID is any query id.
func (f *fixture) want(path, body string, status int, text string, header ...string) (id uint64) {
	f.t.Helper()
	a, got := f.post(path, body, header...)
	var parsed struct {
		ID uint64 `json:"query_id"`
	}
	if err := json.Unmarshal(a.Body, &parsed); err != nil {
		f.t.Errorf("%s: %v", got, err)
	}
	if text = strings.ReplaceAll(text, "ID", fmt.Sprint(parsed.ID)); a.Status != status || got != text {
		f.t.Errorf("%s is answered\n%d %s, want\n%d %s", body, a.Status, got, status, text)
	}
	return parsed.ID
}

const (
	predict = "/f/predict"
	input   = `{"input":[1,2,3,4.5]}`
)

func TestPredictAnswersOneInput(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	f.want(predict, input, 200, `{"query_id":ID,"output":10,"default":false,"confidence":1,"models":["m@1"]}`)
	if r := f.fn.Stats.Read(); r.Codes[api.OK] != 1 || r.Queries != 1 {
		t.Errorf("counted %+v", r)
	}
}

func TestPredictAnswersABatchInOrderAlsoABatchOfOne(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	_, body := f.post(predict, `{"input_batch":[[1,0,0,0],[2,0,0,0],[3,0,0,0]]}`)
	var got struct {
		Batch []struct{ Output int } `json:"batch_predictions"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || fmt.Sprint(got.Batch) != "[{1} {2} {3}]" {
		t.Errorf("answer %s: %v", body, err)
	}
	if _, body = f.post(predict, `{"input_batch":[[7,0,0,0]]}`); !strings.HasPrefix(body, `{"batch_predictions":[{`) {
		t.Errorf("a batch of one is answered %s", body)
	}
	// The next single request must not be answered as a batch.
	if _, body = f.post(predict, string(make([]byte, 16)), "Content-Type", "application/octet-stream"); !strings.HasPrefix(body, `{"query_id"`) {
		t.Errorf("a raw body after a batch is answered %s", body)
	}
}

func TestSeveralOutputsAreAnObject(t *testing.T) {
	sig := querytest.Floats4
	sig.Outputs = append(sig.Outputs[:1:1], api.TensorSpec{Name: "text", DType: api.Bytes})
	f := serve(t, sig, func(it *scheduler.Item) { querytest.End(it, api.OK, querytest.Int64(3), []byte("hi")) })
	f.want(predict, input, 200, `{"query_id":ID,"output":{"output":3,"text":{"b64":"aGk="}},"default":false,"confidence":1,"models":["m@1"]}`)
}

func TestRawBodyIsTheInput(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(41))
	raw = append(raw, make([]byte, 12)...)
	f.want(predict, string(raw), 200, `{"query_id":ID,"output":41,"default":false,"confidence":1,"models":["m@1"]}`, "Content-Type", "application/octet-stream")
	if a, body := f.post(predict, "short", "Content-Type", "application/octet-stream"); a.Status != 400 || !strings.Contains(body, "5 bytes: expected 16") {
		t.Errorf("a short body is answered %d %s", a.Status, body)
	}
}

// TestALargeRawBodyIsNotCopied: the query has the caller's bytes, and the caller waits until the scheduler has released them.
func TestALargeRawBodyIsNotCopied(t *testing.T) {
	body := strings.Repeat("x", 2*borrowBytes)
	var same, released atomic.Bool
	var late *scheduler.Item
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) {
		same.Store(len(it.Inputs[0].Data) == len(body))
		late = it
		it.Owner.Answered(it, api.DeadlineExceeded) // the batch goes on
		go func() {
			released.Store(true)
			it.Owner.Released(it, api.OK)
		}()
	}, withDefault("null"))
	f.want(predict, body, 200, `{"query_id":ID,"output":null,"default":true,"default_explanation":"`+api.DeadlineExceeded.Reason()+`","confidence":0,"models":[]}`,
		"Content-Type", "text/plain")
	if !same.Load() || !released.Load() {
		t.Errorf("the query had the body: %v; it was released: %v", same.Load(), released.Load())
	}
	if late.Inputs != nil {
		t.Error("the item keeps its inputs")
	}
}

// A body of bytes without their type is the first mistake with curl --data-binary and with an upload form.
func TestBytesWithoutTheirType(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	const hint = ": send JSON, or bytes with the Content-Type application/octet-stream, text/plain, image/…, audio/… or video/…"
	for _, c := range []struct {
		name, kind, body, want string
	}{
		{"curl's default", "application/x-www-form-urlencoded", "\x89PNG\r\n", `(byte 0); the body is read as JSON, because its Content-Type is application/x-www-form-urlencoded` + hint},
		{"none", "", "hello", `the body is read as JSON, because it has no Content-Type` + hint},
		{"a long one", strings.Repeat("x", 100) + "/y", "hello", strings.Repeat("x", 64) + "…" + hint},
		{"JSON", "application/json", "hello", `(byte 0)"`},
		{"almost JSON", "application/x-www-form-urlencoded", ` {"input":[1`, `(byte 12)"`},
		{"a list", "", "[1", `found an array (byte 0)"`},
		{"another value", "", " 7", `found 7 (byte 1)"`},
		{"empty", "", "", `(byte 0)"`},
	} {
		if a, body := f.post(predict, c.body, "Content-Type", c.kind); a.Status != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s lacks %s", c.name, a.Status, body, c.want)
		}
	}
	if _, body := f.post("/f/feedback", "hello", "Content-Type", "text/plain"); strings.Contains(body, "octet-stream") {
		t.Errorf("feedback is JSON only: %s", body)
	}
}

func TestErrorsSayWhatWasWrong(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	for _, c := range []struct {
		name, path, body string
		status           int
		want             []string
	}{
		{"not JSON", predict, `{"input":`, 400, []string{`"error":"Json error"`, `"code":"invalid_argument"`}},
		{"wrong length", predict, `{"input":[1,2]}`, 400, []string{`"error":"Query processing error"`, "4", "2"}},
		{"wrong type", predict, `{"input":["a",2,3,4]}`, 400, []string{"input[0]"}},
		{"no input", predict, `{}`, 400, []string{"input_batch"}},
		{"too many", predict, `{"input_batch":[` + strings.TrimSuffix(strings.Repeat("[1,2,3,4],", 9), ",") + `]}`, 400, []string{"more than 8 inputs"}},
		{"unknown function", "/g/predict", input, 404, []string{"no function", `\"g\"`}},
		{"unknown model", predict, `{"input":[1,2,3,4],"models":["z"]}`, 400, []string{"is no candidate of function f: expected some of m@1"}},
		{"unknown version", predict, `{"input":[1,2,3,4],"version":"9"}`, 400, []string{"has the version"}},
		{"empty version", predict, `{"input":[1,2,3,4],"version":""}`, 400, []string{"has the version"}},
		{"no default", predict, `{"input":[1,2,3,4],"min_confidence":0.3}`, 400, []string{"no default output"}},
		{"long context", predict, `{"input":[1,2,3,4],"context":"` + strings.Repeat("x", 300) + `"}`, 400, []string{"300 bytes"}},
		{"feedback to nothing", "/g/feedback", `{"query_id":1,"label":1}`, 404, []string{"no function"}},
	} {
		a, body := f.post(c.path, c.body)
		if a.Status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, a.Status, c.status, body)
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s lacks %s", c.name, body, want)
			}
		}
	}
	for _, slo := range []string{"-3", "0", "NaN", "soon", "600001"} {
		if a, body := f.post(predict, input, "Xebec-Slo-Ms", slo); a.Status != 400 || !strings.Contains(body, "Xebec-Slo-Ms") {
			t.Errorf("an SLO of %s is answered %d %s", slo, a.Status, body)
		}
	}
	if r := f.fn.Stats.Read(); r.Codes[api.InvalidArgument] != 10 {
		t.Errorf("%d requests are counted as malformed, want 10", r.Codes[api.InvalidArgument])
	}
}

// TestHeadersOfARequest: Xebec-Slo-Ms is the queries' deadline, and Xebec-Context goes before the body's context.
func TestHeadersOfARequest(t *testing.T) {
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if took := time.Duration(it.Deadline - it.Arrived); took != 1500*time.Millisecond || string(it.Context) != "bob" {
			t.Errorf("the query has %v and the context %q", took, it.Context)
		}
		querytest.Sum(it)
	})
	f.post(predict, `{"input":[1,2,3,4],"context":"ann"}`, "Xebec-Slo-Ms", "1500", "Xebec-Context", "bob")
}

func TestFailuresBecomeTheDefaultOrAStatus(t *testing.T) {
	var code atomic.Int32
	submit := func(it *scheduler.Item) { querytest.End(it, api.Code(code.Load())) }
	plain := serve(t, querytest.Floats4, submit)
	def := serve(t, querytest.Floats4, submit, withDefault("-1"))
	for c, want := range map[api.Code]int{api.DeadlineExceeded: 504, api.Overloaded: 503, api.NoReplica: 503, api.ModelError: 502, api.BadOutput: 502, api.ReplicaLost: 502} {
		code.Store(int32(c))
		plain.want(predict, input, want, `{"error":"Query processing error","cause":"`+c.Reason()+`","code":"`+c.String()+`"}`)
		a, _ := plain.post(predict, input)
		if (want == 503) != (len(a.Fields) == 1 && a.Fields[0].Name == "Retry-After") {
			t.Errorf("%s: status %d with %v", c, want, a.Fields)
		}
		def.want(predict, input, 200, `{"query_id":ID,"output":-1,"default":true,"default_explanation":"`+c.Reason()+`","confidence":0,"models":[]}`)
	}
}

func TestABatchInWhichSomethingSucceededIsAnAnswer(t *testing.T) {
	n := 0
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if n++; n == 2 {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	a, body := f.post(predict, `{"input_batch":[[1,0,0,0],[2,0,0,0]]}`)
	if a.Status != 200 || !strings.Contains(body, `"output":1`) || !strings.Contains(body, `"code":"model_error"`) {
		t.Errorf("answer %d %s", a.Status, body)
	}
}

func TestEnsemblesNameTheirModels(t *testing.T) {
	f := serve(t, querytest.Floats4, nil, ensemble(says(7), fails(api.DeadlineExceeded), fails(api.ModelError)))
	_, body := f.post(predict, input)
	if !strings.HasSuffix(body, `"models":["a@1"],"late":["b@1"],"failed":["c@1"]}`) {
		t.Errorf("answer %s", body)
	}
}

func TestDoubtfulAnswersBecomeTheDefault(t *testing.T) {
	f := serve(t, querytest.Floats4, nil, ensemble(says(1), says(2), says(3)), withDefault("-1"), func(f *fixture) { f.fn.MinConfidence = 0.6 })
	_, body := f.post(predict, input)
	if !strings.Contains(body, `"output":-1,"default":true,"default_explanation":"confidence 0.33 below 0.60","confidence":0.33`) {
		t.Errorf("answer %s", body)
	}
	if _, body = f.post(predict, `{"input":[1,2,3,4],"min_confidence":0.3}`); !strings.Contains(body, `"default":false`) {
		t.Errorf("with a lower bound: %s", body)
	}
}

func TestFeedback(t *testing.T) {
	const path, update = "/f/feedback", "/f/update"
	f := serve(t, querytest.Floats4, nil, ensemble(says(7), says(3), says(7)))
	id := f.want(predict, input, 200, `{"query_id":ID,"output":7,"default":false,"confidence":0.6666666666666667,"models":["a@1","b@1","c@1"]}`)
	f.want(path, fmt.Sprintf(`{"query_id":%d,"label":3}`, id), 200, `{"query_id":ID,"status":"counted"}`)
	f.want(update, fmt.Sprintf(`{"query_id":%d,"label":3}`, id), 200, `{"query_id":ID,"status":"duplicate","cause":"the query has had its feedback: it counts once"}`)
	f.want(update, `{"input":[1,2,3,4],"label":7,"uid":12}`, 202, `{"status":"pending"}`)
	for i, want := range []float64{1, 1, 1} { // b was right the first time, a and c the second
		if n, sum := f.fn.Losses[i].Read(); n != 2 || sum != want {
			t.Errorf("candidate %d has %d losses of %v in all", i, n, sum)
		}
	}
	for body, want := range map[string]int{
		`{"query_id":12345,"label":3}`:                 404,
		fmt.Sprintf(`{"query_id":%d,"label":"x"}`, id): 400,
		fmt.Sprintf(`{"query_id":%d}`, id):             400,
		`{"input":[1],"label":3}`:                      400,
		`{`:                                            400,
		`{"query_id":1,"label":1,"context":"` + long + `"}`: 400,
	} {
		if a, answer := f.post(path, body); a.Status != want {
			t.Errorf("%.60s is answered %d %s, want %d", body, a.Status, answer, want)
		}
	}
	if n := f.fn.Learning.Refused.Load(); n != 5 {
		t.Errorf("%d feedbacks are counted as malformed, want 5", n)
	}
	if _, answer := f.post(path, `{`); !strings.Contains(answer, "Json error") {
		t.Errorf("a body that is not JSON is answered %s", answer)
	}
}

var long = strings.Repeat("x", query.MaxContextBytes+1)

// TestFeedbackBatch: all feedbacks are read before any is counted, and each has its outcome.
func TestFeedbackBatch(t *testing.T) {
	f := serve(t, querytest.Floats4, nil, ensemble(says(7), says(3), says(7)))
	ids := make([]uint64, 2)
	for i := range ids {
		a, _ := f.post(predict, input)
		var parsed struct {
			ID uint64 `json:"query_id"`
		}
		if err := json.Unmarshal(a.Body, &parsed); err != nil {
			t.Fatal(err)
		}
		ids[i] = parsed.ID
	}
	if a, _ := f.post("/f/feedback", fmt.Sprintf(`{"feedback_batch":[{"query_id":%d,"label":7},{"query_id":%d,"label":"x"}]}`, ids[0], ids[1])); a.Status != 400 {
		t.Errorf("a batch with a label that is none is answered %d", a.Status)
	}
	body := fmt.Sprintf(`{"feedback_batch":[{"query_id":%d,"label":7},{"query_id":%[1]d,"label":7},{"query_id":%d,"correct":true},{"query_id":1,"loss":0.5}]}`, ids[0], ids[1])
	want := fmt.Sprintf(`{"feedback_results":[{"query_id":%d,"status":"counted"},{"query_id":%[1]d,"status":"duplicate","cause":"%s"},{"query_id":%d,"status":"counted"},{"query_id":1,"status":"unknown","cause":"%s"}]}`,
		ids[0], query.Duplicate.Reason(), ids[1], query.UnknownQuery.Reason())
	if a, got := f.post("/f/feedback", body); a.Status != 200 || got != want {
		t.Errorf("answered %d\n%s, want\n%s", a.Status, got, want)
	}
}
