package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// shelf is a Repository with what a test puts into it.
type shelf struct {
	models  []api.ModelStatus
	stats   []api.ModelStatistics
	changes []string
	refuses error
}

func (s *shelf) Models(context.Context, string) ([]api.ModelStatus, error) { return s.models, nil }
func (s *shelf) Statistics(string) []api.ModelStatistics                   { return s.stats }

func (s *shelf) SetLoaded(_ context.Context, authorization, model string, loaded bool) error {
	s.changes = append(s.changes, fmt.Sprint(authorization, " ", model, " ", loaded))
	return s.refuses
}

// serveShelf is serveFunctions over a Repository.
func serveShelf(t *testing.T, submit func(it *scheduler.Item)) (*fixture, *shelf) {
	f, s := serveFunctions(t, submit), &shelf{}
	f.local = dialect.NewLocal(f.path, Dialect{Version: "7", Ready: func() (bool, string) { return true, "" }, Repository: s})
	return f, s
}

func (f *fixture) want(method, path, body string, status int, want string, header ...string) {
	f.t.Helper()
	a := f.do(method, path, body, header...)
	if a.Status != status || string(a.Body) != want || !json.Valid(a.Body) {
		f.t.Errorf("%s %s %s is answered\n%d %s, want\n%d %s", method, path, body, a.Status, a.Body, status, want)
	}
}

func TestRepositoryIndex(t *testing.T) {
	f, s := serveShelf(t, querytest.Sum)
	status := func(version string, phase api.VersionPhase, state api.ModelState, reason string) {
		s.models = append(s.models, api.ModelStatus{Spec: api.ModelSpec{Name: "m", Version: version}, State: state, Version: api.VersionStatus{Phase: phase, Reason: reason}})
	}
	status("1", api.PhaseAvailable, api.ModelReady, "")
	status("2", api.PhaseLoading, api.ModelStarting, "exit status 1: /secret/path")
	status("3", api.PhaseDeclared, api.ModelIdle, "")
	status("10", api.PhaseDraining, api.ModelStopping, "")
	const ready = `{"name":"d","version":"","state":"READY","reason":""},{"name":"f","version":"","state":"READY","reason":""},{"name":"m","version":"","state":"READY","reason":""},` +
		`{"name":"m","version":"1","state":"READY","reason":""}`
	f.want("POST", "/v2/repository/index", ``, 200, `[`+ready+`,{"name":"m","version":"2","state":"LOADING","reason":"its replicas start"},`+
		`{"name":"m","version":"3","state":"UNAVAILABLE","reason":"unloaded"},{"name":"m","version":"10","state":"UNLOADING","reason":"what it has accepted is answered"}]`)
	f.want("POST", "/v2/repository/index", `{"ready":true}`, 200, `[`+ready+`]`)
	f.want("POST", "/v2/repository/index", `{"ready":1}`, 400, `{"error":"ready: expected true or false, found 1 (byte 9)","code":"invalid_argument"}`)
}

func TestLoadAndUnload(t *testing.T) {
	f, s := serveShelf(t, querytest.Sum)
	f.want("POST", "/v2/repository/models/m/load", ``, 200, `{}`, "Authorization", "Bearer x")
	f.want("POST", "/v2/repository/models/m/unload", `{"parameters":{"unload_dependents":false}}`, 200, `{}`)
	if want := "[Bearer x m true  m false]"; fmt.Sprint(s.changes) != want {
		t.Errorf("changed %v, want %s", s.changes, want)
	}
	for _, body := range []string{`{"parameters":{"config":"{}"}}`, `{"parameters":{"file:1/model.py":"AAAA"}}`, `{"parameters":{"unload_dependents":true}}`} {
		if a := f.do("POST", "/v2/repository/models/m/load", body); a.Status != 501 {
			t.Errorf("%s is answered %d %s", body, a.Status, a.Body)
		}
	}
	if len(s.changes) != 2 {
		t.Errorf("changed %v", s.changes)
	}
	s.refuses = api.Errorf(api.Forbidden, "no")
	f.want("POST", "/v2/repository/models/m/load", `{}`, 403, `{"error":"no","code":"forbidden"}`)
}

