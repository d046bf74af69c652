package main

import (
	"fmt"
	"io"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger makes the gateway's log on w. close writes what waits; it is called at the end.
func newLogger(level string, w io.Writer) (log *zap.Logger, close func(), err error) {
	l, err := zap.ParseAtomicLevel(level)
	if err != nil {
		return nil, nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", level)
	}
	out := newAsyncWriter(w)
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), out, l)
	return zap.New(core), out.close, nil
}

// maxPendingLogLines bounds the lines that wait for a stderr that is not read.
const maxPendingLogLines = 1024

// asyncWriter takes lines without waiting for their reader: events are logged from pollers, and one that waited for a full pipe
// would stop the whole gateway. Lines that find no room are counted and dropped.
type asyncWriter struct {
	out   io.Writer
	lines chan []byte
	done  chan struct{}

	mu      sync.Mutex
	dropped int
	closed  bool
}

func newAsyncWriter(out io.Writer) *asyncWriter {
	w := &asyncWriter{out: out, lines: make(chan []byte, maxPendingLogLines), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for line := range w.lines {
			_, _ = out.Write(line) // an error cannot be reported anywhere
		}
	}()
	return w
}

// Write copies the line; zap uses the buffer again.
func (w *asyncWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(p), nil
	}
	if w.dropped > 0 {
		select {
		case w.lines <- fmt.Appendf(nil, "%d log lines were dropped: stderr was not read in time\n", w.dropped):
			w.dropped = 0
		default:
		}
	}
	select {
	case w.lines <- append([]byte(nil), p...):
	default:
		w.dropped++
	}
	return len(p), nil
}

// Sync is zap's; nothing is buffered that close does not write.
func (w *asyncWriter) Sync() error { return nil }

// close writes what waits. A reader that does not read holds up the end of the program, and nothing else.
func (w *asyncWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.lines)
	<-w.done
}
