package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
)

// Limits of a replay.
const (
	maxReplayConcurrency = 1024
	maxReplayRate        = 1e6
	defaultReplayRate    = "100"
	defaultTolerance     = 1e-6
)

type replayOptions struct {
	function, to, model string
	target              api.ModelID // of model
	rate                string
	perSecond           float64 // of rate; 0: it is a word
	speed               float64
	limit               int
	sinceText, untilTxt string
	since, until        int64 // Unix micros
	concurrency         int
	feedback, compare   bool
	print, cases        bool
	tolerance           float64
	maxDifference       float64
	checkDifference     bool
	format              string
}

func (c *cli) replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay DIR|FILE... [--function F] [--to FUNCTION | --model NAME[@VERSION] | --print]",
		Short: "Send the queries of an inference log again",
		Long: `Send the queries of an inference log again, and compare the answers with those in the log.

The log is what a gateway writes with "xebec serve --inference-log DIR", for functions that declare log: {sample: ...}. Queries go to
the functions that they came to, to another function (--to), or straight to a model's version (--model), in the order of the log.

An answer is the same when its output is: numbers of floating-point types may be --tolerance apart, everything else may not differ. Where
the log has labels, the accuracy of the logged answers and of the new ones is reported; a query without an answer counts as wrong. With
--max-difference the command fails if a larger part of the answers is other than it was, or has become an error or a default output.

--print sends nothing, and writes the log as JSON, one line for each query and feedback. --print --cases writes {"input", "label"} lines
of the queries that a label is known of: what "validate: {queries: FILE}" in a model's manifest takes.`,
		Example: `  xebec replay /var/lib/xebec/log --function digits --model digits@4 --max-difference 0.01
  xebec replay /var/lib/xebec/log --server staging:1337 --rate original --speed 2 --feedback
  xebec replay /var/lib/xebec/log --function digits --print --cases > holdout.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s takes DIR or FILE, one or more: where is the inference log?", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, c.now()); err != nil {
				return err
			}
			if o.print {
				return c.printLog(cmd.Context(), args, &o)
			}
			return c.replay(cmd.Context(), args, &o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.function, "function", "", "send only what this function was asked (default all functions)")
	flags.StringVar(&o.to, "to", "", "send to this function, instead of the one that was asked")
	flags.StringVar(&o.model, "model", "", "send to this model, as name or name@version, past all functions")
	flags.StringVar(&o.rate, "rate", defaultReplayRate, "queries a second; original: when they came; max: as fast as they are answered")
	flags.Float64Var(&o.speed, "speed", 1, "with --rate original: how many times faster")
	flags.IntVar(&o.limit, "limit", 0, "send so many queries at most (default all)")
	flags.StringVar(&o.sinceText, "since", "", "only queries since then: 2006-01-02T15:04:05Z, 2006-01-02, or as a duration before now, such as 2h")
	flags.StringVar(&o.untilTxt, "until", "", "only queries before then, in the same forms")
	flags.IntVar(&o.concurrency, "concurrency", 16, "queries that may be on their way at a time")
	flags.BoolVar(&o.feedback, "feedback", false, "send the feedback in the log too, on the new answers")
	flags.BoolVar(&o.compare, "compare", true, "compare the answers with those in the log")
	flags.Float64Var(&o.tolerance, "tolerance", defaultTolerance, "how far floating-point numbers may be apart, absolutely or as a part of the logged one")
	flags.Float64Var(&o.maxDifference, "max-difference", 0, "fail if a larger part of the answers differs, from 0 to 1")
	flags.BoolVar(&o.print, "print", false, "write the log as JSON lines, and send nothing")
	flags.BoolVar(&o.cases, "cases", false, "with --print: write the queries that a label is known of, as cases for validation")
	outputFlag(cmd, &o.format)
	return cmd
}

// check makes sure that the options go together, and fills in what follows from them.
func (o *replayOptions) check(cmd *cobra.Command, now time.Time) error {
	changed := cmd.Flags().Changed
	for _, pair := range notTogether {
		if changed(pair.a) && changed(pair.b) {
			return usagef("--%s and --%s do not go together: %s", pair.a, pair.b, pair.why)
		}
	}
	if o.cases && !o.print {
		return usagef("--cases says what --print writes: give both")
	}
	for _, name := range []string{o.function, o.to} {
		if name == "" {
			continue
		}
		if err := api.CheckName("function", name); err != nil {
			return usageError{err}
		}
	}
	var err error
	if o.model != "" {
		if o.target, err = api.ParseModelRef(o.model); err != nil {
			return usageError{fmt.Errorf("--model: %w", err)}
		}
	}
	if err := o.checkNumbers(changed("speed")); err != nil {
		return err
	}
	o.checkDifference = changed("max-difference")
	if o.checkDifference && !o.compare {
		return usagef("--max-difference is about the comparison, which --compare=false leaves out")
	}
	o.since, o.until = math.MinInt64, math.MaxInt64
	if o.sinceText != "" {
		if o.since, err = replayTime("--since", o.sinceText, now); err != nil {
			return err
		}
	}
	if o.untilTxt != "" {
		if o.until, err = replayTime("--until", o.untilTxt, now); err != nil {
			return err
		}
	}
	if o.since >= o.until {
		return usagef("--since %s is not before --until %s", o.sinceText, o.untilTxt)
	}
	return nil
}

// notTogether are pairs of options that cannot both be given, and why.
var notTogether = []struct{ a, b, why string }{
	{"to", "model", "queries go to a function or to a model"},
	{"print", "to", "nothing is sent"},
	{"print", "model", "nothing is sent"},
	{"print", "rate", "nothing is sent"},
	{"print", "feedback", "nothing is sent; feedback is printed anyway"},
	{"print", "max-difference", "nothing is sent, so nothing can be compared"},
	{"model", "feedback", "feedback is for functions, which learn from it"},
}

func (o *replayOptions) checkNumbers(speedGiven bool) error {
	switch o.rate {
	case "original", "max":
	default:
		rate, err := strconv.ParseFloat(o.rate, 64)
		if err != nil || !(rate > 0 && rate <= maxReplayRate) {
			return usagef("--rate %.30s: expected a number of queries a second, original, or max", o.rate)
		}
		o.perSecond = rate
	}
	switch {
	case speedGiven && o.rate != "original":
		return usagef("--speed goes with --rate original")
	case !(o.speed > 0) || math.IsInf(o.speed, 0):
		return usagef("--speed %v: expected more than 0", o.speed)
	case o.limit < 0:
		return usagef("--limit %d: expected 0 (all) or more", o.limit)
	case o.concurrency < 1 || o.concurrency > maxReplayConcurrency:
		return usagef("--concurrency %d: expected 1 to %d", o.concurrency, maxReplayConcurrency)
	case !(o.tolerance >= 0 && o.tolerance <= api.MaxTolerance):
		return usagef("--tolerance %v: expected 0 or more", o.tolerance)
	case !(o.maxDifference >= 0 && o.maxDifference <= 1):
		return usagef("--max-difference %v: expected 0 to 1", o.maxDifference)
	}
	return nil
}

// replayTime reads a time, or how long before now it was, as Unix micros.
func replayTime(flag, s string, now time.Time) (int64, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d).UnixMicro(), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UnixMicro(), nil
		}
	}
	return 0, usagef("%s %.40q: expected a time such as 2006-01-02T15:04:05Z (UTC unless it says otherwise), or a duration before now such as 2h", flag, s)
}
