//go:build race

package apptest

// raceDetector reports whether the tests, and so the gateway, are built with the race detector.
const raceDetector = true
