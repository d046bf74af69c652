package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MaxErrors is how many errors are reported of one file: more than fit a screen help nobody.
const MaxErrors = 20

// Error is one thing that is wrong in a manifest.
type Error struct {
	// File is the name that the manifest was decoded under.
	File string
	// Line and Column count from 1. A file that cannot be read at all has Line 0.
	Line, Column int
	// Path is the field, "inputs[0].shape[1]"; empty when it is about the file or a document.
	Path    string
	Message string
}

// Error is "file:line:column: path: message".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors is everything that was found wrong, in the order of the file, at most MaxErrors of it.
type Errors []*Error

// Error has one line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError gives the reader's error a position. The YAML reader knows the line only; the column is where the line's text
// begins.
func syntaxError(file string, data []byte, err error) Errors {
	e := &Error{File: file, Line: 1, Column: 1}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			e.Line = n
		}
	}
	lines := strings.SplitN(string(data), "\n", e.Line+1)
	if e.Line <= len(lines) {
		line := lines[e.Line-1]
		if body := strings.TrimLeft(line, " "); body != "" {
			e.Column += len(line) - len(body)
		}
	}
	e.Message = "not YAML: " + text
	return Errors{e}
}
