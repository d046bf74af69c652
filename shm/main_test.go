package shm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also how the tests with several processes begin: the test binary runs itself, with the part to play in
// the environment.
func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		os.Exit(play(part))
	}
	goleak.VerifyTestMain(m)
}
