package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

// The test program is its own worker, like the command.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := serveAsWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "ring worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// netpoll's pollers live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// With many calls in flight every way answers every slot with the beginning of its own request, and leaks nothing.
func TestEveryWayAnswers(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the workers end at once under the race detector too
	for _, w := range ways {
		for _, load := range []Load{{64, 64, 1}, {100, 64, 16}, {300 << 10, 8 << 10, 4}} {
			t.Run(fmt.Sprintf("%s %s", w.name, load), func(t *testing.T) {
				s, err := measure(t.Context(), w, load, 0, 20*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				if s.PerSecond <= 0 || s.P50Micros <= 0 || s.P99Micros < s.P50Micros {
					t.Errorf("got %+v", s)
				}
			})
		}
	}
}

func TestMarkdownTakesRatiosWithinRounds(t *testing.T) {
	round := func(socket, ring, worker float64) map[string]Sample {
		return map[string]Sample{"socket": {PerSecond: socket, P50Micros: socket}, "ring": {PerSecond: ring, P50Micros: ring}, "worker": {PerSecond: worker, P50Micros: worker}}
	}
	r := Report{Loads: []Measurement{
		{Load{64, 64, 64}, []map[string]Sample{round(1000, 2000, 3000), round(2000, 4000, 6000), round(1000, 2500, 3000)}},
		{Load{600 << 10, 64, 1}, []map[string]Sample{round(10, 5, 20)}},
	}}
	text := r.Markdown()
	resultstest.Contains(t, text,
		"| 64 B → 64 B, 64 in flight | thousands/s | 1.0 | 2.5 | 2.00 (2.00–2.50) | 3.0 | 3.00 (3.00–3.00) | ≥ 2.0 |",
		"| 600 KiB → 64 B, 1 in flight | p50, µs | 10.0 | 5.0 | 0.50 (0.50–0.50) | 20.0 | 2.00 (2.00–2.00) | ≤ 0.8 |",
	)
}
