package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/loadgen"
)

// end is what a request came to, as its client sees it.
type end uint8

const (
	inTime    end = iota // the model's right output, within the objective
	late                 // the model's right output, after it
	refused              // 503
	defaulted            // the function's default output
	expired              // 504: nothing until the deadline
	broken               // another status, or another output than the model's
)

// reply is one answer; times count from the beginning of the trace's run.
type reply struct {
	due, done time.Duration
	end       end
}

func (a reply) latency() time.Duration { return a.done - a.due }

// trace is every answer that one stream of requests got.
type trace []reply

// judge says what an answer is to its client.
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

// between are the answers that came in [from, to).
func (t trace) between(from, to time.Duration) trace {
	var in trace
	for _, a := range t {
		if a.done >= from && a.done < to {
			in = append(in, a)
		}
	}
	return in
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

// Window is what came in a tenth of a second.
type Window struct {
	AtMillis float64 `json:"at_ms"` // since the load began
	InTime   int     `json:"in_time"`
	Missed   int     `json:"missed"` // late or expired
	Refused  int     `json:"refused"`
}

// windows is the course of a load from its beginning to its end, in whole windows.
func (t trace) windows(begin, end time.Duration) []Window {
	out := make([]Window, 0, (end-begin)/calm+1)
	for at := begin; at+calm <= end; at += calm {
		out = append(out, Window{AtMillis: float64(at-begin) / 1e6})
	}
	for _, a := range t {
		i := int((a.done - begin) / calm)
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

// millis are the latencies of the answers that came to one of the ends, in milliseconds, rising.
func (t trace) millis(ends ...end) []float64 {
	var out []float64
	for _, a := range t {
		if slices.Contains(ends, a.end) {
			out = append(out, float64(a.latency())/1e6)
		}
	}
	slices.Sort(out)
	return out
}

// calm is how long everything must go well for the flood to count as over.
const calm = 100 * time.Millisecond

// recovery is how long after the flood's end, at, the first span of calm begins in which answers come and every one of them
// is in time. ok is false when the trace, which was observed until the given time, has none.
//
// A span can begin at the flood's end or right behind an answer that was not in time: between those, spans only get worse by
// moving. So one walk over the answers in the order in which they came finds the first.
func (t trace) recovery(at, until time.Duration) (after time.Duration, ok bool) {
	byDone := slices.SortedFunc(slices.Values(t), func(a, b reply) int { return cmp.Compare(a.done, b.done) })
	begin, good := at, 0
	for _, a := range byDone {
		switch {
		case a.done < at:
		case a.done >= begin+calm && good > 0:
			return begin - at, true
		case a.end != inTime:
			begin, good = a.done+1, 0
		default:
			// A span without any answer is no proof: it begins with the first.
			if good == 0 {
				begin = max(begin, a.done-calm+1)
			}
			good++
		}
	}
	if good > 0 && begin+calm <= until {
		return begin - at, true
	}
	return 0, false
}
