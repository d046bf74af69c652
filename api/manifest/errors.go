package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// MaxErrors is how many errors are reported of one file: more than fit a screen help nobody.
const MaxErrors = 20

// Error is one thing that is wrong in a manifest.
type Error struct {
	// File is the name that the manifest was decoded under.
	File string
	// Line and Column count from 1. A file that cannot be read at all has Line 0.
	Line, Column int
	// Kind, Name and Version are those of the object, where the error does not come from reading the file, which shows it.
	Kind          api.Kind
	Name, Version string
	// Path is the field, "inputs[0].shape[1]"; empty when it is about the file or a document.
	Path    string
	Message string
}

// Error is "file:line:column: function name: path: message", less what is not known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Name != "" {
		b.WriteString(strings.ToLower(string(e.Kind)) + " " + e.Name)
		if e.Version != "" {
			b.WriteString("@" + e.Version)
		}
		b.WriteString(": ")
	}
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

// Problems are the errors as a gateway answers them to whoever sent the manifest: without positions, which are those of the
// text that was sent, but with the objects, so that the sender can find them in the text it had. Errors in reading are none.
func (e Errors) Problems() []api.Problem {
	var all []api.Problem
	for _, one := range e {
		if one.Name != "" {
			all = append(all, api.Problem{Kind: one.Kind, Name: one.Name, Version: one.Version, Path: one.Path, Message: one.Message})
		}
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
