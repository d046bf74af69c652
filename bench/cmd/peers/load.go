package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/grpcload"
	"github.com/xebec-serving/xebec/bench/internal/processes"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// modelNames are the models of bench/peers/models.py.
var modelNames = []string{"noop", "digits", "digits-onnx"}

// Load is what clients do to a server with one model.
type Load struct {
	Model   string  `json:"model"`
	GRPC    bool    `json:"grpc,omitempty"`
	Clients int     `json:"clients"`            // connections; of an open loop the most
	Rate    float64 `json:"rate_rps,omitempty"` // of an open loop, Poisson; 0: a closed loop
}

// openClients bounds the connections of an open loop, and so what a server that falls behind has to answer at a time.
const openClients = 256

// grace is how long an open loop waits for its last answers: many times the objective.
const grace = time.Second

var loads = []Load{
	{Model: "noop", Clients: 1}, {Model: "noop", Clients: 64}, {Model: "noop", Clients: 256},
	{Model: "noop", Clients: openClients, Rate: 2000},
	{Model: "digits", Clients: 1}, {Model: "digits", Clients: 64}, {Model: "digits", Clients: 256},
	{Model: "digits", Clients: openClients, Rate: 250}, {Model: "digits", Clients: openClients, Rate: 1000}, {Model: "digits", Clients: openClients, Rate: 4000},
	{Model: "digits", GRPC: true, Clients: 1}, {Model: "digits", GRPC: true, Clients: 64},
	{Model: "digits-onnx", Clients: 64},
}

// Name is for -loads and for the report.
func (l Load) Name() string {
	name := l.Model
	if l.GRPC {
		name += ", gRPC"
	}
	switch {
	case l.Rate > 0:
		return fmt.Sprintf("%s, open, %g/s", name, l.Rate)
	case l.Clients == 1:
		return name + ", 1 client"
	}
	return fmt.Sprintf("%s, %d clients", name, l.Clients)
}

// Sample is one run. Only right outputs count: status 200 with the model's output.
type Sample struct {
	Peer  string `json:"peer"`
	Round int    `json:"round"`
	// RPS is right outputs a second.
	RPS       float64 `json:"rps"`
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
	// CPUMicros is the CPU time of all processes of the server for each right output, MemoryMiB what they have resident after the run.
	CPUMicros float64 `json:"cpu_us"`
	MemoryMiB float64 `json:"memory_mib"`
	// Of an open loop: how many requests were due, and which part of them got a right output within the objective. The latencies count requests without
	// a right output as the time that the run would have waited, so P99Millis is within the objective only if 99 of 100 are.
	Offered   int     `json:"offered,omitempty"`
	InTime    float64 `json:"in_time,omitempty"`
	SendDelay float64 `json:"send_delay_p99_ms,omitempty"` // the generator's own lateness
	// Wrong are answers of status 200 with another output. Failed are these and all others without a right output; Why lists them.
	Wrong  uint64 `json:"wrong,omitempty"`
	Failed uint64 `json:"failed,omitempty"`
	Why    string `json:"why,omitempty"`
	Split  *Split `json:"split,omitempty"`
}

// GoodputRPS is the right outputs within the objective, per second.
func (s Sample) GoodputRPS(l Load) float64 { return s.InTime * l.Rate }

// line is the sample as a line of progress.
func (s Sample) line(l Load) string {
	out := fmt.Sprintf("%7.0f/s  p50 %8.2f ms  p99 %8.2f ms  CPU %7.0f µs  %5.0f MiB", s.RPS, s.P50Millis, s.P99Millis, s.CPUMicros, s.MemoryMiB)
	if l.Rate > 0 {
		out += fmt.Sprintf("  in time %5.1f %%", 100*s.InTime)
	}
	if s.Failed > 0 {
		out += fmt.Sprintf("  %d without a right output: %.120s", s.Failed, s.Why)
	}
	return out
}

// measure runs a load on a server that is stopped, and stops it again. A run that a server breaks off is a sample without right outputs; an error
// means that the comparison cannot go on.
func (c *contender) measure(ctx context.Context, cfg config, l Load, q Queries, seed uint64) (Sample, error) {
	set, err := c.thaw()
	if err != nil {
		return Sample{Peer: c.peer.Name, Failed: 1, Why: err.Error()}, ctx.Err()
	}
	run := c.http
	if l.GRPC {
		run = c.grpc
	}
	s, err := run(ctx, cfg, l, q, seed, set)
	s.Peer = c.peer.Name
	if err != nil && ctx.Err() == nil {
		s.Failed, s.Why = s.Failed+1, strings.TrimPrefix(s.Why+"; "+err.Error(), "; ")
	}
	if memory, err := set.Memory(); err == nil {
		s.MemoryMiB = float64(memory) / (1 << 20)
	}
	if err := errors.Join(c.settle(ctx, set), c.freeze()); err != nil && ctx.Err() == nil {
		s.Failed, s.Why = s.Failed+1, strings.TrimPrefix(s.Why+"; "+err.Error(), "; ")
	}
	return s, ctx.Err()
}

