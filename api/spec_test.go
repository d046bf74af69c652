package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func validModel() ModelSpec {
	return ModelSpec{
		Name:    "digits-svm",
		Inputs:  []TensorSpec{{Name: "input", DType: Float32, Shape: []int64{64}}},
		Outputs: []TensorSpec{{Name: "output", DType: Int64}},
		Run:     RunSpec{Command: []string{"python", "model.py"}},
	}
}

func validFunction() FunctionSpec {
	return FunctionSpec{Name: "digits", Models: []string{"digits-svm"}, Default: json.RawMessage("-1")}
}

// bounds returns replica bounds with the defaults filled in.
func bounds(least, most int) ReplicaBounds {
	return ReplicaBounds{
		Min: least, Max: most, Idle: 5 * time.Minute, Window: time.Minute, Delay: 30 * time.Second, Utilization: 0.7, Up: 10, Down: 2,
	}
}

func TestModelDefaults(t *testing.T) {
	got := validModel().WithDefaults()
	want := validModel()
	yes := true
	want.Version = "1"
	want.Replicas = bounds(1, 1)
	want.Batching = BatchingSpec{Policy: "aimd", Max: 4096, MaxBytes: 64 << 20}
	want.Retry = &yes
	want.Queue.Max = 16384
	want.Cache = "on"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(got, got.WithDefaults()); diff != "" {
		t.Errorf("defaults twice (-once +twice):\n%s", diff)
	}
}

func TestReplicaDefaults(t *testing.T) {
	for _, c := range []struct{ in, want ReplicaBounds }{
		{ReplicaBounds{}, bounds(1, 1)},
		{ReplicaBounds{Max: 3}, bounds(0, 3)},
		{ReplicaBounds{Min: 2}, bounds(2, 2)},
		{ReplicaBounds{Min: 2, Max: 5}, bounds(2, 5)},
	} {
		m := validModel()
		m.Replicas = c.in
		if got := m.WithDefaults().Replicas; got != c.want {
			t.Errorf("%v: got %v, want %v", c.in, got, c.want)
		}
	}
}

func TestNoneMeansBatchesOfOne(t *testing.T) {
	m := validModel()
	m.Batching.Policy = BatchNone
	m = m.WithDefaults()
	if m.Batching.Max != 1 || m.Validate() != nil {
		t.Errorf("max %d, %v", m.Batching.Max, m.Validate())
	}
}

// manyInputs are scalars whose names have that many bytes.
func manyInputs(n, nameBytes int) []TensorSpec {
	specs := make([]TensorSpec, n)
	for i := range specs {
		specs[i] = TensorSpec{Name: fmt.Sprintf("%0*d", nameBytes, i), DType: Float64}
	}
	return specs
}

