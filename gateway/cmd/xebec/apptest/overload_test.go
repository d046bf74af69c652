package apptest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// More clients than the queue has room for. Those beyond are refused at once, by 503 and Retry-After or by the default;
// the others are answered. The queue keeps within its bound.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	const room = 16
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "batching: {policy: none}", "timeout: 10m", "cache: off", fmt.Sprintf("queue: {max: %d}", room)),
		function("f", "m", "slo: 60s"), function("g", "m", "slo: 60s", theDefault)))
	release := occupy(g, "f", "m")
	waiting := g.startLoad("f", room, room)
	g.awaitMetric(room, "queue_length", "m")

	// The queue is full and stays full, because the worker is busy.
	for range 50 {
		if a := g.raw("f", "one too many"); a.Status != 503 || a.Code != "overloaded" || a.Header.Get("Retry-After") == "" {
			t.Fatalf("a query beyond the bound was answered by %v, Retry-After %q: expected 503 overloaded", a, a.Header.Get("Retry-After"))
		}
		if a := g.raw("g", "one too many"); !a.Default || a.DefaultExplanation != api.Overloaded.Reason() || a.text() != defaultText {
			t.Fatalf("a query beyond the bound, with a default, was answered by %v", a)
		}
		if m := g.model("m"); m.QueueDepth > room {
			t.Fatalf("%d queries wait: expected at most %d", m.QueueDepth, room)
		}
	}
	release()
	if ends := judge(t, waiting.stop(), "ok"); ends["ok"] != room {
		t.Errorf("the waiting queries ended in %v: expected %d predictions", ends, room)
	}

	// A closed loop with many more clients: each request has one of the two outcomes.
	many := g.startLoad("f", 100, 3000)
	many.wg.Wait()
	ends := judge(t, many.stop(), "ok", "overloaded")
	if ends["ok"] == 0 {
		t.Errorf("under overload the outcomes are %v: expected that goodput stays", ends)
	}
	t.Logf("%v", ends)
}

// occupy stops the only worker of a model with policy none, and fills the worker and the batch behind it with a query
// each. Later queries wait in the queue until release resumes the worker. The model's timeout must be long.
func occupy(g *gateway, function, model string) (release func()) {
	g.t.Helper()
	resume := stall(g, model)
	var wg sync.WaitGroup
	ctx := bounded(g.t)
	for range 2 {
		wg.Go(func() {
			if a, err := g.post(ctx, "/"+function+"/predict", "text/plain", []byte("first")); err != nil || !a.predicted() {
				g.t.Errorf("a query that occupies the worker: %v %v", a, err)
			}
		})
	}
	g.awaitMetric(2, "in_flight", model)
	return func() {
		resume()
		wg.Wait()
	}
}

// freeze stops a process until thaw is called or the test ends.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	thaw = sync.OnceFunc(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && err != syscall.ESRCH { // it may have been killed meanwhile
			t.Errorf("resume process %d: %v", pid, err)
		}
	})
	t.Cleanup(thaw)
	if err := poll(t.Context(), func(context.Context) (bool, string) { return stopped(pid) }); err != nil {
		t.Fatalf("waited for every thread of process %d to stop: %v", pid, err)
	}
	return thaw
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) (bool, string) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, fmt.Sprintf("no threads of %d (%v)", pid, err)
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if _, rest, ok := strings.Cut(string(stat), ") "); !ok || rest[0] != 'T' {
			return false, string(stat)
		}
	}
	return true, ""
}

// Large bodies that cannot be evaluated are refused by their total bytes, long before their number reaches a bound, so
// the gateway's memory stays bounded.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil, "batching: {policy: none}", "timeout: 10m", "cache: off"), function("f", "m", "slo: 60s")))
	release := occupy(g, "f", "m")
	// The bodies have 384 MiB; the queue may hold 256 MiB (scheduler.DefaultMaxQueueBytes).
	const clients, bodyBytes = 48, 8 << 20
	body := append([]byte("bad"), make([]byte, bodyBytes)...) // if accepted it is answered by a code, which is small
	ends := make(chan string, clients)
	ctx := bounded(t)
	for range clients {
		go func() {
			a, err := g.post(ctx, "/f/predict", "application/octet-stream", body)
			if err != nil {
				a.Code = err.Error()
			}
			ends <- a.Code
		}()
	}
	// The worker is busy, so the first answer is to a query that found no room.
	counts := map[string]int{<-ends: 1}
	release()
	for range clients - 1 {
		counts[<-ends]++
	}
	if counts["bad_output"]+counts["overloaded"] != clients || counts["bad_output"] == 0 || counts["overloaded"] == 0 {
		t.Errorf("the outcomes are %v: expected bad_output for accepted queries, and overloaded", counts)
	}
	// The limit is a few times the bodies: buffers grow by doubling and the garbage collector lags. The race detector
	// shadows every word.
	limitMiB := 3 * clients * bodyBytes >> 20
	if raceDetector {
		limitMiB *= 4
	}
	peak := peakMiB(t, g.cmd.Process.Pid)
	if peak > limitMiB {
		t.Errorf("the gateway had %d MiB resident: expected at most %d", peak, limitMiB)
	}
	t.Logf("%v; at most %d MiB resident", counts, peak)
}

