package api

import "testing"

// TestFixed: a version's signature and what it runs never change; the other fields may.
func TestFixed(t *testing.T) {
	base := ModelSpec{
		Name: "m", Version: "1", Inputs: []TensorSpec{{Name: "x", DType: Float32, Shape: []int64{4}}}, Outputs: []TensorSpec{{Name: "y", DType: Int64}},
		Run: RunSpec{Command: []string{"a", "b"}, Env: map[string]EnvValue{"A": {Value: "b"}}}, Python: ".venv", Device: "gpu0",
		ImageDigest: "sha256:a",
	}
	for _, c := range []struct {
		want   string
		change func(*ModelSpec)
	}{
		{"inputs", func(m *ModelSpec) { m.Inputs = []TensorSpec{{Name: "x", DType: Float32, Shape: []int64{5}}} }},
		{"inputs", func(m *ModelSpec) {
			m.Inputs = []TensorSpec{{Name: "z", DType: Float32, Shape: []int64{4}}}
			m.Device = ""
		}},
		{"outputs", func(m *ModelSpec) { m.Outputs = []TensorSpec{{Name: "y", DType: Int32}} }},
		{"outputs", func(m *ModelSpec) { m.Outputs = append(m.Outputs, TensorSpec{Name: "z"}) }},
		{"run", func(m *ModelSpec) { m.Run.Command = []string{"a"} }},
		{"run", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {Value: "c"}} }},
		{"run", func(m *ModelSpec) { m.Run.Env = map[string]EnvValue{"A": {File: "b"}} }},
		{"run", func(m *ModelSpec) { m.Run.Image = "i" }},
		{"python", func(m *ModelSpec) { m.Python = "" }},
		{"device", func(m *ModelSpec) { m.Device = "gpu1" }},
		{"image_digest", func(m *ModelSpec) { m.ImageDigest = "sha256:b" }},
		{"image_digest", func(m *ModelSpec) { m.ImageDigest = "team/m@sha256:b" }},
		{"", func(m *ModelSpec) { m.ImageDigest = "team/m@sha256:a" }},
		{"", func(m *ModelSpec) { m.ImageDigest = "" }}, // it was not known yet
		{"", func(m *ModelSpec) {
			m.Replicas.Max = 9
			m.Cost = 3
			m.Validation = &ValidateSpec{Queries: "q"}
			m.Dir = "/elsewhere"
		}},
		{"", func(m *ModelSpec) { m.Outputs = []TensorSpec{{Name: "y", DType: Int64, Shape: []int64{}}} }},
	} {
		other := base
		c.change(&other)
		if got := base.Fixed(&other); got != c.want {
			t.Errorf("%+v: %q may not differ, expected %q", other, got, c.want)
		}
	}
}
