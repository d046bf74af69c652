package forecast

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

const ms = int64(1e6)

var bounds = autoscale.Config{Min: 1, WindowNanos: 60e9, DelayNanos: 30e9, IdleNanos: 300e9, Utilization: 0.7, Up: 10, Down: 2}

func question(t testing.TB, profile string, slo int64, shape string, low, peak float64) *Question {
	t.Helper()
	p, err := ParseProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	traffic, err := Shaped(shape, low, peak, time.Hour, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &Question{
		Model:   Model{Profile: p, SLONanos: slo, StartNanos: 2e9, Config: scheduler.DefaultConfig()},
		Traffic: traffic, Percentile: 99, Bounds: bounds, Seed: 1,
	}
}

func answer(t testing.TB, q *Question) *Plan {
	t.Helper()
	p, err := Make(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Simulations take long under the race detector, so several tests share this plan.
var (
	once      sync.Mutex
	dailyPlan *Plan
)

func daily(t testing.TB) *Plan {
	t.Helper()
	once.Lock()
	defer once.Unlock()
	if dailyPlan == nil {
		dailyPlan = answer(t, question(t, "2ms+0.1ms", 50*ms, "daily", 2000, 20000))
	}
	return dailyPlan
}

func fewest(p *Plan, batchCap func(int) bool) int {
	least := math.MaxInt
	for i := range p.Choices {
		if c := &p.Choices[i]; c.Meets && batchCap(c.Cap) {
			least = min(least, c.Replicas)
		}
	}
	return least
}

// TestExample is the example of the essay: one replica with batches is enough, without batches it takes five.
func TestExample(t *testing.T) {
	p := answer(t, question(t, "2ms+0.1ms", 50*ms, "steady", 2000, 2000))
	if n := fewest(p, func(n int) bool { return n == 1 }); n != 5 {
		t.Errorf("without batches %d replicas: expected 5", n)
	}
	r := &p.Recommended
	if r.Replicas != 1 || r.Batching != "aimd" || r.Cap < 100 || r.Cap > 200 {
		t.Errorf("%d replicas with %s and a cap of %d are recommended: expected 1 with aimd, and 100 to 200", r.Replicas, r.Batching, r.Cap)
	}
	for _, c := range p.Choices {
		one := c.Capacity / float64(c.Replicas)
		ideal := float64(c.Cap) / (2 + 0.1*float64(c.Cap)) * 1000
		if one < 0.85*ideal || one > 1.1*ideal {
			t.Errorf("each of %d replicas with batches of %d serves %.0f queries per second: expected about %.0f", c.Replicas, c.Cap, one, ideal)
		}
		if c.Meets != (c.Missed <= 0.01 && c.Utilization <= 1) || c.Meets != (c.PMillis != nil && c.Utilization <= 1) {
			t.Errorf("%+v: Meets, Missed and the percentile contradict each other", c)
		}
		if c.P50Millis != nil && *c.P50Millis < 2.1*0.8 {
			t.Errorf("half of the queries are answered within %g ms: a batch of one takes 2.1 ms", *c.P50Millis)
		}
	}
	if saved := p.Day.SavedHours; saved != p.Day.Fixed.ReplicaHours-p.Day.Autoscaler.ReplicaHours || math.Abs(p.Day.Fixed.ReplicaHours-1) > 1e-3 {
		t.Errorf("one replica used %g hours in one hour, %g saved", p.Day.Fixed.ReplicaHours, saved)
	}
}

// TestRecommended: one row is marked as recommended. It meets the objective with the fewest replicas, and the row with
// one less, which is in the table, does not.
func TestRecommended(t *testing.T) {
	p := daily(t)
	marked := 0
	below := false
	for _, c := range p.Choices {
		if c.Recommended {
			marked++
			if c.Replicas != p.Recommended.Replicas || c.Cap != p.Recommended.Cap || !c.Meets {
				t.Errorf("the marked row is %+v, the recommendation %+v", c, p.Recommended)
			}
		}
		if c.Replicas == p.Recommended.Replicas-1 && c.Cap == p.Recommended.Cap {
			below = !c.Meets
		}
	}
	if least := fewest(p, func(int) bool { return true }); marked != 1 || least != p.Recommended.Replicas || !below {
		t.Errorf("%d rows are marked, the fewest replicas are %d, recommended are %d; one less fails: %v", marked, least, p.Recommended.Replicas, below)
	}
	if !strings.Contains(p.Recommended.Reason, "the fewest that answer 99% of the queries within 50ms at 20000 queries per second; with 2, ") {
		t.Errorf("the reason is %q", p.Recommended.Reason)
	}
	if d := &p.Day; d.Autoscaler.Starts == 0 || d.Autoscaler.Peak < p.Recommended.Replicas || d.Autoscaler.Queries != d.Fixed.Queries {
		t.Errorf("between 2,000 and 20,000 queries: %+v, fixed %+v", d.Autoscaler, d.Fixed)
	}
}

// TestSameAnswer: the answer depends neither on the number of cores nor on the order of runs.
func TestSameAnswer(t *testing.T) {
	q := question(t, "5ms+1ms", 100*ms, "spiky", 20, 400)
	first := answer(t, q)
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	if again := answer(t, q); !reflect.DeepEqual(first, again) {
		t.Error("the same question has two answers")
	}
}

func TestNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		q    *Question
		says string
	}{
		{"slower than the objective", question(t, "60ms", 50*ms, "steady", 1, 1), "no number of replicas meets 50ms: a query that has a replica to itself takes 60ms"},
		{"almost as slow", question(t, "48ms", 50*ms, "steady", 1, 1), "no number of replicas meets 50ms"},
		{"too many", question(t, "20ms", 50*ms, "steady", 1e6, 1e6), "too many for 1024 replicas"},
		{"no percentile", func() *Question { q := question(t, "1ms", 50*ms, "steady", 1, 1); q.Percentile = 100; return q }(), "the percentile is 100"},
		{"no objective", question(t, "1ms", 0, "steady", 1, 1), "objective"},
	} {
		if p, err := Make(t.Context(), c.q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, %v: expected an error with %q", c.name, p, err, c.says)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	q := question(t, "1ms", 50*ms, "steady", 100, 100)
	q.Progress = func(int) { cancel() }
	if _, err := Make(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestLeftOut: a cap that needs 42 replicas, where others need 3, is not simulated but named.
func TestLeftOut(t *testing.T) {
	p := daily(t)
	if len(p.Notes) != 1 || !strings.HasPrefix(p.Notes[0], "a batch cap of 1 is not in the table: it needs about 4") {
		t.Errorf("the notes are %q", p.Notes)
	}
	if fewest(p, func(n int) bool { return n == 1 }) != math.MaxInt {
		t.Error("a cap of 1 is in the table")
	}
}

// TestModelsOwnBatching: the plan uses the batching that the model declares, which also bounds the other caps.
func TestModelsOwnBatching(t *testing.T) {
	for _, c := range []struct {
		batching scheduler.Batching
		name     string
		cap      int
	}{
		{scheduler.Batching{Policy: scheduler.Fixed, MaxBatch: 8}, "fixed", 8}, {scheduler.Batching{Policy: scheduler.None, MaxBatch: 8}, "none", 1},
		{scheduler.Batching{Policy: scheduler.AIMD, MaxBatch: 12}, "aimd", 12}, {scheduler.Batching{Policy: scheduler.AIMD, MaxBatch: 4, Pad: true}, "aimd", 4},
	} {
		q := question(t, "2ms+0.1ms", 50*ms, "steady", 500, 500)
		q.Model.Config.Batching = c.batching
		tab := &table{ctx: t.Context(), model: &q.Model, traffic: q.Traffic, fraction: 0.99, seed: 1, maxReplicas: 8}
		own, err := tab.saturate(q.Model.batching(), true)
		if err != nil {
			t.Fatal(err)
		}
		if own.batching.Policy.String() != c.name || own.cap != c.cap || own.perSecond <= 0 {
			t.Errorf("%+v: the cap is %d by %s, with %g queries per second", c.batching, own.cap, own.batching.Policy, own.perSecond)
		}
		for _, n := range tab.caps(own) {
			if n > c.batching.MaxBatch || n == own.cap || c.batching.Pad {
				t.Errorf("%+v: a cap of %d is tried", c.batching, n)
			}
		}
	}
}

// TestJSON: scripts depend on these names.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(daily(t))
	if err != nil {
		t.Fatal(err)
	}
	var p any
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	collect(found, "", p)
	want := []string{
		"choices[].batching string", "choices[].cap number", "choices[].meets bool", "choices[].missed number", "choices[].p50_ms number", "choices[].percentile_ms null",
		"choices[].percentile_ms number", "choices[].queries_per_second number", "choices[].recommended bool", "choices[].replicas number", "choices[].utilization number",
		"day.max number", "day.min number", "day.saved_replica_hours number", "day.series[].at_seconds number", "day.series[].missed number", "day.series[].rate number",
		"day.series[].ready number", "day.series[].wanted number", "day.step_ms number", "notes[] string", "percentile number", "profile.each_micros number",
		"profile.fixed_micros number", "recommended.batching string", "recommended.cap number", "recommended.reason string", "recommended.replicas number", "slo_ms number",
		"start_ms number", "traffic.low number", "traffic.peak number", "traffic.seconds number", "traffic.shape string",
	}
	for _, side := range []string{"autoscaler", "fixed"} {
		for _, name := range []string{"cold_starts", "missed", "missed_part", "peak", "queries", "replica_hours", "starts"} {
			want = append(want, "day."+side+"."+name+" number")
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("the fields are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func collect(found map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			collect(found, strings.TrimPrefix(path+"."+name, "."), inner)
		}
	case []any:
		for _, inner := range v {
			collect(found, path+"[]", inner)
		}
	case nil:
		found[path+" null"] = true
	default:
		found[path+" "+map[string]string{"float64": "number", "string": "string", "bool": "bool"}[fmt.Sprintf("%T", v)]] = true
	}
}

// TestSVG: the picture is XML, has titles, and each series has a point for each part of the day, within the panels.
func TestSVG(t *testing.T) {
	p := daily(t)
	svg := p.SVG()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	series := map[string]int{}
	words := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			words += string(token) + "|"
		case xml.StartElement:
			name, path := "", ""
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "data-series":
					name = a.Value
				case "d":
					path = a.Value
				}
			}
			if token.Name.Local == "path" {
				series[name]++
				withinPicture(t, name, path)
			}
		}
	}
	for _, name := range []string{"arrivals", "wanted by the autoscaler", "ready", "fixed number", "missed under the autoscaler"} {
		if series[name] != 1 {
			t.Errorf("the series %q is drawn %d times, want once", name, series[name])
		}
	}
	for _, want := range []string{"2000 to 20000 queries per second, daily; a batch takes 2ms + 100µs × n, 99% within 50ms", "Queries (per second)", "Replicas", "Missed (queries per second)", "Time (minutes)", "Autoscaler: "} {
		if !strings.Contains(words, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

// withinPicture checks a path's coordinates, and that it has as many columns as the day has parts.
func withinPicture(t *testing.T, name, path string) {
	t.Helper()
	columns := 0
	for _, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(path, " H", "\nH")), "\n") {
		op, rest := line[0], strings.Fields(line[1:])
		for i, word := range rest {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil {
				t.Fatalf("%s: %q", name, line)
			}
			if along := op == 'H' || op != 'V' && i == 0; along && (v < panelLeft || v > panelLeft+panelWidth+0.1) || !along && (v < panelTop-0.1 || v > figureHeight) {
				t.Errorf("%s: %q is outside the panels", name, line)
			}
		}
		if op == 'H' || op == 'L' || op == 'M' && !strings.Contains(path, "H") {
			columns++
		}
	}
	if columns != points {
		t.Errorf("%s has %d columns: expected %d", name, columns, points)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct{ most, want float64 }{{1, 0.5}, {4, 1}, {5, 2}, {20_000, 5000}, {19_999, 5000}, {0.003, 0.001}, {8, 2}} {
		if got := tick(c.most, 4); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("up to %g there is a tick every %g, expected every %g", c.most, got, c.want)
		}
	}
	for _, c := range []struct {
		part float64
		want string
	}{{0, "0.00%"}, {1e-6, "<0.01%"}, {0.0123, "1.23%"}, {0.123, "12.3%"}, {1, "100.0%"}} {
		if got := Percent(c.part); got != c.want {
			t.Errorf("%g is written %s: expected %s", c.part, got, c.want)
		}
	}
}
