package main

import (
	"context"
	"encoding/json"
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
		Short: "Show who changed what when",
		Long: `Show the last changes of what is declared, newest first: of the model or function NAME, or of everything. WHO is what callers said of
themselves, or the name of the token that they came with, and where they came from.`,
		Example: `  xebec history digits
  xebec history --limit 200 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes NAME or nothing; got %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(c.names(cmd.Context(), api.KindModel), c.names(cmd.Context(), api.KindFunction)...), cobra.ShellCompDirectiveNoFileComp
		},
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
		text, err := json.Marshal(h)
		if err != nil {
			return err
		}
		return c.print(format, text)
	}
	p := &page{c: c}
	return c.table("TIME\tREVISION\tWHO\tACTION\tWHAT\tDETAIL", len(h.Events), "changes", func(w io.Writer) {
		for _, e := range h.Events {
			what := changeName(api.Change{Kind: e.Kind, Name: e.Name, Version: e.Version})
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", e.Time.In(c.zone()).Format(time.RFC3339), e.Revision, p.why(e.By), p.why(e.Action), p.why(what), p.why(e.Detail))
		}
	})
}

func (c *cli) exportCommand() *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print everything that is declared, to keep it or to apply it elsewhere",
		Long: `Print everything that is declared, in the form that "xebec apply" takes: models, functions, traffic rules. Models that a watched
directory declares are not in it: the directory is. What needs such models is a comment at the end, so that any gateway takes the rest. Nor
is in it what policies have learned.

What models have in their environments is in it too: a file of --file can be read by nobody else.`,
		Example: `  xebec export --file backup.yaml
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
			return c.export(cmd.Context(), accept, format, file)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "file to write; one that is there is replaced when the new one is whole")
	cmd.Flags().StringVarP(&format, "output", "o", formatYAML, "what to print: yaml, json")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatYAML, formatJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) export(ctx context.Context, accept, format, file string) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	res, err := c.send(ctx, http.MethodGet, "/v1/export", "", accept, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := readAnswer(res)
	if err != nil {
		return err
	}
	text, note, err := portable(answer, format)
	if err != nil { // a gateway of another version: what it says is worth keeping all the same
		text, note = answer, fmt.Sprintf("this version of xebec does not understand all of the export, and prints it as it came: %v", err)
	}
	if file == "" {
		_, err = c.out.Write(text)
	} else if err = replaceFile(file, text); err != nil {
		err = fmt.Errorf("--file %s: %w; what was there before is as it was", file, err)
	}
	if err == nil && note != "" {
		fmt.Fprintln(c.err, note)
	}
	return err
}

// replaceFile writes a file that only its owner can read. Under its name there is the old content or the new one, whatever happens.
func replaceFile(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return errors.New("it is there, and is not a regular file")
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
