package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/xebec-serving/xebec/api"
)

// example is like the first manifest of the package documentation.
const example = `kind: Model
name: digits-svm
version: "1"
inputs:  [{name: input, dtype: float32, shape: [64]}]    # of one query; -1 = any
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py]}
replicas: {min: 1, max: 2}
batching: {policy: aimd, max: 4096, hold: 0ms}
---
kind: Function
name: digits
models: [digits-svm]          # "name" = its serving version, "name@version" pins one
slo: 20ms
default: -1
`

func exampleSet() *Set {
	m := api.ModelSpec{
		Name: "digits-svm", Version: "1",
		Inputs:   []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{64}}},
		Outputs:  []api.TensorSpec{{Name: "output", DType: api.Int64}},
		Run:      api.RunSpec{Command: []string{"python", "model.py"}},
		Replicas: api.ReplicaBounds{Min: 1, Max: 2},
	}
	f := api.FunctionSpec{Name: "digits", Models: []string{"digits-svm"}, SLO: 20 * time.Millisecond, Default: json.RawMessage("-1")}
	return &Set{Models: []api.ModelSpec{m.WithDefaults()}, Functions: []api.FunctionSpec{f.WithDefaults()}}
}

func TestExample(t *testing.T) {
	got, err := Decode("models.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleSet(), got, cmpopts.IgnoreUnexported(Set{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExampleAsJSON(t *testing.T) {
	text := `[
  {"kind": "Model", "name": "digits-svm", "version": "1",
   "inputs": [{"name": "input", "dtype": "float32", "shape": [64]}], "outputs": [{"name": "output", "dtype": "int64", "shape": []}],
   "run": {"command": ["python", "model.py"]}, "replicas": {"min": 1, "max": 2}, "batching": {"policy": "aimd", "max": 4096, "hold": "0ms"}},
  {"kind": "Function", "name": "digits", "models": ["digits-svm"], "slo": "20ms", "default": -1}
]`
	got, err := Decode("models.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleSet(), got, cmpopts.IgnoreUnexported(Set{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// modelWith returns a model whose document ends with the given lines; the first of them is line 6.
func modelWith(lines string) string {
	return `kind: Model
name: m
inputs: [{name: x, dtype: float32, shape: [2]}]
outputs: [{name: y, dtype: int64, shape: []}]
run: {command: [python, model.py]}
` + lines
}

// functionWith returns a function whose document ends with the given lines; the first of them is line 4.
func functionWith(lines string) string {
	return "kind: Function\nname: f\nmodels: [m]\n" + lines
}

// bounds returns replica bounds with the defaults filled in.
func bounds(least, most int) api.ReplicaBounds {
	return api.ModelSpec{Replicas: api.ReplicaBounds{Min: least, Max: most}}.WithDefaults().Replicas
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		name, text string
		check      func(*Set) (got, want any)
	}{
		{"a version that looks like a number", modelWith("version: 1.10"), func(s *Set) (any, any) { return s.Models[0].Version, "1.10" }},
		{"a version that looks like a date", modelWith("version: 2026-01-02"), func(s *Set) (any, any) { return s.Models[0].Version, "2026-01-02" }},
		{"no version", modelWith(""), func(s *Set) (any, any) { return s.Models[0].Version, "1" }},
		{"a model that may sleep", modelWith("replicas: {min: 0}"), func(s *Set) (any, any) { return s.Models[0].Replicas, bounds(0, 1) }},
		{"only max", modelWith("replicas: {max: 4}"), func(s *Set) (any, any) { return s.Models[0].Replicas, bounds(1, 4) }},
		{"only min", modelWith("replicas: {min: 4}"), func(s *Set) (any, any) { return s.Models[0].Replicas, bounds(4, 4) }},
		{"how it scales", modelWith("replicas: {min: 0, max: 4, initial: 1, idle: 90s, window: 30s, delay: 10s, utilization: 0.5, up: 4, down: 3}"), func(s *Set) (any, any) {
			return s.Models[0].Replicas, api.ReplicaBounds{Max: 4, Initial: 1, Idle: 90 * time.Second, Window: 30 * time.Second, Delay: 10 * time.Second, Utilization: 0.5, Up: 4, Down: 3}
		}},
		{"resources", modelWith("resources: {cpu: 0.5, memory: 512MiB, gpu: 1}"), func(s *Set) (any, any) {
			return s.Models[0].Resources, api.ResourceSpec{CPU: 0.5, MemoryBytes: 512 << 20, GPU: 1}
		}},
		{"limits", modelWith("limits: {cpu: 2, memory: 1000000000, pids: 100}"), func(s *Set) (any, any) {
			return s.Models[0].Limits, api.LimitSpec{CPU: 2, MemoryBytes: 1e9, PIDs: 100}
		}},
		{"preload", modelWith("preload: [numpy, sklearn.svm]"), func(s *Set) (any, any) { return s.Models[0].Preload, []string{"numpy", "sklearn.svm"} }},
		{"a hint", modelWith("expect: {rate: 500, from: 08:00, to: \"18:00\"}"), func(s *Set) (any, any) {
			return s.Models[0].Expect, []api.ExpectSpec{{Rate: 500, From: "08:00", To: "18:00"}}
		}},
		{"hints", modelWith("expect: [{rate: 5, from: 2026-01-31T08:00:00Z, to: 2026-01-31T09:00:00Z}, {rate: 1, from: 10:00, to: 11:00}]"), func(s *Set) (any, any) {
			return s.Models[0].Expect, []api.ExpectSpec{{Rate: 5, From: "2026-01-31T08:00:00Z", To: "2026-01-31T09:00:00Z"}, {Rate: 1, From: "10:00", To: "11:00"}}
		}},
		{"an image", strings.Replace(modelWith(""), "command: [python, model.py]", "image: registry.example.com/svm:1", 1), func(s *Set) (any, any) { return s.Models[0].Run, api.RunSpec{Image: "registry.example.com/svm:1"} }},
		{"no retry", modelWith("retry: false"), func(s *Set) (any, any) { return s.Models[0].Retries(), false }},
		{"environment of numbers", strings.Replace(modelWith(""), "model.py]", "model.py, --port, 80], env: {OMP_NUM_THREADS: 1, A: 'x y'}", 1), func(s *Set) (any, any) {
			return s.Models[0].Run, api.RunSpec{Command: []string{"python", "model.py", "--port", "80"}, Env: map[string]api.EnvValue{"OMP_NUM_THREADS": {Value: "1"}, "A": {Value: "x y"}}}
		}},
		{"environment from files", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: x, TOKEN: {valueFrom: {file: ../token}}}", 1), func(s *Set) (any, any) {
			return s.Models[0].Run.Env, map[string]api.EnvValue{"A": {Value: "x"}, "TOKEN": {File: "../token"}}
		}},
		{"batching", modelWith("batching: {policy: fixed, max: 8, max_bytes: 0x100000, hold: 1.5ms, objective: 10ms, pad: true}"), func(s *Set) (any, any) {
			return s.Models[0].Batching, api.BatchingSpec{Policy: "fixed", Max: 8, MaxBytes: 1 << 20, Hold: 1500 * time.Microsecond, Objective: 10 * time.Millisecond, Pad: true}
		}},
		{"the rest of a model", modelWith("python: .venv\ntimeout: 2m\nqueue: {max: 7}\ncache: on"), func(s *Set) (any, any) {
			m := s.Models[0]
			return []any{m.Python, m.Timeout, m.Queue.Max, m.Cache}, []any{".venv", 2 * time.Minute, 7, "on"}
		}},
		{"cost and device", modelWith("cost: 0.25\ndevice: gpu0"), func(s *Set) (any, any) { return []any{s.Models[0].Cost, s.Models[0].Device}, []any{0.25, "gpu0"} }},
		{"cost of a whole number", modelWith("cost: 3"), func(s *Set) (any, any) { return s.Models[0].Cost, 3.0 }},
		{"cost of YAML's own numbers", modelWith("cost: 1_000"), func(s *Set) (any, any) { return s.Models[0].Cost, 1000.0 }},
		{"cost of nothing", modelWith("cost: 0"), func(s *Set) (any, any) { return s.Models[0].Cost, 0.0 }},
		{"cost of minus nothing", modelWith("cost: -0.0"), func(s *Set) (any, any) { return math.Signbit(s.Models[0].Cost), false }},
		{"quantile", modelWith("batching: {policy: quantile}"), func(s *Set) (any, any) { return s.Models[0].Batching.Max, api.DefaultBatchMax }},
		{"prefer", functionWith("policy: prefer\nweight: 2\nbudget: 1e3"), func(s *Set) (any, any) {
			f := s.Functions[0]
			return []any{f.Policy.Name, f.Weight, f.Budget}, []any{"prefer", 2.0, 1000.0}
		}},
		{"no weight and no budget", functionWith(""), func(s *Set) (any, any) { return []any{s.Functions[0].Weight, s.Functions[0].Budget}, []any{1.0, 0.0} }},
		{"hold of plain zero", modelWith("batching: {hold: 0}"), func(s *Set) (any, any) { return s.Models[0].Batching.Hold, time.Duration(0) }},
		{"strings are text", strings.Replace(modelWith(""), "int64", "str", 1), func(s *Set) (any, any) { return s.Models[0].Outputs[0].DType, api.String }},
		{"a policy by its name", functionWith("policy: exp3"), func(s *Set) (any, any) { return s.Functions[0].Policy, api.PolicySpec{Name: "exp3"} }},
		{"a policy without parameters", functionWith("policy: {name: exp3}"), func(s *Set) (any, any) { return s.Functions[0].Policy, api.PolicySpec{Name: "exp3"} }},
		{"parameters of every kind", functionWith("policy: {name: split, eta: 1, floor: -.5, sticky: true, by: user, weights: {m: 0.9, n@2.5: 1}, none: {}}"), func(s *Set) (any, any) {
			return s.Functions[0].Policy, api.PolicySpec{Name: "split", Params: map[string]any{
				"eta": 1.0, "floor": -0.5, "sticky": true, "by": "user", "weights": map[string]float64{"m": 0.9, "n@2.5": 1}, "none": map[string]float64{},
			}}
		}},
		{"no loss", functionWith(""), func(s *Set) (any, any) { return s.Functions[0].Loss, api.LossSpec{} }},
		{"a loss by its kind", functionWith("loss: squared"), func(s *Set) (any, any) { return s.Functions[0].Loss, api.LossSpec{Kind: "squared"} }},
		{"a loss", functionWith("loss: {kind: absolute, scale: 10, tolerance: 0.5}"), func(s *Set) (any, any) {
			return s.Functions[0].Loss, api.LossSpec{Kind: "absolute", Scale: 10, Tolerance: 0.5}
		}},
		{"a scale alone", functionWith("loss: {scale: 10}"), func(s *Set) (any, any) { return s.Functions[0].Loss, api.LossSpec{Scale: 10} }},
		{"confidence", functionWith("default: 1\nmin_confidence: 0.6"), func(s *Set) (any, any) { return s.Functions[0].MinConfidence, 0.6 }},
		{"shadow", functionWith("shadow: {n: 0.05, m@2: 1}"), func(s *Set) (any, any) { return s.Functions[0].Shadow, map[string]float64{"n": 0.05, "m@2": 1} }},
		{"no SLO", functionWith(""), func(s *Set) (any, any) { return s.Functions[0].SLO, 100 * time.Millisecond }},
		{"no default", functionWith(""), func(s *Set) (any, any) { return string(s.Functions[0].Default), "" }},
		{"cold start", functionWith("cold_start: 5s"), func(s *Set) (any, any) { return s.Functions[0].ColdStart, 5 * time.Second }},
		{"default text", functionWith("default: seven"), func(s *Set) (any, any) { return string(s.Functions[0].Default), `"seven"` }},
		{"default date is text", functionWith("default: 2026-01-02"), func(s *Set) (any, any) { return string(s.Functions[0].Default), `"2026-01-02"` }},
		{"default of YAML's own numbers", functionWith("default: [0x10, 1_000, .5, +3, 1e3, 18446744073709551615]"), func(s *Set) (any, any) {
			return string(s.Functions[0].Default), "[16,1000,0.5,3,1e3,18446744073709551615]"
		}},
		{"default of every kind", functionWith("default: {b: true, a: [null, x, -1.50]}"), func(s *Set) (any, any) {
			return string(s.Functions[0].Default), `{"a":[null,"x",-1.50],"b":true}`
		}},
		{"empty documents", "---\n# nothing\n---\n" + functionWith("") + "---\n", func(s *Set) (any, any) { return s.Len(), 1 }},
		{"a list of documents", "- {kind: Function, name: a, models: [m]}\n- {kind: Function, name: b, models: [m]}\n", func(s *Set) (any, any) { return s.Len(), 2 }},
		{"carriage returns", strings.ReplaceAll(functionWith("slo: 1s\n"), "\n", "\r\n"), func(s *Set) (any, any) { return s.Functions[0].SLO, time.Second }},
		{"surrogates in JSON", `{"kind": "Function", "name": "f", "models": ["m"], "default": "\ud83d\ude00\u007f"}`, func(s *Set) (any, any) {
			return string(s.Functions[0].Default), "\"😀\x7f\""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := Decode("f.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			got, want := c.check(set)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", modelWith("replica: {min: 1}"), `f.yaml:6:1: replica: there is no such field: did you mean "replicas"?`},
		{"unknown field of a part", modelWith("batching: {maxBytes: 1}"), `f.yaml:6:12: batching.maxBytes: there is no such field: did you mean "max_bytes"?`},
		{"nothing near", modelWith("replicas: {most: 1}"), `f.yaml:6:12: replicas.most: there is no such field: expected one of min, max`},
		{"unknown kind", "kind: Widget\nname: x", `f.yaml:1:7: kind: "Widget": expected Model, Function or Traffic`},
		{"no kind", "name: x", `f.yaml:1:1: kind: is missing: expected kind: Model, kind: Function or kind: Traffic`},
		{"twice in a document", modelWith("name: n"), `f.yaml:6:1: "name" is there twice: first at 2:1`},
		{"twice in a part", modelWith("replicas: {min: 1, min: 2}"), `f.yaml:6:20: "min" is there twice: first at 6:12`},
		{"twice in JSON", `{"kind": "Function",` + "\n" + ` "kind": "Model"}`, `f.yaml:2:2: "kind" is there twice: first at 1:2`},
		{"model twice", modelWith("") + "---\n" + modelWith(""), `f.yaml:8:7: name: model m@1 is declared twice: first at line 2`},
		{"function twice", functionWith("") + "---\n" + functionWith(""), `f.yaml:6:7: name: function f is declared twice: first at line 2`},
		{"shape of the wrong type", strings.Replace(modelWith(""), "[2]", "[2, x]", 1), `f.yaml:3:47: inputs[0].shape[1]: "x" is a string: expected a whole number`},
		{"shape of a bad size", strings.Replace(modelWith(""), "[2]", "[2, -5]", 1), `f.yaml:3:47: inputs[0].shape[1]: -5 is not a dimension: expected -1 (any) or 0 and more`},
		{"no shape", strings.Replace(modelWith(""), ", shape: [2]", "", 1), `f.yaml:3:10: inputs[0].shape: is missing: expected the dimensions of one query, [] for a single element`},
		{"no dtype", strings.Replace(modelWith(""), "dtype: float32, ", "", 1), `f.yaml:3:10: inputs[0].dtype: is missing or unknown`},
		{"OIP's name of a dtype", strings.Replace(modelWith(""), "float32", "FP32", 1), `f.yaml:3:27: inputs[0].dtype: unknown dtype "FP32": did you mean "float32"?`},
		{"OIP's name of bytes", strings.Replace(modelWith(""), "float32", "BYTES", 1), `unknown dtype "BYTES": did you mean "bytes"?`},
		{"numpy's default float", strings.Replace(modelWith(""), "float32", "double", 1), `unknown dtype "double": did you mean "float64"?`},
		{"an int without a size", strings.Replace(modelWith(""), "float32", "int", 1), `unknown dtype "int": did you mean "int64"?`},
		{"text", strings.Replace(modelWith(""), "float32", "object", 1), `unknown dtype "object": did you mean "string"?`},
		{"no dtype at all", strings.Replace(modelWith(""), "float32", "float33", 1), `unknown dtype "float33": expected one of bool, uint8`},
		{"inputs are a mapping", "kind: Model\nname: m\ninputs: {x: 1}", `f.yaml:3:9: inputs: is a mapping: expected a list`},
		{"input is a string", "kind: Model\nname: m\ninputs: [x]", `f.yaml:3:10: inputs[0]: "x" is a string: expected a mapping of fields`},
		{"missing field", "kind: Model\nname: m\n", `f.yaml:1:1: inputs: is empty: a model has at least one`},
		{"name is a number", "kind: Function\nname: 12\nmodels: [m]", `f.yaml:2:7: name: 12 is a number: expected a string; put it in quotes if it is one`},
		{"version is a boolean", modelWith("version: true"), `f.yaml:6:10: version: true is a boolean: expected a string`},
		{"null", modelWith("python:"), `f.yaml:6:8: python: is null: give it a value or leave it out`},
		{"empty", modelWith(`python: ""`), `f.yaml:6:9: python: is empty`},
		{"no unit", functionWith("slo: 20"), `f.yaml:4:6: slo: 20 has no unit: expected a duration such as 20ms`},
		{"no duration", functionWith("slo: soon"), `f.yaml:4:6: slo: "soon" is not a duration: expected a number and a unit`},
		{"duration is a list", functionWith("slo: [1s]"), `f.yaml:4:6: slo: is a list: expected a duration such as 20ms`},
		{"slo of zero", functionWith("slo: 0s"), `f.yaml:4:6: slo: 0s: expected more than 0`},
		{"negative hold", modelWith("batching: {hold: -1ms}"), `f.yaml:6:18: batching.hold: -1ms: expected 0 or more`},
		{"batching is a string", modelWith("batching: aimd"), `f.yaml:6:11: batching: "aimd" is a string: expected a mapping of fields`},
		{"max of zero", modelWith("replicas: {max: 0}"), `f.yaml:6:17: replicas.max: 0: expected at least 1`},
		{"not whole", modelWith("replicas: {max: 1.5}"), `f.yaml:6:17: replicas.max: 1.5 is a number: expected a whole number`},
		{"over 64 bits", modelWith("queue: {max: 18446744073709551615}"), `f.yaml:6:14: queue.max: 18446744073709551615 does not fit 64 bits`},
		{"retry", modelWith("retry: maybe"), `f.yaml:6:8: retry: "maybe" is a string: expected true or false`},
		{"cache", modelWith("cache: true"), `f.yaml:6:8: cache: true is a boolean: expected off or on`},
		{"environment", strings.Replace(modelWith(""), "model.py]", "model.py], env: [A]", 1), `run.env: is a list: expected a mapping of names to values`},
		{"environment of one text", strings.Replace(modelWith(""), "model.py]", "model.py], env: s3cret", 1), `run.env: is a text: expected a mapping of names to values`},
		{"environment from nowhere", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: {}}", 1), `run.env.A: expected a text, or {valueFrom: {file: PATH}}`},
		{"environment from no file", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: {valueFrom: {}}}", 1), `run.env.A.valueFrom.file: is missing: expected the path of a file that has the value`},
		{"environment from elsewhere", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: {value: s3cret}}", 1), `run.env.A.value: there is no such field`},
		{"environment masked and from a file", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: {masked: true, valueFrom: {file: a}}}", 1), `run.env.A: expected a text, or {valueFrom: {file: PATH}}`},
		{"environment null", strings.Replace(modelWith(""), "model.py]", "model.py], env: {A: }", 1), `run.env.A: is null: expected a string`},
		{"environment name", strings.Replace(modelWith(""), "model.py]", "model.py], env: {XEBEC_A: 1}", 1), `f.yaml:5:42: run.env.XEBEC_A: names that start with XEBEC_ are set by the gateway`},
		{"image", strings.Replace(modelWith(""), "command: [python, model.py]", "image: x y", 1), `f.yaml:5:14: run.image: "x y" is not the name of an image`},
		{"memory without a unit that there is", modelWith("resources: {memory: 512MB}"), `f.yaml:6:21: resources.memory: "512MB" is not a number of bytes`},
		{"no limit by zero", modelWith("limits: {memory: 0}"), `f.yaml:6:18: limits.memory: 0: expected more than 0`},
		{"idle of nothing", modelWith("replicas: {idle: 0}"), `f.yaml:6:18: replicas.idle: 0: expected more than 0`},
		{"a hint that never holds", modelWith("expect: {rate: 5, from: 10:00, to: 10:00}"), `expect[0].to: "10:00" is also from`},
		{"a hint without a rate", modelWith("expect: [{from: 10:00, to: 11:00}]"), `expect[0].rate: 0: expected`},
		{"negative cost", modelWith("cost: -0.5"), `f.yaml:6:7: cost: -0.5: expected 0 or more`},
		{"large cost", modelWith("cost: 1e10"), `f.yaml:6:7: cost: 10000000000: expected 0 to 1000000000 (per evaluated query, 0 for none)`},
		{"cost that is no number", modelWith("cost: .nan"), `f.yaml:6:7: cost: .nan: expected a finite number`},
		{"infinite cost", modelWith("cost: .inf"), `f.yaml:6:7: cost: .inf: expected a finite number`},
		{"cost beyond float64", modelWith("cost: 1e999"), `f.yaml:6:7: cost: 1e999 is beyond the largest float64`},
		{"cost beyond float64 in JSON", `{"kind": "Model", "name": "m", "cost": 1e999}`, `f.yaml:1:40: cost: 1e999 is beyond the largest float64`},
		{"cost with a unit", modelWith("cost: 3 EUR"), `f.yaml:6:7: cost: "3 EUR" is a string: expected a number`},
		{"cost in quotes", modelWith(`cost: "3"`), `f.yaml:6:7: cost: "3" is a string: expected a number`},
		{"cost is a list", modelWith("cost: [1]"), `f.yaml:6:7: cost: is a list: expected a number`},
		{"cost is null", modelWith("cost:"), `f.yaml:6:6: cost: is null: give it a value or leave it out`},
		{"cost of a function", functionWith("cost: 1"), `f.yaml:4:1: cost: there is no such field: expected one of kind, name, models, input_type, slo, default, policy, loss, label, min_confidence, shadow, weight, budget, cold_start`},
		{"device is a number", modelWith("device: 0"), `f.yaml:6:9: device: 0 is a number: expected a string`},
		{"device is a path", modelWith("device: /dev/nvidia0"), `f.yaml:6:9: device: device name "/dev/nvidia0": expected lower-case letters`},
		{"weight of zero", functionWith("weight: 0"), `f.yaml:4:9: weight: 0: expected more than 0`},
		{"negative weight", functionWith("weight: -1"), `f.yaml:4:9: weight: -1: expected more than 0`},
		{"large weight", functionWith("weight: 1000"), `f.yaml:4:9: weight: 1000: expected 0.01 to 100 (the share against other functions)`},
		{"negative budget", functionWith("budget: -3"), `f.yaml:4:9: budget: -3: expected 0 or more`},
		{"infinite budget", functionWith("budget: -.inf"), `f.yaml:4:9: budget: -.inf: expected a finite number`},
		{"large budget", functionWith("budget: 1e13"), `f.yaml:4:9: budget: 10000000000000: expected 0 to 1000000000000 (cost per second, 0 for no bound)`},
		{"unknown batching policy", modelWith("batching: {policy: quantiles}"), `f.yaml:6:20: batching.policy: "quantiles": expected aimd, quantile, fixed or none`},
		{"several models of single", strings.Replace(functionWith(""), "[m]", "[m, n]", 1), `f.yaml:3:9: models: has 2 candidates: the policy "single" takes one; all others take several`},
		{"policy of a bad name", functionWith("policy: Exp3"), `f.yaml:4:9: policy: policy name "Exp3": expected lower-case letters`},
		{"policy is a number", functionWith("policy: 3"), `f.yaml:4:9: policy: 3 is a number: expected a string`},
		{"policy is a list", functionWith("policy: [exp3]"), `f.yaml:4:9: policy: is a list: expected a string`},
		{"policy without a name", functionWith("policy: {eta: 0.1}"), `f.yaml:4:9: policy.name: is missing: expected the name of a policy`},
		{"parameter is null", functionWith("policy: {name: exp3, eta: }"), `f.yaml:4:27: policy.eta: is null`},
		{"parameter is a list", functionWith("policy: {name: exp3, eta: [1]}"), `f.yaml:4:27: policy.eta: is a list: expected a number, true or false, a string, or a mapping of models to numbers`},
		{"parameter that is no number", functionWith("policy: {name: exp3, eta: .inf}"), `f.yaml:4:27: policy.eta: .inf: expected a finite number`},
		{"parameter beyond float64", functionWith("policy: {name: exp3, eta: 1e999}"), `f.yaml:4:27: policy.eta: 1e999 is beyond the largest float64`},
		{"parameter of a bad name", functionWith("policy: {name: exp3, eta.x: 1}"), `f.yaml:4:9: policy: "eta.x" is not the name of a parameter`},
		{"parameter of text in numbers", functionWith("policy: {name: split, weights: {m: much}}"), `f.yaml:4:36: policy.weights.m: "much" is a string: expected a number`},
		{"parameter of what is no model", functionWith("policy: {name: split, weights: {M: 1}}"), `f.yaml:4:32: policy.weights: model name "M"`},
		{"loss", functionWith("loss: much"), `f.yaml:4:7: loss.kind: "much": expected zero-one, absolute or squared`},
		{"scale of zero-one", functionWith("loss: {kind: zero-one, scale: 2}"), `f.yaml:4:31: loss.scale: is only for the kinds "absolute" and "squared"`},
		{"scale of zero", functionWith("loss: {kind: squared, scale: 0}"), `f.yaml:4:30: loss.scale: 0: expected more than 0`},
		{"field of a loss", functionWith("loss: {kinds: squared}"), `f.yaml:4:8: loss.kinds: there is no such field: did you mean "kind"?`},
		{"loss of a label", strings.Replace(modelWith("---\n"), "int64", "bool", 1) + functionWith("loss: absolute"), `f.yaml:10:7: loss: absolute needs one output of numbers: model m@1 has bool[]`},
		{"confidence over 1", functionWith("default: 1\nmin_confidence: 1.5"), `f.yaml:5:17: min_confidence: 1.5: expected 0 to 1`},
		{"confidence without a default", functionWith("min_confidence: 0.5"), `f.yaml:4:17: min_confidence: needs a default output`},
		{"shadow is a list", functionWith("shadow: [n]"), `f.yaml:4:9: shadow: is a list: expected a mapping of models to numbers`},
		{"shadow of zero", functionWith("shadow: {n@1.5: 0}"), `f.yaml:4:17: shadow.n@1.5: 0: expected more than 0 and at most 1`},
		{"shadow of a candidate", functionWith("shadow: {m: 0.5}"), `f.yaml:4:13: shadow.m: is a candidate too`},
		{"shadow of other outputs", modelWith("---\n") + strings.NewReplacer("name: m", "name: n", "int64", "float32").Replace(modelWith("---\n")) + functionWith("shadow: {n: 0.1}"),
			`f.yaml:16:13: shadow.n: model n@1 has other outputs than m@1: float32[], not int64[]`},
		{"candidates of other inputs", modelWith("---\n") + strings.NewReplacer("name: m", "name: n", "[2]", "[3]").Replace(modelWith("---\n")) + strings.Replace(functionWith("policy: prefer"), "[m]", "[m, n]", 1),
			`f.yaml:15:13: models[1]: model n@1 takes other inputs than m@1: x float32[3], not x float32[2]; expected the same inputs of all models of a function`},
		{"a candidate's outputs do not fit the default", modelWith("---\n") + strings.NewReplacer("name: m", "name: n", "int64", "bool").Replace(modelWith("---\n")) + strings.Replace(functionWith("policy: prefer\ndefault: 1"), "[m]", "[m, n]", 1),
			`f.yaml:17:10: default: 1 is a number: expected true or false (outputs of model n@1)`},
		{"default is not a number", functionWith("default: .nan"), `f.yaml:4:10: default: .nan: expected a number that JSON can carry`},
		{"default null", functionWith("default: null"), `f.yaml:4:10: default: is null: give it a value or leave it out`},
		{"default does not fit", modelWith("---\n") + functionWith("default: x"), `default: "x" is a string: expected a number (int64) (outputs of model m@1)`},
		{"hold and SLO", modelWith("batching: {hold: 5ms}\n---\n") + functionWith("slo: 5ms"), `f.yaml:11:6: slo: 5ms is not more than batching.hold of model m@1, 5ms`},
		{"alias", "kind: &k Function\nname: *k", `f.yaml:1:7: anchors (&k) are not supported`},
		{"alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", `anchors (&a) are not supported`},
		{"merge", functionWith("<<: {slo: 1s}"), `f.yaml:4:1: merge keys (<<) are not supported: write the fields out`},
		{"tag", functionWith("slo: !!str 20ms"), `f.yaml:4:6: tags (!!str) are not supported`},
		{"key of a number", functionWith("default: {1: x}"), `f.yaml:4:11: the key 1 is a number: expected a string`},
		{"deep", functionWith("default: " + strings.Repeat("[", 40) + strings.Repeat("]", 40)), `nests deeper than 32`},
		{"deep JSON", `{"kind": "Function", "default": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, `nests deeper than 32`},
		{"a tab", "kind: Function\n\tname: f", `f.yaml:2:1: not YAML: found a tab character that violates indentation: indent with spaces, not with tabs`},
		{"a tab before a list", "kind: Model\nname: m\ninputs:\n\t- {name: x}\n", `f.yaml:4:1: not YAML: found character that cannot start any token: indent with spaces, not with tabs`},
		{"a tab in JSON", "{\n\t\"kind\": @}", `f.yaml:2:1: not YAML: found character that cannot start any token`},
		{"an open bracket", "kind: Function\nmodels: [m\n", `not YAML: did not find expected ',' or ']'`},
		{"not UTF-8", "kind: \xff", `f.yaml:1:1: not YAML: the file is not UTF-8 text`},
		{"nothing", "# nothing\n", `f.yaml:1:1: declares nothing: expected documents with kind: Model`},
		{"a string", "hello", `f.yaml:1:1: "hello" is a string: expected a mapping of fields`},
		{"large", strings.Repeat("#", MaxBytes+1), `f.yaml: has 12582913 bytes: expected at most 12582912`},
		{"many documents", strings.Repeat("- 1\n", MaxDocuments+1), `f.yaml:16385:3: is document 16385: expected at most 16384`},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := Decode("f.yaml", []byte(c.text))
			if err == nil {
				t.Fatalf("got %+v, want error %q", set, c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %q\nwant %q in it", err, c.want)
			}
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 || len(errs) > MaxErrors {
				t.Errorf("got %d errors of type %T", len(errs), err)
			}
		})
	}
}

func TestSeveralErrors(t *testing.T) {
	_, err := Decode("f.yaml", []byte("kind: Model\nname: 7\nretry: 1\nbatchin: {}\n---\nkind: Function\nname: F\nmodels: [m]\n"))
	want := `f.yaml:2:7: name: 7 is a number: expected a string; put it in quotes if it is one
f.yaml:3:8: retry: 1 is a number: expected true or false
f.yaml:4:1: batchin: there is no such field: did you mean "batching"?
f.yaml:7:7: name: function name "F": expected lower-case letters, digits and '-' (not first or last)`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	_, err = Decode("f.yaml", []byte(strings.Repeat("---\nkind: X\n", 100)))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != MaxErrors {
		t.Errorf("got %d errors, want %d", len(errs), MaxErrors)
	}
}

func TestModelFileNeedsNoKind(t *testing.T) {
	text := strings.TrimPrefix(modelWith(""), "kind: Model\n")
	if set, err := Decode("dir/xebec.yaml", []byte(text)); err != nil || len(set.Models) != 1 {
		t.Errorf("got %v, %v", set, err)
	}
	if _, err := Decode("dir/model.yaml", []byte(text)); err == nil {
		t.Error("a manifest of another name may leave out the kind")
	}
}

func TestVersionsAreNotGuessed(t *testing.T) {
	// With two versions in the set, the serving version is unknown: the default is not checked.
	text := modelWith("version: 1\n---\n") + strings.Replace(modelWith("version: 2\n---\n"), "int64", "bool", 1) + functionWith("default: 1\n")
	if _, err := Decode("f.yaml", []byte(text)); err != nil {
		t.Error(err)
	}
	_, err := Decode("f.yaml", []byte(strings.Replace(text, "models: [m]", "models: [m@2]", 1)))
	if want := "default: 1 is a number: expected true or false (outputs of model m@2)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestTenThousandModels(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		b.WriteString(strings.Replace(modelWith("---\n"), "name: m", fmt.Sprintf("name: m-%d", i), 1))
	}
	set, err := Decode("f.yaml", []byte(b.String()))
	if err != nil || len(set.Models) != 10_000 {
		t.Fatalf("got %v", err)
	}
}

// What get -o json prints has the gateway's status, which is no part of a declaration.
func TestStatusIsIgnored(t *testing.T) {
	set, err := Decode("f.json", []byte(`[{"kind": "Function", "name": "f", "models": ["m"], "status": {"ready": true, "models": [1]}}]`))
	if err != nil || len(set.Functions) != 1 {
		t.Errorf("got %v, %v", set, err)
	}
	for _, bad := range []string{`{"kind": "Function", "name": "f", "models": ["m"], "status": 1}`, `{"kind": "Function", "name": "f", "models": ["m"], "loss": {"kind": "absolute", "status": {}}}`} {
		if _, err := Decode("f.json", []byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
