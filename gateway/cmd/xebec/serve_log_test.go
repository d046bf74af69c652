package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
)

// stuck is a pipe that is not read until it is opened.
type stuck struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.open
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func TestALogThatNobodyReadsHoldsUpNobody(t *testing.T) {
	out := &stuck{open: make(chan struct{})}
	w := newAsyncWriter(out, func(n int) []byte { return fmt.Appendf(nil, "%d log lines were dropped\n", n) })
	for range 3 * maxPendingLogLines { // returns although nothing is read
		w.Write([]byte("line\n"))
	}
	close(out.open)
	for w.pending() > 0 {
		w.Write([]byte("again\n"))
	}
	w.close()
	text := out.got.String()
	if !strings.Contains(text, "log lines were dropped") || strings.Count(text, "line\n") < maxPendingLogLines {
		t.Errorf("%d lines came, and of the rest nothing is said", strings.Count(text, "line\n"))
	}
}

// pending is how many dropped lines have not been told of.
func (w *asyncWriter) pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

func TestLogFormats(t *testing.T) {
	for format, holds := range map[string]func(line []byte) bool{
		logConsole: func(line []byte) bool { return bytes.Contains(line, []byte("WARN\tnews\t{\"")) },
		logJSON: func(line []byte) bool {
			var entry struct{ Level, Time, Msg, About string }
			return json.Unmarshal(line, &entry) == nil && entry.Level == "warn" && entry.Msg == "news" && entry.About == "models" && entry.Time != ""
		},
	} {
		var out bytes.Buffer
		log, end, err := newLogger("info", format, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("nothing")
		log.Warn("news", zap.String("about", "models"))
		end()
		if !holds(out.Bytes()) || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%s: %s", format, out.Bytes())
		}
	}
	if _, _, err := newLogger("info", "xml", io.Discard); err == nil || !strings.Contains(err.Error(), "console or json") {
		t.Errorf("an unknown format: %v", err)
	}
}
