package sim

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// runPolicy runs a small world under a policy and returns its transcript too.
func runPolicy(t *testing.T, p Policy) (*Result, string) {
	t.Helper()
	s := busyWorld()
	s.Policy, s.Check = p, p == Planned || p == Unplanned
	s.Models[0].SLONanos = 30e6
	var log bytes.Buffer
	r, err := Run(s, &log)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return r, log.String()
}

var sends = regexp.MustCompile(`(?m)^ *(\S+) m0 > send r(\d+)#\d+:((?: q\d+)+)$`)

// TestPolicies: all policies see the same queries and end each of them, and each behaves as its name says.
func TestPolicies(t *testing.T) {
	offered := int64(0)
	for _, p := range Policies {
		r, log := runPolicy(t, p)
		f := r.Total()
		if offered == 0 {
			offered = f.Offered
		}
		if f.Offered != offered || f.Good+f.Refused+f.Dropped+f.Missed != f.Offered {
			t.Errorf("%v: %d offered, the first policy had %d; %d good, %d refused, %d dropped, %d missed", p, f.Offered, offered, f.Good, f.Refused, f.Dropped, f.Missed)
		}
		ours := p == Planned || p == Unplanned
		if refused := strings.Contains(log, "overloaded"); refused != ours {
			t.Errorf("%v refuses queries: %v", p, refused)
		}
		outstanding, most, largest := map[string]int{}, 0, 0
		for _, line := range strings.Split(log, "\n") {
			if m := sends.FindStringSubmatch(line); m != nil {
				outstanding[m[2]]++
				most = max(most, outstanding[m[2]])
				largest = max(largest, strings.Count(m[3], "q"))
				if at, err := time.ParseDuration(m[1]); err != nil || p == Tick && at%tickNanos > time.Millisecond {
					t.Errorf("%v sends at %v (%v): %s", p, at, err, line)
				}
			}
			if i := strings.Index(line, "  done r"); i >= 0 {
				outstanding[line[i+len("  done r"):i+strings.Index(line[i:], "#")]]--
			}
		}
		if wantMost := map[Policy]int{Clipper: 1, ClipperDrops: 1}[p]; wantMost > 0 && most != wantMost {
			t.Errorf("%v has %d batches outstanding at a replica, expected %d", p, most, wantMost)
		}
		if p == Single && largest != 1 || p != Single && largest != 8 {
			t.Errorf("%v: the largest batch has %d queries", p, largest)
		}
		late := strings.Contains(log, "> release") && strings.Contains(strings.Join(releases.FindAllString(log, -1), ""), " ok")
		if p == ClipperDrops && !late { // a query that was in a batch at its deadline ends with the batch
			t.Errorf("%v never ends a late query with its batch", p)
		}
	}
}

var releases = regexp.MustCompile(`> release q\d+ \S+`)

// TestClipperDealsInTurn: queries go to the replicas in turn, and each replica's queue is first in, first out.
func TestClipperDealsInTurn(t *testing.T) {
	_, log := runPolicy(t, Clipper)
	last := map[string]string{}
	for _, m := range sends.FindAllStringSubmatch(log[:strings.Index(log, "gone r")], -1) {
		for _, q := range strings.Fields(m[3]) {
			if before := last[m[2]]; len(before) > len(q) || len(before) == len(q) && before >= q {
				t.Fatalf("replica %s gets %s after %s", m[2], q, before)
			}
			if before := last[m[2]]; before != "" && parity(before) != parity(q) {
				t.Fatalf("replica %s gets %s and %s, which were not dealt in turn", m[2], before, q)
			}
			last[m[2]] = q
		}
	}
	if len(last) != 2 {
		t.Fatalf("expected two replicas to be served: %v", last)
	}
}

func parity(q string) byte { return (q[len(q)-1] - '0') % 2 }
