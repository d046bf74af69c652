package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

// maxLogLineBytes is far more than a line that the gateway keeps, as JSON.
const maxLogLineBytes = 1 << 20

func (c *cli) logsCommand() *cobra.Command {
	var (
		follow bool
		lines  int
		format string
	)
	cmd := &cobra.Command{
		Use:   "logs MODEL[@VERSION]",
		Short: "Print what a model's replicas have written",
		Long: `Print what the replicas of a model have written to stdout and stderr: the time, version/replica, and the line. With -o json each line is
a JSON object.`,
		Example:           "  xebec logs digits-svm -f",
		Args:              exactly("MODEL"),
		ValidArgsFunction: c.completeName(api.KindModel),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseModelRef(args[0])
			switch {
			case err != nil:
				return usageError{err}
			case format != "text" && format != formatJSON:
				return usagef("-o %s: expected text or json", format)
			case lines < 0 || lines > admin.MaxLogLines:
				return usagef("-n %d: expected 0 to %d", lines, admin.MaxLogLines)
			}
			q := url.Values{"lines": {strconv.Itoa(lines)}}
			if follow {
				q.Set("follow", "true")
			}
			if id.Version != "" {
				q.Set("version", id.Version)
			}
			return c.logs(cmd.Context(), "/v1/models/"+id.Name+"/logs?"+q.Encode(), format)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines until interrupted")
	cmd.Flags().IntVarP(&lines, "lines", "n", admin.DefaultLogLines, "how many past lines to print")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "what to print: text, json (one object per line)")
	return cmd
}

func (c *cli) logs(ctx context.Context, path, format string) error {
	res, err := c.send(ctx, http.MethodGet, path, "", "application/x-ndjson", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	scan := bufio.NewScanner(res.Body)
	scan.Buffer(nil, maxLogLineBytes)
	for scan.Scan() {
		text := scan.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var line struct {
			api.LogLine
			Failed *api.ErrorInfo `json:"error"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return c.notUnderstood(err)
		}
		if line.Failed != nil {
			return &remoteError{ErrorInfo: *line.Failed}
		}
		out := string(text)
		if format != formatJSON {
			out = c.logText(line.LogLine)
		}
		if _, err := fmt.Fprintln(c.out, out); err != nil {
			return err
		}
	}
	switch err := scan.Err(); {
	case ctx.Err() != nil: // an interrupt is how following ends
		return nil
	case err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("the gateway's answer was cut off: %w", err)
	}
	return nil
}

// logText is a line in the reader's time zone.
func (c *cli) logText(line api.LogLine) string {
	line.Time = line.Time.In(c.zone())
	return c.clean(line.String())
}

// clean replaces control characters if stdout is a terminal, so that a model's output cannot drive it. Files and pipes
// get the text unchanged.
func (c *cli) clean(s string) string {
	if !terminal.Is(c.out) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}

// cleanLines is clean for text of several lines, which stay lines.
func (c *cli) cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = c.clean(line)
	}
	return strings.Join(lines, "\n")
}

// cell is text for one cell of a table.
func (c *cli) cell(text string) string {
	if text == "" {
		return "-"
	}
	return c.clean(strings.Join(strings.Fields(text), " "))
}

func (c *cli) zone() *time.Location { return c.now().Location() }
