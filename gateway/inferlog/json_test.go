package inferlog

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

func TestJSON(t *testing.T) {
	digits := &Schema{Function: "digits", Inputs: digitsIn, Outputs: digitsOut}
	failed := query(8)
	failed.Outputs, failed.Models, failed.Code, failed.Confidence, failed.Context, failed.Default = nil, nil, api.DeadlineExceeded, math.NaN(), nil, true
	text := &Schema{
		Function: "text", Inputs: []api.TensorSpec{{Name: "words", DType: api.Bytes, Shape: []int64{-1}}, {Name: "weight", DType: api.Float32}},
		Outputs: []api.TensorSpec{{Name: "a", DType: api.Bytes}, {Name: "b", DType: api.Bool}},
	}
	words := &Record{
		Inputs:  []api.Value{{Data: []byte("\x03\x00\x00\x00a\"\n\x02\x00\x00\x00\xff\xfe\x00\x00\x00\x00"), Dims: []int64{3}}, {Data: floats(float32(math.Inf(1)))}},
		Outputs: []api.Value{{Data: []byte("ok")}, {Data: []byte{1}}}, AtMicros: -5, TookMicros: 1,
	}
	for _, c := range []struct {
		entry Entry
		want  string
	}{
		{
			Entry{Kind: KindQuery, Schema: digits, Record: *query(7)},
			`{"time":"2026-01-02T03:04:05.123463Z","function":"digits","query_id":7,"context":"user-17","request_id":"req-1","input":[0,1.5,-2,7],"output":7,"default":false,"models":["svm@3"],"confidence":0.75,"code":"ok","latency_ms":1.5}`,
		},
		{
			Entry{Kind: KindQuery, Schema: digits, Record: *failed},
			`{"time":"2026-01-02T03:04:05.123464Z","function":"digits","query_id":8,"request_id":"req-1","input":[0,1.5,-2,8],"default":true,"models":[],"code":"deadline_exceeded","latency_ms":1.5}`,
		},
		{
			Entry{Kind: KindQuery, Schema: text, Record: *words},
			`{"time":"1970-01-01T00:00:00.000000Z","function":"text","query_id":0,"input":{"words":["a\"\n",{"b64":"//4="},""],"weight":null},"output":{"a":{"b64":"b2s="},"b":true},"default":false,"models":[],"confidence":0,"code":"ok","latency_ms":0.001}`,
		},
		{
			Entry{Kind: KindFeedback, Schema: digits, Feedback: Feedback{ID: 9, Kind: FeedbackLabel, Label: []byte("{\"a\":\n1}"), Context: []byte("u")}},
			`{"time":"1970-01-01T00:00:00.000000Z","function":"digits","query_id":9,"context":"u","label":{"a": 1}}`,
		},
		{
			Entry{Kind: KindFeedback, Schema: digits, Feedback: Feedback{ID: 9, Kind: FeedbackCorrect, AtMicros: math.MaxInt64}},
			`{"time":"9999-12-31T23:59:59.999999Z","function":"digits","query_id":9,"correct":true}`,
		},
		{
			Entry{Kind: KindFeedback, Schema: digits, Feedback: Feedback{ID: 9, Kind: FeedbackCorrect, Loss: 1}},
			`{"time":"1970-01-01T00:00:00.000000Z","function":"digits","query_id":9,"correct":false}`,
		},
		{
			Entry{Kind: KindFeedback, Schema: digits, Feedback: Feedback{ID: math.MaxUint64, Kind: FeedbackLoss, Loss: 0.25}},
			`{"time":"1970-01-01T00:00:00.000000Z","function":"digits","query_id":18446744073709551615,"loss":0.25}`,
		},
	} {
		if got := string(c.entry.JSON(nil)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// oneQuery is the parser's storage for one query.
type oneQuery []api.Value

func (q oneQuery) Next() ([]api.Value, error) { return q, nil }

// A printed input parses to the same input, unless it has numbers that JSON lacks.
func TestInputsRoundTripThroughJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Schema{Function: "f", Inputs: drawSpecs(t, "in"), Outputs: drawSpecs(t, "out")}
		e := Entry{Kind: KindQuery, Schema: s, Record: *drawRecord(t, s)}
		for i, spec := range s.Inputs {
			if spec.DType == api.Bool {
				for j := range e.Record.Inputs[i].Data {
					e.Record.Inputs[i].Data[j] &= 1
				}
			}
			empty := false // dimensions below an empty array cannot be told from JSON
			for j, d := range e.Record.Inputs[i].Dims {
				if empty && s.Inputs[i].Shape[j] < 0 {
					e.Record.Inputs[i].Dims[j] = 0
				}
				empty = empty || d == 0
			}
		}
		text := e.JSON(nil)
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		input, exact := e.AppendInput(nil)
		var request tensorjson.Request
		got := make(oneQuery, len(s.Inputs))
		err := request.Parse(slices.Concat([]byte(`{"input":`), input, []byte("}")), s.Inputs, got)
		if err != nil {
			t.Fatalf("%s: %v", input, err)
		}
		if !exact { // an infinity, or a NaN of another kind, has become the NaN that null is
			return
		}
		if diff := compare(e.Record.Inputs, []api.Value(got)); diff != "" {
			t.Fatalf("%s: %s", input, diff)
		}
	})
}
