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
	"github.com/xebec-serving/xebec/gateway/forecast"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

const (
	defaultPercentile = 99
	defaultStart      = 2 * time.Second
	defaultOver       = 24 * time.Hour
	// defaultPeakTimes is how many times --rate the peak is by default.
	defaultPeakTimes = 3
	// maxPlanStart: demand cannot scale a model that takes longer to load.
	maxPlanStart = time.Hour
)

// planOptions are the flags of "xebec plan".
type planOptions struct {
	target     string // function or model; "" if the flags say everything
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
		Short: "Predict how many replicas a model needs, and what scaling them would save",
		Long: `Predict how many replicas a model needs for its queries, with which batch caps, and what scaling them by demand would save.

The answer is simulated: the gateway's own scheduler runs with replicas that take as long as the model's profile says. It takes some 20
simulations of up to 400,000 queries each. That takes seconds, and can take a minute from 100,000 queries per second on; stderr shows
the progress.

The profile, the objective and the batching are those of a function or model of the running gateway. With --profile and --slo instead of
a name, plan needs no gateway. For a model that sleeps, or whose gateway was restarted, plan uses the profile of its earlier replicas and says
how old it is. The queries are a rate (--rate, and --peak
unless --shape is steady), or those of an inference log (--log).

The table is made for the highest rate, or for the busiest minutes of the log. * marks the fewest replicas that answer --percentile of the
queries within the objective. MISSED are the queries without an answer in time: refused, dropped or late. Below the table, the autoscaler
is compared with that fixed number over the whole day (--over, or the time that the log covers), in rates instead of single queries.

Shapes: steady; daily, up and down once in 24 hours; square, the peak for the middle third of each day; ramp, from the rate to the peak;
spiky, the peak for about a minute about once an hour.`,
		Example: `  xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000 --peak 20000 --shape daily
  xebec plan digits --rate 500 --min 0 --max 8 --svg digits.svg
  xebec plan digits --log /var/lib/xebec/log --scale 3 -o json`,
		Args:              atMostOne("one function or model"),
		ValidArgsFunction: c.completeName(api.KindFunction, api.KindModel),
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
	f.StringVar(&o.profile, "profile", "", "how long a batch takes: 2ms+0.1ms is 2 ms and 0.1 ms per query in it, 5ms is 5 ms per query")
	f.DurationVar(&o.slo, "slo", 0, "latency objective of the queries (default the function's)")
	f.Float64Var(&o.percentile, "percentile", defaultPercentile, "target percentage of queries answered within --slo")
	f.DurationVar(&o.start, "start", defaultStart, "how long a replica takes to start (default as measured by the gateway)")
	f.DurationVar(&o.coldStart, "cold-start", 0, "how long a query may wait if there is no replica (default the function's)")
	f.Float64Var(&o.rate, "rate", 0, "queries per second; the lowest rate unless --shape is steady")
	f.Float64Var(&o.peak, "peak", 0, fmt.Sprintf("highest rate in queries per second (default %d times --rate)", defaultPeakTimes))
	f.StringVar(&o.shape, "shape", "steady", "how the rate changes: "+strings.Join(forecast.Shapes, ", "))
	f.DurationVar(&o.over, "over", defaultOver, "length of the day that the autoscaler is tried on")
	f.StringVar(&o.log, "log", "", "plan for the queries of this inference log, a directory or file, instead of --rate")
	f.StringVar(&o.function, "function", "", "with --log: only the queries of this function (default FUNCTION, or all functions that ask MODEL)")
	f.Float64Var(&o.scale, "scale", 1, "with --log: plan for so many times the queries; those that were not sampled are added anyway")
	f.IntVar(&o.min, "min", 1, "fewest replicas of the autoscaler; with 0 the model may sleep (default the model's)")
	f.IntVar(&o.max, "max", 0, "most replicas of the autoscaler (default the model's, or twice the recommended number)")
	f.DurationVar(&o.idle, "idle", api.DefaultIdle, "with --min 0: how long the last replica stays without a query (default the model's)")
	f.DurationVar(&o.window, "window", api.DefaultScaleWindow, "how far back the autoscaler looks (default the model's)")
	f.DurationVar(&o.delay, "delay", api.DefaultScaleDelay, "how long fewer replicas must have been enough before one is removed (default the model's)")
	f.Float64Var(&o.utilization, "utilization", api.DefaultUtilization, "fraction of a replica's capacity that the autoscaler plans with (default the model's)")
	f.StringVar(&o.svg, "svg", "", "draw the day into this file")
	f.Uint64Var(&o.seed, "seed", 1, "seed of what is random; the same seed gives the same answer")
	outputFlag(cmd, &o.format)
	return cmd
}

