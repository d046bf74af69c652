package obs

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// What the caller has caused is no answer that failed, and a sample survives its way to another process.
func TestSample(t *testing.T) {
	var e Endpoint
	for code := range api.Codes {
		e.Observe(code, 1, api.Nanos(2*time.Millisecond))
	}
	first := e.Read().Sample()
	const answers = 1 + 10 // OK, and the codes below
	if first.Answers != answers || first.Failed != answers-1 || first.Timed() != uint64(api.CodeCount) {
		t.Errorf("%d answers, %d failed, %d timed: expected %d, %d and %d", first.Answers, first.Failed, first.Timed(), answers, answers-1, api.CodeCount)
	}
	for _, code := range []api.Code{
		api.DeadlineExceeded, api.Overloaded, api.NoReplica, api.ModelError, api.BadOutput, api.ReplicaLost, api.ShuttingDown, api.ModelRemoved, api.Unavailable, api.Internal,
	} {
		if isCallers(code) {
			t.Errorf("%s is the caller's", code)
		}
	}
	for range 100 {
		e.Observe(api.OK, 1, api.Nanos(40*time.Millisecond))
	}
	text, err := json.Marshal(e.Read().Sample())
	if err != nil {
		t.Fatal(err)
	}
	var second Sample
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatal(err)
	}
	d := second.Since(first)
	if p99 := d.Quantile(0.99); d.Answers != 100 || d.Failed != 0 || d.Timed() != 100 || math.Abs(p99-0.040) > 0.010 {
		t.Errorf("%d answers later, %d failed, P99 %g s", d.Answers, d.Failed, p99)
	}
	if z := first.Since(second); z.Answers != 0 || z.Failed != 0 {
		t.Errorf("a sample since a later one has %+v", z)
	}
	if (Sample{}).Quantile(0.99) != 0 {
		t.Error("nothing has a percentile")
	}
	if huge := (Sample{Buckets: make([]uint64, 10*endpointBuckets)}); huge.Quantile(0.99) != 0 {
		t.Error("buckets that do not exist count")
	}
}
