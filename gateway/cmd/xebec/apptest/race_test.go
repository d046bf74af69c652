//go:build race

package apptest

// raceDetector: the tests run under it, and so does the gateway.
const raceDetector = true
