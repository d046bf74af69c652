package process

import (
	"bytes"
	"slices"
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
		{"on its loopback", containers.Launch{}, []string{"ConnectionRefusedError: [Errno 111] Connection refused\n"},
			"ConnectionRefusedError: [Errno 111] Connection refused\n" + networkHint + "\n"},
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

// A chained traceback has the cause first, so the hint stands far above the end. If the replica fails, its last line is the hint.
func TestHintAtTheEnd(t *testing.T) {
	const cause, rest = "socket.gaierror: Temporary failure in name resolution\n", "urllib.error.URLError: <urlopen error>\n"
	for _, tc := range []struct {
		name   string
		writes []string
		exit   containers.Exit
		want   string
	}{
		{"failed", []string{cause, rest}, containers.Exit{Code: 1}, cause + networkHint + "\n" + rest + networkHint + "\n"},
		{"without an end of line", []string{cause, "rest"}, containers.Exit{Code: 1}, cause + networkHint + "\nrest\n" + networkHint + "\n"},
		{"nothing after it", []string{cause}, containers.Exit{Code: 1}, cause + networkHint + "\n"},
		{"told to stop", []string{cause, rest}, containers.Exit{}, cause + networkHint + "\n" + rest},
		{"killed", []string{cause, rest}, containers.Exit{Code: -1, Signal: 9}, cause + networkHint + "\n" + rest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got bytes.Buffer
			h := &hinter{to: &got, hints: hintsFor(containers.Launch{})}
			for _, text := range tc.writes {
				_, _ = h.Write([]byte(text))
			}
			h.end(tc.exit)
			if got.String() != tc.want {
				t.Errorf("%q: expected %q", got.String(), tc.want)
			}
		})
	}
}

// What predict raises comes back in the answer and not on stderr, so the runtime is asked about it.
func TestAdvise(t *testing.T) {
	r := &Runtime{}
	for _, tc := range []struct {
		text   string
		launch containers.Launch
		want   []string
	}{
		{"ValueError: no", containers.Launch{}, nil},
		{"socket.gaierror: [Errno -3] Temporary failure in name resolution", containers.Launch{}, []string{networkHint}},
		{"OSError: [Errno 30] Read-only file system: 'state.txt'\nNetwork is unreachable", containers.Launch{}, []string{writeHint, networkHint}},
		{"OSError: [Errno 30] Read-only file system: 'state.txt'", containers.Launch{Isolation: plain}, nil},
	} {
		if got := r.Advise(tc.launch, tc.text); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, expected %q", tc.text, got, tc.want)
		}
	}
}
