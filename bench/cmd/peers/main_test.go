package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/bench/internal/processes"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const folder = "../../peers"

var queries = Queries{Inputs: [][]float64{{0, 0.5, -3.75}, {16, 0.5, -3.75}}, Outputs: []int64{1, 12}}

// The folders of bench/peers are complete: what a server needs is there, pinned, and its request is JSON.
func TestPeersAreComplete(t *testing.T) {
	all, err := readPeers(folder)
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Name != ours {
		t.Errorf("the first is %s", all[0].Name)
	}
	for _, p := range all {
		info, err := os.Stat(filepath.Join(p.folder, "start"))
		if err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s: start is no program: %v", p.Name, err)
		}
		pins, err := os.ReadFile(filepath.Join(p.folder, "requirements.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(pins)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, "==") {
				t.Errorf("%s: requirements.txt has %q: expected an exact version", p.Name, line)
			}
		}
		for i, want := range []string{"0.0,0.5,-3.75", "16.0,0.5,-3.75"} {
			body := fill(p.Body, "digits", queries, i)
			if !json.Valid([]byte(body)) || !strings.Contains(body, "["+want+"]") || strings.Contains(body, "@") {
				t.Errorf("%s: body %s", p.Name, body)
			}
		}
		if one, twelve := fill(p.Answer, "digits", queries, 0), fill(p.Answer, "digits", queries, 1); strings.Contains(twelve, one) {
			t.Errorf("%s: the output 1 (%s) is found in an answer with 12 (%s)", p.Name, one, twelve)
		}
		if p.Name != ours && p.Version == "" {
			t.Errorf("%s has no version", p.Name)
		}
	}
}

// What a server lacks is named.
func TestAPeerThatIsIncompleteIsRefused(t *testing.T) {
	dir := t.TempDir()
	put := func(name, peer, pins string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"peer.json": peer, "requirements.txt": pins} {
			if err := os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const good = `{"title":"A","about":"a page","tuning":"none","ready":"/","path":"/","package":"a","body":"@ROW@","answer":"@OUTPUT@}"}`
	for _, c := range []struct{ peer, pins, want string }{
		{good, "a==1.0\n", "has no xebec/peer.json"},
		{good, "a>=1.0\n", "does not pin a"},
		{strings.Replace(good, "@ROW@", "1", 1), "a==1", "no @ROW@"},
		{strings.Replace(good, "@OUTPUT@}", "@OUTPUT@", 1), "a==1", "something after it"},
		{strings.Replace(good, `"a page"`, `""`, 1), "a==1", "about is missing"},
		{"{", "a==1", "peer.json"},
	} {
		put("a", c.peer, c.pins)
		if _, err := readPeers(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: got %v, want %q", c.peer, c.pins, err, c.want)
		}
	}
}

func TestLoadsAreWhatTheySay(t *testing.T) {
	names := map[string]bool{}
	for _, l := range loads {
		if names[l.Name()] || l.Clients < 1 || l.Rate > 0 && l.GRPC {
			t.Errorf("%s: %+v", l.Name(), l)
		}
		names[l.Name()] = true
	}
}

// The offered requests are those that the load generator's schedule has between warm-up and end.
func TestOffered(t *testing.T) {
	s, err := loadgen.NewSchedule(500, loadgen.Poisson, 7, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for due := s.Next(); due < int64(3*time.Second); due = s.Next() {
		if due >= int64(time.Second) {
			want++
		}
	}
	got, err := offered(500, 7, time.Second, 2*time.Second)
	if err != nil || got != want || got < 800 || got > 1200 {
		t.Errorf("%d offered, %v; the schedule has %d", got, err, want)
	}
	if _, err := offered(-1, 7, time.Second, time.Second); err == nil {
		t.Error("a negative rate was accepted")
	}
}

func TestInTime(t *testing.T) {
	if got := inTime([]float64{100, 50_000, 50_001}, 4, 50*time.Millisecond); got != 0.5 {
		t.Errorf("%v in time, want 2 of 4", got)
	}
	if got := inTime(nil, 0, time.Second); got != 0 {
		t.Errorf("nothing was offered and %v was in time", got)
	}
}

func TestOutputsOfGRPC(t *testing.T) {
	raw := &pb.ModelInferResponse{RawOutputContents: [][]byte{{2, 1, 0, 0, 0, 0, 0, 0}}}
	typed := &pb.ModelInferResponse{Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Contents: &pb.InferTensorContents{Int64Contents: []int64{258}}}}}
	for _, m := range []*pb.ModelInferResponse{raw, typed} {
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := accepts(message, 258); err != nil {
			t.Error(err)
		}
		if err := accepts(message, 257); err != (wrongOutput{258, 257}) {
			t.Errorf("257 for 258: %v", err)
		}
	}
	if err := accepts(nil, 0); err == nil {
		t.Error("a message without outputs was accepted")
	}
	request, err := encode("m", []float64{1.5, -2}, map[string]int64{"slo_ms": 9})
	if err != nil {
		t.Fatal(err)
	}
	var m pb.ModelInferRequest
	if err := proto.Unmarshal(request, &m); err != nil || m.Parameters["slo_ms"].GetInt64Param() != 9 || string(m.RawInputContents[0]) != "\x00\x00\xc0\x3f\x00\x00\x00\xc0" {
		t.Errorf("got %s, %v", m.String(), err)
	}
}

