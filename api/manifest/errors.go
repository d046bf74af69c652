package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// MaxErrors bounds the errors that are reported of one file. More than fit a screen do not help.
const MaxErrors = 20

// Error is one problem in a manifest.
type Error struct {
	// File is the name that was passed to Decode.
	File string
	// Line and Column count from 1. Line is 0 for a file that cannot be read at all.
	Line, Column int
	// Kind, Name and Version identify the object. They are empty for errors of reading the file, where the position
	// identifies it.
	Kind          api.Kind
	Name, Version string
	// Path is the field, "inputs[0].shape[1]". It is empty if the error is about the file or a document.
	Path    string
	Message string
}

// Error returns "file:line:column: function name: path: message", without the parts that are not known.
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

// Errors lists the problems in the order of the file, at most MaxErrors of them.
type Errors []*Error

// Error returns one line for each error.
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

// Problems returns the errors in the form in which a gateway sends them to the client: with the objects, so that the
// client can find them in its own files, and without positions, which refer to the text that was sent. Errors of
// reading the text are left out.
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

// syntaxError adds a position to the reader's error. The YAML reader reports only the line; the column is that of the
// line's first character after the indentation.
func syntaxError(file string, data []byte, err error) Errors {
	e := &Error{File: file, Line: 1, Column: 1}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			e.Line = n
		}
	}
	tabbed := false
	lines := strings.SplitN(string(data), "\n", e.Line+1)
	if e.Line <= len(lines) {
		line := lines[e.Line-1]
		if body := strings.TrimLeft(line, " "); body != "" {
			e.Column += len(line) - len(body)
			tabbed = body[0] == '\t'
		}
	}
	e.Message = "not YAML: " + text
	if tabbed && !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) { // JSON may be indented with tabs
		e.Message += ": indent with spaces, not with tabs"
	}
	return Errors{e}
}
