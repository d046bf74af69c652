package shm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also starts the tests with several processes: the test binary runs itself, with its role in the environment.
func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		os.Exit(play(part))
	}
	goleak.VerifyTestMain(m)
}
