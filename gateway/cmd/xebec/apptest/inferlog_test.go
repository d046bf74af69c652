package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logged is a line of `xebec replay --print`.
type logged struct {
	Time     string   `json:"time"`
	Function string   `json:"function"`
	QueryID  uint64   `json:"query_id"`
	Context  string   `json:"context"`
	Request  string   `json:"request_id"`
	Input    *int     `json:"input"`
	Output   *int     `json:"output"`
	Models   []string `json:"models"`
	Code     string   `json:"code"`
	Label    *int     `json:"label"`
	Correct  *bool    `json:"correct"`
}

// replay is what `xebec replay -o json` reports.
type replayed struct {
	Queries, Same, Different, Lost, Failed int
	Difference                             float64
	Accuracy                               *struct {
		Labels    int
		Then, Now float64
	}
	Feedback map[string]int
	Damaged  int
}

// printed reads a log and returns its queries and its feedback.
func (g *gateway) printed(args ...string) (queries, feedback []logged) {
	g.t.Helper()
	r := g.xebec(append([]string{"replay", "--print"}, args...)...)
	empty := strings.Contains(r.err, "no files") || strings.Contains(r.err, "has no queries") || strings.Contains(r.err, "no query of the log is selected")
	if r.status != 0 && !empty {
		g.t.Fatalf("replay --print %v: %s", args, r.err)
	}
	for line := range strings.Lines(r.out) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			g.t.Fatalf("replay --print prints %q: %v", line, err)
		}
		if l.Input != nil {
			queries = append(queries, l)
		} else {
			feedback = append(feedback, l)
		}
	}
	return queries, feedback
}

// awaitPrinted waits until the log has so many queries and feedbacks.
func (g *gateway) awaitPrinted(queries, feedback int, args ...string) (q, f []logged) {
	g.t.Helper()
	g.await(fmt.Sprintf("%d queries and %d feedbacks in the log", queries, feedback), func(context.Context) (bool, string) {
		q, f = g.printed(args...)
		return len(q) >= queries && len(f) >= feedback, fmt.Sprintf("%d queries, %d feedbacks", len(q), len(f))
	})
	return q, f
}

// replay replays a log and returns the report and the command's result.
func (g *gateway) replay(args ...string) (replayed, result) {
	g.t.Helper()
	r := g.xebec(append([]string{"replay", "-o", "json", "--rate", "max"}, args...)...)
	var report replayed
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		g.t.Fatalf("replay %v: status %d, %s %s: %v", args, r.status, r.out, r.err, err)
	}
	return report, r
}

