package sim

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// SlotNanos is the length of a slot of a series.
const SlotNanos = 10e6

// Result is what came of a run. Counts are of calls that came between Spec.Warm and Spec.Duration.
type Result struct {
	Functions []FunctionResult
	// BusyNanos is the time that replicas spent on batches, Batches how many those were, Evaluated how many queries.
	BusyNanos          int64
	Batches, Evaluated int64
	// Scales has what scaling did and took, for each model; nothing for those that are not scaled. Warm does not matter there.
	Scales []ScaleResult
	// PlanChanges is how many times a model's plan became another one: a plan that goes back and forth costs its functions
	// what they wait for meanwhile.
	PlanChanges int64
	// End is when the last query had ended.
	End api.Nanos

	warm, until api.Nanos
}

// FunctionResult is what came of one function's calls.
type FunctionResult struct {
	Name string
	// Offered calls were answered in time (Good), refused in the moment in which they came, dropped later but before their
	// deadline, because they would have missed it, or missed: late, lost or failed. Partial are the Good ones whose ensemble
	// was not complete.
	Offered, Good, Refused, Dropped, Missed, Partial int64
	// Slow are the Good ones that took longer than the objective, which they may where they had to wait for a replica to start.
	Slow int64
	// Gain is the sum of what the Good ones were worth: of each 1 − Π(1 − gain) over the models that answered in time, as if
	// their errors were independent. Answers counts those of the Good and of others by candidate.
	Gain    float64
	Answers []int64
	// Latencies are those of the Good, in nanoseconds, in the order in which they ended.
	Latencies []int64
	// Series has the run in slots of SlotNanos, by when calls came; from the start, warm-up included.
	Series []Slot
}

// Slot counts calls by how they ended; those that were dropped are among the Missed, those that were slow among the Good.
type Slot struct{ Offered, Good, Refused, Missed, Slow int32 }

// Late is how many had no answer within the objective.
func (s *Slot) Late() int64 { return int64(s.Refused) + int64(s.Missed) + int64(s.Slow) }

func newResult(s *Spec) Result {
	r := Result{warm: s.Warm, until: s.Duration}
	r.Scales = make([]ScaleResult, len(s.Models))
	for i := range s.Functions {
		r.Functions = append(r.Functions, FunctionResult{Name: s.Functions[i].Name, Series: make([]Slot, int(s.Duration/SlotNanos)+1), Answers: make([]int64, len(s.Functions[i].Candidates))})
	}
	return r
}

func (r *Result) busy(begin, end api.Nanos, n int) {
	if begin >= r.warm && begin < r.until {
		r.BusyNanos += int64(end - begin)
		r.Batches++
		r.Evaluated += int64(n)
	}
}

func (f *FunctionResult) offered(w *world, c *call) {
	f.Series[c.at/SlotNanos].Offered++
	if c.at >= w.spec.Warm {
		f.Offered++
	}
}

// answered: one of a call's models has answered in time.
func (f *FunctionResult) answered(w *world, c *call, candidate int) {
	if c.at >= w.spec.Warm {
		f.Answers[candidate]++
	}
}

// finished: all models that a call asked have answered, or ended. The gateway combines what there is at the deadline, however
// late it is seen that others are missing.
func (f *FunctionResult) finished(w *world, c *call) {
	slot := &f.Series[c.at/SlotNanos]
	counts := c.at >= w.spec.Warm
	switch {
	case c.inTime > 0:
		slot.Good++
		slow := c.function.spec.SLONanos > 0 && min(w.now, c.deadline) > c.at+api.Nanos(c.function.spec.SLONanos)
		if slow {
			slot.Slow++
		}
		if counts {
			f.Good++
			if slow {
				f.Slow++
			}
			f.Gain += 1 - c.lacks
			f.Latencies = append(f.Latencies, int64(min(w.now, c.deadline)-c.at))
			if c.inTime < c.asked {
				f.Partial++
			}
		}
	case c.ok == 0 && c.overload > 0 && w.now == c.at:
		slot.Refused++
		if counts {
			f.Refused++
		}
	case c.ok == 0 && c.overload == c.answered && w.now < c.deadline:
		slot.Missed++
		if counts {
			f.Dropped++
		}
	default:
		slot.Missed++
		if counts {
			f.Missed++
		}
	}
}

// Quantile is the latency, in nanoseconds, that the part q of the accepted calls does not exceed; math.MaxInt64 when that
// part takes in missed ones, 0 when there are none.
func (f *FunctionResult) Quantile(q float64) int64 {
	n := len(f.Latencies) + int(f.Missed)
	if n == 0 {
		return 0
	}
	at := max(0, int(math.Ceil(q*float64(n)))-1)
	if at >= len(f.Latencies) {
		return math.MaxInt64
	}
	sorted := slices.Clone(f.Latencies)
	slices.Sort(sorted)
	return sorted[at]
}

// Total adds the functions up.
func (r *Result) Total() FunctionResult {
	t := FunctionResult{Name: "all"}
	for i := range r.Functions {
		f := &r.Functions[i]
		t.Offered += f.Offered
		t.Good += f.Good
		t.Refused += f.Refused
		t.Missed += f.Missed
		t.Dropped += f.Dropped
		t.Partial += f.Partial
		t.Slow += f.Slow
		t.Gain += f.Gain
		t.Answers = append(t.Answers, f.Answers...)
		t.Latencies = append(t.Latencies, f.Latencies...)
		for len(t.Series) < len(f.Series) {
			t.Series = append(t.Series, Slot{})
		}
		for j, s := range f.Series {
			t.Series[j].Offered += s.Offered
			t.Series[j].Good += s.Good
			t.Series[j].Refused += s.Refused
			t.Series[j].Missed += s.Missed
			t.Series[j].Slow += s.Slow
		}
	}
	return t
}

// Recovery is how long after the time at calls were still refused or missed, in nanoseconds, as far as the slots tell, which
// are looked at up to the time until.
func (f *FunctionResult) Recovery(at, until api.Nanos) int64 {
	last := at
	for i := int(at / SlotNanos); i < len(f.Series) && api.Nanos(i)*SlotNanos < until; i++ {
		if s := &f.Series[i]; s.Refused+s.Missed > 0 {
			last = api.Nanos(i+1) * SlotNanos
		}
	}
	return int64(last - at)
}
