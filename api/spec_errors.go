package api

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FieldError is one problem in a spec.
type FieldError struct {
	// Path names the field as it is written in a manifest: "inputs[0].shape[1]".
	Path string
	// Message says what is wrong and what was expected.
	Message string
}

func (f FieldError) Error() string { return f.Path + ": " + f.Message }

// FieldErrors lists all problems in a spec, in the order of its fields.
type FieldErrors []FieldError

// Error returns one line for each problem.
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

// checkNumber reports a value that is not within low to high, NaN included. what says what the number is.
func checkNumber(e *FieldErrors, path string, v, low, high float64, what string) {
	if !(v >= low && v <= high) {
		e.add(path, "%s: expected %s to %s (%s)", number(v), number(low), number(high), what)
	}
}

// number writes 1000000000 rather than 1e+09 where plain digits are readable.
func number(v float64) string {
	if math.Abs(v) >= 1e-6 && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func (e FieldErrors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