func TestModelValidation(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name string
		spec func(*ModelSpec)
		want string
	}{
		{"name", func(m *ModelSpec) { m.Name = "Digits" }, `name: model name "Digits": expected lower-case letters`},
		{"version", func(m *ModelSpec) { m.Version = "-1" }, `version: version "-1": expected letters`},
		{"no inputs", func(m *ModelSpec) { m.Inputs = nil }, "inputs: is empty"},
		{"no outputs", func(m *ModelSpec) { m.Outputs = nil }, "outputs: is empty"},
		{"many tensors", func(m *ModelSpec) { m.Inputs = make([]TensorSpec, 256) }, "inputs: has 256 tensors: expected at most 255"},
		{"long names of many tensors", func(m *ModelSpec) { m.Inputs = manyInputs(255, 200) }, "inputs: and outputs take 52034 bytes in the worker protocol: expected at most 49152"},
		{"tensor name", func(m *ModelSpec) { m.Inputs[0].Name = "" }, "inputs[0].name: is empty"},
		{"tensor name text", func(m *ModelSpec) { m.Inputs[0].Name = "a\nb" }, "inputs[0].name: \"a\\nb\": expected UTF-8 text"},
		{"tensor name long", func(m *ModelSpec) { m.Inputs[0].Name = long }, "has 5000 bytes: expected at most 255"},
		{"tensor name twice", func(m *ModelSpec) { m.Inputs = append(m.Inputs, m.Inputs[0]) }, `inputs[1].name: "input" is taken by inputs[0]`},
		{"dtype", func(m *ModelSpec) { m.Outputs[0].DType = 99 }, "outputs[0].dtype: is missing or unknown: expected one of bool"},
		{"dimension", func(m *ModelSpec) { m.Inputs[0].Shape = []int64{3, -5} }, "inputs[0].shape[1]: -5 is not a dimension: expected -1 (any) or 0 and more"},
		{"large dimension", func(m *ModelSpec) { m.Inputs[0].Shape = []int64{1 << 40} }, "inputs[0].shape[0]: 1099511627776 is too large"},
		{"overflow", func(m *ModelSpec) { m.Inputs[0].Shape = []int64{1 << 30, 1 << 30, 1 << 30} }, "inputs[0].shape: float32[1073741824, 1073741824, 1073741824] takes more than"},
		{"overflow with -1", func(m *ModelSpec) { m.Inputs[0].Shape = []int64{-1, 1 << 30} }, "inputs[0].shape: float32[-1, 1073741824] takes more than"},
		{"overflow with 0", func(m *ModelSpec) { m.Inputs[0].Shape = []int64{1 << 30, 1 << 30, 0} }, ""},
		{"rank", func(m *ModelSpec) { m.Inputs[0].Shape = make([]int64, 17) }, "inputs[0].shape: has 17 dimensions: expected at most 16"},
		{"total", func(m *ModelSpec) {
			m.Outputs = []TensorSpec{{Name: "a", DType: Uint8, Shape: []int64{1 << 30}}, {Name: "b", DType: Uint8, Shape: []int64{1}}}
		}, "outputs: take 1073741825 bytes a query together"},
		{"no command", func(m *ModelSpec) { m.Run.Command = nil }, "run.command: is empty: expected the program"},
		{"empty command", func(m *ModelSpec) { m.Run.Command = []string{""} }, "run.command[0]: is empty"},
		{"NUL", func(m *ModelSpec) { m.Run.Command = []string{"a", "b\x00c"} }, `run.command[1]: "b\x00c": expected UTF-8 text without NUL`},
		{"many arguments", func(m *ModelSpec) { m.Run.Command = strings.Split(strings.Repeat("a ", 300), " ") }, "run.command: has 301 arguments"},
		{"image", func(m *ModelSpec) { m.Run = RunSpec{Image: "registry.example.com:5000/team/svm:1"} }, ""},
		{"image and command", func(m *ModelSpec) { m.Run.Image = "svm@sha256:0123" }, ""},
		{"digest of an image", func(m *ModelSpec) {
			m.Run.Image, m.ImageDigest = "m", "r.example.org:5000/t/m@sha256:"+strings.Repeat("0a", 32)
		}, ""},
		{"id of an image", func(m *ModelSpec) { m.Run.Image, m.ImageDigest = "m", "sha256:"+strings.Repeat("0a", 32) }, ""},
		{"digest without an image", func(m *ModelSpec) { m.ImageDigest = "sha256:" + strings.Repeat("0a", 32) }, "image_digest: is for a model that runs from an image"},
		{"short digest of an image", func(m *ModelSpec) { m.Run.Image, m.ImageDigest = "m", "sha256:0a" }, `image_digest: "sha256:0a": expected sha256: with 64 digits`},
		{"tag as an image's digest", func(m *ModelSpec) { m.Run.Image, m.ImageDigest = "m", "m:1" }, "image_digest: \"m:1\": expected"},
		{"option as an image's digest", func(m *ModelSpec) { m.Run.Image, m.ImageDigest = "m", "--m@sha256:"+strings.Repeat("0a", 32) }, "image_digest:"},
		{"image that is an option", func(m *ModelSpec) { m.Run = RunSpec{Image: "--privileged"} }, `run.image: "--privileged" is not the name of an image`},
		{"initial", func(m *ModelSpec) { m.Replicas = ReplicaBounds{Min: 2, Max: 4, Initial: 5} }, "replicas.initial: 5: expected replicas.min, 2, to replicas.max, 4"},
		{"utilization", func(m *ModelSpec) { m.Replicas.Utilization = 70 }, "replicas.utilization: 70: expected 0.05 to 1"},
		{"resources", func(m *ModelSpec) {
			m.Resources, m.Limits = ResourceSpec{CPU: 0.5, MemoryBytes: 1 << 30, GPU: 1}, LimitSpec{CPU: 2, MemoryBytes: 2 << 30, PIDs: 64}
		}, ""},
		{"resources over limits", func(m *ModelSpec) { m.Resources.MemoryBytes, m.Limits.MemoryBytes = 2<<30, 1<<30 }, "resources.memory: 2147483648 bytes are more than limits.memory"},
		{"limit that nothing starts in", func(m *ModelSpec) { m.Limits.MemoryBytes = 1000 }, "limits.memory: 1000 bytes: expected 16777216"},
		{"gpu and device", func(m *ModelSpec) { m.Resources.GPU, m.Device = 1, "gpu0" }, "resources.gpu: the model shares the device gpu0"},
		{"hint by day", func(m *ModelSpec) { m.Expect = []ExpectSpec{{Rate: 100, From: "22:00", To: "02:00"}} }, ""},
		{"hint by date", func(m *ModelSpec) {
			m.Expect = []ExpectSpec{{Rate: 100, From: "2026-01-31T08:00:00Z", To: "2026-01-31T09:00:00Z"}}
		}, ""},
		{"hint of two kinds", func(m *ModelSpec) { m.Expect = []ExpectSpec{{Rate: 100, From: "08:00", To: "2026-01-31T09:00:00Z"}} }, `expect[0].to: "2026-01-31T09:00:00Z": expected a time of day as from is`},
		{"hint that never holds", func(m *ModelSpec) { m.Expect = []ExpectSpec{{Rate: 100, From: "08:00", To: "08:00"}} }, "expect[0].to"},
		{"preload", func(m *ModelSpec) { m.Preload = []string{"numpy", "sklearn.svm"} }, ""},
		{"preload of a bad name", func(m *ModelSpec) { m.Preload = []string{"os; import sys"} }, "preload[0]:"},
		{"preload of what is not Python", func(m *ModelSpec) { m.Preload, m.Run.Command = []string{"numpy"}, []string{"./svm"} }, "preload: is for commands that begin with python"},
		{"preload and interpreter options", func(m *ModelSpec) { m.Preload, m.Run.Command = []string{"numpy"}, []string{"python", "-O", "model.py"} }, "preload: expected a command"},
		{"environment name", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"1A": {Value: ""}} }, `run.env: "1A" is not the name of a variable`},
		{"reserved environment", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"XEBEC_TOKEN": {Value: "x"}} }, "run.env.XEBEC_TOKEN: names that start with XEBEC_"},
		{"environment value", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {Value: "\xff"}} }, "run.env.A: the value is not UTF-8"},
		{"masked value", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {Masked: true}} }, "run.env.A: the value is masked"},
		{"path of a value", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {File: "a\x00"}} }, "run.env.A.valueFrom.file: "},
		{"run bytes", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {Value: strings.Repeat("x", 70000)}} }, "run: command and environment take"},
		{"python", func(m *ModelSpec) { m.Python = long }, "python: has 5000 bytes"},
		{"min over max", func(m *ModelSpec) { m.Replicas = bounds(3, 2) }, "replicas.min: 3 is more than replicas.max, 2"},
		{"negative min", func(m *ModelSpec) { m.Replicas = bounds(-1, 2) }, "replicas.min: -1: expected 0 to 1024"},
		{"large max", func(m *ModelSpec) { m.Replicas = bounds(1, 5000) }, "replicas.max: 5000: expected 1 to 1024"},
		{"policy", func(m *ModelSpec) { m.Batching.Policy = "magic" }, `batching.policy: "magic": expected aimd, quantile, fixed or none`},
		{"quantile", func(m *ModelSpec) { m.Batching.Policy = BatchQuantile }, ""},
		{"quantile does not pad", func(m *ModelSpec) { m.Batching.Policy, m.Batching.Pad = BatchQuantile, true }, `batching.pad: is only for the policy "fixed"`},
		{"fixed needs max", func(m *ModelSpec) { m.Batching = BatchingSpec{Policy: "fixed"} }, "batching.max: is missing"},
		{"none has max 1", func(m *ModelSpec) { m.Batching = BatchingSpec{Policy: "none", Max: 8} }, "batching.max: 8: the policy"},
		{"batch max", func(m *ModelSpec) { m.Batching.Max = 1 << 20 }, "batching.max: 1048576: expected 1 to 65536"},
		{"batch bytes", func(m *ModelSpec) { m.Batching.MaxBytes = -1 }, "batching.max_bytes: -1: expected 1 to"},
		{"batch bytes under a query", func(m *ModelSpec) { m.Batching.MaxBytes = 100 }, "batching.max_bytes: 100 is less than one query's inputs (256 bytes)"},
		{"hold", func(m *ModelSpec) { m.Batching.Hold = 2 * time.Second }, "batching.hold: 2s: expected 0 to 100ms"},
		{"hold over objective", func(m *ModelSpec) {
			m.Batching.Hold, m.Batching.Objective = 5*time.Millisecond, 5*time.Millisecond
		}, "batching.hold: 5ms is not less than batching.objective, 5ms"},
		{"objective", func(m *ModelSpec) { m.Batching.Objective = -1 }, "batching.objective: -1ns"},
		{"pad", func(m *ModelSpec) { m.Batching.Pad = true }, "batching.pad: is only for the policy"},
		{"timeout", func(m *ModelSpec) { m.Timeout = 2 * time.Hour }, "timeout: 2h0m0s: expected more than 0 and at most 1h0m0s"},
		{"busy poll", func(m *ModelSpec) { m.BusyPoll = 2 * time.Millisecond }, "busy_poll: 2ms: expected 1µs to 1ms"},
		{"busy poll below a microsecond", func(m *ModelSpec) { m.BusyPoll = 50 }, "busy_poll: 50ns: expected 1µs to 1ms"},
		{"queue", func(m *ModelSpec) { m.Queue.Max = -3 }, "queue.max: -3: expected 1 to 1048576"},
		{"cache", func(m *ModelSpec) { m.Cache = "yes" }, `cache: "yes": expected "off" or "on"`},
		{"cost", func(m *ModelSpec) { m.Cost = 0.25 }, ""},
		{"largest cost", func(m *ModelSpec) { m.Cost = MaxCost }, ""},
		{"negative cost", func(m *ModelSpec) { m.Cost = -1 }, "cost: -1: expected 0 to 1000000000 (per evaluated query, 0 for none)"},
		{"large cost", func(m *ModelSpec) { m.Cost = 2e9 }, "cost: 2000000000: expected 0 to 1000000000"},
		{"cost that is no number", func(m *ModelSpec) { m.Cost = math.NaN() }, "cost: NaN: expected 0 to 1000000000"},
		{"infinite cost", func(m *ModelSpec) { m.Cost = math.Inf(1) }, "cost: +Inf: expected 0 to 1000000000"},
		{"device", func(m *ModelSpec) { m.Device = "gpu0" }, ""},
		{"device of a bad name", func(m *ModelSpec) { m.Device = "/dev/nvidia0" }, `device: device name "/dev/nvidia0": expected lower-case letters`},
		{"device of a long name", func(m *ModelSpec) { m.Device = long }, "has 5000 bytes: expected at most 63"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := validModel()
			c.spec(&m)
			checkError(t, m.WithDefaults().Validate(), c.want)
		})
	}
}