// http runs a load of HTTP.
func (c *contender) http(ctx context.Context, cfg config, l Load, _ Queries, seed uint64, set processes.Set) (Sample, error) {
	var before, after time.Duration
	var measuring atomic.Bool
	var right int        // with an answer in the measured part
	var micros []float64 // of right outputs to requests of the measured part
	var counters, ended totals
	opts := loadgen.Options{
		Addr: c.addr, Requests: c.closed, Connections: l.Clients, Rate: l.Rate, Seed: seed + 1, Warmup: cfg.warmup, Duration: cfg.duration, Grace: grace,
		OnMeasure: func() { before = set.CPU(); measuring.Store(true) },
		OnEnd:     func() { measuring.Store(false); after = set.CPU() },
		OnAnswer: func(a loadgen.Answered) {
			if a.Status != 200 || a.Wrong || a.Default {
				return
			}
			if measuring.Load() {
				right++
			}
			if a.Measured {
				micros = append(micros, float64(a.Done.Sub(a.Due).Nanoseconds())/1e3)
			}
		},
	}
	if l.Rate > 0 {
		opts.Requests = c.open
	} else {
		opts.Grace = 10 * time.Second // so that a slow server keeps its right outputs
	}
	split := c.peer.Split != nil && l.Rate == 0
	if split {
		text, err := c.metrics(ctx)
		if err == nil {
			counters, err = c.peer.Split.totals(text)
		}
		if err != nil {
			return Sample{}, err
		}
	}
	r, err := loadgen.Run(ctx, opts)
	if err != nil {
		return Sample{}, err
	}
	s := Sample{RPS: float64(right) / r.Seconds, CPUMicros: cpuMicros(after-before, right), Wrong: r.Wrong, Failed: r.Failed()}
	if err := r.Clean(); err != nil && s.Failed > 0 {
		s.Why = strings.TrimPrefix(err.Error(), "the run is not clean: ")
	}
	if split {
		text, err := c.metrics(ctx)
		if err == nil {
			ended, err = c.peer.Split.totals(text)
		}
		if err == nil {
			s.Split, err = c.peer.Split.since(counters, ended, results.Mean(micros))
		}
		if err != nil {
			return s, err
		}
	}
	if l.Rate > 0 {
		if s.Offered, err = offered(l.Rate, seed+1, cfg.warmup, cfg.duration); err != nil {
			return s, err
		}
		s.SendDelay = r.SendDelay.P99 / 1e3
		s.InTime = inTime(micros, s.Offered, cfg.slo)
		for len(micros) < s.Offered {
			micros = append(micros, float64((cfg.duration + grace).Microseconds()))
		}
	}
	if len(micros) == 0 {
		return s, errors.New("no right output")
	}
	at := results.Quantiles(micros)
	s.P50Millis, s.P99Millis = at(0.5)/1e3, at(0.99)/1e3
	return s, nil
}

// cpuMicros is the CPU time for each right output; without one it is 0.
func cpuMicros(used time.Duration, right int) float64 {
	if right == 0 {
		return 0
	}
	return float64(used.Nanoseconds()) / 1e3 / float64(right)
}

// offered counts the requests that the load generator's schedule has in the measured part. It has one thread.
func offered(rate float64, seed uint64, warmup, duration time.Duration) (int, error) {
	schedule, err := loadgen.NewSchedule(rate, loadgen.Poisson, seed, 0, 1)
	if err != nil {
		return 0, err
	}
	n := 0
	for due := schedule.Next(); due < int64(warmup+duration); due = schedule.Next() {
		if due >= int64(warmup) {
			n++
		}
	}
	return n, nil
}

// inTime is the part of the offered requests that got their right output within the objective.
func inTime(micros []float64, offered int, slo time.Duration) float64 {
	n := 0
	for _, m := range micros {
		if m <= float64(slo.Microseconds()) {
			n++
		}
	}
	return results.Ratio(float64(n), float64(offered))
}

// grpc runs a closed loop of gRPC.
func (c *contender) grpc(ctx context.Context, cfg config, l Load, q Queries, _ uint64, set processes.Set) (Sample, error) {
	var before, after time.Duration
	var failures tally
	r, err := grpcload.Run(ctx, grpcload.Options{
		Addr: c.grpcAddr, Requests: c.calls, Clients: l.Clients, Warmup: cfg.warmup, Duration: cfg.duration,
		Accepts: func(i int, message []byte) error {
			err := accepts(message, q.Outputs[i])
			if err != nil {
				failures.add(err)
			}
			return err
		},
		OnMeasure: func() error { before = set.CPU(); return nil },
		OnEnd:     func() error { after = set.CPU(); return nil },
	})
	s := Sample{Wrong: failures.wrong}
	if err != nil {
		// All clients of a server that does not answer say the same.
		first, _, _ := strings.Cut(err.Error(), "\n")
		return s, errors.New(first)
	}
	s.RPS, s.CPUMicros = r.RPS, cpuMicros(after-before, int(r.Completed))
	s.P50Millis, s.P99Millis = r.Quantile(0.5)/1e3, r.Quantile(0.99)/1e3
	return s, nil
}

// tally counts wrong outputs of clients that run side by side.
type tally struct {
	sync.Mutex
	wrong uint64
}

func (t *tally) add(err error) {
	var wrong wrongOutput
	if errors.As(err, &wrong) {
		t.Lock()
		t.wrong++
		t.Unlock()
	}
}

// reasons lists why runs failed, each once.
func reasons(samples []Sample) string {
	seen := map[string]bool{}
	for _, s := range samples {
		if s.Why != "" {
			seen[fmt.Sprintf("%.200s", s.Why)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " / ")
}
