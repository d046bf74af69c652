package api

import (
	"encoding/json"
	"time"
)

// The JSON form of a spec has the field names and the duration strings of the manifest, so that an operator can copy
// what a status shows into a manifest.

type tensorJSON struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

type modelJSON struct {
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	Inputs    []tensorJSON  `json:"inputs"`
	Outputs   []tensorJSON  `json:"outputs"`
	Run       runJSON       `json:"run"`
	Python    string        `json:"python,omitempty"`
	Preload   []string      `json:"preload,omitempty"`
	Replicas  replicasJSON  `json:"replicas"`
	Resources resourcesJSON `json:"resources,omitzero"`
	Limits    limitsJSON    `json:"limits,omitzero"`
	Expect    []expectJSON  `json:"expect,omitempty"`
	Batching  batchingJSON  `json:"batching"`
	Retry     *bool         `json:"retry,omitempty"`
	Timeout   duration      `json:"timeout,omitempty"`
	Queue     queueJSON     `json:"queue"`
	Cache     string        `json:"cache,omitempty"`
	Cost      float64       `json:"cost,omitempty"`
	Device    string        `json:"device,omitempty"`
	Warmup    *warmupJSON   `json:"warmup,omitempty"`
	Validate  *validateJSON `json:"validate,omitempty"`
	Dir       string        `json:"dir,omitempty"`
}

type warmupJSON struct {
	Queries string `json:"queries"`
	Repeat  int    `json:"repeat,omitempty"`
}

type validateJSON struct {
	Queries       string  `json:"queries"`
	Expect        string  `json:"expect,omitempty"`
	MinAccuracy   float64 `json:"min_accuracy,omitempty"`
	MaxDifference float64 `json:"max_difference,omitempty"`
	Tolerance     float64 `json:"tolerance,omitempty"`
	Extremes      *bool   `json:"extremes,omitempty"`
}

