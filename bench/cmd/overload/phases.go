package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	// The functions of ../../models/overload*/xebec.yaml, and their objective.
	flood     = "flood"
	quiet     = "quiet"
	stuck     = "stuck"
	objective = 50 * time.Millisecond

	// openClients are the connections of an open loop: far more than are ever out, unless refusals are slow.
	openClients = 512
	// overloads are multiples of the capacity.
	heaviest = 5.0
	// afterFlood is the load, as a part of the capacity, that must be served well again.
	afterFlood = 0.5
	// quietPart of the capacity is what the quiet function asks for: less than half, which is its share.
	quietPart = 0.2
	// relaxed is the part of the objective within which a closed loop that measures the capacity must be answered.
	relaxed = 0.7
	// besideStuck is the load, as a multiple of the capacity, while the stuck model's queries run into their deadlines.
	besideStuck = 2.0
	stuckRPS    = 200.0
)

var overloads = []float64{1, 2, heaviest}

// setting is how the gateway is started.
type setting struct {
	Name  string
	epoch time.Duration // 0: no planner
}

var settings = []setting{{"planner off", 0}, {"planner on", 10 * time.Millisecond}}

// Round is all phases, one after the other, against one gateway that was started for it.
type Round struct {
	Setting string `json:"setting"`
	// CapacityRPS is the mean of the two: before the overload and after it.
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
	// Course shows how the load begins, among other things.
	Course []Window `json:"course"`
}

// Recovery is a flood that ends.
type Recovery struct {
	FloodSeconds float64 `json:"flood_seconds"`
	Recovered    bool    `json:"recovered"`
	// AfterMillis is when the first span of 100 ms without a refusal and without a late answer begins, from the flood's end.
	AfterMillis float64 `json:"after_ms"`
}

// Fairness is the quiet function with the model for itself, and beside the flood.
type Fairness struct {
	Alone     Load `json:"alone"`
	Beside    Load `json:"beside"`
	Flood     Load `json:"flood"`
	AloneCPU  CPU  `json:"alone_cpu_cores"`
	BesideCPU CPU  `json:"beside_cpu_cores"`
}

// Deadline is how late the default of a model that hangs comes while another model is flooded.
type Deadline struct {
	Stuck Load `json:"stuck"`
	Flood Load `json:"flood"`
	CPU   CPU  `json:"cpu_cores"`
	// Client is from the objective after a request was due to the last byte of the default; Early ones came before it.
	Client Latency `json:"client_late"`
	Early  int     `json:"early"`
	// Gateway is by the gateway's own histogram, up to the bound of a bucket; nil where it has none.
	Gateway *LateHistogram `json:"gateway_late,omitempty"`
}

// bench is a gateway, and what is asked of it.
type bench struct {
	cfg     config
	data    *data
	gateway *gateway
	clients int // of a closed loop that saturates
	seed    uint64
}

// open is an open loop; each has arrivals of its own.
func (b *bench) open(function string, rate float64, d time.Duration) stream {
	b.seed++
	return stream{function: function, rate: rate, clients: openClients, duration: d, seed: b.seed}
}

// closed is a closed loop of patient requests: what is late for the benchmark is not for the gateway, so that none is refused. Who is
// refused in a closed loop asks again at once, 60,000 times a second, which takes the processor from the worker.
func (b *bench) closed(clients int, d time.Duration) stream {
	return stream{function: flood, clients: clients, duration: d, fields: []string{"Xebec-Slo-Ms: 60000"}}
}

// calibrate finds the number of clients with which a closed loop has the largest goodput: with fewer the batches are small, with
// more they wait too long.
func (b *bench) calibrate(ctx context.Context) error {
	best := 0.0
	for _, clients := range b.cfg.clients {
		p, err := b.play(ctx, b.closed(clients, b.cfg.capacity))
		if err != nil {
			return err
		}
		l := p.streams[0].load()
		logf("    %3d clients: goodput %6.0f/s, P99 %5.1f ms, %d late", clients, l.GoodputRPS, l.Accepted.P99, l.Late)
		// A few more by the second are not worth latencies that are near the objective: the next hiccup makes them late.
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
		logf("    %g ×: %s; %s", factor, o.Load, o.CPU)
	}
	if r.CapacityAfter, err = b.saturate(ctx); err != nil {
		return nil, err
	}
	r.CapacityRPS = (r.CapacityBefore.Load.GoodputRPS + r.CapacityAfter.Load.GoodputRPS) / 2
	if r.Recovery, err = b.calmDown(ctx, r.CapacityRPS); err != nil {
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
	logf("    capacity: %s; %s", c.Load, c.CPU)
	return c, nil
}

// calmDown floods, and looks at what a light load sees from the flood's end on. The light load is there all the time: two Poisson
// processes add up to one.
func (b *bench) calmDown(ctx context.Context, capacity float64) (Recovery, error) {
	rest, extra := b.open(flood, afterFlood*capacity, 2*b.cfg.flood), b.open(flood, (heaviest-afterFlood)*capacity, b.cfg.flood)
	p, err := b.play(ctx, rest, extra)
	if err != nil {
		return Recovery{}, err
	}
	r := Recovery{FloodSeconds: b.cfg.flood.Seconds()}
	all := append(p.streams[0].trace, p.streams[1].trace...)
	after, ok := all.recovery(p.streams[1].end, p.streams[0].end)
	r.Recovered, r.AfterMillis = ok, float64(after)/1e6
	logf("    recovery: %v, after %.0f ms", ok, r.AfterMillis)
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
	logf("    quiet alone: %s; %s", f.Alone, f.AloneCPU)
	logf("    quiet beside the flood: %s; %s", f.Beside, f.BesideCPU)
	return f, nil
}

// expire floods one model while all queries of another run into their deadlines.
func (b *bench) expire(ctx context.Context, capacity float64) (Deadline, error) {
	before, err := b.gateway.lateHistogram(ctx, stuck)
	if err != nil {
		return Deadline{}, err
	}
	p, err := b.play(ctx, b.open(stuck, stuckRPS, b.cfg.duration), b.open(flood, besideStuck*capacity, b.cfg.duration))
	if err != nil {
		return Deadline{}, err
	}
	after, err := b.gateway.lateHistogram(ctx, stuck)
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
	logf("    deadlines: %d defaults, %.2f ms late at P50, %.2f at P99, %d early; by the gateway %s", d.Stuck.Defaults, d.Client.P50, d.Client.P99, d.Early, d.Gateway)
	return d, nil
}

// String is a line of progress.
func (l Load) String() string {
	return fmt.Sprintf("goodput %.0f/s of %.0f/s, accepted P50 %.1f P99 %.1f ms, %d refused P50 %.2f P99 %.2f ms, %d late, %d expired, %d others %s; sent late P99 %.2f ms", l.GoodputRPS, l.OfferedRPS,
		l.Accepted.P50, l.Accepted.P99, l.Refused, l.Refusals.P50, l.Refusals.P99, l.Late, l.Expired, l.Others, l.OthersWhy, l.SendDelayP99)
}

// String is for the same line.
func (c CPU) String() string {
	return fmt.Sprintf("cores: generator %.2f, gateway %.2f, workers %.2f, others %.2f", c.Generator, c.Gateway, c.Workers, c.Others)
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