// check makes sure that the flags fit together and are within bounds, before anything is asked or read.
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
		{"profile", o.profile, "a profile such as 2ms+0.1ms"}, {"log", o.log, "a directory or file of an inference log"},
		{"function", o.function, "the name of a function"}, {"svg", o.svg, "a file to draw into"},
	} {
		if o.changed(f.flag) && f.value == "" {
			return usagef("--%s is empty: expected %s", f.flag, f.expected)
		}
	}
	if o.log == "" {
		if flag := given("function", "scale"); flag != "" {
			return usagef("%s needs --log", flag)
		}
		if !o.changed("rate") && !o.changed("peak") {
			return usagef("no queries to plan for: give --rate, or --log with an inference log")
		}
		if flag := given("peak"); flag != "" && o.shape == "steady" {
			return usagef("--peak needs a shape that has one, such as --shape daily")
		}
	} else if flag := given("rate", "peak", "shape", "over"); flag != "" {
		return usagef("%s and --log contradict each other: the log has the times of the queries; --scale multiplies them", flag)
	}
	if o.target == "" && (o.profile == "" || o.slo == 0) {
		return usagef("nothing to plan for: name a function or model of the running gateway, or give --profile and --slo: xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000")
	}
	if o.function != "" {
		if err := api.CheckName("function", o.function); err != nil {
			return usageError{err}
		}
	}
	if o.profile != "" {
		if _, err := forecast.ParseProfile(o.profile); err != nil {
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
	case !(o.scale > 0 && o.scale <= forecast.MaxScale):
		return usagef("--scale %g: expected more than 0 and up to %g", o.scale, forecast.MaxScale)
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

// checkTraffic names the wrong flag, which package forecast cannot.
func (o *planOptions) checkTraffic() error {
	switch {
	case !slices.Contains(forecast.Shapes, o.shape):
		return usagef("--shape %.20q: expected %s", o.shape, strings.Join(forecast.Shapes, ", "))
	case !(o.rate >= 0 && o.rate <= forecast.MaxRate):
		return usagef("--rate %g: expected more than 0 and up to %.0f queries per second", o.rate, float64(forecast.MaxRate))
	case o.rate == 0 && !o.changed("peak"):
		return usagef("--rate 0: expected more than 0 queries per second, or a --peak")
	case o.changed("peak") && !(o.peak > 0 && o.peak <= forecast.MaxRate):
		return usagef("--peak %g: expected more than 0 and up to %.0f queries per second", o.peak, float64(forecast.MaxRate))
	case o.changed("peak") && o.peak < o.rate:
		return usagef("--peak %g is less than --rate, %g: expected the highest rate", o.peak, o.rate)
	case !o.changed("peak") && o.shape != "steady" && defaultPeakTimes*o.rate > forecast.MaxRate:
		return usagef("--rate %g: the default --peak of %d times as much is more than %.0f queries per second: give --peak", o.rate, defaultPeakTimes, float64(forecast.MaxRate))
	case o.over < forecast.MinSpan || o.over > forecast.MaxSpan:
		return usagef("--over %s: expected %s to %s", o.over, forecast.MinSpan, forecast.MaxSpan)
	}
	return nil
}

// traffic is what the flags describe.
func (o *planOptions) traffic() (*forecast.Traffic, error) {
	rate, peak := o.rate, o.peak
	if !o.changed("peak") {
		peak = defaultPeakTimes * rate
	}
	if o.shape == "steady" {
		peak = rate
	}
	return forecast.Shaped(o.shape, rate, peak, o.over, o.seed)
}

// plan makes a question of the flags and of what the gateway reports, and prints the answer.
func (c *cli) plan(ctx context.Context, o *planOptions) error {
	q := &forecast.Question{
		Model: forecast.Model{SLONanos: int64(o.slo), ColdStartNanos: int64(o.coldStart), StartNanos: int64(o.start), Config: scheduler.DefaultConfig()},
		Bounds: autoscale.Config{
			Min: o.min, Max: o.max, IdleNanos: int64(o.idle), WindowNanos: int64(o.window), DelayNanos: int64(o.delay),
			Utilization: o.utilization, Up: api.DefaultScaleUp, Down: api.DefaultScaleDown,
		},
		Percentile: o.percentile, Seed: o.seed, Progress: c.planProgress(),
	}
	var err error
	if o.profile != "" {
		if q.Model.Profile, err = forecast.ParseProfile(o.profile); err != nil {
			return usageError{err}
		}
	}
	var notes, functions []string
	var measured *api.MeasuredStatus
	if o.target != "" {
		if notes, functions, measured, err = c.planTarget(ctx, o, q); err != nil {
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
	p, err := forecast.Make(ctx, q)
	if err != nil {
		return err
	}
	p.Measured, p.Notes = measured, append(notes, p.Notes...)
	if o.svg != "" {
		if err := os.WriteFile(o.svg, p.SVG(), 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	return c.printPlan(p, o)
}

// planLog reads when queries of some functions came; no names means all functions.
func (c *cli) planLog(ctx context.Context, o *planOptions, functions []string) (*forecast.Traffic, error) {
	var log inferlog.Summary
	var unreadable error
	t, err := forecast.Recorded(func(each func(int64, float64) error) error {
		var refused error
		log, unreadable = inferlog.Read([]string{o.log}, func(e *inferlog.Entry) error {
			if e.Kind != inferlog.KindQuery || len(functions) > 0 && !slices.Contains(functions, e.Schema.Function) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			refused = each(e.Record.AtMicros, e.Schema.Sample)
			return refused
		})
		if refused != nil {
			unreadable = nil
			return refused
		}
		return unreadable
	}, o.scale, o.seed)
	if unreadable != nil {
		return nil, unreadable
	}
	c.noteDamage(log)
	switch {
	case errors.Is(err, forecast.ErrNoQueries):
		if empty := emptyLog(log); empty != nil {
			return nil, empty
		}
		return nil, fmt.Errorf("--log %s: it has %d queries, but none of %s; see --function, and \"xebec replay %s --print\"", o.log, log.Queries, strings.Join(functions, ", "), o.log)
	case err != nil:
		return nil, fmt.Errorf("--log %s: %w", o.log, err)
	}
	return t, nil
}

// planProgress reports progress once a second, beginning after the first.
func (c *cli) planProgress() func(int) {
	var mu sync.Mutex
	last := c.now()
	return func(runs int) {
		mu.Lock()
		defer mu.Unlock()
		if now := c.now(); now.Sub(last) >= time.Second {
			last = now
			fmt.Fprintf(c.err, "simulating: %d runs so far, of some 20 with up to %d queries each\n", runs, forecast.MaxRunQueries)
		}
	}
}
