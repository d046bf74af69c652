package tensorjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/xebec-serving/xebec/api"
)

func parseFeedback(body string, specs []api.TensorSpec) (*Feedback, [][]api.Value, error) {
	s, f := &store{width: len(specs), limit: 8}, &Feedback{}
	err := f.Parse([]byte(body), specs, s, 4)
	return f, s.rows[:s.n], err
}

func TestFeedback(t *testing.T) {
	for _, c := range []struct {
		name, body string
		batch      bool
		want       []FeedbackItem
		inputs     int
	}{
		{"label", `{"query_id": 7, "label": {"a": [1, "x"]}}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackLabel, QueryID: 7, Label: []byte(`{"a": [1, "x"]}`)}}, 0},
		{"largest id", `{"query_id":18446744073709551615,"correct":false}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackCorrect, QueryID: math.MaxUint64}}, 0},
		{"integral id", `{"correct": true, "query_id": 1e2}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackCorrect, QueryID: 100, Correct: true}}, 0},
		{"loss", `{"query_id":0,"loss":0.25,"context":"a\u00e9"}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackLoss | FeedbackContext, Loss: 0.25, Context: []byte("aé")}}, 0},
		{"input", `{"input": [1, 2], "label": 3}`, false, []FeedbackItem{{Has: FeedbackInput | FeedbackLabel, Label: []byte("3")}}, 1},
		{"Clipper's", `{"uid": 12, "input": [1, 2], "label": "x"}`, false, []FeedbackItem{{Has: FeedbackInput | FeedbackLabel | FeedbackContext, Label: []byte(`"x"`), Context: []byte("12")}}, 1},
		{"uid of text", `{"uid": "12", "query_id": 1, "loss": 1}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackLoss | FeedbackContext, QueryID: 1, Loss: 1, Context: []byte("12")}}, 0},
		{"null is absent", `{"query_id": null, "input": [1, 2], "label": null, "correct": null, "loss": 0, "context": null, "uid": null}`, false, []FeedbackItem{{Has: FeedbackInput | FeedbackLoss}}, 1},
		{"others are skipped", `{"query_id": 1, "loss": 0, "more": [{"query_id": 2}]}`, false, []FeedbackItem{{Has: FeedbackQueryID | FeedbackLoss, QueryID: 1}}, 0},
		{"batch of one", `{"feedback_batch": [{"query_id": 1, "loss": 0}], "more": 1}`, true, []FeedbackItem{{Has: FeedbackQueryID | FeedbackLoss, QueryID: 1}}, 0},
		{"batch", `{"feedback_batch":[{"query_id":1,"label":2},{"input":[1,2],"correct":true,"context":"c"},{"input":[3,4],"label":[5]}]}`, true, []FeedbackItem{
			{Has: FeedbackQueryID | FeedbackLabel, QueryID: 1, Label: []byte("2")},
			{Has: FeedbackInput | FeedbackCorrect | FeedbackContext, Correct: true, Context: []byte("c")},
			{Has: FeedbackInput | FeedbackLabel, Input: 1, Label: []byte("[5]")},
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, rows, err := parseFeedback(c.body, spec(api.Float32, 2))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, f.Items, cmpopts.IgnoreUnexported(FeedbackItem{})); diff != "" || f.Batch != c.batch {
				t.Errorf("batch %v (-want +got):\n%s", f.Batch, diff)
			}
			if len(rows) != c.inputs {
				t.Fatalf("%d inputs, want %d", len(rows), c.inputs)
			}
			for i, row := range rows {
				if want := raw(api.Float32, float64(2*i+1), float64(2*i+2)); !bytes.Equal(row[0].Data, want) {
					t.Errorf("input %d: got %x, want %x", i, row[0].Data, want)
				}
			}
		})
	}
}

func TestFeedbackErrors(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`[]`, `body: expected an object, found an array (byte 0)`},
		{`{}`, `body: expected a member "query_id" or "input": which prediction is it about? (byte 2)`},
		{`{"query_id": 1}`, `body: expected a member "label", "correct" or "loss": how good was the prediction?`},
		{`{"query_id": 1, "label": null}`, `body: expected a member "label", "correct" or "loss"`},
		{`{"query_id": 1, "input": [1, 2], "loss": 0}`, `body: expected one of "query_id" and "input", found both`},
		{`{"query_id": 1, "label": 1, "loss": 0}`, `body: expected one of "label", "correct" and "loss", found several`},
		{`{"query_id": -1, "loss": 0}`, `query_id: expected an integer from 0 to 18446744073709551615, found -1 (byte 13)`},
		{`{"query_id": 1.5, "loss": 0}`, `query_id: expected an integer from 0 to 18446744073709551615, found 1.5`},
		{`{"query_id": 18446744073709551616, "loss": 0}`, `query_id: expected an integer from 0 to`},
		{`{"query_id": "1", "loss": 0}`, `query_id: expected an integer, found "1"`},
		{`{"query_id": 1, "query_id": 1, "loss": 0}`, `query_id: duplicate member`},
		{`{"query_id": 1, "loss": 1.01}`, `loss: expected a number from 0 to 1, found 1.01`},
		{`{"query_id": 1, "loss": -0.5}`, `loss: expected a number from 0 to 1, found -0.5`},
		{`{"query_id": 1, "loss": true}`, `loss: expected a number, found true`},
		{`{"query_id": 1, "correct": 1}`, `correct: expected true or false, found 1`},
		{`{"query_id": 1, "label": nan}`, `label: expected a value, found nan (byte 25)`},
		{`{"query_id": 1, "label": }`, `label: expected a value, found '}'`},
		{`{"query_id": 1, "loss": 0, "context": 7}`, `context: expected a string, found 7`},
		{`{"query_id": 1, "loss": 0, "uid": 7.5}`, `uid: expected a string or an integer, found 7.5`},
		{`{"query_id": 1, "loss": 0, "uid": 7, "context": "7"}`, `context: duplicate member`},
		{`{"input": [1], "loss": 0}`, `input: expected 2 numbers for float32[2], found 1`},
		{`{"query_id": 1, "loss": 0} {}`, `body: expected the end of the body, found an object`},
		{`{"feedback_batch": []}`, `feedback_batch: expected at least one feedback, found an empty array`},
		{`{"feedback_batch": {}}`, `feedback_batch: expected an array, found an object`},
		{`{"feedback_batch": [1]}`, `feedback_batch[0]: expected an object, found 1`},
		{`{"feedback_batch": [{"query_id": 1, "loss": 0}, {"query_id": 2}]}`, `feedback_batch[1]: expected a member "label", "correct" or "loss"`},
		{`{"feedback_batch": [{"query_id": 1, "loss": 0}, {"query_id": 2, "loss": 9}]}`, `feedback_batch[1].loss: expected a number from 0 to 1, found 9`},
		{`{"feedback_batch": [{"query_id": 1, "loss": 0}], "feedback_batch": []}`, `duplicate member "feedback_batch"`},
		{`{"feedback_batch": [{"query_id": 1, "loss": 0}], "context": "c"}`, `expected "feedback_batch" or the members of one feedback, found both`},
		{`{"query_id": 1, "feedback_batch": [{"query_id": 1, "loss": 0}]}`, `expected "feedback_batch" or the members of one feedback, found both`},
		{`{"feedback_batch": [` + strings.Repeat(`{"query_id": 1, "loss": 0},`, 5) + `]}`, `feedback_batch[4]: more than 4 feedback items in one request: split it`},
		{`{"feedback_batch": [{"feedback_batch": []}]}`, `feedback_batch[0]: expected a member "query_id" or "input"`},
	} {
		_, _, err := parseFeedback(c.body, spec(api.Float32, 2))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.InvalidArgument || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", c.body, err, c.want)
		}
	}
}

// A label of several outputs may be a part of them if it has the one that feedback is about.
func TestPartsOfLabels(t *testing.T) {
	specs := []api.TensorSpec{{Name: "score", DType: api.Float64}, {Name: "label", DType: api.String}}
	for _, c := range []struct {
		label string
		only  int
		want  string // an error
	}{
		{`{"label":"setosa"}`, 1, ""},
		{`{"label":"setosa","score":0.5}`, 1, ""},
		{`{"score":0.5}`, 1, `label: the output "label" (string[]) is missing`},
		{`{}`, 1, `the output "label" (string[]) is missing`},
		{`{"label":"setosa"}`, -1, `the output "score" (float64[]) is missing`},
		{`{"label":"setosa"}`, 0, `the output "score" (float64[]) is missing`},
		{`{"label":7}`, 1, `label.label: expected`},
		{`{"label":"a","other":1}`, 1, `unknown output "other"`},
		{`"setosa"`, 1, `expected an object of the outputs`},
	} {
		s, f, values := &store{width: 1, limit: 8}, &Feedback{}, make([]api.Value, 2)
		if err := f.Parse([]byte(`{"query_id": 1, "label": `+c.label+`}`), specs[:1], s, 4); err != nil {
			t.Fatal(err)
		}
		err := f.ParseLabel(0, specs, c.only, values)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %d: %v, want %s", c.label, c.only, err, c.want)
		}
		if err == nil && string(values[1].Data) != "setosa" {
			t.Errorf("%s: the label is %q", c.label, values[1].Data)
		}
	}
}

// A failed Parse leaves nothing behind that affects the next one.
func TestFeedbackAfterAnError(t *testing.T) {
	s, f := &store{width: 1, limit: 8}, &Feedback{}
	if err := f.Parse([]byte(`{"feedback_batch": [{"query_id": 1, "loss": 0}, 3]}`), spec(api.Float32, 2), s, 4); err == nil {
		t.Fatal("no error")
	}
	if err := f.Parse([]byte(`{"query_id": 2, "label": true}`), spec(api.Float32, 2), s, 4); err != nil || f.Batch || len(f.Items) != 1 {
		t.Fatalf("got %v, %+v", err, f)
	}
	if err := f.ParseLabel(0, spec(api.Int64), -1, make([]api.Value, 1)); err == nil || !strings.Contains(err.Error(), "label: expected an integer, found true") && !strings.Contains(err.Error(), "label: expected a number, found true") {
		t.Errorf("got %v", err)
	}
	if err := f.ParseLabel(0, spec(api.Bool), -1, make([]api.Value, 1)); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestLabels(t *testing.T) {
	two := []api.TensorSpec{{Name: "label", DType: api.Int32}, {Name: "score", DType: api.Float32, Shape: []int64{2}}}
	for _, c := range []struct {
		label   string
		outputs []api.TensorSpec
		want    []api.Value
		err     string
	}{
		{`7`, spec(api.Int64), []api.Value{{Data: raw(api.Int64, 7)}}, ""},
		{`"7"`, spec(api.Int64), nil, `label: expected a number, found "7"`},
		{`true`, spec(api.Bool), []api.Value{{Data: []byte{1}}}, ""},
		{`[1, 2]`, spec(api.Float32, -1), []api.Value{{Data: raw(api.Float32, 1, 2), Dims: []int64{2}}}, ""},
		{`[1, 2, 3]`, spec(api.Float32, 2), nil, `label: expected 2 numbers for float32[2], found 3`},
		{`"aGk="`, spec(api.Bytes), nil, `label: expected {"b64": …}, bytes in base64, found "aGk="`},
		{`{"b64":"aGk"}`, spec(api.Bytes), nil, `label: "b64" is not base64`},
		{`{"b64":"aGl="}`, spec(api.Bytes), nil, `label: "b64" is not base64`},
		{`{"b64":"aG\nk="}`, spec(api.Bytes), nil, `label: "b64" is not base64`},
		{`{"b64":"aGk= "}`, spec(api.Bytes), nil, `label: "b64" is not base64`},
		{`{"b64":"-_8="}`, spec(api.Bytes), nil, `label: "b64" is not base64`},
		{`{"b64":"aGk=","b64":"aGk="}`, spec(api.Bytes), nil, `label: expected bytes as an object with the one member "b64", found more members`},
		{`{"b64":"aGk=","type":"x"}`, spec(api.Bytes), nil, `label: expected bytes as an object with the one member "b64", found more members`},
		{`{"bytes":"aGk="}`, spec(api.Bytes), nil, `label: expected bytes as an object with the one member "b64"`},
		{`{}`, spec(api.Bytes), nil, `label: expected bytes as an object with the one member "b64"`},
		{`{"b64":7}`, spec(api.Bytes), nil, `label: expected a string, found 7`},
		{`{"b64":"\/\/8="}`, spec(api.Bytes), []api.Value{{Data: []byte{255, 255}}}, ""},
		{`{"b64": "aGk="}`, spec(api.Bytes), []api.Value{{Data: []byte("hi")}}, ""},
		{`[{"b64": "aGk="}, {"b64": ""}]`, spec(api.Bytes, 2), []api.Value{{Data: elements("hi", ""), Dims: []int64{2}}}, ""},
		{`{"score": [0, 1], "label": 3}`, two, []api.Value{{Data: raw(api.Int32, 3)}, {Data: raw(api.Float32, 0, 1)}}, ""},
		{`{"label": 3}`, two, nil, `label: the output "score" (float32[2]) is missing`},
		{`{"label": 3, "scores": 1}`, two, nil, `label: unknown output "scores": expected "label", "score"`},
		{`{"label": 3, "score": [0, "x"]}`, two, nil, `label.score`},
		{`3`, two, nil, `label: expected an object of the outputs "label", "score", found 3`},
	} {
		for _, batch := range []bool{false, true} {
			body := `{"query_id": 1, "label": ` + c.label + `}`
			if batch {
				body = `{"feedback_batch": [{"query_id": 1, "loss": 0}, ` + body + `]}`
			}
			f, _, err := parseFeedback(body, spec(api.Float32))
			if err != nil {
				t.Fatal(err)
			}
			values := make([]api.Value, len(c.outputs))
			i, where := 0, ""
			if batch {
				i, where = 1, "feedback_batch[1]."
			}
			err = f.ParseLabel(i, c.outputs, -1, values)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), where+c.err) {
					t.Errorf("%s:\ngot  %v\nwant %s", body, err, where+c.err)
				}
				continue
			}
			if diff := cmp.Diff(c.want, values, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", body, err, diff)
			}
		}
	}
}

// FuzzFeedback: nothing panics, errors have a message for the caller, accepted bodies are JSON and agree with
// encoding/json, and an accepted label is written back unchanged.
func FuzzFeedback(f *testing.F) {
	for i, s := range []string{
		`{"query_id":1,"label":2.5}`, `{"input":[1,2,3],"correct":true,"context":"\u00e9"}`, `{"feedback_batch":[{"query_id":1,"loss":0.5},{"input":[[1,2]],"label":[3,4]}]}`,
		`{"uid":7,"query_id":18446744073709551615,"label":{"b64":"aGk="}}`, `{"query_id":1,"label":{"a":[1,2],"b":{"b64":"\/w=="}},"x":[]}`, `{"feedback_batch":[],"loss":0}`,
	} {
		f.Add([]byte(s), i)
	}
	f.Fuzz(func(t *testing.T, body []byte, which int) {
		specs := fuzzSpecs[uint(which)%uint(len(fuzzSpecs))]
		s, f := &store{width: len(specs), limit: 100}, &Feedback{}
		if err := f.Parse(bytes.Clone(body), specs, s, 100); err != nil {
			checkRefusal(t, body, err)
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was accepted, but is not JSON", body)
		}
		var top map[string]json.RawMessage
		if err := json.Unmarshal(body, &top); err != nil {
			t.Fatal(err)
		}
		items := []map[string]json.RawMessage{top}
		if f.Batch {
			items = nil
			if err := json.Unmarshal(top["feedback_batch"], &items); err != nil {
				t.Fatal(err)
			}
		}
		if len(items) != len(f.Items) {
			t.Fatalf("%q: %d items, encoding/json finds %d", body, len(f.Items), len(items))
		}
		for i, it := range f.Items {
			for name, bit := range map[string]FeedbackMembers{"query_id": FeedbackQueryID, "input": FeedbackInput, "label": FeedbackLabel, "correct": FeedbackCorrect, "loss": FeedbackLoss} {
				text, ok := items[i][name]
				if there := ok && string(text) != "null"; there != (it.Has&bit != 0) {
					t.Fatalf("%q: item %d has %s: %v, encoding/json says %v", body, i, name, it.Has&bit != 0, there)
				}
			}
			if it.Has&FeedbackLabel != 0 && string(it.Label) != string(items[i]["label"]) {
				t.Fatalf("%q: label %q, encoding/json finds %q", body, it.Label, items[i]["label"])
			}
			if it.Has&FeedbackLabel != 0 {
				checkLabel(t, f, i, specs)
			}
		}
	})
}

func checkRefusal(t *testing.T, body []byte, err error) {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidArgument && e.Code != api.TooLarge || !utf8.ValidString(e.Message) {
		t.Fatalf("%q: error %#v", body, err)
	}
}

// checkLabel parses the label with the inputs' specs as outputs, writes it and parses the result.
func checkLabel(t *testing.T, f *Feedback, i int, specs []api.TensorSpec) {
	values, again := make([]api.Value, len(specs)), make([]api.Value, len(specs))
	if err := f.ParseLabel(i, specs, -1, values); err != nil {
		checkRefusal(t, f.Items[i].Label, err)
		return
	}
	text := []byte(`{"query_id":1,"label":`)
	if len(specs) == 1 {
		text = AppendValue(text, specs[0], values[0])
	} else {
		for k := range specs {
			text = append(text, "{,"[min(k, 1)])
			text = append(AppendString(text, specs[k].Name), ':')
			text = AppendValue(text, specs[k], values[k])
		}
		text = append(text, '}')
	}
	text = append(text, '}')
	var second Feedback
	if err := second.Parse(text, nil, nil, 1); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := second.ParseLabel(0, specs, -1, again); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(values, again, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-first +again):\n%s", text, diff)
	}
}
