package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/replay"
)

// The function "digits" of the fake gateway answers [1.5, 2] to everything.
var (
	digitsIn  = []api.TensorSpec{{Name: "x", DType: api.Float64, Shape: []int64{1}}}
	digitsOut = []api.TensorSpec{{Name: "y", DType: api.Float64, Shape: []int64{2}}}
)

func float64s(all ...float64) []byte {
	var b []byte
	for _, f := range all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// loggedQuery is a query of "digits" that was answered with an output.
func loggedQuery(id uint64, output ...float64) *inferlog.Record {
	return &inferlog.Record{
		ID: id, AtMicros: then.Add(time.Duration(id) * time.Second).UnixMicro(), TookMicros: 2000, Confidence: 1, Models: []api.ModelID{{Name: "digits-svm", Version: "1"}},
		Inputs: []api.Value{{Data: float64s(float64(id))}}, Outputs: []api.Value{{Data: float64s(output...)}},
	}
}

// writeLog writes a log of what fill adds, and returns its directory.
func writeLog(t *testing.T, fill func(l *inferlog.Log)) string {
	t.Helper()
	dir := t.TempDir()
	l, err := inferlog.Open(inferlog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fill(l)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// digitsLog has nine queries, of which two had another output, and labels for the first four.
func digitsLog(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("digits", digitsIn, digitsOut, 1)
		for id := range uint64(9) {
			r := loggedQuery(id+1, 1.5, 2)
			if id >= 7 {
				r = loggedQuery(id+1, 8.5, 2)
			}
			s.Add(r)
		}
		for id := range uint64(4) {
			s.Feedback(&inferlog.Feedback{ID: id + 1, Kind: inferlog.FeedbackLabel, Label: []byte("[1.5,2]")})
		}
	})
}

// runReplay runs the command against a function port.
func runReplay(t *testing.T, server string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	x := newConsole("")
	x.env["XEBEC_SERVER"] = server
	return x.run(t.Context(), append([]string{"replay"}, args...)...)
}

func TestReplayReport(t *testing.T) {
	g, log := newFakeGateway(t), digitsLog(t)
	code, out, stderr := runReplay(t, g.URL, log, "--max-difference", "0.2", "--rate", "max", "--feedback")
	if code != 1 || !strings.Contains(stderr, "xebec: 22.22% of the answers differ from the log: --max-difference allows 20%") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	for _, want := range []string{
		"queries           9\n", "same output       7\n", "different         2 ", "22.22% of those with an output in the log\n", "accuracy          100% now, 100% in the log  of 4 labels\n",
		"p99 ", "feedback refused  4\n", "query 9: [1.50,2] now, [8.5,2] in the log\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report has no %q:\n%s", want, out)
		}
	}
	if code, _, stderr := runReplay(t, g.URL, log, "--max-difference", "0.25", "--rate", "max"); code != 0 || stderr != "" {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	code, out, stderr = runReplay(t, g.URL, log, "--to", "digits", "--limit", "2", "-o", "json")
	var report replay.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Queries != 2 || report.Same != 2 {
		t.Errorf("exit status %d, %v, %s: %+v", code, err, stderr, report)
	}
	none := writeLog(t, func(l *inferlog.Log) {
		r := loggedQuery(1, 1.5, 2)
		r.Outputs, r.Default = nil, true
		l.Function("digits", digitsIn, digitsOut, 1).Add(r)
	})
	if code, _, stderr := runReplay(t, g.URL, none, "--max-difference", "1"); code != 1 || !strings.Contains(stderr, "no query of the log has an output to compare") {
		t.Errorf("nothing to compare: exit status %d: %s", code, stderr)
	}
}

// A model is asked through the Open Inference Protocol, and its answer needs a header.
func TestReplayToAModel(t *testing.T) {
	g, log := newFakeGateway(t), digitsLog(t)
	if code, out, stderr := runReplay(t, g.URL, log, "--model", "digits-svm@2", "--rate", "max"); code != 0 || !strings.Contains(out, "same output  7\n") {
		t.Errorf("exit status %d: %s\n%s", code, stderr, out)
	}
	code, out, stderr := runReplay(t, g.URL, log, "--model", "digits-svm@3", "--rate", "max")
	if code != 1 || !strings.Contains(stderr, "none of 9 queries was answered") || !strings.Contains(out, "404 Not Found ") || !strings.Contains(out, "no such version\n") {
		t.Errorf("a version that does not exist: exit status %d: %s\n%s", code, stderr, out)
	}
}

