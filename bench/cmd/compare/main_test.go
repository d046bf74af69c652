package main

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersGetTheirProcs(t *testing.T) {
	cfg := config{procs: 3}
	if got := cfg.env(); !slices.Equal(got, []string{"GOMAXPROCS=3"}) {
		t.Errorf("environment %q", got)
	}
}
