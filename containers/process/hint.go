package process

import (
	"bytes"
	"io"

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
			"no such host", "Could not resolve host"}, networkHint})
	}
	return all
}

// hinter passes a worker's stderr on and adds each hint once, after the output that calls for it.
type hinter struct {
	to    io.Writer
	hints []hint
	tail  []byte // the end of the last write: a text may come in two
}

// hintTailBytes is the longest text that a hint looks for, less one.
const hintTailBytes = 48

func (h *hinter) Write(p []byte) (int, error) {
	n, err := h.to.Write(p)
	seen := append(h.tail, p...)
	left := h.hints[:0]
	for _, one := range h.hints {
		found := false
		for _, text := range one.says {
			found = found || bytes.Contains(seen, []byte(text))
		}
		if !found {
			left = append(left, one)
			continue
		}
		start := ""
		if len(p) > 0 && p[len(p)-1] != '\n' {
			start = "\n"
		}
		_, _ = io.WriteString(h.to, start+one.text+"\n")
	}
	h.hints = left
	h.tail = append([]byte(nil), seen[max(0, len(seen)-hintTailBytes):]...)
	return n, err
}
