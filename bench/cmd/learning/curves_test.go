package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	y = true // wrong
	n = false
)

func TestCumulative(t *testing.T) {
	got := cumulative([]bool{y, n, n, n, y, y, n}, 2)
	if diff := cmp.Diff([]Point{{2, 0.5}, {4, 0.25}, {6, 0.5}}, got); diff != "" {
		t.Error(diff)
	}
	if at(got, 4) != 0.25 || at(got, 5) != 0 {
		t.Errorf("at 4: %v; at 5, where there is no point: %v", at(got, 4), at(got, 5))
	}
}

func TestWindows(t *testing.T) {
	if diff := cmp.Diff([]Point{{3, 1.0 / 3}, {6, 1}}, windows([]bool{y, n, n, y, y, y, y}, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestRatesOfNothing(t *testing.T) {
	if errorRate(nil) != 0 || cumulative(nil, 5) != nil || byFeedback(nil, 5) != nil || latencyOf(nil) != (Latency{}) {
		t.Error("nothing has a rate")
	}
}

func TestGroupsAndSplit(t *testing.T) {
	all := []answered{{5, n, 1}, {5, n, 1}, {5, y, 1}, {5, n, 1}, {4, n, 0.8}, {4, y, 0.6}, {3, y, 0.6}, {2, y, 0.4}}
	got := groups(all, 5)
	want := []Group{{2, 0.125, 1, 0.4}, {3, 0.125, 1, 0.6}, {4, 0.25, 0.5, 0.7}, {5, 0.5, 0.25, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	sure, unsure := split(got, 4)
	if sure.Share != 0.75 || math.Abs(sure.Error-1.0/3) > 1e-12 || math.Abs(sure.Confidence-0.9) > 1e-12 || unsure.Share != 0.25 || unsure.Error != 1 || unsure.Agree != 3 {
		t.Errorf("at least 4: %+v, fewer: %+v", sure, unsure)
	}
	if _, none := split(got[3:], 5); none.Share != 0 || none.Error != 0 {
		t.Errorf("of a group without queries: %+v", none)
	}
}

// For any distribution of queries, the groups together have all queries and all errors.
func TestGroupsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]answered, rapid.IntRange(1, 60).Draw(t, "queries"))
		wrong := 0.0
		for i := range all {
			all[i] = answered{rapid.IntRange(0, 5).Draw(t, "agree"), rapid.Bool().Draw(t, "wrong"), rapid.Float64Range(0, 1).Draw(t, "confidence")}
			if all[i].wrong {
				wrong++
			}
		}
		k := rapid.IntRange(0, 6).Draw(t, "k")
		sure, unsure := split(groups(all, 5), k)
		if share := sure.Share + unsure.Share; math.Abs(share-1) > 1e-9 {
			t.Fatalf("the shares are %v together", share)
		}
		if e := sure.Share*sure.Error + unsure.Share*unsure.Error; math.Abs(e-wrong/float64(len(all))) > 1e-9 {
			t.Fatalf("the errors are %v together, of %v", e, wrong/float64(len(all)))
		}
	})
}

func TestByFeedback(t *testing.T) {
	got := byFeedback([][]bool{{y, y, n, n, y}, {y, n, n, y, y}}, 2)
	if diff := cmp.Diff([]Point{{0, 0.75}, {2, 0.25}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLatencyOf(t *testing.T) {
	var nanos []int64
	for i := range int64(100) {
		nanos = append(nanos, (100-i)*1e6)
	}
	if got := latencyOf(nanos); got != (Latency{50.5, 50, 99}) || nanos[0] != 100e6 {
		t.Errorf("got %+v; the order became %v…", got, nanos[:2])
	}
}