// The log has a function's queries, answers and feedback. Replayed to the same version they get the same answers. Another
// version answers differently, which the replay counts; too many differences fail the command.
func TestInferenceLogIsReplayed(t *testing.T) {
	t.Parallel()
	log := filepath.Join(newDir(t), "log")
	g := serve(t, "--inference-log", log)
	g.apply(number("m", "echo"), function("f", "m", "slo: 60s", "log: {sample: 1}"), function("silent", "m", "slo: 60s"))
	const queries = 60
	for i := range queries {
		a := g.ask("f", i, "", "Xebec-Context", fmt.Sprintf("user %d", i%3), "X-Request-Id", fmt.Sprintf("request-%d", i))
		label := i
		if i%4 == 3 {
			label = 0 // for a quarter of the queries another output is right
		}
		if status, said := g.tell("f", `{"query_id":%d,"label":%d}`, *a.QueryID, label); status != 200 || said.Status != "counted" {
			t.Fatalf("feedback is answered by %d %+v", status, said)
		}
		g.ask("silent", i, "")
	}
	q, f := g.awaitPrinted(queries, queries, log)
	if len(q) != queries || len(f) != queries {
		t.Errorf("the log has %d queries and %d feedbacks: expected %d of each", len(q), len(f), queries)
	}
	ids := map[uint64]int{}
	for i, l := range q {
		if l.Function != "f" || *l.Input != i || l.Output == nil || *l.Output != i || len(l.Models) != 1 || l.Models[0] != "m@1" || l.Code != "ok" || l.Context != fmt.Sprintf("user %d", i%3) || l.Request != fmt.Sprintf("request-%d", i) || l.Time == "" {
			t.Errorf("query %d is logged as %+v", i, l)
		}
		ids[l.QueryID] = i
	}
	for _, l := range f {
		if i, known := ids[l.QueryID]; !known || l.Label == nil || *l.Label != i && (i%4 != 3 || *l.Label != 0) {
			t.Errorf("unexpected feedback in the log: %+v", l)
		}
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the log's directory is %v (%v): expected mode 0700", info, err)
	}

	report, r := g.replay(log, "--max-difference", "0")
	if r.status != 0 || report.Queries != queries || report.Same != queries || report.Accuracy == nil || report.Accuracy.Labels != queries || report.Accuracy.Now != 0.75 || report.Damaged != 0 {
		t.Errorf("replayed to the same function: status %d, %+v %s", r.status, report, r.err)
	}
	if again, _ := g.awaitPrinted(2*queries, queries, log); len(again) != 2*queries { // the log was read while the gateway wrote to it
		t.Errorf("after the replay the log has %d queries", len(again))
	}
	g.apply(version(number("m", "noop"), "2"), traffic("m", `serving: "1"`))
	report, r = g.replay(log, "--model", "m@2", "--limit", fmt.Sprint(queries), "--max-difference", "0.5")
	// Version 2 answers 0, which is right for the first query and for the quarter with the label 0.
	if r.status != 1 || !strings.Contains(r.err, "--max-difference") || report.Queries != queries || report.Same != 1 || report.Different != queries-1 || report.Accuracy.Now != 0.25+1.0/queries || report.Accuracy.Then != 0.75 {
		t.Errorf("replayed to another version: status %d, %+v %s", r.status, report, r.err)
	}
	if _, r = g.replay(log, "--model", "m@2", "--limit", fmt.Sprint(queries), "--max-difference", "0.99"); r.status != 0 {
		t.Errorf("with enough allowed differences: status %d, %s", r.status, r.err)
	}
	g.apply(function("taught", "m", "slo: 60s"))
	if report, r = g.replay(log, "--function", "f", "--to", "taught", "--feedback", "--limit", fmt.Sprint(queries)); r.status != 0 || report.Same != queries || report.Feedback["counted"] != queries {
		t.Errorf("replayed to another function, with feedback: status %d, %+v %s", r.status, report, r.err)
	}
	g.xebec("replay", log, "--function", "nobody").wants(t, "a function that is not in the log", 1, "", "f")
	g.xebec("replay", newDir(t)).wants(t, "no log", 1, "", "--inference-log")

	// The log can be converted to validation cases.
	cases := g.xebec("replay", log, "--print", "--cases", "--function", "f", "--limit", "8")
	if cases.status != 0 || strings.Count(cases.out, "\n") != 8 || !strings.Contains(cases.out, `{"input":2,"label":2}`) || !strings.Contains(cases.out, `{"input":3,"label":0}`) {
		t.Errorf("the cases are: status %d\n%s%s", cases.status, cases.out, cases.err)
	}
}

// A replay to the gateway that writes the same log ends: queries that the replay adds to the log are not replayed,
// however long it takes.
func TestReplayToTheGatewayThatWritesTheLog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(newDir(t), "log")
	g := serve(t, "--inference-log", log)
	g.apply(number("m", "echo"), function("f", "m", "slo: 60s", "log: {sample: 1}"))
	const queries = 24
	for i := range queries {
		g.ask("f", i, "")
	}
	g.awaitPrinted(queries, 0, log)
	// At this rate the gateway writes the log several times during the replay.
	if report, r := g.replay(log, "--rate", "8", "--concurrency", "1"); r.status != 0 || report.Queries != queries || report.Same != queries || report.Damaged != 0 {
		t.Errorf("the replay has status %d, %+v %s", r.status, report, r.err)
	}
	if again, _ := g.awaitPrinted(2*queries, 0, log); len(again) != 2*queries {
		t.Errorf("after the replay the log has %d queries, expected %d: replayed queries are logged too", len(again), 2*queries)
	}
}

