package terminal

import (
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for text, want := range map[string][]Key{
		"qs":                            {'q', 's'},
		"\x1b":                          {KeyEscape},
		"\x1b[A\x1b[B\x1bOA\x1b[5~":     {KeyUp, KeyDown, KeyUp, KeyPageUp},
		"\x1b[6~\x1b[H\x1b[4~\x1b[1;5F": {KeyPageDown, KeyHome, KeyEnd, KeyEnd},
		"\t\r\n\x7f\x08\x03":            {KeyTab, KeyEnter, KeyEnter, KeyBackspace, KeyBackspace, KeyInterrupt},
		"é\x1bx\x00y":                   {'é', 'y'},
		"\xff\xfe":                      nil,
		"\x1b[200~":                     nil,
	} {
		var whole, bytewise Keys
		if got := whole.Feed([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		// A slow line brings the same keys byte by byte. Escape sequences are the exception: their first byte is a key
		// by itself.
		var got []Key
		for i := range len(text) {
			got = append(got, bytewise.Feed([]byte{text[i]})...)
		}
		if !strings.Contains(text, "\x1b") && !slices.Equal(got, want) {
			t.Errorf("%q byte by byte: %v, want %v", text, got, want)
		}
	}
	var split Keys
	if got := append(split.Feed([]byte("\x1b[")), split.Feed([]byte("5~s"))...); !slices.Equal(got, []Key{KeyPageUp, 's'}) {
		t.Errorf("a sequence in two reads: %v", got)
	}
}

// FuzzKeys: whatever a terminal sends, few bytes are kept, and plain keys after it are still read.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"q", "\x1b[A", "\x1b[", "\x1bO", "\x1b[1;2;3;4;5;6;7;8;9", "\xe2\x82", "\x1b\x1b\x1b", "\xff"} {
		f.Add([]byte(s), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var k Keys
		keys := append(k.Feed(a), k.Feed(b)...)
		if len(k.pending) >= maxSequenceBytes || len(keys) > len(a)+len(b) {
			t.Fatalf("%d bytes are pending, and there are %d keys in %d bytes", len(k.pending), len(keys), len(a)+len(b))
		}
		for range maxSequenceBytes {
			k.Feed([]byte{'A'}) // ends any sequence
		}
		if got := k.Feed([]byte("q")); !slices.Equal(got, []Key{'q'}) {
			t.Fatalf("q is read as %v", got)
		}
	})
}
