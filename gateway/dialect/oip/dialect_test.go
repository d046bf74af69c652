package oip

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// fixture is the dialect over a path with one model, "m@1".
type fixture struct {
	t     *testing.T
	path  *query.Path
	local *dialect.Local
	model *query.Model
	ready bool
}

// serve makes model "m@1", whose queries go to submit.
func serve(t *testing.T, submit func(it *scheduler.Item)) *fixture {
	start := time.Now()
	p := query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	m := query.NewModel(api.ModelID{Name: "m", Version: "1"}, querytest.Floats4, &querytest.Lane{Submit: submit}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	p.Publish(&query.Table{
		Models: map[string]*query.Model{"m": m}, Versions: map[api.ModelID]*query.Model{m.ID: m, {Name: "m", Version: "stable"}: m},
	})
	f := &fixture{t: t, path: p, model: m, ready: true}
	f.local = dialect.NewLocal(p, Dialect{Version: "7", Ready: func() (bool, string) { return f.ready, "it \"sleeps\"" }})
	t.Cleanup(func() {
		if n := p.Open(); n != 0 {
			t.Errorf("%d requests are open", n)
		}
	})
	return f
}

func (f *fixture) do(method, path, body string, header ...string) *dialect.Answer {
	f.t.Helper()
	m := &dialect.Message{Method: method, Path: path, Header: map[string]string{}, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		m.Header[header[i]] = header[i+1]
	}
	a, err := f.local.Do(f.t.Context(), m)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

const (
	infer   = "/v2/models/m/infer"
	twoRows = `{"name":"input","datatype":"FP32","shape":[2,4],"data":[[1,1,1,1],[2,2,2,2]]}`
)

func TestInfer(t *testing.T) {
	f := serve(t, querytest.Sum)
	for _, path := range []string{infer, "/v2/models/m/versions/1/infer", "/v2/models/m/versions/stable/infer"} {
		a := f.do("POST", path, `{"id":"7","inputs":[`+twoRows+`]}`)
		want := `{"model_name":"m","model_version":"1","id":"7","outputs":[{"name":"output","datatype":"INT64","shape":[2],"data":[4,8]}]}`
		if a.Status != 200 || string(a.Body) != want || a.ContentType != dialect.JSON {
			t.Errorf("%s is answered %d %s in %s", path, a.Status, a.Body, a.ContentType)
		}
	}
	if r := f.model.Stats.Read(); r.Queries != 6 || r.Codes[api.OK] != 3 {
		t.Errorf("counted %+v", r)
	}
}

func TestInferBinary(t *testing.T) {
	f := serve(t, querytest.Sum)
	head := `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}}],"outputs":[{"name":"output","parameters":{"binary_data":true}}]}`
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(5))
	raw = append(raw, make([]byte, 12)...)
	a := f.do("POST", infer, head+string(raw), jsonLength, fmt.Sprint(len(head)))
	if len(a.Fields) != 1 || a.Fields[0].Name != jsonLength || a.ContentType != "application/octet-stream" {
		t.Fatalf("answered %+v", a)
	}
	var n int
	if _, err := fmt.Sscan(string(a.Fields[0].Value), &n); err != nil || n > len(a.Body) || !json.Valid(a.Body[:n]) {
		t.Fatalf("JSON of %d bytes in %q", n, a.Body)
	}
	if got := a.Body[n:]; string(got) != string(querytest.Int64(5)) {
		t.Errorf("binary output %x", got)
	}
	if a = f.do("POST", infer, `{"inputs":[`+twoRows+`]}`); len(a.Fields) != 0 || a.ContentType != dialect.JSON { // the next one is JSON again
		t.Errorf("answered %+v", a)
	}
}

// TestDeadlines: of the header, of the parameter, and of a request that has neither.
func TestDeadlines(t *testing.T) {
	var got time.Duration
	f := serve(t, func(it *scheduler.Item) {
		got = time.Duration(it.Deadline - it.Arrived)
		querytest.Sum(it)
	})
	for _, c := range []struct {
		timeout string
		header  string
		want    time.Duration
	}{{`0`, "", 30 * time.Second}, {`2500`, "", 2500 * time.Microsecond}, {`2500`, "20", 20 * time.Millisecond}, {`9000000000`, "", query.MaxSLO}} {
		var header []string
		if c.header != "" {
			header = []string{"Xebec-Slo-Ms", c.header}
		}
		if f.do("POST", infer, `{"inputs":[`+twoRows+`],"parameters":{"timeout":`+c.timeout+`}}`, header...); got != c.want {
			t.Errorf("timeout %s, header %q: %v, want %v", c.timeout, c.header, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	f := serve(t, func(it *scheduler.Item) { querytest.End(it, api.Overloaded) })
	for _, c := range []struct {
		path, body string
		header     []string
		status     int
		want       string
	}{
		{"/v2/models/x/infer", `{}`, nil, 404, `{"error":"no function or model \"x\": ` + "`xebec get functions` and `xebec get models`" + ` list those that exist","code":"not_found"}`},
		{"/v2/models/m/versions/9/infer", `{}`, nil, 404, `{"error":"no model \"m@9\"","code":"not_found"}`},
		{infer, `{"inputs":3}`, nil, 400, ""},
		{infer, `{}`, []string{"Xebec-Slo-Ms", "x"}, 400, ""},
		{infer, `{}`, []string{jsonLength, "3"}, 400, `{"error":"header Inference-Header-Content-Length: \"3\" is not a length within the body of 2 bytes","code":"invalid_argument"}`},
		{infer, `{}`, []string{jsonLength, "+2"}, 400, `{"error":"header Inference-Header-Content-Length: \"+2\" is not a length within the body of 2 bytes","code":"invalid_argument"}`},
		{infer, `{}`, []string{jsonLength, "-0"}, 400, `{"error":"header Inference-Header-Content-Length: \"-0\" is not a length within the body of 2 bytes","code":"invalid_argument"}`},
		{infer, `{}`, []string{jsonLength, "18446744073709551618"}, 400, ""},
		{infer, `{"parameters":{"slo_ms":true}}`, nil, 400, `{"error":"parameters.slo_ms: expected a number, found true (byte 24)","code":"invalid_argument"}`},
		{infer, `{"parameters":{"context":true}}`, nil, 400, ""},
		{infer, `{"parameters":{"sequence_id":true}}`, nil, 400, ""},
		{infer, `{"inputs":[` + twoRows + `]}`, nil, 503, `{"error":"` + api.Overloaded.Reason() + `","code":"overloaded"}`},
		{"/v2/none", ``, nil, 404, `{"error":"no route POST /v2/none","code":"not_found"}`},
	} {
		a := f.do("POST", c.path, c.body, c.header...)
		if a.Status != c.status || !strings.HasPrefix(string(a.Body), `{"error":"`) || c.want != "" && string(a.Body) != c.want {
			t.Errorf("%s %s is answered %d %s, want %d %s", c.path, c.body, a.Status, a.Body, c.status, c.want)
		}
		if (a.Status == 503) != (len(a.Fields) > 0) {
			t.Errorf("%s %s: status %d with %v", c.path, c.body, a.Status, a.Fields)
		}
	}
}

// TestOutputsThatOneTensorCannotHold: the answer says what to do, and the request is counted as malformed.
func TestOutputsThatOneTensorCannotHold(t *testing.T) {
	n := int64(0)
	f := serve(t, func(it *scheduler.Item) {
		n++
		it.SetResult([]api.Value{{Data: make([]byte, 8*n), Dims: []int64{n}}}, math.NaN())
		it.Owner.Answered(it, api.OK)
		it.Owner.Released(it, api.OK)
	})
	f.model.Signature.Outputs = []api.TensorSpec{{Name: "output", DType: api.Int64, Shape: []int64{-1}}}
	a := f.do("POST", infer, `{"inputs":[`+twoRows+`]}`)
	if a.Status != 400 || !strings.Contains(string(a.Body), "send the queries one by one") {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
	if r := f.model.Stats.Read(); r.Codes[api.InvalidArgument] != 1 || r.Queries != 2 {
		t.Errorf("counted %+v", r)
	}
}

func TestDocuments(t *testing.T) {
	f := serve(t, querytest.Sum)
	get := func(path string, status int, want string) {
		t.Helper()
		if a := f.do("GET", path, ""); a.Status != status || string(a.Body) != want {
			t.Errorf("GET %s: %d %s, want %d %s", path, a.Status, a.Body, status, want)
		}
	}
	const metadata = `{"name":"m","versions":["1"],"platform":"xebec","inputs":[{"name":"input","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"output","datatype":"INT64","shape":[-1]}]}`
	get("/v2", 200, `{"name":"xebec","version":"7","extensions":["binary_tensor_data","classification","generate","model_configuration","parameters","sequence"]}`)
	get("/v2/health/live", 200, `{"live":true}`)
	get("/v2/health/ready", 200, `{"ready":true}`)
	f.ready = false
	get("/v2/health/ready", 503, `{"ready":false,"reason":"it \"sleeps\""}`)
	get("/v2/models/m", 200, metadata)
	get("/v2/models/m/versions/stable", 200, metadata)
	get("/v2/models/x", 404, `{"error":"no function or model \"x\": `+"`xebec get functions` and `xebec get models`"+` list those that exist","code":"not_found"}`)
	get("/v2/models/m/ready", 200, `{"name":"m","ready":true}`)
	f.model.Ready.Store(0)
	get("/v2/models/m/ready", 503, `{"name":"m","ready":false,"error":"model m@1 has no replica that is ready","code":"unavailable"}`)
	f.model.Asleep.Store(true)
	get("/v2/models/m/versions/1/ready", 200, `{"name":"m","ready":true}`)
	f.model.Closed.Store(true)
	get("/v2/models/m/ready", 503, `{"name":"m","ready":false,"error":"model m@1 has no replica that is ready","code":"unavailable"}`)
}
