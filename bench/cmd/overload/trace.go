package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// end is the outcome of a request, as seen by its client.
type end uint8

const (
	inTime    end = iota // the model's right output, within the objective
	late                 // the model's right output, after it
	refused              // 503
	defaulted            // the function's default output
	expired              // 504: nothing until the deadline
	broken               // another status, or another output than the model's
)

// reply is one answer. Times count from the start of the run.
type reply struct {
	due, done time.Duration
	end       end
}

func (a reply) latency() time.Duration { return a.done - a.due }

// trace holds all answers to one stream of requests.
type trace []reply

// judge classifies an answer.
func judge(a loadgen.Answered, objective time.Duration) end {
	switch {
	case a.Status == 503:
		return refused
	case a.Status == 504:
		return expired
	case a.Status != 200 || a.Wrong:
		return broken
	case a.Default:
		return defaulted
	case a.Done.Sub(a.Due) > objective:
		return late
	}
	return inTime
}

// between returns the answers that came in [from, to).
func (t trace) between(from, to time.Duration) trace {
	return results.Where(t, func(a reply) bool { return a.done >= from && a.done < to })
}

func (t trace) count(e end) int {
	n := 0
	for _, a := range t {
		if a.end == e {
			n++
		}
	}
	return n
}

// Window counts the answers of a tenth of a second.
type Window struct {
	AtMillis float64 `json:"at_ms"` // since the load began
	InTime   int     `json:"in_time"`
	Missed   int     `json:"missed"` // late or expired
	Refused  int     `json:"refused"`
}

// windows divides a load, from its beginning to its end, into whole windows.
func (t trace) windows(begin, end time.Duration) []Window {
	out := make([]Window, 0, (end-begin)/calmSpan+1)
	for at := begin; at+calmSpan <= end; at += calmSpan {
		out = append(out, Window{AtMillis: float64(at-begin) / 1e6})
	}
	for _, a := range t {
		i := int((a.done - begin) / calmSpan)
		if a.done < begin || i >= len(out) {
			continue
		}
		switch a.end {
		case inTime:
			out[i].InTime++
		case late, expired:
			out[i].Missed++
		case refused:
			out[i].Refused++
		}
	}
	return out
}

// millis returns the latencies in milliseconds of the answers with one of the outcomes.
func (t trace) millis(ends ...end) []float64 {
	var out []float64
	for _, a := range t {
		if slices.Contains(ends, a.end) {
			out = append(out, float64(a.latency())/1e6)
		}
	}
	return out
}

// calmSpan is how long all answers must be in time for the flood to count as over.
const calmSpan = 100 * time.Millisecond

// recovery returns the time from the flood's end, at, to the start of the first span of length calmSpan that has answers, all of them in time.
// ok is false if the trace, which was observed until the given time, has no such span.
//
// The first span starts at the flood's end or right after an answer that was not in time: moving a span away from there only makes it
// worse. So one walk over the answers in order of arrival finds it.
func (t trace) recovery(at, until time.Duration) (after time.Duration, ok bool) {
	byDone := slices.SortedFunc(slices.Values(t), func(a, b reply) int { return cmp.Compare(a.done, b.done) })
	begin, good := at, 0
	for _, a := range byDone {
		switch {
		case a.done < at:
		case a.done >= begin+calmSpan && good > 0:
			return begin - at, true
		case a.end != inTime:
			begin, good = a.done+1, 0
		default:
			// A span without answers proves nothing, so the span ends at its first answer at the earliest.
			if good == 0 {
				begin = max(begin, a.done-calmSpan+1)
			}
			good++
		}
	}
	if good > 0 && begin+calmSpan <= until {
		return begin - at, true
	}
	return 0, false
}
