package terminal

import (
	"unicode"
	"unicode/utf8"
)

// Key is a pressed key: a printable rune, or one of the constants below, which are negative.
type Key rune

// Keys that are not printable.
const (
	noKey Key = -1 - iota
	KeyUp
	KeyDown
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyEnter
	KeyTab
	KeyBackspace
	KeyEscape
	KeyInterrupt
)

// maxSequenceBytes bounds an escape sequence. Terminals send fewer than ten bytes for a key.
const maxSequenceBytes = 16

// Keys decodes the bytes that a terminal sends. The zero value is ready to use.
type Keys struct{ pending []byte }

// Feed takes the bytes of one read and returns the keys in them. An escape byte at the very end is the Escape key. The
// beginning of a longer sequence waits for the rest.
func (k *Keys) Feed(b []byte) (keys []Key) {
	b = append(k.pending, b...)
	k.pending = nil
	for len(b) > 0 {
		key, n := firstKey(b)
		if n == 0 {
			if len(b) < maxSequenceBytes {
				k.pending = append([]byte(nil), b...)
				return keys
			}
			n = len(b) // no terminal sends this
		}
		if key != noKey {
			keys = append(keys, key)
		}
		b = b[n:]
	}
	return keys
}

// firstKey decodes the first key and returns its size in bytes, or 0 if more bytes are needed.
func firstKey(b []byte) (Key, int) {
	switch c := b[0]; {
	case c == 0x1b:
		return escapeSequence(b)
	case c == '\r' || c == '\n':
		return KeyEnter, 1
	case c == '\t':
		return KeyTab, 1
	case c == 0x7f || c == 0x08:
		return KeyBackspace, 1
	case c == 0x03:
		return KeyInterrupt, 1
	case !utf8.FullRune(b):
		return noKey, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return noKey, n
	}
	return Key(r), n
}

func escapeSequence(b []byte) (Key, int) {
	switch {
	case len(b) == 1:
		return KeyEscape, 1
	case b[1] != '[' && b[1] != 'O':
		return noKey, 2 // Alt and a key
	}
	end := 2
	for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
		end++
	}
	if end == len(b) {
		return noKey, 0
	}
	key := noKey
	switch parameters := string(b[2:end]); b[end] {
	case 'A':
		key = KeyUp
	case 'B':
		key = KeyDown
	case 'H':
		key = KeyHome
	case 'F':
		key = KeyEnd
	case '~':
		switch parameters {
		case "1", "7":
			key = KeyHome
		case "4", "8":
			key = KeyEnd
		case "5":
			key = KeyPageUp
		case "6":
			key = KeyPageDown
		}
	}
	return key, end + 1
}
