package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestDeviceTurns: tenants that always want more get the device's time in proportion to their turns, whatever their
// batches take. The device never idles while a tenant wants it.
func TestDeviceTurns(t *testing.T) {
	for _, c := range []struct {
		name  string
		turns []int64 // ms
		batch []int64 // ms: what one batch takes; another one is begun while it is expected to fit
		want  []float64
	}{
		{"equal turns, equal batches", []int64{5, 5}, []int64{1, 1}, []float64{.5, .5}},
		{"six to four, as in the comment of Device", []int64{6, 4}, []int64{5, 5}, []float64{.6, .4}},
		{"a batch that is longer than many turns", []int64{5, 5}, []int64{40, 1}, []float64{.5, .5}},
		{"three", []int64{1, 2, 7}, []int64{3, 1, 2}, []float64{.1, .2, .7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Device
			used := make([]float64, len(c.turns))
			for i, ms := range c.turns {
				if id := d.Attach(); int(id) != i {
					t.Fatalf("tenant %d got the id %d", i, id)
				}
				d.SetTurn(TenantID(i), ms*1e6)
				d.Want(TenantID(i))
			}
			sum := 0.0
			for sum < 100_000 {
				id, nanos, ok := d.Next()
				if !ok {
					t.Fatal("the device idles while tenants want it")
				}
				took := c.batch[id]
				for took+c.batch[id] <= nanos/1e6 {
					took += c.batch[id]
				}
				used[id] += float64(took)
				sum += float64(took)
				d.End(id, took*1e6, true)
			}
			for i := range used {
				if part := used[i] / sum; part < c.want[i]-0.01 || part > c.want[i]+0.01 {
					t.Errorf("tenant %d had %.3f of the time, want %.2f", i, part, c.want[i])
				}
			}
		})
	}
}

// TestDeviceStory follows one device event by event.
func TestDeviceStory(t *testing.T) {
	var d Device
	var got strings.Builder
	next := func() {
		if id, nanos, ok := d.Next(); ok {
			fmt.Fprintf(&got, "%d:%d ", id, nanos/1e6)
		} else {
			got.WriteString("- ")
		}
	}
	a, b := d.Attach(), d.Attach()
	next() // no tenant wants it
	d.Want(a)
	next()
	d.Want(b)
	next() // held
	d.End(b, 1e6, true)
	next() // ignored: b does not hold it
	d.End(a, 2e6, true)
	next() // b's turn, then a's with the credit it kept
	d.End(b, 9e6, false)
	next()
	d.End(a, 1e6, false)
	next()    // no tenant wants it
	d.Want(b) // it owes 4 ms, which its next turn of 5 ms pays
	d.Want(a)
	next()
	d.Detach(a)
	next()          // b holds it
	c := d.Attach() // reuses a's place
	d.SetTurn(c, -1)
	d.Want(c)
	d.End(b, 1e12, true) // a replica hung for a quarter of an hour: the debt is bounded
	next()
	d.End(c, 0, true)
	d.Detach(c)
	d.SetTurn(99, 1)
	d.Want(-1)
	next()
	if want := "- 0:5 - - 1:5 0:8 - 1:1 - 0:5 1:5 "; got.String() != want {
		t.Errorf("turns were %s\nwant %s", got.String(), want)
	}
}

// TestDeviceProperties: for any sequence of requests, at most one tenant holds the device, it is one that wants it, and
// a tenant that wants it waits no longer than its debt and the others' turns explain.
func TestDeviceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Device
		attached, wants := map[TenantID]bool{}, map[TenantID]bool{}
		passed := map[TenantID]int{}
		holder := TenantID(-1)
		id := func(t *rapid.T) TenantID { return TenantID(rapid.IntRange(-1, 5).Draw(t, "tenant")) }
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(t *rapid.T) {
				if len(attached) < 5 {
					attached[d.Attach()] = true
				}
			},
			"detach": func(t *rapid.T) {
				i := id(t)
				d.Detach(i)
				delete(attached, i)
				delete(wants, i)
				delete(passed, i)
				if holder == i {
					holder = -1
				}
			},
			"turn": func(t *rapid.T) { d.SetTurn(id(t), rapid.Int64Range(-1, 20e6).Draw(t, "nanos")) },
			"want": func(t *rapid.T) {
				if i := id(t); attached[i] {
					d.Want(i)
					wants[i] = true
				}
			},
			"end": func(t *rapid.T) {
				i, again := id(t), rapid.Bool().Draw(t, "again")
				d.End(i, rapid.Int64Range(-1e6, 1e9).Draw(t, "nanos"), again)
				if holder == i && i >= 0 {
					holder = -1
					if again {
						wants[i] = true
					}
				}
			},
			"": func(t *rapid.T) {
				i, nanos, ok := d.Next()
				if ok != (holder < 0 && len(wants) > 0) {
					t.Fatalf("Next returned %v; the device is held by %d and wanted by %v", ok, holder, wants)
				}
				if !ok {
					return
				}
				if !wants[i] || nanos <= 0 {
					t.Fatalf("tenant %d got a turn of %d ns; the device is wanted by %v", i, nanos, wants)
				}
				holder = i
				delete(wants, i)
				delete(passed, i)
				for w := range wants {
					if passed[w]++; passed[w] > 5*(maxDebtTurns+2)*20 {
						t.Fatalf("tenant %d was passed over %d times", w, passed[w])
					}
				}
			},
		})
	})
}
