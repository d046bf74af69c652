package sim

import (
	"testing"
)

// TestSeeds runs short random worlds with all checks on. A failure prints the end of the transcript and how to see all of it.
func TestSeeds(t *testing.T) {
	seeds := 300
	if testing.Short() || raceEnabled {
		seeds = 40
	}
	for seed := range uint64(seeds) {
		if err := Replay(seed); err != nil {
			t.Error(err)
			return
		}
	}
}
