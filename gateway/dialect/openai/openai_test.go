package openai

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// world is the dialect over models: "vectors" (its answer is the length of the text, and a half), "upper" (task: generate), "chat" (echoes its
// input) and "none" (no task). "f" is a function over upper with a default.
type world struct {
	t     *testing.T
	local *dialect.Local
	asked string
}

func text(name string) []api.TensorSpec { return []api.TensorSpec{{Name: name, DType: api.String}} }

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	start := time.Now()
	p := query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	table := &query.Table{Functions: map[string]*query.Function{}, Models: map[string]*query.Model{}, Versions: map[api.ModelID]*query.Model{}}
	for name, task := range map[string]string{"vectors": api.TaskEmbed, "upper": api.TaskGenerate, "chat": api.TaskChat, "none": ""} {
		sig := api.Signature{Inputs: text("text"), Outputs: text("out")}
		if task == api.TaskEmbed {
			sig.Outputs = []api.TensorSpec{{Name: "v", DType: api.Float64, Shape: []int64{2}}}
		}
		m := query.NewModel(api.ModelID{Name: name, Version: "1"}, sig, &querytest.Lane{Submit: func(it *scheduler.Item) {
			in := it.Inputs[0].Data
			w.asked = fmt.Sprintf("%s %s", it.Context, it.Parameters)
			switch {
			case string(in) == "fail":
				querytest.End(it, api.ModelError)
			case task == api.TaskEmbed:
				querytest.End(it, api.OK, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(len(in)))), math.Float64bits(0.5)))
			case task == api.TaskGenerate:
				querytest.End(it, api.OK, []byte(strings.ToUpper(string(in))))
			default:
				querytest.End(it, api.OK, append([]byte(nil), in...))
			}
		}}, 0, new(obs.Endpoint))
		m.Task = task
		m.Ready.Store(1)
		table.Models[name], table.Versions[m.ID] = m, m
	}
	table.Functions["f"] = &query.Function{Name: "f", SLO: time.Minute, Default: []byte(`"sorry"`), Candidates: []query.Candidate{{Model: table.Models["upper"]}}, Stats: new(obs.Endpoint)}
	p.Publish(table)
	w.local = dialect.NewLocal(p, Dialect{Now: func() time.Time { return time.Unix(7, 0) }})
	return w
}

