package process

import (
	"bytes"
	"io"
	"strings"

	"github.com/xebec-serving/xebec/containers"
)

// hint is what the owner of a model should know when its output says this.
type hint struct {
	says []string
	text string
}

const (
	networkHint = "xebec: this replica has no network but a loopback interface of its own. If the model needs one, set run.network: host in its manifest."
	writeHint   = "xebec: this replica may write below /tmp, /dev/shm and TMPDIR only, and what is there ends with it. Write there, or set run.isolation: none in the model's manifest."
)

// hintsFor returns the hints of an isolated launch.
func hintsFor(l containers.Launch) []hint {
	if l.Isolation.Level == containers.IsolateNone {
		return nil
	}
	all := []hint{{[]string{"Read-only file system", "read-only file system", "Errno 30"}, writeHint}}
	if len(l.Preload) > 0 { // it may be forked, and Landlock's answer to its writes is EACCES
		all[0].says = append(all[0].says, "Permission denied: '")
	}
	if !l.Isolation.Network {
		all = append(all, hint{[]string{"Network is unreachable", "network is unreachable", "Temporary failure in name resolution", "Name or service not known",
			"no such host", "Could not resolve host", "Connection refused", "connection refused"}, networkHint})
	}
	return all
}

// Advise returns the hints that an error of a launch's model calls for.
func (r *Runtime) Advise(l containers.Launch, text string) (all []string) {
	for _, one := range hintsFor(l) {
		for _, says := range one.says {
			if strings.Contains(text, says) {
				all = append(all, one.text)
				break
			}
		}
	}
	return all
}

// hinter passes a worker's stderr on and adds each hint once, after the output that calls for it, and once more at the
// end of a replica that failed.
type hinter struct {
	to    io.Writer
	hints []hint
	tail  []byte   // the end of the last write: a text may come in two
	given []string // hints that were added
	after bool     // whether output came after the last of them
}

// hintTailBytes is the longest text that a hint looks for, less one.
const hintTailBytes = 48

func (h *hinter) Write(p []byte) (int, error) {
	n, err := h.to.Write(p)
	seen := append(h.tail, p...)
	left := h.hints[:0]
	h.after = h.after || len(p) > 0
	for _, one := range h.hints {
		found := false
		for _, text := range one.says {
			found = found || bytes.Contains(seen, []byte(text))
		}
		if !found {
			left = append(left, one)
			continue
		}
		h.add(seen, one.text)
		h.given, h.after = append(h.given, one.text), false
	}
	h.hints = left
	h.tail = append([]byte(nil), seen[max(0, len(seen)-hintTailBytes):]...)
	return n, err
}

// end repeats the hints of a replica that failed, below the output that came after them: people read the last lines first,
// and a chained traceback begins with the cause.
func (h *hinter) end(exit containers.Exit) {
	if exit.Code <= 0 || !h.after {
		return
	}
	for _, text := range h.given {
		h.add(h.tail, text)
		h.tail = nil
	}
}

// add writes a hint on a line of its own. The output before it ends with last.
func (h *hinter) add(last []byte, text string) {
	start := ""
	if len(last) > 0 && last[len(last)-1] != '\n' {
		start = "\n"
	}
	_, _ = io.WriteString(h.to, start+text+"\n")
}
