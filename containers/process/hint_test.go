package process

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/containers"
)

// A hint follows the output that calls for it, once, on a line of its own, also where the text comes in two parts.
func TestHints(t *testing.T) {
	for _, tc := range []struct {
		name   string
		launch containers.Launch
		writes []string
		want   string
	}{
		{"nothing to say", containers.Launch{}, []string{"hello\n"}, "hello\n"},
		{"no network", containers.Launch{}, []string{"OSError: Network is unreachable\n", "Network is unreachable\n"},
			"OSError: Network is unreachable\n" + networkHint + "\nNetwork is unreachable\n"},
		{"in two parts", containers.Launch{}, []string{"Network is un", "reachable"}, "Network is unreachable\n" + networkHint + "\n"},
		{"the host's network", containers.Launch{Isolation: containers.Isolation{Network: true}}, []string{"Network is unreachable\n"}, "Network is unreachable\n"},
		{"beside the model", containers.Launch{}, []string{"[Errno 30] Read-only file system: 'x'\n"}, "[Errno 30] Read-only file system: 'x'\n" + writeHint + "\n"},
		{"forked", containers.Launch{Preload: []string{"json"}}, []string{"[Errno 13] Permission denied: 'x'\n"}, "[Errno 13] Permission denied: 'x'\n" + writeHint + "\n"},
		{"not isolated", containers.Launch{Isolation: plain}, []string{"Read-only file system\n"}, "Read-only file system\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got bytes.Buffer
			h := &hinter{to: &got, hints: hintsFor(tc.launch)}
			for _, text := range tc.writes {
				if n, err := h.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if got.String() != tc.want {
				t.Errorf("%q: expected %q", got.String(), tc.want)
			}
		})
	}
	for _, one := range append(hintsFor(containers.Launch{Preload: []string{"json"}}), hint{}) {
		for _, text := range one.says {
			if len(text) > hintTailBytes || strings.Contains(text, "\n") {
				t.Errorf("%q is too long to be found in two parts", text)
			}
		}
	}
}