func TestFunctionValidation(t *testing.T) {
	deep := strings.Repeat("[", 19) + strings.Repeat("]", 19)
	for _, c := range []struct {
		name string
		spec func(*FunctionSpec)
		want string
	}{
		{"valid", func(*FunctionSpec) {}, ""},
		{"name", func(f *FunctionSpec) { f.Name = "" }, "name: function name is empty"},
		{"reserved", func(f *FunctionSpec) { f.Name = "v2" }, `name: "v2" is reserved: expected a name other than v1, v2, healthz`},
		{"no models", func(f *FunctionSpec) { f.Models, f.Default = nil, nil }, "models: is empty"},
		{"no models but a default", func(f *FunctionSpec) { f.Models = nil }, ""},
		{"shadows of no models", func(f *FunctionSpec) { f.Models, f.Shadow = nil, map[string]float64{"m": 1} }, "shadow: needs models"},
		{"input type", func(f *FunctionSpec) { f.InputType = "doubles" }, ""},
		{"unknown input type", func(f *FunctionSpec) { f.InputType = "double" }, `input_type: "double": expected one of bytes, integers, floats, doubles, strings`},
		{"two models", func(f *FunctionSpec) { f.Models = []string{"a", "b"} }, `models: has 2 candidates: the policy "single" takes one; all others take several`},
		{"prefer", func(f *FunctionSpec) { f.Models, f.Policy.Name = []string{"a", "b", "a@1"}, PolicyPrefer }, ""},
		{"prefer of one", func(f *FunctionSpec) { f.Policy.Name = PolicyPrefer }, ""},
		{"prefer of none", func(f *FunctionSpec) { f.Models, f.Policy.Name, f.Default = nil, PolicyPrefer, nil }, "models: is empty"},
		{"prefer of the same twice", func(f *FunctionSpec) { f.Models, f.Policy.Name = []string{"a", "b", "a"}, PolicyPrefer }, `models[2]: "a" is there twice`},
		{"twice", func(f *FunctionSpec) { f.Models = []string{"a", "a"} }, `models[1]: "a" is there twice`},
		{"reference", func(f *FunctionSpec) { f.Models = []string{"a@"} }, `models[0]: version "" has 0 bytes`},
		{"many", func(f *FunctionSpec) { f.Models = make([]string, 65) }, "models: has 65 candidates: expected at most 64"},
		{"slo", func(f *FunctionSpec) { f.SLO = -time.Second }, "slo: -1s: expected more than 0 and at most 10m0s"},
		{"default null", func(f *FunctionSpec) { f.Default = json.RawMessage(" null") }, "default: is null: leave the field out"},
		{"default text", func(f *FunctionSpec) { f.Default = json.RawMessage("{") }, "default: is not JSON"},
		{"default twice", func(f *FunctionSpec) { f.Default = json.RawMessage("1 2") }, "default: is more than one JSON value"},
		{"default deep", func(f *FunctionSpec) { f.Default = json.RawMessage(deep) }, "default: nests deeper than 18"},
		{"default large", func(f *FunctionSpec) { f.Default = json.RawMessage("1e999") }, "default: 1e999 is beyond the largest float64"},
		{"default long", func(f *FunctionSpec) { f.Default = json.RawMessage(`"` + strings.Repeat("x", 70000) + `"`) }, "default: has 70002 bytes of JSON"},
		{"any policy", func(f *FunctionSpec) { f.Models, f.Policy.Name = []string{"a", "b"}, "one-of-their-own" }, ""},
		{"name of a policy", func(f *FunctionSpec) { f.Policy.Name = "Exp3" }, `policy: policy name "Exp3": expected lower-case letters`},
		{"many parameters", func(f *FunctionSpec) {
			f.Policy.Params = map[string]any{}
			for i := range MaxPolicyParams + 1 {
				f.Policy.Params[fmt.Sprintf("p%d", i)] = true
			}
		}, "policy: has 17 parameters: expected at most 16"},
		{"name of a parameter", func(f *FunctionSpec) { f.Policy.Params = map[string]any{"eta[1]": 1.0} }, `policy: "eta[1]" is not the name of a parameter`},
		{"parameter that is no number", func(f *FunctionSpec) { f.Policy.Params = map[string]any{"eta": math.NaN()} }, "policy.eta: NaN: expected a finite number"},
		{"parameter of text", func(f *FunctionSpec) { f.Policy.Params = map[string]any{"by": "a\x01"} }, `policy.by: "a\x01": expected at most 256 bytes of UTF-8 text without control characters`},
		{"parameter of a strange type", func(f *FunctionSpec) { f.Policy.Params = map[string]any{"eta": 1} }, "policy.eta: int: expected a number, true or false"},
		{"parameter of infinite numbers", func(f *FunctionSpec) {
			f.Policy.Params = map[string]any{"weights": map[string]float64{"a@1": math.Inf(1)}}
		}, "policy.weights.a@1: +Inf: expected a finite number"},
		{"parameter of no models", func(f *FunctionSpec) { f.Policy.Params = map[string]any{"weights": map[string]float64{"a@": 1}} }, `policy.weights: version "" has 0 bytes`},
		{"loss", func(f *FunctionSpec) { f.Loss.Kind = "hinge" }, `loss.kind: "hinge": expected zero-one, absolute or squared`},
		{"small scale", func(f *FunctionSpec) { f.Loss.Scale = 1e-13 }, "loss.scale: 1e-13: expected 1e-12 to 1000000000000 (the difference that is as wrong as can be)"},
		{"negative tolerance", func(f *FunctionSpec) { f.Loss = LossSpec{Kind: LossSquared, Tolerance: -1} }, "loss.tolerance: -1: expected 1e-12 to"},
		{"scale that is no number", func(f *FunctionSpec) { f.Loss.Scale = math.NaN() }, "loss.scale: NaN"},
		{"tolerance of zero-one", func(f *FunctionSpec) { f.Loss = LossSpec{Kind: LossZeroOne, Tolerance: 1} }, `loss.tolerance: is only for the kinds "absolute" and "squared"`},
		{"confidence", func(f *FunctionSpec) { f.MinConfidence = 1 }, ""},
		{"confidence that is no number", func(f *FunctionSpec) { f.MinConfidence = math.NaN() }, "min_confidence: NaN: expected 0 to 1"},
		{"confidence without a default", func(f *FunctionSpec) { f.Default, f.MinConfidence = nil, 0.5 }, "min_confidence: needs a default output"},
		{"shadow", func(f *FunctionSpec) { f.Shadow = map[string]float64{"digits-svm@2": 0.05, "other": 1} }, ""},
		{"shadow of more than all", func(f *FunctionSpec) { f.Shadow = map[string]float64{"other": 1.01} }, "shadow.other: 1.01: expected more than 0 and at most 1 (the part of the queries that ask it)"},
		{"shadow that is no number", func(f *FunctionSpec) { f.Shadow = map[string]float64{"other": math.NaN()} }, "shadow.other: NaN: expected more than 0"},
		{"shadow of a candidate", func(f *FunctionSpec) { f.Shadow = map[string]float64{"digits-svm": 0.1} }, "shadow.digits-svm: is a candidate too"},
		{"shadow of no model", func(f *FunctionSpec) { f.Shadow = map[string]float64{"Other": 0.1} }, `shadow: model name "Other"`},
		{"many shadows", func(f *FunctionSpec) {
			f.Shadow = map[string]float64{}
			for i := range MaxShadow + 1 {
				f.Shadow[fmt.Sprintf("m%d", i)] = 0.1
			}
		}, "shadow: has 9 models: expected at most 8"},
		{"weight", func(f *FunctionSpec) { f.Weight = 0.01 }, ""},
		{"large weight", func(f *FunctionSpec) { f.Weight = 100.5 }, "weight: 100.5: expected 0.01 to 100 (the share against other functions)"},
		{"small weight", func(f *FunctionSpec) { f.Weight = 0.001 }, "weight: 0.001: expected 0.01 to 100"},
		{"negative weight", func(f *FunctionSpec) { f.Weight = -1 }, "weight: -1: expected 0.01 to 100"},
		{"weight that is no number", func(f *FunctionSpec) { f.Weight = math.NaN() }, "weight: NaN: expected 0.01 to 100"},
		{"budget", func(f *FunctionSpec) { f.Budget = MaxBudget }, ""},
		{"negative budget", func(f *FunctionSpec) { f.Budget = -0.5 }, "budget: -0.5: expected 0 to 1000000000000 (cost per second, 0 for no bound)"},
		{"infinite budget", func(f *FunctionSpec) { f.Budget = math.Inf(1) }, "budget: +Inf: expected 0 to 1000000000000"},
		{"budget that is no number", func(f *FunctionSpec) { f.Budget = math.NaN() }, "budget: NaN: expected 0 to 1000000000000"},
		{"budget of a mistaken unit", func(f *FunctionSpec) { f.Budget = 1e30 }, "budget: 1e+30: expected 0 to 1000000000000"},
		{"cold start", func(f *FunctionSpec) { f.ColdStart = time.Hour }, "cold_start: 1h0m0s: expected 0 to 10m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := validFunction()
			c.spec(&f)
			checkError(t, f.WithDefaults().Validate(), c.want)
		})
	}
}

