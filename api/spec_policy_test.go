package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyForms(t *testing.T) {
	for _, c := range []struct {
		spec       PolicySpec
		json, text string
	}{
		{PolicySpec{Name: "exp3"}, `"exp3"`, "exp3"},
		{PolicySpec{Name: "exp3", Params: map[string]any{"eta": 0.1}}, `{"name":"exp3","eta":0.1}`, "exp3 (eta 0.1)"},
		{PolicySpec{Name: "split", Params: map[string]any{"weights": map[string]float64{"b@2": 1, "a": 0.5}, "sticky": false, "by": "user"}},
			`{"name":"split","by":"user","sticky":false,"weights":{"a":0.5,"b@2":1}}`, "split (by user, sticky false, weights {a: 0.5, b@2: 1})"},
	} {
		raw, err := json.Marshal(c.spec)
		if err != nil || string(raw) != c.json {
			t.Errorf("got %s, %v, want %s", raw, err, c.json)
		}
		var again PolicySpec
		if err := json.Unmarshal([]byte(c.json), &again); err != nil || !again.Equal(c.spec) {
			t.Errorf("%s: got %v, %v", c.json, again, err)
		}
		if got := c.spec.String(); got != c.text {
			t.Errorf("got %s, want %s", got, c.text)
		}
	}
}

func TestPolicyEqual(t *testing.T) {
	one := PolicySpec{Name: "split", Params: map[string]any{"eta": 1.0, "weights": map[string]float64{"a": 1}}}
	for _, other := range []PolicySpec{
		{Name: "exp3", Params: one.Params},
		{Name: "split"},
		{Name: "split", Params: map[string]any{"eta": true, "weights": map[string]float64{"a": 1}}},
		{Name: "split", Params: map[string]any{"eta": 1.0, "weights": map[string]float64{"a": 2}}},
		{Name: "split", Params: map[string]any{"eta": map[string]float64{}, "weights": 1.0}},
	} {
		if one.Equal(other) || other.Equal(one) {
			t.Errorf("%v is taken for %v", other, one)
		}
	}
	if again := (PolicySpec{Name: "split", Params: map[string]any{"eta": 1.0, "weights": map[string]float64{"a": 1}}}); !one.Equal(again) {
		t.Error("the same twice is not equal")
	}
}

func TestPolicyAndLossFromStrangeJSON(t *testing.T) {
	for text, want := range map[string]string{
		`3`:                          "policy: expected a name",
		`{"name": 3}`:                "policy.name: expected a string",
		`{"weights": {"a": "much"}}`: "policy.weights.a: expected a number",
	} {
		var p PolicySpec
		if err := json.Unmarshal([]byte(text), &p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	var l LossSpec
	if err := json.Unmarshal([]byte(`{"scale": "much"}`), &l); err == nil || !strings.Contains(err.Error(), "loss: expected its kind") {
		t.Errorf("got %v", err)
	}
}

func TestLossForms(t *testing.T) {
	for _, c := range []struct {
		spec LossSpec
		json string
	}{
		{LossSpec{Kind: LossAbsolute}, `"absolute"`},
		{LossSpec{Kind: LossAbsolute, Scale: 10}, `{"kind":"absolute","scale":10}`},
		{LossSpec{Tolerance: 0.5}, `{"tolerance":0.5}`},
	} {
		raw, err := json.Marshal(c.spec)
		if err != nil || string(raw) != c.json {
			t.Errorf("got %s, %v, want %s", raw, err, c.json)
		}
		var again LossSpec
		if err := json.Unmarshal(raw, &again); err != nil || again != c.spec {
			t.Errorf("%s: got %v, %v", raw, again, err)
		}
	}
}

func TestLossForOutputs(t *testing.T) {
	one := func(d DType) []TensorSpec { return []TensorSpec{{Name: "y", DType: d, Shape: []int64{2}}} }
	two := append(one(Float32), one(Float64)...)
	for _, c := range []struct {
		loss    LossSpec
		outputs []TensorSpec
		want    LossSpec
	}{
		{LossSpec{}, one(Float16), LossSpec{LossAbsolute, 1, 0.1}},
		{LossSpec{}, one(Int64), LossSpec{Kind: LossZeroOne}},
		{LossSpec{}, one(Bytes), LossSpec{Kind: LossZeroOne}},
		{LossSpec{}, two, LossSpec{Kind: LossZeroOne}},
		{LossSpec{Kind: LossZeroOne}, one(Float32), LossSpec{Kind: LossZeroOne}},
		{LossSpec{Kind: LossSquared, Scale: 20}, one(Int64), LossSpec{LossSquared, 20, 2}},
		{LossSpec{Scale: 20, Tolerance: 0.5}, one(Float64), LossSpec{LossAbsolute, 20, 0.5}},
	} {
		got := c.loss.For(c.outputs)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v for %v (-want +got):\n%s", c.loss, c.outputs, diff)
		}
		if got.Numeric() != (got.Kind != LossZeroOne) || got.For(c.outputs) != got {
			t.Errorf("%v: numeric %v, and again %v", got, got.Numeric(), got.For(c.outputs))
		}
	}
}

func TestLossFitsTheOutputs(t *testing.T) {
	for _, c := range []struct {
		loss    LossSpec
		outputs []TensorSpec
		want    string
	}{
		{LossSpec{}, []TensorSpec{{Name: "y", DType: Bytes}}, ""},
		{LossSpec{Kind: LossAbsolute}, []TensorSpec{{Name: "y", DType: Int8}}, ""},
		{LossSpec{Kind: LossAbsolute}, []TensorSpec{{Name: "y", DType: Bytes}}, "loss: absolute needs one output of numbers: model digits-svm@1 has bytes[]"},
		{LossSpec{Kind: LossSquared}, []TensorSpec{{Name: "y", DType: Float32}, {Name: "z", DType: Float32}}, "loss: squared needs one output of numbers: model digits-svm@1 has 2 outputs"},
		{LossSpec{Scale: 2}, []TensorSpec{{Name: "y", DType: Bool}}, "loss: scale and tolerance need one output of numbers: model digits-svm@1 has bool[]"},
		{LossSpec{Scale: 2}, []TensorSpec{{Name: "y", DType: Int64}}, "loss: scale and tolerance need a kind, absolute or squared, where the output is whole numbers (model digits-svm@1: int64[])"},
		{LossSpec{Scale: 2}, []TensorSpec{{Name: "y", DType: Float64}}, ""},
	} {
		m := validModel()
		m.Outputs = c.outputs
		m = m.WithDefaults()
		f := FunctionSpec{Name: "f", Models: []string{"digits-svm"}, Loss: c.loss}.WithDefaults()
		checkError(t, f.CheckModel(&m), c.want)
	}
}

func TestShadowsHaveTheSameSignature(t *testing.T) {
	a, b := validModel().WithDefaults(), validModel().WithDefaults()
	b.Name, b.Inputs = "b", []TensorSpec{{Name: "input", DType: Float64, Shape: []int64{64}}}
	f := FunctionSpec{Name: "f", Models: []string{"digits-svm"}, Shadow: map[string]float64{"c": 0.1, "b@1": 0.1}}.WithDefaults()
	if diff := cmp.Diff([]string{"digits-svm", "b@1", "c"}, f.Refs()); diff != "" {
		t.Fatal(diff)
	}
	checkError(t, f.CheckCandidates([][]*ModelSpec{{&a}, {&b}, nil}), "shadow.b@1: model b@1 takes other inputs than digits-svm@1: input float64[64], not input float32[64]")
	checkError(t, f.CheckCandidates([][]*ModelSpec{{&a}, nil, {&a}}), "")
}
