package main

import (
	"unicode"
	"unicode/utf8"
)

// topKey is a key that was pressed: a printable rune, or one of the constants below, which are none.
type topKey rune

const (
	keyNone topKey = -1 - iota
	keyUp
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEnter
	keyTab
	keyBackspace
	keyEscape
	keyInterrupt
)

// maxKeyBytes bounds an escape sequence: terminals send fewer than ten bytes for a key.
const maxKeyBytes = 16

// keyReader makes keys of what a terminal sends (ECMA-48 control sequences, as xterm and all that follow it send them).
type keyReader struct{ pending []byte }

// feed takes what was read at a time. An escape byte that ends it is the Escape key; the beginning of a sequence waits for the rest.
func (k *keyReader) feed(b []byte) (keys []topKey) {
	b = append(k.pending, b...)
	k.pending = nil
	for len(b) > 0 {
		key, n := oneKey(b)
		if n == 0 {
			if len(b) < maxKeyBytes {
				k.pending = append([]byte(nil), b...)
				return keys
			}
			n = len(b) // no terminal sends that
		}
		if key != keyNone {
			keys = append(keys, key)
		}
		b = b[n:]
	}
	return keys
}

// oneKey reads the first key and says how many bytes it has; 0: more are needed.
func oneKey(b []byte) (topKey, int) {
	switch c := b[0]; {
	case c == 0x1b:
		return escapeKey(b)
	case c == '\r' || c == '\n':
		return keyEnter, 1
	case c == '\t':
		return keyTab, 1
	case c == 0x7f || c == 0x08:
		return keyBackspace, 1
	case c == 0x03:
		return keyInterrupt, 1
	case !utf8.FullRune(b):
		return keyNone, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return keyNone, n
	}
	return topKey(r), n
}

func escapeKey(b []byte) (topKey, int) {
	switch {
	case len(b) == 1:
		return keyEscape, 1
	case b[1] != '[' && b[1] != 'O':
		return keyNone, 2 // Alt and a key
	}
	end := 2
	for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
		end++
	}
	if end == len(b) {
		return keyNone, 0
	}
	key := keyNone
	switch parameters := string(b[2:end]); b[end] {
	case 'A':
		key = keyUp
	case 'B':
		key = keyDown
	case 'H':
		key = keyHome
	case 'F':
		key = keyEnd
	case '~':
		switch parameters {
		case "1", "7":
			key = keyHome
		case "4", "8":
			key = keyEnd
		case "5":
			key = keyPageUp
		case "6":
			key = keyPageDown
		}
	}
	return key, end + 1
}
