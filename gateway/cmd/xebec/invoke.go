package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/xebec-serving/xebec/api"
)

// maxInputBytes bounds an input. The gateway's own limit is lower by default.
const maxInputBytes = 1 << 30

type invokeOptions struct {
	input, inputFile, raw string
	contentType           string
	batch                 bool
	slo, ttl              time.Duration
	context, salt         string
	models                []string
	minConfidence         float64
	format                string
}

func (c *cli) invokeCommand() *cobra.Command {
	var o invokeOptions
	cmd := &cobra.Command{
		Use:   "invoke FUNCTION [--input JSON | --input-file FILE | --raw FILE]",
		Short: "Call a function and print its output",
		Long: `Call a function and print its output, one line of JSON per query, or with -o json and -o yaml the whole answer.

A default output counts as an output: the command succeeds, and stderr says why it was given.`,
		Example: `  xebec invoke digits --input-file digit.json
  xebec invoke digits --batch --input '[[0, 1.5], [2, 0]]' -o json
  xebec invoke digits --input-file digit.json --context user-17 --min-confidence 0.6
  xebec invoke echo --raw picture.png`,
		Args:              exactly("FUNCTION"),
		ValidArgsFunction: c.completeName(api.KindFunction),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := api.CheckName("function", args[0]); err != nil {
				return usageError{err}
			}
			body, contentType, err := c.invokeBody(cmd, &o)
			if err != nil {
				return err
			}
			return c.invoke(cmd, args[0], body, contentType, &o)
		},
	}
	flags := cmd.Flags()
	o.inputFlags(flags)
	flags.DurationVar(&o.slo, "slo", 0, "latency objective for this call (default the function's own)")
	flags.StringVar(&o.context, "context", "", "context of the call, such as a user; what was learned for this context selects the models")
	flags.StringSliceVar(&o.models, "models", nil, "candidates to choose from, as name or name@version, separated by commas (default all)")
	flags.Float64Var(&o.minConfidence, "min-confidence", 0, "give the default output instead of an answer with less confidence, from 0 to 1 (default the function's own)")
	flags.StringVar(&o.salt, "salt", "", "part of the prediction cache's key: calls with different salts do not share predictions")
	flags.DurationVar(&o.ttl, "ttl", 0, "how long after its arrival a query may still be evaluated for the cache, such as 500ms or 2s; without effect if shorter than the latency objective (default the objective)")
	outputFlag(cmd, &o.format)
	flags.Lookup("output").Usage = "what to print: table (each query's output, a line of JSON each), json or yaml (the whole answer, with its query_id), such as -o json"
	return cmd
}

// inputFlags adds the flags that say what the input is.
func (o *invokeOptions) inputFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.input, "input", "", "input as JSON")
	flags.StringVar(&o.inputFile, "input-file", "", "file with the input as JSON; - is stdin")
	flags.StringVar(&o.raw, "raw", "", "file that is sent unchanged as the input; - is stdin")
	flags.StringVar(&o.contentType, "content-type", "application/octet-stream", "content type of a --raw input")
	flags.BoolVar(&o.batch, "batch", false, "the input is a list of inputs, one per query")
}

