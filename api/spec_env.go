package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// EnvValue is the value of an environment variable of a worker: a text, a file that has it, or, in what a gateway shows, a mask.
// The zero EnvValue is the empty text.
type EnvValue struct {
	// Value is the text, as it was declared.
	Value string
	// File has the value: it is read at each start of a replica. A relative path begins at the model's directory. The content is
	// neither stored nor shown.
	File string
	// Masked stands for a text that is not shown. A spec with a masked value is not valid, so that it cannot be declared.
	Masked bool
}

// envObject is the JSON form of a value that is not a text.
type envObject struct {
	ValueFrom *envSource `json:"valueFrom,omitempty"`
	Masked    bool       `json:"masked,omitempty"`
}

type envSource struct {
	File string `json:"file"`
}

// MarshalJSON writes "text", {"valueFrom": {"file": "/a/path"}} or {"masked": true}.
func (v EnvValue) MarshalJSON() ([]byte, error) {
	switch {
	case v.Masked:
		return json.Marshal(envObject{Masked: true})
	case v.File != "":
		return json.Marshal(envObject{ValueFrom: &envSource{v.File}})
	}
	return json.Marshal(v.Value)
}

// UnmarshalJSON reads the output of MarshalJSON; see [ModelSpec.UnmarshalJSON].
func (v *EnvValue) UnmarshalJSON(data []byte) error {
	*v = EnvValue{}
	if !bytes.HasPrefix(data, []byte("{")) {
		return json.Unmarshal(data, &v.Value)
	}
	var o envObject
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	v.Masked = o.Masked
	if o.ValueFrom != nil {
		v.File = o.ValueFrom.File
	}
	return nil
}

// WithoutSecrets returns a copy of the spec in which the texts of environment variables are masked. All of them are: the gateway
// cannot know which are secret. Paths of files stay.
func (m ModelSpec) WithoutSecrets() ModelSpec {
	m.Run.Env = maps.Clone(m.Run.Env)
	for name, v := range m.Run.Env {
		if v.File == "" {
			m.Run.Env[name] = EnvValue{Masked: true}
		}
	}
	return m
}

// HasMasks reports whether a value of the spec is masked.
func (m *ModelSpec) HasMasks() bool {
	for _, v := range m.Run.Env {
		if v.Masked {
			return true
		}
	}
	return false
}

// validateEnv returns the bytes that the variables take in the declaration. The content of files does not count.
func validateEnv(e *FieldErrors, env map[string]EnvValue) (total int) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		v := env[name]
		total += len(name) + len(v.Value)
		at := "run.env." + name
		switch {
		case !envName(name):
			e.add("run.env", "%q is not the name of a variable: expected letters, digits and '_', not starting with a digit", name)
		case strings.HasPrefix(name, "XEBEC_"):
			e.add(at, "names that start with XEBEC_ are set by the gateway")
		case v.Masked:
			e.add(at, "the value is masked, so it is not known: read the declaration again with --show-secrets (?secrets=true of the admin API), or give a file: {valueFrom: {file: PATH}}")
		case !execText(v.Value):
			e.add(at, "the value is not UTF-8 text without NUL")
		}
		validatePath(e, at+".valueFrom.file", v.File)
	}
	return total
}
