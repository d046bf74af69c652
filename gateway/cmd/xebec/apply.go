package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/worker/runtimes"
)

func (c *cli) applyCommand() *cobra.Command {
	var (
		files  []string
		dryRun bool
		format string
		wait   waitOptions
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Declare models, functions and traffic rules",
		Long: `Declare the models, functions and traffic rules of manifests (YAML or JSON). Objects that are declared already and have not changed are
left alone.

What "xebec get -o json" prints can be applied: the member status of an object is ignored.

Relative paths in a manifest are relative to its directory, or to the working directory if it is read from stdin.`,
		Example: `  xebec apply -f models.yaml
  xebec apply -f manifests/ --dry-run`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("apply needs -f FILE, -f DIR or -f - for stdin")
			}
			var all api.Changes
			for _, file := range files {
				changes, err := c.applyOne(cmd.Context(), file, dryRun)
				if err != nil {
					return err
				}
				all.Changes = append(all.Changes, changes.Changes...)
				all.DryRun = dryRun
			}
			if err := c.printChanges(format, all); err != nil || dryRun {
				return err
			}
			return c.waitFor(cmd.Context(), all.Changes, wait)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "manifest, directory of manifests, or - for stdin; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change, field by field, and change nothing")
	wait.flags(cmd, false)
	outputFlag(cmd, &format)
	return cmd
}

// applyOne sends a manifest, or all manifests of a directory, which are applied together or not at all.
func (c *cli) applyOne(ctx context.Context, file string, dryRun bool) (api.Changes, error) {
	var changes api.Changes
	set, base, err := c.loadManifest(file)
	if err != nil {
		return changes, err
	}
	return c.applySet(ctx, set, base, dryRun)
}

// applySet sends a set. base is the directory of its relative paths, "" if it has none.
func (c *cli) applySet(ctx context.Context, set *manifest.Set, base string, dryRun bool, more ...header) (changes api.Changes, err error) {
	body, err := set.JSON()
	if err != nil {
		return changes, err
	}
	q := url.Values{}
	if base != "" {
		q.Set("base", base)
	}
	if dryRun {
		q.Set("dry_run", "true")
	}
	err = c.onceRead(ctx, func() error {
		return c.call(ctx, http.MethodPost, strings.TrimSuffix("/v1/apply?"+q.Encode(), "?"), "application/json", body, &changes, more...)
	})
	var refused *remoteError
	if errors.As(err, &refused) && len(refused.Problems) > 0 {
		// The gateway reports lines of the JSON that it was sent; the user knows those of the files.
		err = set.Relocate(refused.Problems)
	}
	return changes, err
}

// editAttempts is how often an edit is tried. One of several concurrent edits succeeds each time, so five of them all
// do.
const editAttempts = 5

// edit changes one object and prints the change. read reads the object, edits it, and returns it with the revision that
// it read. If another change comes between, nothing is overwritten: edit reads the object again.
func (c *cli) edit(ctx context.Context, format string, read func() (edited *manifest.Set, revision uint64, err error)) error {
	var conflict *remoteError
	for range editAttempts {
		var set *manifest.Set
		var revision uint64
		if err := c.onceRead(ctx, func() (err error) { set, revision, err = read(); return err }); err != nil {
			return err
		}
		changes, err := c.applySet(ctx, set, "", false, header{"If-Match", fmt.Sprintf("%q", strconv.FormatUint(revision, 10))})
		if errors.As(err, &conflict) && len(conflict.Stale) > 0 {
			continue
		}
		if err != nil {
			return err
		}
		if err := c.printChanges(format, changes); err != nil {
			return err
		}
		c.noteConfig(ctx, changes.Changes)
		return nil
	}
	return fmt.Errorf("gave up after %d attempts, because others keep changing it: %w", editAttempts, conflict)
}

