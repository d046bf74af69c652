package main

import "testing"

const scraped = `# HELP xebec_deadline_late_seconds How long after its deadline a query without a prediction was answered.
# TYPE xebec_deadline_late_seconds histogram
xebec_deadline_late_seconds_bucket{model="digits",version="1",le="0.001"} 500
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.0005"} 10
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.001"} 90
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.002"} 99
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="+Inf"} 100
xebec_deadline_late_seconds_sum{model="stuck",version="1"} 0.08
xebec_deadline_late_seconds_count{model="stuck",version="1"} 100
xebec_queue_seconds_count{model="stuck",version="1"} 7
`

func TestLateHistogram(t *testing.T) {
	h, err := parseLate(scraped, "stuck")
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	all := h.since(nil)
	if all.Count != 100 || all.MeanMillis < 0.799 || all.MeanMillis > 0.801 || all.P50Millis != 1 || all.P99Millis != 2 {
		t.Errorf("got %+v", all)
	}
	before, err := parseLate(`xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.0005"} 10
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.001"} 90
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="0.002"} 90
xebec_deadline_late_seconds_bucket{model="stuck",version="1",le="+Inf"} 90
xebec_deadline_late_seconds_sum{model="stuck",version="1"} 0.06
xebec_deadline_late_seconds_count{model="stuck",version="1"} 90
`, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	// Nine of at most 2 ms and one above all bounds.
	if d := h.since(before); d.Count != 10 || d.MeanMillis < 1.99 || d.MeanMillis > 2.01 || d.P50Millis != 2 || d.P99Millis != 0 {
		t.Errorf("got %+v", d)
	}
	if h.Count != 100 || h.buckets[0].count != 10 {
		t.Errorf("taking the difference changed the histogram: %+v", h)
	}
}

func TestNoLateHistogram(t *testing.T) {
	h, err := parseLate(scraped, "another")
	if h != nil || err != nil || h.since(nil) != nil || h.String() != "–" {
		t.Errorf("got %v, %v", h, err)
	}
	for _, bad := range []string{
		`xebec_deadline_late_seconds_sum{model="stuck"} many`,
		`xebec_deadline_late_seconds_bucket{model="stuck"} 7`,
	} {
		if _, err := parseLate(bad, "stuck"); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestParseData(t *testing.T) {
	queries, answers := make([]byte, 2*rowBytes), make([]byte, 2*answerBytes)
	queries[rowBytes], answers[answerBytes] = 5, 9
	d, err := parseData(queries, answers)
	if err != nil || len(d.rows) != 2 || d.rows[1][0] != 5 || string(d.wants[0]) != `"output":0,` || string(d.wants[1]) != `"output":9,` {
		t.Errorf("got %v, %v", d, err)
	}
	for _, bad := range [][2]int{{0, 0}, {rowBytes, 0}, {rowBytes - 1, answerBytes}, {2 * rowBytes, answerBytes}} {
		if _, err := parseData(make([]byte, bad[0]), make([]byte, bad[1])); err == nil {
			t.Errorf("%v bytes were accepted", bad)
		}
	}
}
