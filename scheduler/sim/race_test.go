//go:build race

package sim

// raceEnabled: the race detector makes everything ten times slower, and there is nothing for it in one goroutine.
const raceEnabled = true