func TestStatistics(t *testing.T) {
	f, s := serveShelf(t, querytest.Sum)
	f.do("POST", "/v2/models/f/infer", `{"inputs":[`+twoRows+`]}`)
	f.do("POST", "/v2/models/m@1/infer", `{"inputs":[`+twoRows+`]}`)
	s.stats = []api.ModelStatistics{{
		ID: f.model.ID, Succeeded: 4, Batches: 3, Queue: api.Durations{Count: 4, Nanos: 40}, Evaluation: api.Durations{Count: 3, Nanos: 300}, CacheHits: 5, CacheMisses: 6,
	}}
	type duration struct{ Count, NS uint64 }
	var got struct {
		Model_stats []struct {
			Name, Version                    string
			Inference_count, Execution_count uint64
			Inference_stats                  map[string]duration
		}
	}
	for path, names := range map[string]string{"/v2/models/stats": "d f m m", "/v2/models/f/stats": "f", "/v2/models/m@1/stats": "m", "/v2/models/m/versions/1/stats": "m"} {
		a := f.do("GET", path, "")
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
			t.Fatalf("%s: %d %s (%v)", path, a.Status, a.Body, err)
		}
		var found []string
		for _, m := range got.Model_stats {
			found = append(found, m.Name)
			st := m.Inference_stats
			switch {
			case m.Version == "1":
				if m.Inference_count != 4 || m.Execution_count != 3 || st["success"].Count != 1 || st["success"].NS == 0 || st["fail"].Count != 0 ||
					st["queue"] != (duration{9, 40}) || st["compute_infer"] != (duration{3, 300}) || st["compute_input"] != (duration{3, 0}) || st["compute_output"] != (duration{3, 0}) || st["cache_hit"].Count != 5 || st["cache_miss"].Count != 6 {
					t.Errorf("%s: %s", path, a.Body)
				}
			case m.Name == "f":
				if m.Inference_count != 2 || st["success"].Count != 1 || st["success"].NS == 0 {
					t.Errorf("%s: %s", path, a.Body)
				}
			}
		}
		if strings.Join(found, " ") != names {
			t.Errorf("%s has %q, want %s", path, found, names)
		}
	}
	f.want("GET", "/v2/models/x/stats", "", 404, "{\"error\":\"no function or model \\\"x\\\": `xebec get functions` and `xebec get models` list those that exist\",\"code\":\"not_found\"}")
}

func TestConfig(t *testing.T) {
	f, _ := serveShelf(t, querytest.Sum)
	const rest = `"platform":"xebec","backend":"xebec","max_batch_size":8,"input":[{"name":"input","data_type":"TYPE_FP32","dims":[4]}],"output":[{"name":"output","data_type":"TYPE_INT64","dims":[]}],` +
		`"dynamic_batching":{},"model_transaction_policy":{"decoupled":false}}`
	f.want("GET", "/v2/models/f/config", "", 200, `{"name":"f",`+rest)
	f.want("GET", "/v2/models/m/versions/1/config", "", 200, `{"name":"m",`+rest)
}

// TestUnsupported: what is not there says 501 and why, whatever the model.
func TestUnsupported(t *testing.T) {
	f, _ := serveShelf(t, querytest.Sum)
	for path, why := range map[string]string{
		"GET /v2/systemsharedmemory/status": noSystemMemory, "POST /v2/systemsharedmemory/region/a/register": noSystemMemory, "POST /v2/systemsharedmemory/unregister": noSystemMemory,
		"GET /v2/cudasharedmemory/region/a/status": noCudaMemory, "POST /v2/trace/setting": noTraces, "GET /v2/models/m/trace/setting": noTraces, "POST /v2/logging": noLogging,
	} {
		method, path, _ := strings.Cut(path, " ")
		a := f.do(method, path, `{}`)
		var got struct{ Error, Code string }
		if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 501 || got.Error != why || got.Code != "unsupported" {
			t.Errorf("%s %s is answered %d %s", method, path, a.Status, a.Body)
		}
	}
}

func TestClassification(t *testing.T) {
	f := serve(t, func(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) })
	f.model.Signature.Outputs = []api.TensorSpec{{Name: "scores", DType: api.Float32, Shape: []int64{4}}}
	const inputs = `"inputs":[{"name":"input","datatype":"FP32","shape":[2,4],"data":[0.1,0.7,0.2,0,1,2,3,4]}]`
	const head = `{"model_name":"m","model_version":"1","outputs":[{"name":"scores","datatype":"BYTES","shape":`
	f.want("POST", infer, `{`+inputs+`,"outputs":[{"name":"scores","parameters":{"classification":2}}]}`, 200, head+`[2,2],"data":["0.7:1","0.2:2","4:3","3:2"]}]}`)
	f.want("POST", infer, `{`+inputs+`,"outputs":[{"name":"scores","parameters":{"classification":9}}]}`, 200,
		head+`[2,4],"data":["0.7:1","0.2:2","0.1:0","0:3","4:3","3:2","2:1","1:0"]}]}`)
	a := f.do("POST", infer, `{`+inputs+`,"outputs":[{"name":"scores","parameters":{"classification":1,"binary_data":true}}]}`)
	const json = head + `[2,1],"parameters":{"binary_data_size":16}}]}`
	if want := json + "\x05\x00\x00\x000.7:1\x03\x00\x00\x004:3"; a.Status != 200 || string(a.Body) != want {
		t.Errorf("answered %d %q, want %q", a.Status, a.Body, want)
	}
}

