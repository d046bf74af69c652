package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

func TestLearnedTextIsTheSameState(t *testing.T) {
	for _, s := range []api.LearnedState{
		{Version: 1, Function: "f", Policy: api.PolicySpec{Name: "exp3"}, Candidates: []string{"a"}, States: []api.LearnedContext{}},
		{Version: 1, Function: "f", Policy: api.PolicySpec{Name: "exp4", Params: map[string]any{"eta": 0.1}}, Candidates: []string{"a", "b@1"}, All: true, States: []api.LearnedContext{
			{Rows: []api.LearnedRow{{Candidate: "a", Count: 1.5, LossSum: 1.0 / 3, Own: []float64{-7e-300}}, {Candidate: "b@1", Own: []float64{1}}}},
			{Context: "\"]}<&", Rows: []api.LearnedRow{{Candidate: "a", Own: []float64{}}, {Candidate: "b@1", Own: []float64{}}}},
			{ContextBase64: "//4=", Rows: []api.LearnedRow{}},
		}},
	} {
		text, err := learnedText(&s)
		if err != nil {
			t.Fatal(err)
		}
		var got api.LearnedState
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("(-want +got):\n%s\nof\n%s", diff, text)
		}
	}
}

func TestPicture(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(hour int, weights ...float64) api.LearnedSample {
		s := api.LearnedSample{Time: start.Add(time.Duration(hour) * time.Hour)}
		for i, w := range weights {
			s.Candidates = append(s.Candidates, api.CandidateLearning{Ref: string(rune('a' + i)), Weight: w})
		}
		return s
	}
	samples := []api.LearnedSample{at(0, 1), at(4, 0.5, 0.5), at(6, 0.5, 0), at(8, 0.1, 0.99)}
	for ref, want := range map[string]string{"a": "███▅▅▅▅▁", "b": "   ▅▅▁▁█"} {
		if got := picture(samples, ref, 8); got != want {
			t.Errorf("%s: got %q, want %q", ref, got, want)
		}
	}
	if got := picture(samples[:1], "a", 3); got != "███" {
		t.Errorf("one sample: got %q", got)
	}
}
