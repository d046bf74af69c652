package main

import "testing"

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
