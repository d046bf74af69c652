package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// fields are header fields.
type fields map[string]string

func (f fields) Header(name string) []byte {
	if v, ok := f[name]; ok {
		return []byte(v)
	}
	return nil
}

// readOptions reads a JSON object: options, and what is for the model.
func readOptions(o *Options, object string) error {
	var r tensorjson.Reader
	r.Reset([]byte(object))
	err := r.Members(func(name []byte) error {
		if taken, err := o.Member(name, &r); taken {
			return err
		}
		r.Peek()
		start := r.Pos()
		err := r.Skip()
		o.Pass(name, r.Text(start))
		return err
	})
	if err != nil {
		return err
	}
	return r.End()
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		function bool
		object   string
		header   fields
		want     string // the options, or the error
	}{
		{true, `{}`, nil, `{true 0 0 0    }`},
		{true, `{"slo_ms":20,"context":"ann","salt":7,"ttl_ms":5,"min_confidence":0.5,"models":"a, b@1","t":{"x": 1}}`, nil, `{true 20ms 0.5 5 ann 7 a, b@1 {"t":{"x": 1}}}`},
		{true, `{"models":["a","b"],"context":null,"a\"":1,"b":[2]}`, nil, `{true 0 0 0   a,b {"a\"":1,"b":[2]}}`},
		{false, `{"models":["a"],"min_confidence":3,"slo_ms":1e3}`, nil, `{false 1s 0 0    {"models":["a"],"min_confidence":3}}`},
		{true, `{"context":"ann","min_confidence":0.5}`, fields{"Xebec-Context": "bob", "Xebec-Min-Confidence": "0.75", "Xebec-Models": "c", "Xebec-Slo-Ms": "2"}, `{true 2ms 0.75 0 bob  c }`},
		{false, `{}`, fields{"Xebec-Min-Confidence": "x", "Xebec-Context": "7"}, `{false 0 0 0 7   }`},
		{true, `{"slo_ms":0}`, nil, "slo_ms: 0: expected milliseconds above 0 and up to 600000"},
		{true, `{"ttl_ms":-1}`, nil, "ttl_ms: -1: expected milliseconds, 0 or more"},
		{true, `{"min_confidence":1.5}`, nil, "min_confidence: 1.5: expected a number from 0 to 1"},
		{true, `{"slo_ms":1,"slo_ms":1}`, nil, "slo_ms is there twice"},
		{true, `{"context":true}`, nil, "context: expected a string or an integer, found true (byte 11)"},
		{true, `{"models":[1]}`, nil, "models[0]: expected a string, found 1 (byte 11)"},
		{true, `{}`, fields{"Xebec-Min-Confidence": "x"}, `header Xebec-Min-Confidence: "x": expected a number from 0 to 1`},
		{true, `{}`, fields{"Xebec-Slo-Ms": "-1"}, `header Xebec-Slo-Ms: "-1": expected milliseconds above 0 and up to 600000`},
	} {
		var o Options
		o.Begin(true)
		o.Pass([]byte("left"), []byte("over"))
		o.Begin(c.function)
		err := readOptions(&o, c.object)
		if err == nil {
			err = o.Headers(c.header)
		}
		got := fmt.Sprintf("{%v %s %v %v %s %s %s %s}", o.function, short(o.slo), o.minConfidence, o.ttlMillis, o.context, o.salt, o.models, o.Parameters)
		if err != nil {
			got = err.Error()
		} else if len(o.Parameters) > 0 && !json.Valid(o.Parameters) {
			t.Errorf("%s passes %s", c.object, o.Parameters)
		}
		if got != c.want {
			t.Errorf("%s %v is read as\n%s, want\n%s", c.object, c.header, got, c.want)
		}
	}
}

func short(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return d.String()
}

// TestOptionsInOtherForms: what typed protocols send means what JSON means.
func TestOptionsInOtherForms(t *testing.T) {
	var o Options
	o.Begin(true)
	for _, step := range []struct {
		taken bool
		err   error
	}{
		of(o.Text([]byte("context"), []byte("ann"))), of(o.Number([]byte("salt"), 7)), of(o.Text([]byte("slo_ms"), []byte("20"))), of(o.Number([]byte("min_confidence"), 0.5)),
	} {
		if !step.taken || step.err != nil {
			t.Errorf("taken %v, %v", step.taken, step.err)
		}
	}
	if string(o.context) != "ann" || string(o.salt) != "7" || o.slo != 20*time.Millisecond || o.minConfidence != 0.5 {
		t.Errorf("read %+v", o)
	}
	if taken, err := o.Text([]byte("ttl_ms"), []byte("soon")); !taken || err == nil || err.Error() != `ttl_ms: "soon": expected a number` {
		t.Errorf("a text for ttl_ms: taken %v, %v", taken, err)
	}
	if taken, _ := o.Text([]byte("temperature"), []byte("1")); taken {
		t.Error("what is no option is taken")
	}
}

func of(taken bool, err error) struct {
	taken bool
	err   error
} {
	return struct {
		taken bool
		err   error
	}{taken, err}
}

// factCall renders the facts of its answer, or the reason why a query has no outputs.
type factCall struct{ Call }

