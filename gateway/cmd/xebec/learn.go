package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

func (c *cli) learnCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "learn",
		Short: "Export, import, reset or show over time what a function has learned",
		Long: `What the policy of a function has learned from feedback: take it elsewhere, bring it back, begin again, or see how it has changed.
"xebec describe function" shows the present.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(c.learnExportCommand(), c.learnImportCommand(), c.learnResetCommand(), c.learnHistoryCommand())
	return cmd
}

// statesFlags are the flags that say which states are meant.
type statesFlags struct {
	context string
	all     bool
}

func (s *statesFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.context, "context", "", "only what was learned in this context")
	cmd.Flags().BoolVar(&s.all, "all", false, "what was learned over all contexts, and in each of them")
}

// path is the admin API's path for the states.
func (s *statesFlags) path(cmd *cobra.Command, function string) (string, error) {
	if err := api.CheckName("function", function); err != nil {
		return "", usageError{err}
	}
	q := url.Values{}
	switch given := cmd.Flags().Changed("context"); {
	case given && s.all:
		return "", usagef("--context and --all exclude each other")
	case given && s.context == "":
		return "", usagef("--context is empty: leave it out for what was learned over all contexts")
	case given:
		q.Set("context", s.context)
	case s.all:
		q.Set("all", "true")
	}
	path := learnedPath(function)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path, nil
}

func learnedPath(function string) string { return "/v1/learned/" + function }

func (c *cli) learnExportCommand() *cobra.Command {
	var (
		which statesFlags
		file  string
	)
	cmd := &cobra.Command{
		Use:   "export FUNCTION",
		Short: "Print what a function has learned, to import it elsewhere or later",
		Long: `Print what the policy of a function has learned, as JSON that "xebec learn import" reads: over all contexts, in one context, or all of it.
The same state is always the same text. Contexts may name users: only the owner of a --file can read it.

An export has at most 100,000 states and 12 MB. A store with more is backed up as a whole.`,
		Example: `  xebec learn export digits
  xebec learn export digits --all --file digits-learned.json`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := which.path(cmd, args[0])
			if err != nil {
				return err
			}
			return c.learnExport(cmd.Context(), path, file)
		},
	}
	which.add(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file to write; an existing file is replaced once the new one is complete")
	return cmd
}

func (c *cli) learnExport(ctx context.Context, path, file string) error {
	var s api.LearnedState
	if err := c.get(ctx, path, &s); err != nil {
		return err
	}
	text, err := learnedText(&s)
	if err != nil {
		return err
	}
	if file == "" {
		_, err = c.out.Write(text)
	} else if err = replaceFile(file, text); err != nil {
		err = fmt.Errorf("--file %s: %w; the file was not changed", file, err)
	}
	return err
}

// learnedText is JSON with a line for each row, so that two exports can be compared line by line.
func learnedText(s *api.LearnedState) ([]byte, error) {
	states := s.States
	head := *s
	head.States = []api.LearnedContext{}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(bytes.TrimSuffix(text, []byte("[]\n}")))
	b.WriteString("[")
	for i := range states {
		st := states[i]
		rows := st.Rows
		st.Rows = []api.LearnedRow{}
		if text, err = json.Marshal(st); err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n    ")
		b.Write(bytes.TrimSuffix(text, []byte("]}")))
		for k := range rows {
			if text, err = json.Marshal(rows[k]); err != nil {
				return nil, err
			}
			if k > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n      ")
			b.Write(text)
		}
		b.WriteString("]}")
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes(), nil
}

func (c *cli) learnImportCommand() *cobra.Command {
	var (
		file, format string
		dryRun       bool
	)
	cmd := &cobra.Command{
		Use:   "import FUNCTION -f FILE",
		Short: "Replace what a function has learned by an export",
		Long: `Replace what the policy of a function has learned by what "xebec learn export" has printed, of this or another gateway. The policy must be the same,
with any parameters, and the candidates, in any order. An export of one state replaces that state; an export with --all replaces all of them, and
contexts that it does not have begin again from what is known over all contexts.

Gateways that share a store follow. What they have learned and not yet written is added to the new state.`,
		Example: `  xebec learn import digits -f digits-learned.json --dry-run
  xebec learn export digits --all | xebec learn import digits --admin other:1338 -f -`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("function", args[0]); err != nil {
				return usageError{err}
			}
			if file == "" {
				return usagef("import needs -f FILE, or -f - for stdin")
			}
			return c.learnImport(cmd.Context(), args[0], file, format, dryRun)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file that export has written, or - for stdin")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only find out whether it fits")
	outputFlag(cmd, &format)
	return cmd
}

func (c *cli) learnImport(ctx context.Context, function, file, format string, dryRun bool) error {
	data, err := c.readInput(file, admin.MaxBodyBytes)
	if err != nil {
		return err
	}
	path := learnedPath(function)
	if dryRun {
		path += "?dry_run=true"
	}
	var change api.LearnedChange
	if err := c.call(ctx, http.MethodPut, path, "application/json", data, &change); err != nil {
		return err
	}
	if file == "-" {
		file = "stdin"
	}
	return c.learnedChange(format, "replaced by "+file, &change)
}

// learnedChange says what was done.
func (c *cli) learnedChange(format, done string, change *api.LearnedChange) error {
	if format != formatTable {
		return c.printJSON(format, change)
	}
	text := numerals.Count(change.States, "state") + " " + done
	if change.DryRun {
		text = "it fits: " + numerals.Count(change.States, "state") + " would be " + done
	}
	fmt.Fprintf(c.out, "function %s: %s\n", change.Function, c.cell(text))
	for _, note := range change.Notes {
		fmt.Fprintf(c.err, "note: %s\n", c.cell(note))
	}
	return nil
}

func (c *cli) learnResetCommand() *cobra.Command {
	var (
		which  statesFlags
		format string
	)
	cmd := &cobra.Command{
		Use:   "reset FUNCTION",
		Short: "Let a function begin to learn again",
		Long: `Let the policy of a function begin again. Without flags, nothing is known over all contexts any more, and contexts keep what was learned in them.
