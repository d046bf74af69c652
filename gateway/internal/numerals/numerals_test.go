package numerals

import (
	"math"
	"testing"
)

func TestNumerals(t *testing.T) {
	for _, c := range []struct {
		v                         float64
		short, percent, thousands string
	}{
		{0, "0", "0%", "0"},
		{0.00001234, "0.00001234", "0.001234%", "0"}, // %g would write 1.234e-05
		{8.221e-65, "8.221e-65", "8.221e-63%", "0"},
		{1e-7, "1.000e-07", "0.00001%", "0"},
		{0.07188, "0.07188", "7.188%", "0"},
		{1, "1", "100%", "1"},
		{12.3456, "12.35", "1235%", "12"},
		{999.96, "1000", "99996%", "1,000"},
		{-1234.5, "-1234", "-123450%", "-1,234"},
		{123456.7, "123457", "12345670%", "123,457"},
		{1e9, "1000000000", "100000000000%", "1,000,000,000"},
	} {
		if got := Short(c.v); got != c.short {
			t.Errorf("Short(%v) is %q, want %q", c.v, got, c.short)
		}
		if got := Percent(c.v); got != c.percent {
			t.Errorf("Percent(%v) is %q, want %q", c.v, got, c.percent)
		}
		if got := Thousands(c.v); got != c.thousands {
			t.Errorf("Thousands(%v) is %q, want %q", c.v, got, c.thousands)
		}
	}
	for v, want := range map[float64]string{math.Inf(1): "+Inf", math.Inf(-1): "-Inf", math.NaN(): "NaN"} {
		if got := []string{Short(v), Thousands(v)}; got[0] != want || got[1] != want {
			t.Errorf("%v is written as %q, want %s", v, got, want)
		}
	}
}

func TestPerSecond(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 8.221e-65: "0", 0.00271: "0.00271", 12345.6: "12346", math.Inf(1): "+Inf"} {
		if got := PerSecond(rate); got != want {
			t.Errorf("PerSecond(%v) is %q, want %q", rate, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for _, noun := range [][2]string{
		{"replica", "replicas"}, {"query", "queries"}, {"key", "keys"}, {"batch", "batches"}, {"miss", "misses"}, {"waiting query", "waiting queries"},
	} {
		for n, want := range map[int]string{-1: "-1 " + noun[1], 0: "0 " + noun[1], 1: "1 " + noun[0], 2: "2 " + noun[1]} {
			if got := Count(n, noun[0]); got != want {
				t.Errorf("Count(%d, %q) is %q, want %q", n, noun[0], got, want)
			}
		}
	}
	if got := Count(uint64(1<<64-1), "query"); got != "18446744073709551615 queries" {
		t.Errorf("the largest number is %q", got)
	}
}