// peakMiB returns the peak resident memory of a process.
func peakMiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return n >> 10
		}
	}
	t.Fatalf("no VmHWM in /proc/%d/status", pid)
	return 0
}

// slow is a Python model that takes a time set by its environment for each batch, whatever the size of the batch.
const slow = `
import os
import time

import xebec

def predict(batch):
    time.sleep(float(os.environ["EVALUATION_SECONDS"]))
    return batch

xebec.serve(predict)
`

// slowModel writes a model that evaluates two queries in 20 ms: a hundred a second on any machine. extra are additional
// lines.
func slowModel(t *testing.T, extra ...string) string {
	t.Helper()
	dir := newDir(t)
	writeFile(t, dir, "model.py", slow)
	writeFile(t, dir, "xebec.yaml", `
kind: Model
name: slow
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [python, model.py], env: {EVALUATION_SECONDS: "0.02"}}
batching: {policy: fixed, max: 2}
cache: off
`+strings.Join(extra, "\n"))
	return dir
}

// flood is an open loop: it keeps its rate regardless of the answers.
type flood struct {
	load
	done chan struct{}
}

// startFlood sends about a thousand requests a second with distinct raw inputs, to the functions in turn, until end is
// called.
func (g *gateway) startFlood(functions ...string) *flood {
	const (
		perTick  = 10
		mostOut  = 1000  // bounds open connections; a machine that cannot keep up sends less
		mostSent = 20000 // bounds a flood that is never ended
	)
	f := &flood{load: load{g: g}, done: make(chan struct{})}
	ctx := bounded(g.t)
	var out atomic.Int64
	send := func(n int64) {
		defer out.Add(-1)
		o := outcome{sent: fmt.Sprintf("input %d of the flood", n)}
		o.answer, o.err = g.post(ctx, "/"+functions[n%int64(len(functions))]+"/predict", "text/plain", []byte(o.sent))
		if o.err == nil && o.answer.predicted() {
			f.good.Add(1)
		}
		f.mu.Lock()
		f.all = append(f.all, o)
		f.mu.Unlock()
	}
	f.wg.Go(func() {
		tick := time.NewTicker(time.Second / 100)
		defer tick.Stop()
		for f.sent.Load() < mostSent {
			for range perTick {
				if out.Load() >= mostOut {
					break
				}
				out.Add(1)
				n := f.sent.Add(1)
				f.wg.Go(func() { send(n) })
			}
			select {
			case <-tick.C:
			case <-f.done:
				return
			}
		}
	})
	g.t.Cleanup(func() { f.end() })
	return f
}

// end stops the flood and returns the outcome of every request.
func (f *flood) end() []outcome {
	if f.stopped.CompareAndSwap(false, true) {
		close(f.done)
	}
	f.wg.Wait()
	return f.all
}

// refusals counts the requests that were refused at once as overloaded, and checks their answers.
func refusals(t *testing.T, all []outcome) (refused, defaults int) {
	t.Helper()
	for _, o := range all {
		switch a := o.answer; {
		case a.Code == api.Overloaded.String():
			refused++
			if a.Status != 503 || a.Header.Get("Retry-After") == "" || a.Error == "" {
				t.Errorf("%q was refused by %v, Retry-After %q: expected status 503, a Retry-After and an error", o.sent, a, a.Header.Get("Retry-After"))
			}
		case a.Default:
			defaults++
			if a.Status != 200 || a.text() != defaultText {
				t.Errorf("%q got the default by %v", o.sent, a)
			}
		}
	}
	return refused, defaults
}

