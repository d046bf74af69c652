package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// A file of feedback is sent in requests of up to feedbackItems items and about feedbackBytes bytes. The gateway's
// limits are higher.
const (
	feedbackItems = 1000
	feedbackBytes = 4 << 20
)

type feedbackOptions struct {
	queryID       uint64
	input, label  string
	correct       string
	loss          float64
	context, file string
	format        string
}

func (c *cli) feedbackCommand() *cobra.Command {
	var o feedbackOptions
	cmd := &cobra.Command{
		Use:   "feedback FUNCTION (--query-id N | --input JSON) (--label JSON | --correct true|false | --loss 0..1) | -f FILE",
		Short: "Tell a function how good its predictions were",
		Long: `Tell a function how good its predictions were, so that its selection policy learns which models to ask.

Name a prediction by the query_id of its answer, for which feedback counts once, or by its input. Rate it with the right output (--label),
with whether the answer was right (--correct), or with how wrong it was (--loss, from 0 to 1).

-f reads many: one JSON object after the other, with the members query_id or input, label or correct or loss, and context; or
{"feedback_batch": [...]}.`,
		Example: `  xebec feedback digits --query-id 42 --label 7
  xebec feedback digits --query-id 43 --correct false --context user-17
  xebec feedback digits -f labels.jsonl`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("function", args[0]); err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("file") {
				return c.feedbackFile(cmd, args[0], &o)
			}
			body, err := o.body(cmd)
			if err != nil {
				return err
			}
			return c.feedbackOne(cmd.Context(), args[0], body, o.format)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&o.queryID, "query-id", 0, "query_id of the answer")
	flags.StringVar(&o.input, "input", "", "input of the prediction, as JSON")
	flags.StringVar(&o.label, "label", "", "the right output, as JSON")
	flags.StringVar(&o.correct, "correct", "", "whether the answer was right: true or false")
	flags.Float64Var(&o.loss, "loss", 0, "how wrong the answer was, from 0 to 1")
	flags.StringVar(&o.context, "context", "", "context of the prediction, such as a user")
	flags.StringVarP(&o.file, "file", "f", "", "file of feedback as JSON objects; - is stdin")
	outputFlag(cmd, &o.format)
	return cmd
}

// body is the request for feedback on one prediction.
func (o *feedbackOptions) body(cmd *cobra.Command) ([]byte, error) {
	about, err := oneOf(cmd, "no prediction is named", "query-id", "input")
	if err != nil {
		return nil, err
	}
	verdict, err := oneOf(cmd, "no verdict is given", "label", "correct", "loss")
	if err != nil {
		return nil, err
	}
	body := fmt.Appendf(nil, `{"query_id":%d`, o.queryID)
	if about == "input" {
		if err := checkJSON("--input", "--input", []byte(o.input)); err != nil {
			return nil, err
		}
		body = fmt.Appendf(nil, `{"input":%s`, o.input)
	}
	switch verdict {
	case "label":
		if err := checkJSON("--label", "--label", []byte(o.label)); err != nil {
			return nil, err
		}
		body = fmt.Appendf(body, `,"label":%s`, o.label)
	case "correct":
		if o.correct != "true" && o.correct != "false" {
			return nil, usagef("--correct %.20s: expected true or false", o.correct)
		}
		body = fmt.Appendf(body, `,"correct":%s`, o.correct)
	default:
		if !(o.loss >= 0 && o.loss <= 1) {
			return nil, usagef("--loss %v: expected 0 to 1", o.loss)
		}
		body = fmt.Appendf(body, `,"loss":%s`, strconv.FormatFloat(o.loss, 'g', -1, 64))
	}
	if o.context != "" {
		text, err := json.Marshal(o.context)
		if err != nil {
			return nil, err
		}
		body = fmt.Appendf(body, `,"context":%s`, text)
	}
	return append(body, '}'), nil
}

// oneOf returns the flag that was given. It fails if none or several of them were.
func oneOf(cmd *cobra.Command, problem string, names ...string) (string, error) {
	given := ""
	for _, name := range names {
		switch {
		case !cmd.Flags().Changed(name):
		case given != "":
			return "", usagef("--%s and --%s are both given: expected one of --%s", given, name, strings.Join(names, ", --"))
		default:
			given = name
		}
	}
	if given == "" {
		return "", usagef("%s: give one of --%s, or -f FILE", problem, strings.Join(names, ", --"))
	}
	return given, nil
}

// feedbackResult is the answer to one item of feedback, or to a batch, in the order of the request.
type feedbackResult struct {
	Status  string            `json:"status"`
	Cause   string            `json:"cause"`
	Results []json.RawMessage `json:"feedback_results"`
}

func (c *cli) feedbackOne(ctx context.Context, function string, body []byte, format string) error {
	text, err := c.feed(ctx, function, body, http.Header{})
	if err != nil {
		return err
	}
	if format != formatTable {
		return c.print(format, text)
	}
	var result feedbackResult
	if err := json.Unmarshal(text, &result); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, strings.TrimSuffix(result.Status+": "+result.Cause, ": "))
	return err
}

