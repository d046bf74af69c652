package containers

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// maxLogLines and maxLogBytes bound the log of one model version: enough for the tracebacks of a crash loop, and 10
	// MB for ten models with much output. The gateway's own log keeps more.
	maxLogLines = 1000    //xebec:limit lines kept of a version's output
	maxLogBytes = 1 << 20 //xebec:limit bytes kept of a version's output
	// maxLineBytes is where a line is cut, so that a worker that prints a tensor does not displace all other lines.
	maxLineBytes = 8 << 10 //xebec:limit one line of output
)

// Stream is where a line came from.
type Stream uint8

// The streams of a replica. System has the supervisor's messages about it.
const (
	Stdout Stream = iota + 1
	Stderr
	System
)

// String is the stream's name in JSON and on the terminal.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	default:
		return "system"
	}
}

// Line is one line of a replica's output.
type Line struct {
	// Seq counts the lines of a [Logs] from 1, without gaps.
	Seq     uint64
	At      time.Time
	Replica uint64
	Stream  Stream
	// Text is valid UTF-8 without the line's end, at most 8 KiB.
	Text string
	// Cut says that the line was longer.
	Cut bool
}

// Logs keeps the last lines of one model version's replicas in memory: at most 1000 lines and 1 MiB. Many goroutines
// may use it. It starts none, and never makes a writer wait for a reader.
type Logs struct {
	now func() time.Time

	mu sync.Mutex
	// ring[seq % maxLogLines] holds line seq, for first <= seq < next. It grows to its bound as needed: most models
	// write little.
	ring        []Line
	first, next uint64
	bytes       int
	closed      bool
	// changed is closed when a line is added or the log is closed; nil if no follower waits.
	changed chan struct{}
}

// NewLogs returns an empty log.
func NewLogs() *Logs {
	return &Logs{now: time.Now, first: 1, next: 1}
}

// Add appends one line, cut to 8 KiB. A closed log ignores it.
func (l *Logs) Add(replica uint64, s Stream, text string) {
	text, cut := cleanLine(text)
	l.add(replica, s, text, cut)
}

func (l *Logs) add(replica uint64, s Stream, text string, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	for l.first < l.next && (l.next-l.first >= maxLogLines || l.bytes+len(text) > maxLogBytes) {
		oldest := &l.ring[l.first%maxLogLines]
		l.bytes -= len(oldest.Text)
		*oldest = Line{}
		l.first++
	}
	for uint64(len(l.ring)) <= l.next%maxLogLines {
		l.ring = append(l.ring, Line{})
	}
	l.ring[l.next%maxLogLines] = Line{Seq: l.next, At: l.now(), Replica: replica, Stream: s, Text: text, Cut: cut}
	l.bytes += len(text)
	l.next++
	l.wake()
}

// Close ends every follower once it has read the remaining lines.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
}

func (l *Logs) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Tail returns the last lines, at most n, oldest first.
func (l *Logs) Tail(n int) []Line {
	return l.tail(n, func(*Line) bool { return true })
}

// TailOf returns the last lines of one replica, at most n, oldest first.
func (l *Logs) TailOf(replica uint64, n int) []Line {
	return l.tail(n, func(line *Line) bool { return line.Replica == replica })
}

func (l *Logs) tail(n int, keep func(*Line) bool) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []Line
	for seq := l.next; seq > l.first && len(lines) < n; seq-- {
		if line := &l.ring[(seq-1)%maxLogLines]; keep(line) {
			lines = append(lines, *line)
		}
	}
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return lines
}

// Follower reads a log as it grows. It holds only a position in the log, so a slow one costs nothing: it misses lines
// that were dropped meanwhile, and Next says how many. It is used by one goroutine.
type Follower struct {
	logs *Logs
	next uint64
}

// Follow returns a follower that begins with the last n lines.
func (l *Logs) Follow(n int) *Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.first
	if kept := l.next - l.first; n >= 0 && uint64(n) < kept {
		from = l.next - uint64(n)
	}
	return &Follower{logs: l, next: from}
}

// Next returns the lines since the last call, oldest first, and how many were missed before the first of them. It waits
// until there is a line. The error is ctx's, or io.EOF if the log is closed and read to its end.
func (f *Follower) Next(ctx context.Context) (lines []Line, lost uint64, err error) {
	for {
		changed, err := f.read(&lines, &lost)
		if changed == nil {
			return lines, lost, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// read takes the available lines, or returns the channel to wait for.
func (f *Follower) read(lines *[]Line, lost *uint64) (<-chan struct{}, error) {
	l := f.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.next < l.first {
		*lost = l.first - f.next
		f.next = l.first
	}
	if f.next < l.next {
		for ; f.next < l.next; f.next++ {
			*lines = append(*lines, l.ring[f.next%maxLogLines])
		}
		return nil, nil
	}
	if l.closed {
		return nil, io.EOF
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed, nil
}
