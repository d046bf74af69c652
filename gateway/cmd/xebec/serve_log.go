package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The formats of the log.
const (
	logConsole = "console"
	logJSON    = "json"
)

// newLogger makes the gateway's log on w. close writes what waits; it is called at the end.
func newLogger(level, format string, w io.Writer) (log *zap.Logger, close func(), err error) {
	l, err := zap.ParseAtomicLevel(level)
	if err != nil {
		return nil, nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", level)
	}
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	switch format {
	case logConsole:
	case logJSON:
		c := zap.NewProductionEncoderConfig()
		c.TimeKey, c.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
		encoder = zapcore.NewJSONEncoder(c)
	default:
		return nil, nil, fmt.Errorf("--log-format %q: expected %s or %s", format, logConsole, logJSON)
	}
	out := newAsyncWriter(w, func(n int) []byte {
		line, err := encoder.Clone().EncodeEntry(zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(), Message: "log lines were dropped: stderr was not read in time"}, []zapcore.Field{zap.Int("lines", n)})
		if err != nil {
			return fmt.Appendf(nil, "%d log lines were dropped\n", n)
		}
		defer line.Free()
		return append([]byte(nil), line.Bytes()...)
	})
	return zap.New(zapcore.NewCore(encoder, out, l)), out.close, nil
}

// maxPendingLogLines bounds the lines that wait for a stderr that is not read.
const maxPendingLogLines = 1024

// asyncWriter takes lines without waiting for their reader: events are logged from pollers, and one that waited for a full pipe
// would stop the whole gateway. Lines that find no room are counted and dropped.
type asyncWriter struct {
	out   io.Writer
	lines chan []byte
	done  chan struct{}
	// droppedLine is the line that tells of dropped ones.
	droppedLine func(n int) []byte

	mu      sync.Mutex
	dropped int
	closed  bool
}

func newAsyncWriter(out io.Writer, droppedLine func(int) []byte) *asyncWriter {
	w := &asyncWriter{out: out, lines: make(chan []byte, maxPendingLogLines), done: make(chan struct{}), droppedLine: droppedLine}
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
		case w.lines <- w.droppedLine(w.dropped):
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