func TestFunctionDefaults(t *testing.T) {
	got := validFunction().WithDefaults()
	want := validFunction()
	want.SLO, want.Policy.Name, want.Weight = 100*time.Millisecond, PolicySingle, 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	set := FunctionSpec{Name: "f", Models: []string{"a", "b"}, SLO: time.Second, Policy: PolicySpec{Name: PolicyPrefer}, Weight: 2.5, Budget: 10}
	for _, f := range []FunctionSpec{got, set} {
		if diff := cmp.Diff(f, f.WithDefaults()); diff != "" {
			t.Errorf("defaults of what has them (-before +after):\n%s", diff)
		}
	}
}

func TestQuantileFindsItsOwnCap(t *testing.T) {
	m := validModel()
	m.Batching.Policy = BatchQuantile
	if m = m.WithDefaults(); m.Batching.Max != DefaultBatchMax {
		t.Errorf("max %d, want %d", m.Batching.Max, DefaultBatchMax)
	}
}

func TestSeveralErrorsAtOnce(t *testing.T) {
	m := validModel()
	m.Name, m.Cache = "", "maybe"
	var errs FieldErrors
	if err := m.WithDefaults().Validate(); !errors.As(err, &errs) || len(errs) != 2 {
		t.Fatalf("got %v, want two errors", err)
	}
	if want := "name: model name is empty\ncache: \"maybe\": expected \"off\" or \"on\""; errs.Error() != want {
		t.Errorf("got %q, want %q", errs.Error(), want)
	}
}

