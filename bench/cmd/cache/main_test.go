package main

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func TestWorkloadsAreTheSameForASeed(t *testing.T) {
	a, b, other := workloads(4000, 1), workloads(4000, 1), workloads(4000, 2)
	for i := range a {
		if len(a[i].requests) != 4000 || !slices.Equal(a[i].requests, b[i].requests) {
			t.Errorf("%s differs from itself", a[i].Name)
		}
		if slices.Equal(a[i].requests, other[i].requests) != (a[i].Name == "loop") {
			t.Errorf("%s does not depend on the seed", a[i].Name)
		}
	}
}

// TestSkew checks that more skew means fewer objects, and that a scan's objects come once.
func TestSkew(t *testing.T) {
	distinct := map[string]int{}
	for _, w := range workloads(40_000, 1) {
		times := map[uint32]int{}
		for _, o := range w.requests {
			times[o]++
		}
		distinct[w.Name] = len(times)
		if w.Name != "scan" {
			continue
		}
		scanned := 0
		for o, n := range times {
			if o >= objects {
				scanned++
				if n != 1 {
					t.Errorf("object %d of the scan comes %d times", o, n)
				}
			}
		}
		if scanned < 7000 || scanned > 9000 {
			t.Errorf("%d of 40000 requests are a scan's", scanned)
		}
	}
	if !(distinct["zipf-0.9"] > distinct["zipf-1.0"] && distinct["zipf-1.0"] > distinct["zipf-1.2"]) {
		t.Errorf("distinct objects: %v", distinct)
	}
}

func TestMixedSizes(t *testing.T) {
	count := map[int]int{}
	for o := range uint32(80_000) {
		count[sizings[1].of(o)]++
	}
	for size, want := range map[int]int{40: 40_000, 512: 20_000, 3136: 10_000, 12288: 10_000} {
		if got := count[size]; got < want*9/10 || got > want*11/10 {
			t.Errorf("%d objects of %d B, want about %d", got, size, want)
		}
	}
}

// TestContenders checks that each cache misses an input once, then hits it, keeps only what fits, and distinguishes inputs.
func TestContenders(t *testing.T) {
	for _, c := range ratioContenders {
		call := c.open(1 << 20)()
		in := make([]byte, 256)
		ask := func(object uint64) bool {
			binary.LittleEndian.PutUint64(in, object)
			return call.ask(in)
		}
		if ask(1) || !ask(1) || ask(2) || !ask(2) || !ask(1) {
			t.Errorf("%s does not keep what it was given", c.name)
		}
		hits := 0
		for range 2 {
			for i := range uint64(8_000) {
				if ask(100 + i) {
					hits++
				}
			}
		}
		if hits > 4500 { // 1 MiB has room for four thousand of them
			t.Errorf("%s: %d hits among what cannot all be there", c.name, hits)
		}
	}
}

func TestSamplesAreOfWhatTheySay(t *testing.T) {
	for _, k := range costs {
		for _, c := range []contender{ours, library} {
			mebibytes := 1
			if k.Hit {
				mebibytes = 6 // all of them have to fit
			}
			s, err := sample(c, k, mebibytes, time.Millisecond)
			if err != nil || s.Nanos <= 0 || s.CPUNanos <= 0 {
				t.Errorf("%s, %s: %+v, %v", k, c.name, s, err)
			}
		}
	}
}

func TestReport(t *testing.T) {
	w := workloads(2000, 1)[0]
	r := &Report{Taken: results.Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}, Requests: 2000, Seed: 1, Rounds: 1}
	for _, z := range sizings {
		for _, mebibytes := range cacheMebibytes {
			r.Ratios = append(r.Ratios, measureRatio(&w, z, mebibytes))
		}
	}
	cost, err := measureCost(context.Background(), costs[0], 2, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r.Costs = append(r.Costs, cost)
	resultstest.Contains(t, r.Markdown(), "| zipf-0.9 | mixed | 8 MiB | 0.", "| hit, 256 B in, one goroutine | otter | ", "| requests | sizes | bytes | xebec | otter | plain CLOCK |")
	dir := resultstest.Kept(t, r, "cache")
	resultstest.Shows(t, dir, "2030-01-02-cache", "2030-01-02-cache", "", "hit ratio in 8 MiB", "zipf-0.9", "plain CLOCK")
}
