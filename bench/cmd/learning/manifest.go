package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifestText is the manifest of one part, with the files that its models read. A replica is isolated: of what lies in a temporary directory it sees
// the directory of its model alone, so the files are copied to where the manifest is.
type manifestText struct {
	strings.Builder
	files []string
}

// programs are the files of the program that serves the models, in the folder of the trainer.
var programs = []string{"model.py", "learned.py"}

// noAnswer is every function's default output. It is not a digit.
const noAnswer = -1

// model declares a model of the experiment. env has variables of model.py, as "NAME=value".
func (m *manifestText) model(cfg config, e *experiment, name string, cached bool, env ...string) {
	learned := e.name + "." + name + ".joblib"
	if m.files == nil {
		for _, file := range programs {
			m.files = append(m.files, filepath.Join(cfg.models, "learning", file))
		}
	}
	m.files = append(m.files, filepath.Join(e.dir, learned))
	env = append([]string{"LEARNED=" + learned, "OMP_NUM_THREADS=1"}, env...)
	slices.Sort(env)
	m.next("Model", name)
	fmt.Fprintf(m, "version: \"1\"\ninputs:  [{name: pixels, dtype: uint8, shape: [%d]}]\noutputs: [{name: digit, dtype: int64, shape: []}]\n", e.Pixels)
	fmt.Fprintf(m, "run:\n  command: [python, %s]\n  env:\n", programs[0])
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

// copyFiles copies what the models read to the folder of the manifest.
func (m *manifestText) copyFiles(folder string) error {
	var errs []error
	for _, file := range m.files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(file)), data, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
