package obs

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A rate is of what was counted since the look before, also where nothing had been counted then.
func TestRates(t *testing.T) {
	var e Endpoint
	r, now := new(Rate), time.Unix(1000, 0)
	look := func(after time.Duration) float64 {
		now = now.Add(after)
		return r.Look(e.Read(), now).QueriesPerSecond
	}
	if got := look(0); got != 0 || r.last != nil {
		t.Errorf("%v queries/s at the first look, and %v is kept of nothing", got, r.last)
	}
	e.Observe(api.OK, 3, 1e6)
	if got := look(2 * time.Second); got != 1.5 {
		t.Errorf("%v queries/s, expected 3 in 2 s", got)
	}
	e.Observe(api.OK, 2, 1e6)
	if got := look(rateEvery / 2); got != 1.5 {
		t.Errorf("%v queries/s at a look that comes too soon, expected the same as before", got)
	}
	if got := look(rateEvery * 3 / 2); got != 1 {
		t.Errorf("%v queries/s, expected 2 in 2 s", got)
	}
	if got := look(time.Second); got != 0 {
		t.Errorf("%v queries/s, expected 0", got)
	}
}
