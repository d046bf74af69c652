package manifest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func TestYAMLForPeople(t *testing.T) {
	set := exampleSet()
	set.Models[0].Run.Env = map[string]api.EnvValue{"OMP_NUM_THREADS": {Value: "1"}, "TEXT": {Value: "two words"}, "TOKEN": {File: "/run/secrets/a b"}}
	got, err := set.YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := `kind: Model
name: digits-svm
version: "1"
inputs:
  - {name: input, dtype: float32, shape: [64]}
outputs:
  - {name: output, dtype: int64, shape: []}
run:
  command: [python, model.py]
  env:
    OMP_NUM_THREADS: "1"
    TEXT: "two words"
    TOKEN: {valueFrom: {file: "/run/secrets/a b"}}
replicas: {min: 1, max: 2, idle: 5m0s, window: 1m0s, delay: 30s, utilization: 0.7, up: 10, down: 2}
batching: {policy: aimd, max: 4096, max_bytes: 67108864}
retry: true
queue: {max: 16384}
cache: "on"
---
kind: Function
name: digits
models: [digits-svm]
slo: 20ms
default: -1
policy: single
weight: 1
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a gateway shows has no value of an environment variable, says so, and is refused by every reader but the one for shown manifests.
func TestMaskedValuesCannotBeApplied(t *testing.T) {
	shown := exampleSet()
	declared := map[string]api.EnvValue{"A": {Value: "s3cret"}, "EMPTY": {}, "TOKEN": {File: "token"}}
	shown.Models[0].Run.Env = declared
	shown.Models[0] = shown.Models[0].WithoutSecrets()
	if declared["A"].Value != "s3cret" {
		t.Error("the mask has changed what is declared")
	}
	yaml, err := shown.YAML()
	if err != nil {
		t.Fatal(err)
	}
	json, err := shown.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(yaml), "# Values of environment variables are masked") || !strings.Contains(string(yaml), "TOKEN: {valueFrom: {file: token}}") {
		t.Errorf("shown:\n%s", yaml)
	}
	for _, text := range [][]byte{yaml, json} {
		if strings.Contains(string(text), "s3cret") {
			t.Errorf("a value is shown:\n%s", text)
		}
		for _, decode := range []func() error{
			func() error { _, err := Decode("f.yaml", text); return err },
			func() error { _, _, err := DecodeRequest("f.yaml", text); return err },
		} {
			for _, name := range []string{"A", "EMPTY"} {
				if err := decode(); err == nil || !strings.Contains(err.Error(), "run.env."+name+": the value is masked, so it is not known: read the declaration again with --show-secrets") {
					t.Errorf("got %v", err)
				}
			}
		}
		again, err := DecodeShown("f.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(shown, again, cmpopts.IgnoreUnexported(Set{})); diff != "" {
			t.Errorf("(-shown +read):\n%s", diff)
		}
	}
}

func TestYAMLFromJSON(t *testing.T) {
	got, err := YAMLFromJSON([]byte(`{"b": {"n": 1.50, "list": [], "s": "1"}, "a": [{"x": null, "y": "two words"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `b:
  "n": 1.50
  list: []
  s: "1"
a:
  - x: null
    "y": "two words"
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := YAMLFromJSON([]byte("{")); err == nil {
		t.Error("half a JSON text was taken")
	}
}

// Decoding an encoded set returns the same set, for every valid set.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t)
		for _, m := range set.Models {
			if err := m.Validate(); err != nil {
				t.Fatalf("the generator drew a model that is not valid: %v", err)
			}
		}
		for _, f := range set.Functions {
			if err := f.Validate(); err != nil {
				t.Fatalf("the generator drew a function that is not valid: %v", err)
			}
		}
		for _, traffic := range set.Traffic {
			if err := traffic.Validate(); err != nil {
				t.Fatalf("the generator drew traffic that is not valid: %v", err)
			}
		}
		yamlText, err := set.YAML()
		if err != nil {
			t.Fatal(err)
		}
		jsonText, err := set.JSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{yamlText, jsonText} {
			got, err := Decode("set", text)
			if err != nil {
				t.Fatalf("%v in:\n%s", err, text)
			}
			if diff := cmp.Diff(set, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Set{})); diff != "" {
				t.Fatalf("(-want +got):\n%s\nof:\n%s", diff, text)
			}
		}
	})
}

func drawSet(t *rapid.T) *Set {
	set := &Set{}
	for i := range rapid.IntRange(0, 3).Draw(t, "models") {
		m := drawModel(t)
		m.Version = []string{"1", "1.10", "2026-01-02"}[i%3] // different ids
		set.Models = append(set.Models, m)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "functions") {
		f := drawFunction(t)
		f.Name = []string{"f", "0x1f"}[i]
		set.Functions = append(set.Functions, f)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "traffic") {
		traffic := drawTraffic(t)
		traffic.Model = []string{"other-model-of-the-set", "1e3"}[i]
		set.Traffic = append(set.Traffic, traffic)
	}
	if set.Len() == 0 {
		set.Functions = []api.FunctionSpec{drawFunction(t)}
	}
	return set
}

var (
	name     = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?`)
	text     = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"null", "~", "1e3", "yes", "0x1f", "- a", "a: b", "<<", "# c", " x ", "\u2028", "\u0085", "\x7f", "\ufeff", "😀", "'", `"`, "\r\n", "\t"})).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	duration = rapid.Int64Range(1, int64(time.Minute))
	amount   = func(low, high float64) *rapid.Generator[float64] {
		return rapid.OneOf(rapid.Float64Range(low, high), rapid.SampledFrom([]float64{low, high, 1, 0.1 + 0.2}))
	}
)