func TestReplayWithoutAGateway(t *testing.T) {
	log := digitsLog(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if code, _, stderr := runReplay(t, gone.URL, log, "--rate", "max"); code != 1 || !strings.Contains(stderr, "no gateway answers at") {
		t.Errorf("no gateway: exit status %d: %s", code, stderr)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if code, _, stderr := runReplay(t, other.URL, log, "--rate", "max"); code != 1 || !strings.Contains(stderr, "is --server right?") {
		t.Errorf("another server: exit status %d: %s", code, stderr)
	}
}

func TestReplayRejects(t *testing.T) {
	log, empty := digitsLog(t), t.TempDir()
	text := filepath.Join(empty, "queries.jsonl")
	if err := os.WriteFile(text, []byte(strings.Repeat("{\"input\": 1}\n", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
		code int
	}{
		{"", "needs the inference log: give DIR or FILE", 2},
		{"LOG --to a --model b", "--to and --model contradict each other", 2},
		{"LOG --print --to a", "--print sends nothing", 2},
		{"LOG --print --feedback", "--print sends nothing", 2},
		{"LOG --cases", "--cases needs --print", 2},
		{"LOG --model b --feedback", "feedback is for functions", 2},
		{"LOG --to A", "lower-case letters", 2},
		{"LOG --model b@@", "--model:", 2},
		{"LOG --rate fast", "expected a number of queries per second, original, or max", 2},
		{"LOG --rate 0", "expected a number of queries per second", 2},
		{"LOG --speed 2", "--speed needs --rate original", 2},
		{"LOG --rate original --speed 0", "expected more than 0", 2},
		{"LOG --limit -1", "expected 1 or more, or 0 for all", 2},
		{"LOG --concurrency 0", "expected 1 to 1024", 2},
		{"LOG --tolerance -1", "expected 0 to 1e+12", 2},
		{"LOG --max-difference 2", "expected 0 to 1", 2},
		{"LOG --max-difference 0 --compare=false", "contradict each other", 2},
		{"LOG --since yesterday", "expected a time such as", 2},
		{"LOG --since 1h --until 2h", "is not before", 2},
		{"LOG -o xml", "expected table, json, yaml", 2},
		{"LOG/none", "no such file", 1},
		{"EMPTY", "there are no files of an inference log", 1},
		{"EMPTY/queries.jsonl", "is not an inference log", 1},
		{"LOG --function other", "it has 9, of function digits, from 2026-01-02T03:04:06Z to 2026-01-02T03:04:14Z; see --function", 1},
		{"LOG --until 2026-01-01 --print", "see --function, --since and --until", 1},
		{"LOG --print --cases --since 2026-01-02T03:04:12Z", "none of 3 queries has a label", 1},
	} {
		args := strings.Fields(strings.NewReplacer("LOG", log, "EMPTY", empty).Replace(c.args))
		code, _, stderr := runReplay(t, "127.0.0.1:1", args...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit status %d, %s; want %d, %q", c.args, code, stderr, c.code, c.want)
		}
	}
	if code, _, stderr := runReplay(t, "127.0.0.1:1", writeLog(t, func(*inferlog.Log) {})); code != 1 {
		t.Errorf("an empty log: exit status %d: %s", code, stderr)
	}
	two := writeLog(t, func(l *inferlog.Log) {
		l.Function("a", digitsIn, digitsOut, 1).Add(loggedQuery(1, 1, 2))
		l.Function("b", digitsIn, digitsOut, 1).Add(loggedQuery(2, 1, 2))
	})
	const want = "the functions a and b, and they would all go to one place: choose one with --function"
	if code, _, stderr := runReplay(t, newFakeGateway(t).URL, two, "--to", "digits"); code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("two functions to one: exit status %d, %s; want 2, %q", code, stderr, want)
	}
}

func TestReplayPrints(t *testing.T) {
	log := digitsLog(t)
	code, out, stderr := runReplay(t, "", log, "--print")
	if code != 0 || strings.Count(out, "\n") != 13 || stderr != "" {
		t.Errorf("exit status %d: %s\n%s", code, stderr, out)
	}
	code, out, stderr = runReplay(t, "", log, "--print", "--cases", "--limit", "2")
	if code != 0 || out != "{\"input\":[1],\"label\":[1.5,2]}\n{\"input\":[2],\"label\":[1.5,2]}\n" || stderr != "2 of 2 queries have a label\n" {
		t.Errorf("exit status %d: %s\n%s", code, stderr, out)
	}
}

// The note about damage names the first damaged part.
func TestReplayOfADamagedLog(t *testing.T) {
	log := digitsLog(t)
	files, err := filepath.Glob(filepath.Join(log, "*.xlog"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("XLF1 cut off"); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := runReplay(t, newFakeGateway(t).URL, log, "--rate", "max")
	if code != 0 || !strings.Contains(stderr, "1 part of the log could not be read and was left out; the first: ") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}
