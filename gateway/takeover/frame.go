package takeover

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// Version is the version of the protocol. A process refuses another one's.
const Version = 1

// MaxFrameBytes bounds a frame. The largest are calls with what was learned, a few hundred states at a time; a larger call fails, and
// its caller makes a smaller one.
const MaxFrameBytes = 16 << 20 //xebec:limit one message between two processes of a gateway in a takeover

// headerBytes are the length of the payload, 4 bytes with the lowest first, and the kind.
const headerBytes = 5

// Kind is what a frame has.
type Kind uint8

// The kinds. All payloads are JSON except that of past, which is a record of package query.
const (
	KindHello Kind = iota + 1
	KindWelcome
	KindReady
	KindRelease
	KindServing
	KindAbort // before the commit point: Reason
	KindCall  // after the commit point, in both directions
	KindAnswer
	KindPast
	KindDone
	KindUpgrade // from the command line: start a new process
	KindProgress
	KindResult // the answer to the command line
	KindTry    // with the socket that the share of the connections comes from
	// KindConnections comes after the commit point, with the socket that the connections which clients keep come from.
	KindConnections
	kinds
)

// Hello begins a takeover.
type Hello struct {
	Version int    `json:"version"`
	Program string `json:"program"`
	// Canary: the process first wants a share of the connections; nil: it does not.
	Canary *Canary `json:"canary,omitempty"`
	// Connections: the process can take connections that clients keep.
	Connections bool `json:"connections,omitempty"`
	// Awaited: the process says what it has not loaded yet, if it is asked.
	Awaited bool `json:"awaited,omitempty"`
}

// Canary is how a new process is tried.
type Canary struct {
	// Share is its part of the new connections, above 0 and at most 0.5.
	Share float64 `json:"share"`
	// Seconds is how long it is tried.
	Seconds float64 `json:"seconds"`
}

// Bounds of a canary.
const (
	MaxCanaryShare  = 0.5                    //xebec:limit `--canary`
	MinCanaryTime   = 100 * time.Millisecond //xebec:limit shortest `--canary-time`
	MaxCanaryTime   = 24 * time.Hour         //xebec:limit longest `--canary-time`
	leastShare      = 0.001                  // a thousandth: of fewer connections nothing can be learned
	canaryExplained = "expected a share of the connections from 0.1% to 50%, for 100ms to 24h"
)

// Check returns what is wrong with a canary; nil: nothing.
func (c *Canary) Check() error {
	if c == nil {
		return nil
	}
	if !(c.Share >= leastShare && c.Share <= MaxCanaryShare && c.Seconds >= MinCanaryTime.Seconds() && c.Seconds <= MaxCanaryTime.Seconds()) {
		return fmt.Errorf("a canary of %g%% for %gs: %s", c.Share*100, c.Seconds, canaryExplained)
	}
	return nil
}

// Time is how long the new process is tried.
func (c *Canary) Time() time.Duration { return time.Duration(c.Seconds * float64(time.Second)) }

// WelcomeMessage is what the new process needs to load.
type WelcomeMessage struct {
	Version int    `json:"version"`
	Program string `json:"program"`
	// Files says what the descriptors are that come with the message, in their order.
	Files []string `json:"files"`
	// Store is the old process's store, and Copy a copy of what is declared if that is a file.
	Store string `json:"store"`
	Copy  string `json:"copy,omitempty"`
	// Second: the new process uses the second set of names in the data directory.
	Second bool `json:"second"`
	// OwnPort: the function port is these processes' alone. Otherwise a supervisor such as systemd has it too, or the old process does not say.
	OwnPort bool `json:"own_port,omitempty"`
	// Canary: the old process knows that the new one is to be tried first.
	Canary bool `json:"canary,omitempty"`
	// Replicas is how many replicas versions have, by "name@version".
	Replicas map[string]int `json:"replicas,omitempty"`
	// Declared is what is in force, by kind: names of functions and of models with rules, and "name@version".
	Declared map[string][]string `json:"declared,omitempty"`
	// Recounts: the old process says how many they have by then, if it is asked.
	Recounts bool `json:"recounts,omitempty"`
}

// Abort says why a takeover has ended.
type Abort struct {
	Reason string `json:"reason"`
}

// Call asks the other process for something, Answer is its answer.
type Call struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body"`
}

// Answer is the answer to a call.
type Answer struct {
	ID    uint64          `json:"id"`
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Upgrade asks a gateway to start a new process of itself.
type Upgrade struct {
	Binary string  `json:"binary,omitempty"` // empty: the file of the running program, which may be another one by now
	Canary *Canary `json:"canary,omitempty"` // nil: it is not tried first
}

// Progress says how far an upgrade is.
type Progress struct {
	PID   int   `json:"pid"`
	Stage Stage `json:"stage"`
	// Share and Seconds are those of the canary at stage StageCanary; Passed is how many connections it has got, Answers and Errors
	// what it has answered, and Elapsed the seconds since it began.
	Share   float64 `json:"share,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Elapsed float64 `json:"elapsed,omitempty"`
	Passed  uint64  `json:"passed,omitempty"`
	Answers uint64  `json:"answers,omitempty"`
	Errors  uint64  `json:"errors,omitempty"`
	// Reason is why the canary is promoted or sent back, or what an upgrade or the new process waits for.
	Reason string `json:"reason,omitempty"`
}

// Stage is a step of an upgrade for people and scripts.
type Stage string

// The stages, in their order. Of the two after StageCanary one comes.
const (
	// StageWaiting: process PID serves, and has only just taken over. Reason says what it waits for.
	StageWaiting  Stage = "waiting"
	StageStarted  Stage = "started"
	StageLoading  Stage = "loading"
	StageCanary   Stage = "canary"
	StagePromoted Stage = "promoted"
	StageSentBack Stage = "sent back"
)

// Result ends an upgrade. Error is empty if the new process serves.
type Result struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// Frame is one message.
type Frame struct {
	Kind    Kind
	Payload []byte
}

// Decode reads the payload of a message in JSON.
func (f Frame) Decode(into any) error {
	if err := json.Unmarshal(f.Payload, into); err != nil {
		return fmt.Errorf("message %d of a takeover: %w", f.Kind, err)
	}
	return nil
}

// appendFrame appends a frame.
func appendFrame(b []byte, kind Kind, payload []byte) ([]byte, error) {
	if len(payload) > MaxFrameBytes {
		return b, fmt.Errorf("a message of a takeover has %d bytes, expected at most %d", len(payload), MaxFrameBytes)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, byte(kind)), payload...), nil
}

// parseHeader parses the header of a frame.
func parseHeader(b [headerBytes]byte) (kind Kind, payloadBytes int, err error) {
	n := binary.LittleEndian.Uint32(b[:])
	kind = Kind(b[4])
	if n > MaxFrameBytes {
		return 0, 0, fmt.Errorf("a message of a takeover has %d bytes, expected at most %d", n, MaxFrameBytes)
	}
	if kind == 0 || kind >= kinds {
		return 0, 0, fmt.Errorf("a message of a takeover has the kind %d, expected 1 to %d", kind, kinds-1)
	}
	return kind, int(n), nil
}
