package containers

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Writer returns a writer that splits its input into lines of one replica's stream. Close adds a last line that has no
// end.
//
// A carriage return inside a line restarts the line, as on a terminal: of a progress bar only the last state is kept.
func (l *Logs) Writer(replica uint64, s Stream) *LineWriter {
	return &LineWriter{logs: l, replica: replica, stream: s}
}

// LineWriter splits a stream of bytes into lines. The longest line that is kept bounds its memory.
type LineWriter struct {
	logs    *Logs
	replica uint64
	stream  Stream

	mu   sync.Mutex // Close may be called by another goroutine than Write
	line []byte
	// cut: the rest of this line is dropped. cr: the last byte was a carriage return, whose meaning depends on the next
	// one.
	cut, cr bool
}

// Write never fails and never blocks.
func (w *LineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range p {
		switch b {
		case '\n':
			w.flush()
		case '\r':
			w.cr = true
		default:
			if w.cr {
				w.line, w.cut, w.cr = w.line[:0], false, false
			}
			if len(w.line) < maxLineBytes {
				w.line = append(w.line, b)
			} else {
				w.cut = true
			}
		}
	}
	return len(p), nil
}

// Close adds an unfinished line. It always returns nil.
func (w *LineWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.flush()
	}
	return nil
}

func (w *LineWriter) flush() {
	text, cut := cleanLine(string(w.line))
	w.logs.add(w.replica, w.stream, text, cut || w.cut)
	w.line, w.cut, w.cr = w.line[:0], false, false
	if cap(w.line) > 1024 { // do not keep one long line's memory for the worker's life
		w.line = nil
	}
}

// cleanLine returns text as valid UTF-8 of at most maxLineBytes, cut at a character boundary.
func cleanLine(text string) (string, bool) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxLineBytes {
		return text, false
	}
	end := maxLineBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]), true
}
