package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

var five = []Trained{{Name: "a", What: "a model", Error: 0.2}, {Name: "b", What: "another", Error: 0.1}, {Name: "c", What: "a third", Error: 0.3}, {Name: "d", What: "a fourth", Error: 0.3}, {Name: "e", What: "a fifth", Error: 0.3}}

func sampleReport() *Report {
	d := &Degradation{Queries: 1000, From: 250, Until: 500, Degraded: "b", Models: five}
	sequence := func(before, bad, after int) []bool { // errors of one in so many
		wrong := make([]bool, 1000)
		for i := range wrong {
			every := after
			if i < 500 {
				every = bad
			}
			if i < 250 {
				every = before
			}
			wrong[i] = i%every == 0
		}
		return wrong
	}
	d.Statics = []Run{d.run("a", sequence(5, 5, 5)), d.run("b", sequence(10, 1, 10))}
	d.Policies = []Run{d.run("exp3", sequence(10, 5, 10)), d.run("exp4", sequence(5, 2, 5)), d.run("ucb1", sequence(5, 5, 2))}
	for i, wrong := range [][]bool{sequence(10, 5, 10), sequence(5, 2, 5), sequence(5, 5, 2)} {
		d.Policies[i].BesideBest = besideStretches(wrong, sequence(5, 5, 5))
	}
	d.Policies[0].Best = []Point{{250, 0.9}, {500, 0.3}, {750, 0.4}, {1000, 0.8}}
	d.Policies[2].Best = []Point{{250, 0.4}, {500, 0.1}, {750, 0.1}, {1000, 0.1}}
	s := &Stragglers{OfferedQPS: 60, Share: 0.02}
	for _, members := range []int{1, 16} {
		s.Points = append(s.Points,
			StragglerPoint{Members: members, Mitigated: true, Queries: 300, Latency: Latency{5, 4, 20.5}, Missing: 0.05, MissingP99: 0.25, Accuracy: 0.9, Defaults: 0.01},
			StragglerPoint{Members: members, Queries: 300, Latency: Latency{25, 6, 70}, Accuracy: 0.91})
	}
	return &Report{
		Taken:   results.Taken{When: time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)},
		Seconds: []runner.Took{{Part: "7", Seconds: 12.3}},
		Ensembles: []Ensembles{{Title: "some digits", Queries: 1000, Models: five, Policies: []EnsemblePolicy{
			{Name: "equal weights", Error: 0.08, Fewer: results.Interval{Value: 0.2, Low: 0.06, High: 0.34}, Groups: []Group{{3, 0.1, 0.5, 0.6}, {4, 0.4, 0.05, 0.8}, {5, 0.5, 0.02, 1}}},
			{Name: "exp4", Error: 0.1, Fewer: results.Interval{Low: -0.05, High: 0.05}, Missing: 3},
		}}},
		Degradation: d,
		Stragglers:  s,
		Personal: &Personal{Users: 64, FeedbackPerUser: 20, Groups: 8, Models: five, Global: 0.35, Reported: 0.25, Best: 0.2, BesideGlobal: results.Interval{Value: -0.1, Low: -0.12, High: -0.08}, Policies: []PersonalRun{
			{Name: "exp4, by user", Context: true, Error: 0.29, Late: 0.22, LateBeside: results.Interval{Value: -0.03, Low: -0.06, High: 0}, Curve: []Point{{0, 0.4}, {5, 0.3}, {10, 0.24}, {15, 0.2}}},
			{Name: "exp4, one for all", Error: 0.4, Late: 0.4, Curve: []Point{{0, 0.4}, {5, 0.4}, {10, 0.4}, {15, 0.4}}},
		}},
		Caching: &Caching{Models: five[:4], Images: 3000, Joins: []CacheRound{{1000, 3000}, {1000, 2000}, {2000, 8000}}, Whole: []CacheRound{{100, 150}}},
	}
}

