package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// many is n items of feedback as JSON lines, with the ids 0, 1, 2 …
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"query_id\": %d, \"correct\": true}\n", i)
	}
	return b.String()
}

func TestFeedbackFileIsSentInBatches(t *testing.T) {
	g := newFakeGateway(t)
	out := execute(t, g, many(2*feedbackItems+1), []string{"feedback", "digits", "-f", "-"})
	requests := strings.Split(out, "\n> POST")
	if len(requests) != 4 || !strings.HasPrefix(out, "667 counted, 667 duplicate, 667 late\n! xebec: 667 of 2001 items of feedback were not accepted\n") {
		t.Fatalf("%d parts; %.300s", len(requests), out)
	}
	next := 0
	for _, r := range requests[1:] {
		_, body, _ := strings.Cut(r, ") ")
		body, _, _ = strings.Cut(body, "\n")
		var sent struct {
			Items []struct {
				ID int `json:"query_id"`
			} `json:"feedback_batch"`
		}
		if err := json.Unmarshal([]byte(body), &sent); err != nil {
			t.Fatal(err)
		}
		if len(sent.Items) > feedbackItems {
			t.Errorf("a request of %d items", len(sent.Items))
		}
		for _, it := range sent.Items {
			if it.ID != next {
				t.Fatalf("got id %d, want %d", it.ID, next)
			}
			next++
		}
	}
	if next != 2*feedbackItems+1 {
		t.Errorf("%d items were sent", next)
	}
}

func TestFeedbackThatFailsSaysWhatWasAccepted(t *testing.T) {
	out := execute(t, newFakeGateway(t), many(3*feedbackItems), []string{"feedback", "full", "-f", "-"})
	if want := "! xebec: stdin: function full: the gateway is shutting down (503 Service Unavailable) (the 2000 items before it were accepted: do not send them again)\n"; !strings.Contains(out, want) {
		t.Errorf("%.300s\nwant %s", out, want)
	}
}

// A large feedback_batch is split too, and large items end a request early.
func TestFeedbackStream(t *testing.T) {
	items := strings.TrimSuffix(strings.ReplaceAll(many(feedbackItems+2), "\n", ","), ",")
	large := `{"query_id": 1, "label": "` + strings.Repeat("x", feedbackBytes/2) + `"}`
	s := &feedbackStream{dec: json.NewDecoder(strings.NewReader(`{"feedback_batch": [` + items + `]} ` + large + large + large))}
	for _, want := range []int{feedbackItems, 4, 1, 0} {
		got, err := s.next()
		if err != nil || len(got) != want {
			t.Fatalf("%d items, %v; want %d", len(got), err, want)
		}
	}
}
