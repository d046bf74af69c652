package api

import (
	"fmt"
	"slices"
	"strings"
)

// FieldError is one thing that is wrong in a spec.
type FieldError struct {
	// Path names the field as a reader of the manifest writes it: "inputs[0].shape[1]".
	Path string
	// Message says what is wrong and what was expected.
	Message string
}

func (f FieldError) Error() string { return f.Path + ": " + f.Message }

// FieldErrors is everything that is wrong in a spec, in the order of its fields.
type FieldErrors []FieldError

// Error has one line for each.
func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

func (e *FieldErrors) add(path, format string, args ...any) {
	*e = append(*e, FieldError{path, fmt.Sprintf(format, args...)})
}

func (e *FieldErrors) check(path string, err error) {
	if err != nil {
		e.add(path, "%s", err.Error())
	}
}

func (e FieldErrors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
