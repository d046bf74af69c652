package quality

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func TestSame(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	double := func(x float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)) }
	half := func(x float64) []byte { return binary.LittleEndian.AppendUint16(nil, api.Float64ToFloat16(x)) }
	single := func(x float64) []byte { return floats32(float32(x)) }
	for _, c := range []struct {
		d         api.DType
		of        func(float64) []byte
		a, b      float64
		tolerance float64
		want      bool
	}{
		{api.Float64, double, 1, 1, 0, true},
		{api.Float64, double, 0, math.Copysign(0, -1), 0, true},
		{api.Float64, double, 5e-324, 0, 0, false},
		{api.Float64, double, 1.5, 1, 0.5, true},
		{api.Float64, double, 1.5000001, 1, 0.5, false},
		{api.Float64, double, 0.2, 0.1, 0.125, true}, // absolute below 1
		{api.Float64, double, 1100, 1000, 0.1, true}, // relative above
		{api.Float64, double, 1000, 1101, 0.1, true}, // relative to the second
		{api.Float64, double, 1101, 1000, 0.1, false},
		{api.Float64, double, nan, nan, 0, true},
		{api.Float64, double, nan, 1, 1e12, false},
		{api.Float64, double, inf, inf, 0, true},
		{api.Float64, double, inf, -inf, 1e12, false},
		{api.Float64, double, 1, inf, 1e12, false},
		{api.Float64, double, inf, 1, 1e12, false},
		{api.Float64, double, -math.MaxFloat64, math.MaxFloat64, 1.9, false}, // the difference is twice the second
		{api.Float64, double, -math.MaxFloat64, math.MaxFloat64, 2, true},
		{api.Float64, double, 1, 2, nan, false},
		{api.Float32, single, 1.25, 1, 0.25, true},
		{api.Float32, single, 1.25, 1, 0.2, false},
		{api.Float32, single, nan, nan, 0, true},
		{api.Float16, half, 1.25, 1, 0.25, true},
		{api.Float16, half, 1.25, 1, 0.2, false},
		{api.Float16, half, nan, -nan, 0, true},
	} {
		spec := []api.TensorSpec{tensor("y", c.d)}
		if got := EqualOutputs(spec, []api.Value{{Data: c.of(c.a)}}, []api.Value{{Data: c.of(c.b)}}, c.tolerance); got != c.want {
			t.Errorf("%s: Same(%v, %v) with tolerance %v: %t", c.d, c.a, c.b, c.tolerance, got)
		}
	}
	list := []api.TensorSpec{tensor("y", api.Float32, -1, -1)}
	flat := []api.TensorSpec{tensor("y", api.Int64), tensor("s", api.Bytes)}
	for _, c := range []struct {
		name  string
		specs []api.TensorSpec
		a, b  []api.Value
		want  bool
	}{
		{"other dimensions", list, []api.Value{{Data: floats32(1, 2), Dims: []int64{1, 2}}}, []api.Value{{Data: floats32(1, 2), Dims: []int64{2, 1}}}, false},
		{"one element of several", list, []api.Value{{Data: floats32(1, 2), Dims: []int64{1, 2}}}, []api.Value{{Data: floats32(1, 9), Dims: []int64{1, 2}}}, false},
		{"fewer elements", list, []api.Value{{Data: floats32(1), Dims: []int64{1, 2}}}, []api.Value{{Data: floats32(1, 9), Dims: []int64{1, 2}}}, false},
		{"integers are exact", flat, []api.Value{{Data: ints64(1)}, {}}, []api.Value{{Data: ints64(2)}, {}}, false},
		{"bytes are exact", flat, []api.Value{{Data: ints64(1)}, {Data: []byte("a")}}, []api.Value{{Data: ints64(1)}, {Data: []byte("A")}}, false},
		{"both", flat, []api.Value{{Data: ints64(1)}, {Data: []byte("a")}}, []api.Value{{Data: ints64(1)}, {Data: []byte("a")}}, true},
		{"a missing output", flat, []api.Value{{Data: ints64(1)}}, []api.Value{{Data: ints64(1)}}, false},
	} {
		if got := EqualOutputs(c.specs, c.a, c.b, 0.5); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// answersOf returns answers of one integer each; "!" is a failure.
func answersOf(digits string) (list []Answer) {
	for _, c := range digits {
		if c == '!' {
			list = append(list, Answer{Code: api.ModelError})
		} else {
			list = append(list, Answer{Outputs: []api.Value{{Data: ints64(int64(c - '0'))}}})
		}
	}
	return list
}

// casesOf returns labelled cases; "-" has no label.
func casesOf(digits string) (list []Case) {
	for i, c := range digits {
		one := Case{Line: i + 1}
		if c != '-' {
			one.Label = []api.Value{{Data: ints64(int64(c - '0'))}}
		}
		list = append(list, one)
	}
	return list
}

func TestJudge(t *testing.T) {
	labels := func(min float64) *api.ValidateSpec { return &api.ValidateSpec{Queries: "q.jsonl", MinAccuracy: min} }
	serving := func(max float64) *api.ValidateSpec {
		return &api.ValidateSpec{Queries: "q.jsonl", Expect: api.ExpectServing, MaxDifference: max}
	}
	for _, c := range []struct {
		name                     string
		v                        *api.ValidateSpec
		cases, answers, serving  string
		queries, matched, failed int
		reason                   string // empty: passed
	}{
		{"all correct", labels(1), "1234", "1234", "", 4, 4, 0, ""},
		{"exactly the threshold", labels(0.75), "1234", "1239", "", 4, 3, 0, ""},
		{"too few", labels(0.76), "1234", "1239", "", 4, 3, 0, "answered 3 of 4 queries as labelled (0.75), 0 queries without an answer: expected at least min_accuracy 0.76; q.jsonl:4: expected 4, got 9"},
		{"a failure is wrong", labels(0.9), "1234", "1!34", "", 4, 3, 1, "answered 3 of 4 queries as labelled (0.75), 1 queries without an answer: expected at least min_accuracy 0.9; q.jsonl:2: expected 2, got no answer (model_error)"},
		{"three examples", labels(0.9), "11111", "22222", "", 5, 0, 0,
			"answered 0 of 5 queries as labelled (0), 0 queries without an answer: expected at least min_accuracy 0.9; q.jsonl:1: expected 1, got 2; q.jsonl:2: expected 1, got 2; q.jsonl:3: expected 1, got 2"},
		{"only labels count", labels(1), "1-3-", "1937", "", 2, 2, 0, ""},
		{"no labels", labels(0), "----", "1234", "", 0, 0, 0, "q.jsonl: none of its 4 queries has a label: add labels, or expect the serving version's answers"},
		{"missing answers failed", labels(0.5), "1234", "1", "", 4, 1, 3, "answered 1 of 4 queries as labelled (0.25), 3 queries without an answer: expected at least min_accuracy 0.5; q.jsonl:2: expected 2, got no answer (cancelled); q.jsonl:3: expected 3, got no answer (cancelled); q.jsonl:4: expected 4, got no answer (cancelled)"},
		{"no answers at all", labels(0), "12", "!!", "", 2, 0, 2, "answered none of 2 queries; q.jsonl:1: expected 1, got no answer (model_error); q.jsonl:2: expected 2, got no answer (model_error)"},
		{"no queries", labels(0), "", "", "", 0, 0, 0, "q.jsonl: has no queries, so nothing was validated: add some, or remove validate"},
		{"7 of 100 are 0.07", labels(0.07), strings.Repeat("1", 100), strings.Repeat("1", 7) + strings.Repeat("2", 93), "", 100, 7, 0, ""},
		{"a NaN threshold", labels(math.NaN()), "1", "1", "", 1, 1, 0, "answered 1 of 1 queries as labelled (1), 0 queries without an answer: expected at least min_accuracy NaN"},

		{"same as the serving version", serving(0), "--", "12", "12", 2, 2, 0, ""},
		{"within the threshold", serving(0.25), "----", "1234", "1239", 4, 3, 0, ""},
		{"too different", serving(0.2), "----", "1234", "1239", 4, 3, 0, "answered 1 of 4 queries differently from m@1 (0.25), 0 queries without an answer: expected at most max_difference 0.2; q.jsonl:4: expected 9, got 4"},
		{"a failure differs", serving(0.2), "----", "123!", "1234", 4, 3, 1, "answered 1 of 4 queries differently from m@1 (0.25), 1 queries without an answer: expected at most max_difference 0.2; q.jsonl:4: expected 4, got no answer (model_error)"},
		{"queries that the serving version failed do not count", serving(0), "----", "1234", "12!!", 2, 2, 0, ""},
		{"the serving version failed all", serving(1), "--", "12", "!!", 0, 0, 0, "m@1, the version to compare with, answered none of 2 queries: expect labels, or remove validate"},
		{"no serving version", serving(0), "--", "12", "none", 0, 0, 0, ""},
		{"no serving version, and the new one fails all", serving(1), "--", "!!", "none", 0, 0, 2, "answered none of 2 queries"},
		{"no serving version, and the new one fails some", serving(0), "--", "1!", "none", 0, 0, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect, other := "", answersOf(c.serving)
			if c.v.Expect == api.ExpectServing {
				expect = "m@1"
			}
			if c.serving == "none" {
				other = nil
			}
			got := Judge(c.v, pair.Outputs, casesOf(c.cases), answersOf(c.answers), other, expect)
			if expect == "" {
				expect = "labels"
			}
			want := api.ValidationStatus{Passed: c.reason == "", Queries: c.queries, Matched: c.matched, Failed: c.failed, Expect: expect, Reason: c.reason}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestReasonIsBounded: outputs of any size and kind are truncated.
func TestReasonIsBounded(t *testing.T) {
	outputs := []api.TensorSpec{tensor("s", api.Bytes), tensor("x", api.Float32, -1)}
	big := []api.Value{{Data: []byte(strings.Repeat("ä\n", 1<<16))}, {Data: make([]byte, 4<<20), Dims: []int64{1 << 20}}}
	cases := []Case{{Line: 1, Label: big}, {Line: 2, Label: []api.Value{{Data: []byte{0xff}}, {Data: floats32(1), Dims: []int64{1}}}}}
	answers := []Answer{{Outputs: []api.Value{{Data: []byte("yes")}, {Data: make([]byte, 1<<20), Dims: []int64{1 << 18}}}}, {Outputs: nil}}
	got := Judge(&api.ValidateSpec{Queries: "q", MinAccuracy: 1}, outputs, cases, answers, nil, "").Reason
	if len(got) > 1000 || !strings.Contains(got, `got s: "yes", x: float32[-1] of 1048576 bytes; q:2: expected s: {"b64":"/w=="}, x: [1], got 0 outputs`) || strings.Contains(got, "\n") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// TestJudgeHoldsItsThresholds: a version passes exactly if it meets the threshold, and the counts are right.
func TestJudgeHoldsItsThresholds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "queries")
		draw := func(of, what string) string {
			return string(rapid.SliceOfN(rapid.SampledFrom([]rune(of)), n, n).Draw(t, what))
		}
		labels, answers, serving := draw("111112-", "labels"), draw("111112!", "answers"), draw("111112!", "serving")
		v := &api.ValidateSpec{Queries: "q", MinAccuracy: rapid.Float64Range(0, 1).Draw(t, "min"), MaxDifference: rapid.Float64Range(0, 1).Draw(t, "max")}
		if rapid.Bool().Draw(t, "against serving") {
			v.Expect = api.ExpectServing
		}
		want := labels
		if v.Expect == api.ExpectServing {
			want = strings.ReplaceAll(serving, "!", "-")
		}
		compared, matched, failed := 0, 0, strings.Count(answers, "!")
		for i := range n {
			if want[i] != '-' {
				compared++
				if want[i] == answers[i] {
					matched++
				}
			}
		}
		got := Judge(v, pair.Outputs, casesOf(labels), answersOf(answers), answersOf(serving), "")
		if got.Queries != compared || got.Matched != matched || got.Failed != failed || got.Passed != (got.Reason == "") {
			t.Fatalf("%+v, expected %d, %d, %d", got, compared, matched, failed)
		}
		enough := n > failed && compared > 0
		if enough && v.Expect == api.ExpectServing {
			enough = float64(compared-matched) <= v.MaxDifference*float64(compared)
		} else if enough {
			enough = float64(matched) >= v.MinAccuracy*float64(compared)
		}
		edge := math.Abs(float64(matched)-v.MinAccuracy*float64(compared)) < 1e-9 || math.Abs(float64(compared-matched)-v.MaxDifference*float64(compared)) < 1e-9
		if got.Passed != enough && !edge {
			t.Fatalf("passed: %t, expected %t: %+v, %+v", got.Passed, enough, v, got)
		}
	})
}