// feed sends one request of feedback and returns the answer. A status other than 200 and 202 is an error.
func (c *cli) feed(ctx context.Context, function string, body []byte, header http.Header) ([]byte, error) {
	header.Set("Content-Type", "application/json")
	res, text, err := c.ask(ctx, "/"+function+"/feedback", body, header)
	if err != nil {
		return nil, err
	}
	var failed prediction
	switch accepted := res.code == http.StatusOK || res.code == http.StatusAccepted; {
	case json.Unmarshal(text, &failed) != nil, !accepted && failed.Cause == "":
		return nil, c.notAGateway(res.text)
	case !accepted:
		return nil, fmt.Errorf("function %s: %s (%s)", function, failed.Cause, res.text)
	}
	return text, nil
}

// feedbackFile sends the feedback of a file in batches, and prints the outcome.
func (c *cli) feedbackFile(cmd *cobra.Command, function string, o *feedbackOptions) error {
	for _, name := range []string{"query-id", "input", "label", "correct", "loss"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s and -f contradict each other: -f reads all feedback from a file", name)
		}
	}
	in, name := c.in, "stdin"
	if o.file != "-" {
		name = o.file
		f, err := os.Open(o.file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	header := http.Header{}
	if o.context != "" {
		header.Set(contextHeader, o.context)
	}
	s := &feedbackStream{dec: json.NewDecoder(in)}
	var all []json.RawMessage
	counts := map[string]int{}
	for {
		items, err := s.next()
		if err == nil && len(items) == 0 {
			break
		}
		if err == nil {
			var results []json.RawMessage
			if results, err = c.feedMany(cmd.Context(), function, items, header); err == nil {
				all = append(all, results...)
				err = tally(counts, results)
			}
		}
		if err != nil {
			return acceptedBefore(len(all), fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no feedback", name)
	}
	return c.showFeedback(o.format, all, counts)
}

func (c *cli) feedMany(ctx context.Context, function string, items []json.RawMessage, header http.Header) ([]json.RawMessage, error) {
	body := slices.Concat([]byte(`{"feedback_batch":[`), bytes.Join(asBytes(items), []byte(",")), []byte("]}"))
	text, err := c.feed(ctx, function, body, header)
	if err != nil {
		return nil, err
	}
	var answer feedbackResult
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(items) {
		return nil, fmt.Errorf("the gateway returned %d results for %d items: is it of the same version as this program?", len(answer.Results), len(items))
	}
	return answer.Results, nil
}

func asBytes(items []json.RawMessage) [][]byte {
	all := make([][]byte, len(items))
	for i, it := range items {
		all[i] = it
	}
	return all
}

// acceptedBefore adds to an error how many items must not be sent again.
func acceptedBefore(n int, err error) error {
	if n == 0 {
		return err
	}
	return fmt.Errorf("%w (the %d items before it were accepted: do not send them again)", err, n)
}

// tally counts results by status.
func tally(counts map[string]int, results []json.RawMessage) error {
	for _, raw := range results {
		var r feedbackResult
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		counts[r.Status]++
	}
	return nil
}

// showFeedback prints the outcome, and fails if some feedback was not accepted.
func (c *cli) showFeedback(format string, all []json.RawMessage, counts map[string]int) error {
	if format == formatTable {
		fmt.Fprintln(c.out, countsText(counts))
	} else if err := c.printJSON(format, map[string]any{"feedback_results": all}); err != nil {
		return err
	}
	if lost := counts["late"] + counts["unknown"] + counts["busy"]; lost > 0 {
		return fmt.Errorf("%d of %d items of feedback were not accepted", lost, len(all))
	}
	return nil
}

// feedbackStream reads JSON objects, and unpacks each feedback_batch.
type feedbackStream struct {
	dec   *json.Decoder
	ahead []json.RawMessage
	read  int // objects
}

// next returns the items of one request; none at the end.
func (s *feedbackStream) next() ([]json.RawMessage, error) {
	size := 0
	for len(s.ahead) < feedbackItems && size < feedbackBytes {
		var one json.RawMessage
		err := s.dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("after %s: %w", numerals.Count(s.read, "object"), err)
		}
		s.read++
		if one[0] != '{' {
			return nil, fmt.Errorf("object %d: %.40s: expected a JSON object such as {\"query_id\": 42, \"label\": 7}", s.read, one)
		}
		var batch struct {
			Items []json.RawMessage `json:"feedback_batch"`
		}
		if err := json.Unmarshal(one, &batch); err != nil {
			return nil, fmt.Errorf("object %d: %w", s.read, err)
		}
		if batch.Items == nil {
			batch.Items = []json.RawMessage{one}
		}
		s.ahead = append(s.ahead, batch.Items...)
		size += len(one)
	}
	n := min(len(s.ahead), feedbackItems)
	items := s.ahead[:n:n]
	s.ahead = s.ahead[n:]
	return items, nil
}
