package api

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the test cases use these zones

	"pgregory.net/rapid"
)

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestExpectDuring: a hint holds during an interval if it holds at any time in it, both ends included.
func TestExpectDuring(t *testing.T) {
	berlin, apia := zone(t, "Europe/Berlin"), zone(t, "Pacific/Apia")
	on := func(where *time.Location, text string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04:05", text, where)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct {
		what, from, to string
		begin          time.Time
		lasts          time.Duration
		want           bool
	}{
		{"wholly inside of the interval", "08:00", "08:10", on(time.UTC, "2026-01-02 07:55:00"), time.Hour, true},
		{"it begins at the end", "08:00", "08:10", on(time.UTC, "2026-01-02 07:55:00"), 5 * time.Minute, true},
		{"it begins a moment later", "08:00", "08:10", on(time.UTC, "2026-01-02 07:55:00"), 5*time.Minute - 1, false},
		{"it is over at the beginning", "08:00", "08:10", on(time.UTC, "2026-01-02 08:10:00"), time.Hour, false},
		{"over midnight, before it", "23:30", "00:30", on(time.UTC, "2026-01-02 23:29:40"), 30 * time.Second, true},
		{"over midnight, after it", "23:30", "00:30", on(time.UTC, "2026-01-02 00:29:59"), 0, true},
		{"until midnight", "22:00", "00:00", on(time.UTC, "2026-01-02 23:59:59"), 0, true},
		{"from midnight on", "00:00", "06:00", on(time.UTC, "2026-01-02 23:59:59"), time.Second, true},
		{"next day", "08:00", "08:10", on(time.UTC, "2026-01-02 09:00:00"), 24 * time.Hour, true},
		{"an interval that ends before it begins", "08:00", "08:10", on(time.UTC, "2026-01-02 08:05:00"), -time.Second, false},
		{"an hour that summer time leaves out", "02:15", "02:45", on(berlin, "2026-03-29 01:50:00"), 2 * time.Hour, false},
		{"half of it left out", "02:15", "03:15", on(berlin, "2026-03-29 01:50:00"), 10 * time.Minute, true},
		{"an hour that comes twice, the second time", "02:15", "02:45", on(berlin, "2026-10-25 01:00:00").Add(110 * time.Minute), 30 * time.Minute, true},
		{"a day that was left out", "08:00", "08:10", on(apia, "2011-12-29 23:50:00"), 8 * time.Hour, false},
		{"moments inside of the interval", "2026-01-02T08:00:00Z", "2026-01-02T08:00:15Z", on(berlin, "2026-01-02 08:59:45"), 30 * time.Second, true},
		{"moments before it", "2026-01-02T08:00:00Z", "2026-01-02T08:00:15Z", on(time.UTC, "2026-01-02 08:00:15"), time.Hour, false},
		{"moments after it", "2026-01-02T08:00:00Z", "2026-01-02T08:00:15Z", on(time.UTC, "2026-01-02 07:00:00"), 59 * time.Minute, false},
		{"no times at all", "morning", "evening", on(time.UTC, "2026-01-02 07:00:00"), time.Hour, false},
	} {
		x := ExpectSpec{Rate: 1, From: c.from, To: c.to}
		if got := x.During(c.begin, c.begin.Add(c.lasts)); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestExpectDuringIsEveryMoment compares During with At for each second, or for each minute of a long interval.
func TestExpectDuringIsEveryMoment(t *testing.T) {
	clock := rapid.Custom(func(t *rapid.T) string {
		return time.Date(2026, 1, 1, rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute"), 0, 0, time.UTC).Format("15:04")
	})
	// Around these times a zone changes its clocks: by an hour, by half an hour, by a day.
	type change struct{ zone, at string }
	changes := []change{
		{"UTC", "2026-06-01T00:00:00Z"}, {"Europe/Berlin", "2026-03-29T01:00:00Z"}, {"Europe/Berlin", "2026-10-25T01:00:00Z"}, {"America/New_York", "2026-11-01T06:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, {"Asia/Kathmandu", "2026-06-01T00:00:00Z"}, {"Pacific/Apia", "2011-12-30T10:00:00Z"},
	}
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(changes).Draw(t, "change")
		about, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		x := ExpectSpec{Rate: 1, From: clock.Draw(t, "from"), To: clock.Draw(t, "to")}
		if x.From == x.To {
			t.Skip("is no hint")
		}
		step := rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "step")
		begin := about.In(zone(t, c.zone)).Add(time.Duration(rapid.Int64Range(int64(-30*time.Hour), int64(30*time.Hour)).Draw(t, "begin")))
		end := begin.Add(time.Duration(rapid.Int64Range(0, 3600).Draw(t, "steps")) * step).Add(time.Duration(rapid.Int64Range(0, int64(step)).Draw(t, "more")))
		want := x.At(begin)
		for at := begin.Truncate(step).Add(step); !want && !at.After(end); at = at.Add(step) {
			want = x.At(at)
		}
		if got := x.During(begin, end); got != want {
			t.Fatalf("%+v from %v to %v: %v", x, begin, end, got)
		}
	})
}

// TestExpectSaysWhichTimeIsWrong: the message names the wrong one of the two times and what the other one requires.
func TestExpectSaysWhichTimeIsWrong(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"08:00", "24:00", `expect[0].to: "24:00": the end of a day is "00:00"`},
		{"08:00", "evening", `expect[0].to: "evening": expected a time of day as from is, such as "18:30"`},
		{"8:00", "18:30", `expect[0].from: "8:00": expected two times of day, "08:00" and "18:30", or two moments, "2026-01-31T08:00:00Z"`},
		{"24:00", "08:00", `expect[0].from: "24:00": the end of a day is "00:00"`},
		{"08:00", "2026-01-31T18:00:00Z", `expect[0].to: "2026-01-31T18:00:00Z": expected a time of day as from is, such as "18:30"`},
		{"2026-01-31T08:00:00Z", "18:30", `expect[0].to: "18:30": expected a moment as from is, such as "2026-01-31T18:30:00Z"`},
		{"2026-01-31T08:00:00Z", "later", `expect[0].to: "later": expected a moment as from is, such as "2026-01-31T18:30:00Z"`},
		{"2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z", "expect[0].to: 2026-01-31T08:00:00Z is not after from, 2026-01-31T08:00:00Z"},
		{"08:00", "08:00", `expect[0].to: "08:00" is also from: expected another time of day`},
		{"08:00", "00:00", ""},
	} {
		m := validModel()
		m.Expect = []ExpectSpec{{Rate: 1, From: c.from, To: c.to}}
		m = m.WithDefaults()
		got := ""
		if err := m.Validate(); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("from %q to %q: %q, expected %q", c.from, c.to, got, c.want)
		}
	}
}
