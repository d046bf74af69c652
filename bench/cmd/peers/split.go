package main

import (
	"fmt"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
)

// SplitSource says which metrics of a server have the parts of a query's time, as in the paper's figure 11.
type SplitSource struct {
	// Queue and Predict are counters of time; those of each are added up. QueueCount and PredictCount say how many times there are in them.
	Queue        []string `json:"queue"`
	QueueCount   string   `json:"queue_count"`
	Predict      []string `json:"predict"`
	PredictCount string   `json:"predict_count"`
	// Micros is how many microseconds a unit of the counters is.
	Micros float64 `json:"micros"`
	// OnFunctionPort says that the metrics are on the port of the functions.
	OnFunctionPort bool `json:"on_function_port,omitempty"`
}

// Split is the mean time of a query in a run: what it waited for its batch, what the batch was evaluated, and the rest of what the client saw.
type Split struct {
	QueueMicros    float64 `json:"queue_us"`
	PredictMicros  float64 `json:"predict_us"`
	OverheadMicros float64 `json:"overhead_us"`
}

// totals are the counters of a split at a moment.
type totals struct{ queue, queueCount, predict, predictCount float64 }

func (s *SplitSource) totals(metrics string) (totals, error) {
	sum := func(names ...string) (float64, error) {
		all := 0.0
		for _, name := range names {
			samples, err := gateway.Samples(metrics, name+"{")
			if err != nil {
				return 0, err
			}
			if len(samples) == 0 {
				return 0, fmt.Errorf("the metrics have no %s", name)
			}
			for _, sample := range samples {
				all += sample.Value
			}
		}
		return all, nil
	}
	var t totals
	for to, names := range map[*float64][]string{&t.queue: s.Queue, &t.queueCount: {s.QueueCount}, &t.predict: s.Predict, &t.predictCount: {s.PredictCount}} {
		var err error
		if *to, err = sum(names...); err != nil {
			return t, err
		}
	}
	return t, nil
}

// since returns the split of the queries between two moments, whose mean latency is known.
func (s *SplitSource) since(before, after totals, meanMicros float64) (*Split, error) {
	queries, batches := after.queueCount-before.queueCount, after.predictCount-before.predictCount
	if queries <= 0 || batches <= 0 {
		return nil, fmt.Errorf("the metrics counted %v queries and %v evaluations", queries, batches)
	}
	out := &Split{QueueMicros: (after.queue - before.queue) * s.Micros / queries, PredictMicros: (after.predict - before.predict) * s.Micros / batches}
	out.OverheadMicros = meanMicros - out.QueueMicros - out.PredictMicros
	return out, nil
}