With --context, that context begins again from what is known over all contexts. With --all, nothing is known at all.

What was learned is lost unless it was exported before. Gateways that share a store follow.`,
		Example: `  xebec learn reset digits --context user-17
  xebec learn reset digits --all`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := which.path(cmd, args[0])
			if err != nil {
				return err
			}
			var change api.LearnedChange
			if err := c.call(cmd.Context(), http.MethodDelete, path, "", nil, &change); err != nil {
				return err
			}
			return c.learnedChange(format, "reset", &change)
		},
	}
	which.add(cmd)
	outputFlag(cmd, &format)
	return cmd
}

func (c *cli) learnHistoryCommand() *cobra.Command {
	var (
		samples bool
		format  string
	)
	cmd := &cobra.Command{
		Use:   "history FUNCTION",
		Short: "Show how what a function has learned has changed",
		Long: `Show how the weights and losses of a function's candidates have changed, over all contexts. There is a sample for each hour in which something was
learned, and one for each change of candidates, import and reset: the last 1,000, thirty days of hours and more. They are kept in the store.

In a terminal each candidate has a picture of its weight, from the first sample to the present, from none to 1. With --samples every sample is shown.`,
		Example: `  xebec learn history digits
  xebec learn history digits -o json`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("function", args[0]); err != nil {
				return usageError{err}
			}
			var h api.LearnedHistory
			if err := c.get(cmd.Context(), learnedPath(args[0])+"/history", &h); err != nil {
				return err
			}
			switch {
			case format != formatTable:
				return c.printJSON(format, h)
			case samples:
				return c.learnedSamples(h.Samples)
			}
			return c.learnedPicture(&h)
		},
	}
	cmd.Flags().BoolVar(&samples, "samples", false, "show every sample")
	outputFlag(cmd, &format)
	return cmd
}

func (c *cli) learnedSamples(samples []api.LearnedSample) error {
	return c.table("TIME\tWHY\tBY\tPOLICY\tCANDIDATE\tWEIGHT\tLOSSES\tMEAN LOSS", len(samples), "samples", func(w io.Writer) {
		for i := range samples {
			s := &samples[i]
			by := "-"
			if s.By != "" {
				by = s.By
			}
			for k := range s.Candidates {
				o := &s.Candidates[k]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Time.In(c.zone()).Format(time.RFC3339), c.cell(s.Reason), c.cell(by), c.cell(s.Policy), c.cell(o.Ref),
					numerals.Short(o.Weight), numerals.Short(o.Count), meanLoss(o))
			}
		}
	})
}

func meanLoss(o *api.CandidateLearning) string {
	if o.Count > 0 {
		return numerals.Short(o.MeanLoss)
	}
	return "-"
}

// pictureWidth is the number of characters of a picture.
const pictureWidth = 40

// learnedPicture shows the present with, in a terminal, a picture of the past, and what was done by callers.
func (c *cli) learnedPicture(h *api.LearnedHistory) error {
	if len(h.Samples) == 0 {
		fmt.Fprintln(c.err, "no samples")
		return nil
	}
	now := &h.Samples[len(h.Samples)-1]
	draws := terminal.Is(c.out)
	head := "CANDIDATE\tWEIGHT\tLOSSES\tMEAN LOSS"
	if draws {
		head += "\tWEIGHT SINCE " + h.Samples[0].Time.In(c.zone()).Format(time.RFC3339)
	}
	err := c.table(head, len(now.Candidates), "candidates", func(w io.Writer) {
		for i := range now.Candidates {
			o := &now.Candidates[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s", c.cell(o.Ref), numerals.Short(o.Weight), numerals.Short(o.Count), meanLoss(o))
			if draws {
				fmt.Fprintf(w, "\t%s", picture(h.Samples, o.Ref, pictureWidth))
			}
			fmt.Fprintln(w)
		}
	})
	if err != nil {
		return err
	}
	for i := range h.Samples {
		if s := &h.Samples[i]; s.Reason != api.LearnedHourly && s.Reason != api.LearnedNow {
			text := s.Reason
			if s.By != "" {
				text += " by " + s.By
			}
			fmt.Fprintf(c.out, "%s  %s\n", s.Time.In(c.zone()).Format(time.RFC3339), c.cell(text))
		}
	}
	return nil
}

// picture draws a candidate's weight from 0 to 1 over equal spans of time. Each character is the last sample up to its end; a space means that the
// candidate was not there.
func picture(samples []api.LearnedSample, ref string, width int) string {
	heights := []rune("▁▂▃▄▅▆▇█")
	first, last := samples[0].Time, samples[len(samples)-1].Time
	out := make([]rune, 0, width)
	at := 0
	for i := 1; i <= width; i++ {
		end := first.Add(last.Sub(first) / time.Duration(width) * time.Duration(i))
		for at+1 < len(samples) && (!samples[at+1].Time.After(end) || i == width) {
			at++
		}
		mark := ' '
		for _, o := range samples[at].Candidates {
			if o.Ref == ref {
				mark = heights[min(max(int(o.Weight*float64(len(heights))), 0), len(heights)-1)]
			}
		}
		out = append(out, mark)
	}
	return string(out)
}
