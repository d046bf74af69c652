package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// writeReport writes DATE-sim.md, DATE-sim.json and the figures into the folder of -out.
func writeReport(cfg *config, list []scenario, rows []row) error {
	if err := os.MkdirAll(cfg.out, 0o755); err != nil {
		return err
	}
	figures, err := drawFigures(cfg, list, rows)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Scheduling policies compared in simulation, seed %d\n\n%s\n", cfg.seed, preface)
	writeTables(&b, list, rows)
	for _, name := range figures {
		fmt.Fprintf(&b, "![%s](%s)\n\n", strings.TrimSuffix(name, ".svg"), name)
	}
	_, err = results.Write(cfg.out, cfg.date+"-sim", rows, b.String())
	return err
}

const preface = `Made by ` + "`bin/sim -compare`" + `; the same seed gives the same numbers on any machine, for time is simulated. The scheduler is the real
one; replicas, callers and the clock are simulated (scheduler/sim says how). All policies get the same queries.

* **planned**: ours, with the epoch planner. **unplanned**: ours without it: a function of several models asks the best one, an ensemble all of them, a policy
  whom it likes. An ensemble is answered at its deadline with what is there.
* **clipper**: the batching of the paper (NSDI 2017, section 4.3): a queue for each replica, first in first out, queries dealt out in turn, one batch at a time,
  a cap by additive increase and multiplicative decrease against the objective, no early refusal. Late queries are still evaluated, for the cache, for a second
  after they came. **clipper-drops** is the same, but drops what is late.
* **tick-10ms**: one queue, batches formed every 10 ms. **single**: one query at a time.

*of possible*: answers in time, of what was offered or of the capacity where that is less; capacity is that of batches which take two fifths of the objective. *missed*,
*refused* and *dropped* (turned away before the deadline) are parts of what was offered. p50 and p99 are of what was accepted and not dropped; "missed" says that so many had no
answer in time. *replica s/1000* is the replicas' time for 1,000 answers in time. *recovery* is the time after a burst until nothing is refused or missed.
*mean gain* is what an answer in time is worth: 1 less the product of (1 − gain) over the models that took part, as if their errors were independent.
The first two seconds of each run, in which caps and profiles are learned, do not count.
`