func TestDefaultFitsTheModel(t *testing.T) {
	one := func(d DType, shape ...int64) []TensorSpec {
		return []TensorSpec{{Name: "output", DType: d, Shape: shape}}
	}
	two := []TensorSpec{{Name: "label", DType: Int64}, {Name: "score", DType: Float32, Shape: []int64{2}}}
	for _, c := range []struct {
		json    string
		outputs []TensorSpec
		want    string
	}{
		{"-1", one(Int64), ""},
		{"9223372036854775807", one(Int64), ""},
		{"9223372036854775808", one(Int64), "default: 9223372036854775808 is not a value of int64 (outputs of model digits-svm@1)"},
		{"-1", one(Uint8), "default: -1 is not a value of uint8"},
		{"1.5", one(Int32), "default: 1.5 is not a value of int32"},
		{"1.5", one(Float16), ""},
		{"70000", one(Float16), "default: 70000 is not a value of float16"},
		{"1e39", one(Float32), "default: 1e39 is not a value of float32"},
		{"true", one(Bool), ""},
		{"1", one(Bool), "default: 1 is a number: expected true or false"},
		{`"seven"`, one(Int64), `default: "seven" is a string: expected a number (int64)`},
		{`"seven"`, one(Bytes), `default: "seven" is a string: expected {"b64": …}, the bytes in base64`},
		{`{"b64": "seven"}`, one(Bytes), `default: "seven" is not base64: expected the standard alphabet`},
		{`{"b64": "aGk="}`, one(Bytes), ""},
		{`{"b64": "aGl="}`, one(Bytes), `default: "aGl=" is not base64`},
		{`{"b64": "aGk=", "more": 1}`, one(Bytes), `default: an object: expected {"b64": …}`},
		{`[{"b64": ""}, {"b64": "aGk="}]`, one(Bytes, 2), ""},
		{"7", one(Bytes), `default: 7 is a number: expected {"b64": …}`},
		{`"seven"`, one(String), ""},
		{`["a", ""]`, one(String, -1), ""},
		{"7", one(String), "default: 7 is a number: expected a string"},
		{"[1, 2]", one(Float64, 2), ""},
		{"[1, 2, 3]", one(Float64, 2), "default: has 3 elements: expected 2"},
		{"[1, 2, 3]", one(Float64, -1), ""},
		{"[[1], [true]]", one(Float64, -1, 1), "default[1][0]: true: expected a number (float64)"},
		{"1", one(Float64, 2), "default: 1 is a number: expected an array of shape [2]"},
		{`{"label": 1, "score": [0, 1]}`, two, ""},
		{`{"label": 1, "score": [0, "x"]}`, two, `default.score[1]: "x" is a string`},
		{`{"label": 1}`, two, `default: has no "score"`},
		{`{"label": 1, "score": [0, 1], "more": 0}`, two, "default.more: is not an output"},
		{"1", two, "default: 1 is a number: expected an object with a member for each of 2 outputs"},
	} {
		t.Run(c.json+" "+fmt.Sprint(c.outputs), func(t *testing.T) {
			m := validModel()
			m.Outputs = c.outputs
			m = m.WithDefaults()
			f := validFunction()
			f.Default = json.RawMessage(c.json)
			f = f.WithDefaults()
			checkError(t, f.CheckModel(&m), c.want)
		})
	}
}

