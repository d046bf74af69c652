package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/replay"
)

// Limits of a replay.
const (
	maxReplayConcurrency = 1024
	maxReplayRate        = 1e6
	defaultReplayRate    = "100"
	defaultTolerance     = 1e-6
)

// replayOptions are the flags of "xebec replay". check completes the part that package replay reads.
type replayOptions struct {
	replay.Options
	model, rate     string
	speed           float64
	since, until    string
	print, cases    bool
	maxDifference   float64
	checkDifference bool
	format          string
}

func (c *cli) replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay DIR|FILE... [--function F] [--to FUNCTION | --model NAME[@VERSION] | --print]",
		Short: "Send the queries of an inference log again",
		Long: `Send the queries of an inference log again, and compare the answers with those in the log.

A gateway writes the log with "xebec serve --inference-log DIR", for functions that declare log: {sample: ...}. Queries go to the function
that they came to, to another function (--to), or straight to a model version (--model), in the order of the log.

Two answers are the same if their outputs are: floating-point numbers may differ by --tolerance, everything else must be equal. If the log
has labels, the report has the accuracy of the logged answers and of the new ones; a query without an answer counts as wrong. With
--max-difference the command fails if a larger fraction of the answers changed, became an error or became a default output.

--print sends nothing and prints the log as JSON, one line per query and per feedback. --print --cases prints {"input", "label"} lines of
the queries with a known label, which is what "validate: {queries: FILE}" in a model's manifest reads.`,
		Example: `  xebec replay /var/lib/xebec/log --function digits --model digits@4 --max-difference 0.01
  xebec replay /var/lib/xebec/log --server staging:1337 --rate original --speed 2 --feedback
  xebec replay /var/lib/xebec/log --function digits --print --cases > holdout.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs the inference log: give DIR or FILE, one or more", cmd.CommandPath())
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
	flags.StringVar(&o.Function, "function", "", "send only the queries of this function (default all functions)")
	flags.StringVar(&o.To, "to", "", "send to this function instead of the one that the query came to")
	flags.StringVar(&o.model, "model", "", "send to this model, as name or name@version, past all functions")
	flags.StringVar(&o.rate, "rate", defaultReplayRate, "queries per second; original: at the times in the log; max: as fast as they are answered")
	flags.Float64Var(&o.speed, "speed", 1, "with --rate original: how many times faster")
	flags.IntVar(&o.Limit, "limit", 0, "send at most this many queries (default all)")
	flags.StringVar(&o.since, "since", "", "only queries from this time on: 2006-01-02T15:04:05Z, 2006-01-02, or a duration before now such as 2h")
	flags.StringVar(&o.until, "until", "", "only queries before this time, in the same forms")
	flags.IntVar(&o.Concurrency, "concurrency", 16, "how many queries may be in flight")
	flags.BoolVar(&o.Feedback, "feedback", false, "send the feedback in the log too, about the new answers")
	flags.BoolVar(&o.Compare, "compare", true, "compare the answers with those in the log")
	flags.Float64Var(&o.Tolerance, "tolerance", defaultTolerance, "how far floating-point numbers may differ, absolutely or as a fraction of the logged number")
	flags.Float64Var(&o.maxDifference, "max-difference", 0, "fail if a larger fraction of the answers differs, from 0 to 1")
	flags.BoolVar(&o.print, "print", false, "print the log as JSON lines, and send nothing")
	flags.BoolVar(&o.cases, "cases", false, "with --print: print the queries with a known label, as cases for validation")
	outputFlag(cmd, &o.format)
	return cmd
}

// check makes sure that the flags fit together, and converts them into options of package replay.
func (o *replayOptions) check(cmd *cobra.Command, now time.Time) error {
	changed := cmd.Flags().Changed
	for _, pair := range contradictions {
		if changed(pair.a) && changed(pair.b) {
			return usagef("--%s and --%s contradict each other: %s", pair.a, pair.b, pair.why)
		}
	}
	if o.cases && !o.print {
		return usagef("--cases needs --print")
	}
	for _, name := range []string{o.Function, o.To} {
		if name == "" {
			continue
		}
		if err := api.CheckName("function", name); err != nil {
			return usageError{err}
		}
	}
	var err error
	if o.model != "" {
		if o.Model, err = api.ParseModelRef(o.model); err != nil {
			return usageError{fmt.Errorf("--model: %w", err)}
		}
	}
	if err := o.checkNumbers(changed("speed")); err != nil {
		return err
	}
	if o.checkDifference = changed("max-difference"); o.checkDifference && !o.Compare {
		return usagef("--max-difference and --compare=false contradict each other")
	}
	for _, bound := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", o.since, &o.Since}, {"--until", o.until, &o.Until}} {
		if bound.text == "" {
			continue
		}
		if *bound.at, err = replayTime(bound.flag, bound.text, now); err != nil {
			return err
		}
	}
	if o.since != "" && o.until != "" && !o.Since.Before(o.Until) {
		return usagef("--since %s is not before --until %s", o.since, o.until)
	}
	return nil
}

// contradictions are pairs of flags that cannot both be given, and why.
var contradictions = []struct{ a, b, why string }{
	{"to", "model", "queries go either to a function or to a model"},
	{"print", "to", "--print sends nothing"},
	{"print", "model", "--print sends nothing"},
	{"print", "rate", "--print sends nothing"},
	{"print", "feedback", "--print sends nothing, and prints feedback anyway"},
	{"print", "max-difference", "--print sends nothing, so there is nothing to compare"},
	{"model", "feedback", "feedback is for functions, which learn from it"},
}

func (o *replayOptions) checkNumbers(speedGiven bool) error {
	switch o.rate {
	case "original":
		o.Pace = replay.Pace{Original: true, Speed: o.speed}
	case "max":
	default:
		rate, err := strconv.ParseFloat(o.rate, 64)
		if err != nil || !(rate > 0 && rate <= maxReplayRate) {
			return usagef("--rate %.30s: expected a number of queries per second, original, or max", o.rate)
		}
		o.Pace.PerSecond = rate
	}
	switch {
	case speedGiven && o.rate != "original":
		return usagef("--speed needs --rate original")
	case !(o.speed > 0) || math.IsInf(o.speed, 0):
		return usagef("--speed %v: expected more than 0", o.speed)
	case o.Limit < 0:
		return usagef("--limit %d: expected 1 or more, or 0 for all", o.Limit)
	case o.Concurrency < 1 || o.Concurrency > maxReplayConcurrency:
		return usagef("--concurrency %d: expected 1 to %d", o.Concurrency, maxReplayConcurrency)
	case !(o.Tolerance >= 0 && o.Tolerance <= api.MaxTolerance):
		return usagef("--tolerance %v: expected 0 to %g", o.Tolerance, float64(api.MaxTolerance))
	case !(o.maxDifference >= 0 && o.maxDifference <= 1):
		return usagef("--max-difference %v: expected 0 to 1", o.maxDifference)
	}
	return nil
}

// replayTime reads a time, or a duration before now.
func replayTime(flag, s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("%s %.40q: expected a time such as 2006-01-02T15:04:05Z (UTC if it has no zone), or a duration before now such as 2h", flag, s)
}