func (w *world) post(path, body string) *dialect.Answer {
	w.t.Helper()
	a, err := w.local.Do(w.t.Context(), &dialect.Message{Method: "POST", Path: path, Header: map[string]string{}, Body: []byte(body)})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

var ids = regexp.MustCompile(`cmpl-\d+`)

func TestAnswers(t *testing.T) {
	w := newWorld(t)
	const usage = `"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}`
	for _, c := range []struct{ path, body, want string }{
		{"embeddings", `{"model":"vectors","input":"a b"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[3,0.5]}],"model":"vectors","usage":{"prompt_tokens":2,"total_tokens":2}}`},
		{"embeddings", `{"input":["a","bc"],"model":"vectors@1","encoding_format":"base64","user":"u"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAD8="},{"object":"embedding","index":1,"embedding":"AAAAQAAAAD8="}],"model":"vectors@1","usage":{"prompt_tokens":2,"total_tokens":2}}`},
		{"completions", `{"model":"upper","prompt":"a \"b\"","max_tokens":3,"n":1}`,
			`{"id":"cmpl-ID","object":"text_completion","created":7,"model":"upper","choices":[{"index":0,"text":"A \"B\"","logprobs":null,"finish_reason":"stop"}],` + usage},
		{"completions", `{"model":"upper","prompt":["a","b"],"stream":false}`,
			`{"id":"cmpl-ID","object":"text_completion","created":7,"model":"upper","choices":[{"index":0,"text":"A","logprobs":null,"finish_reason":"stop"},{"index":1,"text":"B","logprobs":null,"finish_reason":"stop"}],` + usage},
		{"completions", `{"model":"f","prompt":["a","fail"]}`,
			`{"id":"cmpl-ID","object":"text_completion","created":7,"model":"f","choices":[{"index":0,"text":"A","logprobs":null,"finish_reason":"stop"},{"index":1,"text":"sorry","logprobs":null,"finish_reason":"stop"}],` + usage},
		{"chat/completions", `{"model":"chat","messages":[{"role":"user", "content":"hi"}]}`,
			`{"id":"chatcmpl-ID","object":"chat.completion","created":7,"model":"chat","choices":[{"index":0,"message":{"role":"assistant","content":"[{\"role\":\"user\", \"content\":\"hi\"}]"},"logprobs":null,"finish_reason":"stop"}],` + usage},
	} {
		a := w.post("/v1/"+c.path, c.body)
		if got := ids.ReplaceAllString(string(a.Body), "cmpl-ID"); a.Status != 200 || got != c.want || !json.Valid(a.Body) {
			t.Errorf("%s %s is answered\n%d %s, want\n%s", c.path, c.body, a.Status, got, c.want)
		}
	}
	if w.post("/v1/completions", `{"model":"upper","prompt":"a","max_tokens":3,"stop":["x"],"context":"ann","n":null}`); w.asked != `ann {"max_tokens":3,"stop":["x"]}` {
		t.Errorf("the model got %s", w.asked)
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		path, body string
		status     int
		want       string // a part of the message
		kind       string
	}{
		{"embeddings", `{}`, 400, `expected a member "model"`, "invalid_request_error"},
		{"embeddings", `{"model":"x","input":"a"}`, 404, `no function or model "x"`, "invalid_request_error"},
		{"embeddings", `{"model":"upper","input":"a"}`, 400, "needs task: embed, and has task: generate", "invalid_request_error"},
		{"completions", `{"model":"none","prompt":"a"}`, 400, "needs task: generate, and has none", "invalid_request_error"},
		{"embeddings", `{"model":"vectors"}`, 400, `expected a member "input"`, "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":[1,2]}`, 400, "tokens are not supported", "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":[[1,2]]}`, 400, "tokens are not supported", "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":[]}`, 400, "expected one text or more", "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":7}`, 400, "expected a string, or a list of strings", "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":"a","input":"b"}`, 400, "is there twice", "invalid_request_error"},
		{"embeddings", `{"model":"vectors","input":"a","encoding_format":"hex"}`, 400, `expected "float" or "base64"`, "invalid_request_error"},
		{"completions", `{"model":"upper","prompt":"a","n":2}`, 400, "n: expected 1, found 2", "invalid_request_error"},
		{"completions", `{"model":"upper","prompt":["a","b"],"stream":true}`, 400, "a stream answers one text, found 2", "invalid_request_error"},
		{"completions", `{"model":"upper","prompt":"a","stream_options":{"include_usage":true}}`, 400, "is only for requests with", "invalid_request_error"},
		{"chat/completions", `{"model":"chat","messages":[]}`, 400, "expected one message or more", "invalid_request_error"},
		{"chat/completions", `{"model":"chat","messages":[{"content":"x"}]}`, 400, `the member "role" is missing`, "invalid_request_error"},
		{"completions", `{"model":"upper","prompt":"fail"}`, 502, "the model failed", "server_error"},
	} {
		a := w.post("/v1/"+c.path, c.body)
		var e struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal(a.Body, &e); err != nil || a.Status != c.status || !strings.Contains(e.Error.Message, c.want) || e.Error.Type != c.kind || e.Error.Code == "" {
			t.Errorf("%s %s is answered %d %s (%v), want %d, %q, %s", c.path, c.body, a.Status, a.Body, err, c.status, c.want, c.kind)
		}
	}
}

// FuzzRequest: nothing panics; a refusal has a code and a message for its caller; what is accepted is JSON with text for each query.
func FuzzRequest(f *testing.F) {
	for i, body := range []string{
		`{"model":"m","input":["a b","c"],"encoding_format":"base64"}`, `{"model":"m","prompt":"a","stream":true,"stream_options":{"include_usage":true},"stop":["x"]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"model":"m","temperature":0.5}`, `{"model":"m","input":[1]}`,
	} {
		f.Add([]byte(body), i)
	}
	f.Fuzz(func(t *testing.T, body []byte, which int) {
		var q Request
		_, err := q.Model(body)
		s := &rows{}
		if err == nil {
			err = q.Parse(body, kind(uint(which)%3), true, s)
		}
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		if !json.Valid(body) || len(s.list) == 0 {
			t.Fatalf("%q was accepted with %d queries", body, len(s.list))
		}
		for _, row := range s.list {
			if !utf8.Valid(row[0].Data) || kind(uint(which)%3) == chat && !json.Valid(row[0].Data) {
				t.Fatalf("%q: input %q", body, row[0].Data)
			}
		}
		if p := q.Options.Parameters; len(p) > 0 && !json.Valid(p) {
			t.Fatalf("%q: parameters %q", body, p)
		}
	})
}

// rows is a sink.
type rows struct{ list [][]api.Value }

func (s *rows) Next() ([]api.Value, error) {
	if len(s.list) == 64 {
		return nil, api.Errorf(api.InvalidArgument, "more than 64 inputs")
	}
	s.list = append(s.list, make([]api.Value, 1))
	return s.list[len(s.list)-1], nil
}
