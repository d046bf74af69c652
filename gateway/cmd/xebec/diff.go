package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

// errDiffers is the result of a comparison that found a difference. Nothing is printed for it: the difference has been.
var errDiffers = errors.New("what is declared differs")

// troubleError is an error of a command whose exit status 1 says something else.
type troubleError struct{ error }

func (e troubleError) Unwrap() error { return e.error }

// failedDiff is the error of a comparison that could not be made.
func failedDiff(err error) error {
	var usage usageError
	if errors.As(err, &usage) {
		return err
	}
	return troubleError{err}
}

func (c *cli) diffCommand() *cobra.Command {
	var (
		files  []string
		format string
	)
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-",
		Short: "Show what applying manifests would change, field by field",
		Long: `Show what "xebec apply" of the same files would change: the objects that it would create, and the fields of others with their old and
new values. Nothing is changed. A manifest that apply would refuse is an error.

The exit status is 0 if nothing would change, 1 if something would, and 3 if that is not known, because of an error.`,
		Example: `  xebec diff -f models.yaml
  xebec diff -f manifests/ -o json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("diff needs -f FILE, -f DIR or -f - for stdin")
			}
			all := api.Changes{Changes: []api.Change{}, DryRun: true}
			for _, file := range files {
				changes, err := c.applyOne(cmd.Context(), file, true)
				if err != nil {
					return failedDiff(err)
				}
				for _, ch := range changes.Changes {
					if ch.Action != api.Unchanged {
						all.Changes = append(all.Changes, ch)
					}
				}
			}
			if err := c.printChanges(format, all); err != nil {
				return failedDiff(err)
			}
			if len(all.Changes) > 0 {
				return errDiffers
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "manifest, directory of manifests, or - for stdin; may be repeated")
	outputFlag(cmd, &format)
	return cmd
}

// printFields writes a line for each field that a change gives another value.
func (c *cli) printFields(ch api.Change) error {
	for _, f := range ch.Fields {
		if _, err := fmt.Fprintf(c.out, "  %s: %s → %s\n", c.cell(f.Path), c.value(f.Old), c.value(f.New)); err != nil {
			return err
		}
	}
	return nil
}

// value is JSON on one line; "(none)" where there is no value.
func (c *cli) value(raw json.RawMessage) string {
	var line bytes.Buffer
	switch {
	case len(raw) == 0:
		return "(none)"
	case json.Compact(&line, raw) != nil:
		return c.cell(string(raw))
	}
	return c.cell(line.String())
}
