package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/bench/loadgen"
)

const ms = time.Millisecond

func TestJudge(t *testing.T) {
	at := time.Now()
	for _, c := range []struct {
		name   string
		answer loadgen.Answered
		want   end
	}{
		{"in time", loadgen.Answered{Status: 200, Due: at, Done: at.Add(50 * ms)}, inTime},
		{"late", loadgen.Answered{Status: 200, Due: at, Done: at.Add(50*ms + 1)}, late},
		{"wrong, and late", loadgen.Answered{Status: 200, Wrong: true, Due: at, Done: at.Add(time.Second)}, broken},
		{"default, and late", loadgen.Answered{Status: 200, Default: true, Due: at, Done: at.Add(time.Second)}, defaulted},
		{"refused, and late", loadgen.Answered{Status: 503, Due: at, Done: at.Add(time.Second)}, refused},
		{"expired", loadgen.Answered{Status: 504, Due: at, Done: at.Add(50 * ms)}, expired},
		{"an error", loadgen.Answered{Status: 502, Due: at, Done: at.Add(ms)}, broken},
	} {
		if got := judge(c.answer, 50*ms); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTraceIsCutByAnswer(t *testing.T) {
	all := trace{{0, 10 * ms, inTime}, {5 * ms, 6 * ms, refused}, {0, 70 * ms, late}, {15 * ms, 20 * ms, inTime}}
	part := all.between(10*ms, 70*ms)
	if want := (trace{all[0], all[3]}); !slices.Equal(part, want) {
		t.Errorf("got %v, want %v", part, want)
	}
	if n := all.count(inTime); n != 2 {
		t.Errorf("%d in time, want 2", n)
	}
	if got := all.millis(inTime, late); !slices.Equal(got, []float64{10, 70, 5}) {
		t.Errorf("latencies %v, want 10, 70, 5", got)
	}
}

func TestWindows(t *testing.T) {
	all := trace{
		{0, 99 * ms, inTime}, // before the load
		{100 * ms, 100 * ms, inTime}, {110 * ms, 199 * ms, late}, {120 * ms, 200 * ms, expired}, {130 * ms, 200 * ms, refused}, {130 * ms, 349 * ms, inTime}, {140 * ms, 349 * ms, defaulted},
		{300 * ms, 401 * ms, inTime}, // after the last window
	}
	want := []Window{{0, 1, 1, 0}, {100, 0, 1, 1}, {200, 1, 0, 0}}
	if diff := cmp.Diff(want, all.windows(100*ms, 402*ms)); diff != "" {
		t.Error(diff)
	}
}

// every returns answers at a steady rate.
func every(gap, from, to time.Duration, e end) trace {
	var t trace
	for at := from; at < to; at += gap {
		t = append(t, reply{at - ms, at, e})
	}
	return t
}

func TestRecovery(t *testing.T) {
	const at, until = 1000 * ms, 2000 * ms
	for _, c := range []struct {
		name  string
		trace trace
		want  time.Duration
		ok    bool
	}{
		{"at once", every(10*ms, 0, until, inTime), 0, true},
		{"refusals before the end of the flood do not count", slices.Concat(every(10*ms, 0, at, refused), every(10*ms, at, until, inTime)), 0, true},
		{"a refusal after it", slices.Concat(every(10*ms, 0, until, inTime), trace{{1140 * ms, 1150 * ms, refused}}), 0, true},
		{"a refusal soon after it", slices.Concat(every(10*ms, 0, until, inTime), trace{{1020 * ms, 1030 * ms, refused}}), 30*ms + 1, true},
		{"one in each span, up to a point", slices.Concat(every(10*ms, at, until, inTime), every(90*ms, at, 1500*ms, late)), 450*ms + 1, true},
		{"one in each span, always", slices.Concat(every(10*ms, at, until, inTime), every(90*ms, at, until, refused)), 0, false},
		{"a default is no prediction", slices.Concat(every(10*ms, at, until, inTime), every(50*ms, at, 1200*ms, defaulted)), 150*ms + 1, true},
		{"silence is no proof", every(10*ms, 1400*ms, until, inTime), 300*ms + 1, true},
		{"nothing at all", nil, 0, false},
		{"too late to tell", slices.Concat(every(10*ms, at, 1950*ms, refused), every(10*ms, 1950*ms, until, inTime)), 0, false},
		{"just in time to tell", slices.Concat(every(10*ms, at, 1890*ms, refused), every(10*ms, 1890*ms, until, inTime)), 880*ms + 1, true},
	} {
		shuffled := slices.Clone(c.trace)
		slices.Reverse(shuffled) // answers of several streams come in no order
		got, ok := shuffled.recovery(at, until)
		if diff := cmp.Diff([]any{c.want, c.ok}, []any{got, ok}); diff != "" {
			t.Errorf("%s (want -, got +):\n%s", c.name, diff)
		}
	}
}
