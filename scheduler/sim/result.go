package sim

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// SlotNanos is the length of a slot of a series.
const SlotNanos = 10e6

// Result is the outcome of a run. It counts the calls that came between Spec.Warm and Spec.Duration.
type Result struct {
	Functions []FunctionResult
	// BusyNanos is the time that replicas spent on batches, Batches the number of batches, Evaluated the number of
	// their queries.
	BusyNanos          int64
	Batches, Evaluated int64
	// Scales has the actions and costs of scaling for each model; nothing for models that are not scaled. It ignores
	// Spec.Warm.
	Scales []ScaleResult
	// PlanChanges is how often a model's plan changed. A plan that goes back and forth costs its functions waiting
	// time.
	PlanChanges int64
	// End is when the last query had ended.
	End api.Nanos

	warm, until api.Nanos
}

// FunctionResult is the outcome of one function's calls.
type FunctionResult struct {
	Name string
	// Offered calls were answered in time (Good), refused on arrival (Refused), dropped before their deadlines because
	// they would have missed them (Dropped), or missed: late, lost or failed (Missed). Partial are the Good ones whose
	// ensemble was not complete.
	Offered, Good, Refused, Dropped, Missed, Partial int64
	// Slow are the Good ones that took longer than the objective, as calls may that had to wait for a replica to start.
	Slow int64
	// Gain is the sum of the worth of the Good ones: for each, 1 − Π(1 − gain) over the models that answered in time,
	// as if their errors were independent. Answers counts the answers in time by candidate, of the Good and other
	// calls.
	Gain    float64
	Answers []int64
	// Latencies are those of the Good ones, in nanoseconds, in the order in which they ended.
	Latencies []int64
	// Series has the run in slots of SlotNanos, by when calls came, from the start and including the warm-up.
	Series []Slot
}

// Slot counts calls by how they ended. Missed includes those that were dropped, Good those that were slow.
type Slot struct{ Offered, Good, Refused, Missed, Slow int32 }

// Late is the number of calls without an answer within the objective.
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

// answered records that one of a call's models has answered in time.
func (f *FunctionResult) answered(w *world, c *call, candidate int) {
	if c.at >= w.spec.Warm {
		f.Answers[candidate]++
	}
}

// finished records that all models that a call asked have answered, or ended. The gateway combines the answers that it
// has at the deadline, even if it notices later that others are missing.
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
			f.Gain += 1 - c.missingGain
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

// Quantile is the latency, in nanoseconds, that the part q of the accepted calls does not exceed; math.MaxInt64 if that
// part includes missed ones, 0 if there are none.
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

// Recovery is how long after the time at calls were still refused or missed, in nanoseconds and to the precision of the
// slots. It looks at slots before the time until.
func (f *FunctionResult) Recovery(at, until api.Nanos) int64 {
	last := at
	for i := int(at / SlotNanos); i < len(f.Series) && api.Nanos(i)*SlotNanos < until; i++ {
		if s := &f.Series[i]; s.Refused+s.Missed > 0 {
			last = api.Nanos(i+1) * SlotNanos
		}
	}
	return int64(last - at)
}
