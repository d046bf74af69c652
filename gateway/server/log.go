package server

import (
	"fmt"
	"io"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger makes the gateway's log on stderr, and what is to be called at the end.
func logger(cfg Config) (*zap.Logger, func(), error) {
	if cfg.Logger != nil {
		return cfg.Logger, func() {}, nil
	}
	if cfg.LogLevel == "" {
		cfg.LogLevel = "info"
	}
	level, err := zap.ParseAtomicLevel(cfg.LogLevel)
	if err != nil {
		return nil, nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", cfg.LogLevel)
	}
	w := newAsyncWriter(os.Stderr)
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), w, level)
	return zap.New(core), w.close, nil
}

// maxPendingLogLines bounds what waits for a stderr that nobody reads.
const maxPendingLogLines = 1024

// asyncWriter takes lines without ever waiting for whoever reads them: events are logged from pollers, and one that waited for a
// full pipe would stop the whole gateway. Lines that find no room are counted and dropped.
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
			_, _ = out.Write(line) // there is nobody to tell
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
		case w.lines <- fmt.Appendf(nil, "%d log lines were dropped: nobody read them\n", w.dropped):
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

// close writes what waits. A reader that does not read holds up the end of the program, and nothing before it.
func (w *asyncWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.lines)
	<-w.done
}
