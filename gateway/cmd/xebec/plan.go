package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cmd/xebec/capacity"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

const (
	defaultPercentile = 99
	defaultStart      = 2 * time.Second
	defaultOver       = 24 * time.Hour
	// defaultPeakTimes is how many times the rate the peak is where nobody says.
	defaultPeakTimes = 3
	// maxPlanStart: a model that loads for longer is not scaled by demand.
	maxPlanStart = time.Hour
)

type planOptions struct {
	target     string // function or model; empty: everything is said by flags
	profile    string
	slo, start time.Duration
	coldStart  time.Duration
	percentile float64

	rate, peak float64
	shape      string
	over       time.Duration

	log, function string
	scale         float64

	min, max            int
	idle, window, delay time.Duration
	utilization         float64

	svg, format string
	seed        uint64
	changed     func(flag string) bool
}

func (c *cli) planCommand() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [FUNCTION|MODEL[@VERSION]] --rate N | --log DIR",
		Short: "Say how many replicas a model needs, and what scaling them would save",
		Long: `Say how many replicas a model needs for its queries, under which batch caps, and what scaling them by demand would save.

The answer is simulated: the gateway's own scheduler with replicas that take as long as the model's profile says. Some 20 runs are made, of
up to 400,000 queries each: that takes seconds, and at rates from 100,000 queries a second on it may take a minute; stderr says how far it is.
How long a batch takes, the objective and how batches are made are those of a function or model of the running gateway, or are said by
--profile and --slo; then no gateway is asked. A model that sleeps is planned for with what its replicas took before. The queries are a rate (--rate, and --peak for a --shape other than steady), or those that an inference
log has (--log).

The table is made at the highest rate, or with the busiest minutes of the log; * marks the fewest replicas with which --percentile of the
queries have their answers within the objective. Missed queries are those that do not: refused, dropped or late. Then the whole day is
played (--over, or as long as the log is) against the gateway's autoscaler, in its own time but in rates instead of single queries.

Shapes: steady; daily, up and down once in 24 hours; square, the peak for the middle third of each day; ramp, from the rate to the peak;
spiky, the peak for a minute about once an hour.`,
		Example: `  xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000 --peak 20000 --shape daily
  xebec plan digits --rate 500 --min 0 --max 8 --svg digits.svg
  xebec plan digits --log /var/lib/xebec/log --scale 3 -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes a function, a model or nothing; got %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(c.names(cmd.Context(), api.KindFunction), c.names(cmd.Context(), api.KindModel)...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.changed = cmd.Flags().Changed
			if len(args) == 1 {
				o.target = args[0]
			}
			if err := o.check(); err != nil {
				return err
			}
			return c.plan(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profile, "profile", "", "what a batch takes: 2ms+0.1ms is 2 ms and 0.1 ms for each query in it, 5ms is that for each query")
	f.DurationVar(&o.slo, "slo", 0, "within which time queries are to be answered (default the function's)")
	f.Float64Var(&o.percentile, "percentile", defaultPercentile, "how many of a hundred queries, at least, are to be")
	f.DurationVar(&o.start, "start", defaultStart, "what the start of a replica takes (default as the gateway has seen it)")
	f.DurationVar(&o.coldStart, "cold-start", 0, "how long a query may wait where there is no replica (default the function's)")
	f.Float64Var(&o.rate, "rate", 0, "queries a second; the fewest, with a shape other than steady")
	f.Float64Var(&o.peak, "peak", 0, fmt.Sprintf("the most queries a second (default %d times --rate)", defaultPeakTimes))
	f.StringVar(&o.shape, "shape", "steady", "how the rate goes up and down: "+strings.Join(capacity.Shapes, ", "))
	f.DurationVar(&o.over, "over", defaultOver, "how long the day is that is played")
	f.StringVar(&o.log, "log", "", "take the queries of this inference log, a directory or file, instead of --rate")
	f.StringVar(&o.function, "function", "", "with --log: the queries of this function (default those of FUNCTION, or of all that ask MODEL)")
	f.Float64Var(&o.scale, "scale", 1, "with --log: so many times the queries; what was not sampled is added without being asked for")
	f.IntVar(&o.min, "min", 1, "the fewest replicas of the autoscaler; 0: the model may sleep (default the model's)")
	f.IntVar(&o.max, "max", 0, "the most (default the model's, or twice what is recommended)")
	f.DurationVar(&o.idle, "idle", api.DefaultIdle, "how long a model with --min 0 keeps its last replica without a query (default the model's)")
	f.DurationVar(&o.window, "window", api.DefaultScaleWindow, "how far the autoscaler looks back (default the model's)")
	f.DurationVar(&o.delay, "delay", api.DefaultScaleDelay, "how long less must have been needed before a replica goes (default the model's)")
	f.Float64Var(&o.utilization, "utilization", api.DefaultUtilization, "the part of a replica's capacity that the autoscaler plans with (default the model's)")
	f.StringVar(&o.svg, "svg", "", "write a picture of the day to this file")
	f.Uint64Var(&o.seed, "seed", 1, "of what is random: the same seed gives the same answer")
	outputFlag(cmd, &o.format)
	return cmd
}

// check makes sure that the options go together and are within bounds, before anything is asked or read.
func (o *planOptions) check() error {
	given := func(flags ...string) string {
		for _, flag := range flags {
			if o.changed(flag) {
				return "--" + flag
			}
		}
		return ""
	}
	for _, f := range []struct{ flag, value, expected string }{
		{"profile", o.profile, "2ms+0.1ms, say"}, {"log", o.log, "a directory or file of an inference log"}, {"function", o.function, "the name of a function"}, {"svg", o.svg, "the file that the picture is written to"},
	} {
		if o.changed(f.flag) && f.value == "" {
			return usagef("--%s is empty: expected %s", f.flag, f.expected)
		}
	}
	if o.log == "" {
		if flag := given("function", "scale"); flag != "" {
			return usagef("%s is about a log: give --log too", flag)
		}
		if !o.changed("rate") && !o.changed("peak") {
			return usagef("how many queries a second are to be planned for? Give --rate, or --log with an inference log that has them")
		}
		if flag := given("peak"); flag != "" && o.shape == "steady" {
			return usagef("--peak goes with a shape that has one: --shape daily, say")
		}
	} else if flag := given("rate", "peak", "shape", "over"); flag != "" {
		return usagef("%s and --log do not go together: the log says how many queries came when; --scale says how many times that", flag)
	}
	if o.target == "" && (o.profile == "" || o.slo == 0) {
		return usagef("what is to be planned for? Name a function or model of the running gateway, or give --profile and --slo: xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000")
	}
	if o.function != "" {
		if err := api.CheckName("function", o.function); err != nil {
			return usageError{err}
		}
	}
	if o.profile != "" {
		if _, err := capacity.ParseProfile(o.profile); err != nil {
			return usageError{fmt.Errorf("--%w", err)}
		}
	}
	if o.log == "" {
		if err := o.checkTraffic(); err != nil {
			return err
		}
	}
	return o.checkBounds()
}

func (o *planOptions) checkBounds() error {
	switch {
	case o.slo < 0 || o.slo > api.MaxSLO:
		return usagef("--slo %s: expected more than 0 and up to %s", o.slo, api.MaxSLO)
	case !(o.percentile > 0 && o.percentile < 100):
		return usagef("--percentile %g: expected more than 0 and less than 100", o.percentile)
	case o.start < 0 || o.start > maxPlanStart:
		return usagef("--start %s: expected 0s to %s", o.start, maxPlanStart)
	case o.coldStart < 0 || o.coldStart > api.MaxColdStart:
		return usagef("--cold-start %s: expected 0s to %s", o.coldStart, api.MaxColdStart)
	case !(o.scale > 0 && o.scale <= capacity.MaxScale):
		return usagef("--scale %g: expected more than 0 and up to %g", o.scale, capacity.MaxScale)
	case o.min < 0 || o.min > api.MaxReplicas:
		return usagef("--min %d: expected 0 to %d", o.min, api.MaxReplicas)
	case o.changed("max") && (o.max < 1 || o.max > api.MaxReplicas):
		return usagef("--max %d: expected 1 to %d", o.max, api.MaxReplicas)
	case o.changed("max") && o.changed("min") && o.min > o.max:
		return usagef("--min %d is more than --max %d", o.min, o.max)
	case o.idle <= 0 || o.idle > api.MaxIdle:
		return usagef("--idle %s: expected more than 0 and up to %s", o.idle, api.MaxIdle)
	case o.window < api.MinScaleWindow || o.window > api.MaxScaleWindow:
		return usagef("--window %s: expected %s to %s", o.window, api.MinScaleWindow, api.MaxScaleWindow)
	case o.delay < 0 || o.delay > api.MaxScaleWindow:
		return usagef("--delay %s: expected 0s to %s", o.delay, api.MaxScaleWindow)
	case !(o.utilization >= 0.05 && o.utilization <= 1):
		return usagef("--utilization %g: expected 0.05 to 1", o.utilization)
	}
	return nil
}

// traffic is what the flags describe.
func (o *planOptions) traffic() (*capacity.Traffic, error) {
	rate, peak := o.rate, o.peak
	if !o.changed("peak") {
		peak = defaultPeakTimes * rate
	}
	if o.shape == "steady" {
		peak = rate
	}
	return capacity.Shaped(o.shape, rate, peak, o.over, o.seed)
}

// checkTraffic names the flag that is wrong.
func (o *planOptions) checkTraffic() error {
	switch {
	case !slices.Contains(capacity.Shapes, o.shape):
		return usagef("--shape %.20q: expected %s", o.shape, strings.Join(capacity.Shapes, ", "))
	case !(o.rate >= 0 && o.rate <= capacity.MaxRate):
		return usagef("--rate %g: expected more than 0 and up to %.0f queries a second", o.rate, float64(capacity.MaxRate))
	case o.rate == 0 && !o.changed("peak"):
		return usagef("--rate 0: without queries there is nothing to plan; expected more than 0 queries a second, or a --peak")
	case o.changed("peak") && !(o.peak > 0 && o.peak <= capacity.MaxRate):
		return usagef("--peak %g: expected more than 0 and up to %.0f queries a second", o.peak, float64(capacity.MaxRate))
	case o.changed("peak") && o.peak < o.rate:
		return usagef("--peak %g is less than --rate, %g: expected the most queries a second", o.peak, o.rate)
	case !o.changed("peak") && o.shape != "steady" && defaultPeakTimes*o.rate > capacity.MaxRate:
		return usagef("--rate %g: %d times as much, which is the peak where none is said, is more than %.0f queries a second: give --peak", o.rate, defaultPeakTimes, float64(capacity.MaxRate))
	case o.over < capacity.MinSpan || o.over > capacity.MaxSpan:
		return usagef("--over %s: expected %s to %s", o.over, capacity.MinSpan, capacity.MaxSpan)
	}
	return nil
}

// plan puts the question together, from the flags and what the gateway knows, and prints the answer.
func (c *cli) plan(ctx context.Context, o *planOptions) error {
	q := &capacity.Question{
		Model: capacity.Model{SLONanos: int64(o.slo), ColdStartNanos: int64(o.coldStart), StartNanos: int64(o.start), Config: scheduler.DefaultConfig()},
		Bounds: autoscale.Config{
			Min: o.min, Max: o.max, IdleNanos: int64(o.idle), WindowNanos: int64(o.window), DelayNanos: int64(o.delay),
			Utilization: o.utilization, Up: api.DefaultScaleUp, Down: api.DefaultScaleDown,
		},
		Percentile: o.percentile, Seed: o.seed, Progress: c.planProgress(),
	}
	var err error
	if o.profile != "" {
		if q.Model.Profile, err = capacity.ParseProfile(o.profile); err != nil {
			return usageError{err}
		}
	}
	var notes, functions []string
	if o.target != "" {
		if notes, functions, err = c.planTarget(ctx, o, q); err != nil {
			return err
		}
	}
	if o.log == "" {
		q.Traffic, err = o.traffic()
	} else {
		if o.function != "" {
			functions = []string{o.function}
		}
		q.Traffic, err = c.planLog(ctx, o, functions)
	}
	if err != nil {
		return err
	}
	p, err := capacity.Make(ctx, q)
	if err != nil {
		return err
	}
	p.Notes = append(notes, p.Notes...)
	if o.svg != "" {
		if err := os.WriteFile(o.svg, p.SVG(), 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	return c.printPlan(p, o)
}

// planProgress says after a second, and each further one, that something is happening.
func (c *cli) planProgress() func(int) {
	var mu sync.Mutex
	last := c.now()
	return func(runs int) {
		mu.Lock()
		defer mu.Unlock()
		if now := c.now(); now.Sub(last) >= time.Second {
			last = now
			fmt.Fprintf(c.err, "simulating: %d runs so far, of some 20 with up to %d queries each\n", runs, capacity.MaxRunQueries)
		}
	}
}

// planWithout adds what can be done without one.
func planWithout(err error) error {
	var remote *remoteError
	if errors.As(err, &remote) || errors.Is(err, context.Canceled) || errors.As(err, new(usageError)) {
		return err
	}
	return fmt.Errorf("%w\nor plan without one, with numbers of your own: xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000", err)
}