func drawTensors(t *rapid.T, label string) []api.TensorSpec {
	var specs []api.TensorSpec
	names := rapid.SliceOfNDistinct(text.Filter(func(s string) bool {
		return s != "" && len(s) <= api.MaxTensorNameBytes && !strings.ContainsFunc(s, unicode.IsControl)
	}), 1, 3, rapid.ID[string]).Draw(t, label)
	for _, n := range names {
		specs = append(specs, api.TensorSpec{
			Name:  n,
			DType: api.DType(rapid.IntRange(int(api.Bool), int(api.Bytes)).Draw(t, "dtype")),
			Shape: rapid.SliceOfN(rapid.Int64Range(-1, 8), 0, 4).Draw(t, "shape"),
		})
	}
	return specs
}

var envValue = rapid.Custom(func(t *rapid.T) api.EnvValue {
	if file := text.Draw(t, "file"); file != "" && rapid.Bool().Draw(t, "from a file") {
		return api.EnvValue{File: file}
	}
	return api.EnvValue{Value: text.Draw(t, "value")}
})

func drawModel(t *rapid.T) api.ModelSpec {
	m := api.ModelSpec{
		Name:    name.Draw(t, "name"),
		Inputs:  drawTensors(t, "inputs"),
		Outputs: drawTensors(t, "outputs"),
		Run: api.RunSpec{
			Command: append([]string{"python"}, rapid.SliceOfN(text, 0, 3).Draw(t, "arguments")...),
			Env:     rapid.MapOfN(rapid.StringMatching(`[a-wA-W_][a-z0-9_]{0,5}`), envValue, 0, 3).Draw(t, "env"),
		},
		Python:  text.Draw(t, "python"),
		Timeout: time.Duration(duration.Draw(t, "timeout")),
		Cache:   rapid.SampledFrom([]string{"", api.CacheOn, api.CacheOff}).Draw(t, "cache"),
	}
	m.Replicas.Max = rapid.IntRange(1, api.MaxReplicas).Draw(t, "max")
	m.Replicas.Min = rapid.IntRange(0, m.Replicas.Max).Draw(t, "min")
	m.Queue.Max = rapid.IntRange(0, api.MaxQueue).Draw(t, "queue")
	b := &m.Batching
	b.Policy = rapid.SampledFrom([]string{api.BatchAIMD, api.BatchQuantile, api.BatchFixed, api.BatchNone}).Draw(t, "policy")
	if b.Policy != api.BatchNone {
		b.Max = rapid.IntRange(1, api.MaxBatch).Draw(t, "batch")
	}
	b.Pad = b.Policy == api.BatchFixed && rapid.Bool().Draw(t, "pad")
	b.Hold = time.Duration(rapid.Int64Range(0, int64(api.MaxHold)).Draw(t, "hold"))
	if rapid.Bool().Draw(t, "has objective") {
		b.Objective = b.Hold + time.Duration(duration.Draw(t, "objective"))
	}
	b.MaxBytes = rapid.SampledFrom([]int64{0, 1 << 20, api.MaxBatchBytes}).Draw(t, "bytes")
	m.Cost = amount(0, api.MaxCost).Draw(t, "cost")
	if rapid.Bool().Draw(t, "has device") {
		m.Device = name.Draw(t, "device")
	}
	if rapid.Bool().Draw(t, "has retry") {
		retry := rapid.Bool().Draw(t, "retry")
		m.Retry = &retry
	}
	if rapid.Bool().Draw(t, "has dir") {
		m.Dir = rapid.OneOf(text, rapid.SampledFrom([]string{"/models/m", "models/m", ".", "..", "/"})).Draw(t, "dir")
	}
	drawQuality(t, &m)
	return m.WithDefaults()
}

