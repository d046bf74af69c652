package apptest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// digits are handwritten digits that the demo's models were not trained on.
type digits struct {
	Pixels [][]float32 `json:"pixels"`
	Labels []int64     `json:"labels"`
	path   string
}

func heldOut(t *testing.T) digits {
	t.Helper()
	demo := filepath.Join(programs.repo, "deploy/demo")
	for _, made := range []string{"digits-svm", "digits-forest", "digits-logreg"} {
		if _, err := os.Stat(filepath.Join(demo, "models", made, "digits.joblib")); err != nil {
			t.Fatalf("the demo's model %s is not trained (%v): run `make demo` at the repository's root", made, err)
		}
	}
	out, err := exec.CommandContext(bounded(t), python(t), "testdata/heldout.py", demo).Output()
	if err != nil {
		t.Fatalf("heldout.py: %v%s", err, stderrOf(err))
	}
	d := digits{path: filepath.Join(newDir(t), "heldout.json")}
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path, out, 0o644); err != nil {
		t.Fatal(err)
	}
	if len(d.Labels) < 300 || len(d.Pixels) != len(d.Labels) {
		t.Fatalf("%d held-out digits and %d labels: expected hundreds", len(d.Pixels), len(d.Labels))
	}
	return d
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

// accuracy returns the share of correct digits. Every answer must be a prediction.
func (d digits) accuracy(t *testing.T, what string, outputs []int64) {
	t.Helper()
	if len(outputs) > len(d.Labels) || len(outputs) == 0 {
		t.Errorf("%s: %d outputs for %d digits", what, len(outputs), len(d.Labels))
		return
	}
	right := 0
	for i, o := range outputs {
		if o == d.Labels[i] {
			right++
		}
	}
	share := float64(right) / float64(len(outputs))
	t.Logf("%s: %.3f of %d digits", what, share, len(outputs))
	if share < 0.9 {
		t.Errorf("%s: %.3f of the held-out digits are right: expected at least 0.9", what, share)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func floats(v []float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// label returns the digit that a prediction names.
func (p prediction) label(t *testing.T) int64 {
	t.Helper()
	var n int64
	if err := json.Unmarshal(p.Output, &n); err != nil || p.Default {
		t.Fatalf("the answer %+v (output %s) is not a prediction of a digit", p, p.Output)
	}
	return n
}

// The demo answers as `make run` promises: three models classify digits, in each form of a request.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := heldOut(t)
	g := serve(t, "--config", filepath.Join(programs.repo, "deploy/demo"), "--python", python(t))
	for _, name := range []string{"digits-svm", "digits-forest", "digits-logreg"} {
		t.Run(name, func(t *testing.T) {
			oneByOne(t, g, d, name)
			batches(t, g, d, name)
			oipJSON(t, g, d, name)
			oipBinary(t, g, d, name)
		})
	}
	t.Run("default", func(t *testing.T) {
		// No model evaluates a digit within a microsecond. The salt makes the cache miss, which has these digits by now.
		a := g.json("/digits-svm/predict", fmt.Sprintf(`{"input":%s,"salt":"new"}`, toJSON(t, d.Pixels[0])), "Xebec-Slo-Ms", "0.001")
		if a.Status != 200 || !a.Default || string(a.Output) != "-1" || a.DefaultExplanation != api.DeadlineExceeded.Reason() || a.QueryID == nil {
			t.Errorf("a query with a deadline of a microsecond is answered by %v: expected the default -1 and its reason", a)
		}
	})
	t.Run("echo", func(t *testing.T) {
		for _, sent := range []string{"", "hello", "\x00\xff \u20ac", string(bytes.Repeat([]byte("long "), 50_000))} {
			if a := g.raw("echo", sent, "Xebec-Slo-Ms", patient); !a.predicted() || a.text() != sent {
				t.Errorf("%.20q (%d bytes) was answered by %v", sent, len(sent), a)
			}
		}
	})
	t.Run("noop", func(t *testing.T) {
		for _, input := range []string{"[]", "[1,2.5,-3]", toJSON(t, make([]float32, 10_000))} {
			if a := g.json("/noop/predict", `{"input":`+input+`}`, "Xebec-Slo-Ms", patient); !a.predicted() || string(a.Output) != "0" {
				t.Errorf("%.20s was answered by %v: expected 0", input, a)
			}
		}
	})
	t.Run("public client", func(t *testing.T) { publicClient(t, g, d) })
}

func oneByOne(t *testing.T, g *gateway, d digits, name string) {
	const some = 60
	var asJSON, asRaw []int64
	for _, pixels := range d.Pixels[:some] {
		a := g.json("/"+name+"/predict", fmt.Sprintf(`{"input":%s}`, toJSON(t, pixels)), "Xebec-Slo-Ms", patient)
		if a.Status != 200 || a.QueryID == nil || a.Confidence <= 0 || len(a.Models) != 1 || a.Models[0] != name+"@1" {
			t.Fatalf("%v: expected a query_id, a confidence, and the model %s@1", a, name)
		}
		asJSON = append(asJSON, a.label(t))
		raw, err := g.post(bounded(t), "/"+name+"/predict", "application/octet-stream", floats(pixels), "Xebec-Slo-Ms", patient)
		if err != nil {
			t.Fatal(err)
		}
		asRaw = append(asRaw, raw.label(t))
	}
	d.accuracy(t, name+" input", asJSON)
	d.accuracy(t, name+" raw body", asRaw)
}

func batches(t *testing.T, g *gateway, d digits, name string) {
	for _, n := range []int{1, len(d.Pixels)} {
		a := g.json("/"+name+"/predict", fmt.Sprintf(`{"input_batch":%s}`, toJSON(t, d.Pixels[:n])), "Xebec-Slo-Ms", patient)
		if a.Status != 200 || len(a.Batch) != n {
			t.Fatalf("a batch of %d was answered by %v", n, a)
		}
		var outputs []int64
		for _, p := range a.Batch {
			outputs = append(outputs, p.label(t))
		}
		if n > 1 {
			d.accuracy(t, name+" input_batch", outputs)
		}
	}
}

// oipAnswer is an answer of the Open Inference Protocol.
type oipAnswer struct {
	Model   string `json:"model_name"`
	Version string `json:"model_version"`
	ID      string `json:"id"`
	Outputs []struct {
		Name     string  `json:"name"`
		DataType string  `json:"datatype"`
		Shape    []int64 `json:"shape"`
		Data     []int64 `json:"data"`
		Params   struct {
			Bytes int `json:"binary_data_size"`
		} `json:"parameters"`
	} `json:"outputs"`
}

func decodeOIP(t *testing.T, name, version string, n int, text []byte) oipAnswer {
	t.Helper()
	var o oipAnswer
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	if o.Model != name || o.Version != version || o.ID != "seven" || len(o.Outputs) != 1 || o.Outputs[0].Name != "output" ||
		o.Outputs[0].DataType != "INT64" || len(o.Outputs[0].Shape) != 1 || o.Outputs[0].Shape[0] != int64(n) {
		t.Fatalf("the answer is %.300s: expected an INT64 output of %d digits from %s, id seven", text, n, name)
	}
	return o
}

func oipJSON(t *testing.T, g *gateway, d digits, name string) {
	request := map[string]any{"id": "seven", "inputs": []any{map[string]any{"name": "input", "datatype": "FP32", "shape": []int{len(d.Pixels), 64}, "data": d.Pixels}}}
	a := g.json("/v2/models/"+name+"/infer", toJSON(t, request))
	if a.Status != 200 {
		t.Fatalf("OIP: %v", a)
	}
	d.accuracy(t, name+" OIP JSON", decodeOIP(t, name, "", len(d.Pixels), a.Body).Outputs[0].Data)
}

func oipBinary(t *testing.T, g *gateway, d digits, name string) {
	var data []byte
	for _, pixels := range d.Pixels {
		data = append(data, floats(pixels)...)
	}
	head := []byte(toJSON(t, map[string]any{
		"id":      "seven",
		"inputs":  []any{map[string]any{"name": "input", "datatype": "FP32", "shape": []int{len(d.Pixels), 64}, "parameters": map[string]any{"binary_data_size": len(data)}}},
		"outputs": []any{map[string]any{"name": "output", "parameters": map[string]any{"binary_data": true}}},
	}))
	a, err := g.post(bounded(t), "/v2/models/"+name+"/versions/1/infer", "application/octet-stream", append(head, data...), "Inference-Header-Content-Length", fmt.Sprint(len(head)))
	if err != nil || a.Status != 200 {
		t.Fatalf("OIP binary: %v %v", a, err)
	}
	var split int
	if _, err := fmt.Sscan(a.Header.Get("Inference-Header-Content-Length"), &split); err != nil || split > len(a.Body) {
		t.Fatalf("Inference-Header-Content-Length: %q, body of %d bytes", a.Header.Get("Inference-Header-Content-Length"), len(a.Body))
	}
	o, tensor := decodeOIP(t, name, "1", len(d.Pixels), a.Body[:split]), a.Body[split:]
	if o.Outputs[0].Params.Bytes != len(tensor) || len(tensor) != 8*len(d.Pixels) {
		t.Fatalf("%d bytes of output, announced as %d: expected 8 for each of %d digits", len(tensor), o.Outputs[0].Params.Bytes, len(d.Pixels))
	}
	outputs := make([]int64, len(d.Pixels))
	for i := range outputs {
		outputs[i] = int64(binary.LittleEndian.Uint64(tensor[8*i:]))
	}
	d.accuracy(t, name+" OIP binary", outputs)
}

// publicClient runs the protocol's own client against the gateway.
func publicClient(t *testing.T, g *gateway, d digits) {
	if out, err := exec.CommandContext(bounded(t), python(t), "-c", "import tritonclient.http").CombinedOutput(); err != nil {
		t.Fatalf("%s has no tritonclient (%v: %s): `make venv` installs gateway/cmd/xebec/apptest/requirements.txt", python(t), err, tail(string(out), 1))
	}
	out, err := exec.CommandContext(bounded(t), python(t), "testdata/oip.py", g.functions, d.path).Output()
	if err != nil {
		t.Fatalf("oip.py: %v%s", err, stderrOf(err))
	}
	var right map[string]float64
	if err := json.Unmarshal(out, &right); err != nil || len(right) != 12 {
		t.Fatalf("oip.py printed %s (%v): expected 12 shares", out, err)
	}
	for form, share := range right {
		if share < 0.9 {
			t.Errorf("%s: %.3f of the held-out digits are right: expected 0.9", form, share)
		}
	}
}