type runJSON struct {
	Command []string          `json:"command,omitempty"`
	Image   string            `json:"image,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

type replicasJSON struct {
	Min         int      `json:"min"`
	Max         int      `json:"max"`
	Initial     int      `json:"initial,omitempty"`
	Idle        duration `json:"idle,omitempty"`
	Window      duration `json:"window,omitempty"`
	Delay       duration `json:"delay,omitempty"`
	Utilization float64  `json:"utilization,omitempty"`
	Up          float64  `json:"up,omitempty"`
	Down        float64  `json:"down,omitempty"`
}

type resourcesJSON struct {
	CPU         float64 `json:"cpu,omitempty"`
	MemoryBytes size    `json:"memory,omitempty"`
	GPU         int     `json:"gpu,omitempty"`
}

type limitsJSON struct {
	CPU         float64 `json:"cpu,omitempty"`
	MemoryBytes size    `json:"memory,omitempty"`
	PIDs        int     `json:"pids,omitempty"`
}

type expectJSON struct {
	Rate float64 `json:"rate"`
	From string  `json:"from"`
	To   string  `json:"to"`
}

func convertAll[To, From any](in []From, convert func(From) To) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i := range in {
		out[i] = convert(in[i])
	}
	return out
}

type batchingJSON struct {
	Policy    string   `json:"policy,omitempty"`
	Max       int      `json:"max,omitempty"`
	MaxBytes  int64    `json:"max_bytes,omitempty"`
	Hold      duration `json:"hold,omitempty"`
	Objective duration `json:"objective,omitempty"`
	Pad       bool     `json:"pad,omitempty"`
}

type queueJSON struct {
	Max int `json:"max,omitempty"`
}

type functionJSON struct {
	Name          string             `json:"name"`
	Models        []string           `json:"models"`
	SLO           duration           `json:"slo,omitempty"`
	Default       json.RawMessage    `json:"default,omitempty"`
	Policy        *PolicySpec        `json:"policy,omitempty"`
	Loss          *LossSpec          `json:"loss,omitempty"`
	MinConfidence float64            `json:"min_confidence,omitempty"`
	Shadow        map[string]float64 `json:"shadow,omitempty"`
	Weight        float64            `json:"weight,omitempty"`
	Budget        float64            `json:"budget,omitempty"`
	ColdStart     duration           `json:"cold_start,omitempty"`
	Log           *logJSON           `json:"log,omitempty"`
}

type logJSON struct {
	Sample float64 `json:"sample"`
}

func replicasToJSON(r ReplicaBounds) replicasJSON {
	return replicasJSON{
		Min: r.Min, Max: r.Max, Initial: r.Initial, Idle: duration(r.Idle), Window: duration(r.Window), Delay: duration(r.Delay),
		Utilization: r.Utilization, Up: r.Up, Down: r.Down,
	}
}

func (j replicasJSON) bounds() ReplicaBounds {
	return ReplicaBounds{
		Min: j.Min, Max: j.Max, Initial: j.Initial, Idle: time.Duration(j.Idle), Window: time.Duration(j.Window), Delay: time.Duration(j.Delay),
		Utilization: j.Utilization, Up: j.Up, Down: j.Down,
	}
}

// size is a number of bytes that JSON writes as "512MiB".
type size int64

func (n size) MarshalText() ([]byte, error) { return []byte(FormatBytes(int64(n))), nil }

func (n *size) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	*n = size(v)
	return err
}

// duration is a time.Duration that JSON writes as "20ms".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// MarshalJSON writes the spec with the names of the manifest.
func (m ModelSpec) MarshalJSON() ([]byte, error) {
	return json.Marshal(modelJSON{
		Name:      m.Name,
		Version:   m.Version,
		Inputs:    tensorsToJSON(m.Inputs),
		Outputs:   tensorsToJSON(m.Outputs),
		Run:       runJSON(m.Run),
		Python:    m.Python,
		Preload:   m.Preload,
		Replicas:  replicasToJSON(m.Replicas),
		Resources: resourcesJSON{m.Resources.CPU, size(m.Resources.MemoryBytes), m.Resources.GPU},
		Limits:    limitsJSON{m.Limits.CPU, size(m.Limits.MemoryBytes), m.Limits.PIDs},
		Expect:    convertAll(m.Expect, func(x ExpectSpec) expectJSON { return expectJSON(x) }),
		Batching: batchingJSON{
			Policy: m.Batching.Policy, Max: m.Batching.Max, MaxBytes: m.Batching.MaxBytes,
			Hold: duration(m.Batching.Hold), Objective: duration(m.Batching.Objective), Pad: m.Batching.Pad,
		},
		Retry:    m.Retry,
		Timeout:  duration(m.Timeout),
		Queue:    queueJSON(m.Queue),
		Cache:    m.Cache,
		Cost:     m.Cost,
		Device:   m.Device,
		Warmup:   (*warmupJSON)(m.Warmup),
		Validate: (*validateJSON)(m.Validation),
		Dir:      m.Dir,
	})
}

// UnmarshalJSON reads the output of MarshalJSON. It ignores unknown members and validates nothing: it is for a
// gateway's answers. Package manifest, which is strict, reads manifests.
func (m *ModelSpec) UnmarshalJSON(data []byte) error {
	var j modelJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	inputs, err := tensorsFromJSON(j.Inputs)
	if err != nil {
		return err
	}
	outputs, err := tensorsFromJSON(j.Outputs)
	if err != nil {
		return err
	}
	*m = ModelSpec{
		Name: j.Name, Version: j.Version, Inputs: inputs, Outputs: outputs,
		Run: RunSpec(j.Run), Python: j.Python, Preload: j.Preload, Replicas: j.Replicas.bounds(),
		Resources: ResourceSpec{j.Resources.CPU, int64(j.Resources.MemoryBytes), j.Resources.GPU},
		Limits:    LimitSpec{j.Limits.CPU, int64(j.Limits.MemoryBytes), j.Limits.PIDs},
		Expect:    convertAll(j.Expect, func(x expectJSON) ExpectSpec { return ExpectSpec(x) }),
		Batching: BatchingSpec{
			Policy: j.Batching.Policy, Max: j.Batching.Max, MaxBytes: j.Batching.MaxBytes,
			Hold: time.Duration(j.Batching.Hold), Objective: time.Duration(j.Batching.Objective), Pad: j.Batching.Pad,
		},
		Retry: j.Retry, Timeout: time.Duration(j.Timeout), Queue: QueueSpec(j.Queue), Cache: j.Cache,
		Cost: j.Cost, Device: j.Device, Warmup: (*WarmupSpec)(j.Warmup), Validation: (*ValidateSpec)(j.Validate), Dir: j.Dir,
	}
	return nil
}

// MarshalJSON writes the spec with the names of the manifest.
func (f FunctionSpec) MarshalJSON() ([]byte, error) {
	j := functionJSON{
		Name: f.Name, Models: f.Models, SLO: duration(f.SLO), Default: f.Default, MinConfidence: f.MinConfidence, Shadow: f.Shadow,
		Weight: f.Weight, Budget: f.Budget, ColdStart: duration(f.ColdStart), Log: (*logJSON)(f.Log),
	}
	if f.Policy.Name != "" || f.Policy.Params != nil {
		j.Policy = &f.Policy
	}
	if f.Loss != (LossSpec{}) {
		j.Loss = &f.Loss
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote; see [ModelSpec.UnmarshalJSON].
func (f *FunctionSpec) UnmarshalJSON(data []byte) error {
	var j functionJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.Default != nil {
		// Encoders escape characters in raw JSON. The canonical form undoes that.
		canonical, err := CanonicalJSON(j.Default)
		if err != nil {
			return err
		}
		j.Default = canonical
	}
	*f = FunctionSpec{
		Name: j.Name, Models: j.Models, SLO: time.Duration(j.SLO), Default: j.Default, MinConfidence: j.MinConfidence, Shadow: j.Shadow,
		Weight: j.Weight, Budget: j.Budget, ColdStart: time.Duration(j.ColdStart), Log: (*LogSpec)(j.Log),
	}
	if j.Policy != nil {
		f.Policy = *j.Policy
	}
	if j.Loss != nil {
		f.Loss = *j.Loss
	}
	return nil
}

func tensorsToJSON(specs []TensorSpec) []tensorJSON {
	out := make([]tensorJSON, len(specs))
	for i, t := range specs {
		shape := t.Shape
		if shape == nil {
			shape = []int64{}
		}
		out[i] = tensorJSON{t.Name, t.DType.String(), shape}
	}
	return out
}

func tensorsFromJSON(in []tensorJSON) ([]TensorSpec, error) {
	var specs []TensorSpec
	for _, t := range in {
		dtype, err := ParseDType(t.DType)
		if err != nil {
			return nil, err
		}
		spec := TensorSpec{Name: t.Name, DType: dtype}
		if len(t.Shape) > 0 { // a scalar's shape is nil, so that equal specs compare equal
			spec.Shape = t.Shape
		}
		specs = append(specs, spec)
	}
	return specs, nil
}
