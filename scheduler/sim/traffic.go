package sim

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
)

// Shape is the arrival process of a source.
type Shape uint8

const (
	// Steady is a Poisson process of Rate queries per second.
	Steady Shape = iota
	// Square is a Poisson process of rate Peak during the first Duty of each Period and of Rate in the rest.
	Square
	// Switching is a Markov-modulated Poisson process of two states: Peak for Duty × Period on average, then Rate for
	// (1 − Duty) × Period, both exponentially distributed.
	Switching
	// Daily is a Poisson process whose rate is a sinusoid between Rate and Peak, lowest at the start of each Period.
	Daily
	// Closed is Clients that send, wait for the answer, think for an exponential time of mean ThinkNanos, and send again.
	Closed
	// Recorded plays Times.
	Recorded
	// Ramp is a Poisson process whose rate rises linearly from Rate to Peak in the first Duty of each Period, and falls
	// back in the rest.
	Ramp
)

// Traffic is one source of a function's queries.
type Traffic struct {
	Shape      Shape
	Rate, Peak float64
	Period     api.Nanos
	Duty       float64
	// From and Until bound the time in which it sends; Until 0: to the end of the run.
	From, Until api.Nanos
	Clients     int
	ThinkNanos  int64
	Times       []api.Nanos // in order
}

// check reports what is invalid.
func (t *Traffic) check() error {
	periodic := t.Shape == Square || t.Shape == Switching || t.Shape == Daily || t.Shape == Ramp
	switch {
	case !(t.Rate >= 0 && t.Peak >= 0) || math.IsInf(t.Rate, 0) || math.IsInf(t.Peak, 0):
		return fmt.Errorf("rates of %v and %v queries per second: expected 0 or more", t.Rate, t.Peak)
	case periodic && t.Period <= 0:
		return fmt.Errorf("a period of %v: expected more than 0", span(t.Period))
	case periodic && t.Shape != Daily && !(t.Duty > 0 && t.Duty <= 1):
		return fmt.Errorf("a duty of %v: expected more than 0 and at most 1, the part of the period", t.Duty)
	case t.From < 0 || t.Until < 0:
		return fmt.Errorf("traffic from %v to %v: expected times of 0 or more", span(t.From), span(t.Until))
	}
	return nil
}

// expected is about how many queries it sends in a run of that length. For Closed it returns 0, because that depends on
// the answers.
func (t *Traffic) expected(duration api.Nanos) float64 {
	if t.Until > 0 {
		duration = min(duration, t.Until)
	}
	seconds := max(0, float64(duration-t.From)) / 1e9
	switch t.Shape {
	case Recorded:
		return float64(len(t.Times))
	case Square, Switching:
		return seconds * (t.Duty*t.Peak + (1-t.Duty)*t.Rate)
	case Daily, Ramp:
		return seconds * (t.Rate + t.Peak) / 2
	case Steady:
		return seconds * t.Rate
	}
	return 0
}

// source is the running state of a Traffic. It draws from its own stream, so it sends the same queries whatever happens
// to them.
type source struct {
	Traffic
	rng  *rand.Rand
	next int // index in Times
	// For Switching:
	high  bool
	until api.Nanos
}

// after is when the first query after t comes, api.Never if there is none.
func (s *source) after(t api.Nanos) api.Nanos {
	t = max(t, s.From)
	switch s.Shape {
	case Recorded:
		for s.next < len(s.Times) && s.Times[s.next] < t {
			s.next++
		}
		if s.next == len(s.Times) {
			return api.Never
		}
		s.next++
		return s.Times[s.next-1]
	case Switching:
		t = s.switching(t)
	case Square, Daily, Ramp:
		// Thinning: draw candidates at the peak rate, and keep each with the probability of the rate at its time.
		most := max(s.Rate, s.Peak)
		for {
			t = add(t, s.pause(most))
			if t == api.Never || s.rng.Float64()*most < s.rateAt(t) {
				break
			}
		}
	case Steady:
		t = add(t, s.pause(s.Rate))
	default:
		return api.Never
	}
	if s.Until > 0 && t >= s.Until {
		return api.Never
	}
	return t
}

// switching relies on exponential pauses being memoryless: it draws again at a switch.
func (s *source) switching(t api.Nanos) api.Nanos {
	for {
		for t >= s.until {
			s.high = !s.high
			part := s.Duty
			if !s.high {
				part = 1 - s.Duty
			}
			s.until = max(s.until, s.From) + 1 + api.Nanos(s.rng.ExpFloat64()*part*float64(s.Period))
		}
		rate := s.Rate
		if s.high {
			rate = s.Peak
		}
		if at := add(t, s.pause(rate)); at < s.until {
			return at
		}
		t = s.until
	}
}

func (s *source) rateAt(t api.Nanos) float64 {
	phase := math.Mod(float64(t-s.From), float64(s.Period)) / float64(s.Period)
	if s.Shape == Daily {
		return s.Rate + (s.Peak-s.Rate)*(1-math.Cos(2*math.Pi*phase))/2
	}
	switch {
	case s.Shape == Ramp && phase < s.Duty:
		return s.Rate + (s.Peak-s.Rate)*phase/s.Duty
	case s.Shape == Ramp:
		return s.Peak - (s.Peak-s.Rate)*(phase-s.Duty)/(1-s.Duty)
	case phase < s.Duty:
		return s.Peak
	}
	return s.Rate
}

// pause is exponentially distributed with mean 1/rate; at least 1 ns.
func (s *source) pause(rate float64) api.Nanos {
	if !(rate > 0) {
		return api.Never
	}
	return 1 + api.Nanos(min(s.rng.ExpFloat64()/rate*1e9, 1e18))
}

func add(t, pause api.Nanos) api.Nanos {
	if pause > api.Never-t {
		return api.Never
	}
	return t + pause
}
