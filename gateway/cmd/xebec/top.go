package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
	"github.com/xebec-serving/xebec/gateway/top"
)

const (
	minTopEvery  = 100 * time.Millisecond
	maxTopEvery  = time.Hour
	maxTopFrames = 1_000_000
	// defaultTopRows is as much of a table as people read when it does not scroll.
	defaultTopRows = 20
)

// topOptions are the flags of "xebec top".
type topOptions struct {
	every  time.Duration
	frames int
	rows   int
	format string
}

func (c *cli) topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch functions, models and the gateway live",
		Long: `Watch functions, models and the gateway live: queries per second, latencies of the last seconds, errors, shares, queues, batches.

On a terminal the view is refreshed until you press q. Keys: f shows functions, m models, Tab switches; s sorts by queries, P99 or name;
/ filters by part of a name (Enter keeps the filter, Esc removes it); the arrows, PgUp, PgDn, Home and End scroll.

Without a terminal, and with -n or -o json, top prints -n views instead, one every --every. Rates are over the time since the view before.`,
		Example: `  xebec top
  xebec top -n 1
  xebec top -n 60 -o json > minute.jsonl`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.format != formatTable && o.format != formatJSON:
				return usagef("-o %s: expected table or json", o.format)
			case o.every < minTopEvery || o.every > maxTopEvery:
				return usagef("--every %s: expected %s to %s", o.every, minTopEvery, maxTopEvery)
			case o.frames < 1 || o.frames > maxTopFrames:
				return usagef("-n %d: expected 1 to %d", o.frames, maxTopFrames)
			case o.rows < 0:
				return usagef("--rows %d: expected 1 or more, or 0 for all", o.rows)
			}
			poll := func(ctx context.Context) (*top.Snapshot, error) { return top.Poll(ctx, c.get, c.now) }
			if !cmd.Flags().Changed("count") && o.format == formatTable && terminal.Is(c.out) && c.getenv("TERM") != "dumb" {
				// stdout can be a terminal that the process does not control: a background job without one prints
				// frames.
				if t, err := terminal.Open(); err == nil {
					err = top.Live(cmd.Context(), poll, t, o.every, c.getenv("NO_COLOR") == "")
					if errors.Is(err, top.ErrTerminal) {
						return fmt.Errorf("%w; try -n 1", err)
					}
					return err
				}
			}
			return c.topFrames(cmd.Context(), poll, &o)
		},
	}
	cmd.Flags().DurationVar(&o.every, "every", time.Second, "how often to poll the gateway")
	cmd.Flags().IntVarP(&o.frames, "count", "n", 1, "print this many views, then exit")
	cmd.Flags().IntVar(&o.rows, "rows", defaultTopRows, "print at most this many rows of each table; 0 prints all")
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable, "what to print: table, json (one object per view, with all rows)")
	return cmd
}

func (c *cli) topFrames(ctx context.Context, poll top.Poller, o *topOptions) error {
	separator := ""
	return top.Watch(ctx, poll, o.every, o.frames, func(f *top.Frame) error {
		text := separator + f.Text(o.rows)
		if o.format == formatJSON {
			object, err := json.Marshal(f)
			if err != nil {
				return err
			}
			text = string(object) + "\n"
		}
		separator = "\n"
		_, err := io.WriteString(c.out, text)
		return err
	})
}
