package procfs

import (
	"bytes"
	"strconv"
)

// Stat is what /proc/PID/stat, or that of a thread, says about it.
type Stat struct {
	PID, Parent int // Parent is 0 if it is outside of this PID namespace
	// Group and Session are the process group and the session: 0 outside of this namespace, -1 while the process ends.
	Group, Session int
	Nice           int
	// Ticks is the processor time and Start the start time since boot, both in hundredths of a second. PID and Start
	// together identify a process uniquely.
	Ticks, Start uint64
	// Zombie means that the process has ended and only its status is left.
	Zombie bool
	// Runnable: it runs, or waits for a processor.
	Runnable bool
}

// ParseStat parses /proc/PID/stat (proc_pid_stat(5)). The command name in parentheses may contain anything, including
// parentheses and spaces, so fields are counted from the last closing parenthesis.
func ParseStat(text []byte) (Stat, bool) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return Stat{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil || pid <= 0 {
		return Stat{}, false
	}
	const fieldState, fieldParent, fieldGroup, fieldSession, fieldUser, fieldSystem, fieldNice, fieldStart = 0, 1, 2, 3, 11, 12, 16, 19 // counted from the name
	st := Stat{PID: pid}
	n := 0
	for field := range bytes.FieldsSeq(text[end+1:]) {
		switch n {
		case fieldState:
			st.Zombie, st.Runnable = field[0] == 'Z' || field[0] == 'X', field[0] == 'R'
		case fieldParent:
			st.Parent, err = strconv.Atoi(string(field))
		case fieldGroup:
			st.Group, err = strconv.Atoi(string(field))
		case fieldSession:
			st.Session, err = strconv.Atoi(string(field))
		case fieldUser, fieldSystem:
			var ticks uint64
			ticks, err = strconv.ParseUint(string(field), 10, 62) // so that the sum is in range
			st.Ticks += ticks
		case fieldNice:
			st.Nice, err = strconv.Atoi(string(field))
		case fieldStart:
			st.Start, err = strconv.ParseUint(string(field), 10, 64)
		}
		if err != nil {
			return Stat{}, false
		}
		if n++; n > fieldStart {
			break
		}
	}
	if n <= fieldStart || st.Parent < 0 {
		return Stat{}, false
	}
	return st, true
}
