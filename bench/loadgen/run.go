package loadgen

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Run sends requests as the options say and returns the result. It returns an error, and no result, for bad options, if it cannot connect, if the
// server keeps closing connections, or if the context is cancelled. Failed requests are part of the result.
func Run(ctx context.Context, opts Options) (*Result, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Threads == 0 {
		opts.Threads = 1
	}
	if opts.Grace == 0 {
		opts.Grace = defaultGrace
	}
	if opts.Arrivals == "" {
		opts.Arrivals = Poisson
	}
	addr, err := netip.ParseAddrPort(opts.Addr)
	if err != nil { // no names, so that a run does not depend on a resolver
		return nil, fmt.Errorf("load generator: address %q: expected an IP address and a port, such as 127.0.0.1:1337", opts.Addr)
	}
	loops := make([]*loop, opts.Threads)
	for i := range loops {
		l := &loop{opts: &opts, cpu: -1, addr: addr, epoll: -1, timer: -1, wake: -1, latency: newHistogram(), sendDelay: newHistogram(), errs: map[string]uint64{}}
		if len(opts.CPUs) > 0 {
			l.cpu = opts.CPUs[i%len(opts.CPUs)]
		}
		loops[i] = l
		defer l.close()
		if opts.Rate > 0 {
			if l.schedule, err = NewSchedule(opts.Rate, opts.Arrivals, opts.Seed, i, opts.Threads); err != nil {
				return nil, err
			}
		}
		share := opts.Connections / opts.Threads
		if i < opts.Connections%opts.Threads {
			share++
		}
		if err := l.open(share); err != nil {
			return nil, err
		}
	}
	seconds, err := drive(ctx, &opts, loops)
	if err != nil {
		return nil, err
	}
	return collect(&opts, loops, seconds), nil
}

// drive runs the loops, calls the hooks, and returns the length of the measured part. All loops have ended when it returns.
func drive(ctx context.Context, opts *Options, loops []*loop) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var running sync.WaitGroup
	for _, l := range loops {
		l.start = start
		l.measure = int64(opts.Warmup)
		l.end = int64(opts.Warmup + opts.Duration)
		l.giveUp = l.end + int64(opts.Grace)
		running.Go(func() {
			if err := l.run(); err != nil {
				cancel(err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	defer func() { // also if a hook panics, because the descriptors are closed after this
		for _, l := range loops {
			l.cancel()
		}
		<-done
	}()

	// await waits until at after the start of the run.
	await := func(at time.Duration) error {
		timer := time.NewTimer(at - time.Since(start))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := await(opts.Warmup); err != nil {
		return 0, err
	}
	began := time.Now()
	if opts.OnMeasure != nil {
		opts.OnMeasure()
	}
	if err := await(opts.Warmup + opts.Duration); err != nil {
		return 0, err
	}
	seconds := time.Since(began).Seconds()
	if opts.OnEnd != nil {
		opts.OnEnd()
	}
	select {
	case <-done:
		// A failed loop cancels the context before it ends.
		return seconds, context.Cause(ctx)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// collect adds up the results of the loops, which must have ended.
func collect(opts *Options, loops []*loop, seconds float64) *Result {
	r := &Result{Mode: "closed", Connections: opts.Connections, RateTarget: opts.Rate, Seconds: seconds, Status: map[int]uint64{}}
	latency, sendDelay := newHistogram(), newHistogram()
	for _, l := range loops {
		latency.Merge(l.latency)
		sendDelay.Merge(l.sendDelay)
		r.Completed += l.completed
		r.Defaults += l.defaults
		r.Wrong += l.wrong
		if r.FirstWrong == "" {
			r.FirstWrong = l.firstWrong
		}
		r.Unanswered += uint64(l.out + l.behind.count)
		r.Dropped += l.dropped
		for status, n := range l.status {
			if n > 0 {
				r.Status[status] += n
			}
		}
		for why, n := range l.errs {
			if r.Errors == nil {
				r.Errors = map[string]uint64{}
			}
			r.Errors[why] += n
		}
	}
	r.RPS = float64(r.Completed) / seconds
	r.Latency = distribution(latency)
	if opts.Rate > 0 {
		r.Mode = "open " + string(opts.Arrivals)
		d := distribution(sendDelay)
		r.SendDelay = &d
	}
	return r
}