func (c *cli) loadManifest(file string) (set *manifest.Set, base string, err error) {
	if file == "-" {
		return c.stdinManifest()
	}
	if set, err = manifest.Load(file); err != nil {
		return nil, "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		file = filepath.Dir(file)
	}
	base, err = filepath.Abs(file)
	return set, base, err
}

func (c *cli) stdinManifest() (set *manifest.Set, base string, err error) {
	data, err := c.readInput("-", manifest.MaxBytes)
	if err != nil {
		return nil, "", err
	}
	if base, err = os.Getwd(); err != nil {
		return nil, "", err
	}
	set, err = manifest.Decode("stdin", data)
	return set, base, err
}

func (c *cli) deployCommand() *cobra.Command {
	var (
		format string
		q      api.Deployment
		upload bool
		wait   waitOptions
		file   dropOptions
	)
	cmd := &cobra.Command{
		Use:   "deploy DIR|FILE",
		Short: "Declare a model directory, or a file of a library, and wait until it is served",
		Long: `Declare the model of a model directory: a directory with the file ` + manifest.ModelFile + `, the model's code and its parameters. If there is
no function with the model's name, one is declared too. The files are uploaded if the gateway is on another host, as the address --admin says, or with --upload.

A new version starts a replica, also with replicas.min 0, where it sleeps again once it has shown that it can start. If it cannot, deploy says
why and fails.

A version is its files: the gateway keeps a copy of them, from which replicas run. To deploy files that have changed, give the model
another version, or let --new-version do so.

A FILE is ` + runtimes.Formats + `.
It is recognised by its content. Its model directory is made, with a program that serves it, and deployed; the same file again is the same version,
and another one of the same name the next version.`,
		Example: `  xebec deploy ./digits-svm
  xebec deploy ./digits-svm --new-version
  xebec deploy ./digits-svm --dry-run
  xebec deploy iris.onnx
  xebec deploy churn.joblib --allow-pickle --requirements requirements.txt`,
		Args: exactly("DIR|FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if !isModelDir(path) {
				say := c.out
				if format != formatTable {
					say = c.err
				}
				file.dryRun = q.DryRun
				made, undo, err := c.drop(cmd.Context(), path, file, say)
				if err != nil {
					return err
				}
				if q.DryRun {
					defer undo()
				}
				path = made
			}
			changes, err := c.deployDir(cmd.Context(), path, q, upload)
			if err != nil {
				return err
			}
			if err := c.printChanges(format, changes); err != nil || q.DryRun {
				return err
			}
			return c.waitFor(cmd.Context(), changes.Changes, wait)
		},
	}
	cmd.Flags().BoolVar(&q.NewVersion, "new-version", false, "declare files that have changed as the version after the newest one")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&upload, "upload", false, "send the files to the gateway, also where its address is on this host")
	wait.flags(cmd, true)
	file.flags(cmd)
	outputFlag(cmd, &format)
	return cmd
}

// printChanges writes a line for each change: "model digits-svm@1 created". Of a dry run it writes the fields that would change, too.
func (c *cli) printChanges(format string, changes api.Changes) error {
	if format != formatTable {
		return c.printJSON(format, changes)
	}
	for _, ch := range changes.Changes {
		note := ""
		if changes.DryRun {
			note = " (dry run)"
		}
		if ch.Note != "" {
			note += ": " + c.clean(ch.Note)
		}
		if _, err := fmt.Fprintf(c.out, "%s %s%s\n", changeName(ch), ch.Action, note); err != nil {
			return err
		}
		if changes.DryRun {
			if err := c.printFields(ch); err != nil {
				return err
			}
		}
	}
	return nil
}

func changeName(ch api.Change) string {
	if ch.Version == "" {
		return strings.ToLower(string(ch.Kind)) + " " + ch.Name
	}
	return strings.ToLower(string(ch.Kind)) + " " + changeID(ch).String()
}

func changeID(ch api.Change) api.ModelID { return api.ModelID{Name: ch.Name, Version: ch.Version} }
