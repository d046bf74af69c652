package main

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestConnectionsWithinALimit(t *testing.T) {
	for limit, want := range map[uint64]int{
		0: 1, 1: 1, 256: 64, 600: 150, 1024: 256, 4096: 1024, 20000: 8976, 34816: 16384, 1 << 40: 1<<39 - 1024,
	} {
		if got := connectionsWithin(limit); got != want {
			t.Errorf("a limit of %d leaves room for %d connections, want %d", limit, got, want)
		}
	}
	if got := neededDescriptors(16384); got != 34816 {
		t.Errorf("16384 connections need %d descriptors", got)
	}
}

// A limit with which replicas may not start is worth a warning, even if no number of connections was given.
func TestTooFewDescriptorsAreAWarning(t *testing.T) {
	for _, c := range []struct {
		limit    uint64
		asked    bool
		warnings int
	}{{20, false, 1}, {20, true, 2}, {1024, false, 0}, {1024, true, 1}, {1 << 20, true, 0}} {
		core, lines := observer.New(zap.WarnLevel)
		if fitWithin(c.limit, 16384, c.asked, zap.New(core)); lines.Len() != c.warnings {
			t.Errorf("with a limit of %d, asked %v, the warnings are %v, want %d", c.limit, c.asked, lines.All(), c.warnings)
		}
	}
}
