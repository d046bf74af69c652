package containers

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Writer returns a writer that adds what is written to it as lines of one replica's stream. Close adds a last line that has
// no end.
//
// A carriage return inside a line starts the line anew, as on a terminal: of a progress bar only the last state is kept.
func (l *Logs) Writer(replica uint64, s Stream) *LineWriter {
	return &LineWriter{logs: l, replica: replica, stream: s}
}

// LineWriter cuts a stream of bytes into lines. Its memory is bounded by the longest line that is kept.
type LineWriter struct {
	logs    *Logs
	replica uint64
	stream  Stream

	mu   sync.Mutex // Close may come from another goroutine than Write
	line []byte
	// cut: the rest of this line is dropped. cr: the last byte was a carriage return, and what follows decides.
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

// Close adds what is left of an unfinished line. It always returns nil.
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
	if cap(w.line) > 1024 { // one long line must not hold its memory for the worker's life
		w.line = nil
	}
}

// cleanLine makes text valid UTF-8 of at most maxLineBytes, cut at the start of a character.
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