func TestHoldFitsTheFunction(t *testing.T) {
	m := validModel().WithDefaults()
	m.Batching.Hold = 20 * time.Millisecond
	f := validFunction()
	f.SLO = 20 * time.Millisecond
	checkError(t, f.CheckModel(&m), "slo: 20ms is not more than batching.hold of model digits-svm@1, 20ms")
}

func TestCandidatesHaveTheSameSignature(t *testing.T) {
	variant := func(name string, change func(*ModelSpec)) *ModelSpec {
		m := validModel()
		m.Name = name
		if change != nil {
			change(&m)
		}
		m = m.WithDefaults()
		return &m
	}
	a, b := variant("a", nil), variant("b", nil)
	two := func(name, first, second string) *ModelSpec {
		return variant(name, func(m *ModelSpec) {
			m.Outputs = []TensorSpec{{Name: first, DType: Int64}, {Name: second, DType: Float32}}
		})
	}
	newer := variant("b", func(m *ModelSpec) {
		m.Version, m.Inputs = "2", []TensorSpec{{Name: "input", DType: Float32, Shape: []int64{65}}}
	})
	for _, c := range []struct {
		name       string
		models     []string
		candidates [][]*ModelSpec
		want       string
	}{
		{"equal", []string{"a", "b"}, [][]*ModelSpec{{a}, {b}}, ""},
		{"another output", []string{"a", "c"}, [][]*ModelSpec{{a}, {variant("c", func(m *ModelSpec) { m.Outputs[0].DType = Float32 })}}, "models[1]: model c@1 has other outputs than a@1: float32[], not int64[]; expected the same outputs"},
		{"another shape of the output", []string{"a", "c"}, [][]*ModelSpec{{a}, {variant("c", func(m *ModelSpec) { m.Outputs[0].Shape = []int64{1} })}}, "models[1]: model c@1 has other outputs than a@1: int64[1], not int64[]"},
		{"another name of the only output", []string{"a", "c"}, [][]*ModelSpec{{a}, {variant("c", func(m *ModelSpec) { m.Outputs[0].Name = "label" })}}, ""},
		{"two outputs", []string{"a", "c"}, [][]*ModelSpec{{a}, {two("c", "output", "score")}}, "model c@1 has other outputs than a@1: 2 tensors, not 1"},
		{"names of two outputs", []string{"c", "d"}, [][]*ModelSpec{{two("c", "output", "score")}, {two("d", "output", "sure")}}, "models[1]: model d@1 has other outputs than c@1: sure float32[], not score float32[]"},
		{"one candidate may change", []string{"b"}, [][]*ModelSpec{{b, newer}}, ""},
		{"nothing is known", []string{"a", "b"}, [][]*ModelSpec{nil, nil}, ""},
		{"only the second is known", []string{"a", "b"}, [][]*ModelSpec{nil, {b}}, ""},
		{"shape", []string{"a", "b"}, [][]*ModelSpec{{a}, {b, newer}}, "models[1]: model b@2 takes other inputs than a@1: input float32[65], not input float32[64]; expected the same inputs of all models of a function"},
		{"versions of one candidate", []string{"b", "a"}, [][]*ModelSpec{{b, newer}, {a}}, "models[0]: model b@2 takes other inputs than b@1"},
		{"type", []string{"a", "c"}, [][]*ModelSpec{{a}, {variant("c", func(m *ModelSpec) { m.Inputs[0].DType = Float64 })}}, "models[1]: model c@1 takes other inputs than a@1: input float64[64], not input float32[64]"},
		{"name", []string{"a", "c"}, [][]*ModelSpec{{a}, {variant("c", func(m *ModelSpec) { m.Inputs[0].Name = "x" })}}, "x float32[64], not input float32[64]"},
		{"number", []string{"x", "a", "c"}, [][]*ModelSpec{nil, {a}, {variant("c", func(m *ModelSpec) { m.Inputs = append(m.Inputs, TensorSpec{Name: "y", DType: Bool}) })}}, "models[2]: model c@1 takes other inputs than a@1: 2 tensors, not 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := validFunction()
			f.Models, f.Policy.Name = c.models, PolicyPrefer
			f = f.WithDefaults()
			checkError(t, f.CheckCandidates(c.candidates), c.want)
		})
	}
}