// accounted checks that the gateway counts the same outcomes by code as its clients, for the requests to these functions.
func accounted(g *gateway, want map[string]int, functions ...string) {
	g.t.Helper()
	g.await("the gateway's counters to agree with its clients", func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		got := map[string]int{}
		for sample, n := range m.samples {
			for _, f := range functions {
				if code, ok := strings.CutPrefix(sample, "xebec_function_requests_total{code="); ok && n > 0 && strings.HasSuffix(code, fmt.Sprintf(",function=%q}", f)) {
					code, _, _ = strings.Cut(code, ",")
					got[strings.Trim(code, `"`)] += int(n)
				}
			}
		}
		return maps.Equal(got, want), fmt.Sprintf("the gateway has %v, the clients %v", got, want)
	})
}

// wellAgain waits until a function answers so many consecutive requests by predictions.
func wellAgain(g *gateway, function string) {
	g.t.Helper()
	const inARow = 10
	n := 0
	g.await(fmt.Sprintf("%s to answer %d requests in a row", function, inARow), func(ctx context.Context) (bool, string) {
		for n = 0; n < inARow; n++ {
			a, err := g.post(ctx, "/"+function+"/predict", "text/plain", []byte("after the flood"))
			if err != nil || !a.predicted() {
				return false, fmt.Sprintf("%d in a row, then %v %v", n, a, err)
			}
		}
		return true, ""
	})
}

// A flood of ten times a model's capacity, of queries with a distant deadline. Some are served and the others refused for
// lack of room, each exactly once. After the flood the model serves as before.
func TestFloodIsServedOrRefused(t *testing.T) {
	t.Parallel()
	const enough = 60
	dir := slowModel(t, "queue: {max: 32}", function("f", "slow", "slo: 60s"))
	g := serve(t, "--config", dir, "--python", python(t))
	g.awaitReplicas("slow", 1)
	f := g.startFlood("f")
	f.served(enough)
	all := f.end()
	ends := judge(t, all, "ok", "overloaded")
	if refused, _ := refusals(t, all); ends["ok"] < enough || refused == 0 || ends["ok"]+refused != int(f.sent.Load()) {
		t.Errorf("%d requests ended in %v: expected at least %d predictions, some refusals, and nothing else", f.sent.Load(), ends, enough)
	}
	accounted(g, ends, "f")
	wellAgain(g, "f")
	t.Logf("%v", ends)
}

// The same with a deadline of half a second. Queries that would finish too late are refused on arrival, according to the
// replica's profile. A function that stays below its share of the same model loses no query. If there is a default,
// callers get that with the reason instead of a refusal.
//
// Admission is not a guarantee: on a machine that delays the worker an admitted query may still miss its deadline. So the
// flood's queries may miss theirs, and the quiet function's queries have a distant deadline.
func TestFloodLeavesOthersTheirShare(t *testing.T) {
	t.Parallel()
	const enough = 25
	dir := slowModel(t, function("f", "slow", "slo: 500ms"), function("d", "slow", "slo: 500ms", theDefault), function("quiet", "slow", "slo: 60s"))
	g := serve(t, "--config", dir, "--python", python(t))
	g.awaitReplicas("slow", 1)
	// The scheduler trusts a profile after 16 batches.
	warm := g.startLoad("quiet", 1, 20)
	warm.wg.Wait()

	f := g.startFlood("f", "d")
	f.served(1)
	// One query after the other: that is less than the third of the model that is this function's share.
	q := g.startLoad("quiet", 1, enough)
	q.wg.Wait()
	all := f.end()
	if ends := judge(t, append(q.stop(), warm.stop()...), "ok"); ends["ok"] != enough+20 {
		t.Errorf("during the flood the quiet function's queries ended in %v: expected predictions only", ends)
	}
	ends := judge(t, all, "ok", "overloaded", "default", "deadline_exceeded")
	refused, defaults := refusals(t, all)
	if ends["ok"] == 0 || refused == 0 || defaults == 0 || ends["ok"]+refused+defaults+ends["deadline_exceeded"] != int(f.sent.Load()) {
		t.Errorf("%d requests of the flood ended in %v: expected predictions, refusals and defaults", f.sent.Load(), ends)
	}
	reasons := map[string]int{}
	for _, o := range all {
		if o.answer.Default {
			reasons[o.answer.DefaultExplanation]++
		}
	}
	if n := reasons[api.Overloaded.Reason()]; n == 0 || n+reasons[api.DeadlineExceeded.Reason()] != defaults {
		t.Errorf("the reasons of %d defaults are %v: expected %q, or a missed deadline", defaults, reasons, api.Overloaded.Reason())
	}
	wellAgain(g, "f")
	wellAgain(g, "d")
	t.Logf("%v, defaults for %v", ends, reasons)
}