func (c *cli) invokeBody(cmd *cobra.Command, o *invokeOptions) (body []byte, contentType string, err error) {
	given := 0
	for _, name := range []string{"input", "input-file", "raw"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given > 1 {
		return nil, "", usagef("several inputs are given: expected one of --input, --input-file and --raw")
	}
	if o.batch && cmd.Flags().Changed("raw") {
		return nil, "", usagef("a raw input is one query: --batch needs --input or --input-file")
	}
	var input []byte
	switch flags := cmd.Flags(); {
	case flags.Changed("raw"):
		for _, name := range []string{"models", "min-confidence", "salt", "ttl"} {
			if flags.Changed(name) {
				return nil, "", usagef("--%s needs --input or --input-file: a raw input has no place for it", name)
			}
		}
		body, err = c.readInput(o.raw, maxInputBytes)
		return body, o.contentType, err
	case flags.Changed("input-file"):
		if input, err = c.readInput(o.inputFile, maxInputBytes); err != nil {
			return nil, "", err
		}
	case flags.Changed("input"):
		input = []byte(o.input)
	default:
		return nil, "", usagef("no input: give --input JSON, --input-file FILE or --raw FILE")
	}
	if err := checkJSON("the input", "--input", input); err != nil {
		return nil, "", err
	}
	field := "input"
	if o.batch {
		field = "input_batch"
		if trimmed := bytes.TrimSpace(input); trimmed[0] != '[' {
			return nil, "", usagef("--batch: the input is not a list: expected [first, second, …]")
		}
	}
	options, err := o.members(cmd)
	if err != nil {
		return nil, "", err
	}
	return fmt.Appendf(nil, "{%q:%s%s}", field, input, options), "application/json", nil
}

// checkJSON fails if what the user gave is not JSON. A string without quotes is the usual mistake.
func checkJSON(what, flag string, text []byte) error {
	if json.Valid(text) {
		return nil
	}
	return usagef("%s is not JSON: %.60q; a string needs quotes of its own, as in %s '\"text\"'", what, text, flag)
}

// members are the members of a request beside its input, each with a comma before it.
func (o *invokeOptions) members(cmd *cobra.Command) ([]byte, error) {
	var all []byte
	for _, m := range []struct {
		flag, name string
		value      any
	}{
		{"context", "context", o.context}, {"models", "models", o.models}, {"min-confidence", "min_confidence", o.minConfidence},
		{"salt", "salt", o.salt}, {"ttl", "ttl_ms", float64(o.ttl) / 1e6},
	} {
		if !cmd.Flags().Changed(m.flag) {
			continue
		}
		switch {
		case m.flag == "min-confidence" && !(o.minConfidence >= 0 && o.minConfidence <= 1):
			return nil, usagef("--min-confidence %v: expected 0 to 1", o.minConfidence)
		case m.flag == "ttl" && o.ttl < 0:
			return nil, usagef("--ttl %s: expected 0 or more", o.ttl)
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, usagef("--%s: %w", m.flag, err)
		}
		all = fmt.Appendf(all, ",%q:%s", m.name, value)
	}
	return all, nil
}

// prediction is the part of an answer of the native API that the commands read.
type prediction struct {
	Output             json.RawMessage `json:"output"`
	Default            bool            `json:"default"`
	DefaultExplanation string          `json:"default_explanation"`
	Error              string          `json:"error"`
	Cause              string          `json:"cause"`
	Code               string          `json:"code"`
	BatchPredictions   []prediction    `json:"batch_predictions"`
}

func (c *cli) invoke(cmd *cobra.Command, function string, body []byte, contentType string, o *invokeOptions) error {
	header := http.Header{"Content-Type": {contentType}}
	if o.slo != 0 {
		if o.slo < 0 || o.slo > api.MaxSLO {
			return usagef("--slo %s: expected more than 0 and at most %s", o.slo, api.MaxSLO)
		}
		header.Set("Xebec-Slo-Ms", strconv.FormatFloat(float64(o.slo)/1e6, 'f', -1, 64))
	}
	if cmd.Flags().Changed("raw") && o.context != "" {
		header.Set(contextHeader, o.context)
	}
	res, text, err := c.ask(cmd.Context(), "/"+function+"/predict", body, header)
	if err != nil {
		return err
	}
	var answer prediction
	if err := json.Unmarshal(text, &answer); err != nil {
		return c.notAGateway(res.text)
	}
	if o.format != formatTable {
		if err := c.print(o.format, text); err != nil {
			return err
		}
	}
	return c.showAnswer(function, res, answer, o)
}

// contextHeader has the context of a request whose body has no place for it.
const contextHeader = "Xebec-Context"

// ask sends a request to the function port and reads the answer, whatever its status.
func (c *cli) ask(ctx context.Context, path string, body []byte, header http.Header) (status, []byte, error) {
	base, err := baseURL("--server", c.server)
	if err != nil {
		return status{}, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return status{}, nil, err
	}
	req.Header = header
	if err := c.trusted(req); err != nil {
		return status{}, nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return status{}, nil, unreachable(ctx, notTrusted(err, c.ca), "function port", "--server", c.server)
	}
	defer res.Body.Close()
	text, err := readAnswer(res)
	return status{res.StatusCode, res.Status, res.Header}, text, err
}

// status is the head of an answer of the function port. text is the code with its name, such as "404 Not Found".
type status struct {
	code   int
	text   string
	header http.Header
}

// notAGateway is the error for an answer that a function port would not give.
func (c *cli) notAGateway(statusText string) error {
	return fmt.Errorf("%s is not the function port of a xebec gateway: it answers %s; is --server right?", c.server, statusText)
}

// showAnswer prints the outputs, notes defaults on stderr, and fails if a query has no output.
func (c *cli) showAnswer(function string, res status, answer prediction, o *invokeOptions) error {
	all := answer.BatchPredictions
	if all == nil {
		all = []prediction{answer}
	}
	failed := 0
	for i, p := range all {
		which := ""
		if answer.BatchPredictions != nil {
			which = fmt.Sprintf(" %d", i)
		}
		if p.Output == nil {
			failed++
			if answer.BatchPredictions != nil {
				fmt.Fprintf(c.err, "query%s: %s (%s)\n", which, p.Cause, p.Code)
			}
			if o.format == formatTable && answer.BatchPredictions != nil {
				fmt.Fprintln(c.out, "null") // line i is query i
			}
			continue
		}
		if p.Default {
			fmt.Fprintf(c.err, "output%s is the function's default: %s\n", which, p.DefaultExplanation)
		}
		if o.format == formatTable {
			if err := compact(c.out, p.Output); err != nil {
				return err
			}
		}
	}
	switch {
	case failed == 0 && res.code == http.StatusOK:
		return nil
	case answer.BatchPredictions != nil:
		return fmt.Errorf("%d of %d queries of function %s have no output", failed, len(all), function)
	case answer.Cause != "":
		return fmt.Errorf("function %s: %s (%s)", function, answer.Cause, res.text)
	}
	return fmt.Errorf("function %s: %s", function, res.text)
}

func compact(w io.Writer, text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}