func drawQuality(t *rapid.T, m *api.ModelSpec) {
	file := text.Filter(func(s string) bool { return s != "" && !strings.HasPrefix(s, "/") && !strings.Contains(s, "..") })
	if rapid.Bool().Draw(t, "has warm-up") {
		m.Warmup = &api.WarmupSpec{Queries: file.Draw(t, "warm-up"), Repeat: rapid.IntRange(0, api.MaxWarmupRepeat).Draw(t, "repeat")}
	}
	if rapid.Bool().Draw(t, "has validation") {
		v := &api.ValidateSpec{Queries: file.Draw(t, "queries"), Expect: rapid.SampledFrom([]string{"", api.ExpectLabels, api.ExpectServing}).Draw(t, "expect")}
		if v.Expect == api.ExpectServing {
			v.MaxDifference = amount(0, 1).Draw(t, "difference")
		} else {
			v.MinAccuracy = amount(0, 1).Draw(t, "accuracy")
		}
		v.Tolerance = amount(0, api.MaxTolerance).Draw(t, "tolerance")
		if rapid.Bool().Draw(t, "has extremes") {
			extremes := rapid.Bool().Draw(t, "extremes")
			v.Extremes = &extremes
		}
		m.Validation = v
	}
}

func drawFunction(t *rapid.T) api.FunctionSpec {
	f := api.FunctionSpec{
		Name: "f" + name.Draw(t, "name"),
		// Use a name that no drawn model has: another test checks that a default fits a model.
		Models:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"other-model-of-the-set", "other-model-of-the-set@1.0", "one-more-that-is-not-drawn"}), 1, 3, rapid.ID[string]).Draw(t, "models"),
		Weight:    amount(api.MinWeight, api.MaxWeight).Draw(t, "weight"),
		Budget:    amount(0, api.MaxBudget).Draw(t, "budget"),
		SLO:       time.Duration(duration.Draw(t, "slo")),
		ColdStart: time.Duration(rapid.Int64Range(0, int64(api.MaxColdStart)).Draw(t, "cold start")),
	}
	if len(f.Models) > 1 || rapid.Bool().Draw(t, "has policy") {
		f.Policy = drawPolicy(t)
	}
	f.Loss.Kind = rapid.SampledFrom([]string{"", api.LossZeroOne, api.LossAbsolute, api.LossSquared}).Draw(t, "loss")
	if f.Loss.Kind != api.LossZeroOne && rapid.Bool().Draw(t, "has scale") {
		f.Loss.Scale, f.Loss.Tolerance = amount(1e-9, 1e9).Draw(t, "scale"), amount(1e-9, 1e9).Draw(t, "tolerance")
	}
	for _, ref := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"shadow", "shadow@1.0", "other-model-of-the-set@2"}), 0, 3, rapid.ID[string]).Draw(t, "shadow") {
		if f.Shadow == nil {
			f.Shadow = map[string]float64{}
		}
		f.Shadow[ref] = amount(1e-6, 1).Draw(t, "part")
	}
	if rapid.Bool().Draw(t, "has default") {
		raw, err := json.Marshal(drawJSON(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, []byte("null")) {
			f.Default = raw
			f.MinConfidence = amount(0, 1).Draw(t, "confidence")
		}
	}
	if rapid.Bool().Draw(t, "has log") {
		f.Log = &api.LogSpec{Sample: amount(0, 1).Draw(t, "sample")}
	}
	if rapid.Bool().Draw(t, "has cors") {
		f.CORS = &api.CORSSpec{
			Origins: rapid.SampledFrom([][]string{{"*"}, {"https://app.example.com", "http://localhost:3000"}}).Draw(t, "origins"),
			Headers: rapid.SampledFrom([][]string{nil, {"X-Tenant", "null"}}).Draw(t, "headers"),
			MaxAge:  time.Duration(rapid.Int64Range(0, int64(api.MaxCORSMaxAge)).Draw(t, "max age")),
		}
		f.CORS.Credentials = f.CORS.Origins[0] != "*" && rapid.Bool().Draw(t, "credentials")
	}
	return f.WithDefaults()
}

