//go:build race

package sim

// raceEnabled: the race detector makes everything ten times slower, and has nothing to find in one goroutine.
const raceEnabled = true
