package process

import (
	"slices"
	"strings"
	"testing"
)

// A fork has the layers of its zygote and its own, or says which of its own is missing and why.
func TestApart(t *testing.T) {
	version := func(abi int) *int { return &abi }
	of := []string{layerCaps, layerNS, layerProc}
	for _, c := range []struct {
		name   string
		answer forkAnswer
		layers []string
		lacks  string
	}{
		{"everything", forkAnswer{Landlock: version(7)}, []string{layerCaps, layerNS, layerProc, layerDomain + " (ABI 7)"}, ""},
		{"the first version with signals", forkAnswer{Landlock: version(6)}, []string{layerCaps, layerNS, layerProc, layerDomain + " (ABI 6)"}, ""},
		{"no signals", forkAnswer{Landlock: version(5)}, []string{layerCaps, layerNS, layerProc, layerDomain + " (ABI 5)"}, "can signal it"},
		{"no Landlock", forkAnswer{Landlock: version(0), Why: "not here"}, []string{layerCaps, layerNS}, "(not here)"},
		{"nonsense", forkAnswer{Landlock: version(-1), Why: "not here"}, []string{layerCaps, layerNS}, "(not here)"},
		{"an older binding", forkAnswer{}, []string{layerCaps, layerNS}, "older than this gateway"},
	} {
		t.Run(c.name, func(t *testing.T) {
			layers, lacks := apartBy(c.answer).add(of, []string{"the zygote's"})
			if !slices.Equal(layers, c.layers) {
				t.Errorf("layers %q: expected %q", layers, c.layers)
			}
			if c.lacks == "" && len(lacks) != 1 || c.lacks != "" && (len(lacks) != 2 || !strings.Contains(lacks[1], c.lacks)) {
				t.Errorf("missing %q: expected one with %q", lacks, c.lacks)
			}
			if !slices.Equal(of, []string{layerCaps, layerNS, layerProc}) {
				t.Errorf("the zygote's layers have become %q", of)
			}
		})
	}
	if _, lacks := apartBy(forkAnswer{Landlock: version(7)}).add([]string{layerPrivs}, nil); len(lacks) != 1 || !strings.Contains(lacks[0], "CAP_PERFMON") {
		t.Errorf("with capabilities: missing %q", lacks)
	}
}
