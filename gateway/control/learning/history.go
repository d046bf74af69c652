package learning

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
)

const (
	// lookEvery is how often functions are looked at: a change of candidates is noticed within this time.
	lookEvery = 30 * time.Second //xebec:limit delay of a sample in `learn history`
	// noteWithin bounds a call to the store.
	noteWithin = 5 * time.Second
	// nameLayout makes names of samples sort by time.
	nameLayout = "2006-01-02T15:04:05.000000000Z"
)

// sampler knows of each function what its last sample had. It is pure but for its lock.
type sampler struct {
	mu   sync.Mutex
	last map[string]sampled
}

// sampled is what decides whether the next sample is due.
type sampled struct {
	hour       time.Time
	policy     string
	candidates []string
	learned    float64 // the sum of counts, which changes with all feedback
}

// due returns why a sample of a function is to be taken now; empty: it is not. At the first look something that was learned is sampled.
func (s *sampler) due(function string, r *learned.Report, now time.Time) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.last[function]
	next := sampled{hour: now.Truncate(time.Hour), policy: r.Policy}
	for _, row := range r.Global {
		next.candidates = append(next.candidates, row.Ref)
		next.learned += row.Count
	}
	switch {
	case !known && next.learned == 0:
		return "" // nothing has been learned yet
	case known && (last.policy != next.policy || !slices.Equal(last.candidates, next.candidates)):
		reason = api.LearnedCandidates
	case !known || last.hour.Before(next.hour) && last.learned != next.learned:
		reason = api.LearnedHourly
	default:
		return ""
	}
	s.last[function] = next
	return reason
}

// keep forgets functions that are gone.
func (s *sampler) keep(functions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.last {
		if _, ok := slices.BinarySearch(functions, name); !ok {
			delete(s.last, name)
		}
	}
}

// Run takes samples until ctx ends.
func (l *Learning) Run(ctx context.Context) {
	if l.cfg.Notes == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.look(ctx, now)
		case <-ctx.Done():
			return
		}
	}
}

// look takes the samples that are due.
func (l *Learning) look(ctx context.Context, now time.Time) {
	names := l.cfg.Table.LearningFunctions()
	slices.Sort(names)
	l.sampler.keep(names)
	for _, name := range names {
		f := l.cfg.Table.Learning(name)
		if f == nil || ctx.Err() != nil {
			continue
		}
		report := f.Report(0)
		if reason := l.sampler.due(name, &report, now); reason != "" {
			l.take(ctx, name, reason, "", now)
		}
	}
}

// take stores a sample. One that the store does not take is lost.
func (l *Learning) take(ctx context.Context, function, reason, by string, now time.Time) {
	f := l.cfg.Table.Learning(function)
	if l.cfg.Notes == nil || f == nil {
		return
	}
	sample := sampleOf(f, reason, by, now)
	name := sample.Time
	if reason == api.LearnedHourly {
		name = name.Truncate(time.Hour)
	}
	data, err := json.Marshal(sample)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, noteWithin)
		defer cancel()
		err = l.cfg.Notes.PutNotes(ctx, state.SeriesOf(function), []state.Note{{Name: name.Format(nameLayout), Data: data}}, api.MaxLearnedSamples)
	}
	if err != nil {
		l.cfg.Log.Debug("a sample of what was learned is lost", zap.String("function", function), zap.Error(err))
	}
}

// sampleOf is what is known over all contexts.
func sampleOf(f *learned.Function, reason, by string, now time.Time) api.LearnedSample {
	r := f.Report(0)
	s := api.LearnedSample{Time: now.UTC(), Reason: reason, By: by, Policy: r.Policy, Candidates: make([]api.CandidateLearning, len(r.Global))}
	for i, row := range r.Global {
		s.Candidates[i] = api.CandidateLearning{Ref: row.Ref, Share: row.Share, Weight: row.Weight, Count: row.Count, MeanLoss: row.Loss}
	}
	return s
}

// LearnedHistory implements the admin API.
func (l *Learning) LearnedHistory(ctx context.Context, function string) (api.LearnedHistory, error) {
	out := api.LearnedHistory{Function: function}
	if _, err := l.function(function); err != nil {
		return out, err
	}
	if l.cfg.Notes != nil {
		notes, err := l.cfg.Notes.ReadNotes(ctx, state.SeriesOf(function))
		if err != nil {
			return out, api.Errorf(api.Unavailable, "function %s: the samples of what was learned cannot be read: %w", function, err)
		}
		for _, n := range notes {
			var s api.LearnedSample
			if json.Unmarshal(n.Data, &s) == nil && !s.Time.IsZero() { // not that of a newer program
				out.Samples = append(out.Samples, s)
			}
		}
	}
	slices.SortStableFunc(out.Samples, func(a, b api.LearnedSample) int { return a.Time.Compare(b.Time) })
	if f := l.cfg.Table.Learning(function); f != nil {
		out.Samples = append(out.Samples, sampleOf(f, api.LearnedNow, "", time.Now()))
	}
	return out, nil
}
