package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// More clients than the queue has room for: those beyond are told so at once, by 503 and Retry-After, or by the default; the
// others are answered; and the bound of the queue holds.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	const room = 16
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "batching: {policy: none}", "timeout: 10m", fmt.Sprintf("queue: {max: %d}", room)),
		function("f", "m", "slo: 60s"), function("g", "m", "slo: 60s", theDefault)))
	release := occupy(g, "f", "m")
	waiting := g.startLoad("f", room, room)
	g.awaitMetric(room, "queue_length", "m")

	// The queue is full and stays so: the worker is busy.
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
		t.Errorf("those that waited ended in %v: expected %d predictions", ends, room)
	}

	// A closed loop of many more: each request ends in one of the two ways.
	many := g.startLoad("f", 100, 3000)
	many.wg.Wait()
	ends := judge(t, many.stop(), "ok", "overloaded")
	if ends["ok"] == 0 {
		t.Errorf("under overload the ends are %v: expected that goodput stays", ends)
	}
	t.Logf("%v", ends)
}

// occupy stops the only worker of a model of policy none, and gives it a query and the place behind it another, so that what comes
// next waits in the queue until release lets the worker go on. The model's timeout must be long.
func occupy(g *gateway, function, model string) (release func()) {
	g.t.Helper()
	pid := g.awaitReplicas(model, 1).Replicas[0].PID
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			g.t.Errorf("signal %v to worker %d: %v", s, pid, err)
		}
	}
	signal(syscall.SIGSTOP)
	g.await("every thread of the worker to stop", func(context.Context) (bool, string) { return stopped(pid) })
	resume := sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	g.t.Cleanup(resume)
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

// stopped reports whether no thread of a process runs.
func stopped(pid int) (bool, string) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, fmt.Sprintf("no threads of %d (%v)", pid, err)
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if _, rest, ok := strings.Cut(string(stat), ") "); !ok || rest[0] != 'T' {
			return false, string(stat)
		}
	}
	return true, ""
}

// Large bodies that cannot be evaluated are refused by the bytes that wait, long before their number reaches a bound: the gateway's
// memory stays bounded.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil, "batching: {policy: none}", "timeout: 10m"), function("f", "m", "slo: 60s")))
	release := occupy(g, "f", "m")
	// 384 MiB want in; what waits may hold 256 MiB (scheduler.DefaultMaxQueueBytes).
	const clients, bodyBytes = 48, 8 << 20
	body := append([]byte("bad"), make([]byte, bodyBytes)...) // taken, it is answered by a code: small
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
	// The worker is busy, so the first to be answered is one for which there was no room.
	counts := map[string]int{<-ends: 1}
	release()
	for range clients - 1 {
		counts[<-ends]++
	}
	if counts["bad_output"]+counts["overloaded"] != clients || counts["bad_output"] == 0 || counts["overloaded"] == 0 {
		t.Errorf("the ends are %v: expected bad_output for those that were taken, and overloaded", counts)
	}
	// A few times the bodies: buffers grow by doubling, and the collector lags. The race detector shadows every word.
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

// peakMiB is the most memory that a process has had resident.
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
