package node

import (
	"bytes"
	"math"
)

// stat is the part of /proc/PID/stat that is used here.
type stat struct {
	pid, ppid, session int
	// ticks is its CPU time and start its start time, both in hundredths of a second.
	ticks, start uint64
	zombie       bool
}

// parseStat parses /proc/PID/stat (proc_pid_stat(5)). The command name in parentheses may contain anything, including
// parentheses and spaces, so fields are counted from the last closing parenthesis.
func parseStat(text []byte) (stat, bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return stat{}, false
	}
	pid, rest, ok := number(text[:open])
	if !ok || pid == 0 || pid > math.MaxInt32 || len(bytes.TrimSpace(rest)) > 0 {
		return stat{}, false
	}
	text = bytes.TrimLeft(text[end+1:], " ")
	if len(text) == 0 {
		return stat{}, false
	}
	state := text[0]
	const fieldParent, fieldSession, fieldUser, fieldSystem, fieldStart = 1, 3, 11, 12, 19 // counted from the state
	var values [fieldStart + 1]uint64
	_, text, _ = bytes.Cut(text, []byte{' '})
	for i := 1; i <= fieldStart; i++ {
		negative := len(text) > 0 && text[0] == '-' // of terminals and priorities, which are not used
		if negative {
			text = text[1:]
		}
		values[i], text, ok = number(text)
		if !ok || negative && (i == fieldParent || i == fieldSession || i == fieldUser || i == fieldSystem || i == fieldStart) {
			return stat{}, false
		}
	}
	if values[fieldParent] > math.MaxInt32 || values[fieldSession] > math.MaxInt32 || values[fieldUser] > math.MaxInt64/2 || values[fieldSystem] > math.MaxInt64/2 {
		return stat{}, false
	}
	return stat{
		pid: int(pid), ppid: int(values[fieldParent]), session: int(values[fieldSession]),
		ticks: values[fieldUser] + values[fieldSystem], start: values[fieldStart], zombie: state == 'Z' || state == 'X',
	}, true
}

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
