package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
)

func (c *cli) historyCommand() *cobra.Command {
	var (
		limit  int
		format string
	)
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show who changed what, and when",
		Long: `Show the last changes to declarations, newest first: to the model or function NAME, or to everything. WHO is the name that
the caller gave, or that of its token, and its address. For a model, what was measured of its versions comes first: how long a batch of
n queries takes, how often feedback found an answer right, how far inputs or outputs have drifted, and how old the figures are. They outlive
the gateway.`,
		Example: `  xebec history digits
  xebec history --limit 200 -o json`,
		Args:              atMostOne("one NAME"),
		ValidArgsFunction: c.completeName(api.KindModel, api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > admin.MaxHistory {
				return usagef("--limit %d: expected 1 to %d", limit, admin.MaxHistory)
			}
			path := "/v1/history"
			if len(args) == 1 {
				if err := api.CheckName("model or function", args[0]); err != nil {
					return usageError{err}
				}
				path += "/" + args[0]
			}
			return c.history(cmd.Context(), path+"?limit="+strconv.Itoa(limit), format)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", admin.DefaultHistory, "how many changes to show")
	outputFlag(cmd, &format)
	return cmd
}

func (c *cli) history(ctx context.Context, path, format string) error {
	var h api.History
	if err := c.get(ctx, path, &h); err != nil {
		return err
	}
	if format != formatTable {
		return c.printJSON(format, h)
	}
	if len(h.Measured) > 0 {
		if err := c.measuredTable(h.Measured); err != nil {
			return err
		}
		fmt.Fprintln(c.out)
	}
	return c.table("TIME\tREVISION\tWHO\tACTION\tWHAT\tDETAIL", len(h.Events), "changes", func(w io.Writer) {
		for _, e := range h.Events {
			what := changeName(api.Change{Kind: e.Kind, Name: e.Name, Version: e.Version})
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", e.Time.In(c.zone()).Format(time.RFC3339), e.Revision, c.cell(e.By), c.cell(e.Action), c.cell(what), c.cell(e.Detail))
		}
	})
}

func (c *cli) exportCommand() *cobra.Command {
	var (
		file, format string
		secrets      bool
	)
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print everything that is declared, to back it up or to apply it elsewhere",
		Long: `Print everything that is declared, in the form that "xebec apply" reads: models, functions, traffic rules.

Models of a watched directory are not included, because the directory declares them. Functions and rules that need such models are
comments at the end, so that any gateway accepts the rest. What policies have learned is not included either.

Values of models' environment variables are masked, and "xebec apply" refuses an export with masked values. A backup needs
--show-secrets. Only the owner of a --file can read it.`,
		Example: `  xebec export --show-secrets --file backup.yaml
  xebec apply -f backup.yaml`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			accept := "application/yaml"
			switch format {
			case formatYAML:
			case formatJSON:
				accept = "application/json"
			default:
				return usagef("-o %s: expected %s or %s", format, formatYAML, formatJSON)
			}
			return c.export(cmd.Context(), accept, format, file, secrets)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "file to write; an existing file is replaced once the new one is complete")
	cmd.Flags().StringVarP(&format, "output", "o", formatYAML, "what to print: yaml, json")
	completeFlag(cmd, "output", formatYAML, formatJSON)
	secretsFlag(cmd, &secrets)
	return cmd
}

func (c *cli) export(ctx context.Context, accept, format, file string, secrets bool) error {
	var answer []byte
	if err := c.call(ctx, http.MethodGet, withSecrets("/v1/export", secrets), "", nil, &answer, header{"Accept", accept}); err != nil {
		return err
	}
	text, note, err := portable(answer, format)
	if err != nil { // the gateway is of another version; its export is still a backup
		text, note = answer, fmt.Sprintf("this version of xebec cannot read all of the export, and prints it unchanged: %v", err)
	}
	if file == "" {
		_, err = c.out.Write(text)
	} else if err = replaceFile(file, text); err != nil {
		err = fmt.Errorf("--file %s: %w; the file was not changed", file, err)
	}
	if err == nil && note != "" {
		fmt.Fprintln(c.err, note)
	}
	return err
}

// replaceFile writes a file that only its owner can read. Whatever happens, the file has the old content or all of the
// new one.
func replaceFile(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return errors.New("it exists, and is not a regular file")
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
