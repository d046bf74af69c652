package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// points returns a profile whose mean and P99 are the same.
func points(sizesAndMillis ...float64) []ProfilePoint {
	var out []ProfilePoint
	for i := 0; i < len(sizesAndMillis); i += 2 {
		out = append(out, ProfilePoint{Queries: int(sizesAndMillis[i]), MeanMillis: sizesAndMillis[i+1], P99Millis: sizesAndMillis[i+1]})
	}
	return out
}

func TestFitLineFindsTheLineThatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := line{FixedMillis: rapid.Float64Range(0.01, 10).Draw(t, "fixed"), PerQueryMillis: rapid.Float64Range(1e-4, 1).Draw(t, "per query")}
		var on []ProfilePoint
		for _, n := range profileSizes(rapid.IntRange(2, 20000).Draw(t, "most")) {
			on = append(on, ProfilePoint{Queries: n, MeanMillis: want.at(float64(n))})
		}
		got := fitLine(on)
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*want.at(1)+1e-6*math.Abs(b) }
		if !near(got.FixedMillis, want.FixedMillis) || !near(got.PerQueryMillis, want.PerQueryMillis) || got.R2 < 0.999 {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestFitLineWeighsSmallBatchesToo(t *testing.T) {
	// An error of 10 % in the largest batch changes the fixed part only a little. With absolute errors it would change it a lot.
	got := fitLine(points(1, 1.01, 10, 1.1, 100, 2, 1000, 12.1))
	if got.FixedMillis < 0.9 || got.FixedMillis > 1.1 || got.R2 < 0.9 || got.R2 > 1 {
		t.Errorf("got %+v", got)
	}
	if one := fitLine(points(4, 3)); one.FixedMillis != 3 || one.PerQueryMillis != 0 || one.R2 != 1 {
		t.Errorf("one point: %+v", one)
	}
}

func TestLargestWithin(t *testing.T) {
	for _, c := range []struct {
		name   string
		points []ProfilePoint
		size   int
		beyond bool
	}{
		{"none measured", nil, 0, false},
		{"not even one", points(1, 25, 2, 30), 0, false},
		{"between two sizes", points(1, 5, 10, 15, 20, 25), 15, false},
		{"exactly one of them", points(1, 5, 10, 20, 20, 25), 10, false},
		{"more than was measured", points(1, 5, 10, 15), 10, true},
		{"a small one had bad luck", points(1, 40, 10, 15, 20, 25), 15, false},
	} {
		if size, beyond := largestWithin(c.points, 20); size != c.size || beyond != c.beyond {
			t.Errorf("%s: got %d, %v, want %d, %v", c.name, size, beyond, c.size, c.beyond)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []int
	}{
		{"profile", profileSizes(16), []int{1, 2, 4, 8, 16}},
		{"profile, not a power of two", profileSizes(20), []int{1, 2, 4, 8, 16, 20}},
		{"between", between(32, 64), []int{40, 48, 56}},
		{"between, no room", between(1, 2), nil},
		{"between, little room", between(2, 4), []int{3}},
		{"static", staticSizes(100, 3, 4096), []int{50, 87, 150}},
		{"static, one", staticSizes(100, 1, 4096), []int{87}},
		{"static, bounded", staticSizes(4096, 3, 4096), []int{2048, 3547, 4096}},
		{"static, small", staticSizes(1, 8, 4096), []int{1, 2}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func strategy(name string, static int, p99 float64, qps ...float64) Strategy {
	s := Strategy{Name: name, Static: static, P99Millis: p99, Batches: 100}
	for _, q := range qps {
		s.Rounds = append(s.Rounds, Sample{QPS: q, MeanBatch: float64(max(static, 1))})
	}
	return s
}

func TestBestStatic(t *testing.T) {
	aimd, fast := strategy("aimd", 0, 15, 900), strategy("static 80", 80, 21, 1000)
	slow, good := strategy("static 40", 40, 10, 500, 700), strategy("static 60", 60, 20, 500, 1000)
	if got := bestStatic([]Strategy{aimd, fast, slow, good}, 20); got == nil || got.Name != "static 60" {
		t.Errorf("got %+v", got)
	}
	if got := bestStatic([]Strategy{aimd, fast}, 20); got != nil {
		t.Errorf("none is within the objective, got %+v", got)
	}
	if got := ratios(&good, &slow); !slices.Equal(got, []float64{1, 1000. / 700}) {
		t.Errorf("ratios: %v", got)
	}
}

func TestJudgeCountsLateBatches(t *testing.T) {
	var s Strategy
	s.judge([]int64{19e6, 20e6, 21e6, 22e6})
	if s.Batches != 4 || s.P99Millis != 22 || s.LateShare != 0.5 {
		t.Errorf("got %+v", s)
	}
}

func TestSampleCountsFromTheFirstBatchToTheLast(t *testing.T) {
	records := []batchRecord{{queries: 100, at: 1e9}, {queries: 10, at: 2e9}, {queries: 30, at: 3e9}, {queries: 7, at: 9e9}}
	in := window{from: 1e9, to: 9e9}.of(records)
	if len(in) != 3 {
		t.Fatalf("in the window: %v", in)
	}
	if got, want := (&saturated{records: in, cpu: 280 * time.Microsecond}).sample(), (Sample{QPS: 20, MeanBatch: 140. / 3, CPUMicros: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (&saturated{records: records[:1]}).sample(); got.QPS != 0 {
		t.Errorf("one batch: %+v", got)
	}
}

func TestCapWatch(t *testing.T) {
	second := api.Nanos(time.Second)
	w := capWatch{settleWindow: 2 * second, max: 1000}
	for i, c := range []struct {
		at   api.Nanos
		size int
		want bool
	}{
		{10 * second, 1, false},
		{11 * second, 100, false},
		{12 * second, 90, false}, // fell, and comes back
		{12 * second, 101, false},
		{13 * second, 110, false}, // grows again
		{14 * second, 112, false}, // by less than 2 %
		{15 * second, 112, true},
		{15 * second, 200, false},
		{15 * second, 1000, true},
	} {
		if got := w.settled(c.at, c.size); got != c.want {
			t.Errorf("step %d: settled %v, want %v", i, got, c.want)
		}
	}
}

func TestDelaySample(t *testing.T) {
	o := offered{
		records:   []batchRecord{{queries: 3, evalNanos: 1e8}, {queries: 1, evalNanos: 3e8}},
		latencies: []int64{1e6, 2e6, 3e6, 4e6}, seconds: 2, cpu: 8 * time.Millisecond,
	}
	want := DelaySample{QPS: 2, MeanBatch: 2, P50Millis: 2, P99Millis: 4, CPUMicros: 2000, Busy: 0.2}
	if diff := cmp.Diff(want, delaySample(o)); diff != "" {
		t.Error(diff)
	}
}
