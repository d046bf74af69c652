// Command learning measures what sections 4.2, 5.1, 5.2 and 5.3 of the Clipper paper show in figures 7 to 10 (Crankshaw et al.,
// NSDI 2017): ensembles and their confidence, policies that find the best model and notice when it is the best no more, answers in time
// while models straggle, models that fit a user, and what the prediction cache gives to feedback.
//
// It starts the real xebec with real workers, scikit-learn's models of real handwritten digits (bench/models/learning), and asks
// over HTTP. bench/METHOD.md says how.
//
//	learning -only 7,8,9,10,cache
//	learning -quick
//
// Its progress goes to stderr; the results go to bench/results/<date>-learning.json and .md, and an SVG for each figure. It exits with
// 1 when an answer was not what a model says. A claim of the paper that does not hold here is in the report and is no error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

type config struct {
	xebec, python, models, out string
	parts                      []string
	quick                      bool
}

// quickly is by how much a smoke test is smaller.
const quickly = 10

// scaled is how many of n queries are asked.
func (c *config) scaled(n int) int {
	if c.quick {
		return n / quickly
	}
	return n
}

// lasting is for how long is measured.
func (c *config) lasting(d time.Duration) time.Duration {
	if c.quick {
		return d / quickly
	}
	return d
}

func main() { program.Main("learning", run) }

// part is one figure, or what else the paper says in numbers.
type part struct {
	name, title string
	measure     func(context.Context, config, *Report) error
}

var parts = []part{
	{"7", "ensembles and agreement", func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Ensembles, err = measureEnsembles(ctx, cfg)
		return err
	}},
	{"8", "the best model becomes a bad one, and is restored", func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Degradation, err = measureDegradation(ctx, cfg)
		return err
	}},
	{"9", "stragglers", func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Stragglers, err = measureStragglers(ctx, cfg)
		return err
	}},
	{"10", "personal choices", func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Personal, err = measurePersonal(ctx, cfg)
		return err
	}},
	{"cache", "feedback and the cache", func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Caching, err = measureCaching(ctx, cfg)
		return err
	}},
}

func run(ctx context.Context) error {
	var cfg config
	flag.StringVar(&cfg.xebec, "xebec", "bin/xebec", "the gateway's program")
	flag.StringVar(&cfg.python, "python", "build/venv/bin/python", "an interpreter with the Python binding and scikit-learn")
	flag.StringVar(&cfg.models, "models", "bench/models", "the folder of learning, where the trainer is")
	flag.StringVar(&cfg.out, "out", "bench/results", "folder for the results; empty: print only")
	flag.BoolVar(&cfg.quick, "quick", false, "a smoke test, whose numbers mean nothing: a tenth of everything")
	only := flag.String("only", "7,8,9,10,cache", "which figures, by their numbers in the paper, and the cache of its section 4.2")
	date := flag.String("date", "", "the day in the names of the results, as 2006-01-02; empty: today")
	if err := program.ParseFlags(); err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Quick: cfg.quick}
	if *date != "" {
		day, err := time.Parse(time.DateOnly, *date)
		if err != nil {
			return fmt.Errorf("-date %q: expected a day such as %s", *date, time.DateOnly)
		}
		report.When = day
	}
	var err error
	if cfg.parts, err = chosen(*only); err != nil {
		return err
	}
	if err := program.Resolve("`make build demo` at the repository's root builds what is missing", &cfg.xebec, &cfg.python, &cfg.models); err != nil {
		return err
	}
	if err := train(ctx, cfg); err != nil {
		return err
	}
	var failed error
	for _, p := range parts {
		if !slices.Contains(cfg.parts, p.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "==> %s: %s\n", p.name, p.title)
		begin := time.Now()
		// One part that fails does not take the others with it.
		if err := p.measure(ctx, cfg, report); err != nil {
			failed = errors.Join(failed, err)
			progress("failed: %v", err)
		}
		report.Seconds = append(report.Seconds, Took{p.name, time.Since(begin).Round(100 * time.Millisecond).Seconds()})
	}
	if report.empty() {
		return errors.Join(failed, errors.New("nothing was measured"))
	}
	fmt.Print(report.Markdown())
	if cfg.out != "" {
		failed = errors.Join(failed, report.write(cfg.out))
	}
	return failed
}

// chosen reads -only.
func chosen(only string) ([]string, error) {
	names := strings.Split(only, ",")
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return nil, fmt.Errorf("-only %q: expected some of 7, 8, 9, 10 and cache, with commas between", only)
		}
	}
	return names, nil
}

// progress goes to stderr: stdout has the report.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "    "+format+"\n", args...) }