func TestRawRequests(t *testing.T) {
	f := serve(t, querytest.Sum)
	rows := string(floats(1, 1, 1, 1, 2, 2, 2, 2))
	const json = `{"model_name":"m","model_version":"1","outputs":[{"name":"output","datatype":"INT64","shape":[2],"parameters":{"binary_data_size":16}}]}`
	for _, header := range [][]string{{jsonLength, "0"}, {"Content-Type", "application/octet-stream"}} {
		a := f.do("POST", infer, rows, header...)
		if want := json + string(querytest.Int64(4)) + string(querytest.Int64(8)); a.Status != 200 || string(a.Body) != want {
			t.Errorf("%v: answered %d %q, want %q", header, a.Status, a.Body, want)
		}
	}
	for _, c := range []struct {
		sig    *api.Signature
		n      int
		shape  string
		refuse string
	}{
		{fixed, 24, "[3, 2]", ""},
		{ragged, 24, "[1, 3, 2]", ""},
		{scalar, 8, "[2]", ""},
		{text, 7, "[1]", ""},
		{text, 0, "[1]", ""},
		{texts, 7, "", "can have one element of BYTES"},
		{two, 8, "", "a request without JSON has the data of one input"},
		{half, 8, "[2, 2]", ""},
		{flags, 2, "[1, 2]", ""},
		{nothing, 0, "", "expected a multiple of 0"},
		{fixed, 9, "", "the body has 9 bytes: expected a multiple of 8"},
		{fixed, 0, "", "the body has 0 bytes"},
		{fixed, 8 * (maxQueries + 1), "", "expected at most"},
	} {
		q, s := new(Request), &store{width: len(c.sig.Inputs)}
		err := q.ParseRaw(make([]byte, c.n), c.sig, s, maxQueries)
		if c.refuse != "" {
			if err == nil || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("%d bytes for %v: %v, want %s", c.n, c.sig.Inputs, err, c.refuse)
			}
			continue
		}
		if err != nil || shapeOf(&q.tensors[0]) != c.shape {
			t.Errorf("%d bytes for %v: %s, %v, want %s", c.n, c.sig.Inputs, shapeOf(&q.tensors[0]), err, c.shape)
		}
	}
}

// FuzzParseRaw: nothing panics, a refusal has a code, and what is accepted is all of the body, once.
func FuzzParseRaw(f *testing.F) {
	for i := range fuzzSignatures {
		f.Add([]byte("12345678"), i)
	}
	f.Add([]byte("\xff\x00"), 3)
	f.Fuzz(func(t *testing.T, body []byte, which int) {
		sig := fuzzSignatures[uint(which)%uint(len(fuzzSignatures))]
		q, s := new(Request), &store{width: len(sig.Inputs)}
		if err := q.ParseRaw(body, sig, s, maxQueries); err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		var all []byte
		for _, row := range s.rows[:s.n] {
			if err := sig.Inputs[0].Check(&row[0]); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			all = append(all, row[0].Data...)
		}
		if string(all) != string(body) || s.n != q.Queries {
			t.Fatalf("%q is read as %q in %d queries of %d", body, all, s.n, q.Queries)
		}
	})
}

// FuzzRepository: nothing panics, and a refusal has a code.
func FuzzRepository(f *testing.F) {
	f.Add(`{"ready":true}`)
	f.Add(`{"parameters":{"config":"{}"}}`)
	f.Add(`{"parameters":{"unload_dependents":true}}`)
	f.Fuzz(func(t *testing.T, body string) {
		_, index := readIndex([]byte(body))
		for _, err := range []error{index, readLoad([]byte(body))} {
			var e *api.Error
			if err != nil && (!errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.Unsupported || !utf8.ValidString(e.Message)) {
				t.Fatalf("%q: error %#v", body, err)
			}
		}
	})
}
