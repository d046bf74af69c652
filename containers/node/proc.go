package node

import (
	"bytes"
	"math"
)

// number parses digits and skips the blanks after them.
func number(text []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		digit := uint64(text[i] - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, text, false
		}
		n = 10*n + digit
	}
	if i == 0 {
		return 0, text, false
	}
	for rest = text[i:]; len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n'); {
		rest = rest[1:]
	}
	return n, rest, true
}

// fieldBytes returns the value of the line that begins with name, in files with lines such as "Name:   123 kB".
func fieldBytes(text []byte, name string) (n int64, ok bool) {
	for line := range bytes.Lines(text) {
		rest, found := bytes.CutPrefix(line, []byte(name))
		if !found {
			continue
		}
		kib, rest, ok := number(bytes.TrimLeft(rest, " \t"))
		if !ok || kib > math.MaxInt64>>10 || string(bytes.TrimSpace(rest)) != "kB" {
			return 0, false
		}
		return int64(kib) << 10, true
	}
	return 0, false
}

// memoryOf returns what a process holds: by smaps_rollup, or by status if rollup is empty.
func memoryOf(rollup, status []byte) (n int64, ok bool) {
	if pss, ok := fieldBytes(rollup, "Pss:"); ok {
		return pss, true
	}
	anon, ok := fieldBytes(status, "RssAnon:")
	if !ok {
		return 0, false
	}
	shared, _ := fieldBytes(status, "RssShmem:")
	if anon > math.MaxInt64-shared {
		return 0, false
	}
	return anon + shared, true
}
