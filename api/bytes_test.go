package api

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "65536": 65536, "1KiB": 1024, "512MiB": 512 << 20, "2GiB": 2 << 30, "8388607TiB": 8388607 << 40} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, expected %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "KiB", "1.5GiB", "1 GiB", "1GB", "1gib", "8388608TiB", "99999999999999999999", "1MiBMiB"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if got, err := ParseBytes(FormatBytes(n)); err != nil || got != n {
			t.Fatalf("%d is written as %s and read as %d, %v", n, FormatBytes(n), got, err)
		}
	})
}
