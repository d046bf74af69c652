package containers

import "time"

const (
	// StarvedEvery is the time between two calls of [Starvation.Starved].
	StarvedEvery = 3 * time.Second //xebec:limit loading at the lowest CPU priority without getting processor time
	// starvedPart is the part of that time that is as good as nothing: at this speed an import of two seconds takes 40.
	starvedPart = 20
)

// Starvation decides when what loads quietly gets full priority because it gets no processor time: the lowest priority may
// get none at all on a busy machine. It owns no clock. The zero value has seen nothing.
type Starvation struct {
	ran   time.Duration
	known bool
}

// Starved takes a sample: the processor time that it has had since its start, whether it could run now, and whether both are
// known. It reports whether it could run since the last sample and hardly did. What waits for a disk is not starved.
func (s *Starvation) Starved(ran time.Duration, runnable, ok bool) bool {
	starved := s.known && ok && runnable && ran-s.ran < StarvedEvery/starvedPart
	s.ran, s.known = ran, ok
	return starved
}
