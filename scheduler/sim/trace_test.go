package sim

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

func TestParseTrace(t *testing.T) {
	f, err := os.Open("testdata/example.trace")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := ParseTrace(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := trace.Names(), []string{"classify", "rank"}; !slices.Equal(got, want) {
		t.Errorf("functions %v, expected %v", got, want)
	}
	if got, want := trace["classify"], []api.Nanos{0, 2e6, 4e6, 12.5e6, 100e6}; !slices.Equal(got, want) {
		t.Errorf("classify %v, expected %v", got, want)
	}
	if got, want := trace["rank"], []api.Nanos{50e6, 75e6}; !slices.Equal(got, want) {
		t.Errorf("rank %v, expected %v", got, want)
	}
}

func TestParseTraceErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"1s", "line 1: 1 words"},
		{"\n# fine\n1s a b", "line 3: 3 words"},
		{"soon a", `line 1: offset "soon"`},
		{"-1s a", "from 0 to"},
		{"800h a", "from 0 to"},
		{"744h 1s a 5", "it ends after"},
		{"0s 1x a 5", `length "1x"`},
		{"0s 1s a five", `number "five"`},
		{"0s 1s a -5", `number "-5"`},
		{"0s 1s a 20000000", `number "20000000"`},
		{strings.Repeat("0s 0s a 9000000\n", 2), "line 2: more than"},
		{"0s " + strings.Repeat("x", maxTraceLine), "after line 0"},
	} {
		if _, err := ParseTrace(strings.NewReader(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.40q: expected an error with %q, got %v", test.text, test.want, err)
		}
	}
}

// FuzzParseTrace: an accepted trace is in order and within bounds, and reads back the same after being written.
func FuzzParseTrace(f *testing.F) {
	f.Add("0s a\n12.5ms b # c\n\n1s 100ms a 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ParseTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		total := 0
		for name, times := range trace {
			if !slices.IsSorted(times) {
				t.Fatalf("%q is not in order", name)
			}
			if n := len(times); n > 0 && (times[0] < 0 || times[n-1] > api.Nanos(maxTraceSpan)) {
				t.Fatalf("%q is out of bounds: %d to %d", name, times[0], times[n-1])
			}
			total += len(times)
		}
		if total > 10_000 {
			return // writing it takes long and shows no more
		}
		var out bytes.Buffer
		for _, name := range trace.Names() {
			for _, at := range trace[name] {
				fmt.Fprintf(&out, "%s %s\n", time.Duration(at), name)
			}
		}
		again, err := ParseTrace(&out)
		if err != nil {
			t.Fatalf("cannot read the trace that was written: %v", err)
		}
		for _, name := range trace.Names() {
			if !slices.Equal(trace[name], again[name]) {
				t.Fatalf("%q: %v became %v", name, trace[name], again[name])
			}
		}
	})
}

// TestTraffic: each shape has its specified rate, and its queries come in order.
func TestTraffic(t *testing.T) {
	const second = 1e9
	for _, test := range []struct {
		name string
		t    Traffic
		want float64 // queries in 100 s
	}{
		{"steady", Traffic{Shape: Steady, Rate: 100}, 10_000},
		{"steady, part of the time", Traffic{Shape: Steady, Rate: 100, From: 20 * second, Until: 30 * second}, 1000},
		{"square", Traffic{Shape: Square, Rate: 50, Peak: 250, Period: second, Duty: 0.25}, 10_000},
		{"switching", Traffic{Shape: Switching, Rate: 50, Peak: 250, Period: second / 10, Duty: 0.25}, 10_000},
		{"daily", Traffic{Shape: Daily, Rate: 0, Peak: 200, Period: second}, 10_000},
		{"off and on", Traffic{Shape: Switching, Peak: 200, Period: second / 10, Duty: 0.5}, 10_000},
		{"recorded", Traffic{Shape: Recorded, Times: []api.Nanos{5, 7, 7, 200 * second}}, 3},
		{"nothing", Traffic{Shape: Steady}, 0},
	} {
		s := &source{Traffic: test.t, rng: stream(1, 1)}
		n, last := 0, api.Nanos(0)
		for at := s.after(0); at < 100*second; at = s.after(at) {
			if at < last {
				t.Fatalf("%s: %d after %d", test.name, at, last)
			}
			last = at
			n++
		}
		if math.Abs(float64(n)-test.want) > 0.1*test.want {
			t.Errorf("%s: %d queries, expected about %.0f", test.name, n, test.want)
		}
	}
}
