package main

import (
	"context"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

const (
	// The functions of ../../models/overload*/xebec.yaml, and their objective.
	flood     = "flood"
	quiet     = "quiet"
	stuck     = "stuck"
	objective = 50 * time.Millisecond

	// openClients is the number of connections of an open loop: far more than it needs unless refusals are slow.
	openClients = 512
	// heaviest is the largest overload, as a multiple of the capacity.
	heaviest = 5.0
	// afterFlood is the load that remains after the flood, as a fraction of the capacity.
	afterFlood = 0.5
	// quietPart is the quiet function's load as a fraction of the capacity: less than its share, which is half.
	quietPart = 0.2
	// relaxed is the fraction of the objective that P99 must not exceed in the closed loop that measures the capacity.
	relaxed = 0.7
	// besideStuck is the load as a multiple of the capacity while the stuck model's queries run into their deadlines.
	besideStuck = 2.0
	stuckRPS    = 200.0
)

// overloads are multiples of the capacity.
var overloads = []float64{1, 2, heaviest}

// setting is how the gateway is started.
type setting struct {
	Name  string
	epoch time.Duration // 0: no planner
}

var settings = []setting{{"planner off", 0}, {"planner on", 10 * time.Millisecond}}

// Round holds all phases, which run one after the other in a gateway of their own.
type Round struct {
	Setting string `json:"setting"`
	// CapacityRPS is the mean of the capacities before and after the overload.
	CapacityRPS    float64    `json:"capacity_rps"`
	CapacityBefore Capacity   `json:"capacity_before"`
	CapacityAfter  Capacity   `json:"capacity_after"`
	Overloads      []Overload `json:"overloads"`
	Recovery       Recovery   `json:"recovery"`
	Fairness       Fairness   `json:"fairness"`
	Deadline       Deadline   `json:"deadline"`
}

// Capacity is a closed loop that saturates.
type Capacity struct {
	Load Load `json:"load"`
	CPU  CPU  `json:"cpu_cores"`
}

// Overload is an open loop at a multiple of the capacity.
type Overload struct {
	Factor float64 `json:"factor"`
	Load   Load    `json:"load"`
	CPU    CPU     `json:"cpu_cores"`
	// Course is the load by windows of a tenth of a second.
	Course []Window `json:"course"`
}

// Recovery is a flood that ends.
type Recovery struct {
	FloodSeconds float64 `json:"flood_seconds"`
	Recovered    bool    `json:"recovered"`
	// AfterMillis is the time from the flood's end to the start of the first span of 100 ms without a refusal or a late answer.
	AfterMillis float64 `json:"after_ms"`
}

// Fairness is the quiet function alone, and beside the flood.
type Fairness struct {
	Alone     Load `json:"alone"`
	Beside    Load `json:"beside"`
	Flood     Load `json:"flood"`
	AloneCPU  CPU  `json:"alone_cpu_cores"`
	BesideCPU CPU  `json:"beside_cpu_cores"`
}

// Deadline is how late the default outputs of a stuck model are while another model is flooded.
type Deadline struct {
	Stuck Load `json:"stuck"`
	Flood Load `json:"flood"`
	CPU   CPU  `json:"cpu_cores"`
	// Client is the lateness as seen by the client, from the deadline to the last byte of the default. Early defaults came before the deadline.
	Client Latency `json:"client_late"`
	Early  int     `json:"early"`
	// Gateway is the gateway's own histogram, or nil if it has none.
	Gateway *LateHistogram `json:"gateway_late,omitempty"`
}

// bench is a gateway and the load on it.
type bench struct {
	cfg     config
	data    *data
	gateway *gateway.Gateway
	clients int // of a closed loop that saturates
	seed    uint64
}

// open returns an open loop. Each has its own arrivals.
func (b *bench) open(function string, rate float64, d time.Duration) stream {
	b.seed++
	return stream{function: function, rate: rate, clients: openClients, duration: d, seed: b.seed}
}

// closed returns a closed loop of requests with a long deadline, so that the gateway refuses none. A refused client of a closed loop would
// retry at once, 60,000 times a second, which takes the processor from the worker.
func (b *bench) closed(clients int, d time.Duration) stream {
	return stream{function: flood, clients: clients, duration: d, fields: []string{"Xebec-Slo-Ms: 60000"}}
}

// calibrate finds the number of clients with which a closed loop has the largest goodput. With fewer clients batches are small, with more
// queries wait too long.
func (b *bench) calibrate(ctx context.Context) error {
	best := 0.0
	for _, clients := range b.cfg.clients {
		p, err := b.play(ctx, b.closed(clients, b.cfg.capacity))
		if err != nil {
			return err
		}
		l := p.streams[0].load()
		runner.Logf("    %3d clients: goodput %6.0f/s, P99 %5.1f ms, %d late", clients, l.GoodputRPS, l.Accepted.P99, l.Late)
		// Slightly more goodput is not worth latencies near the objective: the next pause of the machine makes them late.
		if b.clients > 0 && l.Accepted.P99 > relaxed*objective.Seconds()*1e3 {
			break
		}
		if l.GoodputRPS > best {
			best, b.clients = l.GoodputRPS, clients
		}
	}
	if best == 0 {
		return fmt.Errorf("no closed loop of %v clients had an answer within %s: the machine is too slow, or too busy", b.cfg.clients, objective)
	}
	return nil
}

// round plays all phases.
func (b *bench) round(ctx context.Context, s setting) (*Round, error) {
	r := &Round{Setting: s.Name}
	var err error
	if r.CapacityBefore, err = b.saturate(ctx); err != nil {
		return nil, err
	}
	capacity := r.CapacityBefore.Load.GoodputRPS
	if capacity == 0 {
		return nil, fmt.Errorf("a closed loop of %d clients had no answer within %s", b.clients, objective)
	}
	for _, factor := range overloads {
		p, err := b.play(ctx, b.open(flood, factor*capacity, b.cfg.duration))
		if err != nil {
			return nil, err
		}
		h := &p.streams[0]
		o := Overload{factor, h.load(), p.cpu, h.trace.windows(h.begin, h.end)}
		r.Overloads = append(r.Overloads, o)
		runner.Logf("    %g ×: %s; %s", factor, o.Load, o.CPU)
	}
	if r.CapacityAfter, err = b.saturate(ctx); err != nil {
		return nil, err
	}
	r.CapacityRPS = (r.CapacityBefore.Load.GoodputRPS + r.CapacityAfter.Load.GoodputRPS) / 2
	if r.Recovery, err = b.recoverFrom(ctx, r.CapacityRPS); err != nil {
		return nil, err
	}
	if r.Fairness, err = b.share(ctx, r.CapacityRPS); err != nil {
		return nil, err
	}
	if r.Deadline, err = b.expire(ctx, r.CapacityRPS); err != nil {
		return nil, err
	}
	return r, nil
}

func (b *bench) saturate(ctx context.Context) (Capacity, error) {
	p, err := b.play(ctx, b.closed(b.clients, b.cfg.capacity))
	if err != nil {
		return Capacity{}, err
	}
	c := Capacity{p.streams[0].load(), p.cpu}
	runner.Logf("    capacity: %s; %s", c.Load, c.CPU)
	return c, nil
}

// recoverFrom floods and observes a light load from the flood's end on. The light load runs all the time: two Poisson processes add up to one.
func (b *bench) recoverFrom(ctx context.Context, capacity float64) (Recovery, error) {
	rest, extra := b.open(flood, afterFlood*capacity, 2*b.cfg.flood), b.open(flood, (heaviest-afterFlood)*capacity, b.cfg.flood)
	p, err := b.play(ctx, rest, extra)
	if err != nil {
		return Recovery{}, err
	}
	r := Recovery{FloodSeconds: b.cfg.flood.Seconds()}
	all := append(p.streams[0].trace, p.streams[1].trace...)
	after, ok := all.recovery(p.streams[1].end, p.streams[0].end)
	r.Recovered, r.AfterMillis = ok, float64(after)/1e6
	runner.Logf("    recovery: %v, after %.0f ms", ok, r.AfterMillis)
	return r, nil
}

// share plays the quiet function alone and beside the flood.
func (b *bench) share(ctx context.Context, capacity float64) (Fairness, error) {
	alone, err := b.play(ctx, b.open(quiet, quietPart*capacity, b.cfg.duration))
	if err != nil {
		return Fairness{}, err
	}
	both, err := b.play(ctx, b.open(quiet, quietPart*capacity, b.cfg.duration), b.open(flood, heaviest*capacity, b.cfg.duration))
	if err != nil {
		return Fairness{}, err
	}
	f := Fairness{alone.streams[0].load(), both.streams[0].load(), both.streams[1].load(), alone.cpu, both.cpu}
	runner.Logf("    quiet alone: %s; %s", f.Alone, f.AloneCPU)
	runner.Logf("    quiet beside the flood: %s; %s", f.Beside, f.BesideCPU)
	return f, nil
}

// expire floods one model while all queries of another run into their deadlines.
func (b *bench) expire(ctx context.Context, capacity float64) (Deadline, error) {
	before, err := lateHistogram(ctx, b.gateway, stuck)
	if err != nil {
		return Deadline{}, err
	}
	p, err := b.play(ctx, b.open(stuck, stuckRPS, b.cfg.duration), b.open(flood, besideStuck*capacity, b.cfg.duration))
	if err != nil {
		return Deadline{}, err
	}
	after, err := lateHistogram(ctx, b.gateway, stuck)
	if err != nil {
		return Deadline{}, err
	}
	d := Deadline{Stuck: p.streams[0].load(), Flood: p.streams[1].load(), CPU: p.cpu, Gateway: after.since(before)}
	millis := p.streams[0].trace.millis(defaulted)
	for i := range millis {
		millis[i] -= objective.Seconds() * 1e3
		if millis[i] < 0 {
			d.Early++
		}
	}
	d.Client = latencyOf(millis)
	runner.Logf("    deadlines: %d defaults, %.2f ms late at P50, %.2f at P99, %d early; by the gateway %s", d.Stuck.Defaults, d.Client.P50, d.Client.P99, d.Early, d.Gateway)
	return d, nil
}

// String formats the load for a line of progress.
func (l Load) String() string {
	return fmt.Sprintf("goodput %.0f/s of %.0f/s, accepted P50 %.1f P99 %.1f ms, %d refused P50 %.2f P99 %.2f ms, %d late, %d expired, %d others %s; sent late P99 %.2f ms", l.GoodputRPS, l.OfferedRPS,
		l.Accepted.P50, l.Accepted.P99, l.Refused, l.Refusals.P50, l.Refusals.P99, l.Late, l.Expired, l.Others, l.OthersWhy, l.SendDelayP99)
}

// String formats the cores for the same line.
func (c CPU) String() string {
	return fmt.Sprintf("cores: generator %.2f, gateway %.2f, workers %.2f, others %.2f", c.Generator, c.Gateway, c.Workers, c.Others)
}
