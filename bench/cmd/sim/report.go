package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// inParallel calls job with 0 to n-1, on all cores, and returns the error of each call.
func inParallel(n int, job func(i int) error) []error {
	errs := make([]error, n)
	jobs := make(chan int)
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := range jobs {
				errs[i] = job(i)
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	running.Wait()
	return errs
}

// comparison is what -compare and -scale print and write: rows as JSON, or tables of them.
type comparison struct {
	kind    string // of the files: DATE-kind.md, for example
	heading string // of the Markdown file, with what precedes the tables
	rows    any
	tables  func(io.Writer)
	figures func() ([]results.Figure, error)
}

// publish prints the rows or tables, and writes the files if -out is set.
func (c *comparison) publish(w io.Writer, cfg *config) error {
	if cfg.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(c.rows); err != nil {
			return err
		}
	} else {
		c.tables(w)
	}
	if cfg.out == "" {
		return nil
	}
	figures, err := c.figures()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(c.heading)
	c.tables(&b)
	_, err = results.Write(cfg.out, cfg.date+"-"+c.kind, c.rows, b.String(), figures...)
	return err
}

// compareHeading precedes the tables of -compare.
func compareHeading(cfg *config) string {
	return fmt.Sprintf("# Scheduling policies compared in simulation, seed %d\n\n%s\n", cfg.seed, preface)
}

const preface = `Made by ` + "`bin/sim -compare`" + `; the same seed gives the same numbers on any machine, for time is simulated. The scheduler is the real
one; replicas, callers and the clock are simulated (scheduler/sim says how). All policies get the same queries.

* **planned**: ours, with the epoch planner. **unplanned**: ours without it: a function of several models asks the best one, an ensemble all of them, a policy
  the one it prefers. An ensemble is answered at its deadline with the predictions it has.
* **clipper**: the batching of the paper (NSDI 2017, section 4.3): a queue for each replica, first in first out, queries distributed in turn, one batch at a time,
  a cap by additive increase and multiplicative decrease against the objective, no early refusal. Late queries are still evaluated, for the cache, for a second
  after their arrival. **clipper-drops** is the same, but drops what is late.
* **tick-10ms**: one queue, batches formed every 10 ms. **single**: one query at a time.

*of possible*: answers in time, as a part of the offered queries or of the capacity, whichever is less; capacity is that of batches which take two fifths of the objective. *missed*,
*refused* and *dropped* (turned away before the deadline) are parts of what was offered. p50 and p99 are of what was accepted and not dropped; "missed" means that so many had no
answer in time. *replica s/1000* is the replicas' time for 1,000 answers in time. *recovery* is the time after a burst until nothing is refused or missed.
*mean gain* is what an answer in time is worth: 1 less the product of (1 − gain) over the models that took part, as if their errors were independent.
The first two seconds of each run, in which caps and profiles are learned, do not count.
`