// With a sample of one half about half of the queries are logged, and feedback only for those. A killed gateway loses at
// most the last second of the log.
func TestInferenceLogOfASample(t *testing.T) {
	t.Parallel()
	log := filepath.Join(newDir(t), "log")
	args := []string{"--inference-log", log, "--config", manifest(t, number("m", "echo"), function("f", "m", "slo: 60s", "log: {sample: 0.5}"), function("all", "m", "slo: 60s", "log: {sample: 1}"))}
	g := serve(t, args...)
	const queries = 400
	g.teach("f", 1, queries, "", itself)
	g.ask("all", 7, "")
	g.awaitPrinted(1, 0, log, "--function", "all") // logged after all others, so they are there too
	q, f := g.printed(log, "--function", "f")
	if len(q) < queries*35/100 || len(q) > queries*65/100 { // six standard deviations
		t.Errorf("of %d queries %d are in the log: expected about half", queries, len(q))
	}
	sampled := map[uint64]bool{}
	for _, l := range q {
		sampled[l.QueryID] = true
	}
	for _, l := range f {
		if !sampled[l.QueryID] {
			t.Errorf("the log has feedback for query %d, but not the query", l.QueryID)
		}
	}
	if len(f) != len(q) {
		t.Errorf("the log has %d queries and %d feedbacks", len(q), len(f))
	}
	l := g.startNumbers("all")
	g.awaitPrinted(100, 0, log, "--function", "all")
	kill(t, g.cmd.Process.Pid) // while it writes
	g.gone(-1)
	asked := l()
	again := serve(t, args...)
	all, _ := again.printed(log, "--function", "all")
	if kept, _ := again.printed(log, "--function", "f"); len(kept) != len(q) || len(all) < 100 || len(all) > asked+1 {
		t.Errorf("after the kill the log has %d of %d queries, and of %d of another function %d", len(kept), len(q), asked+1, len(all))
	}
	again.ask("all", 8, "")
	again.awaitPrinted(len(all)+1, 0, log, "--function", "all")
	second := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--inference-log", log)
	second.gone(1)
	if text := second.logText(); !strings.Contains(text, "--inference-log") || !strings.Contains(text, log) {
		t.Errorf("the output of a second gateway with the same log is\n%s", text)
	}
}

// startNumbers queries a function with one number after the other until the gateway has ended. The returned function
// waits for that and returns the number of queries.
func (g *gateway) startNumbers(function string) (wait func() int) {
	ctx := bounded(g.t)
	asked := make(chan int, 1)
	go func() {
		for n := 1; ; n++ {
			if _, err := g.tryAsk(ctx, function, n, ""); err != nil {
				asked <- n
				return
			}
		}
	}()
	return func() int { return <-asked }
}

// The disk of the inference log is full. Every query is answered, records that cannot be written are counted, and logging
// resumes when there is room.
func TestInferenceLogOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, full, room, _ := smallDisk(t, 128<<10)
	log := filepath.Join(dir, "log")
	g := serve(t, "--inference-log", log)
	g.apply(number("m", "echo", "cache: off"), function("f", "m", "slo: 60s", "log: {sample: 1}"))
	g.ask("f", 1, "")
	g.awaitPrinted(1, 0, log)
	full(g)
	input := 1
	more := func(what string, done func(written, dropped float64) bool) {
		t.Helper()
		g.await(what, func(ctx context.Context) (bool, string) {
			for range 100 {
				input++
				if a, err := g.tryAsk(ctx, "f", input, ""); err != nil || a.number() != input {
					t.Fatalf("with a full disk f of %d is answered by %v %v", input, a, err)
				}
			}
			m, err := g.scrape(ctx)
			written, dropped := m.samples["xebec_inference_log_records_total{}"], m.samples["xebec_inference_log_dropped_total{}"]
			return err == nil && done(written, dropped), fmt.Sprintf("%v written, %v dropped, %v", written, dropped, err)
		})
	}
	more("records to be dropped", func(_, dropped float64) bool { return dropped > 0 })
	if text := g.logText(); !strings.Contains(text, "inference log") {
		t.Errorf("the gateway's log does not report the full disk:\n%s", text)
	}
	before := g.metrics().samples["xebec_inference_log_records_total{}"]
	room(g)
	more("records to be written again", func(written, _ float64) bool { return written > before })
	q, _ := g.awaitPrinted(int(before)+1, 0, log)
	for _, l := range q {
		if l.Output == nil || *l.Output != *l.Input {
			t.Errorf("unexpected record in the log: %+v", l)
		}
	}
}
