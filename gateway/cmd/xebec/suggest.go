package main

import (
	"errors"
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
	return usagef("%w: see %q", err, cmd.CommandPath()+" --help")
}

// unknownKind is the error for a kind that a command does not know.
func unknownKind(command, typed string, kinds []string) error {
	hint := "expected one of " + strings.Join(kinds, ", ")
	if near := manifest.Nearest(typed, kinds); near != "" {
		hint = "did you mean " + near + "?"
	}
	return usagef("%s %s: %s", command, typed, hint)
}