func drawTraffic(t *rapid.T) api.TrafficSpec {
	// No label is among the versions. Some of these read as another type in YAML.
	version := rapid.SampledFrom([]string{"1", "007", "1.10", "0x1f", "1e3", "2026-01-02", "true", "null", "no", "V", "0"})
	share := func(what string) *api.VersionShare {
		if !rapid.Bool().Draw(t, "has "+what) {
			return nil
		}
		return &api.VersionShare{Version: version.Draw(t, what), Percent: amount(1e-6, 100).Draw(t, "percent")}
	}
	spec := api.TrafficSpec{
		Model: name.Draw(t, "name"), Transition: rapid.SampledFrom([]string{"", api.TransitionAvailability, api.TransitionResources}).Draw(t, "transition"),
		Split: share("split"), Shadow: share("shadow"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "versions") {
	case 1:
		spec.Versions.All = true
	case 2:
		spec.Versions.Latest = rapid.IntRange(1, api.MaxLatest).Draw(t, "latest")
	case 3:
		spec.Versions.Specific = rapid.SliceOfNDistinct(version, 1, 4, rapid.ID[string]).Draw(t, "specific")
	}
	if spec.Split == nil && rapid.Bool().Draw(t, "has rollout") {
		spec.Rollout = drawRollout(t, version)
	}
	for _, label := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"stable", "canary", "y", "n", "e-3", "off"}), 0, 4, rapid.ID[string]).Draw(t, "labels") {
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[label] = version.Draw(t, "labelled")
	}
	if rapid.Bool().Draw(t, "has rollback") {
		spec.Rollback = &api.RollbackSpec{From: "10", To: rapid.SampledFrom([]string{"9", "1.10", "null", "0"}).Draw(t, "to"), Reason: text.Filter(func(s string) bool {
			return len(s) <= api.MaxReasonBytes && !strings.ContainsFunc(s, unicode.IsControl)
		}).Draw(t, "reason")}
	}
	if rapid.Bool().Draw(t, "has serving") {
		spec.Serving = "the-serving-one"
	}
	return spec.WithDefaults()
}

func drawRollout(t *rapid.T, version *rapid.Generator[string]) *api.RolloutSpec {
	r := &api.RolloutSpec{Version: version.Draw(t, "rolled out"), Guard: api.GuardSpec{
		MinFeedback: rapid.IntRange(0, api.MaxMinFeedback).Draw(t, "feedback"), MaxErrorIncrease: amount(0, 1).Draw(t, "errors"),
		MaxP99Increase: amount(0, api.MaxP99Factor).Draw(t, "latency"),
	}}
	if rapid.Bool().Draw(t, "has policy") {
		r.Policy = drawPolicy(t)
		r.Policy.Name = rapid.SampledFrom(api.RolloutPolicies).Draw(t, "rollout policy")
	}
	return r
}

