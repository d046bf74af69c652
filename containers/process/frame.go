package process

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/xebec-serving/xebec/containers/cgroup"
)

// The gateway and its reaper exchange frames over a stream socket: a little-endian u32 length and that many bytes of
// JSON. Descriptors, such as the write ends of a launch's stdout and stderr, are sent as SCM_RIGHTS with the length.
// Strings that come from outside are byte slices, because a path or an environment variable need not be UTF-8.

const (
	frameHeaderBytes = 4
	// maxFrameBytes is well above what exec accepts (arguments and environment: a quarter of the stack limit, usually 2
	// MiB), including base64.
	maxFrameBytes = 4 << 20
	// maxFrameFDs is the number for a zygote: stdout, stderr and its end of a socket pair.
	maxFrameFDs = 3
)

// op is the type of a message.
type op string

const (
	opLaunch op = "launch" // gateway → reaper, with two descriptors, three for a zygote
	opAdopt  op = "adopt"  // gateway → reaper, with one descriptor: the forked process waits at its other end
	opSignal op = "signal" // gateway → reaper
	opRaise  op = "raise"  // gateway → reaper
	opLower  op = "lower"  // gateway → reaper; no answer

	opHello   op = "hello"   // reaper → gateway, once
	opStarted op = "started" // answers launch and adopt
	opFailed  op = "failed"  // answers launch and adopt
	opRaised  op = "raised"  // answers raise, unless the replica ends meanwhile
	opExited  op = "exited"  // after started, once
)

// request is a message to the reaper.
type request struct {
	Op op `json:"op"`
	// ID identifies the launch.
	ID uint64 `json:"id"`

	Path   []byte   `json:"path,omitempty"`
	Argv   [][]byte `json:"argv,omitempty"`
	Dir    []byte   `json:"dir,omitempty"`
	Env    [][]byte `json:"env,omitempty"`
	Marker string   `json:"marker,omitempty"` // the value of markerName in Env
	// PID is the process to adopt, as its zygote knows it. Zygote is the launch of that.
	PID    int    `json:"pid,omitempty"`
	Zygote uint64 `json:"zygote,omitempty"`

	OpenFiles uint64 `json:"open_files,omitempty"`
	DataBytes uint64 `json:"data_bytes,omitempty"`
	// Groups is the replica's cgroup, if its limits need one.
	Groups cgroup.Places `json:"groups,omitempty"`
	// Sandbox isolates it; nil: it is a plain process.
	Sandbox *sandbox `json:"sandbox,omitempty"`
	// Quiet: start it at the lowest priority, if that can be undone.
	Quiet bool `json:"quiet,omitempty"`

	// Kill: kill the replica's whole group. Otherwise its first process gets SIGTERM.
	Kill bool `json:"kill,omitempty"`
}

// reply is a message from the reaper.
type reply struct {
	Op  op     `json:"op"`
	ID  uint64 `json:"id,omitempty"`
	PID int    `json:"pid,omitempty"`
	// Quiet: it was started at the lowest priority.
	Quiet bool `json:"quiet,omitempty"`
	// Layers and Missing, with started, say how it is isolated.
	Layers  []string `json:"layers,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Text says in words what failed, where Errno does not.
	Text string `json:"text,omitempty"`
	// Errno and Step say what failed and at which step; with hello, why no replica can be quiet.
	Errno int    `json:"errno,omitempty"`
	Step  string `json:"step,omitempty"`
	// Status is the wait status from wait4.
	Status uint32 `json:"status,omitempty"`
}

// appendFrame appends m as a frame.
func appendFrame(dst []byte, m any) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return dst, err
	}
	if len(body) > maxFrameBytes {
		return dst, fmt.Errorf("command and environment take %d bytes: expected at most %d in all", len(body), maxFrameBytes)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...), nil
}

// frameLen decodes a frame's header.
func frameLen(header [frameHeaderBytes]byte) (int, error) {
	n := binary.LittleEndian.Uint32(header[:])
	if n == 0 || n > maxFrameBytes {
		return 0, fmt.Errorf("a frame of %d bytes: expected 1 to %d", n, maxFrameBytes)
	}
	return int(n), nil
}

func decodeRequest(body []byte) (request, error) {
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return q, err
	}
	switch q.Op {
	case opLaunch, opAdopt:
		if q.ID == 0 {
			return q, fmt.Errorf("a %s has no number", q.Op)
		}
	}
	switch q.Op {
	case opLaunch:
		if len(q.Path) == 0 || len(q.Argv) == 0 || q.Marker == "" {
			return q, fmt.Errorf("launch %d lacks a program, arguments or a marker", q.ID)
		}
	case opAdopt:
		if q.PID <= 0 || q.Marker == "" {
			return q, fmt.Errorf("adoption %d has process %d and the marker %q: expected a positive pid and a marker", q.ID, q.PID, q.Marker)
		}
	case opSignal, opRaise, opLower:
	default:
		return q, fmt.Errorf("unknown request %q", q.Op)
	}
	return q, nil
}

func decodeReply(body []byte) (reply, error) {
	var p reply
	if err := json.Unmarshal(body, &p); err != nil {
		return p, err
	}
	switch p.Op {
	case opStarted:
		if p.PID <= 0 {
			return p, fmt.Errorf("launch %d started as process %d", p.ID, p.PID)
		}
	case opHello, opFailed, opRaised, opExited:
	default:
		return p, fmt.Errorf("unknown reply %q", p.Op)
	}
	return p, nil
}