func TestSplit(t *testing.T) {
	source := &SplitSource{Queue: []string{"queue_sum"}, QueueCount: "queue_count", Predict: []string{"run_sum"}, PredictCount: "run_count", Micros: 1e6}
	page := func(queue, n, run, batches string) string {
		return "queue_sum{model=\"a\"} " + queue + "\nqueue_sum_other{model=\"a\"} 99\nqueue_count{model=\"a\"} " + n + "\nrun_sum{model=\"a\"} " + run + "\nrun_count{model=\"a\"} " + batches + "\n"
	}
	before, err1 := source.totals(page("1", "10", "2", "5"))
	after, err2 := source.totals(page("1.5", "20", "2.1", "10"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	got, err := source.since(before, after, 80_000)
	if err != nil || math.Abs(got.QueueMicros-50_000) > 1e-3 || math.Abs(got.PredictMicros-20_000) > 1e-3 || math.Abs(got.OverheadMicros-10_000) > 1e-3 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := source.since(before, before, 1); err == nil {
		t.Error("no queries, and no error")
	}
	if _, err := source.totals("other{} 1\n"); err == nil || !strings.Contains(err.Error(), "no queue_sum") && !strings.Contains(err.Error(), "no ") {
		t.Errorf("missing metrics: %v", err)
	}
}

// Ratios are taken within each round, losses stand where wins do, and what is missing says why.
func TestReport(t *testing.T) {
	sample := func(peer string, round int, rps, cpu float64) Sample {
		return Sample{Peer: peer, Round: round, RPS: rps, P50Millis: 1, P99Millis: 2, CPUMicros: cpu, MemoryMiB: 100}
	}
	slow := sample("slow", 2, 100, 40)
	slow.Failed, slow.Why = 7, "7 answers of status 503"
	r := Report{
		Rounds: 2, ObjectiveMillis: 50,
		Peers:    []*Peer{{Name: ours, Title: "Xebec", Tuning: "t", About: "a"}, {Name: "fast", Title: "Fast", Version: "1.2"}, {Name: "slow", Title: "Slow"}, {Name: "gone", Title: "Gone", Missing: "no\nwheel"}},
		Failures: []Failure{{Peer: "fast", Model: "m", Why: "it ended"}}, NotTried: []Failure{{Peer: "Other", Why: "large"}},
		Measurements: []Measurement{
			{LoadName: "m, 64 clients", Load: Load{Model: "m", Clients: 64}, Samples: []Sample{
				sample(ours, 1, 1000, 10), sample("fast", 1, 2000, 5), sample("slow", 1, 500, 20), sample(ours, 2, 200, 20), sample("fast", 2, 400, 10), slow,
			}},
			{LoadName: "m, open, 100/s", Load: Load{Model: "m", Clients: 256, Rate: 100}, Samples: []Sample{
				{Peer: ours, Round: 1, InTime: 1, P50Millis: 1, P99Millis: 3}, {Peer: "slow", Round: 1, InTime: 0.5, P50Millis: 40, P99Millis: 2000}, {Peer: "fast", Round: 1, Failed: 1, Why: "it ended"},
			}},
		},
	}
	r.Measurements[0].Samples[0].Split = &Split{1, 2, 3}
	resultstest.Contains(t, r.Markdown(),
		"| Fast | 1.2 |", "- Gone could not be had: no wheel", "- Fast with the model m was not measured: it ended", "- Other was not tried: large",
		"| Fast | 1200 | 2.00 (2.00–2.00) | 1.00 | 2.00 | 8 | 0.50 (0.50–0.50) | 100 | 1.00 (1.00–1.00) |\n| Xebec | 600 | 1.00 (1.00–1.00) |",
		"| Slow | 300 | 0.50 (0.50–0.50) |", "- Slow: 7 requests without a right output: 7 answers of status 503",
		"| Xebec | 100 | 1.00 (no interval) | 100.0 % | 1.00 | 3.00 | met |", "| Slow | 50 | 0.50 (no interval) | 50.0 % | 40.00 | 2000.00 | **missed** |",
		"| Fast | 0 | – | 0.0 % | 0.00 | 0.00 | **missed** |",
		"| m, 64 clients | Xebec | 2 | 1 | 3 |")
	if r.Empty() || !(&Report{Measurements: []Measurement{{}}}).Empty() {
		t.Error("Empty is wrong")
	}
}

func TestGoodput(t *testing.T) {
	if got := (Sample{InTime: 0.25}).GoodputRPS(Load{Rate: 400}); got != 100 {
		t.Errorf("got %v", got)
	}
}

// The whole comparison is meant to take less than 25 minutes.
func TestExpected(t *testing.T) {
	all, err := readPeers(folder)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config{rounds: 5, warmup: 300 * time.Millisecond, duration: 1300 * time.Millisecond, loads: regexp.MustCompile("")}
	whole := expected(cfg, all)
	if whole < 15*time.Minute || whole > 25*time.Minute {
		t.Errorf("%v", whole)
	}
	cfg.loads = regexp.MustCompile("gRPC")
	if part := expected(cfg, all); part <= 0 || part > whole/4 {
		t.Errorf("%v for gRPC alone, of %v", part, whole)
	}
}

// What a server has left is removed, and another process's is not.
func TestRemoveLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"shm17-a", "shm17-b", "shm170-a"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &Peer{Leaves: []string{filepath.Join(dir, "shm@PID@-*")}}
	if err := p.removeLeft(processes.Set{{PID: 17}, {PID: 18}}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "shm170-a" {
		t.Errorf("left are %q (%v), expected shm170-a", left, err)
	}
}
