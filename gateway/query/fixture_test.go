package query

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a path with one function, "f".
type fixture struct {
	t  *testing.T
	p  *Path
	fn *Function
}

var floats4 = querytest.Floats4

// floatsOut is floats4 with a float for an answer.
var floatsOut = api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64}}}

// serve makes a path with function "f" over model "m@1", whose queries go to submit.
func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item), change ...func(*fixture)) *fixture {
	t.Helper()
	start := time.Now()
	f := &fixture{t: t}
	f.p = New(Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	m := NewModel(api.ModelID{Name: "m", Version: "1"}, sig, &querytest.Lane{Submit: submit}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	f.fn = &Function{Name: "f", SLO: time.Minute, Candidates: []Candidate{{Model: m, Queue: 1}}, Stats: new(obs.Endpoint)}
	for _, c := range change {
		c(f)
	}
	f.p.Publish(&Table{Functions: map[string]*Function{"f": f.fn}, Models: map[string]*Model{"m": m}, Versions: map[api.ModelID]*Model{m.ID: m}})
	t.Cleanup(f.drain)
	return f
}

// drain waits until every request is answered.
func (f *fixture) drain() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f.p.Drain(ctx); err != nil {
		f.t.Error(err)
	}
}

func withDefault(v string) func(*fixture) { return func(f *fixture) { f.fn.Default = []byte(v) } }

// prediction is an Answer in numbers and names.
type prediction struct {
	ID                            uint64
	Code                          api.Code
	Output                        float64
	Default                       bool
	Confidence                    float64
	Models, Late, Failed, Dropped []string
}

// try asks the function what the body says, which is the native dialect's JSON.
func (f *fixture) try(body string, within ...time.Duration) ([]prediction, error) {
	f.t.Helper()
	var parsed struct {
		Input                  []float64
		InputBatch             [][]float64 `json:"input_batch"`
		Context, Salt, Version string
		Models                 []string
		MinConfidence          float64 `json:"min_confidence"`
	}
	if err := json.Unmarshal([]byte(body), &parsed); err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}
	qs := &Queries{
		Function: "f", Context: parsed.Context, Salt: parsed.Salt, Version: parsed.Version, Models: parsed.Models, MinConfidence: parsed.MinConfidence,
	}
	if parsed.Input != nil {
		parsed.InputBatch = append(parsed.InputBatch, parsed.Input)
	}
	for _, input := range parsed.InputBatch {
		qs.Inputs = append(qs.Inputs, []api.Value{{Data: api.Float32.AppendNumbers(nil, input)}})
	}
	if len(within) > 0 {
		qs.Within = within[0]
	}
	answers, err := f.p.Do(context.Background(), qs, nil)
	var got []prediction
	for i := range answers {
		got = append(got, f.predictionOf(&answers[i]))
	}
	return got, err
}

func (f *fixture) predictionOf(a *Answer) prediction {
	f.t.Helper()
	p := prediction{
		ID: a.ID, Code: a.Code, Confidence: a.Confidence, Default: a.Default != nil,
		Models: names(a.Answered), Late: names(a.Late), Failed: names(a.Failed), Dropped: names(a.Dropped),
	}
	switch {
	case a.Code == api.OK:
		var out [1]float64
		readNumbers(out[:], f.fn.Candidates[0].Model.Signature.Outputs[0].DType, a.Outputs[0].Data)
		p.Output = out[0]
	case p.Default:
		if err := json.Unmarshal(a.Default, &p.Output); err != nil {
			f.t.Fatal(err)
		}
	}
	if math.IsNaN(p.Confidence) {
		p.Confidence = -1 // to be comparable
	}
	return p
}

func names(ids []api.ModelID) []string {
	var list []string
	for _, id := range ids {
		list = append(list, id.String())
	}
	return list
}

// ask is try for one query that is answered, with a prediction or the default. It may be called from any goroutine.
func (f *fixture) ask(body string, within ...time.Duration) prediction {
	f.t.Helper()
	got, err := f.try(body, within...)
	if err != nil || len(got) != 1 || got[0].Code != api.OK && !got[0].Default {
		f.t.Errorf("%s is answered %+v (%v)", body, got, err)
		return prediction{}
	}
	return got[0]
}

// code is try for one query, and returns its code.
func (f *fixture) code(body string) api.Code {
	f.t.Helper()
	got, err := f.try(body)
	if err != nil || len(got) != 1 {
		f.t.Errorf("%s is answered %+v (%v)", body, got, err)
		return api.Internal
	}
	return got[0].Code
}

const input = `{"input":[1,2,3,4]}`

// feedback gives the path feedback, in the native dialect's JSON.
func (f *fixture) feedback(function, body string) (Outcome, error) {
	f.t.Helper()
	var parsed struct {
		QueryID uint64 `json:"query_id"`
		Input   []float64
		Label   json.RawMessage
		Correct *bool
		Loss    float64
		Context string
	}
	if err := json.Unmarshal([]byte(body), &parsed); err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}
	given := Feedback{QueryID: parsed.QueryID, Verdict: VerdictLoss, Loss: parsed.Loss, Context: []byte(parsed.Context)}
	switch {
	case parsed.Label != nil:
		given.Verdict, given.LabelText = VerdictLabel, parsed.Label
		given.Label = []api.Value{{Data: f.label(function, parsed.Label)}}
	case parsed.Correct != nil:
		given.Verdict = VerdictCorrect
		if !*parsed.Correct {
			given.Loss = 1
		}
	}
	var in []api.Value
	if parsed.Input != nil {
		in = []api.Value{{Data: api.Float32.AppendNumbers(nil, parsed.Input)}}
	}
	return f.p.Feedback(function, given, in)
}

