package main

import (
	"math"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// contender is a scaler in the comparison.
type contender struct {
	name, what string
	scaler     func() sim.Scaler
	tickNanos  int64 // between two decisions; 0: as in the gateway
}

// contenders are compared, ours first.
var contenders = []contender{
	{
		name: "xebec", what: "ours, with the defaults of a declaration: a window of a minute, a delay of 30 s, a utilization of 0.7 for up to four replicas. It learns what a replica serves.",
		scaler: func() sim.Scaler { return autoscale.New() },
	},
	{
		name:   "knative-rate",
		what:   "Knative's rules with its defaults, by requests per second (its metric `rps`), told that a replica is to get 70 % of the 30.4 that it serves.",
		scaler: func() sim.Scaler { return &byRate{knative: autoscale.Knative{Target: 0.7 * replicaServes}} },
	},
	{
		name: "knative", what: "the same by concurrency, Knative's own default, with 70 % of two of the largest batches that a replica makes within the objective.",
		scaler: func() sim.Scaler { return &autoscale.Knative{} },
	},
}

// byRate applies Knative's rules to requests per second instead of requests in flight. The arithmetic is the same: the mean of a count over the
// windows, divided by a target.
type byRate struct {
	knative autoscale.Knative
	now     api.Nanos
	arrived uint64
	rate    int
}

func (b *byRate) Decide(s *autoscale.Sample) autoscale.Decision {
	in := *s
	if passed := float64(s.Now - b.now); passed > 0 {
		b.rate = int(math.Round(float64(s.Arrived-b.arrived) * float64(second) / passed))
		b.now, b.arrived = s.Now, s.Arrived
	}
	if s.Wanted > 0 || s.Queued == 0 { // a query that finds no replica counts as in flight for both metrics
		in.Queued, in.InFlight = 0, b.rate
	}
	return b.knative.Decide(&in)
}