func TestSpecJSONRoundTrip(t *testing.T) {
	m := validModel().WithDefaults()
	m.Run.Env = map[string]EnvValue{"A": {Value: "<&>"}, "B": {File: "/a/b"}, "C": {Masked: true}, "D": {}}
	m.Batching.Hold = 1500 * time.Microsecond
	m.Cost, m.Device = 0.1, "gpu0"
	no := false
	m.Warmup, m.Dir = &WarmupSpec{Queries: "warmup.jsonl", Repeat: 2}, "/models/digits-svm"
	m.Validation = &ValidateSpec{Queries: "holdout.jsonl.zst", Expect: ExpectLabels, MinAccuracy: 0.9, Tolerance: 1e-3, Extremes: &no}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var gotModel ModelSpec
	if err = json.Unmarshal(raw, &gotModel); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, gotModel); diff != "" {
		t.Errorf("%s (-want +got):\n%s", raw, diff)
	}

	f := validFunction()
	f.Default = json.RawMessage(`{"b": "<&>", "a": [1e5, 12345678901234567890]}`)
	f.Weight, f.Budget, f.Log = 0.3, 1e-7, &LogSpec{0.1}
	f.Policy = PolicySpec{Name: PolicySplit, Params: map[string]any{"weights": map[string]float64{"a": 0.5}, "sticky": true, "by": "user", "eta": 1e-9}}
	f.Loss, f.MinConfidence, f.Shadow = LossSpec{Kind: LossSquared, Scale: 3}, 0.25, map[string]float64{"b@1": 0.125}
	f = f.WithDefaults()
	if want := `{"a":[1e5,12345678901234567890],"b":"<&>"}`; string(f.Default) != want {
		t.Errorf("canonical default is %s, want %s", f.Default, want)
	}
	if raw, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	var gotFunction FunctionSpec
	if err = json.Unmarshal(raw, &gotFunction); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, gotFunction); diff != "" {
		t.Errorf("%s (-want +got):\n%s", raw, diff)
	}
}

func TestLogLineText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		line LogLine
		want string
	}{
		{LogLine{at, "1", 7, "stdout", "hello"}, "2026-01-02T03:04:05Z 1/7: hello"},
		{LogLine{at, "1", 7, "stderr", "oops"}, "2026-01-02T03:04:05Z 1/7 stderr: oops"},
	} {
		if got := c.line.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// checkError expects an error that contains the text, or no error for "".
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got %q, want no error", err)
	case want != "" && err == nil:
		t.Errorf("got no error, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("got %q, want %q in it", err, want)
	}
}