func TestMarkdown(t *testing.T) {
	text := sampleReport().Markdown()
	resultstest.Contains(t, text,
		"| 7: an ensemble has fewer errors than its best model | some digits, equal weights: 8.0 % against 10.0 %, 20.0 ± 14.0 % fewer | holds |",
		"| 7: on ImageNet 5.2 % fewer | some digits, equal weights: 8.0 % against 10.0 %, 20.0 ± 14.0 % fewer | holds |",
		"| 7: an ensemble has fewer errors than its best model | some digits, exp4: 10.0 % against 10.0 %, 0.0 ± 5.0 % fewer | cannot be told |",
		"| 7: on ImageNet 5.2 % fewer | some digits, exp4: 10.0 % against 10.0 %, 0.0 ± 5.0 % fewer | **does not hold** |",
		"| some digits: 2.0 % wrong in the 50 % where all agree, 14.0 % in the others | holds |",
		"| 8: exp3 ends with a lower error than any static choice | 12.5 % against 20.0 % (a): -7.50 ± 7.96 points | cannot be told |",
		"| 8: ucb1 ends with a lower error than any static choice | 35.0 % against 20.0 % (a): +15.00 ± 27.56 points | cannot be told |",
		"| P99 70 ms without, 20.5 ms with, of 300 queries: too few for an interval of a P99 | cannot be told |",
		"| 9b: most predictions arrive by the deadline | 5.0 (2.8–8.1) % of 16 are missing | holds |",
		"| 9c: that costs only a little accuracy (here: less than 3 points) | 90.0 % against 91.0 %: 1.0 (-4.0–6.0) points | cannot be told |",
		"| 25.0 % errors against 35.0 %: -10.00 ± 2.00 points | holds |",
		"| exp4, by user, second half of the feedback: 22.0 %: -3.00 ± 3.00 points beside that model | holds |",
		"| feedback alone: 2.88 (1.21–6.85) times (1000 to 3000/s) | cannot be told |",
		"| queries with their feedback: 1.50 (no interval) times (100 to 150/s) | cannot be told |",
		"| exp4 | 10.00 % (3 predictions were missing) | 1.00× |",
		"| 4 of 5 | 40.0 % | 5.0 % | 0.80 |",
		"| b | 32.50 % | 10.0 % | 100.0 % | 10.0 % |  |",
		"| exp4 | 27.50 % | 20.0 % | 50.0 % | 20.0 % | +7.50 ± 23.87 points: cannot be told |",
		"exp3: left after 250 queries, back after 500 queries; ucb1: 40 % of the queries had it when it became bad.",
		"| 16 | by 20 ms | 300 | 5.0 | 4.0 | 20.5 | 5.0 % | 25 % | 0.0 % | 90.0 % | 1.0 % |",
		"| 10 | 24.0 % | 40.0 % |",
		"exp4, by user is below the global model after 5, and below the reported group's after 10 of feedback",
		"| feedback alone | 1000 (1000–2000) | 3000 (2000–8000) | 3.00 (2.00–4.00) |",
		"Taken in: 7 12 s.",
	)
	for _, not := range []string{"NaN", "mean nothing", "Inf"} {
		if strings.Contains(text, not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
}

// The claim of section 4.2 is judged by the interval of the rounds' ratios against the paper's 1.6.
func TestVerdictOfCaching(t *testing.T) {
	for _, c := range []struct {
		rounds []CacheRound
		want   results.Finding
	}{
		{[]CacheRound{{100, 250}, {100, 260}, {100, 240}}, results.Holds},
		{[]CacheRound{{100, 120}, {100, 125}, {100, 115}}, results.Fails}, // faster, and less than the paper
		{[]CacheRound{{100, 150}, {100, 170}, {100, 160}}, results.Untold},
		{[]CacheRound{{100, 250}}, results.Untold}, // one round has no interval
	} {
		text := (&Report{Caching: &Caching{Models: five[:4], Whole: c.rounds, Joins: c.rounds}}).Markdown()
		var rows int
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "| 4.2: ") {
				if rows++; !strings.HasSuffix(line, fmt.Sprintf("| %s |\n", c.want)) {
					t.Errorf("%v: %s, want %s", c.rounds, line, c.want)
				}
			}
		}
		if rows != 2 {
			t.Errorf("%v: %d rows of section 4.2, want 2", c.rounds, rows)
		}
	}
}

// Any choice of parts has a report. The report of a smoke test says so.
func TestMarkdownOfAPart(t *testing.T) {
	whole := sampleReport()
	for _, r := range []Report{{Ensembles: whole.Ensembles, Quick: true}, {Degradation: whole.Degradation}, {Stragglers: whole.Stragglers}, {Personal: whole.Personal}, {Caching: whole.Caching}} {
		text := r.Markdown()
		if r.Empty() || strings.Contains(text, "NaN") || strings.Contains(text, "mean nothing") != r.Quick || strings.Count(text, "\n## ") != 2 {
			t.Error(text)
		}
	}
	if r := (&Report{}); !r.Empty() {
		t.Error("a report without measurements is not empty")
	}
}

func TestNoAmountOfFeedback(t *testing.T) {
	r := PersonalRun{Curve: []Point{{0, 0.1}, {5, 0.4}}}
	if got := r.below(0.2); got != "no amount" { // a first lucky window does not count
		t.Errorf("got %q", got)
	}
}

func TestWriteKeepsReportAndFigures(t *testing.T) {
	dir := resultstest.Kept(t, sampleReport(), "learning")
	for number, words := range map[string][]string{
		"7": {"best single", "all agree | not", "4+ agree", "some digits"}, "8": {"exp3", "static choices", "ucb1"}, "9": {"waits for all, P99", "members", "accuracy"}, "10": {"global model", "exp4, by user"},
	} {
		resultstest.Shows(t, dir, "2030-01-02-learning", "2030-01-02-figure"+number, "## Figure "+number+":", words...)
	}
}