func drawPolicy(t *rapid.T) api.PolicySpec {
	p := api.PolicySpec{Name: rapid.SampledFrom([]string{api.PolicyPrefer, api.PolicyExp3, api.PolicyEpsilonGreedy, "my-own", "1e3"}).Draw(t, "policy")}
	for range rapid.IntRange(0, 4).Draw(t, "parameters") {
		if p.Params == nil {
			p.Params = map[string]any{}
		}
		var v any
		switch rapid.IntRange(0, 3).Draw(t, "kind of parameter") {
		case 0:
			v = rapid.OneOf(rapid.Float64Range(-1e300, 1e300), rapid.SampledFrom([]float64{0, 1, -1, 1e21, 5e-324})).Draw(t, "number") + 0
		case 1:
			v = rapid.Bool().Draw(t, "bool")
		case 2:
			v = text.Filter(func(s string) bool {
				return s != "" && len(s) <= api.MaxPolicyTextBytes && !strings.ContainsFunc(s, unicode.IsControl)
			}).Draw(t, "text")
		default:
			v = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b@1.10", "c@2026-01-02", "null", "1"}), rapid.Float64Range(0.001, 10), 0, 3).Draw(t, "numbers")
		}
		p.Params[rapid.SampledFrom([]string{"eta", "n", "y", "null", "floor_2", "models"}).Draw(t, "parameter")] = v
	}
	return p
}

func drawJSON(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind of JSON") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Float64().Draw(t, "float")
	case 4:
		return rapid.String().Draw(t, "string")
	case 5:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			object[rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"<<", "null", "1", "2026-01-02", "y", "kind"})).Draw(t, "key")] = drawJSON(t, depth-1)
		}
		return object
	}
}

// FuzzDecode checks that the decoder survives any bytes, and that what it accepts is valid and survives being written
// and read again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{example, `{"kind": "Function", "name": "f", "models": ["m"], "default": {"a": [1e3, "\ud83d\ude00"]}}`,
		"- kind: Function\n  name: f\n  models: [m]\n  slo: 1.5s\n", "a: &a [x]\nb: *a\n", "kind: Function\n\tname: f\n", "? [a]\n: b\n", "%YAML 1.1\n---\nkind: Model\n...\n",
		"kind: Function\nname: f\nmodels: [m, n]\npolicy: {name: split, weights: {m: 0.9, n: .1}, sticky: true, by: x}\nloss: {scale: 2}\nshadow: {o@1: 0.5}\ndefault: 1\nmin_confidence: 0.5\n",
		"kind: Traffic\nname: m\nversions: all\nrollout: {version: 4, policy: {name: exp3, eta: .1}, guard: {min_feedback: 0x10}}\nlabels: {stable: 1.10, y: 2026-01-02}\n",
		`[{"kind": "Traffic", "name": "m", "versions": {"specific": ["1", "2"]}, "split": {"version": "2", "percent": 1e1}, "rollback": {"from": "3", "to": "1", "reason": "\u007d"}}]`,
		modelWith("warmup: {queries: w.jsonl}\nvalidate: {queries: v.jsonl, expect: serving, max_difference: 5e-2, extremes: no}\ndir: ../x\n---\n") + functionWith("log: {sample: .5}\n")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Decode("f.yaml", data)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		for _, m := range set.Models {
			if err := m.Validate(); err != nil {
				t.Errorf("accepted, but: %v", err)
			}
		}
		for _, fn := range set.Functions {
			if err := fn.Validate(); err != nil {
				t.Errorf("accepted, but: %v", err)
			}
		}
		for _, traffic := range set.Traffic {
			if err := traffic.Validate(); err != nil {
				t.Errorf("accepted, but: %v", err)
			}
		}
		for _, encode := range []func() ([]byte, error){set.YAML, set.JSON} {
			text, err := encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Decode("again.yaml", text)
			if err != nil {
				t.Fatalf("%v in:\n%s", err, text)
			}
			if diff := cmp.Diff(set, again, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Set{})); diff != "" {
				t.Fatalf("(-first +again):\n%s", diff)
			}
		}
	})
}
