package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cmd/xebec/capacity"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// planLog reads when the queries of some functions came, of all where none is named. It reads twice: first to count, then for the busiest
// seconds, so that memory does not grow with the log.
func (c *cli) planLog(ctx context.Context, o *planOptions, functions []string) (*capacity.Traffic, error) {
	read := func(each func(at int64, sample float64) error) (*logReader, inferlog.Summary, error) {
		l := &logReader{o: &replayOptions{since: math.MinInt64, until: math.MaxInt64}, seen: map[string]bool{}}
		sum, err := l.read([]string{o.log}, func(e *inferlog.Entry) error {
			if e.Kind != inferlog.KindQuery || len(functions) > 0 && !slices.Contains(functions, e.Schema.Function) {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return each(e.Record.AtMicros, e.Schema.Sample)
		})
		return l, sum, err
	}

	const maxSeconds = int(capacity.MaxSpan / time.Second)
	counts := map[int64]uint32{}
	queries, stoodFor := 0, 0.0
	l, sum, err := read(func(at int64, sample float64) error {
		queries++
		if !(sample > 0 && sample <= 1) {
			sample = 1
		}
		stoodFor += 1 / sample
		counts[floorDiv(at, 1e6)]++
		if len(counts) > maxSeconds {
			return fmt.Errorf("--log %s: its queries came in more than %d different seconds: give a part of the log, up to %s of it", o.log, maxSeconds, capacity.MaxSpan)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.noteDamage(sum)
	if queries == 0 {
		if sum.Queries > 0 {
			return nil, fmt.Errorf("--log %s: it has %d queries, but none of %s; see --function, and \"xebec replay %s --print\"", o.log, sum.Queries, strings.Join(functions, ", "), o.log)
		}
		return nil, l.nothing(sum)
	}

	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for s := range counts {
		first, last = min(first, s), max(last, s)
	}
	if last-first >= int64(maxSeconds) {
		return nil, fmt.Errorf("--log %s: its queries came over more than %s: give a part of it, a file for instance", o.log, capacity.MaxSpan)
	}
	rec := &capacity.Recording{PerSecond: make([]uint32, last-first+1), Scale: o.scale * stoodFor / float64(queries)}
	for s, n := range counts {
		rec.PerSecond[s-first] = n
	}
	from, to := rec.Busiest()
	begin, end := (first+int64(from))*1e6, (first+int64(to))*1e6
	var times []api.Nanos
	if _, _, err = read(func(at int64, _ float64) error {
		if at >= begin && at < end {
			times = append(times, api.Nanos(at-begin)*1e3)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	t, err := capacity.Recorded(rec, times, o.seed)
	if err != nil {
		return nil, fmt.Errorf("--log %s: %w", o.log, err)
	}
	return t, nil
}

// floorDiv rounds down, also before 1970.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
