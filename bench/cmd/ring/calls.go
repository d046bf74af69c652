package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Load is a kind of call and the number of calls in flight.
type Load struct {
	RequestBytes int `json:"request_bytes"`
	AnswerBytes  int `json:"answer_bytes"`
	InFlight     int `json:"in_flight"`
}

func (l Load) String() string {
	size := func(n int) string {
		if n >= 1024 {
			return fmt.Sprintf("%d KiB", n/1024)
		}
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%s → %s, %d in flight", size(l.RequestBytes), size(l.AnswerBytes), l.InFlight)
}

// The workers echo small requests. The answer to a picture is as large as a prediction.
var loads = []Load{
	{64, 64, 64}, {8 << 10, 8 << 10, 64}, {600 << 10, 64, 64},
	{64, 64, 1}, {8 << 10, 8 << 10, 1}, {600 << 10, 64, 1},
}

// A link carries calls to one worker. Callers may use call concurrently, each with its own slot below the load's InFlight. call returns when
// the answer is in this process's private memory.
type link interface {
	call(slot int) error
	// answer returns the answer to the slot's last call.
	answer(slot int) []byte
	close() error
}

// A way is one contender of the comparison.
type way struct {
	name string
	open func(Load) (link, error)
}

var ways = []way{{"socket", openSocket}, {"ring", openRing}, {"worker", openWorker}}

// request returns the payload of a slot. Its first bytes differ between slots, so that an answer to the wrong slot is noticed.
func request(load Load, slot int) []byte {
	p := make([]byte, load.RequestBytes)
	for i := range p {
		p[i] = byte(i + slot)
	}
	return p
}

// checkAnswer checks that the slot's answer is the beginning of its own request.
func checkAnswer(l link, load Load, slot int) error {
	got, want := l.answer(slot), request(load, slot)[:load.AnswerBytes]
	if string(got) != string(want) {
		return fmt.Errorf("slot %d got %d bytes that are not the beginning of its request", slot, len(got))
	}
	return nil
}

// measure opens a link, runs the load over it and closes the link.
func measure(ctx context.Context, w way, load Load, warmup, duration time.Duration) (s Sample, err error) {
	l, err := w.open(load)
	if err != nil {
		return s, err
	}
	defer func() {
		if e := l.close(); err == nil {
			err = e
		}
	}()
	for slot := range load.InFlight {
		if err := l.call(slot); err != nil {
			return s, err
		}
		if err := checkAnswer(l, load, slot); err != nil {
			return s, err
		}
	}
	return hammer(ctx, l, load, warmup, duration)
}

const (
	phaseWarmup uint32 = iota
	phaseMeasure
	phaseEnd
)

// hammer runs one goroutine per slot, which calls in a loop.
func hammer(ctx context.Context, l link, load Load, warmup, duration time.Duration) (Sample, error) {
	var phase atomic.Uint32
	var callers sync.WaitGroup
	histograms := make([]*hdrhistogram.Histogram, load.InFlight)
	errs := make(chan error, load.InFlight)
	for slot := range load.InFlight {
		h := hdrhistogram.New(100, int64(time.Minute), 3)
		histograms[slot] = h
		callers.Go(func() {
			for phase.Load() != phaseEnd {
				measured := phase.Load() == phaseMeasure
				start := time.Now()
				if err := l.call(slot); err != nil {
					errs <- err
					return
				}
				if measured {
					_ = h.RecordValue(min(int64(time.Since(start)), int64(time.Minute))) // in range by the min
				}
			}
		})
	}
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := wait(warmup)
	phase.Store(phaseMeasure)
	start := time.Now()
	if err == nil {
		err = wait(duration)
	}
	seconds := time.Since(start).Seconds()
	phase.Store(phaseEnd)
	callers.Wait()
	if err != nil {
		return Sample{}, err
	}
	for slot := range load.InFlight {
		if err := checkAnswer(l, load, slot); err != nil {
			return Sample{}, err
		}
	}
	all := histograms[0]
	for _, h := range histograms[1:] {
		all.Merge(h)
	}
	micros := func(q float64) float64 { return float64(all.ValueAtQuantile(q)) / 1e3 }
	return Sample{PerSecond: float64(all.TotalCount()) / seconds, P50Micros: micros(50), P99Micros: micros(99)}, nil
}
