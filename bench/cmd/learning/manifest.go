package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// manifestText is the manifest of one part. It is written at run time, because it contains the paths of the trainer's files and switch files.
type manifestText struct{ strings.Builder }

// noAnswer is every function's default output. It is not a digit.
const noAnswer = -1

// model declares a model of the experiment. env has variables of model.py, as "NAME=value".
func (m *manifestText) model(cfg config, e *experiment, name string, cached bool, env ...string) {
	env = append([]string{"LEARNED=" + filepath.Join(e.dir, e.name+"."+name+".joblib"), "OMP_NUM_THREADS=1"}, env...)
	slices.Sort(env)
	m.next("Model", name)
	fmt.Fprintf(m, "version: \"1\"\ninputs:  [{name: pixels, dtype: uint8, shape: [%d]}]\noutputs: [{name: digit, dtype: int64, shape: []}]\n", e.Pixels)
	fmt.Fprintf(m, "run:\n  command: [python, %q]\n  env:\n", filepath.Join(cfg.models, "learning", "model.py"))
	for _, entry := range env {
		key, value, _ := strings.Cut(entry, "=")
		fmt.Fprintf(m, "    %s: %q\n", key, value)
	}
	m.WriteString("cache: " + map[bool]string{true: "on", false: "off"}[cached] + "\n")
}

// function declares a function. policy is YAML: a name or a mapping.
func (m *manifestText) function(name string, models []string, policy, slo string) {
	m.next("Function", name)
	fmt.Fprintf(m, "models: [%s]\npolicy: %s\nslo: %s\ndefault: %d\n", strings.Join(models, ", "), policy, slo, noAnswer)
}

func (m *manifestText) next(kind, name string) {
	if m.Len() > 0 {
		m.WriteString("---\n")
	}
	fmt.Fprintf(m, "kind: %s\nname: %s\n", kind, name)
}
