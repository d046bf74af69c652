package containers

import "fmt"

// signals explains the Linux signals that end workers in practice, for readers of `describe`.
var signals = map[int][2]string{
	1:  {"SIGHUP", "hang-up"},
	2:  {"SIGINT", "interrupted"},
	3:  {"SIGQUIT", "quit"},
	4:  {"SIGILL", "an illegal instruction: often code compiled for another processor"},
	5:  {"SIGTRAP", "a trap: often a failed check in native code"},
	6:  {"SIGABRT", "it aborted: a failed assertion or an uncaught exception in native code"},
	7:  {"SIGBUS", "a bad memory access: often a mapped file that was truncated, or memory that could not be allocated"},
	8:  {"SIGFPE", "an arithmetic error in native code, such as a division by zero"},
	9:  {"SIGKILL", "killed from outside: the kernel does this when memory runs out"},
	11: {"SIGSEGV", "an invalid memory access in native code"},
	13: {"SIGPIPE", "it wrote to a closed pipe or socket"},
	14: {"SIGALRM", "an alarm timer"},
	15: {"SIGTERM", "asked to end"},
	24: {"SIGXCPU", "its limit of processor time was reached"},
	25: {"SIGXFSZ", "its limit of file size was reached"},
	31: {"SIGSYS", "a system call that is forbidden here"},
}

// ownSignals are those that code brings upon its own process.
var ownSignals = map[int]bool{4: true, 5: true, 6: true, 7: true, 8: true, 11: true, 24: true, 25: true, 31: true}

// Own reports whether the process ended itself: by an exit, by a fault in its code, or by exceeding its own limit of
// memory. SIGKILL may be the kernel's, when the machine's memory runs out, or a person's.
func (e Exit) Own() bool {
	signal := e.Signal
	if signal == 0 && signals[e.Code-128][0] != "" { // from a shell
		signal = e.Code - 128
	}
	return e.Cause == OutOfMemory || e.Cause == 0 && e.Reason == "" && (signal == 0 || ownSignals[signal])
}

// String describes how the replica ended: a clause without a full stop.
func (e Exit) String() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Signal != 0:
		return "ended by " + signalWords(e.Signal)
	case e.Code == 126:
		return "exited with code 126 (from a shell: the command is not executable)"
	case e.Code == 127:
		return "exited with code 127 (from a shell: the command was not found)"
	case e.Code > 128 && signals[e.Code-128][0] != "":
		return fmt.Sprintf("exited with code %d (from a shell: the command was ended by %s)", e.Code, signalWords(e.Code-128))
	default:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
}

func signalWords(n int) string {
	if s, ok := signals[n]; ok {
		return fmt.Sprintf("%s (%s)", s[0], s[1])
	}
	return fmt.Sprintf("signal %d", n)
}
