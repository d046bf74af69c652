package apptest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Text is text in every dialect: a classifier that answers "pos" gives "pos", and the label "pos" is right.
func TestStringsAreText(t *testing.T) {
	t.Parallel()
	m := strings.ReplaceAll(pythonModel(t, newDir(t), "mood", `
import xebec
xebec.serve(lambda batch: ["pos" if "good" in text else "neg" if text.isascii() else "\xff" if text == "\xfc" else text for text in batch])
`), "dtype: bytes", "dtype: string")
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "mood", "slo: 60s"), function("learn", "mood", "slo: 60s", "policy: exp3")))
	g.awaitReplicas("mood", 1)
	ctx := bounded(t)
	for _, c := range []struct{ path, contentType, body, want string }{
		{"/f/predict", "application/json", `{"input":"a good day"}`, `"output":"pos"`},
		{"/learn/predict", "application/json", `{"input":"good"}`, `"output":"pos"`},
		{"/learn/predict", "application/json", `{"input":"so good"}`, `"output":"pos"`},
		{"/f/predict", "text/plain", "a bad day", `"output":"neg"`},
		{"/f/predict", "application/json", `{"input":"sch\u00f6n"}`, `"output":"schön"`},
		{"/v2/models/mood/infer", "application/json", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[2],"data":["good","né"]}]}`, `"datatype":"BYTES","shape":[2],"data":["pos","né"]`},
	} {
		a, err := g.post(ctx, c.path, c.contentType, []byte(c.body))
		if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), c.want) {
			t.Errorf("%s %s: %v %v, expected %s", c.path, c.body, a, err, c.want)
		}
	}
	if a, err := g.post(ctx, "/f/predict", "text/plain", []byte("not \xff text")); err != nil || a.Status != 400 || !strings.Contains(string(a.Body), "UTF-8") {
		t.Errorf("a raw body that is no text: %v %v", a, err)
	}
	if a, err := g.post(ctx, "/f/predict", "application/json", []byte(`{"input":{"b64":"AA=="}}`)); err != nil || a.Status != 400 {
		t.Errorf("base64 for text: %v %v", a, err)
	}
	for _, body := range []string{`{"input":"good","label":"pos"}`, `{"input":"so good","label":"neg"}`} {
		if a, err := g.post(ctx, "/learn/feedback", "application/json", []byte(body)); err != nil || a.Status != 200 {
			t.Errorf("%s: %v %v", body, a, err)
		}
	}
	samples := g.metrics().samples
	if n, sum := samples[`xebec_feedback_loss_count{candidate="mood",function="learn"}`], samples[`xebec_feedback_loss_sum{candidate="mood",function="learn"}`]; n != 2 || sum != 1 {
		t.Errorf("a right and a wrong label: %v labels with a loss of %v together, expected 2 and 1", n, sum)
	}
	if text := g.must("get", "model", "mood", "-o", "yaml"); !strings.Contains(text, "dtype: string") {
		t.Errorf("get: %s", text)
	}
}

// A model of a wide table gets each column by its name, from rows of either form and from CSV.
func TestWideTables(t *testing.T) {
	t.Parallel()
	const width = 255
	var columns, names, values []string
	for i := range width {
		columns = append(columns, fmt.Sprintf("{name: column %d, dtype: float64}", i))
		names, values = append(names, fmt.Sprintf("column %d", i)), append(values, strconv.Itoa(i))
	}
	m := strings.ReplaceAll(pythonModel(t, newDir(t), "wide", `
import xebec
xebec.serve(lambda table: 1000 * table["column 254"] + table["column 7"])
`), "inputs:  [{name: input, dtype: bytes, shape: []}]", "columns: ["+strings.Join(columns, ", ")+"]")
	m = strings.ReplaceAll(m, "dtype: bytes", "dtype: float64")
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "wide", "slo: 60s")))
	g.awaitReplicas("wide", 1)
	ctx := bounded(t)
	split := `{"dataframe_split":{"columns":["` + strings.Join(names, `","`) + `"],"data":[[` + strings.Join(values, ",") + `]]}}`
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json", `{"input":[` + strings.Join(values, ",") + `]}`, `"output":254007`},
		{"application/json", split, `"output":254007`},
		{"text/csv", strings.Join(names, ",") + "\n" + strings.Join(values, ",") + "\n", `"output":254007`},
	} {
		a, err := g.post(ctx, "/f/predict", c.contentType, []byte(c.body))
		if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), c.want) {
			t.Errorf("%.60s…: %v %v, expected %s", c.body, a, err, c.want)
		}
	}
}

// A missing number is null on its way to the model, where it is NaN, and back.
func TestMissingValues(t *testing.T) {
	t.Parallel()
	m := strings.ReplaceAll(pythonModel(t, newDir(t), "same", "import xebec\nxebec.serve(lambda batch: batch)\n"), "dtype: bytes, shape: []", "dtype: float32, shape: [3]")
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "same", "slo: 60s")))
	g.awaitReplicas("same", 1)
	ctx := bounded(t)
	for _, c := range []struct{ path, body, want string }{
		{"/f/predict", `{"input":[1,null,2.5]}`, `"output":[1,null,2.5]`},
		{"/v2/models/same/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,3],"data":[null,1,null]}]}`, `"data":[null,1,null]`},
	} {
		a, err := g.post(ctx, c.path, "application/json", []byte(c.body))
		if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), c.want) {
			t.Errorf("%s %s: %v %v, expected %s", c.path, c.body, a, err, c.want)
		}
	}
}
