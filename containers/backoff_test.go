package containers

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	b := Backoff{First: 100 * ms, Max: 30 * time.Second, Healthy: 30 * time.Second}
	for _, tc := range []struct {
		name      string
		b         Backoff
		failures  int
		healthy   time.Duration
		u         float64
		wantCount int
		wantDelay time.Duration
	}{
		{"the first, least", b, 0, 0, 0, 1, 50 * ms},
		{"the first, middle", b, 0, 0, 0.5, 1, 75 * ms},
		{"the second", b, 1, 0, 0.5, 2, 150 * ms},
		{"the third", b, 2, 0, 0.5, 3, 300 * ms},
		{"the fifth", b, 4, 0, 0.5, 5, 1200 * ms},
		{"the ninth: 25.6 s are not yet the most", b, 8, 0, 0, 9, 12800 * ms},
		{"the tenth: 51.2 s are cut to 30", b, 9, 0, 0, 10, 15 * time.Second},
		{"many", b, 1 << 40, 0, 0.5, 1<<40 + 1, 22500 * ms},
		{"ready, but not for long", b, 4, 29 * time.Second, 0.5, 5, 1200 * ms},
		{"healthy, then a crash", b, 4, 30 * time.Second, 0.5, 1, 75 * ms},
		{"never ready, where any readiness is enough", Backoff{First: 100 * ms, Max: time.Second}, 2, 0, 0, 3, 200 * ms},
		{"ready, where any readiness is enough", Backoff{First: 100 * ms, Max: time.Second}, 2, 1, 0, 1, 50 * ms},
		{"long in vain", Backoff{First: 100 * ms, Max: time.Second, LongAfter: 4, Long: time.Minute}, 4, 0, 0.5, 5, 45 * time.Second},
		{"not yet long", Backoff{First: 100 * ms, Max: time.Second, LongAfter: 4, Long: time.Minute}, 3, 0, 0.5, 4, 600 * ms},
		{"long, but healthy in between", Backoff{First: 100 * ms, Max: time.Second, Healthy: time.Second, LongAfter: 4, Long: time.Minute}, 40, time.Second, 0.5, 1, 75 * ms},
		{"a first delay over the most", Backoff{First: time.Minute, Max: time.Second}, 3, 0, 0, 4, 500 * ms},
		{"a most that cannot be doubled to", Backoff{First: 1, Max: 1<<63 - 1}, 70, 0, 0, 71, (1<<63 - 1) / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			count, delay := tc.b.After(tc.failures, tc.healthy, tc.u)
			if count != tc.wantCount || delay != tc.wantDelay {
				t.Errorf("After(%d, %v, %v) = %d, %v, expected %d, %v", tc.failures, tc.healthy, tc.u, count, delay, tc.wantCount, tc.wantDelay)
			}
		})
	}
}

// The delay is always between half of First and Max, and more failures never shorten it.
func TestBackoffBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := DefaultBackoff
		failures := rapid.IntRange(0, 1000).Draw(t, "failures")
		healthy := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "healthy"))
		u := rapid.Float64Range(0, 0.999999).Draw(t, "u")
		count, delay := b.After(failures, healthy, u)
		if count < 1 || count > failures+1 || delay < b.First/2 || delay > b.Long {
			t.Fatalf("%d failures, delay %v", count, delay)
		}
		if _, longer := b.After(failures+1, healthy, u); longer < delay {
			t.Fatalf("%v after %d failures, %v after one more", delay, failures, longer)
		}
	})
}

// A process has ended itself unless a signal from outside, or the loss of a part of the runtime, has ended it.
func TestExitOwn(t *testing.T) {
	for _, tc := range []struct {
		exit Exit
		own  bool
	}{
		{Exit{}, true}, {Exit{Code: 3}, true}, {Exit{Code: -1, Signal: 11}, true}, {Exit{Code: 139}, true}, {Exit{Code: -1, Signal: 6}, true},
		{Exit{Code: -1, Signal: 9, Cause: OutOfMemory, Reason: "it exceeded its limit"}, true},
		{Exit{Code: -1, Signal: 9}, false}, {Exit{Code: -1, Signal: 15}, false}, {Exit{Code: 137}, false}, {Exit{Code: 143}, false},
		{Exit{Code: -1, Cause: Lost, Reason: "lost"}, false}, {Exit{Code: -1, Reason: "could not be started"}, false},
	} {
		if own := tc.exit.Own(); own != tc.own {
			t.Errorf("%+v: own %v, expected %v", tc.exit, own, tc.own)
		}
	}
}

func TestExitWords(t *testing.T) {
	for want, exit := range map[string]Exit{
		"exited with code 0": {},
		"exited with code 3": {Code: 3},
		"exited with code 127 (from a shell: the command was not found)":                                                  {Code: 127},
		"exited with code 139 (from a shell: the command was ended by SIGSEGV (an invalid memory access in native code))": {Code: 139},
		"ended by SIGKILL (killed from outside: the kernel does this when memory runs out)":                               {Code: -1, Signal: 9},
		"ended by signal 40": {Code: -1, Signal: 40},
		"lost":               {Code: -1, Reason: "lost"},
	} {
		if got := exit.String(); got != want {
			t.Errorf("%+v: %q, expected %q", exit, got, want)
		}
	}
}