func (c *factCall) Settled() api.Code {
	c.Answer.Reset(200)
	if i := c.Failed(); i >= 0 {
		c.Answer.Reset(c.Query(i).Code.HTTPStatus())
		c.Answer.Body = fmt.Appendf(c.Answer.Body, "query %d: %s", i, c.Query(i).Reason())
		return c.Code()
	}
	c.Answer.Body = append(c.AppendFacts(append(c.Answer.Body, '{')), '}')
	for i := range c.Len() {
		values, _ := c.Outputs(i)
		c.Answer.Body = fmt.Appendf(c.Answer.Body, " %d", values[0].Data[0])
	}
	return c.Code()
}

func (*factCall) Released() {}

// TestFacts: a request of n queries to a function or a model, whose model answers the first byte of the input, or fails on 9.
func TestFacts(t *testing.T) {
	p := query.New(query.Config{Now: func() api.Nanos { return 1 }})
	submit := func(it *scheduler.Item) {
		if it.Inputs[0].Data[0] == 9 {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.End(it, api.OK, querytest.Int64(int64(it.Inputs[0].Data[0])))
	}
	m := query.NewModel(api.ModelID{Name: "m", Version: "1"}, api.Signature{Inputs: querytest.Bytes.Inputs, Outputs: querytest.Floats4.Outputs}, &querytest.Lane{Submit: submit}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	fn := &query.Function{Name: "f", SLO: time.Minute, Candidates: []query.Candidate{{Model: m}}, Stats: new(obs.Endpoint)}
	withDefault := *fn
	withDefault.Name, withDefault.Default = "d", []byte("3")
	p.Publish(&query.Table{Functions: map[string]*query.Function{"f": fn, "d": &withDefault}, Models: map[string]*query.Model{"m": m}, Versions: map[api.ModelID]*query.Model{m.ID: m}})
	l := NewLocal(p, plain{func(p *query.Path) []Route {
		return []Route{{Method: "POST", Path: "/{name}", Serve: func(x Exchange) {
			c := new(factCall)
			c.Init(p, c)
			c.Open()
			if err := c.AskNamed(x.Param("name"), ""); err != nil {
				c.Drop()
				Fail(x, plain{}, err)
				return
			}
			for _, b := range x.Body() {
				in, err := c.Next()
				if err != nil {
					t.Error(err)
				}
				in[0].Data = append(in[0].Data[:0], b)
			}
			x.Submit(&c.Call)
		}}}
	}})
	for _, c := range []struct {
		path, body string
		want       string
	}{
		{"/m", "\x05", `{} 5`},
		{"/f", "\x05", `{"query_id":ID,"default":false,"confidence":1,"models":"m@1"} 5`},
		{"/f", "\x05\x06", `{"query_id":ID,"default":false,"confidence":1,"models":"m@1"} 5 6`},
		{"/f", "\x05\x09", `query 1: the model failed on this input`},
		{"/d", "\x09", `{"query_id":ID,"default":true,"default_explanation":"the model failed on this input","confidence":0,"models":""} 3`},
		{"/d", "\x05\x09\x04\x09", `{"query_id":ID,"default":true,"defaults":"1,3","default_explanation":"the model failed on this input","confidence":0,"confidences":"1,0,1,0","models":"m@1"} 5 3 4 3`},
	} {
		a, err := l.Do(t.Context(), &Message{Method: "POST", Path: c.path, Body: []byte(c.body)})
		if err != nil {
			t.Fatal(err)
		}
		got := string(a.Body)
		var id uint64
		if _, err := fmt.Sscanf(got, `{"query_id":%d,`, &id); err == nil {
			got = `{"query_id":ID,` + got[len(fmt.Sprintf(`{"query_id":%d,`, id)):]
		}
		if got != c.want {
			t.Errorf("%s %q is answered %d\n%s, want\n%s", c.path, c.body, a.Status, got, c.want)
		}
	}
}

// FuzzOptions: nothing panics, a refusal has a code, and what is for the model is a JSON object.
func FuzzOptions(f *testing.F) {
	f.Add(`{"slo_ms":20,"context":"ann","salt":7,"ttl_ms":5,"min_confidence":0.5,"models":"a, b@1","t":{"x": 1}}`, true)
	f.Add(`{"models":["a","b"],"context":null,"a\"":1,"b":[2]}`, false)
	f.Add(`{"slo_ms":1e300,"ttl_ms":-0,"salt":"\u0000"}`, true)
	f.Add(`{"t":1e1000}`, true)
	f.Fuzz(func(t *testing.T, object string, function bool) {
		var o Options
		o.Begin(function)
		if err := readOptions(&o, object); err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument {
				t.Fatalf("%q: error %#v", object, err)
			}
			return
		}
		var passed map[string]json.RawMessage // a number may be too large for a float64
		if len(o.Parameters) > 0 && json.Unmarshal(o.Parameters, &passed) != nil {
			t.Fatalf("%q passes %q", object, o.Parameters)
		}
		if !json.Valid([]byte(object)) || o.slo < 0 || o.minConfidence < 0 || o.minConfidence > 1 {
			t.Fatalf("%q is read as %+v", object, o)
		}
	})
}
