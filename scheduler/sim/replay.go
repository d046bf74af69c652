package sim

import "fmt"

// tailLines is how much of a failed run's transcript is shown.
const tailLines = 200

// Replay runs the random world of a seed. If a promise is broken, the error has the end of the transcript and says how
// to see all of it.
func Replay(seed uint64) error {
	_, err := Run(Random(seed), nil)
	if err == nil {
		return nil
	}
	return Explain(Random(seed), err, fmt.Sprintf("make sim SEED=%d", seed))
}

// Explain runs a failed world again, and adds the end of its transcript to the error.
func Explain(s *Spec, err error, command string) error {
	tail := NewTail(tailLines)
	if _, again := Run(s, tail); again == nil || again.Error() != err.Error() {
		return fmt.Errorf("seed %d: %w\nA second run of the same world ended differently, so the simulation is not deterministic: %w", s.Seed, err, again)
	}
	return fmt.Errorf("seed %d: %w\n\nThe last %d lines of its transcript; all of it: %s\n\n%s", s.Seed, err, tailLines, command, tail)
}
