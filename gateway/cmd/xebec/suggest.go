package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xebec-serving/xebec/api/manifest"
)

// unknownCommand is the error for a command that does not exist.
func unknownCommand(root *cobra.Command, name string) error {
	root.SuggestionsMinimumDistance = 2
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return usagef("there is no command %q: did you mean %q? %q lists the commands", name, strings.Join(near, " or "), "xebec help")
	}
	return usagef("there is no command %q: %q lists the commands", name, "xebec help")
}

// flagError is the error for flags that were not understood.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) }) // the inherited ones too
		if near := manifest.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return usagef("%w: did you mean --%s? See %q", err, near, cmd.CommandPath()+" --help")
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if want := flagValues[invalid.GetFlag().Value.Type()]; want != "" && !errors.Is(err, strconv.ErrRange) {
			return usagef("--%s %s: expected %s: see %q", invalid.GetFlag().Name, invalid.GetValue(), want, cmd.CommandPath()+" --help")
		}
	}
	return usagef("%w: see %q", err, cmd.CommandPath()+" --help")
}

// flagValues is what flags of the usual types expect, by pflag's names of these. Other types have errors of their own.
var flagValues = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint": "a whole number of at least 0", "uint64": "a whole number of at least 0",
	"float64": "a number", "duration": "a duration with its unit, such as 300ms, 5s or 1m30s", "bool": "true or false",
}

// unknownKind is the error for a kind that a command does not know.
func unknownKind(command, typed string, kinds []string) error {
	hint := "expected one of " + strings.Join(kinds, ", ")
	if near := manifest.Nearest(typed, kinds); near != "" {
		hint = "did you mean " + near + "?"
	}
	return usagef("%s %s: %s", command, typed, hint)
}
