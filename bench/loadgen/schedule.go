package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Arrivals is the distribution of the gaps between requests in an open loop.
type Arrivals string

// The distributions.
const (
	// Poisson models independent callers: gaps are exponential, so there are bursts.
	Poisson Arrivals = "poisson"
	// Constant has equal gaps, which is easier to serve than any real load.
	Constant Arrivals = "constant"
)

// Schedule yields the times at which requests are due, in nanoseconds since the start of the run, never decreasing. It depends only on its
// arguments, not on the server, which is what makes the loop open.
type Schedule struct {
	gapNanos float64
	dueNanos float64 // a float, so that fractional gaps do not accumulate a rounding error
	random   *rand.Rand
}

// maxRate exceeds what one machine can send. It keeps gaps above a hundred picoseconds.
const maxRate = 1e10

// NewSchedule returns the schedule of part number part of parts, which together send rate requests a second. A Poisson process splits into
// slower Poisson processes, constant arrivals into slower ones that are shifted against each other.
func NewSchedule(rate float64, arrivals Arrivals, seed uint64, part, parts int) (*Schedule, error) {
	if !(rate > 0) || rate > maxRate {
		return nil, fmt.Errorf("rate %v: expected more than 0 and at most %g requests a second", rate, maxRate)
	}
	if parts < 1 || part < 0 || part >= parts {
		return nil, fmt.Errorf("part %d of %d: expected 0 to %d", part, parts, parts-1)
	}
	s := &Schedule{gapNanos: 1e9 * float64(parts) / rate}
	switch arrivals {
	case Constant:
		s.dueNanos = 1e9 * float64(part) / rate
	case Poisson:
		s.random = rand.New(rand.NewPCG(seed, uint64(part)))
		s.advance()
	default:
		return nil, fmt.Errorf("arrivals %q: expected %q or %q", arrivals, Poisson, Constant)
	}
	return s, nil
}

// Due returns when the next request is due.
func (s *Schedule) Due() int64 {
	if s.dueNanos >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.dueNanos)
}

// Next returns Due and advances to the next request.
func (s *Schedule) Next() int64 {
	due := s.Due()
	s.advance()
	return due
}

func (s *Schedule) advance() {
	gap := s.gapNanos
	if s.random != nil {
		gap *= s.random.ExpFloat64()
	}
	s.dueNanos += gap
}

// backlog holds the due times of requests that wait for a free connection, oldest first, in a ring that grows up to a bound.
type backlog struct {
	ring  []int64
	first int
	count int
}

// maxBacklog is 8 MiB of due times. A server that is this far behind does not catch up within a run.
const maxBacklog = 1 << 20

// push returns false if the backlog is full.
func (b *backlog) push(due int64) bool {
	if b.count == len(b.ring) {
		if b.count == maxBacklog {
			return false
		}
		grown := make([]int64, max(256, 2*len(b.ring)))
		n := copy(grown, b.ring[b.first:])
		copy(grown[n:], b.ring[:b.first])
		b.ring, b.first = grown, 0
	}
	b.ring[(b.first+b.count)&(len(b.ring)-1)] = due
	b.count++
	return true
}

// pop must not be called on an empty backlog.
func (b *backlog) pop() int64 {
	due := b.ring[b.first]
	b.first = (b.first + 1) & (len(b.ring) - 1)
	b.count--
	return due
}
