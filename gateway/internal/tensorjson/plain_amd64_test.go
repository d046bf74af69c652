package tensorjson

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// fence is memory behind which nothing can be read.
func fence(t testing.TB) []byte {
	size := unix.Getpagesize()
	pages, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(pages) })
	if err := unix.Mprotect(pages[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return pages[:size:size]
}

// checkVectors compares plainVectors with plainWords: what it reads of a text, at the end of readable memory, is what plainWords reads, which sees
// more text behind it. It returns how many numbers that were.
func checkVectors(t *testing.T, page, text []byte) int {
	t.Helper()
	if len(text) > len(page) {
		text = text[:len(page)]
	}
	b := page[len(page)-len(text):]
	copy(b, text)
	long := append(bytes.Clone(text), make([]byte, plainAhead)...)
	most := 0
	for i := range min(len(text), 20) {
		var got, want [plainRun]plain
		n, next := plainVectors(b, i, got[:])
		m, at := plainWords(long, i, want[:n])
		if n != m || next != at || got != want {
			t.Fatalf("%q from %d: %d numbers, next %d, %v\nwant %d, %d, %v", text, i, n, next, got[:n], m, at, want[:m])
		}
		if few, _ := plainVectors(b, i, got[:n/2]); few != n/2 {
			t.Fatalf("%q from %d: %d numbers, want %d", text, i, few, n/2)
		}
		most = max(most, n)
	}
	return most
}

func TestVectors(t *testing.T) {
	if !hasVectors {
		t.Skip("the processor has no AVX2")
	}
	page, rng := fence(t), rand.New(rand.NewPCG(1, 3))
	// Numbers of the common form are read, all but those near the end of the text.
	for _, sep := range []string{",", ", "} {
		for range 2000 {
			var text []byte
			numbers := 0
			for range 1 + rng.IntN(40) {
				f := rng.Float64() * 10
				at := len(text)
				if text = strconv.AppendFloat(text, f, 'f', 1+rng.IntN(18), 64); text[at+1] != '.' {
					text = append(text[:at], "9.75"...) // 10 after rounding
				}
				if rng.IntN(2) == 0 {
					text = append(text[:at], append([]byte{'-'}, text[at:]...)...)
				}
				if text = append(text, sep...); numbers < plainRun {
					numbers++
				}
			}
			if n := checkVectors(t, page, append(text, make([]byte, 34)...)); n != numbers {
				t.Fatalf("%q: read %d numbers, want %d", text, n, numbers)
			}
			checkVectors(t, page, text)
		}
	}
	// Any text.
	alphabet := "0123456789012345678901234567890123456789....--,,,, ]e+\n\x00/:;\x80\xff"
	for range 100000 {
		text := make([]byte, rng.IntN(120))
		for i := range text {
			text[i] = alphabet[rng.IntN(len(alphabet))]
			if i > 0 && text[i-1] == ',' && rng.IntN(2) == 0 { // so that some are numbers
				copy(text[i:], strconv.AppendFloat(nil, rng.NormFloat64(), 'f', 1+rng.IntN(22), 64))
			}
		}
		checkVectors(t, page, text)
	}
}

// TestWithoutVectors: other processors read the same.
func TestWithoutVectors(t *testing.T) {
	defer func(had bool) { hasVectors = had }(hasVectors)
	hasVectors = false
	t.Run("plains", TestPlains)
	t.Run("arrays", TestArraysAsStrconv)
	t.Run("integers", TestIntegerArrays)
}

func FuzzVectors(f *testing.F) {
	if !hasVectors {
		f.Skip("the processor has no AVX2")
	}
	for _, s := range []string{"0.5,-1.25,1234.5,0.1234567890123,7,", "-0.5, 1.5, -9.999999999999, 1.,.5,--1.5,1..5,", "0.5,0.5,0.5]"} {
		f.Add([]byte(s + "                                    "))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkVectors(t, fence(t), text) })
}
