package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Sample is what the gateway holds at one moment.
type Sample struct {
	Seconds     float64 `json:"s"` // since the life began
	Descriptors float64 `json:"descriptors"`
	Segments    float64 `json:"segments"` // shared memory that the gateway has mapped
	Goroutines  float64 `json:"goroutines"`
	Megabytes   float64 `json:"megabytes"` // resident
	Zombies     float64 `json:"zombies"`   // dead processes below the gateway that nothing has reaped
	Processes   float64 `json:"processes"` // below the gateway
}

// watch samples the gateway once a second for the duration of a life.
func (w *world) watch(ctx context.Context, life time.Duration) ([]Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	began := time.Now()
	var samples []Sample
	for runner.Sleep(ctx, time.Second) == nil {
		s, err := w.sample(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return samples, err
		}
		s.Seconds = time.Since(began).Seconds()
		samples = append(samples, s)
		if len(samples)%60 == 0 {
			runner.Logf("    %4.0f s: %.0f MB, %.0f descriptors, %.0f goroutines, %.0f segments", s.Seconds, s.Megabytes, s.Descriptors, s.Goroutines, s.Segments)
		}
	}
	return samples, nil
}

func (w *world) sample(ctx context.Context) (s Sample, err error) {
	g := w.now()
	if s.Megabytes, err = g.ResidentMegabytes(); err != nil {
		return s, err
	}
	open, err := descriptors(g.PID())
	if err != nil {
		return s, err
	}
	shared, err := segments(g.PID())
	if err != nil {
		return s, err
	}
	all, err := processes()
	if err != nil {
		return s, err
	}
	for _, p := range below(all, g.PID()) {
		s.Processes++
		if p.state == 'Z' {
			s.Zombies++
		}
	}
	s.Descriptors, s.Segments = float64(open), float64(shared)
	text, err := g.Metrics(ctx)
	if err != nil {
		return s, err
	}
	s.Goroutines, err = unlabelled(text, "go_goroutines")
	return s, err
}

// unlabelled returns the value of a metric without labels.
func unlabelled(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, nil
}