// label reads a label, a number or a list of them, for the function's outputs.
func (f *fixture) label(function string, text []byte) []byte {
	f.t.Helper()
	var numbers []float64
	if text[0] != '[' {
		text = fmt.Appendf(nil, "[%s]", text)
	}
	if err := json.Unmarshal(text, &numbers); err != nil {
		f.t.Fatal(err)
	}
	fn := f.p.table.Load().Functions[function]
	return fn.Candidates[0].Model.Signature.Outputs[0].DType.AppendNumbers(nil, numbers)
}

// feed gives feedback to "f", and expects its outcome.
func (f *fixture) feed(body string, want Outcome) {
	f.t.Helper()
	if got, err := f.feedback("f", body); err != nil || got != want {
		f.t.Errorf("feedback %s: %v (%v), want %v", body, got, err, want)
	}
}

// crowd is a function over several models, each of which answers as the test says.
type crowd struct {
	*fixture
	lanes   []*querytest.Lane
	cache   *cache.Cache
	table   *learned.Table
	learned *learned.Function
}

// says answers every query with a number.
func says(v int64) func(*scheduler.Item) {
	return func(it *scheduler.Item) { querytest.End(it, api.OK, querytest.Int64(v)) }
}

func saysFloat(v float64) func(*scheduler.Item) {
	return func(it *scheduler.Item) {
		querytest.End(it, api.OK, api.Float64.AppendNumbers(nil, []float64{v}))
	}
}

// fails ends every query with the code.
func fails(code api.Code) func(*scheduler.Item) {
	return func(it *scheduler.Item) { querytest.End(it, code) }
}

// gather makes a path with function "f" under a policy over models a@1, b@1 …
func gather(t *testing.T, policy string, params map[string]any, sig api.Signature, models []func(*scheduler.Item), change ...func(*fixture)) *crowd {
	t.Helper()
	c := &crowd{cache: cache.New(1 << 20), table: learned.New(learned.Config{})}
	var refs []string
	for i := range models {
		refs = append(refs, string(rune('a'+i)))
	}
	p, err := selection.New(policy, params, refs)
	if err != nil {
		t.Fatal(err)
	}
	c.learned = c.table.Declare("f", p, refs)
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	setup := func(f *fixture) {
		f.p.cfg.Cache, f.p.cfg.Timers = c.cache, driver.NewTimers(clock)
		f.p.cfg.Now = clock.Now
		f.fn.Candidates = nil
		for i, answer := range models {
			l := &querytest.Lane{Submit: answer}
			c.lanes = append(c.lanes, l)
			m := NewModel(api.ModelID{Name: refs[i], Version: "1"}, sig, l, 0, new(obs.Endpoint))
			m.Ready.Store(1)
			f.fn.Candidates = append(f.fn.Candidates, Candidate{Model: m, Queue: 1})
		}
		f.fn.Selects, f.fn.Mode, f.fn.Selector = policy != "single" && policy != "prefer", p.Mode(), c.learned
		f.fn.Learning, f.fn.Losses = new(obs.Learning), make([]obs.Loss, len(models))
		if sig.Outputs[0].DType == api.Float64 {
			f.fn.Averages = NewAverages(sig, 0, len(models))
			f.fn.Averages.SetTolerance(0.5)
			f.fn.Loss = selection.Loss{Kind: selection.Absolute, Scale: 10}
		}
	}
	c.fixture = serve(t, sig, nil, append([]func(*fixture){setup}, change...)...)
	return c
}

// weights are the policy's, of one context.
func (c *crowd) weights(context string) []float64 {
	c.t.Helper()
	gains := make([]float64, len(c.lanes))
	report := c.learned.Report(100)
	rows := report.Global
	if context != "" {
		rows = nil
		for _, x := range report.Contexts {
			if x.Context == context {
				rows = x.Rows
			}
		}
	}
	for i, r := range rows {
		gains[i] = r.Weight
	}
	return gains
}

// cached gives every candidate a cache.
func cached(f *fixture) {
	for _, cand := range f.fn.Candidates {
		cand.Model.Cache = f.p.cfg.Cache.Model()
		cand.Model.CapabilitiesKnown.Store(true)
		cand.Model.CacheOn.Store(true)
	}
}

// waitCoalesced polls until so many queries have waited for another's evaluation.
func (c *crowd) waitCoalesced(n uint64) {
	c.t.Helper()
	poll(c.t, func() bool { return c.fn.Candidates[0].Model.Cache.Stats().Coalesced >= n })
}

// poll looks until it is so.
func poll(t *testing.T, so func() bool) {
	t.Helper()
	look, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer look.Stop()
	for !so() {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("the condition did not hold within 30 s")
		}
	}
}
