package capacity

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

func TestColdStartsAreMeasuredOnce(t *testing.T) {
	var c ColdStarts
	c.Answered(5e6) // no query has waited
	if c.status() != nil {
		t.Fatal("an answer without a call counts as a cold start")
	}
	c.called(1e9)
	c.called(2e9) // the first call counts
	c.Answered(15e8)
	c.Answered(16e8)
	if r := c.status(); r == nil || r.Count != 1 || r.LastMS != 500 {
		t.Errorf("%+v", r)
	}
	if h := c.Histogram(); h.Count != 1 || h.Sum != 0.5 || h.Buckets[0.25] != 0 || h.Buckets[1] != 1 {
		t.Errorf("%+v", h)
	}
}

// A cold start is the time that a query waited for the replica that it woke, and nothing else.
func TestOnlyWaitsAreColdStarts(t *testing.T) {
	var c ColdStarts
	c.called(1e9)
	c.Forget() // a replica is ready, and the query was answered by another model or with a default
	c.Answered(60e9)
	if r := c.status(); r != nil {
		t.Errorf("%+v: no query has waited", r)
	}
	c.called(100e9) // and the replica does not come for an hour
	c.Answered(100e9 + api.Nanos(time.Hour))
	if r := c.status(); r != nil {
		t.Errorf("%+v: no query waits for so long", r)
	}
	c.called(5000e9)
	c.Answered(5001e9)
	if r := c.status(); r == nil || r.Count != 1 || r.LastMS != 1000 {
		t.Errorf("%+v", r)
	}
}

// The time of quiet starts is only used until there is the time of another start.
func TestQuietStartsAreOnlyAFirstGuess(t *testing.T) {
	var c ColdStarts
	for _, x := range []struct {
		took  time.Duration
		quiet bool
		want  time.Duration
	}{
		{10 * time.Second, true, 10 * time.Second},
		{time.Second, false, time.Second},
		{10 * time.Second, true, time.Second},
		{2 * time.Second, false, 1300 * time.Millisecond},
	} {
		c.Started(x.took, x.quiet)
		if got := time.Duration(c.startNanos.Load()); (got - x.want).Abs() > time.Microsecond {
			t.Errorf("after %v, quiet %v: %v, expected %v", x.took, x.quiet, got, x.want)
		}
	}
}
